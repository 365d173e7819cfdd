//! A tier that fails as a test tells it to: the nth operation of a kind gives an errno, reads and writes are short, the
//! space is a lie.

use super::{Operation, Watch, Watched};
use crate::tier::Space;
use std::io;
use std::sync::Mutex;

pub type Faulty<T> = Watched<T, Faults>;

/// The script; it may be changed while the tier is in use.
#[derive(Debug, Default)]
pub struct Faults {
    script: Mutex<Script>,
}

#[derive(Debug, Default)]
struct Script {
    failures: Vec<Failure>,
    bytes_max: Option<usize>,
    space: Option<Space>,
}

#[derive(Debug)]
struct Failure {
    operation: Operation,
    /// Operations of this kind to let pass first.
    pass: u64,
    errno: i32,
    is_lasting: bool,
}

impl Faults {
    pub fn new() -> Faults {
        Faults::default()
    }
    /// The nth such operation from now on (1 is the next) fails, once.
    pub fn fail(&self, operation: Operation, nth: u64, errno: i32) {
        self.push(operation, nth, errno, false);
    }
    /// The nth such operation from now on and all after it fail.
    pub fn fail_from(&self, operation: Operation, nth: u64, errno: i32) {
        self.push(operation, nth, errno, true);
    }
    /// One read or write moves at most so many bytes (at least 1).
    pub fn short(&self, bytes_max: usize) {
        self.script.lock().unwrap().bytes_max = Some(bytes_max.max(1));
    }
    /// What the tier claims about its room.
    pub fn claim_space(&self, space: Space) {
        self.script.lock().unwrap().space = Some(space);
    }
    /// All is well again.
    pub fn clear(&self) {
        *self.script.lock().unwrap() = Script::default();
    }

    fn push(&self, operation: Operation, nth: u64, errno: i32, is_lasting: bool) {
        let failure = Failure { operation, pass: nth.saturating_sub(1), errno, is_lasting };
        self.script.lock().unwrap().failures.push(failure);
    }
}

impl Watch for Faults {
    fn before(&self, operation: Operation, bytes: usize) -> io::Result<usize> {
        let mut script = self.script.lock().unwrap();
        let mut fired = None;
        for (index, failure) in script.failures.iter_mut().enumerate() {
            if failure.operation != operation {
                continue;
            }
            if failure.pass == 0 {
                fired = fired.or(Some((index, failure.errno, failure.is_lasting)));
            } else {
                failure.pass -= 1;
            }
        }
        if let Some((index, errno, is_lasting)) = fired {
            if !is_lasting {
                script.failures.remove(index);
            }
            return Err(io::Error::from_raw_os_error(errno));
        }
        Ok(bytes.min(script.bytes_max.unwrap_or(bytes)))
    }

    fn space(&self, space: Space) -> Space {
        self.script.lock().unwrap().space.unwrap_or(space)
    }
}
