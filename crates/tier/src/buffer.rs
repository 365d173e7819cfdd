//! Memory that files are read into: one buffer for each thread, for a fresh one would fault in its pages for every file.
//!
//! It begins with a page. `malloc` gives large memory 16 bytes behind one, and that is where some processors' copy instruction is slow:
//! on AMD Zen 3 `read` takes three times as long.

use memmap2::MmapMut;
use std::cell::Cell;
use std::io;

/// As many as a file is copied by.
pub const BUFFER_BYTES: usize = 1 << 20;

thread_local! {
    static BUFFER: Cell<Option<MmapMut>> = const { Cell::new(None) };
}

/// Lends this thread's buffer, which has `BUFFER_BYTES` of whatever was read last. It fails where there is no memory.
pub fn with_buffer<R>(use_it: impl FnOnce(&mut [u8]) -> R) -> io::Result<R> {
    let mut buffer = match BUFFER.take() {
        Some(buffer) => buffer,
        None => MmapMut::map_anon(BUFFER_BYTES)?,
    };
    let result = use_it(&mut buffer);
    BUFFER.set(Some(buffer));
    Ok(result)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_begins_with_a_page_and_is_lent_again() {
        let start = |buffer: &mut [u8]| (buffer.as_ptr() as usize, buffer.len());
        let first = with_buffer(start).unwrap();
        assert_eq!((first.0 % 4096, first.1), (0, BUFFER_BYTES));
        assert_eq!(with_buffer(start).unwrap(), first);
        let within = with_buffer(|_| with_buffer(start).unwrap()).unwrap();
        assert_ne!(within.0, first.0, "one that is lent is nobody else's");
    }
}
