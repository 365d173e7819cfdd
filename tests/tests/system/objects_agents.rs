//! Several agents of one root: arrays spread over them, restarted as more and as fewer, and seen from each.

use crate::objects_bytes::text_of;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use terrace_client::{
    ArraySpec, Create, DataType, Kind, LockMode, ObjectKind, Placement, Region, Session, TagValue, agents_of,
};
use terrace_core::members::number_of;
use terrace_core::nodes::split_tag;
use terrace_tests::{
    Agents, Http, Outcome, Random, Served, Wish, Workplace, compare_at_random, terrace_binary, wait_until,
};

/// Agents that have segments of arrays in their tier.
fn agents_with_segments(place: &Workplace) -> Vec<u32> {
    let mut found = vec![];
    for directory in std::fs::read_dir(place.tier("ram")).unwrap().flatten() {
        let has_segment = walkdir::WalkDir::new(directory.path()).into_iter().flatten().any(|entry| {
            let name = entry.file_name().to_string_lossy().into_owned();
            entry.file_type().is_file() && name.len() == 9 && name.starts_with('s')
        });
        if has_segment {
            let name = directory.file_name();
            found.extend(name.to_str().map(|name| split_tag(name).0).and_then(number_of));
        }
    }
    found.sort();
    found
}

fn kept() -> Workplace {
    // Nothing is flushed before it is asked for.
    Wish::default().tier("ram", "64MiB").settle("1h").build()
}

fn counting(session: &Session, name: &str, from: i32) -> Vec<i32> {
    let values: Vec<i32> = (0..40 * 50).map(|i| from + i).collect();
    let spec = ArraySpec::new(DataType::Int32, &[40, 50]).chunks(&[7, 11]);
    let array = session.create_array(name, &spec, Create::IfMissing).unwrap();
    array.put_values(&Region::whole(&[40, 50]).unwrap(), &values).unwrap();
    values
}

fn whole(session: &Session, name: &str) -> Vec<i32> {
    session.open_array(name, false).unwrap().get_values(&Region::whole(&[40, 50]).unwrap()).unwrap()
}

#[test]
fn regions_of_one_array_are_spread_over_two_agents_and_are_one_array_to_every_client() {
    let place = kept();
    let agents = Agents::start(&place, 2);
    let (one, two, far) = (agents.beside(0), agents.beside(1), agents.elsewhere(1));
    let spec = ArraySpec::new(DataType::Int64, &[60, 70]).chunks(&[13, 17]).fill(&25i64.to_le_bytes());
    // With the container that it lies in.
    let array = one.create_array("c/a", &spec, Create::New).unwrap();
    assert_eq!(one.create_container("c", Create::New).err().unwrap().kind, Kind::Exists);
    compare_at_random(&array, 5, 0..30, 60, |operation| {
        if operation % 25 == 20 {
            two.evict("c").unwrap();
        }
    });
    assert_eq!(agents_with_segments(&place), [0, 1]);
    // Programs beside the other agent, and elsewhere, see the same, and put.
    compare_at_random(&far.open_array("c/a", true).unwrap(), 6, 30..60, 60, |_| {});
    let everything = Region::whole(&[60, 70]).unwrap();
    let seen = array.get_values::<i64>(&everything).unwrap();
    for session in [&two, &far] {
        assert!(session.open_array("c/a", false).unwrap().get_values::<i64>(&everything).unwrap() == seen);
    }
    let beyond = Region::block(&[59, 0], &[2, 1]).unwrap();
    assert_eq!(array.put(&beyond, &[0; 16]).unwrap_err().kind, Kind::OutOfBounds);
    assert_eq!(far.open_array("c/a", false).unwrap().get(&beyond, &mut [0; 16]).unwrap_err().kind, Kind::OutOfBounds);
    // A lock of one agent's client is met by the other's.
    let lock = array.lock(&everything, LockMode::Write, Some(Duration::ZERO)).unwrap();
    let other = two.open_array("c/a", true).unwrap();
    let part = Region::block(&[50, 60], &[2, 2]).unwrap();
    assert_eq!(other.lock(&part, LockMode::Read, Some(Duration::ZERO)).err().unwrap().kind, Kind::Busy);
    drop(lock);
    other.lock(&part, LockMode::Read, Some(Duration::from_secs(30))).unwrap();
    assert!(!one.stat("c/a").unwrap().is_durable);
    far.flush("").unwrap();
    assert!(two.stat("c/a").unwrap().is_durable);
    drop((one, two, far, array, other));
    agents.end();
    // One Zarr array, and nothing of ours beside it.
    let tree = place.settled_tree();
    drop(tree);
    assert!(place.root().join("c/a/zarr.json").exists());
    let left: Vec<_> = std::fs::read_dir(place.root().join("c/a")).unwrap().flatten().map(|e| e.file_name()).collect();
    assert_eq!(left.len(), 2, "{left:?}");
}

#[test]
fn two_agents_are_restarted_as_three_and_as_one() {
    let place = kept();
    let agents = Agents::start(&place, 2);
    let values = counting(&agents.beside(0), "a", 100);
    agents.end();
    let agents = Agents::start(&place, 3);
    assert_eq!(whole(&agents.elsewhere(2), "a"), values);
    let newer = counting(&agents.beside(2), "a", 7000);
    assert_eq!(agents_with_segments(&place), [0, 1, 2]);
    assert_eq!(whole(&agents.beside(1), "a"), newer);
    agents.end();
    let agents = Agents::start(&place, 1);
    assert_eq!(whole(&agents.beside(0), "a"), newer);
    agents.end();
    place.settled_tree();
}

#[test]
fn two_agents_that_were_killed_are_restarted_as_three_and_nothing_acknowledged_is_lost() {
    let place = kept();
    let agents = Agents::start(&place, 2);
    let session = agents.elsewhere(0);
    let mut values = counting(&session, "a", 0);
    session.flush("").unwrap();
    let array = session.open_array("a", true).unwrap();
    array.put_values(&Region::block(&[3, 4], &[30, 40]).unwrap(), &[-1; 1200]).unwrap();
    (3..33).for_each(|row| values[row * 50 + 4..row * 50 + 44].fill(-1));
    let bytes = session.create_bytes("table", Create::New).unwrap();
    bytes.append(&Random::new(8).bytes(50_000)).unwrap();
    bytes.close().unwrap();
    drop((session, array));
    agents.kill();
    let agents = Agents::start(&place, 3);
    assert_eq!(whole(&agents.beside(1), "a"), values);
    let mut read = vec![0; 50_000];
    agents.elsewhere(2).open_bytes("table", false).unwrap().read_exact_at(0, &mut read).unwrap();
    assert!(read == Random::new(8).bytes(50_000));
    // And back: what the third agent took over is not hidden by what the first two once had.
    let newer = counting(&agents.elsewhere(1), "a", 5000);
    agents.kill();
    let agents = Agents::start(&place, 3);
    assert_eq!(whole(&agents.beside(0), "a"), newer);
    agents.end();
    place.settled_tree();
}

#[test]
fn cells_of_an_agent_that_was_killed_are_waited_for_where_fewer_are_started_and_never_read_as_older_ones() {
    let place = kept();
    let agents = Agents::start(&place, 3);
    let values = counting(&agents.beside(0), "a", 100);
    assert_eq!(agents_with_segments(&place), [0, 1, 2]);
    agents.kill();
    let agents = Agents::start(&place, 2);
    for session in [agents.beside(0), agents.elsewhere(1)] {
        let refused = session.open_array("a", false).err().unwrap();
        assert_eq!(refused.kind, Kind::NoAgent);
        assert!(refused.to_string().contains(".staged.2"), "{refused}");
        assert_eq!(session.stat("a").unwrap_err().kind, Kind::NoAgent);
        counting(&session, "other", 3);
    }
    agents.end();
    let alone = Served::begin(&place, &[]);
    assert_eq!(Session::open(&alone.index).unwrap().open_array("a", false).err().unwrap().kind, Kind::NoAgent);
    alone.end();
    let agents = Agents::start(&place, 3);
    assert_eq!(whole(&agents.beside(1), "a"), values);
    agents.end();
    let alone = Served::begin(&place, &[]);
    let session = Session::open(&alone.index).unwrap();
    assert_eq!(whole(&session, "a"), values);
    let newer = counting(&session, "a", 9000);
    drop(session);
    alone.kill(&place);
    let agents = Agents::start(&place, 2);
    assert_eq!(agents.elsewhere(0).open_array("a", true).err().unwrap().kind, Kind::NoAgent);
    agents.end();
    let alone = Served::begin(&place, &[]);
    assert_eq!(whole(&Session::open(&alone.index).unwrap(), "a"), newer);
    alone.end();
    place.settled_tree();
}

#[test]
fn dimensions_smaller_than_the_number_of_agents_are_no_trouble() {
    let place = kept();
    let agents = Agents::start(&place, 3);
    let (one, two) = (agents.beside(0), agents.elsewhere(2));
    for (name, shape, chunks) in
        [("point", vec![1], vec![1]), ("pair", vec![2, 1, 1], vec![1, 1, 1]), ("none", vec![0], vec![4])]
    {
        let spec = ArraySpec::new(DataType::Int64, &shape).chunks(&chunks);
        let array = one.create_array(name, &spec, Create::New).unwrap();
        let everything = Region::whole(&shape).unwrap();
        let values: Vec<i64> = (0..everything.cells() as i64).map(|i| i - 9).collect();
        array.put_values(&everything, &values).unwrap();
        assert_eq!(two.open_array(name, false).unwrap().get_values::<i64>(&everything).unwrap(), values);
    }
    drop((one, two));
    agents.end();
    place.settled_tree();
}

#[test]
fn a_container_is_listed_and_its_objects_described_by_a_process_of_another_agent() {
    let place = kept();
    let agents = Agents::start(&place, 2);
    let (one, two, far) = (agents.beside(0), agents.beside(1), agents.elsewhere(1));
    one.create_container("c/inner", Create::New).unwrap();
    counting(&one, "c/array", 0);
    for (session, name) in [(&one, "c/by-one"), (&two, "c/by-two"), (&far, "c/by-far")] {
        let bytes = session.create_bytes(name, Create::New).unwrap();
        bytes.append(name.as_bytes()).unwrap();
        bytes.close().unwrap();
    }
    two.put_tag("c/by-one", "kind", TagValue::Text("table".into())).unwrap();
    for session in [&one, &two, &far] {
        let entries = session.list("c").unwrap();
        let seen: Vec<(&str, ObjectKind)> = entries.iter().map(|entry| (entry.name.as_str(), entry.kind)).collect();
        let bytes = |name| (name, ObjectKind::Bytes);
        let container = ("inner", ObjectKind::Container);
        assert_eq!(seen, [("array", ObjectKind::Array), bytes("by-far"), bytes("by-one"), bytes("by-two"), container]);
        for name in ["c/by-one", "c/by-two", "c/by-far"] {
            assert_eq!(session.stat(name).unwrap().bytes, name.len() as u64);
            let mut read = vec![0; name.len()];
            session.open_bytes(name, false).unwrap().read_exact_at(0, &mut read).unwrap();
            assert_eq!(read, name.as_bytes());
        }
        assert_eq!(session.get_tag("c/by-one", "kind").unwrap(), Some(TagValue::Text("table".into())));
        assert_eq!(session.stat("none").unwrap_err().kind, Kind::NotFound);
    }
    // Written by one, gone on with by another, removed by a third.
    let bytes = two.open_bytes("c/by-one", true).unwrap();
    bytes.write_at(0, b"C").unwrap();
    bytes.close().unwrap();
    let mut first = [0];
    one.open_bytes("c/by-one", false).unwrap().read_exact_at(0, &mut first).unwrap();
    assert_eq!(&first, b"C");
    far.remove("c/by-one", false).unwrap();
    assert!(!one.exists("c/by-one").unwrap());
    drop((one, two, far));
    agents.end();
    place.settled_tree();
    assert_eq!(std::fs::read(place.root().join("c/by-two")).unwrap(), b"c/by-two");
}

#[test]
fn an_unlimited_dimension_is_grown_by_clients_of_two_agents() {
    let place = kept();
    let agents = Agents::start(&place, 2);
    let (first, second) = (agents.beside(0), agents.elsewhere(1));
    let spec = ArraySpec::new(DataType::Float32, &[0, 4]).unlimited(0).chunks(&[3, 4]);
    let one = first.create_array("grows", &spec, Create::New).unwrap();
    let two = second.open_array("grows", true).unwrap();
    for row in 0..20u64 {
        let array = if row % 2 == 0 { &one } else { &two };
        array.put_values(&Region::block(&[row, 0], &[1, 4]).unwrap(), &[row as f32; 4]).unwrap();
        assert_eq!((one.shape().unwrap(), two.shape().unwrap()), (vec![row + 1, 4], vec![row + 1, 4]));
        if row == 9 {
            second.evict("grows").unwrap();
        }
    }
    two.grow(&[25, 4]).unwrap();
    let values = one.get_values::<f32>(&Region::whole(&[25, 4]).unwrap()).unwrap();
    assert!(values.chunks(4).enumerate().all(|(row, cells)| cells == [if row < 20 { row as f32 } else { 0.0 }; 4]));
    drop((first, second, one, two));
    agents.end();
    place.settled_tree();
    let agents = Agents::start(&place, 1);
    assert_eq!(agents.beside(0).open_array("grows", false).unwrap().shape().unwrap(), [25, 4]);
    agents.end();
}

#[test]
fn an_application_chooses_one_agent_or_its_own() {
    let place = kept();
    let agents = Agents::start(&place, 3);
    let session = agents.beside(1);
    let everything = Region::whole(&[64]).unwrap();
    let spec = ArraySpec::new(DataType::UInt8, &[64]).chunks(&[4]).placement(Placement::Local);
    session.create_array("local", &spec, Create::New).unwrap().put(&everything, &[1; 64]).unwrap();
    assert_eq!(agents_with_segments(&place), [1]);
    assert_eq!(agents.elsewhere(2).open_array("local", false).unwrap().get_values::<u8>(&everything).unwrap(), [1; 64]);
    session.evict("").unwrap();
    let spec = spec.placement(Placement::One);
    session.create_array("one", &spec, Create::New).unwrap().put(&everything, &[2; 64]).unwrap();
    assert_eq!(agents_with_segments(&place).len(), 1);
    drop(session);
    agents.end();
    place.settled_tree();
}

#[test]
fn agents_that_mpi_has_started_find_each_other() {
    let place = kept();
    let mut ranks: Vec<Child> = (0..2)
        .map(|rank| {
            let mut serve = place.terrace("serve");
            serve.args(["--quiet", "--mpi", "--listen", "127.0.0.1:0"]).stdout(Stdio::null());
            serve.env("OMPI_COMM_WORLD_RANK", rank.to_string()).env("OMPI_COMM_WORLD_SIZE", "2");
            serve.env("PMIX_NAMESPACE", "job7").spawn().unwrap()
        })
        .collect();
    assert!(wait_until(60, || matches!(agents_of(place.root()), Ok(Some(agents)) if agents.len() == 2)));
    // As a program on a node without an agent has it: the root's path is all that it knows.
    let session = Session::connect(place.root().to_str().unwrap()).unwrap();
    let values = counting(&session, "a", 3);
    assert_eq!(whole(&session, "a"), values);
    assert_eq!(agents_with_segments(&place), [0, 1]);
    drop(session);
    for rank in &mut ranks {
        // SAFETY: our own child.
        unsafe { libc::kill(rank.id() as i32, libc::SIGTERM) };
    }
    for mut rank in ranks {
        assert_eq!(rank.wait().unwrap().code(), Some(0));
    }
}

#[test]
fn hosts_that_can_not_be_used_are_named() {
    let place = Workplace::new();
    let hosts = place.scratch().join("hosts");
    let serve = |launcher: &str, text: &str| {
        std::fs::write(&hosts, text).unwrap();
        let mut command: Command = place.terrace("serve");
        let output = command.args(["--quiet", "--launcher", launcher, "--hosts"]).arg(&hosts).output().unwrap();
        assert!(!output.status.success());
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    assert!(serve("false", "node7\n").contains("node7"));
    assert!(serve("/no/such/launcher {host}", "node7\n").contains("node7"));
    assert!(serve("false", "").contains("0 hosts"));
    assert!(serve("false", "a\na\n").contains("twice"));
    let no_slurm = place.terrace("serve").args(["--quiet", "--slurm"]).output().unwrap();
    assert!(String::from_utf8_lossy(&no_slurm.stderr).contains("SLURM_JOB_NODELIST"));
    let no_mpi = place.terrace("serve").args(["--quiet", "--mpi"]).output().unwrap();
    assert!(String::from_utf8_lossy(&no_mpi.stderr).contains("mpirun"));
    assert!(Path::new(place.root()).exists());
}

#[test]
fn objects_of_several_agents_are_served_over_http() {
    let place = kept();
    let agents = Agents::start(&place, 2);
    let session = agents.beside(1);
    let spec = ArraySpec::new(DataType::UInt8, &[0, 64]).unlimited(0).chunks(&[4, 16]).dimensions(&["t", "x"]);
    let array = session.create_array("grown", &spec, Create::New).unwrap();
    let cells: Vec<u8> = (0..=255).cycle().take(16 * 64).collect();
    array.put(&Region::block(&[0, 0], &[16, 64]).unwrap(), &cells).unwrap();
    let mut process = place.terrace("web").stdout(Stdio::piped()).spawn().unwrap();
    let page = BufReader::new(process.stdout.take().unwrap()).lines().next().unwrap().unwrap();
    let token = std::fs::read_to_string(place.state().join("web.token")).unwrap();
    let web = Http::new(page.strip_prefix("page: ").unwrap().split("/?").next().unwrap(), token.trim());
    assert_eq!(web.get("/zarr/grown/zarr.json").json()["shape"], serde_json::json!([16, 64]));
    for (row, column) in (0..4).flat_map(|row| (0..4).map(move |column| (row, column))) {
        let wanted: Vec<u8> =
            (0..4).flat_map(|i| cells[(row * 4 + i) * 64 + column * 16..][..16].iter().copied()).collect();
        assert_eq!(web.get(&format!("/zarr/grown/c/{row}/{column}")).body, wanted, "{row} {column}");
    }
    process.kill().unwrap();
    process.wait().unwrap();
    drop((session, array));
    agents.end();
}

/// Each time as soon as the command has returned.
#[test]
fn agents_are_restarted_at_once_in_any_number() {
    let place = Wish::default().tier("ram", "32MiB").build();
    let spec = ArraySpec::new(DataType::Int32, &[64, 16]).chunks(&[4, 16]);
    let whole = Region::whole(&[64, 16]).unwrap();
    let mut newest: Vec<i32> = vec![];
    for (turn, count) in [3, 3, 6, 1, 1, 6, 3, 1].into_iter().enumerate() {
        let agents = Agents::start(&place, count);
        let session = agents.beside(0);
        let array = session.create_array("a", &spec, Create::IfMissing).unwrap();
        if turn > 0 {
            assert_eq!(array.get_values::<i32>(&whole).unwrap(), newest, "turn {turn}, {count} agents");
        }
        newest = (0..64 * 16).map(|cell| cell * 10 + turn as i32).collect();
        array.put_values(&whole, &newest).unwrap();
        drop((array, session));
        agents.end();
    }
}

/// A program that stays connected keeps an agent of the first launch: whoever starts the next one is told whom he waits for, and goes
/// on when it has left.
#[test]
fn a_start_that_waits_for_an_agent_of_an_earlier_launch_says_so() {
    let place = Wish::default().tier("ram", "32MiB").build();
    let mut first = Agents::start(&place, 2);
    let session = first.beside(1);
    session.create_bytes("f", Create::New).unwrap().close().unwrap();
    // SAFETY: our own child.
    unsafe { libc::kill(first.process.id() as i32, libc::SIGTERM) };
    assert!(wait_until(100, || first.process.try_wait().unwrap().is_some()), "it waits for ever");

    let hosts = place.scratch().join("hosts");
    let said = place.scratch().join("said");
    let mut command = place.terrace("serve");
    command.args(["--launcher", "env HOST={host}", "--hosts"]).arg(&hosts);
    let stderr = std::fs::File::create(&said).unwrap();
    let mut second = command.stdout(Stdio::piped()).stderr(stderr).spawn().unwrap();
    let text = || std::fs::read_to_string(&said).unwrap();
    assert!(wait_until(60, || text().contains("agent 1 of an earlier launch")), "{}", text());
    drop(session);
    let mut line = String::new();
    BufReader::new(second.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.starts_with("export TERRACE_ROOT="), "{line:?}: {}", text());
    // SAFETY: our own child.
    unsafe { libc::kill(second.id() as i32, libc::SIGTERM) };
    assert!(wait_until(100, || second.try_wait().unwrap().is_some()));
    drop(first);
}

/// As a user of one of the nodes types them: with the root, and no word of agents.
#[test]
fn commands_reach_the_agents_that_serve_the_root_and_start_none_of_their_own() {
    let place = kept();
    let agents = Agents::start(&place, 2);
    let values = counting(&agents.beside(1), "c/a", 3);
    let command = |subcommand: &str, arguments: &[&str], runtime: Option<&Path>| {
        let mut command = place.terrace(subcommand);
        command.args(arguments).envs(runtime.map(|runtime| ("TERRACE_RUNTIME", runtime)));
        Outcome::within(100, &mut command)
    };
    let sum: i32 = values.iter().sum();
    let file = place.scratch().join("a.npy");
    let file = file.to_str().unwrap();
    let other_node = place.scratch().join("other");
    for (turn, runtime) in [None, Some(other_node.as_path())].into_iter().enumerate() {
        let told = command("stat", &["c/a"], runtime).ok();
        assert!(told.stdout.contains("array of int32 [40, 50]") && told.stdout.contains("not yet durable"), "{told:?}");
        let answer = command("sql", &["--format", "csv", "SELECT sum(a) AS s FROM c"], runtime).ok();
        assert_eq!(answer.stdout, format!("s\n{sum}\n"));
        command("get", &["c/a", file], runtime).ok();
        command("put", &[file, &format!("copy{turn}")], runtime).ok();
        assert_eq!(whole(&agents.beside(0), &format!("copy{turn}")), values);
        command("tag", &[&format!("copy{turn}"), "of=a"], runtime).ok();
        assert_eq!(agents.beside(1).get_tag(&format!("copy{turn}"), "of").unwrap(), Some(TagValue::parse("a")));
        command("rm", &[&format!("copy{turn}")], runtime).ok();
        assert!(!agents.beside(1).exists(&format!("copy{turn}")).unwrap());
    }
    let told = command("status", &[], Some(&other_node));
    assert!(
        told.code != 0 && told.stderr.contains("127.0.0.2:") && told.stderr.contains("no agent of this node"),
        "{told:?}"
    );
    // On a node of theirs, what concerns the node's agent too: programs that are run there use it.
    let told = command("status", &["--json"], None).ok();
    let status: serde_json::Value = serde_json::from_str(&told.stdout).unwrap();
    assert!(status.to_string().contains("agent_pid"), "{status}");
    let ran = place.sh("echo $TERRACE_INDEX; echo written > file").ok();
    assert_eq!(ran.stdout.trim(), agents.index(0).to_str().unwrap());
    // Who runs programs need not say what the agents were started with.
    let mut plain = Command::new(terrace_binary());
    plain.args(["run", "--quiet", "--root"]).arg(place.root());
    plain.arg("--state").arg(place.state().parent().unwrap()).arg("--runtime").arg(place.runtime().parent().unwrap());
    plain.args(["--", "sh", "-c", "echo $TERRACE_INDEX"]).current_dir("/");
    assert_eq!(Outcome::within(100, &mut plain).ok().stdout, ran.stdout);
    let again = command("serve", &["--quiet"], None);
    assert!(again.code != 0 && again.stderr.contains("number 0 of 2 is on this node"), "{again:?}");
    assert!(!place.runtime().exists() && !other_node.exists(), "an agent alone was started");
    assert_eq!(whole(&agents.beside(0), "c/a"), values);
    agents.end();
    assert_eq!(place.settled_tree().bytes("file"), b"written\n");
}

#[test]
fn a_handle_of_a_prefetched_bytes_object_reads_what_a_program_of_another_agent_writes() {
    let place = kept();
    let agents = Agents::start(&place, 2);
    let [near, far] = [0, 1].map(|number| agents.beside(number));
    for (number, maker) in [&near, &far].into_iter().enumerate() {
        let name = format!("file{number}");
        let made = maker.create_bytes(&name, Create::New).unwrap();
        made.write_at(0, b"count=1").unwrap();
        made.close().unwrap();
        maker.flush(&name).unwrap();
        near.prefetch(&name).unwrap();
        let handles = [near.open_bytes(&name, false).unwrap(), far.open_bytes(&name, false).unwrap()];
        assert_eq!(handles.each_ref().map(text_of), ["count=1", "count=1"]);
        for (count, writer) in [&far, &near, &far].into_iter().enumerate() {
            let written = writer.open_bytes(&name, true).unwrap();
            written.write_at(6, format!("{}", count + 2).as_bytes()).unwrap();
            written.close().unwrap();
            let wanted = format!("count={}", count + 2);
            for handle in &handles {
                assert!(wait_until(5, || text_of(handle) == wanted), "{name}: {} for {wanted}", text_of(handle));
            }
        }
    }
    drop((near, far));
    agents.end();
}

/// A run that was there before them has an agent of its own: it can't read what the others keep, and says so; it removes nothing of it.
#[test]
fn an_agent_alone_leaves_what_others_keep_to_them() {
    let place = kept();
    let run = place.start("touch $SCRATCH/begun; until [ -e $SCRATCH/end ]; do sleep 0.05; done");
    assert!(wait_until(60, || place.scratch().join("begun").exists()));
    let alone = place.runtime().join("index");
    let agents = Agents::start(&place, 2);
    let values = counting(&agents.beside(1), "c/a", 3);
    let session = Session::open(&alone).unwrap();
    let refused = session.open_array("c/a", false).err().unwrap();
    assert_eq!(refused.kind, Kind::NoAgent);
    assert!(refused.message.contains("of 2, at 127.0.0."), "{refused}");
    assert!(refused.hint.as_ref().is_some_and(|hint| hint.contains("TERRACE_ROOT")), "{refused:?}");
    let spec = ArraySpec::new(DataType::Int32, &[2]);
    assert_eq!(session.create_array("c/a", &spec, Create::Replace).err().unwrap().kind, Kind::NoAgent);
    assert_eq!(session.remove("c/a", false).err().unwrap().kind, Kind::NoAgent);
    assert_eq!(session.remove("c", true).err().unwrap().kind, Kind::NoAgent);
    agents.beside(0).create_bytes("c/b", Create::New).unwrap().append(b"bytes").unwrap();
    assert_eq!(session.remove("c/b", false).err().unwrap().kind, Kind::NoAgent);
    // By the root's name they are reached, whoever else is on this node.
    let told = Outcome::within(100, place.terrace("stat").arg("c/a")).ok();
    assert!(told.stdout.contains("not yet durable"), "{told:?}");
    assert_eq!(whole(&agents.beside(0), "c/a"), values);
    std::fs::write(place.scratch().join("end"), "").unwrap();
    Outcome::of_child(100, run).ok();
    drop(session);
    agents.end();
}

#[test]
fn agents_that_were_killed_are_named_to_who_asks_by_the_root() {
    let place = kept();
    let agents = Agents::start(&place, 2);
    counting(&agents.beside(1), "c/a", 3);
    agents.kill();
    let told = Outcome::within(100, place.terrace("stat").arg("c/a"));
    assert!(
        told.code != 0 && told.stderr.contains("does not answer") && told.stderr.contains("terrace serve"),
        "{told:?}"
    );
    // Who waits when they are started again has an answer.
    let waiting = place.terrace("stat").arg("c/a").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let again = Agents::start(&place, 2);
    let told = Outcome::of_child(100, waiting).ok();
    assert!(told.stdout.contains("array of int32"), "{told:?}");
    again.end();
}

/// The launch is killed while a program waits for the second of its agents. The first one is held by nobody but the waiting one: it ends, and
/// both come again.
#[test]
fn who_waits_for_an_agent_keeps_no_other_one_from_being_started_again() {
    let place = kept();
    let agents = Agents::start(&place, 2);
    let values = counting(&agents.beside(1), "c/a", 3);
    // As it is while the second one is being started again.
    let second = place.root().join(terrace_index::PRIVATE_DIR).join("agents/1");
    std::fs::remove_file(second).unwrap();
    let (index, (said, heard)) = (agents.index(0), std::sync::mpsc::channel());
    std::thread::scope(|scope| {
        scope.spawn(move || said.send(Session::open(&index).map(|session| whole(&session, "c/a"))));
        assert!(heard.recv_timeout(Duration::from_millis(500)).is_err(), "it waits");
        agents.kill_launch();
        let again = Agents::start(&place, 2);
        assert_eq!(heard.recv().unwrap().unwrap(), values);
        again.end();
    });
}
