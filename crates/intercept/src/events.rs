//! Telling the agent of names: one entry in the ring, and a wake-up if it sleeps. No message.

use crate::{gate, process};
use core::sync::atomic::Ordering::*;
use terrace_index::Index;
use terrace_index::ring::EventKind;

/// Tells the agent of a name; waits a little when the ring is full, and gives up after that: the agent then walks the tree.
pub fn publish(index: Index, kind: EventKind, record: u32, path: &[u8], path2: &[u8]) {
    let pid = process::pid();
    for _ in 0..2000 {
        let pushed = index.ring_push(pid, kind, record, path, path2);
        if !pushed || index.ring_is_filling() {
            wake_agent(index);
        }
        if pushed {
            return;
        }
        process::sleep_us(500);
    }
}

/// It looks at its ring now, and not when it next would.
pub fn wake_agent(index: Index) {
    let bell = &index.header.bell;
    if bell.load(Relaxed) != 0 && bell.swap(0, AcqRel) != 0 {
        // SAFETY: the futex is a word of the mapped index.
        unsafe { gate::call3(libc::SYS_futex, bell as *const _ as usize, libc::FUTEX_WAKE as usize, 1) };
    }
}
