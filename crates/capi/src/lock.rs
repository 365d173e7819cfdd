//! Region locks, and memory that is tied to a region.

use crate::array::{region, region_of, terrace_array, terrace_region};
use crate::call::{Failure, Outcome, call, call_close, call_open, check_memory, used};
use crate::handles::handle;
use crate::session::patience;
use std::ffi::{c_int, c_void};
use std::sync::{Mutex, MutexGuard};
use terrace_client::{Array, LockMode, Region, RegionLock};

/// A lock that is held.
#[allow(non_camel_case_types)]
pub struct terrace_lock {
    _private: (),
}

/// Memory of the program, tied to a region.
#[allow(non_camel_case_types)]
pub struct terrace_mapping {
    _private: (),
}

/// What a lock allows.
#[repr(C)]
#[allow(non_camel_case_types)]
pub enum terrace_lock_mode {
    /// Others may read, too.
    TERRACE_READ = 0,
    /// Nobody else has an overlapping lock.
    TERRACE_WRITE = 1,
}

pub struct Tied {
    array: Array,
    region: Region,
    buffer: *mut u8,
    bytes: usize,
    lock: Mutex<Option<RegionLock>>,
}

// SAFETY: the memory is the program's, which promised that it stays; it is touched only inside calls.
unsafe impl Send for Tied {}
// SAFETY: as above, and one call at a time: each holds the mutex.
unsafe impl Sync for Tied {}

handle!(terrace_lock, RegionLock, "the lock", "locks");
handle!(terrace_mapping, Tied, "the mapping", "mappings");

fn mode_from(mode: c_int) -> Outcome<LockMode> {
    match mode {
        0 => Ok(LockMode::Read),
        1 => Ok(LockMode::Write),
        other => Err(Failure::invalid(format!("{other} is not one of terrace_lock_mode"))),
    }
}

impl Tied {
    fn held(&self) -> MutexGuard<'_, Option<RegionLock>> {
        self.lock.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// Locks a region against overlapping locks of all programs. `mode`: one of terrace_lock_mode. Waits so many seconds (0: does
/// not wait; less: for as long as it takes); TERRACE_BUSY: it was not to be had. A process that ends holds no lock any more.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_array_lock(
    array: *const terrace_array,
    region: *const terrace_region,
    mode: c_int,
    seconds: f64,
    lock: *mut *mut terrace_lock,
) -> c_int {
    call_open(lock, || {
        let array = used(array)?;
        let held = array.lock(&self::region(region)?, mode_from(mode)?, patience(seconds)?)?;
        Ok(held)
    })
}

/// Lets others have the region.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_lock_release(lock: *mut terrace_lock) -> c_int {
    call_close(lock)
}

/// Ties memory to a region; it must stay until terrace_unmap.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_map(
    array: *const terrace_array,
    region: *const terrace_region,
    buffer: *mut c_void,
    bytes: usize,
    mapping: *mut *mut terrace_mapping,
) -> c_int {
    call_open(mapping, || {
        let array = used(array)?;
        let region = region_of(&array, region, bytes)?;
        let buffer = buffer.cast::<u8>();
        check_memory(buffer, bytes, "the buffer")?;
        let tied = Tied { array: array.clone(), region, buffer, bytes, lock: Mutex::new(None) };
        Ok(tied)
    })
}

/// Locks the mapping's region and brings its cells into the memory.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_mapping_lock(mapping: *const terrace_mapping, mode: c_int, seconds: f64) -> c_int {
    call(|| {
        let tied = used(mapping)?;
        let mut held = tied.held();
        if held.is_some() {
            return Err(Failure::invalid(format!("{} is locked by this mapping already", tied.region)));
        }
        let mode = mode_from(mode)?;
        let lock = tied.array.lock(&tied.region, mode, patience(seconds)?)?;
        // What an unlimited dimension does not have yet is about to be written.
        if mode == LockMode::Read || tied.region.check_within(&tied.array.shape()?).is_ok() {
            // SAFETY: the program gave so many bytes that stay until they are unmapped.
            unsafe { tied.array.get_raw(&tied.region, tied.buffer, tied.bytes)? };
        }
        *held = Some(lock);
        Ok(())
    })
}

/// Publishes the memory, if it was locked for writing, and lets others have the region.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_mapping_release(mapping: *const terrace_mapping) -> c_int {
    call(|| {
        let tied = used(mapping)?;
        let Some(lock) = tied.held().take() else {
            return Err(Failure::invalid(format!("{} is not locked by this mapping", tied.region)));
        };
        if lock.mode() == LockMode::Write {
            // SAFETY: the program gave so many bytes that stay until they are unmapped.
            unsafe { tied.array.put_raw(&tied.region, tied.buffer, tied.bytes)? };
        }
        Ok(())
    })
}

/// Ends the tie. What was written under a lock that was not released is not published.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_unmap(mapping: *mut terrace_mapping) -> c_int {
    call_close(mapping)
}
