//! The mounted file system against its source: the same contents, only slower.

use rustix::process::{Pid, Signal};
use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant, UNIX_EPOCH};
use tempfile::TempDir;

/// Says so past the capture of a passing test's output.
fn skipped(reason: &str) {
    let _ = writeln!(std::io::stderr(), "SKIPPED: slowfs: {reason}");
}

struct Mounted {
    directory: TempDir,
}

impl Mounted {
    /// `None`, and a line that says so, where there is no FUSE.
    fn new(flags: &[&str]) -> Option<Mounted> {
        if OpenOptions::new().read(true).write(true).open("/dev/fuse").is_err() {
            skipped("/dev/fuse cannot be opened, so the slow file system is not tested");
            return None;
        }
        let directory = tempfile::tempdir_in("/var/tmp").unwrap();
        for name in ["source", "mount"] {
            fs::create_dir(directory.path().join(name)).unwrap();
        }
        let mounted = Mounted { directory };
        let status = mounted.command(flags).status().unwrap();
        assert!(status.success(), "the mount failed");
        Some(mounted)
    }

    fn command(&self, flags: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_terrace-slowfs"));
        command.arg("--source").arg(self.source("")).arg("--mount").arg(self.at("")).args(flags);
        command
    }

    fn at(&self, name: &str) -> PathBuf {
        self.directory.path().join("mount").join(name)
    }

    fn source(&self, name: &str) -> PathBuf {
        self.directory.path().join("source").join(name)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let unmount = |program: &str, flags: &[&str]| {
            Command::new(program).args(flags).arg(self.at("")).status().is_ok_and(|status| status.success())
        };
        if !unmount("umount", &[]) {
            unmount("fusermount3", &["-u", "-z"]);
        }
    }
}

fn names(directory: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(directory).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn what_is_written_through_the_mount_is_in_the_source() {
    for flags in [&[][..], &["--write-back"]] {
        let Some(slow) = Mounted::new(flags) else { return };
        let bytes: Vec<u8> = (0..3_000_001u32).map(|i| (i * 2_654_435_761) as u8).collect();
        fs::write(slow.at("file"), &bytes).unwrap();
        assert!(fs::read(slow.at("file")).unwrap() == bytes);
        let mut appended = OpenOptions::new().append(true).open(slow.at("file")).unwrap();
        appended.write_all(b"more").unwrap();
        appended.sync_all().unwrap();
        let there = fs::read(slow.source("file")).unwrap();
        assert!(there[..bytes.len()] == bytes && &there[bytes.len()..] == b"more");

        // A partial page behind the end of a file that is open for writing only.
        let hole = OpenOptions::new().write(true).open(slow.at("file")).unwrap();
        hole.set_len(10).unwrap();
        hole.write_at(b"end", 5000).unwrap();
        drop(hole);
        let mut expected = bytes[..10].to_vec();
        expected.resize(5000, 0);
        expected.extend(b"end");
        assert!(fs::read(slow.at("file")).unwrap() == expected);
    }
}

#[test]
fn names_behave_as_in_the_source() {
    let Some(slow) = Mounted::new(&[]) else { return };
    fs::create_dir_all(slow.at("a/b")).unwrap();
    fs::write(slow.at("a/one"), "1").unwrap();
    fs::rename(slow.at("a/one"), slow.at("a/b/two")).unwrap();
    fs::hard_link(slow.at("a/b/two"), slow.at("three")).unwrap();
    symlink("a/b/two", slow.at("link")).unwrap();
    symlink("/nowhere/at all", slow.at("dangling")).unwrap();
    assert_eq!(names(&slow.at("")), ["a", "dangling", "link", "three"]);
    assert_eq!(names(&slow.at("a/b")), ["two"]);
    assert_eq!(fs::read_link(slow.at("dangling")).unwrap(), Path::new("/nowhere/at all"));
    assert_eq!(fs::read_to_string(slow.at("link")).unwrap(), "1");
    let (two, three) = (fs::metadata(slow.at("a/b/two")).unwrap(), fs::metadata(slow.at("three")).unwrap());
    assert_eq!((two.ino(), two.nlink()), (three.ino(), 2));
    assert_eq!(two.ino(), fs::metadata(slow.source("three")).unwrap().ino());
    assert!(fs::remove_dir(slow.at("a")).is_err());
    assert_eq!(
        fs::remove_dir(slow.at("a")).unwrap_err().raw_os_error(),
        fs::remove_dir(slow.source("a")).unwrap_err().raw_os_error()
    );
    fs::remove_dir_all(slow.at("a")).unwrap();
    assert_eq!(names(&slow.source("")), ["dangling", "link", "three"]);
}

#[test]
fn a_link_out_of_the_mount_is_followed() {
    let Some(slow) = Mounted::new(&[]) else { return };
    let outside = slow.directory.path().join("outside");
    fs::write(&outside, "bytes in a tier").unwrap();
    symlink(&outside, slow.at("link")).unwrap();
    assert_eq!(fs::read_to_string(slow.at("link")).unwrap(), "bytes in a tier");
    fs::write(slow.at("file"), "bytes in the root").unwrap();
    fs::rename(slow.at("file"), slow.at("link")).unwrap();
    assert_eq!(fs::read_to_string(slow.at("link")).unwrap(), "bytes in the root");
    assert!(fs::symlink_metadata(slow.at("link")).unwrap().is_file());
}

#[test]
fn a_link_that_took_another_ones_place_is_followed_at_once() {
    let Some(slow) = Mounted::new(&[]) else { return };
    for target in ["one", "two"] {
        fs::write(slow.directory.path().join(target), target).unwrap();
    }
    for target in ["one", "two", "one"] {
        symlink(slow.directory.path().join(target), slow.at("new")).unwrap();
        fs::rename(slow.at("new"), slow.at("link")).unwrap();
        assert_eq!(fs::read_to_string(slow.at("link")).unwrap(), target);
        assert!(fs::read_link(slow.at("link")).unwrap().ends_with(target));
    }
}

#[test]
fn renameat2_flags_are_kept() {
    let Some(slow) = Mounted::new(&[]) else { return };
    fs::write(slow.at("x"), "x").unwrap();
    fs::write(slow.at("y"), "y").unwrap();
    let (x, y) = (slow.at("x"), slow.at("y"));
    let rename = |flags| rustix::fs::renameat_with(rustix::fs::CWD, &x, rustix::fs::CWD, &y, flags);
    assert_eq!(rename(rustix::fs::RenameFlags::NOREPLACE), Err(rustix::io::Errno::EXIST));
    rename(rustix::fs::RenameFlags::EXCHANGE).unwrap();
    assert_eq!(fs::read_to_string(&x).unwrap(), "y");
}

#[test]
fn attributes_times_and_extended_attributes_are_kept() {
    let Some(slow) = Mounted::new(&[]) else { return };
    let file = OpenOptions::new().create(true).truncate(true).write(true).mode(0o640).open(slow.at("f")).unwrap();
    assert_eq!(fs::metadata(slow.source("f")).unwrap().mode() & 0o7777, 0o640);
    let past = UNIX_EPOCH + Duration::new(1_000_000_000, 123_456_789);
    file.set_times(fs::FileTimes::new().set_modified(past).set_accessed(past)).unwrap();
    drop(file);
    fs::set_permissions(slow.at("f"), fs::Permissions::from_mode(0o400)).unwrap();
    let there = fs::metadata(slow.source("f")).unwrap();
    assert_eq!((there.mode() & 0o7777, there.modified().unwrap()), (0o400, past));
    if xattr::set(slow.source("f"), "user.probe", b"1").is_ok() {
        xattr::set(slow.at("f"), "user.colour", b"blue").unwrap();
        assert_eq!(xattr::get(slow.source("f"), "user.colour").unwrap().as_deref(), Some(&b"blue"[..]));
        assert_eq!(xattr::get(slow.at("f"), "user.probe").unwrap().as_deref(), Some(&b"1"[..]));
        let listed: Vec<_> = xattr::list(slow.at("f")).unwrap().collect();
        assert!(listed.iter().any(|name| name == "user.colour"), "{listed:?}");
        xattr::remove(slow.at("f"), "user.colour").unwrap();
        assert_eq!(xattr::get(slow.source("f"), "user.colour").unwrap(), None);
    }
}

#[test]
fn special_files_holes_and_space_are_there() {
    let Some(slow) = Mounted::new(&[]) else { return };
    let pipe = CString::new(slow.at("pipe").to_str().unwrap()).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, &*pipe, rustix::fs::FileType::Fifo, rustix::fs::Mode::from_raw_mode(0o600), 0)
        .unwrap();
    assert_eq!(fs::metadata(slow.source("pipe")).unwrap().mode() & libc::S_IFMT, libc::S_IFIFO);
    let file = File::create(slow.at("sparse")).unwrap();
    rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, 8192).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 8192);
    file.set_len(1 << 30).unwrap();
    file.write_at(b"x", (1 << 30) - 1).unwrap();
    let data = rustix::fs::seek(&file, rustix::fs::SeekFrom::Data(1 << 20)).unwrap();
    assert!(data > 1 << 20, "a hole is not data");
    let (here, there) =
        (rustix::fs::statvfs(slow.at("")).unwrap().f_blocks, rustix::fs::statvfs(slow.source("")).unwrap().f_blocks);
    assert_eq!(here, there);
}

#[test]
fn a_file_lives_on_after_its_last_name_is_gone() {
    let Some(slow) = Mounted::new(&[]) else { return };
    let mut file = OpenOptions::new().create_new(true).read(true).write(true).open(slow.at("scratch")).unwrap();
    fs::remove_file(slow.at("scratch")).unwrap();
    file.write_all(b"still here").unwrap();
    file.seek(SeekFrom::Start(0)).unwrap();
    let mut text = String::new();
    file.read_to_string(&mut text).unwrap();
    assert_eq!((text.as_str(), file.metadata().unwrap().nlink()), ("still here", 0));
    file.set_len(3).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 3);
}

#[test]
fn a_directory_of_many_names_is_listed_once_each() {
    let Some(slow) = Mounted::new(&[]) else { return };
    for i in 0..3000 {
        File::create(slow.source(&format!("a rather long name for an empty file {i:05}"))).unwrap();
    }
    let listed = names(&slow.at(""));
    assert_eq!(listed, names(&slow.source("")));
    let sizes: u64 = fs::read_dir(slow.at("")).unwrap().map(|entry| entry.unwrap().metadata().unwrap().len()).sum();
    assert_eq!(sizes, 0);
    fs::read_dir(slow.at("")).unwrap().for_each(|entry| fs::remove_file(entry.unwrap().path()).unwrap());
    assert_eq!(names(&slow.source("")), [""; 0]);
}

#[test]
fn writers_share_the_write_bandwidth() {
    for flags in [&["--write-mib", "20"][..], &["--write-mib", "20", "--write-back"]] {
        let Some(slow) = Mounted::new(flags) else { return };
        let start = Instant::now();
        std::thread::scope(|scope| {
            for name in ["a", "b"] {
                let path = slow.at(name);
                scope.spawn(move || {
                    let mut file = File::create(path).unwrap();
                    file.write_all(&vec![7; 5 << 20]).unwrap();
                    file.sync_all().unwrap();
                });
            }
        });
        let elapsed = start.elapsed().as_secs_f64();
        assert!((0.45..5.0).contains(&elapsed), "10 MiB at 20 MiB/s took {elapsed} s ({flags:?})");
    }
}

#[test]
fn metadata_takes_its_latency_and_requests_of_different_files_do_not_queue() {
    let Some(slow) = Mounted::new(&["--latency-us", "50000", "--cache-ttl-ms", "0"]) else { return };
    for name in ["a", "b", "c", "d", "e", "f"] {
        File::create(slow.source(name)).unwrap();
    }
    let start = Instant::now();
    assert!(fs::metadata(slow.at("a")).is_ok());
    let one = start.elapsed();
    assert!(one >= Duration::from_millis(50), "{one:?}");
    let start = Instant::now();
    std::thread::scope(|scope| {
        for name in ["a", "b", "c", "d", "e", "f"] {
            let path = slow.at(name);
            scope.spawn(move || fs::metadata(path).unwrap());
        }
    });
    let six = start.elapsed();
    assert!(six < 3 * one, "six at once took {six:?}, one took {one:?}");
}

/// A server in the foreground that writes a report at its end.
struct Served {
    directory: TempDir,
    server: Child,
}

impl Served {
    fn new() -> Option<Served> {
        Mounted::new(&[])?; // says so where there is no FUSE
        let directory = tempfile::tempdir_in("/var/tmp").unwrap();
        let [source, mount] = ["source", "mount"].map(|name| directory.path().join(name));
        fs::create_dir(&source).unwrap();
        fs::create_dir(&mount).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_terrace-slowfs"));
        command.arg("--source").arg(&source).arg("--mount").arg(&mount).arg("--foreground");
        let server = command.arg("--report").arg(directory.path().join("report.json")).spawn().unwrap();
        let deadline = Instant::now() + Duration::from_secs(20);
        while fs::metadata(&mount).unwrap().dev() == fs::metadata(&source).unwrap().dev() {
            assert!(Instant::now() < deadline, "the mount did not appear");
            std::thread::sleep(Duration::from_millis(10));
        }
        Some(Served { directory, server })
    }

    fn mount(&self) -> PathBuf {
        self.directory.path().join("mount")
    }

    fn terminated(mut self) -> serde_json::Value {
        rustix::process::kill_process(Pid::from_child(&self.server), Signal::TERM).unwrap();
        assert!(self.server.wait().unwrap().success());
        serde_json::from_slice(&fs::read(self.directory.path().join("report.json")).unwrap()).unwrap()
    }
}

#[test]
fn the_report_counts_bytes() {
    let Some(served) = Served::new() else { return };
    fs::write(served.mount().join("f"), vec![1; 123_456]).unwrap();
    assert_eq!(served.terminated()["written_bytes"], 123_456);
}

#[test]
fn a_copy_of_the_mount_in_another_namespace_does_not_keep_the_server_alive() {
    let Some(served) = Served::new() else { return };
    let mut other = Command::new("unshare").args(["--mount", "sleep", "60"]).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(300));
    if other.try_wait().unwrap().is_some() {
        skipped("a mount namespace cannot be made here");
    }
    assert_eq!(served.terminated()["written_bytes"], 0);
    other.kill().unwrap();
    other.wait().unwrap();
}

#[test]
fn a_signal_ends_a_server_whose_mount_is_only_in_another_namespace() {
    let Some(mut served) = Served::new() else { return };
    let mut other = Command::new("unshare").args(["--mount", "sleep", "60"]).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(300));
    if other.try_wait().unwrap().is_some() {
        skipped("a mount namespace cannot be made here");
    }
    assert!(Command::new("umount").arg(served.mount()).status().unwrap().success());
    rustix::process::kill_process(Pid::from_child(&served.server), Signal::TERM).unwrap();
    let begun = Instant::now();
    while served.server.try_wait().unwrap().is_none() {
        assert!(begun.elapsed() < Duration::from_secs(20), "it goes on");
        std::thread::sleep(Duration::from_millis(20));
    }
    other.kill().unwrap();
    other.wait().unwrap();
}

#[test]
fn bad_input_is_named() {
    let directory = TempDir::new_in("/var/tmp").unwrap();
    let here = directory.path().to_str().unwrap();
    let run = |flags: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_terrace-slowfs")).args(flags).output().unwrap();
        assert!(!output.status.success(), "{flags:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    assert!(run(&["--source", "/not/there", "--mount", here]).contains("--source /not/there: not found"));
    assert!(run(&["--source", here, "--mount", here]).contains("one lies in the other"));
    let negative = run(&["--source", here, "--mount", "/tmp", "--write-mib=-1"]);
    assert!(negative.contains("not a bandwidth"), "{negative}");
}
