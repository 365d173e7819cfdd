//! Functions that are applied to regions as they are put or got.

use crate::array::{terrace_array, terrace_region};
use crate::call::{Failure, Outcome, call, text, used};
use std::ffi::{c_char, c_int, c_void};
use std::path::Path;
use terrace_client::When;

/// When a function is applied.
#[repr(C)]
#[allow(non_camel_case_types)]
pub enum terrace_when {
    /// To a copy of what is put, before anybody sees it.
    TERRACE_ON_PUT = 0,
    /// To the buffer, after a get.
    TERRACE_ON_GET = 1,
}

fn when(told: c_int) -> Outcome<When> {
    match told {
        0 => Ok(When::Put),
        1 => Ok(When::Get),
        other => Err(Failure::invalid(format!("{other} is not one of terrace_when"))),
    }
}

/// Applies a function to the cells of each region that is put, or got, by this handle, after those that were added before. It gets the region,
/// the cells' type by name, the cells (packed, in C order; it may change them), their bytes, and `context`; if it does not return 0 the
/// call fails, and nothing is put. Several threads may call it at once: those of the program, and those of transfers.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_array_hook(
    array: *const terrace_array,
    when: c_int,
    function: Option<
        unsafe extern "C" fn(
            region: *const terrace_region,
            data_type: *const c_char,
            cells: *mut c_void,
            bytes: usize,
            context: *mut c_void,
        ) -> c_int,
    >,
    context: *mut c_void,
) -> c_int {
    call(|| {
        let (array, when) = (used(array)?, self::when(when)?);
        let Some(function) = function else { return Err(Failure::invalid("the function is NULL")) };
        // SAFETY: both declarations of a region have one layout; the rest is the program's promise.
        unsafe {
            let function = std::mem::transmute::<
                unsafe extern "C" fn(*const terrace_region, *const c_char, *mut c_void, usize, *mut c_void) -> c_int,
                terrace_client::Foreign,
            >(function);
            array.hook_foreign(when, "of the program", function, context);
        }
        Ok(())
    })
}

/// As terrace_array_hook, with a function of a shared library, by its name. The library stays loaded.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_array_hook_library(
    array: *const terrace_array,
    when: c_int,
    library: *const c_char,
    symbol: *const c_char,
    context: *mut c_void,
) -> c_int {
    call(|| {
        let (array, when) = (used(array)?, self::when(when)?);
        let (library, symbol) = (text(library, "the library's path")?, text(symbol, "the function's name")?);
        // SAFETY: the program's promise.
        unsafe { array.hook_library(when, Path::new(library), symbol, context)? };
        Ok(())
    })
}

/// No function is applied any more.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_array_unhook(array: *const terrace_array) -> c_int {
    call(|| {
        used(array)?.unhook();
        Ok(())
    })
}
