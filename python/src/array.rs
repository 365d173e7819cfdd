//! Arrays and region locks. Regions come as offsets, counts and strides; cells as a contiguous buffer of any type.

use crate::bytes::{bytes_at, bytes_at_mut, memory};
use crate::errors::{OrRaise, raise};
use crate::transfer::Transfer;
use crate::{session, waiting};
use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use std::path::PathBuf;
use std::sync::Mutex;
use terrace_client::{Kind, LockMode, ObjectError, Placement, Region, RegionLock, Spreading, When};

#[pyclass(frozen, module = "terrace._native")]
pub struct Array(terrace_client::Array);

#[pyclass(frozen, module = "terrace._native")]
pub struct Lock(Mutex<Option<RegionLock>>);

/// Offset, count, stride and bytes.
type Staged = (Vec<u64>, Vec<u64>, Vec<u64>, u64);

pub fn region(py: Python<'_>, offset: &[u64], count: &[u64], stride: &[u64]) -> PyResult<Region> {
    Region::strided(offset, count, stride).or_raise(py)
}

impl Array {
    pub fn new(array: terrace_client::Array) -> Array {
        Array(array)
    }

    pub fn inner(&self) -> &terrace_client::Array {
        &self.0
    }
}

#[pymethods]
impl Array {
    fn spec<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        session::describe(py, self.0.spec())
    }

    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.0.shape().or_raise(py)?)
    }

    /// The agent that has all of it; None where agents share it, chunk by chunk.
    #[getter]
    fn keeper(&self) -> Option<u32> {
        let spec = self.0.spec();
        match self.0.keeper(&vec![0; spec.rank()]) {
            Some(_) if spec.placement == Placement::Spread => None,
            keeper => Some(keeper.unwrap_or(0)),
        }
    }

    /// What says which agent keeps which chunk, where a root has several.
    #[getter]
    fn spreading(&self) -> (u64, u64, u64) {
        self.0.spreading().map_or((0, 0, 0), |Spreading { own, common, chunks }| (own, common, chunks))
    }

    #[getter]
    fn is_writable(&self) -> bool {
        self.0.is_writable()
    }

    fn put(
        &self,
        py: Python<'_>,
        offset: Vec<u64>,
        count: Vec<u64>,
        stride: Vec<u64>,
        cells: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let region = region(py, &offset, &count, &stride)?;
        let buffer = PyUntypedBuffer::get(cells)?;
        let memory = memory(&buffer, false)?;
        // SAFETY: `buffer` outlives the call.
        py.detach(|| self.0.put(&region, unsafe { bytes_at(memory) })).or_raise(py)
    }

    fn get(
        &self,
        py: Python<'_>,
        offset: Vec<u64>,
        count: Vec<u64>,
        stride: Vec<u64>,
        cells: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let region = region(py, &offset, &count, &stride)?;
        let buffer = PyUntypedBuffer::get(cells)?;
        let memory = memory(&buffer, true)?;
        // SAFETY: `buffer` outlives the call.
        py.detach(|| self.0.get(&region, unsafe { bytes_at_mut(memory) })).or_raise(py)
    }

    fn start(
        &self,
        py: Python<'_>,
        is_put: bool,
        offset: Vec<u64>,
        count: Vec<u64>,
        stride: Vec<u64>,
        cells: &Bound<'_, PyAny>,
    ) -> PyResult<Transfer> {
        let region = region(py, &offset, &count, &stride)?;
        let buffer = PyUntypedBuffer::get(cells)?;
        let memory = memory(&buffer, !is_put)?;
        Ok(Transfer::start(&self.0, &region, is_put, buffer, memory))
    }

    fn grow(&self, py: Python<'_>, shape: Vec<u64>) -> PyResult<()> {
        py.detach(|| self.0.grow(&shape)).or_raise(py)
    }

    fn resize(&self, py: Python<'_>, shape: Vec<u64>) -> PyResult<()> {
        py.detach(|| self.0.resize(&shape)).or_raise(py)
    }

    /// A function of a shared library; whoever names it vouches for it.
    fn hook_library(&self, py: Python<'_>, is_put: bool, library: PathBuf, symbol: &str) -> PyResult<()> {
        let when = if is_put { When::Put } else { When::Get };
        // SAFETY: the caller's promise, as with ctypes.
        unsafe { self.0.hook_library(when, &library, symbol, std::ptr::null_mut()) }.or_raise(py)
    }

    fn unhook(&self) {
        self.0.unhook();
    }

    fn lock(
        &self,
        py: Python<'_>,
        offset: Vec<u64>,
        count: Vec<u64>,
        stride: Vec<u64>,
        mode: &str,
        timeout: Option<f64>,
    ) -> PyResult<Lock> {
        let region = region(py, &offset, &count, &stride)?;
        let mode = match mode {
            "read" => LockMode::Read,
            "write" => LockMode::Write,
            other => return Err(PyValueError::new_err(format!("`{other}` is not one of: read, write"))),
        };
        let refused = Mutex::new(None);
        let patience = waiting::patience(timeout)?;
        let locked = waiting::in_steps(py, patience, |step| match self.0.lock(&region, mode, Some(step)) {
            Err(error) if error.kind == Kind::Busy => {
                *refused.lock().expect("nothing panics while it is held") = Some(error);
                None
            }
            result => Some(result),
        })?;
        match locked {
            Some(result) => result.or_raise(py).map(|lock| Lock(Mutex::new(Some(lock)))),
            None => {
                let error = refused.into_inner().ok().flatten();
                Err(raise(py, error.unwrap_or_else(|| ObjectError::new(Kind::Busy, format!("{region} is locked")))))
            }
        }
    }

    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        let array = self.0.clone();
        waiting::abandonable(py, move || array.flush())
    }

    /// Offset, count, stride and bytes of each staged region, oldest first.
    fn staged_regions(&self, py: Python<'_>) -> PyResult<Vec<Staged>> {
        let staged = py.detach(|| self.0.staged_regions()).or_raise(py)?;
        let parts = |(region, bytes): (Region, u64)| {
            (region.offset().to_vec(), region.count().to_vec(), region.stride().to_vec(), bytes)
        };
        Ok(staged.into_iter().map(parts).collect())
    }
}

/// Which of so many agents has each chunk of a block of the grid, in C order: all work out the same, without asking.
#[pyfunction]
pub fn keepers(spreading: (u64, u64, u64), agents: u32, first: Vec<u64>, count: Vec<u64>) -> Vec<u32> {
    let (own, common, chunks) = spreading;
    let mut chunk = first.clone();
    let cells: u64 = count.iter().product();
    (0..cells)
        .map(|_| {
            let keeper = Spreading { own, common, chunks }.keeper(&chunk, agents);
            for dimension in (0..chunk.len()).rev() {
                chunk[dimension] += 1;
                if chunk[dimension] < first[dimension] + count[dimension] {
                    break;
                }
                chunk[dimension] = first[dimension];
            }
            keeper
        })
        .collect()
}

#[pymethods]
impl Lock {
    #[getter]
    fn is_held(&self) -> bool {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).is_some()
    }

    /// Releasing twice is allowed.
    fn release(&self) {
        drop(self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).take());
    }
}
