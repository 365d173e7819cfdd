//! Arrays through the whole system: a client, an agent, the tiers and the root.

use terrace_client::{ArraySpec, Create, DataType, Session};
use terrace_tests::{Random, Wish, Workplace, again, compare_at_random};

fn session(place: &Workplace) -> Session {
    Session::open(&place.runtime().join("index")).expect("a run has an index")
}

pub const TYPES: [DataType; 14] = [
    DataType::Bool,
    DataType::Int8,
    DataType::Int16,
    DataType::Int32,
    DataType::Int64,
    DataType::UInt8,
    DataType::UInt16,
    DataType::UInt32,
    DataType::UInt64,
    DataType::Float32,
    DataType::Float64,
    DataType::Complex64,
    DataType::Complex128,
    DataType::Bytes(5),
];

fn shape(rank: usize) -> Vec<u64> {
    [vec![5000], vec![60, 70], vec![14, 15, 16], vec![6, 7, 8, 9]][rank - 1].clone()
}

#[test]
fn random_regions_of_every_type_and_rank_are_what_a_model_says() {
    let place = Wish::default().tier("ram", "64MiB").build();
    let shell = place.shell();
    let session = session(&place);
    for (number, data_type) in TYPES.into_iter().enumerate() {
        for rank in 1..=4 {
            let name = format!("models/{data_type}-{rank}");
            session.create_container("models", Create::IfMissing).unwrap();
            let chunks: Vec<u64> = shape(rank).iter().map(|extent| extent.div_ceil(3)).collect();
            let fill = match data_type {
                DataType::Bool => vec![1],
                other => Random::new(7).bytes(other.size()),
            };
            let spec = ArraySpec::new(data_type, &shape(rank)).chunks(&chunks).fill(&fill);
            let array = session.create_array(&name, &spec, Create::New).unwrap();
            let seed = (number * 4 + rank) as u64;
            // Flushed and evicted now and then: later operations meet the durable form.
            compare_at_random(&array, seed, 0..array.spec().shape[0], 600, |operation| match operation % 200 {
                70 => session.flush(&name).unwrap(),
                140 => session.evict(&name).unwrap(),
                _ => {}
            });
        }
    }
    drop(session);
    shell.ends_and_leaves();
}

/// One of several clients at once: this program again, on its own rows of arrays that all share.
#[test]
#[ignore = "run by other tests, as a process of its own"]
fn act() {
    let number = |name: &str| std::env::var(name).unwrap().parse::<u64>().unwrap();
    let (client, clients, operations) = (number("ACT_CLIENT"), number("ACT_CLIENTS"), number("ACT_OPERATIONS"));
    let session = Session::open(std::path::Path::new(&std::env::var("ACT_INDEX").unwrap())).unwrap();
    for (number, data_type) in TYPES.into_iter().enumerate() {
        for rank in 1..=4 {
            let mut shape = shape(rank);
            shape[0] *= clients;
            let name = format!("shared/{data_type}-{rank}");
            session.create_container("shared", Create::IfMissing).unwrap();
            let chunks: Vec<u64> = shape.iter().map(|extent| extent.div_ceil(5)).collect();
            let spec = ArraySpec::new(data_type, &shape).chunks(&chunks);
            let array = session.create_array(&name, &spec, Create::IfMissing).unwrap();
            let rows = shape[0] / clients;
            let seed = client * 1000 + number as u64 * 4 + rank as u64;
            compare_at_random(
                &array,
                seed,
                client * rows..(client + 1) * rows,
                operations,
                |operation| match operation % 150 {
                    50 => session.flush(&name).unwrap(),
                    100 => session.evict(&name).unwrap(),
                    _ => {}
                },
            );
        }
    }
}

fn clients(place: &Workplace, count: u64, operations: u64) -> Vec<std::process::Child> {
    let spawn = |client: u64| {
        let mut command = again(module_path!(), "act");
        command.arg("--ignored").stdout(std::process::Stdio::null());
        command.env("ACT_CLIENT", client.to_string()).env("ACT_CLIENTS", count.to_string());
        command.env("ACT_OPERATIONS", operations.to_string()).env("ACT_INDEX", place.runtime().join("index"));
        command.spawn().unwrap()
    };
    (0..count).map(spawn).collect()
}

/// With the other tests here: more than 100,000 operations in all.
#[test]
fn four_clients_at_once_on_one_array_see_what_each_has_put() {
    let place = Wish::default().tier("ram", "128MiB").build();
    let shell = place.shell();
    for mut client in clients(&place, 4, 300) {
        assert!(client.wait().unwrap().success());
    }
    shell.ends_and_leaves();
}

#[test]
fn with_tiers_too_small_regions_spill_and_nothing_is_lost() {
    let place = Wish::default().tier("ram", "1MiB").tier("second", "2MiB").build();
    let shell = place.shell();
    let session = session(&place);
    let spec = ArraySpec::new(DataType::Float64, &[400, 500]).chunks(&[100, 500]);
    let array = session.create_array("large", &spec, Create::New).unwrap();
    compare_at_random(&array, 5, 0..400, 300, |_| {});
    drop((session, array));
    shell.ends_and_leaves();
}

/// The agent is killed again and again while two clients put, get, flush and evict.
#[test]
fn a_hundred_kills_of_the_agent_lose_nothing_that_was_acknowledged() {
    let place = Wish::default().tier("ram", "64MiB").build();
    assert_eq!(place.run(&["true"]).code, 0);
    let start_agent = || {
        let mut command = std::process::Command::new(terrace_tests::binaries().join("terrace"));
        command.args(["agent", "--settings"]).arg(place.state().join("settings.json"));
        command.stderr(std::process::Stdio::null()).spawn().unwrap()
    };
    let mut agent = start_agent();
    assert!(terrace_tests::wait_until(30, || place.status().is_some()));
    let mut running = clients(&place, 2, 120);
    let mut random = Random::new(99);
    let mut kills = 0;
    while kills < 100 {
        std::thread::sleep(std::time::Duration::from_millis(20 + random.below(150)));
        for client in &mut running {
            if let Some(status) = client.try_wait().unwrap() {
                assert!(status.success());
            }
        }
        agent.kill().unwrap();
        agent.wait().unwrap();
        kills += 1;
        agent = start_agent();
        assert!(terrace_tests::wait_until(30, || place.status().is_some()), "{}", place.agent_log());
    }
    for mut client in running {
        assert!(client.wait().unwrap().success());
    }
    assert!(terrace_tests::wait_until(60, || place.status().is_none()), "the agent does not leave");
    agent.wait().unwrap();
    place.settled_tree();
}
