//! Somebody wants the experiment to end: whoever sleeps or waits is woken.
//!
//!   signal handler ──byte──▶ pipe ──thread──▶ Stop ──▶ sleeps end; the group that waits for its workers gets a message

use crate::error::{Error, Result};
use std::io::Read;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

#[derive(Default)]
pub struct Stop {
    state: Mutex<State>,
    asked: Condvar,
}

#[derive(Default)]
struct State {
    signal: Option<i32>,
    wake: Option<Box<dyn Fn() + Send>>,
}

impl Stop {
    /// A panic elsewhere leaves the state whole: each change is one assignment.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn ask(&self, signal: i32) {
        let mut state = self.state();
        state.signal.get_or_insert(signal);
        self.asked.notify_all();
        if let Some(wake) = &state.wake {
            wake();
        }
    }

    /// The signal that asked for the end.
    pub fn asked(&self) -> Option<i32> {
        self.state().signal
    }

    /// Sleeps, but not beyond the wish to end.
    pub fn sleep(&self, time: Duration) {
        if !time.is_zero() {
            drop(self.asked.wait_timeout_while(self.state(), time, |state| state.signal.is_none()));
        }
    }

    /// Whom to tell, instead of whoever was to be told before.
    pub fn tell(&self, wake: impl Fn() + Send + 'static) {
        let mut state = self.state();
        if state.signal.is_some() {
            wake();
        }
        state.wake = Some(Box::new(wake));
    }
}

/// Where the handler writes: it may do nothing else.
static PIPE: AtomicI32 = AtomicI32::new(-1);

extern "C" fn noticed(signal: libc::c_int) {
    let byte = signal as u8;
    // SAFETY: write may be called in a handler; the byte lives through the call.
    unsafe { libc::write(PIPE.load(Ordering::Relaxed), (&raw const byte).cast(), 1) };
}

/// From now on the first interrupt, termination or hang-up asks for the end; a second one ends the program at once.
pub fn by_signals() -> Result<Arc<Stop>> {
    let stop = Arc::new(Stop::default());
    let (mut reading, writing) = std::io::pipe().map_err(|error| Error::io("make", "a pipe for signals", error))?;
    let writing = OwnedFd::from(writing);
    PIPE.store(writing.as_raw_fd(), Ordering::Relaxed);
    // Open as long as the handler may write.
    std::mem::forget(writing);
    let told = Arc::clone(&stop);
    std::thread::spawn(move || {
        let mut signal = [0];
        while reading.read_exact(&mut signal).is_ok() {
            told.ask(i32::from(signal[0]));
        }
    });
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: the structures are valid when they are zero, and the handler does nothing but write a byte.
        unsafe {
            let mut old: libc::sigaction = std::mem::zeroed();
            libc::sigaction(signal, std::ptr::null(), &raw mut old);
            // `nohup` means it.
            if signal == libc::SIGHUP && old.sa_sigaction == libc::SIG_IGN {
                continue;
            }
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = noticed as *const () as usize;
            action.sa_flags = libc::SA_RESETHAND | libc::SA_RESTART;
            libc::sigaction(signal, &raw const action, std::ptr::null_mut());
        }
    }
    Ok(stop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn whoever_sleeps_is_woken_and_whoever_comes_later_is_told_at_once() {
        let stop = Arc::new(Stop::default());
        let (sender, told) = channel();
        stop.tell(move || {
            let _ = sender.send(());
        });
        let sleeper = Arc::clone(&stop);
        let asleep = std::thread::spawn(move || sleeper.sleep(Duration::from_secs(3600)));
        assert_eq!(stop.asked(), None);
        stop.ask(libc::SIGTERM);
        stop.ask(libc::SIGINT);
        asleep.join().unwrap();
        told.recv().unwrap();
        assert_eq!(stop.asked(), Some(libc::SIGTERM));
        let (sender, told) = channel();
        stop.tell(move || {
            let _ = sender.send(());
        });
        told.recv().unwrap();
    }
}
