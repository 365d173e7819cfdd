//! Bytes objects: files of the root whose small writes are gathered.

use crate::call::{Outcome, call, closed, given, opened, out, space, text, used};
use crate::handles::{Handles, Used};
use crate::session::{create_from, session, terrace_session};
use std::ffi::{c_char, c_int, c_void};
use terrace_client::Bytes;

/// An open bytes object.
#[allow(non_camel_case_types)]
pub struct terrace_bytes {
    _private: (),
}

static OBJECTS: Handles<Bytes> = Handles::new();

fn object<'a>(handle: *const terrace_bytes) -> Outcome<Used<'a, Bytes>> {
    used(&OBJECTS, handle, "the bytes object")
}

/// Makes a bytes object and opens it for reading and writing. `how`: one of terrace_create.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_bytes_create(
    session: *const terrace_session,
    name: *const c_char,
    how: c_int,
    bytes: *mut *mut terrace_bytes,
) -> c_int {
    call(|| {
        out(bytes, "the handle")?;
        let how = create_from(how)?;
        let object = self::session(session)?.create_bytes(text(name, "the object's name")?, how)?;
        opened(&OBJECTS, object, bytes, "bytes objects")
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
    call(|| {
        out(bytes, "the handle")?;
        let object = self::session(session)?.open_bytes(text(name, "the object's name")?, writable)?;
        opened(&OBJECTS, object, bytes, "bytes objects")
    })
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
        let object = object(bytes)?;
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
    call(|| Ok(object(bytes)?.write_at(position, given(buffer.cast::<u8>(), count, "the buffer")?)?))
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
        let at = object(bytes)?.append(given(buffer.cast::<u8>(), count, "the buffer")?)?;
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
        *out(length, "the length")? = object(bytes)?.len()?;
        Ok(())
    })
}

/// Cuts it off at `length`, or makes it longer; what is new is zero.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_bytes_set_length(bytes: *const terrace_bytes, length: u64) -> c_int {
    call(|| Ok(object(bytes)?.set_len(length)?))
}

/// Publishes what is gathered: every other program sees it.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_bytes_flush(bytes: *const terrace_bytes) -> c_int {
    call(|| Ok(object(bytes)?.flush()?))
}

/// Publishes, and returns when it is as safe as its tier is.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_bytes_sync(bytes: *const terrace_bytes) -> c_int {
    call(|| Ok(object(bytes)?.sync()?))
}

/// Publishes and closes. The handle is closed even when publishing fails.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_bytes_close(bytes: *mut terrace_bytes) -> c_int {
    call(|| Ok(closed(&OBJECTS, bytes, "the bytes object")?.flush()?))
}
