//! stdio: a stream is opened on a descriptor of ours. Its own reads and writes need no hook but those of entry.rs.

use crate::path::descriptor_link;
use crate::{entry, gate, open, process, real};
use core::ffi::{CStr, c_char, c_int, c_void};

/// The open flags of an fopen(3) mode, `None` if it is none (then the C library says so).
fn flags_of(mode: &[u8]) -> Option<i32> {
    let mut flags = match mode.first()? {
        b'r' => libc::O_RDONLY,
        b'w' => libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC,
        b'a' => libc::O_WRONLY | libc::O_CREAT | libc::O_APPEND,
        _ => return None,
    };
    for byte in &mode[1..] {
        match byte {
            b'+' => flags = flags & !libc::O_ACCMODE | libc::O_RDWR,
            b'x' => flags |= libc::O_EXCL,
            b'e' => flags |= libc::O_CLOEXEC,
            b',' => break,
            _ => {}
        }
    }
    Some(flags)
}

/// `everywhere`: also what lies outside the root.
unsafe fn open_stream(path: *const c_char, mode: *const c_char, everywhere: bool) -> Option<c_int> {
    let index = process::index()?;
    if path.is_null() || mode.is_null() {
        return None;
    }
    // SAFETY: the program's C string.
    let mode = unsafe { CStr::from_ptr(mode) }.to_bytes();
    // `,` begins a character set, which only the C library's own fopen knows.
    if (!everywhere || mode.contains(&b','))
        && !process::may_be_below_root(index, libc::AT_FDCWD, path)
        && !open::may_be_inside(index, path)
    {
        return None;
    }
    let flags = flags_of(mode)?;
    Some(real::outcome(open::open_at(libc::AT_FDCWD, path, flags, 0o666)) as c_int)
}

/// A stream that the C library has opened by itself.
unsafe fn opened(stream: *mut c_void, mode: *const c_char) -> *mut c_void {
    if !stream.is_null() {
        // SAFETY: the C library has read it.
        let flags = flags_of(unsafe { CStr::from_ptr(mode) }.to_bytes()).unwrap_or(0);
        open::may_be_written(0, flags);
    }
    stream
}

macro_rules! stream_hooks {
    ($($fopen:ident $fopen_name:literal, $freopen:ident $freopen_name:literal;)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $fopen(path: *const c_char, mode: *const c_char) -> *mut c_void {
            // Its own open, and the look at the file before the first read, would go to the supervisor.
            entry::expect_internal_calls();
            // SAFETY: the program's arguments, in all of this.
            unsafe {
                match open_stream(path, mode, gate::is_served()) {
                    None => {
                        let real = crate::real!($fopen_name: fn(*const c_char, *const c_char) -> *mut c_void);
                        opened(real(path, mode), mode)
                    }
                    Some(fd) if fd < 0 => core::ptr::null_mut(),
                    Some(fd) => {
                        let stream = crate::real!("fdopen": fn(c_int, *const c_char) -> *mut c_void)(fd, mode);
                        if stream.is_null() {
                            gate::call1(libc::SYS_close, fd as usize);
                        }
                        stream
                    }
                }
            }
        }

        /// The stream opens our descriptor anew through its magic link, which leads to the object.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $freopen(path: *const c_char, mode: *const c_char, stream: *mut c_void) -> *mut c_void {
            // SAFETY: the program's arguments, in all of this.
            unsafe {
                let real = crate::real!($freopen_name: fn(*const c_char, *const c_char, *mut c_void) -> *mut c_void);
                match open_stream(path, mode, false) {
                    None => opened(real(path, mode, stream), mode),
                    Some(fd) if fd < 0 => {
                        // The stream is closed all the same, as freopen(3) says.
                        let errno = real::errno();
                        crate::data_calls::fclose(stream);
                        real::set_errno(errno);
                        core::ptr::null_mut()
                    }
                    Some(fd) => {
                        let link = descriptor_link(fd);
                        let mut without_x = [0 as c_char; 64];
                        copy_mode(mode, &mut without_x);
                        let result = real(link.as_ptr() as *const c_char, without_x.as_ptr(), stream);
                        gate::call1(libc::SYS_close, fd as usize);
                        if !result.is_null() {
                            let fileno = crate::real!("fileno": fn(*mut c_void) -> c_int);
                            crate::data::forget(fileno(result));
                        }
                        result
                    }
                }
            }
        }
    )*};
}

stream_hooks! {
    fopen "fopen", freopen "freopen";
    fopen64 "fopen64", freopen64 "freopen64";
}

/// setlocale(3) looks at a dozen files; most programs begin with it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn setlocale(category: c_int, locale: *const c_char) -> *mut c_char {
    if !locale.is_null() {
        entry::expect_many_internal_calls();
    }
    let real = crate::real!("setlocale": fn(c_int, *const c_char) -> *mut c_char);
    // SAFETY: the program's own arguments.
    unsafe { real(category, locale) }
}

/// The mode without `x`: the file exists by now, because we made it.
unsafe fn copy_mode(mode: *const c_char, out: &mut [c_char; 64]) {
    // SAFETY: the program's C string.
    let mode = unsafe { CStr::from_ptr(mode) }.to_bytes();
    let kept = mode.iter().filter(|&&byte| byte != b'x').take(out.len() - 1);
    for (to, from) in out.iter_mut().zip(kept) {
        *to = *from as c_char;
    }
}
