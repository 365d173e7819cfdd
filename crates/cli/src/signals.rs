//! Signals while a program runs under `terrace run`: all are blocked and taken one by one by the thread that waits for it.
//!
//! Reason: a handler could only set flags, and the flush after the program's end must not be cut off by the
//! signal that ended the program.

use std::io;
use std::time::Duration;

/// Signals that are for the program, and SIGCHLD.
const TAKEN: [libc::c_int; 11] = [
    libc::SIGINT,
    libc::SIGTERM,
    libc::SIGHUP,
    libc::SIGQUIT,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGTSTP,
    libc::SIGCONT,
    libc::SIGWINCH,
    libc::SIGALRM,
    libc::SIGCHLD,
];

/// One signal that came.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Taken {
    pub signal: libc::c_int,
    /// Sent by a process to us; otherwise by the terminal to the whole foreground group, so the program has it too.
    pub by_process: bool,
}

/// Blocks the signals in this thread and those that it starts; remembers the mask that the program is to get.
pub struct Signals {
    taken: libc::sigset_t,
    before: libc::sigset_t,
}

impl Signals {
    pub fn block() -> io::Result<Signals> {
        // SAFETY: sigset_t is plain data, filled by sigemptyset before use.
        let mut signals: Signals = unsafe { std::mem::zeroed() };
        // SAFETY: all pointers are to live sets of ours.
        unsafe {
            // A parent may have left it ignored; then nobody could wait for the program.
            libc::signal(libc::SIGCHLD, libc::SIG_DFL);
            libc::sigemptyset(&mut signals.taken);
            for signal in TAKEN {
                libc::sigaddset(&mut signals.taken, signal);
            }
            check(libc::pthread_sigmask(libc::SIG_BLOCK, &signals.taken, &mut signals.before))?;
        }
        Ok(signals)
    }

    /// In the new process, before exec: the mask is again what it was.
    pub fn mask_for_program(&self) -> impl Fn() -> io::Result<()> + Send + Sync + 'static {
        let before = self.before;
        // SAFETY: sigprocmask is async-signal-safe; `before` is a copy.
        move || unsafe { check_errno(libc::sigprocmask(libc::SIG_SETMASK, &before, std::ptr::null_mut())) }
    }

    /// Waits for the next signal, at most so long.
    pub fn next(&self, timeout: Duration) -> Option<Taken> {
        let timeout = libc::timespec {
            tv_sec: timeout.as_secs().min(i32::MAX as u64) as libc::time_t,
            tv_nsec: timeout.subsec_nanos() as libc::c_long,
        };
        // SAFETY: siginfo_t is plain data that the kernel fills; the set is live.
        let (signal, info) = unsafe {
            let mut info: libc::siginfo_t = std::mem::zeroed();
            (libc::sigtimedwait(&self.taken, &mut info, &timeout), info)
        };
        (signal > 0).then_some(Taken { signal, by_process: info.si_code <= 0 })
    }
}

pub fn send(pid: u32, signal: libc::c_int) {
    // SAFETY: kill has no memory effects; a pid that is gone is an error that changes nothing.
    unsafe { libc::kill(pid as libc::pid_t, signal) };
}

/// Wakes the thread that waits in `Signals::next`.
pub fn wake() {
    send(std::process::id(), libc::SIGCHLD);
}

/// SIGTERM and SIGHUP end this process no more.
pub fn ignore_termination() {
    for signal in [libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: a disposition without a handler.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
}

pub fn stop_self() {
    // SAFETY: as above.
    unsafe { libc::raise(libc::SIGSTOP) };
}

/// For a child that is to start with no signal blocked.
pub fn unblock_all() -> io::Result<()> {
    // SAFETY: sigset_t is plain data; both calls are async-signal-safe.
    unsafe {
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut none);
        check_errno(libc::sigprocmask(libc::SIG_SETMASK, &none, std::ptr::null_mut()))
    }
}

fn check(code: libc::c_int) -> io::Result<()> {
    if code == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(code)) }
}

fn check_errno(code: libc::c_int) -> io::Result<()> {
    if code == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
