//! Bytes objects: files of the root whose small writes are gathered.

use crate::call::{call, call_open, closed, given, out, space, text, used};
use crate::handles::handle;
use crate::session::{create_from, terrace_session};
use std::ffi::{c_char, c_int, c_void};
use terrace_client::Bytes;

/// An open bytes object.
#[allow(non_camel_case_types)]
pub struct terrace_bytes {
    _private: (),
}

handle!(terrace_bytes, Bytes, "the bytes object", "bytes objects");

/// Makes a bytes object and opens it for reading and writing. `how`: one of terrace_create.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_bytes_create(
    session: *const terrace_session,
    name: *const c_char,
    how: c_int,
    bytes: *mut *mut terrace_bytes,
) -> c_int {
    call_open(bytes, || {
        let how = create_from(how)?;
        Ok(used(session)?.create_bytes(text(name, "the object's name")?, how)?)
    })
}

/// Opens a bytes object (any file of the root is one).
#[unsafe(no_mangle)]
pub extern "C" fn terrace_bytes_open(
    session: *const terrace_session,
    name: *const c_char,
    writable: bool,
    bytes: *mut *mut terrace_bytes,
) -> c_int {
    call_open(bytes, || Ok(used(session)?.open_bytes(text(name, "the object's name")?, writable)?))
}

/// Reads `count` bytes from `position` on. `got` may be NULL: then fewer are TERRACE_OUT_OF_BOUNDS; else it says how many there
/// were, which are fewer only at the end.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_bytes_read(
    bytes: *const terrace_bytes,
    position: u64,
    buffer: *mut c_void,
    count: usize,
    got: *mut usize,
) -> c_int {
    call(|| {
        let object = used(bytes)?;
        let buffer = space(buffer.cast::<u8>(), count, "the buffer")?;
        if got.is_null() {
            return Ok(object.read_exact_at(position, buffer)?);
        }
        *out(got, "the count")? = object.read_at(position, buffer)?;
        Ok(())
    })
}

/// Writes `count` bytes at `position`. Past the end the object grows; what lies between reads as zero. Small writes are
/// gathered: others see them after terrace_bytes_flush or terrace_bytes_close.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_bytes_write(
    bytes: *const terrace_bytes,
    position: u64,
    buffer: *const c_void,
    count: usize,
) -> c_int {
    call(|| Ok(used(bytes)?.write_at(position, given(buffer.cast::<u8>(), count, "the buffer")?)?))
}

/// Writes at the end that this handle knows. `position`, which may be NULL, is where it went.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_bytes_append(
    bytes: *const terrace_bytes,
    buffer: *const c_void,
    count: usize,
    position: *mut u64,
) -> c_int {
    call(|| {
        let at = used(bytes)?.append(given(buffer.cast::<u8>(), count, "the buffer")?)?;
        if !position.is_null() {
            *out(position, "the position")? = at;
        }
        Ok(())
    })
}

/// The length, with what is gathered.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_bytes_length(bytes: *const terrace_bytes, length: *mut u64) -> c_int {
    call(|| {
        *out(length, "the length")? = used(bytes)?.len()?;
        Ok(())
    })
}

/// Cuts it off at `length`, or makes it longer; what is new is zero.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_bytes_set_length(bytes: *const terrace_bytes, length: u64) -> c_int {
    call(|| Ok(used(bytes)?.set_len(length)?))
}

/// Publishes what is gathered: every other program sees it.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_bytes_flush(bytes: *const terrace_bytes) -> c_int {
    call(|| Ok(used(bytes)?.flush()?))
}

/// Publishes, and returns when it is as safe as its tier is.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_bytes_sync(bytes: *const terrace_bytes) -> c_int {
    call(|| Ok(used(bytes)?.sync()?))
}

/// Publishes and closes. The handle is closed even when publishing fails.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_bytes_close(bytes: *mut terrace_bytes) -> c_int {
    call(|| Ok(closed(bytes)?.flush()?))
}
