//! Staging and forwarding: steps that a program puts without waiting arrive at another agent, whatever is killed or cut meanwhile.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use std::time::{Duration, Instant};
use terrace_client::{
    Array, ArraySpec, Arrived, Create, DataType, Full, Kind, Link, Region, Session, Staged, StagerSpec, TagValue,
};
use terrace_core::control::ForwardStatus;
use terrace_core::objects::wire::Request;
use terrace_tests::{Outcome, Proxy, Random, Served, Wish, Workplace, again, is_root, skipped, wait_until};

const ROWS: u64 = 24;
const COLUMNS: u64 = 40;

/// A field that grows by a step at a time.
fn field(session: &Session, name: &str) -> Array {
    let spec = ArraySpec::new(DataType::Float64, &[0, ROWS, COLUMNS])
        .unlimited(0)
        .chunks(&[1, ROWS, COLUMNS])
        .fill(&(-1f64).to_le_bytes())
        .dimensions(&["time", "y", "x"]);
    make(session, name, &spec, Create::IfMissing)
}

/// An array, and the container that it lies in.
fn make(session: &Session, name: &str, spec: &ArraySpec, create: Create) -> Array {
    session.create_container(name.rsplit_once('/').unwrap().0, Create::IfMissing).unwrap();
    session.create_array(name, spec, create).unwrap()
}

/// What a field has at a step: no two cells of all steps are the same.
fn values(seed: u64, step: u64) -> Vec<f64> {
    (0..ROWS * COLUMNS).map(|cell| (seed * 1_000_003 + step) as f64 * 1e4 + cell as f64).collect()
}

fn step_region(step: u64) -> Region {
    Region::block(&[step, 0, 0], &[1, ROWS, COLUMNS]).unwrap()
}

fn put_step(array: &Array, seed: u64, step: u64) {
    array.put_values(&step_region(step), &values(seed, step)).unwrap();
}

#[track_caller]
fn check_steps(array: &Array, seed: u64, steps: std::ops::Range<u64>) {
    for step in steps {
        let found = array.get_values::<f64>(&step_region(step)).unwrap();
        assert!(found == values(seed, step), "step {step} of field {seed} has other cells, first {}", found[0]);
    }
}

/// A rule that sends containers to an agent.
fn rule(place: &Workplace, container: &str, address: &str, more: &str) -> String {
    let token_file = place.scratch().join("token");
    format!("{container}=tcp://{address} token_file={} {more}", token_file.display())
}

fn forwards(place: &Workplace) -> Vec<ForwardStatus> {
    place.status().map(|status| status.forwards).unwrap_or_default()
}

fn roomy() -> Workplace {
    Wish::default().tier("ram", "64MiB").build()
}

#[test]
fn tags_arrive_after_what_they_speak_of() {
    let (staging, analysis) = (roomy(), roomy());
    let there = Served::begin(&analysis, &[]);
    let here = Served::begin(&staging, &["--forward", &rule(&staging, "study/*", &there.address, "")]);
    let session = Session::open(&here.index).unwrap();
    let p = field(&session, "study/run/p");
    put_step(&p, 1, 0);
    session.put_tag("study/run/p", "unit", TagValue::Text("Pa".into())).unwrap();
    session.put_tag("study/run", "case", TagValue::Int(7)).unwrap();
    p.grow(&[9, ROWS, COLUMNS]).unwrap();
    let elsewhere = Session::connect_to(&there.address, Served::TOKEN).unwrap();
    let unit = || elsewhere.get_tag("study/run/p", "unit").ok().flatten() == Some(TagValue::Text("Pa".into()));
    assert!(wait_until(30, unit), "the tag does not arrive");
    assert!(wait_until(30, || elsewhere.get_tag("study/run", "case").ok().flatten() == Some(TagValue::Int(7))));
}

#[test]
fn what_is_staged_arrives_at_the_analysis_agent_as_it_is() {
    let (staging, analysis) = (roomy(), roomy());
    let there = Served::begin(&analysis, &[]);
    let here = Served::begin(&staging, &["--forward", &rule(&staging, "study/*", &there.address, "")]);
    let session = Session::open(&here.index).unwrap();
    let spec = ArraySpec::new(DataType::Float32, &[COLUMNS]).dimensions(&["x"]);
    let x = make(&session, "study/run/x", &spec, Create::New);
    let coordinates: Vec<f32> = (0..COLUMNS).map(|i| i as f32 * 0.5).collect();
    x.put_values(&Region::whole(&[COLUMNS]).unwrap(), &coordinates).unwrap();
    let (p, v) = (field(&session, "study/run/p"), field(&session, "study/run/v"));
    for step in 0..5 {
        put_step(&p, 1, step);
        put_step(&v, 2, step);
    }
    p.grow(&[9, ROWS, COLUMNS]).unwrap();
    // What no rule names stays here.
    field(&session, "study/p");

    let stager = session.stager(StagerSpec::default()).unwrap();
    assert_eq!(stager.put_owned(&v, &step_region(5), bytes_of(&values(2, 5))).unwrap(), Staged::Queued);
    stager.sync(Arrived::Analysis, Some(Duration::from_secs(60))).unwrap();
    let elsewhere = Session::connect_to(&there.address, Served::TOKEN).unwrap();
    let (far_p, far_v) =
        (elsewhere.open_array("study/run/p", false).unwrap(), elsewhere.open_array("study/run/v", false).unwrap());
    check_steps(&far_p, 1, 0..5);
    check_steps(&far_v, 2, 0..6);
    let far_x = elsewhere.open_array("study/run/x", false).unwrap();
    assert_eq!(far_x.get_values::<f32>(&Region::whole(&[COLUMNS]).unwrap()).unwrap(), coordinates);
    // All that describes it travels, too.
    let (near, far) = (p.spec(), far_p.spec());
    assert_eq!((far.data_type, &far.fill, &far.dimensions), (near.data_type, &near.fill, &near.dimensions));
    assert_eq!((&far.chunks, &far.unlimited), (&near.chunks, &near.unlimited));
    assert!(wait_until(30, || far_p.shape().unwrap() == [9, ROWS, COLUMNS]), "the growth does not arrive");
    assert!(!elsewhere.exists("study/p").unwrap());
    // An array that is made anew here is made anew there.
    let spec = ArraySpec::new(DataType::UInt8, &[4]);
    let anew = make(&session, "study/run/x", &spec, Create::Replace);
    anew.put(&Region::whole(&[4]).unwrap(), &[1, 2, 3, 4]).unwrap();
    let is_anew = || {
        let opened = elsewhere.open_array("study/run/x", false);
        opened.is_ok_and(|array| {
            array.get_values::<u8>(&Region::whole(&[4]).unwrap()).is_ok_and(|got| got == [1, 2, 3, 4])
        })
    };
    assert!(wait_until(30, is_anew), "the new array does not arrive: {:?}", forwards(&staging));

    // What nobody forwards can't be waited for.
    let lonely = field(&session, "other/p");
    let other = session.stager(StagerSpec::default()).unwrap();
    let _ = other.put(&lonely, &step_region(0), &bytes_of(&values(3, 0))).unwrap();
    assert_eq!(other.sync(Arrived::Analysis, None).unwrap_err().kind, Kind::Invalid);
    other.close().unwrap();
    stager.close().unwrap();
    drop((session, elsewhere, p, v, x, far_p, far_v, far_x, anew, lonely));
    here.end();
    there.end();
    staging.settled_tree();
    analysis.settled_tree();
}

fn bytes_of(values: &[f64]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

/// Writes steps of two fields at some pace, until it is told to end; how many it has written.
fn simulate(session: Session, container: &'static str, pace: Duration, steps: u64) -> std::thread::JoinHandle<u64> {
    std::thread::spawn(move || {
        let (p, v) = (field(&session, &format!("{container}/p")), field(&session, &format!("{container}/v")));
        let stager = session.stager(StagerSpec { queue_bytes: 8 << 20, ..StagerSpec::default() }).unwrap();
        for step in 0..steps {
            for (array, seed) in [(&p, 1), (&v, 2)] {
                let queued = stager.put_owned(array, &step_region(step), bytes_of(&values(seed, step))).unwrap();
                assert_eq!(queued, Staged::Queued);
            }
            std::thread::sleep(pace);
        }
        stager.close().unwrap();
        steps
    })
}

/// Reads whole steps at the analysis agent, in order, each once, whatever becomes of the agents.
fn analyse(address: String, container: &'static str, steps: u64) -> std::thread::JoinHandle<Vec<u64>> {
    std::thread::spawn(move || {
        let mut seen = vec![];
        let begun = Instant::now();
        while (seen.len() as u64) < steps && begun.elapsed() < Duration::from_secs(240) {
            let Ok(session) = Session::connect_to(&address, Served::TOKEN) else { continue };
            let Ok(mut cursor) = session.steps(container, seen.len() as u64, &["p", "v"]) else { continue };
            while (seen.len() as u64) < steps && begun.elapsed() < Duration::from_secs(240) {
                let Ok(next) = cursor.next(Some(Duration::from_millis(500))) else { break };
                let Some(step) = next else { continue };
                let read = ["p", "v"].map(|name| {
                    let array = session.open_array(&format!("{container}/{name}"), false)?;
                    array.get_values::<f64>(&step_region(step))
                });
                let [Ok(p), Ok(v)] = read else { break };
                assert!(p == values(1, step) && v == values(2, step), "step {step} is not whole, or not itself");
                seen.push(step);
            }
        }
        seen
    })
}

#[test]
fn kills_of_either_agent_and_a_cut_of_the_network_lose_nothing_and_stop_nobody() {
    let (staging, analysis) = (roomy(), roomy());
    let there = Served::begin(&analysis, &[]);
    let network = Proxy::to(&there.address);
    let here = Served::begin(&staging, &["--forward", &rule(&staging, "run", &network.address, "")]);
    // The simulation goes on all the while.
    let steps = 700;
    let simulation = simulate(Session::open(&here.index).unwrap(), "run", Duration::from_millis(100), steps);
    let reader = analyse(there.address.clone(), "run", steps);
    let rest = || std::thread::sleep(Duration::from_millis(700));
    rest();
    here.kill_agent(&staging);
    rest();
    there.kill_agent(&analysis);
    rest();
    // Puts that were on their way stay there, and come when others have been sent again.
    network.cut();
    std::thread::sleep(Duration::from_secs(60));
    network.sever();
    rest();
    network.mend();
    rest();
    here.kill_agent(&staging);
    there.kill_agent(&analysis);
    assert_eq!(simulation.join().unwrap(), steps);
    let seen = reader.join().unwrap();
    assert_eq!(seen, (0..steps).collect::<Vec<_>>(), "{:?}", forwards(&staging));
    let session = Session::open(&here.index).unwrap();
    check_steps(&session.open_array("run/p", false).unwrap(), 1, 0..steps);
    drop(session);
    here.end();
    there.end();
    analysis.settled_tree();
}

#[test]
fn a_network_that_takes_nothing_for_long_is_tried_again_and_holds_no_writer_up() {
    let (staging, analysis) = (roomy(), roomy());
    let there = Served::begin(&analysis, &[]);
    let network = Proxy::to(&there.address);
    let here = Served::begin(&staging, &["--forward", &rule(&staging, "run", &network.address, "")]);
    let session = Session::open(&here.index).unwrap();
    let array = field(&session, "run/p");
    put_step(&array, 1, 0);
    let elsewhere = Session::connect_to(&there.address, Served::TOKEN).unwrap();
    assert!(wait_until(30, || elsewhere.exists("run/p").unwrap()));
    network.cut();
    // More than the network takes before it is noticed; a region of which the target has a part only is put again, as it is then.
    for step in 1..300 {
        put_step(&array, 1, step);
    }
    let last = Region::block(&[299, 0, 0], &[1, ROWS, COLUMNS]).unwrap();
    for turn in 0..50 {
        array.put_values(&last, &values(9, turn)).unwrap();
    }
    let is_away =
        || forwards(&staging).iter().any(|line| line.state == "away" && line.queued_bytes > 0 && line.lag_s > 1.0);
    assert!(wait_until(60, is_away), "{:?}", forwards(&staging));
    network.mend();
    let arrived = || {
        let array = elsewhere.open_array("run/p", false).unwrap();
        array.shape().unwrap()[0] == 300 && array.get_values::<f64>(&last).unwrap() == values(9, 49)
    };
    assert!(wait_until(90, arrived), "{:?}", forwards(&staging));
    check_steps(&elsewhere.open_array("run/p", false).unwrap(), 1, 0..299);
    // What was overwritten does not come back.
    for _ in 0..50 {
        assert!(arrived());
        std::thread::sleep(Duration::from_millis(10));
    }
    let idle =
        || forwards(&staging).iter().all(|line| line.state == "idle" && line.queued_regions == 0 && line.lag_s == 0.0);
    assert!(wait_until(30, idle), "{:?}", forwards(&staging));
    drop((session, elsewhere, array));
    here.end();
    there.end();
}

#[test]
fn an_array_whose_making_at_the_target_was_interrupted_is_sent_to() {
    let (staging, analysis) = (roomy(), roomy());
    let there = Served::begin(&analysis, &[]);
    let elsewhere = Session::connect_to(&there.address, Served::TOKEN).unwrap();
    // As it is left when the connection goes after the array was made, and before it was told whose it is.
    elsewhere.create_container("run", Create::New).unwrap();
    drop(field(&elsewhere, "run/p"));
    // This one is somebody's.
    let others = field(&elsewhere, "run/v");
    put_step(&others, 3, 0);
    let here = Served::begin(&staging, &["--forward", &rule(&staging, "run", &there.address, "")]);
    let session = Session::open(&here.index).unwrap();
    put_step(&field(&session, "run/p"), 1, 0);
    put_step(&field(&session, "run/v"), 2, 0);
    let arrived = || elsewhere.open_array("run/p", false).unwrap().shape().unwrap()[0] == 1;
    assert!(wait_until(30, arrived), "{:?}", forwards(&staging));
    check_steps(&elsewhere.open_array("run/p", false).unwrap(), 1, 0..1);
    let is_refused = || forwards(&staging).iter().any(|line| line.state == "refused");
    assert!(wait_until(30, is_refused), "{:?}", forwards(&staging));
    check_steps(&others, 3, 0..1);
    drop((session, elsewhere, others));
    here.end();
    there.end();
}

#[test]
fn regions_that_left_the_tier_before_they_were_sent_are_read_back_and_sent() {
    let staging = Wish::default().tier("ram", "1MiB").build();
    let analysis = roomy();
    let address = Served::free_address();
    let here =
        Served::begin(&staging, &["--forward", &rule(&staging, "run", &address, ""), "--forward-patience", "1s"]);
    let session = Session::open(&here.index).unwrap();
    let (p, v) = (field(&session, "run/p"), field(&session, "run/v"));
    // Much more than the tier holds, and nobody is there to take it.
    for step in 0..300 {
        put_step(&p, 1, step);
        put_step(&v, 2, step);
        if step % 50 == 20 {
            session.evict("run").unwrap();
        }
    }
    let queued: u64 = forwards(&staging).iter().map(|line| line.queued_regions).sum();
    assert_eq!(queued, 600, "{:?}", forwards(&staging));
    here.kill_agent(&staging);
    // Then the staging agent ends, and the next one goes on.
    drop((session, p, v));
    here.end();
    staging.settled_tree();
    let there = Served::begin_at(&analysis, &address, &[]);
    let here = Served::begin(&staging, &["--forward", &rule(&staging, "run", &address, "")]);
    let elsewhere = Session::connect_to(&address, Served::TOKEN).unwrap();
    let mut cursor = elsewhere.steps("run", 0, &["p", "v"]).unwrap();
    for step in 0..300 {
        assert_eq!(cursor.next(Some(Duration::from_secs(60))).unwrap(), Some(step), "{:?}", forwards(&staging));
    }
    check_steps(&elsewhere.open_array("run/p", false).unwrap(), 1, 0..300);
    check_steps(&elsewhere.open_array("run/v", false).unwrap(), 2, 0..300);
    drop((elsewhere, cursor));
    here.end();
    there.end();
}

#[test]
fn large_puts_to_an_agent_elsewhere_keep_their_order_and_are_put_again_when_a_connection_is_lost() {
    const CELLS: u64 = 32 << 10;
    let place = Wish::default().tier("ram", "256MiB").build();
    let served = Served::begin(&place, &[]);
    let network = Proxy::to(&served.address);
    let session = Session::connect_to(&network.address, Served::TOKEN).unwrap();
    let spec = ArraySpec::new(DataType::Float64, &[0, CELLS]).unlimited(0).chunks(&[1, CELLS]);
    let array = make(&session, "study/run/v", &spec, Create::New);
    let fixed = make(&session, "study/run/w", &ArraySpec::new(DataType::Float64, &[2, CELLS]), Create::New);
    let region = |step| Region::block(&[step, 0], &[1, CELLS]).unwrap();
    let cells = |value: u64| vec![value as f64; CELLS as usize];
    let stager = session.stager(StagerSpec { queue_bytes: 64 << 20, ..StagerSpec::default() }).unwrap();
    // All wait at the cut, and then go together.
    network.cut();
    for step in 0..100 {
        let _ = stager.put(&array, &region(step), &bytes_of(&cells(step))).unwrap();
        // Of puts of one region the last one stays.
        let _ = stager.put_owned(&array, &region(100), bytes_of(&cells(1000 + step))).unwrap();
        if step == 50 {
            let _ = stager.put_owned(&fixed, &region(2), bytes_of(&cells(7))).unwrap();
        }
    }
    for _ in 0..10 {
        network.mend();
        std::thread::sleep(Duration::from_millis(20));
        network.cut();
        network.sever();
    }
    network.mend();
    let told = stager.sync(Arrived::Staged, Some(Duration::from_secs(90))).unwrap_err();
    assert!(told.message.contains("study/run/w") || told.kind == Kind::OutOfBounds, "{told}");
    let counters = stager.counters();
    assert_eq!((counters.failed_puts, counters.done_puts, counters.queued_bytes), (1, 200, 0), "{counters:?}");
    assert_eq!(counters.done_bytes, 200 * CELLS * 8);
    let near = Session::open(&served.index).unwrap();
    let found = near.open_array("study/run/v", false).unwrap();
    for step in 0..100 {
        assert!(found.get_values::<f64>(&region(step)).unwrap() == cells(step), "step {step}");
    }
    assert!(found.get_values::<f64>(&region(100)).unwrap() == cells(1099));
    drop((stager, array, fixed, session, found, near));
    served.end();
}

#[test]
fn a_container_that_is_far_behind_holds_no_other_one_up() {
    const CELLS: u64 = 128 << 10;
    let staging = Wish::default().tier("ram", "256MiB").build();
    let analysis = Wish::default().tier("ram", "256MiB").build();
    let there = Served::begin(&analysis, &[]);
    let network = Proxy::to(&there.address);
    network.cut();
    let here = Served::begin(&staging, &["--forward", &rule(&staging, "study/*", &network.address, "")]);
    let session = Session::open(&here.index).unwrap();
    let spec = ArraySpec::new(DataType::Float64, &[0, CELLS]).unlimited(0).chunks(&[1, CELLS]);
    let region = |step| Region::block(&[step, 0], &[1, CELLS]).unwrap();
    let (old, new) = (make(&session, "study/a/v", &spec, Create::New), make(&session, "study/b/v", &spec, Create::New));
    for step in 0..100 {
        old.put_values(&region(step), &vec![step as f64; CELLS as usize]).unwrap();
    }
    for step in 0..5 {
        new.put_values(&region(1000 + step), &vec![step as f64; CELLS as usize]).unwrap();
    }
    // The agent looks for new arrays now and then.
    std::thread::sleep(Duration::from_millis(500));
    network.mend();
    // Of 105 MiB a third has passed.
    assert!(wait_until(60, || network.passed() > 35 << 20));
    network.cut();
    let elsewhere = Session::connect_to(&there.address, Served::TOKEN).unwrap();
    let arrived =
        |name: &str| elsewhere.open_array(name, false).and_then(|array| array.shape()).map_or(0, |shape| shape[0]);
    assert!(
        wait_until(20, || arrived("study/b/v") == 1005),
        "{} of the new one, {} of the old one: {:?}",
        arrived("study/b/v"),
        arrived("study/a/v"),
        forwards(&staging)
    );
    assert!(arrived("study/a/v") < 100, "all of the old one");
}

#[test]
fn only_cells_that_meet_the_condition_are_sent() {
    const SIDE: u64 = 100;
    const STEPS: u64 = 20;
    let (staging, analysis) = (roomy(), roomy());
    let there = Served::begin(&analysis, &[]);
    let network = Proxy::to(&there.address);
    let condition = rule(&staging, "study/*", &network.address, "arrays=v where=>=99,<100");
    let here = Served::begin(&staging, &["--forward", &condition]);
    let session = Session::open(&here.index).unwrap();
    let spec = |data_type: DataType| {
        ArraySpec::new(data_type, &[0, SIDE, SIDE])
            .unlimited(0)
            .chunks(&[1, SIDE, SIDE])
            .dimensions(&["time", "y", "x"])
    };
    let fill = f64::NAN.to_le_bytes();
    let v = make(&session, "study/run/v", &spec(DataType::Float64).fill(&fill), Create::New);
    let region = |step| Region::block(&[step, 0, 0], &[1, SIDE, SIDE]).unwrap();
    let mut random = Random::new(7);
    let steps: Vec<Vec<f64>> =
        (0..STEPS).map(|_| (0..SIDE * SIDE).map(|_| random.below(100_000) as f64 / 1000.0).collect()).collect();
    let stager = session.stager(StagerSpec::default()).unwrap();
    let put = |step: u64, values: &[f64]| {
        assert_eq!(stager.put_owned(&v, &region(step), bytes_of(values)).unwrap(), Staged::Queued);
    };
    let arrive = || stager.sync(Arrived::Analysis, Some(Duration::from_secs(60))).unwrap();
    (0..).zip(&steps).for_each(|(step, values)| put(step, values));
    arrive();
    let sent = network.passed();
    let all = STEPS * SIDE * SIDE * 8;
    assert!(sent * 50 <= all, "{sent} bytes of {all}");
    let elsewhere = Session::connect_to(&there.address, Served::TOKEN).unwrap();
    let far = elsewhere.open_array("study/run/v", false).unwrap();
    let is_sent = |value: f64| (99.0..100.0).contains(&value);
    let check = |step: u64, values: &[f64]| {
        let found = far.get_values::<f64>(&region(step)).unwrap();
        let is_right = |(found, value): (&f64, &f64)| if is_sent(*value) { found == value } else { found.is_nan() };
        assert!(found.iter().zip(values).all(is_right), "step {step}");
        assert!(values.iter().any(|value| is_sent(*value)), "the step has such cells");
    };
    (0..).zip(&steps).for_each(|(step, values)| check(step, values));

    // Put again: what met the condition before and does not now is gone there as well. Where nearly all meet it, all travel.
    let others = vec![99.5; (SIDE * SIDE) as usize];
    put(3, &steps[4]);
    put(5, &others);
    arrive();
    check(3, &steps[4]);
    check(5, &others);

    // Cells that are no numbers of one kind are refused by name.
    let complex = make(&session, "study/other/v", &spec(DataType::Complex64), Create::New);
    complex.put(&region(0), &vec![0; (SIDE * SIDE * 8) as usize]).unwrap();
    let is_named = || {
        forwards(&staging).iter().any(|line| line.reason.as_deref().is_some_and(|reason| reason.contains("complex64")))
    };
    assert!(wait_until(20, is_named), "{:?}", forwards(&staging));
}

#[test]
fn what_is_only_passing_leaves_the_tier_and_is_not_written_here() {
    let (staging, analysis) = (Wish::default().tier("ram", "32MiB").build(), roomy());
    let there = Served::begin(&analysis, &[]);
    let more = "arrays=p,x* keep=none";
    let here = Served::begin(&staging, &["--forward", &rule(&staging, "run", &there.address, more)]);
    let session = Session::open(&here.index).unwrap();
    let (p, v) = (field(&session, "run/p"), field(&session, "run/v"));
    for step in 0..50 {
        put_step(&p, 1, step);
        put_step(&v, 2, step);
    }
    let elsewhere = Session::connect_to(&there.address, Served::TOKEN).unwrap();
    let arrived = || elsewhere.open_array("run/p", false).is_ok_and(|array| array.shape().unwrap()[0] == 50);
    assert!(wait_until(30, arrived), "{:?}", forwards(&staging));
    let staged = || {
        let regions = p.staged_regions().unwrap();
        regions.len()
    };
    assert!(wait_until(30, || staged() == 0), "{} regions are still there", staged());
    check_steps(&elsewhere.open_array("run/p", false).unwrap(), 1, 0..50);
    // The rule names p only.
    assert!(!elsewhere.exists("run/v").unwrap());
    check_steps(&v, 2, 0..50);
    drop((session, elsewhere, p, v));
    here.end();
    there.end();
    assert!(staging.root().join("run/v/c/0/0/0").exists());
    assert!(!staging.root().join("run/p/c").exists());
    assert!(analysis.root().join("run/p/c/49/0/0").exists());
}

/// Room that is taken in the first tier.
fn used(place: &Workplace) -> u64 {
    place.status().unwrap().tiers[0].used_bytes
}

#[test]
fn room_of_what_was_sent_on_is_used_again_and_the_array_stays_as_long_as_it_was() {
    const CELLS: u64 = 32 << 10;
    let (staging, analysis) = (Wish::default().tier("ram", "256MiB").build(), roomy());
    let there = Served::begin(&analysis, &[]);
    let here = Served::begin(&staging, &["--forward", &rule(&staging, "run", &there.address, "keep=none")]);
    let session = Session::open(&here.index).unwrap();
    let spec = ArraySpec::new(DataType::Float64, &[0, CELLS]).unlimited(0).chunks(&[1, CELLS]);
    let array = make(&session, "run/p", &spec, Create::New);
    let stager = session.stager(StagerSpec::default()).unwrap();
    let region = |step| Region::block(&[step, 0], &[1, CELLS]).unwrap();
    let mut most = 0;
    for step in 0..160 {
        let _ = stager.put_owned(&array, &region(step), bytes_of(&vec![step as f64; CELLS as usize])).unwrap();
        stager.sync(Arrived::Analysis, Some(Duration::from_secs(60))).unwrap();
        most = most.max(used(&staging));
        // Whoever opens it now finds nothing of it but its length.
        if step % 40 == 39 {
            let later = Session::open(&here.index).unwrap().open_array("run/p", false).unwrap();
            assert_eq!((later.shape().unwrap()[0], later.staged_regions().unwrap().len()), (step + 1, 0));
        }
    }
    // All of it were 40 MiB.
    assert!(most < 8 << 20, "{most} bytes were taken");
    let elsewhere = Session::connect_to(&there.address, Served::TOKEN).unwrap();
    let found = elsewhere.open_array("run/p", false).unwrap();
    for step in 0..160 {
        assert!(found.get_values::<f64>(&region(step)).unwrap() == vec![step as f64; CELLS as usize], "step {step}");
    }
    drop((stager, array, session, found, elsewhere));
    here.end();
    there.end();
}

#[test]
fn room_that_one_connection_has_taken_is_used_again_by_others() {
    const CELLS: u64 = 128 << 10;
    let place = Wish::default().tier("ram", "256MiB").build();
    let served = Served::begin(&place, &[]);
    let region = Region::block(&[0], &[CELLS]).unwrap();
    // All of them stay.
    let connections: Vec<(Session, Array)> = (0..32)
        .map(|number| {
            let session = Session::connect_to(&served.address, Served::TOKEN).unwrap();
            let spec = ArraySpec::new(DataType::Float64, &[CELLS]);
            let array = make(&session, "study/v", &spec, Create::IfMissing);
            array.put_values(&region, &vec![number as f64; CELLS as usize]).unwrap();
            (session, array)
        })
        .collect();
    let taken = used(&place);
    assert!(taken < 8 << 20, "{taken} bytes are taken by 1 MiB of cells");
    for (_, array) in &connections {
        assert!(array.get_values::<f64>(&region).unwrap() == vec![31.0; CELLS as usize]);
    }
    // An array of the same name is another one to all of them.
    connections[0].0.remove("study/v", false).unwrap();
    let spec = ArraySpec::new(DataType::Float64, &[CELLS]);
    let again = make(&connections[1].0, "study/v", &spec, Create::New);
    again.put_values(&region, &vec![-1.0; CELLS as usize]).unwrap();
    let found = connections[2].0.open_array("study/v", false).unwrap();
    assert!(found.get_values::<f64>(&region).unwrap() == vec![-1.0; CELLS as usize]);
    drop((connections, again, found));
    served.end();
}

#[test]
fn what_is_only_passing_and_can_not_be_sent_is_made_durable_at_the_end() {
    let (staging, analysis) = (roomy(), roomy());
    let address = Served::free_address();
    let more = rule(&staging, "run", &address, "keep=none");
    let here = Served::begin(&staging, &["--forward", &more, "--forward-patience", "1s"]);
    let session = Session::open(&here.index).unwrap();
    let p = field(&session, "run/p");
    (0..20).for_each(|step| put_step(&p, 1, step));
    drop((session, p));
    here.end();
    staging.settled_tree();
    assert!(staging.root().join("run/p/c/19/0/0").exists());
    let there = Served::begin_at(&analysis, &address, &[]);
    let here = Served::begin(&staging, &["--forward", &more]);
    let elsewhere = Session::connect_to(&address, Served::TOKEN).unwrap();
    let mut cursor = elsewhere.steps("run", 0, &["p"]).unwrap();
    (0..20).for_each(|step| assert_eq!(cursor.next(Some(Duration::from_secs(30))).unwrap(), Some(step)));
    check_steps(&elsewhere.open_array("run/p", false).unwrap(), 1, 0..20);
    drop((elsewhere, cursor));
    here.end();
    there.end();
}

#[test]
fn several_targets_share_complete_steps_and_all_get_what_has_no_steps() {
    let staging = roomy();
    let analysis = [roomy(), roomy(), roomy()];
    let there: Vec<Served> = analysis.iter().map(|place| Served::begin(place, &[])).collect();
    let addresses: Vec<String> = there.iter().map(|served| format!("tcp://{}", served.address)).collect();
    let token_file = staging.scratch().join("token");
    let rule = format!("run={} token_file={}", addresses.join(","), token_file.display());
    let here = Served::begin(&staging, &["--forward", &rule]);
    let session = Session::open(&here.index).unwrap();
    let spec = ArraySpec::new(DataType::Int32, &[4]);
    let x = make(&session, "run/x", &spec, Create::New);
    x.put_values(&Region::whole(&[4]).unwrap(), &[1i32, 2, 3, 4]).unwrap();
    let (p, v) = (field(&session, "run/p"), field(&session, "run/v"));
    for step in 0..60 {
        put_step(&p, 1, step);
        put_step(&v, 2, step);
    }
    let stager = session.stager(StagerSpec::default()).unwrap();
    assert_eq!(stager.put(&v, &step_region(60), &bytes_of(&values(2, 60))).unwrap(), Staged::Queued);
    stager.sync(Arrived::Analysis, Some(Duration::from_secs(60))).unwrap();
    let mut found: BTreeMap<u64, usize> = BTreeMap::new();
    for (number, served) in there.iter().enumerate() {
        let elsewhere = Session::connect_to(&served.address, Served::TOKEN).unwrap();
        let coordinates = elsewhere.open_array("run/x", false).unwrap();
        assert_eq!(coordinates.get_values::<i32>(&Region::whole(&[4]).unwrap()).unwrap(), [1, 2, 3, 4]);
        let (p, v) = (elsewhere.open_array("run/p", false).unwrap(), elsewhere.open_array("run/v", false).unwrap());
        for step in 0..60.min(p.shape().unwrap()[0]) {
            if p.get_values::<f64>(&step_region(step)).unwrap() == values(1, step) {
                assert!(
                    v.get_values::<f64>(&step_region(step)).unwrap() == values(2, step),
                    "step {step} is not whole"
                );
                assert_eq!(found.insert(step, number), None, "step {step} is at two agents");
            }
        }
    }
    assert_eq!(found.keys().copied().collect::<Vec<_>>(), (0..60).collect::<Vec<_>>());
    for number in 0..3 {
        let share = found.values().filter(|&&at| at == number).count();
        assert!(share >= 8, "agent {number} has {share} of 60 steps");
    }
    stager.close().unwrap();
    drop((session, x, p, v));
    here.end();
    there.into_iter().for_each(Served::end);
}

/// What leaves the tier while one of two targets is away is read back for that one, and what is the other's is not.
#[test]
fn a_target_that_was_away_gets_its_own_steps_alone() {
    let staging = Wish::default().tier("ram", "4MiB").build();
    let analysis = [roomy(), roomy()];
    let first = Served::begin(&analysis[0], &[]);
    let away = Served::free_address();
    let token_file = staging.scratch().join("token");
    let rule = format!("run=tcp://{},tcp://{away} token_file={} keep=durable", first.address, token_file.display());
    let here = Served::begin(&staging, &["--forward", &rule]);
    let session = Session::open(&here.index).unwrap();
    let p = field(&session, "run/p");
    let count = (8 << 20) / (values(1, 0).len() as u64 * 8);
    (0..count).for_each(|step| put_step(&p, 1, step));
    session.evict("run").unwrap();
    let second = Served::begin_at(&analysis[1], &away, &[]);
    let stager = session.stager(StagerSpec::default()).unwrap();
    assert_eq!(stager.put(&p, &step_region(count), &bytes_of(&values(1, count))).unwrap(), Staged::Queued);
    stager.sync(Arrived::Analysis, Some(Duration::from_secs(60))).unwrap();
    let has = |served: &Served| {
        let elsewhere = Session::connect_to(&served.address, Served::TOKEN).unwrap();
        let p = elsewhere.open_array("run/p", false).unwrap();
        let steps = 0..p.shape().unwrap()[0];
        steps.filter(|&step| p.get_values::<f64>(&step_region(step)).unwrap() == values(1, step)).collect::<Vec<_>>()
    };
    let (ours, theirs) = (has(&first), has(&second));
    let mut all = [ours.clone(), theirs.clone()].concat();
    all.sort_unstable();
    assert_eq!(all, (0..=count).collect::<Vec<_>>(), "{ours:?} and {theirs:?}");
    stager.close().unwrap();
    drop((session, p));
    here.end();
    first.end();
    second.end();
}

#[test]
fn a_target_that_refuses_is_named_and_what_it_takes_is_sent() {
    let (staging, analysis) = (roomy(), roomy());
    let there = Served::begin(&analysis, &[]);
    let elsewhere = Session::connect_to(&there.address, Served::TOKEN).unwrap();
    // Somebody else's array has the name already.
    elsewhere.create_container("run", Create::New).unwrap();
    elsewhere.create_array("run/p", &ArraySpec::new(DataType::UInt8, &[3]), Create::New).unwrap();
    let here = Served::begin(&staging, &["--forward", &rule(&staging, "run", &there.address, "")]);
    let session = Session::open(&here.index).unwrap();
    let (p, v) = (field(&session, "run/p"), field(&session, "run/v"));
    for step in 0..10 {
        put_step(&p, 1, step);
        put_step(&v, 2, step);
    }
    let arrived = || elsewhere.open_array("run/v", false).is_ok_and(|array| array.shape().unwrap()[0] == 10);
    assert!(wait_until(60, arrived), "{:?}", forwards(&staging));
    let is_named =
        || forwards(&staging).iter().any(|line| line.reason.as_ref().is_some_and(|reason| reason.contains("run/p")));
    assert!(wait_until(30, is_named), "{:?}", forwards(&staging));
    let text = String::from_utf8(staging.terrace("status").output().unwrap().stdout).unwrap();
    assert!(text.contains("run") && text.contains("tcp://"), "{text}");
    let stager = session.stager(StagerSpec::default()).unwrap();
    assert_eq!(stager.put(&p, &step_region(9), &bytes_of(&values(1, 9))).unwrap(), Staged::Queued);
    let refused = stager.sync(Arrived::Analysis, Some(Duration::from_secs(30))).unwrap_err();
    assert!(refused.kind == Kind::Exists && refused.message.contains("run/p"), "{refused}");
    elsewhere.remove("run/p", false).unwrap();
    let arrived =
        || elsewhere.open_array("run/p", false).is_ok_and(|array| array.shape().unwrap().first() == Some(&10));
    assert!(wait_until(60, arrived), "{:?}", forwards(&staging));
    stager.sync(Arrived::Analysis, Some(Duration::from_secs(60))).unwrap();
    check_steps(&elsewhere.open_array("run/p", false).unwrap(), 1, 0..10);
    stager.close().unwrap();
    drop((session, elsewhere, p, v));
    here.end();
    there.end();
}

/// What the child of `an_agent_ends_although_those_were_killed_who_waited_for_an_agent_that_is_away` does.
fn wait_for_nobody(index: &str) -> ! {
    let session = Session::open(std::path::Path::new(index)).unwrap();
    let array = field(&session, "run/p");
    let stager = session.stager(StagerSpec::default()).unwrap();
    assert_eq!(stager.put(&array, &step_region(0), &bytes_of(&values(1, 0))).unwrap(), Staged::Queued);
    stager.sync(Arrived::Staged, None).unwrap();
    println!("waits");
    let _ = stager.sync(Arrived::Analysis, None);
    std::process::exit(1);
}

#[test]
fn an_agent_ends_although_those_were_killed_who_waited_for_an_agent_that_is_away() {
    if let Ok(index) = std::env::var("STAGING_WAITS") {
        wait_for_nobody(&index);
    }
    let staging = roomy();
    let rule = rule(&staging, "run", &Served::free_address(), "");
    let here = Served::begin(&staging, &["--forward", &rule, "--forward-patience", "1s"]);
    let mut child =
        again(module_path!(), "an_agent_ends_although_those_were_killed_who_waited_for_an_agent_that_is_away")
            .env("STAGING_WAITS", &here.index)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().unwrap()));
    assert!(lines.any(|line| line.unwrap().ends_with("waits")), "the child does not wait");
    // One of this node, and one of another.
    let target = format!("tcp://{}", here.address);
    let mut link = Link::connect(&target, Served::TOKEN, None, Duration::from_secs(10)).unwrap();
    link.send(&Request::SyncForwards { path: "run".into(), patience_ms: None }, &[]).unwrap();
    std::thread::sleep(Duration::from_secs(1));
    assert!(child.try_wait().unwrap().is_none(), "an agent that is away is waited for");
    child.kill().unwrap();
    child.wait().unwrap();
    drop(link);
    here.end();
    assert!(wait_until(30, || !staging.is_locked()), "the agent does not end");
}

#[test]
fn a_rule_that_can_not_be_followed_is_refused_at_the_start() {
    let staging = roomy();
    let (missing, empty) = (staging.scratch().join("missing"), staging.scratch().join("empty"));
    std::fs::write(&empty, "\n").unwrap();
    let good = staging.scratch().join("good");
    std::fs::write(&good, format!("{}\n", Served::TOKEN)).unwrap();
    for (target, token_file, more, named) in [
        ("tcp://127.0.0.1", &good, "", "`tcp://127.0.0.1`"),
        ("tcp://127.0.0.1:99999", &good, "", "`tcp://127.0.0.1:99999`"),
        ("tcp://127.0.0.1:7788", &good, "fingerprint=zz", "`zz`"),
        ("tcp://127.0.0.1:7788", &missing, "", missing.to_str().unwrap()),
        ("tcp://127.0.0.1:7788", &empty, "", empty.to_str().unwrap()),
    ] {
        let rule = format!("run*={target} token_file={} {more}", token_file.display());
        for (command, rest) in [("serve", &[] as &[&str]), ("config", &[]), ("run", &["--", "true"])] {
            let refused = Outcome::within(30, staging.terrace(command).args(["--forward", &rule]).args(rest));
            assert!(![0, 137].contains(&refused.code), "{command}: {rule}");
            let said = &refused.stderr;
            assert!(
                said.contains("run*") && said.contains(named) && said.contains("hint"),
                "{command}: {rule}: {said}"
            );
        }
    }
}

#[test]
fn a_wrong_token_is_named_and_a_right_one_is_found_without_a_restart() {
    let (staging, analysis) = (roomy(), roomy());
    let there = Served::begin(&analysis, &["--tls"]);
    let token_file = staging.scratch().join("theirs");
    std::fs::write(&token_file, "0123456789abcdef-wrong-token\n").unwrap();
    let pinned = std::fs::read_to_string(analysis.scratch().join("token.fingerprint")).unwrap();
    let rule = format!("run=tls://{} token_file={} fingerprint={}", there.address, token_file.display(), pinned.trim());
    let here = Served::begin(&staging, &["--forward", &rule]);
    let session = Session::open(&here.index).unwrap();
    let p = field(&session, "run/p");
    put_step(&p, 1, 0);
    let is_refused = || {
        forwards(&staging)
            .iter()
            .any(|line| line.state == "refused" && line.reason.as_ref().is_some_and(|reason| reason.contains("token")))
    };
    assert!(wait_until(30, is_refused), "{:?}", forwards(&staging));
    let stager = session.stager(StagerSpec::default()).unwrap();
    assert_eq!(stager.put(&p, &step_region(1), &bytes_of(&values(1, 1))).unwrap(), Staged::Queued);
    // Who waits for it is told at once, and again.
    for _ in 0..2 {
        let begun = Instant::now();
        let refused = stager.sync(Arrived::Analysis, None).unwrap_err();
        assert!(refused.kind == Kind::Denied && refused.message.contains("token"), "{refused}");
        assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    }
    std::fs::write(&token_file, format!("{}\n", Served::TOKEN)).unwrap();
    stager.sync(Arrived::Analysis, Some(Duration::from_secs(60))).unwrap();
    let elsewhere = Session::connect_tls(&there.address, Served::TOKEN, &pinned).unwrap();
    check_steps(&elsewhere.open_array("run/p", false).unwrap(), 1, 0..2);
    stager.close().unwrap();
    drop((session, elsewhere, p));
    here.end();
    there.end();
}

#[test]
fn rules_of_one_target_send_every_region_once() {
    let (staging, analysis) = (roomy(), roomy());
    let there = Served::begin(&analysis, &[]);
    let network = Proxy::to(&there.address);
    let (near, other) = (staging.scratch().join("token"), staging.scratch().join("same"));
    std::fs::write(&other, format!("{}\n", Served::TOKEN)).unwrap();
    // Two that share a connection, and one that has its own.
    let rules = [("aa*", &near), ("bb*", &near), ("cc*", &other)]
        .map(|(container, token)| format!("{container}=tcp://{} token_file={}", network.address, token.display()));
    let here = Served::begin(&staging, &["--forward", &rules[0], "--forward", &rules[1], "--forward", &rules[2]]);
    let session = Session::open(&here.index).unwrap();
    let containers = ["aa1", "bb1", "cc1"];
    let arrays = containers.map(|container| field(&session, &format!("{container}/p")));
    let stager = session.stager(StagerSpec::default()).unwrap();
    let write = |steps: std::ops::Range<u64>| {
        for step in steps {
            for (seed, array) in (1..).zip(&arrays) {
                let queued = stager.put_owned(array, &step_region(step), bytes_of(&values(seed, step))).unwrap();
                assert_eq!(queued, Staged::Queued);
            }
        }
        stager.sync(Arrived::Analysis, Some(Duration::from_secs(60))).unwrap();
    };
    let step_bytes = ROWS * COLUMNS * 8;
    write(0..40);
    session.put_tag("bb1", "case", TagValue::Int(7)).unwrap();
    let lines = forwards(&staging);
    let mut names: Vec<&str> = lines.iter().map(|line| line.container.as_str()).collect();
    names.sort();
    assert_eq!(names, containers, "{lines:?}");
    assert!(lines.iter().all(|line| line.sent_bytes == 40 * step_bytes), "{lines:?}");
    // What has arrived is not sent again by the agent that comes after a killed one.
    here.kill_agent(&staging);
    write(40..60);
    let all = 3 * 60 * step_bytes;
    assert!((all..all + all / 5).contains(&network.passed()), "{} bytes for {all}", network.passed());
    let elsewhere = Session::connect_to(&there.address, Served::TOKEN).unwrap();
    for (seed, container) in (1..).zip(containers) {
        check_steps(&elsewhere.open_array(&format!("{container}/p"), false).unwrap(), seed, 0..60);
    }
    assert!(wait_until(30, || elsewhere.get_tag("bb1", "case").ok().flatten() == Some(TagValue::Int(7))));
    stager.close().unwrap();
    drop((session, elsewhere, arrays));
    here.end();
    there.end();
}

#[test]
fn a_rule_with_a_wrong_token_or_certificate_is_refused_whatever_other_rules_know() {
    let (staging, analysis) = (roomy(), roomy());
    let there = Served::begin(&analysis, &["--tls"]);
    let pinned = std::fs::read_to_string(analysis.scratch().join("token.fingerprint")).unwrap();
    let (near, wrong) = (staging.scratch().join("token"), staging.scratch().join("wrong"));
    std::fs::write(&wrong, "0123456789abcdef-wrong-token\n").unwrap();
    let wrong_pin = "0".repeat(64);
    let rules = [("pin", &near, wrong_pin.as_str()), ("good", &near, pinned.trim()), ("token", &wrong, pinned.trim())]
        .map(|(name, token, pin)| {
            format!("{name}=tls://{} token_file={} fingerprint={pin}", there.address, token.display())
        });
    let here = Served::begin(
        &staging,
        &["--forward", &rules[0], "--forward", &rules[1], "--forward", &rules[2], "--forward-patience", "1s"],
    );
    let session = Session::open(&here.index).unwrap();
    let elsewhere = Session::connect_tls(&there.address, Served::TOKEN, &pinned).unwrap();
    let sync = |container: &str| {
        let array = field(&session, &format!("{container}/p"));
        let stager = session.stager(StagerSpec::default()).unwrap();
        assert_eq!(stager.put(&array, &step_region(0), &bytes_of(&values(1, 0))).unwrap(), Staged::Queued);
        session.put_tag(container, "case", TagValue::Int(7)).unwrap();
        stager.sync(Arrived::Analysis, Some(Duration::from_secs(5)))
    };
    for (container, reason) in [("pin", "certificate"), ("token", "token")] {
        let refused = sync(container).unwrap_err();
        assert!(refused.kind != Kind::Busy && refused.message.contains(reason), "{container}: {refused}");
    }
    sync("good").unwrap();
    check_steps(&elsewhere.open_array("good/p", false).unwrap(), 1, 0..1);
    assert!(!elsewhere.exists("pin").unwrap() && !elsewhere.exists("token").unwrap());
    let settled = || {
        let mut states: Vec<_> = forwards(&staging).into_iter().map(|line| (line.container, line.state)).collect();
        states.sort();
        states == [("good", "idle"), ("pin", "refused"), ("token", "refused")].map(|(a, b)| (a.into(), b.into()))
    };
    assert!(wait_until(30, settled), "{:?}", forwards(&staging));
    drop((session, elsewhere));
    here.end();
    there.end();
}

#[test]
fn what_waits_is_sent_with_another_token_and_by_another_rule_of_its_target() {
    let staging = Wish::default().tier("ram", "1MiB").build();
    let analysis = roomy();
    let address = Served::free_address();
    let (a, b) = (rule(&staging, "aa*", &address, ""), rule(&staging, "bb*", &address, ""));
    let here = Served::begin(&staging, &["--forward", &a, "--forward", &b, "--forward-patience", "1s"]);
    let session = Session::open(&here.index).unwrap();
    let arrays = ["aa1/p", "bb1/p"].map(|name| field(&session, name));
    for step in 0..100 {
        for (seed, array) in (1..).zip(&arrays) {
            put_step(array, seed, step);
        }
    }
    session.evict("").unwrap();
    drop((session, arrays));
    here.end();
    let there = Served::begin_at(&analysis, &address, &[]);
    let other = staging.scratch().join("other");
    std::fs::write(&other, format!("{}\n", Served::TOKEN)).unwrap();
    let rule = format!("*=tcp://{address} token_file={} keep=durable", other.display());
    let here = Served::begin(&staging, &["--forward", &rule]);
    let elsewhere = Session::connect_to(&address, Served::TOKEN).unwrap();
    for (seed, container) in (1..).zip(["aa1", "bb1"]) {
        let mut cursor = elsewhere.steps(container, 0, &["p"]).unwrap();
        for step in 0..100 {
            assert_eq!(cursor.next(Some(Duration::from_secs(60))).unwrap(), Some(step), "{:?}", forwards(&staging));
        }
        check_steps(&elsewhere.open_array(&format!("{container}/p"), false).unwrap(), seed, 0..100);
    }
    drop(elsewhere);
    here.end();
    there.end();
}

#[test]
fn write_sync_overwrite_stores_the_originals() {
    let staging = Wish::default().tier("ram", "64MiB").build();
    let here = Served::begin(&staging, &[]);
    let session = Session::open(&here.index).unwrap();
    let spec = ArraySpec::new(DataType::UInt64, &[0, 16]).unlimited(0).chunks(&[1000, 16]);
    let array = make(&session, "run/a", &spec, Create::New);
    let stager = session.stager(StagerSpec { threads: 4, ..StagerSpec::default() }).unwrap();
    let mut buffer = [0u64; 16];
    for turn in 0..10_000u64 {
        buffer.fill(turn + 1);
        let region = Region::block(&[turn, 0], &[1, 16]).unwrap();
        // SAFETY: the buffer changes only after `sync`.
        let queued = unsafe { stager.put_borrowed(&array, &region, buffer.as_ptr().cast(), size_of_val(&buffer)) };
        assert_eq!(queued.unwrap(), Staged::Queued);
        stager.sync(Arrived::Staged, None).unwrap();
        buffer.fill(u64::MAX);
    }
    // A copy may be overwritten at once; small neighbours go together.
    for turn in 10_000..20_000u64 {
        buffer.fill(turn + 1);
        let region = Region::block(&[turn, 0], &[1, 16]).unwrap();
        let cells: Vec<u8> = buffer.iter().flat_map(|value| value.to_le_bytes()).collect();
        assert_eq!(stager.put(&array, &region, &cells).unwrap(), Staged::Queued);
        buffer.fill(u64::MAX);
    }
    stager.sync(Arrived::Durable, None).unwrap();
    let counters = stager.counters();
    assert_eq!((counters.done_puts, counters.failed_puts, counters.queued_puts), (20_000, 0, 0));
    assert_eq!(counters.done_bytes, 20_000 * 128);
    let stored = array.get_values::<u64>(&Region::whole(&[20_000, 16]).unwrap()).unwrap();
    assert!(stored.iter().enumerate().all(|(at, value)| *value == at as u64 / 16 + 1));
    assert!(staging.root().join("run/a/c/19/0").exists());
    stager.close().unwrap();
    drop((session, array));
    here.end();
}

#[test]
fn sync_tells_what_failed_and_all_else_is_put() {
    let staging = roomy();
    let here = Served::begin(&staging, &[]);
    let session = Session::open(&here.index).unwrap();
    let spec = ArraySpec::new(DataType::UInt8, &[100]);
    let array = make(&session, "run/a", &spec, Create::New);
    let stager = session.stager(StagerSpec::default()).unwrap();
    let at = |offset: u64| Region::block(&[offset], &[10]).unwrap();
    assert_eq!(stager.put(&array, &at(0), &[1; 10]).unwrap(), Staged::Queued);
    for _ in 0..2 {
        assert_eq!(stager.put(&array, &at(95), &[2; 10]).unwrap(), Staged::Queued);
    }
    assert_eq!(stager.put(&array, &at(50), &[3; 10]).unwrap(), Staged::Queued);
    let error = stager.sync(Arrived::Staged, None).unwrap_err();
    assert!(error.kind == Kind::OutOfBounds && error.message.contains("1 others"), "{error}");
    stager.sync(Arrived::Staged, None).unwrap();
    let stored = array.get_values::<u8>(&Region::whole(&[100]).unwrap()).unwrap();
    assert_eq!((stored[5], stored[55], stored[95]), (1, 3, 0));
    assert_eq!(stager.counters().failed_puts, 2);
    // What can be told at once is told at once.
    assert_eq!(stager.put(&array, &at(0), &[1; 9]).unwrap_err().kind, Kind::Invalid);
    let reading = session.open_array("run/a", false).unwrap();
    assert_eq!(stager.put(&reading, &at(0), &[1; 10]).unwrap_err().kind, Kind::WrongKind);
    // The array goes while puts wait: they fail, and nobody hangs.
    session.remove("run/a", false).unwrap();
    assert_eq!(stager.put(&array, &at(0), &[1; 10]).unwrap(), Staged::Queued);
    assert_eq!(stager.close().unwrap_err().kind, Kind::NotFound);
    drop((session, array, reading));
    here.end();
}

#[test]
fn a_full_queue_drops_or_blocks_as_it_was_told_and_counts() {
    let staging = roomy();
    let here = Served::begin(&staging, &[]);
    // Nothing passes: what is put stays in the queue.
    let network = Proxy::to(&here.address);
    let session = Session::connect_to(&network.address, Served::TOKEN).unwrap();
    let array = field(&session, "run/p");
    let step_bytes = ROWS * COLUMNS * 8;
    let spec = StagerSpec { queue_bytes: 4 * step_bytes, full: Full::Drop, threads: 1 };
    let stager = session.stager(spec).unwrap();
    network.cut();
    let mut kept = vec![];
    for step in 0..10 {
        if stager.put_owned(&array, &step_region(step), bytes_of(&values(1, step))).unwrap() == Staged::Queued {
            kept.push(step);
        }
    }
    assert_eq!(kept, [0, 1, 2, 3]);
    assert_eq!(stager.begin_step(step_bytes).unwrap(), Staged::Dropped);
    let counters = stager.counters();
    assert_eq!((counters.dropped_puts, counters.dropped_bytes, counters.dropped_steps), (6, 6 * step_bytes, 1));
    assert_eq!((counters.queued_puts, counters.queued_bytes), (4, 4 * step_bytes));
    assert_eq!(stager.sync(Arrived::Staged, Some(Duration::from_millis(50))).unwrap_err().kind, Kind::Busy);
    network.mend();
    stager.sync(Arrived::Staged, None).unwrap();
    check_steps(&array, 1, 0..4);
    assert_eq!(stager.begin_step(3 * step_bytes).unwrap(), Staged::Queued);
    stager.close().unwrap();

    let stager = session.stager(StagerSpec { full: Full::Block, ..spec }).unwrap();
    network.cut();
    let has_blocked = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for step in 0..10 {
                if step == 4 {
                    has_blocked.store(true, SeqCst);
                }
                let queued = stager.put_owned(&array, &step_region(step), bytes_of(&values(2, step))).unwrap();
                assert_eq!(queued, Staged::Queued);
            }
        });
        assert!(wait_until(30, || has_blocked.load(SeqCst)));
        std::thread::sleep(Duration::from_millis(100));
        assert!(stager.counters().queued_bytes <= 4 * step_bytes);
        network.mend();
    });
    stager.sync(Arrived::Staged, None).unwrap();
    let counters = stager.counters();
    assert!(counters.blocked_s > 0.0 && counters.queued_bytes_max <= 4 * step_bytes, "{counters:?}");
    check_steps(&array, 2, 0..10);
    stager.close().unwrap();
    drop((session, array));
    here.end();
}

#[test]
fn puts_of_one_container_take_effect_in_their_order() {
    let staging = roomy();
    let here = Served::begin(&staging, &[]);
    let session = Session::open(&here.index).unwrap();
    let spec = ArraySpec::new(DataType::UInt64, &[64]);
    let arrays = ["run/a", "run/b"].map(|name| make(&session, name, &spec, Create::New));
    let stager = session.stager(StagerSpec { threads: 4, ..StagerSpec::default() }).unwrap();
    let whole = Region::whole(&[64]).unwrap();
    let written = AtomicU64::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for value in 1..=3000u64 {
                for array in &arrays {
                    let cells = value.to_le_bytes().repeat(64);
                    assert_eq!(stager.put(array, &whole, &cells).unwrap(), Staged::Queued);
                }
                written.store(value, SeqCst);
            }
        });
        let mut last = [0, 0];
        while last[1] < 3000 {
            // What a later array of a step has, the earlier one has as well.
            let now = [1, 0].map(|number| arrays[number].get_values::<u64>(&whole).unwrap());
            assert!(now.iter().all(|cells| cells.iter().all(|cell| cell == &cells[0])), "a put is seen in part");
            let (b, a) = (now[0][0], now[1][0]);
            assert!(a >= b && a >= last[0] && b >= last[1], "{a} after {}, {b} after {}", last[0], last[1]);
            last = [a, b];
            if written.load(SeqCst) == 3000 && stager.counters().queued_puts == 0 {
                break;
            }
        }
    });
    stager.close().unwrap();
    for array in &arrays {
        assert_eq!(array.get_values::<u64>(&whole).unwrap(), [3000; 64]);
    }
    drop((session, arrays));
    here.end();
}

/// What the child of `a_reader_that_is_killed_at_a_step_goes_on_behind_it` does: tells each step that it has read.
fn read_steps(index: &str, from: u64) -> ! {
    let session = Session::open(std::path::Path::new(index)).unwrap();
    let mut cursor = session.steps("run", from, &["p", "v"]).unwrap();
    loop {
        let Some(step) = cursor.next(Some(Duration::from_secs(60))).unwrap() else { std::process::exit(1) };
        for (name, seed) in [("run/p", 1), ("run/v", 2)] {
            check_steps(&session.open_array(name, false).unwrap(), seed, step..step + 1);
        }
        println!("step {step}");
    }
}

#[test]
fn a_reader_that_is_killed_at_a_step_goes_on_behind_it() {
    if let (Ok(index), Ok(from)) = (std::env::var("STAGING_INDEX"), std::env::var("STAGING_FROM")) {
        read_steps(&index, from.parse().unwrap());
    }
    let staging = roomy();
    let here = Served::begin(&staging, &[]);
    let session = Session::open(&here.index).unwrap();
    let spec = ArraySpec::new(DataType::Int32, &[3]);
    let fixed = make(&session, "run/x", &spec, Create::New);
    fixed.put_values(&Region::whole(&[3]).unwrap(), &[5i32, 6, 7]).unwrap();
    let simulation = simulate(session.clone(), "run", Duration::from_millis(10), 120);
    let mut seen: Vec<u64> = vec![];
    while seen.len() < 120 {
        let mut child = again(module_path!(), "a_reader_that_is_killed_at_a_step_goes_on_behind_it")
            .env("STAGING_INDEX", &here.index)
            .env("STAGING_FROM", seen.len().to_string())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().unwrap()));
        let wanted = seen.len() + 25;
        for line in lines {
            let line = line.unwrap();
            // The harness of the tests has words of its own.
            let Some(step) = line.rsplit("step ").next().and_then(|step| step.parse().ok()) else { continue };
            seen.push(step);
            if seen.len() == wanted.min(120) {
                break;
            }
        }
        child.kill().unwrap();
        assert_ne!(child.wait().unwrap().code(), Some(1), "no step came");
    }
    assert_eq!(seen, (0..120).collect::<Vec<_>>());
    simulation.join().unwrap();
    // Whoever comes late finds what does not grow, and all steps that are kept.
    let late = Session::open(&here.index).unwrap();
    let array = late.open_array("run/x", false).unwrap();
    assert_eq!(array.get_values::<i32>(&Region::whole(&[3]).unwrap()).unwrap(), [5, 6, 7]);
    let mut cursor = late.steps("run", 0, &[]).unwrap();
    for step in 0..120 {
        assert_eq!(cursor.next(Some(Duration::ZERO)).unwrap(), Some(step));
    }
    assert_eq!(cursor.next(Some(Duration::ZERO)).unwrap(), None);
    drop((session, late, fixed, array, cursor));
    here.end();
}

#[test]
fn a_step_is_seen_when_all_its_parts_are_there_whatever_is_flushed_or_killed_meanwhile() {
    let staging = roomy();
    let here = Served::begin(&staging, &[]);
    let session = Session::open(&here.index).unwrap();
    let (p, v) = (field(&session, "run/p"), field(&session, "run/v"));
    let count = || session.steps("run", 0, &["p", "v"]).unwrap().count().unwrap();
    put_step(&p, 1, 0);
    assert_eq!(count(), 0);
    put_step(&v, 2, 0);
    assert_eq!(count(), 1);
    let half = |step: u64, from: u64| Region::block(&[step, from, 0], &[1, ROWS / 2, COLUMNS]).unwrap();
    let part = vec![4.5f64; (ROWS / 2 * COLUMNS) as usize];
    put_step(&v, 2, 1);
    p.put_values(&half(1, 0), &part).unwrap();
    assert_eq!(count(), 1);
    // A flush, and an agent that takes over what another one has left, make no step whole.
    session.flush("run").unwrap();
    assert_eq!(count(), 1);
    here.kill_agent(&staging);
    assert_eq!(count(), 1);
    // Growing is not putting.
    p.grow(&[5, ROWS, COLUMNS]).unwrap();
    here.kill_agent(&staging);
    assert_eq!(count(), 1);
    p.put_values(&half(1, ROWS / 2), &part).unwrap();
    assert_eq!(count(), 2);
    // What can't be told by cells is said.
    let stager = session.stager(StagerSpec::default()).unwrap();
    assert_eq!(
        stager.put_owned(&p, &half(2, 0), part.iter().flat_map(|v| v.to_le_bytes()).collect()).unwrap(),
        Staged::Queued
    );
    stager.publish("run", 3).unwrap();
    stager.sync(Arrived::Staged, None).unwrap();
    assert_eq!(count(), 3);
    stager.close().unwrap();
    drop((session, p, v));
    here.end();
}

#[test]
fn only_one_port_is_needed_through_an_ssh_tunnel() {
    let Some(tunnel) = Tunnel::new() else { return };
    let (staging, analysis) = (roomy(), roomy());
    let there = Served::begin(&analysis, &[]);
    let near = tunnel.to(&there.address);
    let here = Served::begin(&staging, &["--forward", &rule(&staging, "run", &near, "")]);
    let simulation = simulate(Session::open(&here.index).unwrap(), "run", Duration::from_millis(5), 100);
    let reader = analyse(near, "run", 100);
    assert_eq!(simulation.join().unwrap(), 100);
    assert_eq!(reader.join().unwrap(), (0..100).collect::<Vec<_>>(), "{:?}", forwards(&staging));
    here.end();
    there.end();
}

/// An ssh server of this test's own, on loopback, and clients of it that tunnel.
struct Tunnel {
    place: tempfile::TempDir,
    port: u16,
    server: std::process::Child,
    clients: std::sync::Mutex<Vec<std::process::Child>>,
}

impl Tunnel {
    /// `None`, and told, where there is no ssh.
    fn new() -> Option<Tunnel> {
        let has = |program: &str| {
            Command::new("sh")
                .args(["-c", &format!("command -v {program}")])
                .stdout(Stdio::null())
                .status()
                .unwrap()
                .success()
        };
        if !std::path::Path::new("/usr/sbin/sshd").exists() || !has("ssh") || !has("ssh-keygen") {
            skipped("no ssh server (tests/setup.sh installs one)");
            return None;
        }
        let place = tempfile::Builder::new().prefix("ts-").tempdir_in("/var/tmp").unwrap();
        let path = |name: &str| place.path().join(name).display().to_string();
        for key in ["host", "user"] {
            let made = Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f", &path(key)]).status();
            assert!(made.unwrap().success());
        }
        if is_root() {
            std::fs::create_dir_all("/run/sshd").unwrap();
        }
        let port = Served::free_address().rsplit(':').next().unwrap().parse().unwrap();
        let config = format!(
            "Port {port}\nListenAddress 127.0.0.1\nHostKey {}\nAuthorizedKeysFile {}.pub\nPermitRootLogin yes\nStrictModes no\n\
             UsePAM no\nPidFile none\n",
            path("host"),
            path("user")
        );
        std::fs::write(place.path().join("config"), config).unwrap();
        let server = Command::new("/usr/sbin/sshd")
            .args(["-D", "-e", "-f", &path("config")])
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Some(Tunnel { place, port, server, clients: Default::default() })
    }

    /// The near end of a tunnel to this address.
    fn to(&self, address: &str) -> String {
        let near = Served::free_address();
        let key = self.place.path().join("user");
        let client = Command::new("ssh")
            .args(["-N", "-L", &format!("{near}:{address}"), "-p", &self.port.to_string(), "-i"])
            .arg(key)
            .args(["-o", "IdentitiesOnly=yes", "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null"])
            .args(["-o", "LogLevel=ERROR", "-o", "BatchMode=yes", "-o", "ConnectionAttempts=20"])
            .args(["-o", "ExitOnForwardFailure=yes", "127.0.0.1"])
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        self.clients.lock().unwrap().push(client);
        assert!(wait_until(30, || std::net::TcpStream::connect(&near).is_ok()), "the tunnel is not there");
        near
    }
}

impl Drop for Tunnel {
    fn drop(&mut self) {
        for child in self.clients.lock().unwrap().iter_mut().chain([&mut self.server]) {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[test]
fn random_puts_of_several_writers_are_the_same_on_both_sides() {
    let (staging, analysis) = (Wish::default().tier("ram", "3MiB").build(), roomy());
    let there = Served::begin(&analysis, &[]);
    let network = Arc::new(Proxy::to(&there.address));
    let here = Served::begin(&staging, &["--forward", &rule(&staging, "run", &network.address, "")]);
    let session = Session::open(&here.index).unwrap();
    let spec = ArraySpec::new(DataType::UInt32, &[60, 70]).chunks(&[20, 35]);
    let array = make(&session, "run/a", &spec, Create::New);
    let writers: Vec<_> = (0..3)
        .map(|writer| {
            let session = Session::open(&here.index).unwrap();
            std::thread::spawn(move || {
                let array = session.open_array("run/a", true).unwrap();
                let mut random = Random::new(writer + 77);
                for turn in 0..1500u32 {
                    let offset = [random.below(60), random.below(70)];
                    let count = [1 + random.below(60 - offset[0]), 1 + random.below(70 - offset[1])];
                    let region = Region::block(&offset, &count).unwrap();
                    let value = (writer as u32) << 24 | turn;
                    array.put_values(&region, &vec![value; region.cells() as usize]).unwrap();
                    if turn % 400 == 399 {
                        session.evict("run").unwrap();
                    }
                }
            })
        })
        .collect();
    for _ in 0..3 {
        std::thread::sleep(Duration::from_millis(200));
        network.sever();
        here.kill_agent(&staging);
    }
    writers.into_iter().for_each(|writer| writer.join().unwrap());
    let stager = session.stager(StagerSpec::default()).unwrap();
    let corner = Region::block(&[59, 69], &[1, 1]).unwrap();
    assert_eq!(stager.put(&array, &corner, &[1, 2, 3, 4]).unwrap(), Staged::Queued);
    stager.sync(Arrived::Analysis, Some(Duration::from_secs(120))).unwrap();
    let whole = Region::whole(&[60, 70]).unwrap();
    let elsewhere = Session::connect_to(&there.address, Served::TOKEN).unwrap();
    let far = elsewhere.open_array("run/a", false).unwrap().get_values::<u32>(&whole).unwrap();
    assert!(far == array.get_values::<u32>(&whole).unwrap(), "the analysis agent has other cells");
    stager.close().unwrap();
    drop((session, elsewhere, array));
    here.end();
    there.end();
}

/// Another network, with one link to it.
struct Network {
    name: String,
    here: String,
    there: String,
}

impl Network {
    /// `None`, and told, where this machine can't have one.
    fn new() -> Option<Network> {
        let name = format!("ts{}", std::process::id());
        let net = format!("10.214.{}", std::process::id() % 240);
        let (here, there) = (format!("{net}.1"), format!("{net}.2"));
        let script = format!(
            "ip netns add {name}; ip link add {name} type veth peer name eth0 netns {name}
             ip addr add {here}/24 dev {name}; ip link set {name} up
             ip -n {name} addr add {there}/24 dev eth0; ip -n {name} link set eth0 up; ip -n {name} link set lo up"
        );
        if !is_root() || !Network::sh(&script) {
            skipped("network namespaces need root");
            return None;
        }
        Some(Network { name, here, there })
    }

    fn sh(script: &str) -> bool {
        Command::new("sh").args(["-ec", script]).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
    }

    fn set(&self, state: &str) {
        assert!(Network::sh(&format!("ip link set {} {state}", self.name)));
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        Network::sh(&format!("ip netns del {}; ip link del {} || true", self.name, self.name));
    }
}

#[test]
fn a_link_to_another_network_that_is_down_for_a_while_loses_nothing() {
    let Some(network) = Network::new() else { return };
    let (staging, analysis) = (roomy(), roomy());
    let address = format!("{}:7788", network.there);
    let there = Served::begin_in(&analysis, &address, &[], &["ip", "netns", "exec", &network.name]);
    let pinned = std::fs::read_to_string(analysis.scratch().join("token.fingerprint")).unwrap();
    let more = format!("fingerprint={}", pinned.trim());
    let here = Served::begin(&staging, &["--forward", &rule(&staging, "run", &address, &more)]);
    let session = Session::open(&here.index).unwrap();
    let simulation = simulate(session.clone(), "run", Duration::from_millis(20), 300);
    let elsewhere = || Session::connect_tls(&address, Served::TOKEN, &pinned).unwrap();
    let mut cursor = elsewhere().steps("run", 0, &["p", "v"]).unwrap();
    for step in 0..20 {
        assert_eq!(cursor.next(Some(Duration::from_secs(60))).unwrap(), Some(step), "from {}", network.here);
    }
    network.set("down");
    // The simulation goes on, and is done before the link is there again.
    assert_eq!(simulation.join().unwrap(), 300);
    std::thread::sleep(Duration::from_secs(3));
    assert!(forwards(&staging).iter().any(|line| line.queued_regions > 0), "{:?}", forwards(&staging));
    network.set("up");
    let mut cursor = elsewhere().steps("run", 20, &["p", "v"]).unwrap();
    for step in 20..300 {
        assert_eq!(cursor.next(Some(Duration::from_secs(90))).unwrap(), Some(step), "{:?}", forwards(&staging));
    }
    check_steps(&elsewhere().open_array("run/p", false).unwrap(), 1, 0..300);
    check_steps(&elsewhere().open_array("run/v", false).unwrap(), 2, 0..300);
    drop((session, cursor));
    here.end();
    there.end();
}
