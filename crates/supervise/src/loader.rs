//! What the dynamic loader's own calls look like.
//!
//! Each program that starts has the loader open and look at its libraries, before the preload library is there: for a small
//! program these are most of the calls that would come to the supervisor, and the kernel does them right. The loader lies at
//! another address in every process, but its page offsets are the same; and where it looks at a descriptor, the distance from
//! the instruction to the empty path that it gives is too. Both are learned from a loader at work: one that lists the
//! libraries of this very program.
//!
//! The C library has an open of its own, for what belongs to it: locales, character sets, the names of users. Programs have no way to
//! call it, so that it opens nothing else, and it opens for reading. Its place in its page is found in this program's own library.
//!
//!   fork ─▶ filter on two calls ─▶ exec /proc/self/exe, to list its libraries ─▶ each call is noted, and goes on
//!
//! A call of other code that looks the same (an open for reading at that page offset: 1 in 4096 programs has one) gets what an
//! unsupervised program gets: the right bytes, not those of a replica.

use crate::filter::{Filter, LOADER_OPEN};
use crate::listener::{Answer, Listener, Notification};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loader {
    /// The place in its page of the instruction behind its `openat`.
    pub open: u32,
    /// From the empty path to the instruction behind its `newfstatat`; the low half.
    pub look: u32,
    /// The place in its page of the instruction behind the C library's own open; the loader's again where it isn't known.
    pub internal_open: u32,
}

/// It lists the libraries of a program in a few milliseconds.
const PATIENCE: Duration = Duration::from_millis(500);

/// `None`: it can't be learned (another C library, no seccomp); then its calls are served like any.
pub fn learn() -> Option<Loader> {
    let filter = Filter::for_loader();
    let environment = [c"LD_TRACE_LOADED_OBJECTS=1".as_ptr(), std::ptr::null()];
    let arguments = [c"terrace".as_ptr(), std::ptr::null()];
    let nothing = std::fs::File::options().read(true).write(true).open("/dev/null").ok()?;
    let null = nothing.as_raw_fd();
    let mut pipe = [0i32; 2];
    // SAFETY: plain system calls; the child, which shares our descriptors until it executes, makes nothing else.
    let (child, ours) = unsafe {
        if libc::pipe2(pipe.as_mut_ptr(), libc::O_CLOEXEC) != 0 {
            return None;
        }
        let without_privileges = libc::geteuid() != 0;
        let child = libc::syscall(libc::SYS_clone, libc::CLONE_FILES | libc::SIGCHLD, 0, 0, 0, 0) as i32;
        if child == 0 {
            // Descriptors are its own from here on, but the listener is made before, for both.
            let listener = filter.install(without_privileges).map_or(-1, |listener| {
                let number = listener.as_raw_fd();
                std::mem::forget(listener);
                number
            });
            libc::write(pipe[1], (&raw const listener).cast(), 4);
            libc::unshare(libc::CLONE_FILES);
            if listener >= 0 {
                for number in 0..3 {
                    libc::dup2(null, number);
                }
                libc::execve(c"/proc/self/exe".as_ptr(), arguments.as_ptr(), environment.as_ptr());
            }
            libc::_exit(1);
        }
        let ours = pipe.map(|fd| OwnedFd::from_raw_fd(fd));
        (child, ours)
    };
    let learned = (child > 0).then(|| listen(&ours[0])).flatten();
    if child > 0 {
        // SAFETY: our own child, which has nothing to lose.
        unsafe {
            libc::kill(child, libc::SIGKILL);
            libc::waitpid(child, std::ptr::null_mut(), 0);
        }
    }
    learned
}

fn listen(pipe: &OwnedFd) -> Option<Loader> {
    let mut number = -1i32;
    let mut poll = libc::pollfd { fd: pipe.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: live structures of ours; the descriptor that is named was made for us.
    let listener = unsafe {
        if libc::poll(&mut poll, 1, PATIENCE.as_millis() as i32) <= 0
            || libc::read(pipe.as_raw_fd(), (&raw mut number).cast(), 4) != 4
            || number < 0
        {
            return None;
        }
        Listener::new(OwnedFd::from_raw_fd(number))
    };
    let begun = Instant::now();
    let (mut opens, mut looks) = (vec![], vec![]);
    loop {
        let mut poll = libc::pollfd { fd: listener.fd().as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one live structure.
        let ready = unsafe { libc::poll(&mut poll, 1, 50) };
        if begun.elapsed() > PATIENCE || ready > 0 && poll.revents & libc::POLLIN == 0 {
            break; // it has ended
        }
        let mut call = Notification::default();
        if ready <= 0 || listener.receive(&mut call).is_err() {
            continue;
        }
        match call.nr as i64 {
            libc::SYS_openat if call.args[2] as u32 == LOADER_OPEN => {
                opens.push(call.instruction_pointer as u32 & 0xfff)
            }
            libc::SYS_newfstatat if call.args[3] as i32 == libc::AT_EMPTY_PATH => {
                looks.push((call.instruction_pointer as u32).wrapping_sub(call.args[1] as u32))
            }
            _ => {}
        }
        listener.answer(call.id, Answer::Continue);
    }
    let open = the_one(&opens)?;
    Some(Loader { open, look: the_one(&looks)?, internal_open: internal_open().unwrap_or(open) })
}

/// The one `syscall` instruction near the beginning of the function by which the C library opens its own files.
fn internal_open() -> Option<u32> {
    const BYTES: usize = 96;
    const SYSCALL: [u8; 2] = [0x0f, 0x05];
    // SAFETY: C strings; of a function that is longer than these bytes, and is followed by others.
    let code = unsafe {
        let (name, version) = (c"__open64_nocancel".as_ptr(), c"GLIBC_PRIVATE".as_ptr());
        let function = libc::dlvsym(libc::RTLD_DEFAULT, name, version);
        if function.is_null() {
            return None;
        }
        std::slice::from_raw_parts(function as *const u8, BYTES)
    };
    let at = code.windows(SYSCALL.len()).position(|bytes| bytes == SYSCALL)?;
    Some((code.as_ptr() as usize + at + SYSCALL.len()) as u32 & 0xfff)
}

/// What all have, if there are at least two.
fn the_one(values: &[u32]) -> Option<u32> {
    let first = *values.first()?;
    (values.len() >= 2 && values.iter().all(|value| *value == first)).then_some(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loader_is_the_same_each_time() {
        if crate::probe().is_some() {
            eprintln!("SKIPPED: no seccomp listener can be had here");
            return;
        }
        let first = learn();
        assert!(first.is_some() && first == learn(), "{first:?}");
    }
}
