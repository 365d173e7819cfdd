//! Whether memory that a program names can be read: a bad address is EFAULT to the kernel, and must not end the program here.
//!
//!   address ─▶ its page was found readable before? ──no──▶ the kernel reads eight bytes of it (no call of its own is cheaper)
//!
//! Pages that were found readable are remembered, so that a path costs a comparison. A page that a program gives away, or protects, by
//! the functions that we see is forgotten (`forget`).
//! Invariant: a byte of a program's path is read here only if its page was found readable.

use crate::gate;
use core::ffi::{c_char, c_int, c_void};
use core::sync::atomic::{AtomicUsize, Ordering::*};

const PAGE: usize = 4096;
const KNOWN: usize = 256;
const WORD: usize = 8;

/// Numbers of pages, each in the place that its number says. No program has a page 0.
static PAGES: [AtomicUsize; KNOWN] = [const { AtomicUsize::new(0) }; KNOWN];

#[inline]
fn has_page(address: usize) -> bool {
    let page = address / PAGE;
    PAGES[page % KNOWN].load(Relaxed) == page && page != 0 || ask(page)
}

/// rt_sigprocmask(2) reads the set before it looks at what is to be done with it, which is nothing that there is.
#[cold]
fn ask(page: usize) -> bool {
    const NO_SUCH_CHANGE: usize = 0x7e44;
    // SAFETY: the kernel reads eight bytes, or doesn't; nothing is changed.
    let answer = unsafe { gate::call4(libc::SYS_rt_sigprocmask, NO_SUCH_CHANGE, page.wrapping_mul(PAGE), 0, WORD) };
    let is_readable = page != 0 && answer != -(libc::EFAULT as isize);
    if is_readable {
        PAGES[page % KNOWN].store(page, Relaxed);
    }
    is_readable
}

/// All bytes of a C string, with its terminator, can be read.
#[inline]
pub fn is_text(text: *const c_char) -> bool {
    let mut at = text as usize;
    loop {
        if !has_page(at) {
            return false;
        }
        let end = (at | (PAGE - 1)).wrapping_add(1);
        // SAFETY: the page can be read; an aligned word lies on it as a whole.
        unsafe {
            while !at.is_multiple_of(WORD) {
                if *(at as *const u8) == 0 {
                    return true;
                }
                at += 1;
            }
            while at != end {
                let word = *(at as *const u64);
                if word.wrapping_sub(0x0101_0101_0101_0101) & !word & 0x8080_8080_8080_8080 != 0 {
                    return true;
                }
                at += WORD;
            }
        }
        if at == 0 {
            return false;
        }
    }
}

/// So many bytes can be read.
pub fn are_bytes(address: *const c_void, count: usize) -> bool {
    let first = address as usize;
    let Some(last) = first.checked_add(count.max(1) - 1) else { return false };
    (first / PAGE..=last / PAGE).all(|page| has_page(page * PAGE))
}

/// A null-terminated array of C strings (or no array: Linux takes that as an empty one) can be read.
pub fn are_texts(array: *const *const c_char) -> bool {
    let mut at = array;
    while !at.is_null() {
        if !are_bytes(at as *const c_void, size_of::<*const c_char>()) {
            return false;
        }
        // SAFETY: found readable.
        match unsafe { *at } {
            end if end.is_null() => return true,
            text if !is_text(text) => return false,
            _ => at = at.wrapping_add(1),
        }
    }
    true
}

/// The pages may not be there any more, or not for reading.
pub fn forget(address: usize, length: usize) {
    let (first, count) = (address / PAGE, length.div_ceil(PAGE));
    if count >= KNOWN {
        PAGES.iter().for_each(|page| page.store(0, Relaxed));
        return;
    }
    for page in first..first + count {
        let known = &PAGES[page % KNOWN];
        if known.load(Relaxed) == page {
            known.store(0, Relaxed);
        }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn munmap(address: *mut c_void, length: usize) -> c_int {
    // SAFETY: the program's own arguments, here and below.
    let result = unsafe { gate::call2(libc::SYS_munmap, address as usize, length) };
    forget(address as usize, length);
    crate::real::outcome(result) as c_int
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn mprotect(address: *mut c_void, length: usize, protection: c_int) -> c_int {
    let result = unsafe { gate::call3(libc::SYS_mprotect, address as usize, length, protection as usize) };
    if protection & libc::PROT_READ == 0 {
        forget(address as usize, length);
    }
    crate::real::outcome(result) as c_int
}
