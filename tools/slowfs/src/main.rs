//! `terrace-slowfs`: mounts a directory a second time, slowly.

use anyhow::{Context, bail, ensure};
use clap::Parser;
use fuser::{Config, MountOption, Session, SessionACL, SessionUnmounter};
use rustix::fs::{Mode, OFlags, open};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use terrace_slowfs::{Caching, Limits, LimitsSpec, SlowFs};

/// How long the kernel takes at most to end a session whose mount is gone.
const SESSION_END_MAX: Duration = Duration::from_secs(2);

/// Mounts SOURCE at MOUNT as a file system with a bandwidth and a latency, like a parallel file system that many share.
///
/// It ends when it is unmounted (`umount MOUNT`, `fusermount3 -u MOUNT`) or gets SIGTERM or SIGINT.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// Directory whose files are shown; change it only through the mount
    #[arg(long, value_name = "DIR")]
    source: PathBuf,
    /// Directory to mount at
    #[arg(long, value_name = "DIR")]
    mount: PathBuf,
    /// Write bandwidth that all files share, in MiB/s (0: no limit)
    #[arg(long, value_name = "MIB_S", default_value_t = 0.0)]
    write_mib: f64,
    /// Read bandwidth that all files share, in MiB/s (0: no limit); what the kernel has cached is not read
    #[arg(long, value_name = "MIB_S", default_value_t = 0.0)]
    read_mib: f64,
    /// Time that each metadata request takes, in microseconds
    #[arg(long, value_name = "US", default_value_t = 0)]
    latency_us: u64,
    /// How long the kernel takes names and attributes as known, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 1000)]
    cache_ttl_ms: u64,
    /// Let writes gather in the kernel's cache, as clients of parallel file systems do
    #[arg(long)]
    write_back: bool,
    /// Open no file that has lost its name, whoever has a handle of it, and know nothing of removed symbolic links, as GlusterFS
    #[arg(long)]
    stale: bool,
    /// Requests served at the same time
    #[arg(long, value_name = "COUNT", default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..=512))]
    threads: u16,
    /// Write what went through to FILE as JSON at the end
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Stay in the foreground
    #[arg(long)]
    foreground: bool,
    /// Tell on standard output when the mount is there (used by the process in the foreground)
    #[arg(long, hide = true)]
    announce: bool,
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    for (name, value) in [("--write-mib", arguments.write_mib), ("--read-mib", arguments.read_mib)] {
        ensure!(
            value >= 0.0 && value.is_finite(),
            "{name} {value}: not a bandwidth\nhint: give MiB/s, or 0 for no limit"
        );
    }
    if arguments.foreground { serve(&arguments) } else { detach() }
}

/// Starts the same command in a session of its own and returns when its mount is there.
fn detach() -> anyhow::Result<()> {
    let mut child = Command::new(std::env::current_exe().context("this program's own path cannot be found")?)
        .args(std::env::args_os().skip(1))
        .args(["--foreground", "--announce"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("the background process cannot be started")?;
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("standard output is a pipe")).read_line(&mut line)?;
    if line.is_empty() {
        let status = child.wait()?;
        std::process::exit(status.code().unwrap_or(1));
    }
    Ok(())
}

fn serve(arguments: &Arguments) -> anyhow::Result<()> {
    let source = directory(&arguments.source, "--source")?;
    let mount = directory(&arguments.mount, "--mount")?;
    if mount.starts_with(&source) || source.starts_with(&mount) {
        bail!(
            "source {} and mount {}: one lies in the other\nhint: mount beside the source",
            source.display(),
            mount.display()
        );
    }
    raise_descriptor_limit();
    let signals = TerminationSignals::block();
    rustix::process::umask(Mode::empty()); // the kernel has already applied the caller's

    let descriptor = open(&source, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
        .with_context(|| format!("source {} cannot be opened", source.display()))?;
    let limits = LimitsSpec {
        write_mib_s: arguments.write_mib,
        read_mib_s: arguments.read_mib,
        latency: Duration::from_micros(arguments.latency_us),
    };
    let caching = Caching {
        ttl: Duration::from_millis(arguments.cache_ttl_ms),
        write_back: arguments.write_back,
        stale: arguments.stale,
    };
    let slow_fs = SlowFs::new(descriptor, limits, caching)?;
    let limits = slow_fs.limits();
    let mut session = Session::new(slow_fs, &mount, &session_config(arguments.threads)).with_context(|| {
        format!(
            "{} cannot be mounted\nhint: it needs /dev/fuse, and either root or fusermount3 (Debian package fuse3)",
            mount.display()
        )
    })?;

    let unmounter = session.unmount_callable();
    let (reported, report) = (limits.clone(), arguments.report.clone());
    std::thread::spawn(move || end_on_signal(signals, unmounter, &reported, report.as_deref()));
    if arguments.announce {
        rustix::process::setsid().ok(); // so that a terminal that goes away does not take the mount with it
        let mut out = std::io::stdout();
        writeln!(out, "mounted")?;
        out.flush()?;
        // Whoever reads the starter's output must not wait for the mount's end.
        let null = open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
        rustix::stdio::dup2_stdout(&null)?;
        rustix::stdio::dup2_stderr(&null)?;
    }
    session.run().context("the connection to the kernel failed")?;

    write_report(&limits, arguments.report.as_deref())
}

/// Unmounts when a signal says so. The session then ends by itself, unless a mount namespace that was made meanwhile has
/// a copy of the mount: nobody else can unmount that, so it loses its server.
fn end_on_signal(
    signals: TerminationSignals,
    mut unmounter: SessionUnmounter,
    limits: &Limits,
    report: Option<&Path>,
) -> ! {
    loop {
        signals.wait();
        match unmounter.unmount() {
            Ok(()) => break,
            // It is no mount here any more (umount(2)).
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => break,
            Err(error) => eprintln!(
                "terrace-slowfs: cannot unmount: {error}\nhint: end the programs that use it, or signal again to end it under them"
            ),
        }
    }
    std::thread::sleep(SESSION_END_MAX);
    let done = write_report(limits, report);
    if let Err(error) = &done {
        eprintln!("terrace-slowfs: {error:#}");
    }
    std::process::exit(done.is_err() as i32)
}

fn write_report(limits: &Limits, report: Option<&Path>) -> anyhow::Result<()> {
    let Some(report) = report else { return Ok(()) };
    let mut told = serde_json::to_value(limits.traffic())?;
    told["metadata_by_kind"] = serde_json::to_value(limits.metadata_by_kind())?;
    let text = serde_json::to_string_pretty(&told)? + "\n";
    std::fs::write(report, text).with_context(|| format!("report {} cannot be written", report.display()))
}

fn directory(path: &Path, flag: &str) -> anyhow::Result<PathBuf> {
    let found = path.canonicalize().with_context(|| format!("{flag} {}: not found", path.display()))?;
    ensure!(found.metadata()?.is_dir(), "{flag} {}: not a directory", path.display());
    Ok(found)
}

fn session_config(threads: u16) -> Config {
    let mut config = Config::default();
    config.mount_options = vec![
        MountOption::FSName("slowfs".into()),
        MountOption::Subtype("slowfs".into()),
        MountOption::DefaultPermissions,
    ];
    let is_root = rustix::process::geteuid().is_root();
    if is_root {
        config.mount_options.extend([MountOption::Dev, MountOption::Suid]);
    }
    config.acl = if is_root { SessionACL::All } else { SessionACL::Owner };
    config.n_threads = Some(threads.into());
    config.clone_fd = true;
    config
}

/// Each inode that the kernel knows takes a descriptor.
fn raise_descriptor_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let now = getrlimit(Resource::Nofile);
    let wanted = Some(1 << 20);
    if setrlimit(Resource::Nofile, Rlimit { current: wanted, maximum: wanted }).is_err() {
        let _ = setrlimit(Resource::Nofile, Rlimit { current: now.maximum, maximum: now.maximum });
    }
}

/// SIGTERM, SIGINT and SIGHUP, blocked in all threads so that one can wait for them.
struct TerminationSignals(libc::sigset_t);

impl TerminationSignals {
    /// Call it before any thread is started: threads inherit the mask.
    fn block() -> TerminationSignals {
        // SAFETY: the set is initialised by sigemptyset before it is used, and both pointers are valid for the calls.
        unsafe {
            let mut set = std::mem::zeroed();
            libc::sigemptyset(&mut set);
            for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP] {
                libc::sigaddset(&mut set, signal);
            }
            libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
            TerminationSignals(set)
        }
    }

    fn wait(&self) {
        let mut signal = 0;
        // SAFETY: the set was initialised by `block`, and `signal` outlives the call.
        unsafe { libc::sigwait(&self.0, &mut signal) };
    }
}
