//! Patching the entries of the C library's own `write`, `read` and `lseek`.
//!
//! stdio calls them inside libc, past every preloaded symbol, and throws a buffer away when its write fails: a stream that
//! outgrows its tier could not be saved from outside. So, in a process that writes placed files, the first bytes of these
//! functions become a jump to our hook, and what was there moves to a trampoline that the hook calls.
//!
//! In a supervised process, also those that the C library calls by itself, because each such call would go to the supervisor:
//! `getdents64` and `fstatat` for each directory and stream that it opens, `readlink` for each component of a realpath(3) (a
//! compiler makes a thousand of them for one source file), and `execve` for each directory of PATH.
//!
//! Only two forms of first instruction are patched (after an optional `endbr64`, or `mov %ecx, %r10d`), both known to be movable:
//!   80 3d rel32 00   cmpb $0, disp(%rip)     (the single-thread check; rel32 is adjusted)
//!   b8 imm32         mov $nr, %eax
//! Anything else stays as it is: then stdio on a placed file gets ENOSPC when the tier's file system is full, and `terrace
//! doctor` says so. The store is one aligned 8-byte write, so another thread sees the old entry or the new one.

use crate::gate;
use crate::real::{READ, Real, WRITE};
use core::ffi::c_void;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering::*};

static LSEEK: Real = Real::new(c"lseek");
static GETDENTS: Real = Real::new(c"getdents64");
static FSTATAT: Real = Real::new(c"fstatat64");
static READLINK: Real = Real::new(c"readlink");
static EXECVE: Real = Real::new(c"execve");
/// The hooks that are jumped to; `lib.rs` names them, because they stand above this module.
pub struct Hooks {
    pub write: *const (),
    pub read: *const (),
    pub lseek: *const (),
    pub getdents64: *const (),
    pub fstatat: *const (),
    pub readlink: *const (),
    pub execve: *const (),
}

// SAFETY: addresses of functions.
unsafe impl Sync for Hooks {}

/// 0: not yet; 1: done or under way.
static PATCHED: AtomicU32 = AtomicU32::new(0);
static TRAMPOLINES: AtomicPtr<u8> = AtomicPtr::new(core::ptr::null_mut());

const PAGE: usize = 4096;
const TRAMPOLINE_BYTES: usize = 64;

/// Patches once per process (a forked child has it already). Cheap when it is done.
pub fn patch() {
    if PATCHED.load(Relaxed) != 0 || PATCHED.swap(1, AcqRel) != 0 {
        return;
    }
    // SAFETY: the three functions of the C library with our hooks of the same signatures.
    unsafe {
        let page = page_near(WRITE.get() as usize);
        if page.is_null() {
            return;
        }
        TRAMPOLINES.store(page, Release);
        patch_one(&WRITE, crate::HOOKS.write as usize, page);
        patch_one(&READ, crate::HOOKS.read as usize, page.add(TRAMPOLINE_BYTES));
        patch_one(&LSEEK, crate::HOOKS.lseek as usize, page.add(2 * TRAMPOLINE_BYTES));
        gate::call3(libc::SYS_mprotect, page as usize, PAGE, (libc::PROT_READ | libc::PROT_EXEC) as usize);
    }
}

/// How often the C library was asked for what it does by calls that go to the supervisor.
static SERVED: AtomicU32 = AtomicU32::new(0);
/// So many pay for patching, which is a few system calls and a copied page.
const SERVED_MIN: u32 = 2;

/// The C library is about to look at a directory or a stream by calls of its own.
#[inline]
pub fn expect_internal_calls() {
    if gate::is_served() && SERVED.load(Relaxed) < SERVED_MIN {
        patch_looks();
    }
}

/// The C library is about to look at many files of its own: those of a locale.
#[inline]
pub fn expect_many_internal_calls() {
    if gate::is_served() && SERVED.load(Relaxed) < SERVED_MIN {
        SERVED.store(SERVED_MIN - 1, Relaxed);
        patch_looks();
    }
}

#[cold]
fn patch_looks() {
    if SERVED.fetch_add(1, AcqRel) + 1 != SERVED_MIN {
        return;
    }
    // SAFETY: two functions of the C library with our hooks of the same signatures.
    unsafe {
        let near = GETDENTS.get() as usize;
        let page = if near == 0 { core::ptr::null_mut() } else { page_near(near) };
        if !page.is_null() {
            patch_one(&GETDENTS, crate::HOOKS.getdents64 as usize, page);
            patch_one(&FSTATAT, crate::HOOKS.fstatat as usize, page.add(TRAMPOLINE_BYTES));
            gate::call3(libc::SYS_mprotect, page as usize, PAGE, (libc::PROT_READ | libc::PROT_EXEC) as usize);
        }
    }
}

static READLINK_LED: AtomicU32 = AtomicU32::new(0);
static EXECVE_LED: AtomicU32 = AtomicU32::new(0);

/// The C library is about to read links by calls of its own.
#[inline]
pub fn expect_internal_readlink() {
    if gate::is_served() && READLINK_LED.load(Relaxed) == 0 {
        lead(&READLINK_LED, &READLINK, crate::HOOKS.readlink as usize);
    }
}

/// The C library is about to start programs by calls of its own. A vfork child may come here: what it patches, its parent keeps.
#[inline]
pub fn expect_internal_execve() {
    if gate::is_served() && EXECVE_LED.load(Relaxed) == 0 {
        lead(&EXECVE_LED, &EXECVE, crate::HOOKS.execve as usize);
    }
}

/// Leads one function of the C library to our hook, once.
#[cold]
fn lead(led: &AtomicU32, function: &Real, hook: usize) {
    if led.swap(1, AcqRel) != 0 {
        return;
    }
    // SAFETY: a function of the C library with our hook of the same signature.
    unsafe {
        let near = function.get() as usize;
        let page = if near == 0 { core::ptr::null_mut() } else { page_near(near) };
        if !page.is_null() {
            patch_one(function, hook, page);
            gate::call3(libc::SYS_mprotect, page as usize, PAGE, (libc::PROT_READ | libc::PROT_EXEC) as usize);
        }
    }
}

/// A writable page within reach of a 32-bit jump from `address`.
unsafe fn page_near(address: usize) -> *mut u8 {
    const MIB: usize = 1 << 20;
    for step in 1..256 {
        for hint in [address.wrapping_sub(step * 4 * MIB), address.wrapping_add(step * 4 * MIB)] {
            // SAFETY: MAP_FIXED_NOREPLACE never touches an existing mapping.
            let made = unsafe {
                gate::call6(
                    libc::SYS_mmap,
                    hint & !(PAGE - 1),
                    PAGE,
                    (libc::PROT_READ | libc::PROT_WRITE) as usize,
                    (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE) as usize,
                    usize::MAX,
                    0,
                )
            };
            if made > 0 {
                return made as *mut u8;
            }
        }
    }
    core::ptr::null_mut()
}

/// `mov %ecx, %r10d`: the fourth argument, from a function's register to a system call's.
const MOVE: [u8; 3] = [0x41, 0x89, 0xca];

unsafe fn patch_one(real: &Real, hook: usize, start_of_trampoline: *mut u8) {
    let trampoline = start_of_trampoline;
    let function = real.get() as *mut u8;
    // SAFETY: `function` is the entry of a function in libc's text, longer than 16 bytes; the trampoline has 64 bytes.
    unsafe {
        if function.is_null() {
            return;
        }
        let endbr: usize = if core::slice::from_raw_parts(function, 4) == [0xf3, 0x0f, 0x1e, 0xfa] { 4 } else { 0 };
        // An instruction that stays where it is, and does the hook no harm.
        let has_move = core::slice::from_raw_parts(function.add(endbr), 3) == MOVE;
        let site = function.add(endbr + if has_move { MOVE.len() } else { 0 });
        // Where the jump is written must not cross an aligned 8-byte word.
        if site as usize % 8 + 5 > 8 {
            return;
        }
        let first = core::slice::from_raw_parts(site, 7);
        let trampoline = match has_move {
            true => {
                core::ptr::copy_nonoverlapping(MOVE.as_ptr(), trampoline, MOVE.len());
                trampoline.add(MOVE.len())
            }
            false => trampoline,
        };
        let moved = match (first[0], first[1], first[6]) {
            (0x80, 0x3d, 0x00) => {
                let relative = i32::from_le_bytes([first[2], first[3], first[4], first[5]]) as i64;
                let target = site as i64 + 7 + relative;
                let Ok(adjusted) = i32::try_from(target - (trampoline as i64 + 7)) else { return };
                core::ptr::copy_nonoverlapping(first.as_ptr(), trampoline, 7);
                core::ptr::copy_nonoverlapping(adjusted.to_le_bytes().as_ptr(), trampoline.add(2), 4);
                7
            }
            (0xb8, ..) => {
                core::ptr::copy_nonoverlapping(first.as_ptr(), trampoline, 5);
                5
            }
            _ => return,
        };
        // Back into the function, after what was moved.
        write_jump(trampoline.add(moved), site.add(moved) as usize);
        // The library may lie farther away than a 32-bit jump reaches: go by way of an absolute jump beside the trampoline.
        let bridge = trampoline.add(32);
        write_jump(bridge, hook);
        let Ok(distance) = i32::try_from(bridge as i64 - (site as i64 + 5)) else { return };

        let start = site as usize & !(PAGE - 1);
        let all = (libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC) as usize;
        if gate::call3(libc::SYS_mprotect, start, 2 * PAGE, all) != 0 {
            return; // a hardened system: stays unpatched
        }
        let word = &*((site as usize & !7) as *const AtomicU64);
        let mut bytes = word.load(Relaxed).to_le_bytes();
        let at = site as usize % 8;
        bytes[at] = 0xe9;
        bytes[at + 1..at + 5].copy_from_slice(&distance.to_le_bytes());
        // The hook must find the trampoline before anybody jumps to the hook.
        gate::call3(
            libc::SYS_mprotect,
            trampoline as usize & !(PAGE - 1),
            PAGE,
            (libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC) as usize,
        );
        real.found.store(start_of_trampoline as *mut c_void, SeqCst);
        word.store(u64::from_le_bytes(bytes), SeqCst);
        gate::call3(libc::SYS_mprotect, start, 2 * PAGE, (libc::PROT_READ | libc::PROT_EXEC) as usize);
    }
}

/// `jmp *0(%rip)` and the address.
unsafe fn write_jump(at: *mut u8, to: usize) {
    // SAFETY: 14 bytes of the trampoline's slot.
    unsafe {
        core::ptr::copy_nonoverlapping([0xff, 0x25, 0, 0, 0, 0].as_ptr(), at, 6);
        core::ptr::copy_nonoverlapping(to.to_le_bytes().as_ptr(), at.add(6), 8);
    }
}
