//! One step for many small files: on a tier that answers after a while, several at a time.
//!
//!   item ─▶ work, timed ──fast──▶ the next, by the same thread
//!                        └─slow──▶ the rest in lanes, a thread each
//!
//! A server's answer takes as long whether one asks or ten, so what waits for it is done together. A tier that answers at once
//! gains nothing from threads: they are started only when the first steps were slow.

use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Starting a thread costs less than a step that takes so long.
const WORTH_A_LANE: Duration = Duration::from_micros(150);

/// Does `work` for each item, in at most so many lanes. The results, in any order.
pub fn spread<T: Send, R: Send>(lanes: usize, items: Vec<T>, work: impl Fn(T) -> R + Sync) -> Vec<R> {
    let mut rest = items.into_iter();
    let mut done = Vec::with_capacity(rest.len());
    let mut is_slow = false;
    while (lanes <= 1 || !is_slow || rest.len() <= 1)
        && let Some(item) = rest.next()
    {
        let start = Instant::now();
        done.push(work(item));
        is_slow = start.elapsed() >= WORTH_A_LANE;
    }
    let lanes = lanes.min(rest.len());
    if lanes == 0 {
        return done;
    }
    let rest = Mutex::new(rest);
    let lane = || {
        let mut results = vec![];
        loop {
            let next = rest.lock().unwrap().next();
            let Some(item) = next else { return results };
            results.push(work(item));
        }
    };
    std::thread::scope(|scope| {
        // A thread that can't be started is no loss: the others, and this one, do its part.
        let others: Vec<_> = (1..lanes)
            .filter_map(|_| std::thread::Builder::new().name("lane".into()).spawn_scoped(scope, lane).ok())
            .collect();
        done.extend(lane());
        for other in others {
            done.extend(other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
    });
    done
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    #[test]
    fn every_item_is_done_once_whatever_the_lanes() {
        for lanes in [0, 1, 3, 100] {
            for nap in [0, 1] {
                let mut done = spread(lanes, (0..20).collect(), |item: u32| {
                    std::thread::sleep(Duration::from_millis(nap));
                    item
                });
                done.sort_unstable();
                assert_eq!(done, (0..20).collect::<Vec<_>>());
            }
        }
        assert!(spread(8, Vec::<u32>::new(), |item| item).is_empty());
    }

    #[test]
    fn slow_steps_are_done_at_the_same_time_and_no_more_of_them_than_lanes() {
        let (now, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        spread(4, (0..20).collect(), |_: u32| {
            most.fetch_max(now.fetch_add(1, SeqCst) + 1, SeqCst);
            std::thread::sleep(Duration::from_millis(5));
            now.fetch_sub(1, SeqCst);
        });
        assert!((2..=4).contains(&most.load(SeqCst)), "{most:?} at a time");
    }
}
