//! The harness of the whole-system tests: real processes on a real root, natively and under `terrace run`.
//!
//!   Workplace   a root on the durable file system, fast tiers in memory, settings of their own: tests run side by side
//!   Node        one of several nodes that share a root: namespaces with memory and state of their own
//!   Slurm       a batch system of such nodes, where it is installed
//!   Shell       a bash under `terrace run` that does what the test says, between its other acts
//!   Outcome     what a command said and how it ended
//!   Served      an agent of its own, which clients reach by TCP
//!   Agents      several agents of one root, on this machine
//!   Proxy       a network between two agents, which can be cut
//!   SlowTier    a durable tier with a bandwidth and a latency, which counts what it is asked
//!   Tree        what a directory holds, read natively, to compare
//!   ArrayModel  the cells of an array in a vector, to compare with
//!   Http        requests to `terrace-web`, as they are on the wire
//!   history     operations on files by several programs: is there an order that explains what they saw?
//!   protocol    models of what nodes say to each other, each state visited
//!   Comparison  the same commands in two equal roots, one of them accelerated: outcomes and trees must agree
//!
//! Invariant: a workplace that goes away leaves nothing: no process, no tier, no state.

mod agents;
mod array_model;
mod comparison;
pub mod history;
mod http;
mod node;
mod outcome;
pub mod protocol;
mod proxy;
mod served;
mod shell;
mod slow_tier;
mod slurm;
mod tree;
mod workplace;

pub use agents::Agents;
pub use array_model::{ArrayModel, Random, compare_at_random};
pub use comparison::Comparison;
pub use http::{Answer, Http};
pub use node::{Node, Nodes, RemoteShell};
pub use outcome::{Outcome, wait_until};
pub use proxy::Proxy;
pub use served::Served;
pub use shell::Shell;
pub use slow_tier::SlowTier;
pub use slurm::{KILL_WAIT_S, Slurm};
pub use tree::{Entry, Kind, Tree};
pub use workplace::{Wish, Workplace};

use std::path::{Path, PathBuf};

/// The checkout that the tests belong to.
pub fn checkout() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ lies in the checkout").to_owned()
}

/// The directory of the release binaries; `TERRACE_BINARIES` tests others.
pub fn binaries() -> PathBuf {
    if let Some(directory) = std::env::var_os("TERRACE_BINARIES") {
        return directory.into();
    }
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| checkout().join("target"), PathBuf::from);
    target.join("release")
}

/// The `terrace` program, or a clear end.
pub fn terrace_binary() -> PathBuf {
    for name in ["terrace", "libterrace_intercept.so"] {
        let path = binaries().join(name);
        assert!(path.exists(), "{} is not built.\nhint: run `make build` first", path.display());
    }
    binaries().join("terrace")
}

/// This test program again, to run one test as a process of its own, which may be killed: `again(module_path!(), "act")`.
pub fn again(module: &str, test: &str) -> std::process::Command {
    let (_, inside) = module.split_once("::").expect("the tests are modules of one program");
    let mut command = std::process::Command::new(std::env::current_exe().expect("a running program has a file"));
    command.args([&format!("{inside}::{test}"), "--exact", "--nocapture"]);
    command
}

/// A library of the release binaries, or a clear end.
pub fn library(name: &str) -> PathBuf {
    let path = binaries().join(name);
    assert!(path.exists(), "{} is not built.\nhint: run `make build` first", path.display());
    path
}

/// A program or file that `tests/setup.sh` makes below build/.
pub fn fetched(relative: &str) -> PathBuf {
    let path = checkout().join("build").join(relative);
    assert!(path.exists(), "{} is missing.\nhint: run `tests/setup.sh` first", path.display());
    path
}

/// Compiles a C program into `directory` and returns its path.
pub fn compile(directory: &Path, name: &str, source: &str) -> PathBuf {
    compile_with(directory, name, source, &[])
}

/// The same as a static program, which can't load the library.
pub fn compile_statically(directory: &Path, name: &str, source: &str) -> PathBuf {
    compile_with(directory, name, source, &["-static"])
}

fn compile_with(directory: &Path, name: &str, source: &str, flags: &[&str]) -> PathBuf {
    let (c, program) = (directory.join(format!("{name}.c")), directory.join(name));
    std::fs::write(&c, source).unwrap();
    let output = std::process::Command::new("cc")
        .args(flags)
        .args(["-O1", "-Wall", "-D_GNU_SOURCE", "-o"])
        .arg(&program)
        .arg(&c)
        .arg("-lpthread")
        .output()
        .expect("a C compiler is installed");
    assert!(output.status.success(), "{name}.c does not compile:\n{}", String::from_utf8_lossy(&output.stderr));
    program
}

/// The Python that the package is installed in, with what the package can make use of (`make python`).
pub fn python() -> Option<PathBuf> {
    let python = checkout().join("build/python-venv/bin/python");
    python.exists().then_some(python)
}

/// Tells that a test shows nothing here, past the test harness, which keeps the words of tests that pass to itself.
pub fn skipped(reason: &str) {
    use std::io::Write;
    let test = std::thread::current().name().unwrap_or("a test").to_owned();
    let _ = writeln!(std::io::stderr(), "SKIPPED: {test}: {reason}");
}

/// Says what a test that passes has measured, past the test harness.
pub fn told(measured: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "MEASURED: {measured}");
}

/// True when the tests run as root; some claims are about root only.
pub fn is_root() -> bool {
    // SAFETY: geteuid has no preconditions.
    unsafe { libc::geteuid() == 0 }
}

/// True for root where other users reach this checkout and its programs; else said loudly, and claims about other users show nothing.
pub fn is_root_among_users() -> bool {
    use std::os::unix::fs::PermissionsExt;
    let is_open = |path: &Path| std::fs::metadata(path).is_ok_and(|found| found.permissions().mode() & 0o001 != 0);
    let places = [binaries(), checkout().join("build")];
    let closed = places.iter().flat_map(|place| place.ancestors()).find(|path| path.exists() && !is_open(path));
    match closed {
        _ if !is_root() => skipped("to be another user takes root's rights"),
        None => return true,
        Some(closed) => skipped(&format!(
            "other users can't enter {}; make the clone where they can, /srv or /var/tmp, to test for them too",
            closed.display()
        )),
    }
    false
}

/// True where a program may have a user namespace; else said loudly. The kernel makes none in a plain chroot, some containers forbid it.
pub fn has_user_namespaces() -> bool {
    let has = succeeds("unshare", &["-U", "true"]);
    if !has {
        skipped("no user namespace can be made here: a plain chroot, or a container that forbids it");
    }
    has
}

/// True where processes that enter a namespace of mounts come upon the same root directory: anywhere but in a plain chroot.
pub fn is_at_the_top() -> bool {
    use std::os::unix::fs::MetadataExt;
    let seen =
        std::process::Command::new("nsenter").args(["--mount=/proc/self/ns/mnt", "stat", "-c", "%d:%i", "/"]).output();
    let own = std::fs::metadata("/").map(|top| format!("{}:{}\n", top.dev(), top.ino()));
    matches!((seen, own), (Ok(seen), Ok(own)) if seen.stdout == own.as_bytes())
}

pub(crate) fn succeeds(program: &str, words: &[&str]) -> bool {
    let quiet = std::process::Stdio::null;
    std::process::Command::new(program).args(words).stderr(quiet()).status().is_ok_and(|done| done.success())
}

/// True where every user may open /dev/fuse.
pub fn fuse_is_open_to_all() -> bool {
    use std::os::unix::fs::PermissionsExt;
    std::fs::metadata("/dev/fuse").is_ok_and(|found| found.permissions().mode() & 0o006 == 0o006)
}

/// False, and said loudly, where a private mount can't be had.
pub fn has_mounts() -> bool {
    let unshare: &[&str] = if is_root() { &["-m", "true"] } else { &["-Urm", "true"] };
    let has_namespaces = succeeds("unshare", unshare);
    let has_fuse = std::fs::File::options().read(true).write(true).open("/dev/fuse").is_ok();
    if !has_namespaces || !has_fuse {
        skipped("a private mount needs namespaces and /dev/fuse");
    }
    has_namespaces && has_fuse
}
