//! What every call does: run, remember why it failed, let no panic out.

use crate::handles::{Handle, Used};
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};
use terrace_client::{Kind, ObjectError};

/// What a call returns.
#[repr(C)]
#[allow(non_camel_case_types, clippy::upper_case_acronyms)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum terrace_code {
    TERRACE_OK = 0,
    /// There is no object of this name.
    TERRACE_NOT_FOUND = 1,
    /// The name is taken.
    TERRACE_EXISTS = 2,
    /// Another kind of object than the call needs, or one that was opened for reading only.
    TERRACE_WRONG_KIND = 3,
    /// A type, rank, count or option that makes no sense.
    TERRACE_INVALID = 4,
    /// A region that does not lie inside the array, or a read past a file's end.
    TERRACE_OUT_OF_BOUNDS = 5,
    /// The last tier is full.
    TERRACE_NO_SPACE = 6,
    /// A lock or an object was not to be had in the time given.
    TERRACE_BUSY = 7,
    /// No agent answers.
    TERRACE_NO_AGENT = 8,
    /// The token is wrong, or the files belong to another user.
    TERRACE_DENIED = 9,
    /// The agent does not speak this language, or sent something broken.
    TERRACE_PROTOCOL = 10,
    /// The operating system said no.
    TERRACE_SYSTEM = 11,
    /// The object's files are damaged.
    TERRACE_DAMAGED = 12,
    /// A handle that is NULL, was closed, or never was one.
    TERRACE_BAD_HANDLE = 13,
    /// A defect of Terrace itself.
    TERRACE_INTERNAL = 14,
}

/// Why a call failed: a client's error, or one that only this boundary knows.
pub struct Failure {
    code: c_int,
    message: String,
}

pub type Outcome<T> = Result<T, Failure>;

impl From<ObjectError> for Failure {
    fn from(error: ObjectError) -> Failure {
        let message = match error.hint {
            Some(hint) => format!("{}\nhint: {hint}", error.message),
            None => error.message,
        };
        Failure { code: error.kind as c_int, message }
    }
}

impl Failure {
    pub fn new(kind: Kind, message: impl Into<String>) -> Failure {
        Failure { code: kind as c_int, message: message.into() }
    }
    pub fn invalid(message: impl Into<String>) -> Failure {
        Failure::new(Kind::Invalid, message)
    }
}

thread_local! {
    static LAST: RefCell<Option<CString>> = const { RefCell::new(None) };
}

fn remember(message: String) {
    let mut bytes = message.into_bytes();
    bytes.retain(|&byte| byte != 0);
    let text = CString::new(bytes).expect("zero bytes were taken out");
    // A thread that is ending has nobody to tell.
    let _ = LAST.try_with(|last| last.replace(Some(text)));
}

/// Runs one call.
pub fn call(work: impl FnOnce() -> Outcome<()>) -> c_int {
    let failure = match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(())) => return terrace_code::TERRACE_OK as c_int,
        Ok(Err(failure)) => failure,
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no reason was given");
            let message = format!("Terrace has a defect: {text}");
            Failure { code: terrace_code::TERRACE_INTERNAL as c_int, message }
        }
    };
    remember(failure.message);
    failure.code
}

/// What the last call of this thread that failed says: what failed, on what, and (after "hint: " on a line of its own) what to
/// do. "" when none has failed. Valid until the thread's next call that fails.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_error() -> *const c_char {
    LAST.try_with(|last| last.borrow().as_ref().map(|text| text.as_ptr())).ok().flatten().unwrap_or(c"".as_ptr())
}

/// The version of this library.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}

/// The handle's value, if it is open.
pub fn used<H: Handle>(handle: *const H) -> Outcome<Used<'static, H::Value>> {
    H::table().get(handle.addr() as u64).ok_or_else(|| bad_handle(handle))
}

/// The value of a handle that means nothing from now on.
pub fn closed<H: Handle>(handle: *const H) -> Outcome<Used<'static, H::Value>> {
    H::table().close(handle.addr() as u64).ok_or_else(|| bad_handle(handle))
}

fn bad_handle<H: Handle>(handle: *const H) -> Failure {
    let how = if handle.is_null() { "is NULL" } else { "was closed, or never was one" };
    Failure { code: terrace_code::TERRACE_BAD_HANDLE as c_int, message: format!("the handle of {} {how}", H::ONE) }
}

/// Runs a call that makes a value and gives its handle. The place for it is looked at first: nothing is made that nobody could use.
pub fn call_open<H: Handle>(handle: *mut *mut H, make: impl FnOnce() -> Outcome<H::Value>) -> c_int {
    call(|| {
        let out = out(handle, H::ONE)?;
        let number = H::table().open(make()?).ok_or_else(|| {
            let message =
                format!("65536 handles of {} are open: no more are possible\nhint: close those not used", H::MANY);
            Failure::new(Kind::Busy, message)
        })?;
        *out = std::ptr::without_provenance_mut(number as usize);
        Ok(())
    })
}

/// Runs a call that closes a handle.
pub fn call_close<H: Handle>(handle: *const H) -> c_int {
    call(|| closed(handle).map(drop))
}

/// A place for a result.
pub fn out<'a, T>(pointer: *mut T, what: &str) -> Outcome<&'a mut T> {
    if pointer.is_null() {
        return Err(Failure::invalid(format!("the place for {what} is NULL")));
    }
    // SAFETY: the caller gives a place for one value, which is ours for the time of the call.
    Ok(unsafe { &mut *pointer })
}

pub fn text<'a>(pointer: *const c_char, what: &str) -> Outcome<&'a str> {
    if pointer.is_null() {
        return Err(Failure::invalid(format!("{what} is NULL")));
    }
    // SAFETY: the caller gives a string that ends with a zero byte and stays for the time of the call.
    let bytes = unsafe { CStr::from_ptr(pointer) };
    bytes.to_str().map_err(|_| Failure::invalid(format!("{what} is not UTF-8: {bytes:?}")))
}

/// Memory that the caller gives to be read; `count` in values of `T`.
pub fn given<'a, T>(pointer: *const T, count: usize, what: &str) -> Outcome<&'a [T]> {
    check_memory(pointer, count, what)?;
    if count == 0 {
        return Ok(&[]);
    }
    // SAFETY: the caller says that so many values lie there and stay for the time of the call.
    Ok(unsafe { std::slice::from_raw_parts(pointer, count) })
}

/// Memory that the caller gives to be filled.
pub fn space<'a, T>(pointer: *mut T, count: usize, what: &str) -> Outcome<&'a mut [T]> {
    check_memory(pointer, count, what)?;
    if count == 0 {
        return Ok(&mut []);
    }
    // SAFETY: the caller gives room for so many values, which is ours for the time of the call.
    Ok(unsafe { std::slice::from_raw_parts_mut(pointer, count) })
}

/// Memory that is kept for later must not be NULL, either.
pub fn check_memory<T>(pointer: *const T, count: usize, what: &str) -> Outcome<()> {
    if count > 0 && (pointer.is_null() || !pointer.is_aligned()) {
        return Err(Failure::invalid(format!("{what} is NULL or not aligned")));
    }
    if count > isize::MAX as usize / size_of::<T>().max(1) {
        return Err(Failure::invalid(format!("{what} has {count} values: more than memory can have")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn last() -> String {
        // SAFETY: `terrace_error` gives a string of this thread.
        unsafe { CStr::from_ptr(terrace_error()) }.to_str().unwrap().to_owned()
    }

    #[test]
    fn a_panic_becomes_a_code_and_a_message() {
        assert_eq!(call(|| panic!("the {}", "reason")), terrace_code::TERRACE_INTERNAL as c_int);
        assert_eq!(last(), "Terrace has a defect: the reason");
        assert_eq!(call(|| Ok(())), 0);
        assert_eq!(last(), "Terrace has a defect: the reason");
    }

    #[test]
    fn codes_are_the_kinds_numbers() {
        for number in 1..=12 {
            assert_eq!(Kind::of(number).map(|kind| kind as i32), Some(number));
        }
        assert_eq!(Kind::of(terrace_code::TERRACE_BAD_HANDLE as i32), None);
        assert_eq!(Kind::NotFound as i32, terrace_code::TERRACE_NOT_FOUND as i32);
        assert_eq!(Kind::Damaged as i32, terrace_code::TERRACE_DAMAGED as i32);
    }

    #[test]
    fn an_error_has_its_hint_on_a_line_of_its_own() {
        let error = ObjectError::new(Kind::NoAgent, "no agent").hint("start one");
        assert_eq!(call(|| Err(error.into())), terrace_code::TERRACE_NO_AGENT as c_int);
        assert_eq!(last(), "no agent\nhint: start one");
    }
}
