//! Several threads for the time of one task.

use std::io;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::*};

/// The first error, when all are done.
pub fn in_threads<T: Sync>(threads: usize, all: &[T], run: impl Fn(&T) -> io::Result<()> + Sync) -> io::Result<()> {
    let next = AtomicUsize::new(0);
    let failure = Mutex::new(None);
    let work = || {
        while let Some(one) = all.get(next.fetch_add(1, Relaxed)) {
            if let Err(error) = run(one) {
                failure.lock().unwrap().get_or_insert(error);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads.min(all.len()) {
            scope.spawn(work);
        }
        work();
    });
    failure.into_inner().unwrap().map_or(Ok(()), Err)
}
