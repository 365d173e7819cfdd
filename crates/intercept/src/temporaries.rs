//! Temporary files below the root are new files like others: mkstemp(3) and its family, which open inside libc.

use crate::{create, open, process, real};
use core::ffi::{CStr, c_char, c_int};

const LETTERS: &[u8; 62] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
/// glibc tries 62^3 names.
const ATTEMPTS: usize = 238_328;

fn make(template: *mut c_char, suffix_len: c_int, flags: c_int) -> c_int {
    // SAFETY: the program's C string, which it lets us change.
    let len = unsafe { CStr::from_ptr(template) }.to_bytes().len();
    let Some(start) = usize::try_from(suffix_len).ok().and_then(|suffix| len.checked_sub(suffix + 6)) else {
        real::set_errno(libc::EINVAL);
        return -1;
    };
    // SAFETY: six bytes inside the string.
    let place = unsafe { core::slice::from_raw_parts_mut(template.add(start) as *mut u8, 6) };
    if place != b"XXXXXX" {
        real::set_errno(libc::EINVAL);
        return -1;
    }
    let flags = (flags & !libc::O_ACCMODE) | libc::O_RDWR | libc::O_CREAT | libc::O_EXCL;
    for _ in 0..ATTEMPTS {
        let mut random = create::random();
        for byte in place.iter_mut() {
            *byte = LETTERS[(random % 62) as usize];
            random /= 62;
        }
        let fd = open::open_at(libc::AT_FDCWD, template, flags, 0o600);
        if fd != -(libc::EEXIST as isize) {
            if fd < 0 {
                place.copy_from_slice(b"XXXXXX");
            }
            return real::outcome(fd) as c_int;
        }
    }
    real::set_errno(libc::EEXIST);
    -1
}

macro_rules! temporary_hooks {
    ($($name:ident $name64:ident ($($arg:ident),*) $suffix:expr, $flags:expr;)*) => {$(
        temporary_hooks!(@one $name ($($arg),*) $suffix, $flags);
        temporary_hooks!(@one $name64 ($($arg),*) $suffix, $flags);
    )*};
    (@one $name:ident ($($arg:ident),*) $suffix:expr, $flags:expr) => {
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(template: *mut c_char, $($arg: c_int),*) -> c_int {
            match process::index() {
                Some(index) if process::may_be_below_root(index, libc::AT_FDCWD, template) => {
                    make(template, $suffix, $flags)
                }
                _ => {
                    let real = $crate::real_named!($name: fn(*mut c_char, $(temporary_hooks!(@int $arg)),*) -> c_int);
                    // SAFETY: the program's own arguments.
                    unsafe { real(template, $($arg),*) }
                }
            }
        }
    };
    (@int $arg:ident) => { c_int };
}

temporary_hooks! {
    mkstemp mkstemp64 () 0, 0;
    mkostemp mkostemp64 (flags) 0, flags;
    mkstemps mkstemps64 (suffix_len) suffix_len, 0;
    mkostemps mkostemps64 (suffix_len, flags) suffix_len, flags;
}
