//! Object stores that don't speak S3: Azure by Azurite (from npm, Microsoft's own), Google Cloud Storage by fake-gcs-server (a Go module).
//! What a test puts and looks at goes by another client than Terrace's: Azure's own for Node, and Google's JSON by Python.
//!
//! fake-gcs-server lists and gives objects as Google does, but takes neither Google's XML calls that write nor conditions. But for the
//! credentials these calls are S3's: s3s-fs, which asks for none, takes them here.

use crate::object_storage::{MIB, noise};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use terrace_tests::{Outcome, Proxy, Served, Wish, Workplace, checkout, fetched, skipped, wait_until};

/// The account and key that every Azurite has.
const ACCOUNT: &str = "devstoreaccount1";
const KEY: &str = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Azure,
    Google,
    /// Written to, as Google's.
    GoogleWrites,
}

/// One of the programs beside this file.
fn beside(name: &str) -> PathBuf {
    checkout().join("tests/tests/system/object_servers").join(name)
}

struct Store {
    kind: Kind,
    servers: Vec<Child>,
    address: String,
    scratch: PathBuf,
}

fn is_up(address: &str) -> bool {
    wait_until(60, || std::net::TcpStream::connect(address).is_ok())
}

impl Store {
    /// None where the server can't be had.
    fn start(kind: Kind, place: &Workplace) -> Option<Store> {
        let scratch = place.scratch();
        let directory = scratch.join("store");
        std::fs::create_dir_all(directory.join("bucket")).unwrap();
        let (address, behind) = (Served::free_address(), Served::free_address());
        let (host, port) = address.rsplit_once(':').unwrap();
        let mut command = match kind {
            Kind::Azure => {
                let program = checkout().join("build/azurite/node_modules/.bin/azurite-blob");
                let mut command = Command::new(program);
                // The clients are newer than it.
                command.args([
                    "--silent",
                    "--disableTelemetry",
                    "--skipApiVersionCheck",
                    "--blobHost",
                    host,
                    "--blobPort",
                    port,
                    "--location",
                ]);
                command.arg(&directory);
                command
            }
            Kind::Google => {
                let mut command = Command::new(checkout().join("build/tools/bin/fake-gcs-server"));
                command.args(["-scheme", "http", "-host", host, "-port", port, "-public-host", &address]);
                command.args(["-external-url", &format!("http://{address}"), "-log-level", "error"]);
                command.args(["-backend", "filesystem", "-filesystem-root"]).arg(&directory);
                command
            }
            Kind::GoogleWrites => {
                let mut command = Command::new("/usr/bin/python3");
                command.arg(beside("anonymous.py")).args([port, &behind]);
                command
            }
        };
        if !PathBuf::from(command.get_program()).exists() {
            skipped(&format!("{} is missing (tests/setup.sh)", command.get_program().display()));
            return None;
        }
        let mut servers = vec![command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()];
        if kind == Kind::GoogleWrites {
            let (host, port) = behind.rsplit_once(':').unwrap();
            let mut command = Command::new(fetched("tools/bin/s3s-fs"));
            command.args(["--host", host, "--port", port]).arg(&directory);
            servers.push(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
            assert!(is_up(&behind), "s3s-fs does not start");
        }
        let store = Store { kind, servers, address, scratch };
        assert!(is_up(&store.address), "the server does not start");
        if kind == Kind::Azure {
            store.by_another_client(&["make"]);
        }
        Some(store)
    }

    fn url(&self, key: &str) -> String {
        let scheme = if self.kind == Kind::Azure { "az" } else { "gs" };
        format!("{scheme}://bucket/{key}")
    }

    /// What the command must know of the store, reached by `address`.
    fn told<'a>(&self, command: &'a mut Command, address: &str) -> &'a mut Command {
        let is_ours =
            |name: &str| ["AZURE_", "GOOGLE_", "STORAGE_EMULATOR_"].iter().any(|prefix| name.starts_with(prefix));
        for (name, _) in std::env::vars_os().filter(|(name, _)| is_ours(&name.to_string_lossy())) {
            command.env_remove(name);
        }
        command.env("HOME", &self.scratch).env_remove("XDG_STATE_HOME");
        if self.kind == Kind::Azure {
            command.env("AZURE_STORAGE_ACCOUNT_NAME", ACCOUNT).env("AZURE_STORAGE_ACCOUNT_KEY", KEY);
            return command.env("AZURE_STORAGE_ENDPOINT", format!("http://{address}/{ACCOUNT}"));
        }
        command.env("STORAGE_EMULATOR_HOST", format!("http://{address}"))
    }

    fn run(&self, place: &Workplace, flags: &[&str], script: &str) -> Outcome {
        let mut command = place.run_command(flags, &["bash", "-euo", "pipefail", "-c", script]);
        Outcome::within(120, self.told(&mut command, &self.address))
    }

    /// `terrace stage-in` or `stage-out`, to be spawned.
    fn stage(&self, place: &Workplace, address: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(terrace_tests::terrace_binary());
        command.args(arguments).current_dir(place.root()).stdin(Stdio::null());
        self.told(&mut command, address).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn by_another_client(&self, arguments: &[&str]) -> Vec<u8> {
        let mut command = match self.kind {
            Kind::Azure => {
                let mut command = Command::new("node");
                command.arg(beside("azure.js")).env("NODE_PATH", checkout().join("build/azurite/node_modules"));
                command.args([&format!("http://{}/{ACCOUNT}", self.address), ACCOUNT, KEY]);
                command
            }
            Kind::Google => {
                let mut command = Command::new("python3");
                command.arg(beside("google.py")).arg(format!("http://{}", self.address));
                command
            }
            Kind::GoogleWrites => unreachable!("its objects are files"),
        };
        let output = command.args(arguments).stdin(Stdio::null()).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        output.stdout
    }

    fn object(&self, key: &str) -> PathBuf {
        self.scratch.join("store/bucket").join(key)
    }

    fn put(&self, key: &str, bytes: &[u8]) {
        let file = self.scratch.join("to-put");
        std::fs::write(&file, bytes).unwrap();
        self.by_another_client(&["put", key, file.to_str().unwrap()]);
    }

    fn has(&self, key: &str, bytes: &[u8]) -> bool {
        match self.kind {
            Kind::GoogleWrites => std::fs::read(self.object(key)).is_ok_and(|found| found == bytes),
            _ => self.by_another_client(&["get", key]) == bytes,
        }
    }

    fn names(&self) -> String {
        String::from_utf8(self.by_another_client(&["list"])).unwrap()
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        for server in &mut self.servers {
            let _ = server.kill();
            let _ = server.wait();
        }
    }
}

/// Objects with names and sizes of all kinds, and what a run finds of them.
fn objects_are_files(store: &Store, place: &Workplace) {
    let big = noise(20 * MIB);
    store.put("in/big", &big);
    store.put("in/deep/er/a name, with: signs+#%", b"small");
    store.put("in/empty", b"");
    store.put("inside/other", b"not below in/");
    let from = store.url("in");
    let found =
        store.run(place, &["--stage-wait", "--stage-in", &from], "find in -type f | sort; cat in/deep/er/*").ok();
    assert_eq!(found.stdout, "in/big\nin/deep/er/a name, with: signs+#%\nin/empty\nsmall");
    place.settled_tree();
    assert_eq!(std::fs::read(place.root().join("in/big")).unwrap(), big);

    // Nothing is brought again, but for what has changed there.
    let again = || Outcome::of(store.stage(place, &store.address, &["stage-in", &from]).output().unwrap()).ok().stderr;
    assert!(again().contains("0 files, 0 B"));
    store.put("in/deep/er/a name, with: signs+#%", b"other");
    assert!(again().contains("1 file, 5 B"));
}

/// What a run has written is sent, small and large, and a second time only what is new.
fn results_are_sent_once(store: &Store, place: &Workplace) {
    let (to, big) = (format!("results={}", store.url("out/1")), noise(20 * MIB));
    std::fs::write(place.scratch().join("big"), &big).unwrap();
    let script = "mkdir -p results/d; cp $SCRATCH/big results/d/; echo small >'results/a name, with: signs+#%'";
    store.run(place, &["--stage-out", &to], script).ok();
    assert!(store.has("out/1/d/big", &big) && store.has("out/1/a name, with: signs+#%", b"small\n"));
    let mut out = store.stage(place, &store.address, &["stage-out", "results", &store.url("out/1")]);
    let again = Outcome::of(out.output().unwrap()).ok().stderr;
    assert!(again.contains("0 files, 0 B"), "{again}");
    store.run(place, &["--stage-out", &to], "echo new >results/new; echo changed >results/d/big").ok();
    assert!(store.has("out/1/new", b"new\n") && store.has("out/1/d/big", b"changed\n"));
}

/// A second command sent all files again: lists have tags without quotes, and answers have them with quotes.
#[test]
fn objects_of_azure_are_files_and_results_are_sent_once() {
    let place = Wish::default().tier("ram", "64MiB").build();
    let Some(store) = Store::start(Kind::Azure, &place) else { return };
    objects_are_files(&store, &place);
    results_are_sent_once(&store, &place);
}

#[test]
fn objects_of_google_are_files() {
    let place = Wish::default().tier("ram", "64MiB").build();
    let Some(store) = Store::start(Kind::Google, &place) else { return };
    objects_are_files(&store, &place);
}

#[test]
fn results_are_sent_to_google_once() {
    let place = Wish::default().tier("ram", "64MiB").build();
    let Some(store) = Store::start(Kind::GoogleWrites, &place) else { return };
    results_are_sent_once(&store, &place);
}

fn bad_input_is_named(kind: Kind, no_such_place: &str) {
    let place = Workplace::new();
    let Some(store) = Store::start(kind, &place) else { return };
    let none = store.url("none");
    let refused = store.run(&place, &["--stage-in", &none], "touch $SCRATCH/ran").ends_with(2);
    assert!(refused.stderr.contains(&format!("{none}: no object has that name")), "{refused:?}");
    let elsewhere = store.url("in").replace("bucket", "nobucket");
    let refused = store.run(&place, &["--stage-in", &elsewhere], "touch $SCRATCH/ran");
    assert!(refused.code != 0 && refused.stderr.contains(no_such_place), "{refused:?}");
    assert!(!place.scratch().join("ran").exists());
}

#[test]
fn what_azure_refuses_is_named() {
    bad_input_is_named(Kind::Azure, "ContainerNotFound");
    let place = Workplace::new();
    let Some(store) = Store::start(Kind::Azure, &place) else { return };
    store.put("in/a", b"a");
    let mut command = store.stage(&place, &store.address, &["stage-in", "az://bucket/in"]);
    let refused = Outcome::of(command.env("AZURE_STORAGE_ACCOUNT_KEY", "d3Jvbmc=").output().unwrap());
    assert!(refused.code != 0 && refused.stderr.contains("AZURE_STORAGE_ACCOUNT_KEY"), "{refused:?}");
    let mut command = store.stage(&place, &store.address, &["stage-in", "az://bucket/in"]);
    let refused = Outcome::of(command.env_remove("AZURE_STORAGE_ACCOUNT_NAME").output().unwrap()).ends_with(2);
    assert!(refused.stderr.contains("AZURE_STORAGE_ACCOUNT_NAME"), "{refused:?}");
}

#[test]
fn what_google_refuses_is_named() {
    bad_input_is_named(Kind::Google, "nobucket");
    let place = Workplace::new();
    let Some(store) = Store::start(Kind::Google, &place) else { return };
    let mut command = store.stage(&place, &store.address, &["stage-in", "gs://bucket/in"]);
    let refused = Outcome::of(command.env("GOOGLE_SERVICE_ACCOUNT", "/none").output().unwrap()).ends_with(2);
    assert!(
        refused.stderr.contains("/none") && refused.stderr.contains("GOOGLE_APPLICATION_CREDENTIALS"),
        "{refused:?}"
    );
}

/// Kills a command when some parts of a file of 96 MiB have arrived. Gives the file, and how many bytes another one sends then.
fn upload_after_a_kill(store: &Store, place: &Workplace, meanwhile: impl FnOnce()) -> (Vec<u8>, u64) {
    let big = noise(96 * MIB);
    std::fs::create_dir(place.root().join("results")).unwrap();
    std::fs::write(place.root().join("results/big"), &big).unwrap();
    let proxy = Proxy::to(&store.address);
    proxy.allow(82 * MIB, u64::MAX);
    let to = store.url("out");
    let mut killed = store.stage(place, &proxy.address, &["stage-out", "results", &to]).spawn().unwrap();
    let journal = || {
        let found = std::fs::read_dir(place.scratch().join(".local/state/terrace/stage")).ok()?.next()?.ok()?;
        std::fs::read_to_string(found.path()).ok()
    };
    let has_parts = || journal().is_some_and(|text| text.matches("\"part\":{").count() >= 2);
    assert!(wait_until(60, has_parts), "{:?}: {:?}", killed.try_wait(), journal());
    killed.kill().unwrap();
    killed.wait().unwrap();
    proxy.sever();
    meanwhile();
    let before = proxy.passed();
    proxy.allow(u64::MAX, u64::MAX);
    Outcome::of(store.stage(place, &proxy.address, &["stage-out", "results", &to]).output().unwrap()).ok();
    (big, proxy.passed() - before)
}

#[test]
fn an_upload_to_azure_goes_on_after_a_kill() {
    let place = Workplace::new();
    let Some(store) = Store::start(Kind::Azure, &place) else { return };
    let (big, sent) = upload_after_a_kill(&store, &place, || assert!(!store.names().contains("out/big")));
    assert!(store.has("out/big", &big));
    assert!(sent < 80 * MIB, "{sent} bytes were sent again");
}

#[test]
fn an_upload_to_google_goes_on_after_a_kill() {
    let place = Workplace::new();
    let Some(store) = Store::start(Kind::GoogleWrites, &place) else { return };
    let (big, sent) = upload_after_a_kill(&store, &place, || assert!(!store.object("out/big").exists()));
    assert!(store.has("out/big", &big));
    assert!(sent < 80 * MIB, "{sent} bytes were sent again");
}

/// Azure drops a week-old part, and all parts of a name that another object got meanwhile. Azurite drops them with their container.
#[test]
fn an_upload_to_azure_whose_parts_are_gone_begins_anew() {
    let place = Workplace::new();
    let Some(store) = Store::start(Kind::Azure, &place) else { return };
    let (big, _) = upload_after_a_kill(&store, &place, || drop(store.by_another_client(&["anew"])));
    assert!(store.has("out/big", &big));
}

#[test]
fn a_file_of_azure_that_was_brought_in_part_is_gone_on_with_unless_the_object_is_another() {
    let place = Workplace::new();
    let Some(store) = Store::start(Kind::Azure, &place) else { return };
    let url = store.url("in");
    let bring_a_part = |of: &[u8]| {
        store.put("in/big", of);
        let proxy = Proxy::to(&store.address);
        proxy.allow(u64::MAX, 60 * MIB);
        let mut killed = store.stage(&place, &proxy.address, &["stage-in", &url]).spawn().unwrap();
        let part = || {
            let entries = std::fs::read_dir(place.root().join("in")).ok()?.flatten();
            let parts = entries.filter(|entry| entry.file_name().to_string_lossy().ends_with(".terrace-part"));
            parts.map(|entry| entry.metadata().map_or(0, |metadata| metadata.len())).max()
        };
        assert!(wait_until(60, || part() >= Some(16 * MIB)), "{:?}", killed.try_wait());
        killed.kill().unwrap();
        killed.wait().unwrap();
        assert!(!place.root().join("in/big").exists(), "half of a file has the name");
    };
    let whole = || {
        let proxy = Proxy::to(&store.address);
        proxy.allow(u64::MAX, u64::MAX);
        Outcome::of(store.stage(&place, &proxy.address, &["stage-in", &url]).output().unwrap()).ok();
        proxy.passed_back()
    };
    let big = noise(80 * MIB);
    bring_a_part(&big);
    assert!(whole() < 68 * MIB, "what was there was brought again");
    assert!(std::fs::read(place.root().join("in/big")).unwrap() == big);
    std::fs::remove_dir_all(place.root().join("in")).unwrap();
    bring_a_part(&big);
    let other = noise(80 * MIB + 1);
    store.put("in/big", &other);
    whole();
    assert!(std::fs::read(place.root().join("in/big")).unwrap() == other, "of two objects");
}
