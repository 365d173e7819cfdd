//! Calls that take a path and are otherwise the kernel's: where the path goes up from a placed directory, `..` is the root's. And those
//! that tell the working directory, which may be a placed one.

use crate::path::Path;
use crate::placed::{self, Way};
use crate::{gate, process, real, spill};
use core::ffi::{c_char, c_int, c_void};
use terrace_index::PATH_MAX;

const CWD: c_int = libc::AT_FDCWD;

macro_rules! path_calls {
    ($($name:ident($($before:ident: $before_type:ty,)* @$path:ident $(, $after:ident: $after_type:ty)*) from $dirfd:expr, $nr:expr, [$($argument:expr),*];)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($before: $before_type,)* $path: *const c_char $(, $after: $after_type)*) -> c_int {
            let way = Way::of($dirfd, $path);
            let $path = way.path();
            // SAFETY: the program's own arguments, or the same path spelt out.
            let make = || unsafe { gate::call4($nr, $($argument as usize),*) };
            real::outcome(spill::with_room(way.dirfd(), $path, make)) as c_int
        }
    )*};
}

path_calls! {
    mknod(@path, mode: u32, device: u64) from CWD, libc::SYS_mknodat, [CWD, path, mode, device];
    mknodat(dirfd: c_int, @path, mode: u32, device: u64) from dirfd, libc::SYS_mknodat, [dirfd, path, mode, device];
    mkfifo(@path, mode: u32) from CWD, libc::SYS_mknodat, [CWD, path, mode | libc::S_IFIFO, 0];
    mkfifoat(dirfd: c_int, @path, mode: u32) from dirfd, libc::SYS_mknodat, [dirfd, path, mode | libc::S_IFIFO, 0];
}

/// Those that the C library does in a way of its own.
macro_rules! through {
    ($($name:ident($($before:ident: $before_type:ty,)* @$path:ident $(, $after:ident: $after_type:ty)*) -> $answer:ty, from $dirfd:expr;)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($before: $before_type,)* $path: *const c_char $(, $after: $after_type)*) -> $answer {
            let real = $crate::real_named!($name: fn($($before_type,)* *const c_char $(, $after_type)*) -> $answer);
            let way = Way::of($dirfd, $path);
            // SAFETY: the program's own arguments, or the same path spelt out.
            unsafe { real($($before,)* way.path() $(, $after)*) }
        }
    )*};
}

through! {
    opendir(@path) -> *mut c_void, from CWD;
}

/// The working directory by its name in the root; `None`: it is not in a placed directory.
fn working_directory() -> Option<Path> {
    let index = process::index().filter(|&index| placed::any(index))?;
    let (mut text, mut shown) = (Path::new(), Path::new());
    (text.of_working_directory() && placed::shown(index, text.get(), &mut shown)).then_some(shown)
}

unsafe extern "C" {
    fn malloc(size: usize) -> *mut c_char;
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn getcwd(out: *mut c_char, size: usize) -> *mut c_char {
    let real = crate::real!("getcwd": fn(*mut c_char, usize) -> *mut c_char);
    let Some(shown) = working_directory() else {
        // SAFETY: the program's own arguments.
        return unsafe { real(out, size) };
    };
    let needed = shown.get().len() + 1;
    if !out.is_null() && size == 0 {
        real::set_errno(libc::EINVAL);
        return core::ptr::null_mut();
    }
    if size < needed && !(out.is_null() && size == 0) {
        real::set_errno(libc::ERANGE);
        return core::ptr::null_mut();
    }
    // SAFETY: the program's buffer of `size` bytes, or one of the C library's of as many.
    unsafe {
        let to = if out.is_null() { malloc(needed.max(size)) } else { out };
        if !to.is_null() {
            core::ptr::copy_nonoverlapping(shown.as_ptr(), to, needed);
        }
        to
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn __getcwd_chk(out: *mut c_char, size: usize, limit: usize) -> *mut c_char {
    assert!(size <= limit, "a checked getcwd beyond its buffer");
    // SAFETY: the program's own arguments.
    unsafe { getcwd(out, size) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn getwd(out: *mut c_char) -> *mut c_char {
    if out.is_null() {
        real::set_errno(libc::EINVAL);
        return out;
    }
    // SAFETY: getwd(3) wants PATH_MAX bytes.
    unsafe { getcwd(out, PATH_MAX) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn __getwd_chk(out: *mut c_char, _limit: usize) -> *mut c_char {
    // SAFETY: as above.
    unsafe { getwd(out) }
}

/// $PWD if it names the working directory, else as getcwd.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn get_current_dir_name() -> *mut c_char {
    let real = crate::real!("get_current_dir_name": fn() -> *mut c_char);
    // SAFETY: no arguments.
    let given = unsafe { real() };
    let Some(index) = process::index().filter(|&index| placed::any(index) && !given.is_null()) else { return given };
    // SAFETY: the C library's own string.
    let text = unsafe { core::ffi::CStr::from_ptr(given) }.to_bytes();
    let mut shown = Path::new();
    if !placed::shown(index, text, &mut shown) {
        return given;
    }
    unsafe extern "C" {
        fn free(pointer: *mut c_void);
    }
    // SAFETY: the C library's string is ours to free; getcwd makes another.
    unsafe {
        free(given as *mut c_void);
        getcwd(core::ptr::null_mut(), 0)
    }
}
