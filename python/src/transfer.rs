//! Transfers between arrays and the buffers of Python objects.
//!
//!   start ─▶ STARTED keeps the buffer ─▶ done ─▶ taken out when its result is asked for, or it is collected
//!
//! Invariant: a buffer is not given back before its transfer is done, whatever becomes of the Python object.
//! STARTED is locked only with the interpreter's lock held, so a fork never copies it locked.

use crate::errors::OrRaise;
use crate::waiting;
use pyo3::buffer::PyUntypedBuffer;
use pyo3::prelude::*;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use terrace_client::{Array, ObjectError, Region};

#[pyclass(frozen, module = "terrace._native")]
pub struct Transfer {
    number: u64,
    inner: Arc<Inner>,
}

struct Inner {
    transfer: terrace_client::Transfer,
    /// Of its end, when somebody has asked.
    outcome: Mutex<Option<Result<(), ObjectError>>>,
    /// Given back with the interpreter's lock, which its own drop takes.
    _buffer: PyUntypedBuffer,
}

static STARTED: Mutex<Option<HashMap<u64, Arc<Inner>>>> = Mutex::new(None);
static NUMBER: AtomicU64 = AtomicU64::new(0);
/// So many are looked through for finished ones when another is started.
const CROWD: usize = 64;

fn started() -> MutexGuard<'static, Option<HashMap<u64, Arc<Inner>>>> {
    STARTED.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

impl Inner {
    /// True: it is done, and its outcome is known.
    fn wait(&self, step: Duration) -> bool {
        let mut outcome = self.outcome.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if outcome.is_none() {
            *outcome = self.transfer.wait_for(Some(step)).map(|result| result.map(|_| ()));
        }
        outcome.is_some()
    }
}

impl Transfer {
    pub fn start(
        array: &Array,
        region: &Region,
        is_put: bool,
        buffer: PyUntypedBuffer,
        (address, bytes): (usize, usize),
    ) -> Transfer {
        // SAFETY: `buffer` is kept in STARTED until the transfer is done.
        let transfer = unsafe {
            match is_put {
                true => terrace_client::Transfer::start_put_raw(array, region, address as *const u8, bytes),
                false => terrace_client::Transfer::start_get_raw(array, region, address as *mut u8, bytes),
            }
        };
        let inner = Arc::new(Inner { transfer, outcome: Mutex::new(None), _buffer: buffer });
        let number = NUMBER.fetch_add(1, Relaxed);
        let mut finished = vec![];
        {
            let mut started = started();
            let started = started.get_or_insert_default();
            if started.len() >= CROWD && started.len().is_power_of_two() {
                let done: Vec<u64> =
                    started.iter().filter(|(_, inner)| inner.transfer.test()).map(|(number, _)| *number).collect();
                finished.extend(done.iter().filter_map(|number| started.remove(number)));
            }
            started.insert(number, inner.clone());
        }
        // Outside the lock: giving a buffer back runs Python code.
        drop(finished);
        Transfer { number, inner }
    }

    fn forget(&self) {
        let taken = started().as_mut().and_then(|started| started.remove(&self.number));
        drop(taken);
    }
}

#[pymethods]
impl Transfer {
    fn done(&self) -> bool {
        self.inner.transfer.test()
    }

    /// False: it is not done yet. Raises what it failed with.
    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<bool> {
        let patience = waiting::patience(timeout)?;
        if waiting::in_steps(py, patience, |step| self.inner.wait(step).then_some(()))?.is_none() {
            return Ok(false);
        }
        self.forget();
        let outcome = self.inner.outcome.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone();
        outcome.unwrap_or(Ok(())).or_raise(py).map(|()| true)
    }
}

impl Drop for Transfer {
    fn drop(&mut self) {
        if self.inner.transfer.test() {
            self.forget();
        }
    }
}

/// Waits for all that is under way: at the interpreter's end nothing that was started is cut off.
#[pyfunction]
pub fn finish_transfers(py: Python<'_>) -> PyResult<()> {
    let all: Vec<Arc<Inner>> = started().take().into_iter().flat_map(HashMap::into_values).collect();
    for inner in all {
        waiting::in_steps(py, None, |step| inner.wait(step).then_some(()))?;
    }
    Ok(())
}
