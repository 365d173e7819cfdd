//! Transfers: puts and gets that go on while the program does.
//!
//!   created ──start──▶ started ──wait──▶ done ──start──▶ …
//!
//! Invariant: the program's memory is not touched before the start nor after a wait that succeeded, failed, or closed it.

use crate::array::{region_of, terrace_array, terrace_region};
use crate::call::{Failure, Outcome, call, call_close, call_open, check_memory, given, out, used};
use crate::handles::handle;
use crate::session::patience;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};
use terrace_client::{Array, Kind, Region, Transfer};

/// A put or a get that can be started.
#[allow(non_camel_case_types)]
pub struct terrace_transfer {
    _private: (),
}

/// Which way a transfer goes.
#[repr(C)]
#[allow(non_camel_case_types)]
pub enum terrace_direction {
    /// From the program's memory into the array.
    TERRACE_PUT = 0,
    /// From the array into the program's memory.
    TERRACE_GET = 1,
}

pub struct Planned {
    array: Array,
    region: Region,
    is_put: bool,
    cells: *mut u8,
    bytes: usize,
    started: Mutex<Option<Transfer>>,
    /// It was started and waited for at least once.
    was_waited_for: AtomicBool,
}

// SAFETY: the memory is the program's, which promised to leave it to the transfer; we only hand its address on.
unsafe impl Send for Planned {}
// SAFETY: as above; what changes is in the mutex.
unsafe impl Sync for Planned {}

handle!(terrace_transfer, Planned, "the transfer", "transfers");

impl Planned {
    fn started(&self) -> MutexGuard<'_, Option<Transfer>> {
        self.started.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn start(&self) -> Outcome<()> {
        let mut started = self.started();
        if started.is_some() {
            return Err(Failure::invalid("the transfer is under way already: wait for it first"));
        }
        // SAFETY: the program promised, when it made the transfer, that the memory stays until it was waited for.
        *started = Some(unsafe {
            match self.is_put {
                true => Transfer::start_put_raw(&self.array, &self.region, self.cells, self.bytes),
                false => Transfer::start_get_raw(&self.array, &self.region, self.cells, self.bytes),
            }
        });
        Ok(())
    }

    /// `patience`: `None` for as long as it takes.
    fn wait(&self, patience: Option<Duration>) -> Outcome<()> {
        let mut started = self.started();
        let Some(transfer) = started.as_ref() else {
            return Err(Failure::invalid("the transfer was not started, or was waited for already"));
        };
        let Some(result) = transfer.wait_for(patience) else {
            return Err(Failure::new(Kind::Busy, "the transfer is not done yet"));
        };
        *started = None;
        self.was_waited_for.store(true, Relaxed);
        result.map(drop).map_err(Failure::from)
    }
}

impl Drop for Planned {
    fn drop(&mut self) {
        if self.started().is_some() {
            let _ = self.wait(None);
        }
    }
}

/// Makes a transfer of a region. `direction`: one of terrace_direction. `cells` must stay where it is, and be left alone, from
/// each start until it was waited for.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_transfer_create(
    array: *const terrace_array,
    direction: c_int,
    region: *const terrace_region,
    cells: *mut c_void,
    bytes: usize,
    transfer: *mut *mut terrace_transfer,
) -> c_int {
    call_open(transfer, || {
        let array = used(array)?;
        let is_put = match direction {
            0 => true,
            1 => false,
            other => return Err(Failure::invalid(format!("{other} is not one of terrace_direction"))),
        };
        let region = region_of(&array, region, bytes)?;
        let cells = cells.cast::<u8>();
        check_memory(cells, bytes, "the buffer")?;
        let (started, was_waited_for) = (Mutex::new(None), AtomicBool::new(false));
        Ok(Planned { array: array.clone(), region, is_put, cells, bytes, started, was_waited_for })
    })
}

/// Starts it and returns at once. It needs no further call to go on.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_transfer_start(transfer: *const terrace_transfer) -> c_int {
    call(|| used(transfer)?.start())
}

/// Whether a started transfer is done, well or not. One that was waited for is.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_transfer_test(transfer: *const terrace_transfer, done: *mut bool) -> c_int {
    call(|| {
        let transfer = used(transfer)?;
        let done = out(done, "the answer")?;
        *done = match transfer.started().as_ref() {
            Some(started) => started.test(),
            None if transfer.was_waited_for.load(Relaxed) => true,
            None => return Err(Failure::invalid("the transfer was not started")),
        };
        Ok(())
    })
}

/// Waits until it is done, for so many seconds (less than 0: for as long as it takes), and says how it went; TERRACE_BUSY: it
/// is not done yet. Afterwards the memory is the program's, and the transfer may be started again.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_transfer_wait(transfer: *const terrace_transfer, seconds: f64) -> c_int {
    call(|| used(transfer)?.wait(patience(seconds)?))
}

/// Starts several. The first that can't be started ends it.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_transfers_start(transfers: *const *mut terrace_transfer, count: usize) -> c_int {
    call(|| given(transfers, count, "the list of transfers")?.iter().try_for_each(|&one| used(one)?.start()))
}

/// Waits for all of several, for so many seconds together, and gives the first failure. TERRACE_BUSY: some are not done yet.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_transfers_wait(transfers: *const *mut terrace_transfer, count: usize, seconds: f64) -> c_int {
    call(|| {
        let end = patience(seconds)?.map(|patience| Instant::now() + patience);
        let mut first = Ok(());
        for &one in given(transfers, count, "the list of transfers")? {
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            first = first.and(used(one).and_then(|transfer| transfer.wait(left)));
        }
        first
    })
}

/// Waits for it if it was started, and forgets it.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_transfer_close(transfer: *mut terrace_transfer) -> c_int {
    call_close(transfer)
}
