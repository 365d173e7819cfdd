//! Staging: a queue of puts, and the steps of a container as they become whole.
//!
//! Invariant: a buffer that was not copied is kept until a `sync` has returned; if that never comes, until the stager is collected,
//! which waits for its puts.

use crate::array::{Array, region};
use crate::bytes::{bytes_at, memory};
use crate::errors::{OrRaise, raise};
use crate::waiting;
use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use terrace_client::{Arrived, Full, Kind, Staged, StagerSpec, StepCursor};

#[pyclass(frozen, module = "terrace._native")]
pub struct Stager {
    stager: Arc<terrace_client::Stager>,
    /// Of puts that were not copied.
    lent: Mutex<Vec<PyUntypedBuffer>>,
}

#[pyclass(frozen, module = "terrace._native")]
pub struct Steps(Mutex<StepCursor>);

impl Stager {
    pub fn new(
        py: Python<'_>,
        session: &terrace_client::Session,
        queue_bytes: u64,
        drops: bool,
        threads: usize,
    ) -> PyResult<Stager> {
        let full = if drops { Full::Drop } else { Full::Block };
        let stager = session.stager(StagerSpec { queue_bytes, full, threads }).or_raise(py)?;
        Ok(Stager { stager: Arc::new(stager), lent: Mutex::default() })
    }
}

impl Steps {
    pub fn new(cursor: StepCursor) -> Steps {
        Steps(Mutex::new(cursor))
    }
}

#[pymethods]
impl Stager {
    /// False: the queue was full, and nothing of it will be put.
    #[allow(clippy::too_many_arguments)] // Python's wrapper gives them names
    fn put(
        &self,
        py: Python<'_>,
        array: &Array,
        offset: Vec<u64>,
        count: Vec<u64>,
        stride: Vec<u64>,
        cells: &Bound<'_, PyAny>,
        copies: bool,
    ) -> PyResult<bool> {
        let region = region(py, &offset, &count, &stride)?;
        let buffer = PyUntypedBuffer::get(cells)?;
        let memory = memory(&buffer, false)?;
        let array = array.inner();
        // SAFETY: `buffer` outlives the call; one that is not copied is kept below.
        let staged = py.detach(|| unsafe {
            match copies {
                true => self.stager.put(array, &region, bytes_at(memory)),
                false => self.stager.put_borrowed(array, &region, memory.0 as *const u8, memory.1),
            }
        });
        if !copies {
            self.lent.lock().unwrap_or_else(PoisonError::into_inner).push(buffer);
        }
        Ok(staged.or_raise(py)? == Staged::Queued)
    }

    fn begin_step(&self, py: Python<'_>, bytes: u64) -> PyResult<bool> {
        Ok(py.detach(|| self.stager.begin_step(bytes)).or_raise(py)? == Staged::Queued)
    }

    fn publish(&self, py: Python<'_>, container: &str, steps: u64) -> PyResult<()> {
        self.stager.publish(container, steps).or_raise(py)
    }

    /// False: not within the time given.
    fn sync(&self, py: Python<'_>, arrived: &str, timeout: Option<f64>) -> PyResult<bool> {
        let arrived = match arrived {
            "staged" => Arrived::Staged,
            "analysis" => Arrived::Analysis,
            "durable" => Arrived::Durable,
            other => return Err(PyValueError::new_err(format!("`{other}` is not one of: staged, analysis, durable"))),
        };
        let patience = waiting::patience(timeout)?;
        let staged = waiting::in_steps(py, patience, |step| until(&self.stager, Arrived::Staged, step))?;
        let Some(staged) = staged else { return Ok(false) };
        let lent = std::mem::take(&mut *self.lent.lock().unwrap_or_else(PoisonError::into_inner));
        drop(lent);
        // Later levels are waited for even if some put has failed: the others are to arrive.
        let stager = self.stager.clone();
        let done = match arrived {
            Arrived::Staged => Ok(()),
            _ => waiting::abandonable(py, move || Ok(stager.sync(arrived, patience)))?,
        };
        match (staged, done) {
            (Err(error), _) => Err(raise(py, error)),
            (Ok(()), Err(error)) if error.kind == Kind::Busy && patience.is_some() => Ok(false),
            (Ok(()), done) => done.or_raise(py).map(|()| true),
        }
    }

    fn counters<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let found = self.stager.counters();
        let counters = PyDict::new(py);
        let numbers = [
            ("queued_puts", found.queued_puts),
            ("queued_bytes", found.queued_bytes),
            ("queued_bytes_max", found.queued_bytes_max),
            ("done_puts", found.done_puts),
            ("done_bytes", found.done_bytes),
            ("joined_puts", found.joined_puts),
            ("dropped_puts", found.dropped_puts),
            ("dropped_bytes", found.dropped_bytes),
            ("dropped_steps", found.dropped_steps),
            ("failed_puts", found.failed_puts),
        ];
        for (name, number) in numbers {
            counters.set_item(name, number)?;
        }
        counters.set_item("blocked_s", found.blocked_s)?;
        counters.set_item("busy_s", found.busy_s)?;
        Ok(counters)
    }
}

/// `None`: not within this step.
fn until(stager: &terrace_client::Stager, arrived: Arrived, step: Duration) -> Option<terrace_client::Result<()>> {
    match stager.sync(arrived, Some(step)) {
        Err(error) if error.kind == Kind::Busy => None,
        done => Some(done),
    }
}

#[pymethods]
impl Steps {
    #[getter]
    fn position(&self) -> u64 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).position()
    }

    /// None: it did not come in the time given.
    fn next(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Option<u64>> {
        let next = |step| match self.0.lock().unwrap_or_else(PoisonError::into_inner).next(Some(step)) {
            Ok(None) => None,
            found => Some(found),
        };
        let found = waiting::in_steps(py, waiting::patience(timeout)?, next)?;
        found.map_or(Ok(None), |found| found.or_raise(py))
    }
}
