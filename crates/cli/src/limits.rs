//! Limits of our own service processes (agent, keeper, supervisor): they serve many programs, and inherit the limits of one.
//! The program has its own: it is started by `run`, where none of this happens.

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, OwnedFd};

/// A panic in any thread ends the program: what is left behind is made whole by recovery, and not by going on.
pub fn crash_only() {
    let say = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        say(panic);
        std::process::abort();
    }));
}

/// Enough for every thread of a supervisor; root may raise a lower hard limit to it.
const DESCRIPTORS: libc::rlim_t = 65_536;

/// As many descriptors as may be had; and a file that gets too large is an error of the write, not our end.
pub fn be_a_service() {
    // SAFETY: a disposition without a handler.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    raise(libc::RLIMIT_NOFILE, DESCRIPTORS);
}

/// Below it lie the standard three, and what a program names by number.
const LOW: libc::c_int = 64;
/// With fewer descriptors than that, all are needed for work.
const ENOUGH: u64 = 512;

/// The same by a number out of the way of those that programs name.
pub fn out_of_the_way(fd: BorrowedFd<'_>) -> std::io::Result<OwnedFd> {
    let low = if has_enough() { LOW } else { 0 };
    Ok(rustix::io::fcntl_dupfd_cloexec(fd, low)?)
}

fn has_enough() -> bool {
    rustix::process::getrlimit(rustix::process::Resource::Nofile).current.is_none_or(|most| most >= ENOUGH)
}

/// A supervisor follows a program's links into `/proc/self` as its own. So that they lead nowhere, its low descriptors are all of
/// `/dev/null`, and its working directory is one where no file can be made and no other program's is found.
/// Gives where it says what it has to say: the log.
pub fn lead_nowhere() -> std::io::Result<File> {
    std::env::set_current_dir("/proc/self/fdinfo")?;
    let log = File::from(out_of_the_way(std::io::stderr().as_fd())?);
    if !has_enough() {
        return Ok(log);
    }
    let null = File::options().read(true).write(true).open("/dev/null")?;
    // SAFETY: two open descriptors of ours.
    if unsafe { libc::dup2(null.as_raw_fd(), 2) } < 0 {
        return Err(std::io::Error::last_os_error());
    }
    // Numbers are given from the lowest free one on; these copies stay open for good.
    while rustix::io::fcntl_dupfd_cloexec(&null, 0).map(OwnedFd::into_raw_fd)? < LOW {}
    let panics = log.try_clone()?;
    std::panic::set_hook(Box::new(move |panic| {
        let _ = writeln!(&panics, "{panic}");
        std::process::abort();
    }));
    Ok(log)
}

/// The agent moves files that programs with other limits wrote, and has an index of its own.
pub fn take_large_files() {
    raise(libc::RLIMIT_FSIZE, libc::RLIM_INFINITY);
}

/// The soft limit to the hard one, and both to what is wished for if we may.
fn raise(resource: libc::__rlimit_resource_t, wish: libc::rlim_t) {
    // SAFETY: live structures; a zeroed one is valid.
    unsafe {
        let mut limit: libc::rlimit = std::mem::zeroed();
        if libc::getrlimit(resource, &mut limit) != 0 {
            return;
        }
        let most = limit.rlim_max.max(wish);
        if libc::setrlimit(resource, &libc::rlimit { rlim_cur: most, rlim_max: most }) != 0 {
            libc::setrlimit(resource, &libc::rlimit { rlim_cur: limit.rlim_max, ..limit });
        }
    }
}
