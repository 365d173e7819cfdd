//! Object stores: what `terrace run --stage-in` and `--stage-out`, and the commands of these names, do with a real S3 server (s3s-fs, from
//! crates.io), which keeps objects as files, so that tests see them. Networks that go away are a proxy before it.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use terrace_tests::{Outcome, Proxy, Served, Wish, Workplace, fetched, python, skipped, wait_until};

pub const MIB: u64 = 1 << 20;
const BUCKET: &str = "bucket";

/// A server with one bucket, below a workplace's scratch directory.
pub struct Store {
    server: Child,
    directory: PathBuf,
    pub address: String,
}

impl Store {
    pub fn start(place: &Workplace) -> Store {
        let directory = place.scratch().join("s3");
        std::fs::create_dir_all(directory.join(BUCKET)).unwrap();
        let address = Served::free_address();
        Store { server: serve(&directory, &address), directory, address }
    }

    fn again(&mut self) {
        self.server = serve(&self.directory, &self.address);
    }

    fn object(&self, key: &str) -> PathBuf {
        self.directory.join(BUCKET).join(key)
    }

    /// As another client has put it.
    pub fn put(&self, key: &str, bytes: &[u8]) {
        std::fs::create_dir_all(self.object(key).parent().unwrap()).unwrap();
        std::fs::write(self.object(key), bytes).unwrap();
    }

    fn has(&self, key: &str, bytes: &[u8]) -> bool {
        std::fs::read(self.object(key)).is_ok_and(|found| found == bytes)
    }

    fn stop(&mut self) {
        self.server.kill().unwrap();
        self.server.wait().unwrap();
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

fn serve(directory: &Path, address: &str) -> Child {
    let (host, port) = address.rsplit_once(':').unwrap();
    let mut command = Command::new(fetched("tools/bin/s3s-fs"));
    command.args(["--host", host, "--port", port, "--access-key", "test", "--secret-key", "secret"]).arg(directory);
    let server = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    assert!(wait_until(60, || std::net::TcpStream::connect(address).is_ok()), "the S3 server does not start");
    server
}

/// With the server's address and keys.
pub fn of<'a>(command: &'a mut Command, address: &str) -> &'a mut Command {
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("AWS_")) {
        command.env_remove(name);
    }
    command.env("AWS_ACCESS_KEY_ID", "test").env("AWS_SECRET_ACCESS_KEY", "secret");
    command.env("AWS_ENDPOINT_URL", format!("http://{address}"))
}

pub fn run(place: &Workplace, address: &str, flags: &[&str], script: &str) -> Outcome {
    let mut command = place.run_command(flags, &["bash", "-euo", "pipefail", "-c", script]);
    Outcome::within(120, of(&mut command, address))
}

/// `terrace stage-in` or `stage-out`, to be spawned.
fn stage(place: &Workplace, address: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(terrace_tests::terrace_binary());
    command.args(arguments).current_dir(place.root()).env("HOME", place.scratch()).stdin(Stdio::null());
    of(&mut command, address).env_remove("XDG_STATE_HOME").stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

pub fn noise(bytes: u64) -> Vec<u8> {
    let mut random = terrace_tests::Random::new(bytes);
    random.bytes(bytes as usize)
}

#[test]
fn objects_are_files_in_tiers_before_the_program_starts_and_what_it_wrote_is_sent_when_it_is_durable() {
    let place = Wish::default().tier("ram", "64MiB").build();
    let store = Store::start(&place);
    let big = noise(20 * MIB);
    store.put("in/big", &big);
    store.put("in/deep/er/a name, with: signs+#%", b"small");
    store.put("in/empty", b"");
    store.put("inside/other", b"not below in/");
    let report = place.scratch().join("report.json");
    let flags = [
        "--stage-in",
        "s3://bucket/in",
        "--stage-out",
        "results=s3://bucket/out/1",
        "--report",
        report.to_str().unwrap(),
    ];
    let script = "find in -type f | sort
        mkdir -p results/d; cp in/big results/d/; cat in/deep/er/* >results/small; ln -sf small results/link";
    let first = run(&place, &store.address, &flags, script).ok();
    let report: serde_json::Value = serde_json::from_slice(&std::fs::read(report.clone()).unwrap()).unwrap();
    assert_eq!(report["counters"]["creates_tier"], 5, "{report:#}");
    assert_eq!(first.stdout, "in/big\nin/deep/er/a name, with: signs+#%\nin/empty\n");
    assert!(store.has("out/1/d/big", &big) && store.has("out/1/small", b"small") && store.has("out/1/link", b"small"));
    assert!(!store.object("out/1/in").exists());
    // Nothing was removed on either side.
    place.settled_tree();
    assert_eq!(std::fs::read(place.root().join("results/d/big")).unwrap(), big);
    assert!(store.has("in/big", &big));

    // A second run brings nothing, and sends what is new.
    let before = std::fs::metadata(store.object("out/1/d/big")).unwrap().modified().unwrap();
    let again = stage(&place, &store.address, &["stage-in", "s3://bucket/in"]).output().unwrap();
    assert!(Outcome::of(again).ok().stderr.contains("0 files, 0 B"));
    run(&place, &store.address, &flags, "echo new >results/new; cmp in/big results/d/big").ok();
    assert!(store.has("out/1/new", b"new\n"));
    assert_eq!(std::fs::metadata(store.object("out/1/d/big")).unwrap().modified().unwrap(), before);
    // An object that another one has changed is brought, a file that has changed is sent.
    store.put("in/deep/er/a name, with: signs+#%", b"another");
    run(&place, &store.address, &flags, "cat in/deep/er/* >results/small").ok();
    assert!(store.has("out/1/small", b"another"));
}

#[test]
fn settings_say_what_every_run_brings_and_sends_and_a_flag_replaces_its_list() {
    let top = "stage.in = [\"s3://bucket/in\"]\nstage.out = [\"results=s3://bucket/out\"]";
    let place = Wish::default().top(top).build();
    let store = Store::start(&place);
    store.put("in/a", b"input");
    store.put("other/b", b"another");
    run(&place, &store.address, &[], "mkdir results; cp in/a results/").ok();
    assert!(store.has("out/a", b"input"));
    run(&place, &store.address, &["--stage-in", "s3://bucket/other"], "cp other/b results/").ok();
    assert!(store.has("out/b", b"another"));
    std::fs::write(place.config(), "stage.in = [\"../in=s3://bucket/in\"]").unwrap();
    let refused = run(&place, &store.address, &[], "touch started").ends_with(2);
    assert!(refused.stderr.contains("terrace.toml: stage.in ../in=s3://bucket/in: "), "{refused:?}");
    assert!(!place.root().join("started").exists());
}

#[test]
fn a_program_is_not_started_without_its_input_and_nothing_is_sent_then() {
    let place = Workplace::new();
    let store = Store::start(&place);
    std::fs::create_dir(place.root().join("results")).unwrap();
    std::fs::write(place.root().join("results/old"), "old").unwrap();
    let flags = ["--stage-in", "s3://bucket/none", "--stage-out", "results=s3://bucket/out"];
    let outcome = run(&place, &store.address, &flags, "touch $SCRATCH/ran").ends_with(2);
    for word in ["s3://bucket/none: no object has that name", "the program was not started"] {
        assert!(outcome.stderr.contains(word), "{}", outcome.stderr);
    }
    assert!(!place.scratch().join("ran").exists() && !store.object("out").exists());
    place.settled_tree();

    let words = |arguments: &[&str]| {
        let outcome = Outcome::of(stage(&place, &store.address, arguments).output().unwrap());
        assert_ne!(outcome.code, 0, "{arguments:?}");
        outcome.stderr
    };
    assert!(words(&["stage-in", "bucket/in"]).contains("hint: give s3://BUCKET/PREFIX"));
    assert!(words(&["stage-in", "s3://nobucket/in", "d"]).contains("NoSuchBucket"));
    assert!(words(&["stage-out", "none", "s3://bucket/x"]).contains("can't read none"));
    assert!(words(&["stage-out", "results/old", "s3://bucket/x"]).contains("is no directory"));
    store.put("both", b"a file");
    store.put("dir/a", b"x");
    let refused = run(&place, &store.address, &["--stage-out", "../x=s3://bucket/out"], "touch ran").ends_with(2);
    assert!(refused.stderr.contains("is no directory below the root"), "{}", refused.stderr);
    let wrong = Outcome::of(
        stage(&place, &store.address, &["stage-in", "s3://bucket/dir"])
            .env("AWS_SECRET_ACCESS_KEY", "x")
            .output()
            .unwrap(),
    );
    assert!(wrong.code != 0 && wrong.stderr.contains("SignatureDoesNotMatch"), "{}", wrong.stderr);
}

#[test]
fn what_is_durable_is_sent_while_the_program_runs() {
    let place = Workplace::new();
    let store = Store::start(&place);
    let script = "mkdir results; echo one >results/a; read -r _; echo more >>results/a; echo two >results/b";
    let mut command = place.run_command(&["--stage-out", "results=s3://bucket/out"], &["bash", "-euc", script]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = of(&mut command, &store.address).spawn().unwrap();
    assert!(wait_until(60, || store.has("out/a", b"one\n")), "{:?}", child.try_wait());
    assert_eq!(child.try_wait().unwrap(), None);
    drop(child.stdin.take());
    // `read` ends badly at the end of its input, and all the same what was written is sent.
    Outcome::of_child(60, child).ends_with(1);
    assert!(store.has("out/a", b"one\n") && !store.object("out/b").exists());
    run(
        &place,
        &store.address,
        &["--stage-out", "results=s3://bucket/out"],
        "echo more >>results/a; echo two >results/b",
    )
    .ok();
    assert!(store.has("out/a", b"one\nmore\n") && store.has("out/b", b"two\n"));
}

#[test]
fn what_could_not_be_sent_is_durable_and_a_later_command_sends_it() {
    let place = Workplace::new();
    let mut store = Store::start(&place);
    store.stop();
    let script = "mkdir results; echo one >results/a";
    let outcome = run(&place, &store.address, &["--stage-out", "results=s3://bucket/out"], script).ends_with(74);
    let results = place.root().join("results");
    assert!(outcome.stderr.contains("not everything was sent"), "{}", outcome.stderr);
    let command = format!("`terrace stage-out {} s3://bucket/out`", results.display());
    assert!(outcome.stderr.contains(&command), "{}", outcome.stderr);
    assert!(!place.settled_tree().has(".terrace"));
    assert_eq!(std::fs::read(results.join("a")).unwrap(), b"one\n");
    store.again();
    Outcome::of(
        stage(&place, &store.address, &["stage-out", results.to_str().unwrap(), "s3://bucket/out"]).output().unwrap(),
    )
    .ok();
    assert!(store.has("out/a", b"one\n"));
    // A name that leads nowhere is not left out in silence: on this node or another one, a file lies in a tier.
    std::os::unix::fs::symlink("nowhere", results.join("elsewhere")).unwrap();
    let outcome =
        Outcome::of(stage(&place, &store.address, &["stage-out", "results", "s3://bucket/out"]).output().unwrap());
    assert!(outcome.code != 0 && outcome.stderr.contains("results/elsewhere"), "{}", outcome.stderr);
}

#[test]
fn an_upload_goes_on_after_a_kill_with_the_parts_that_the_store_has() {
    let place = Workplace::new();
    let store = Store::start(&place);
    let big = noise(160 * MIB);
    std::fs::create_dir(place.root().join("results")).unwrap();
    std::fs::write(place.root().join("results/big"), &big).unwrap();
    let proxy = Proxy::to(&store.address);
    // Four parts of 16 MiB are on their way at once: of so much three at least have arrived.
    proxy.allow(114 * MIB, u64::MAX);
    let mut killed = stage(&place, &proxy.address, &["stage-out", "results", "s3://bucket/out"]).spawn().unwrap();
    let journal = || {
        let found = std::fs::read_dir(place.scratch().join(".local/state/terrace/stage")).ok()?.next()?.ok()?;
        std::fs::read_to_string(found.path()).ok()
    };
    let has_parts = || journal().is_some_and(|text| text.matches("\"part\":{").count() >= 3);
    assert!(wait_until(60, has_parts), "{:?}: {:?}", killed.try_wait(), journal());
    // Another one at the same time waits, and goes on with what the first one has done.
    let second = stage(&place, &proxy.address, &["stage-out", "results", "s3://bucket/out"]).spawn().unwrap();
    let before = proxy.passed();
    killed.kill().unwrap();
    killed.wait().unwrap();
    proxy.sever();
    assert!(!store.object("out/big").exists(), "half of a file has the name");
    proxy.allow(u64::MAX, u64::MAX);
    Outcome::of_child(120, second).ok();
    assert!(store.has("out/big", &big));
    let sent = proxy.passed() - before;
    assert!(sent < 150 * MIB, "{sent} bytes were sent again");
}

#[test]
fn a_file_that_was_brought_in_part_is_gone_on_with_unless_the_object_is_another() {
    let place = Workplace::new();
    let store = Store::start(&place);
    let big = noise(128 * MIB);
    store.put("in/big", &big);
    let proxy = Proxy::to(&store.address);
    let bring = |before_kill: u64| {
        proxy.allow(u64::MAX, before_kill);
        let mut killed = stage(&place, &proxy.address, &["stage-in", "s3://bucket/in"]).spawn().unwrap();
        let part = || {
            let entries = std::fs::read_dir(place.root().join("in")).ok()?;
            let sizes =
                entries.flatten().filter(|entry| entry.file_name().to_string_lossy().ends_with(".terrace-part"));
            sizes.map(|entry| entry.metadata().map_or(0, |metadata| metadata.len())).max()
        };
        assert!(wait_until(60, || part() >= Some(16 * MIB)), "{:?}", killed.try_wait());
        killed.kill().unwrap();
        killed.wait().unwrap();
        proxy.sever();
        assert!(!place.root().join("in/big").exists(), "half of a file has the name");
        proxy.allow(u64::MAX, u64::MAX);
        proxy.passed_back()
    };
    let before = bring(90 * MIB);
    let whole = || Outcome::of(stage(&place, &proxy.address, &["stage-in", "s3://bucket/in"]).output().unwrap()).ok();
    whole();
    let brought = proxy.passed_back() - before;
    assert!(brought < 120 * MIB, "{brought} bytes were brought again");
    assert!(std::fs::read(place.root().join("in/big")).unwrap() == big);

    std::fs::remove_dir_all(place.root().join("in")).unwrap();
    bring(90 * MIB);
    let other = noise(128 * MIB + 1);
    store.put("in/big", &other);
    whole();
    assert!(std::fs::read(place.root().join("in/big")).unwrap() == other, "of two objects");
}

#[test]
fn connections_that_end_in_the_middle_lose_nothing() {
    let place = Wish::default().tier("ram", "256MiB").build();
    let store = Store::start(&place);
    let big = noise(48 * MIB);
    store.put("in/big", &big);
    let proxy = Proxy::to(&store.address);
    proxy.allow(0, 0);
    let flags = ["--stage-in", "s3://bucket/in", "--stage-out", "results=s3://bucket/out"];
    let mut command = place.run_command(&flags, &["bash", "-euc", "mkdir results; cp in/big results/"]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = of(&mut command, &proxy.address).spawn().unwrap();
    for _ in 0..3 {
        let before = proxy.passed_back();
        proxy.allow(MIB, 8 * MIB);
        assert!(wait_until(60, || proxy.passed_back() >= before + 7 * MIB), "{:?}", child.try_wait());
        proxy.sever();
    }
    proxy.allow(0, u64::MAX);
    for _ in 0..3 {
        let before = proxy.passed();
        proxy.allow(8 * MIB, u64::MAX);
        assert!(wait_until(60, || proxy.passed() >= before + 7 * MIB), "{:?}", child.try_wait());
        proxy.sever();
    }
    proxy.allow(u64::MAX, u64::MAX);
    Outcome::of_child(120, child).ok();
    assert!(store.has("out/big", &big));
}

#[test]
fn arrays_are_sent_as_the_zarr_stores_that_they_are() {
    let Some(python) = python() else { return skipped("no Python package (make python)") };
    let place = Workplace::new();
    let store = Store::start(&place);
    let script = "import numpy, terrace
session = terrace.connect()
array = session.create_array('results/v', shape=(64, 64), dtype='f8', chunks=(32, 32))
array[...] = numpy.arange(4096.0).reshape(64, 64)";
    std::fs::write(place.scratch().join("make.py"), script).unwrap();
    let script = format!("{} $SCRATCH/make.py", python.display());
    run(&place, &store.address, &["--stage-out", "results=s3://bucket/out"], &script).ok();
    let read = "import sys, numpy, zarr
array = zarr.open_array(sys.argv[1], mode='r')
assert (array[...] == numpy.arange(4096.0).reshape(64, 64)).all()";
    Outcome::of(Command::new(python).args(["-c", read]).arg(store.object("out/v")).output().unwrap()).ok();
}

#[test]
fn a_single_object_and_a_file_of_a_plain_web_server_are_brought_too() {
    let place = Workplace::new();
    let store = Store::start(&place);
    store.put("in/one.bin", b"one");
    Outcome::of(stage(&place, &store.address, &["stage-in", "s3://bucket/in/one.bin", "d"]).output().unwrap()).ok();
    assert_eq!(std::fs::read(place.root().join("d/one.bin")).unwrap(), b"one");

    let port = Served::free_address();
    let (host, number) = port.rsplit_once(':').unwrap();
    let mut server = Command::new("python3");
    server.args(["-m", "http.server", "--bind", host, number]).current_dir(store.object("in"));
    let mut server = server.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let is_up = wait_until(60, || std::net::TcpStream::connect(&port).is_ok());
    let url = format!("http://{port}/one.bin");
    let outcome = Outcome::of(stage(&place, &store.address, &["stage-in", &url, "web"]).output().unwrap());
    server.kill().unwrap();
    server.wait().unwrap();
    assert!(is_up);
    outcome.ok();
    assert_eq!(std::fs::read(place.root().join("web/one.bin")).unwrap(), b"one");
}
