//! The C library's own functions, found when first needed, and errno.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::sync::atomic::{AtomicPtr, Ordering::*};

unsafe extern "C" {
    fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
    fn __errno_location() -> *mut c_int;
    pub static mut environ: *const *const c_char;
}

const RTLD_NEXT: *mut c_void = -1isize as *mut c_void;

pub fn set_errno(errno: c_int) {
    // SAFETY: libc's own per-thread location.
    unsafe { *__errno_location() = errno }
}

pub fn errno() -> c_int {
    // SAFETY: as above.
    unsafe { *__errno_location() }
}

/// A raw result as the C library returns it: -1 and errno.
pub fn outcome(raw: isize) -> isize {
    if (-4095..0).contains(&raw) {
        set_errno(-raw as c_int);
        -1
    } else {
        raw
    }
}

/// The kernel's result again, from a function's as the C library returns it.
pub fn raw(outcome: isize) -> isize {
    if outcome == -1 { -(errno() as isize) } else { outcome }
}

/// A function of the next library, looked up once.
pub struct Real {
    name: &'static CStr,
    pub found: AtomicPtr<c_void>,
}

impl Real {
    pub const fn new(name: &'static CStr) -> Real {
        Real { name, found: AtomicPtr::new(core::ptr::null_mut()) }
    }
    pub fn get(&self) -> *mut c_void {
        let found = self.found.load(Relaxed);
        if !found.is_null() {
            return found;
        }
        // SAFETY: a C string and the pseudo handle of dlsym(3).
        let found = unsafe { dlsym(RTLD_NEXT, self.name.as_ptr()) };
        // Another thread may have put a trampoline here meanwhile: with the entry again, the hook would call itself for ever.
        match self.found.compare_exchange(core::ptr::null_mut(), found, AcqRel, Acquire) {
            Ok(_) => found,
            Err(theirs) => theirs,
        }
    }
}

type Write = unsafe extern "C" fn(c_int, *const c_void, usize) -> isize;
type Read = unsafe extern "C" fn(c_int, *mut c_void, usize) -> isize;

/// What `entry.rs` replaces by trampolines where it patches the C library.
pub static WRITE: Real = Real::new(c"write");
pub static READ: Real = Real::new(c"read");

pub fn real_write() -> Write {
    // SAFETY: write(2)'s signature; the pointer is libc's function or its trampoline.
    unsafe { core::mem::transmute::<*mut c_void, Write>(WRITE.get()) }
}

pub fn real_read() -> Read {
    // SAFETY: as above.
    unsafe { core::mem::transmute::<*mut c_void, Read>(READ.get()) }
}

/// `real!("name": fn(args) -> ret)` gives the next library's function as an `unsafe extern "C" fn`.
/// A name that this libc lacks gives a function that must not be called: our hook of that name is never reached then.
#[macro_export]
macro_rules! real {
    ($name:literal : fn($($arg:ty),* $(,)?) -> $ret:ty) => {{
        static REAL: $crate::real::Real = $crate::real::Real::new(
            match core::ffi::CStr::from_bytes_with_nul(concat!($name, "\0").as_bytes()) { Ok(name) => name, Err(_) => panic!() });
        // SAFETY: the C library's function of this name has this signature.
        #[allow(unused_unsafe)] // some callers are in an unsafe block already
        let function = unsafe {
            core::mem::transmute::<*mut core::ffi::c_void, unsafe extern "C" fn($($arg),*) -> $ret>(REAL.get())
        };
        function
    }};
}
