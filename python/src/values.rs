//! Questions about values: comparisons joined by and/or, what meets them, histograms.

use crate::array::{Array, region};
use crate::bytes::{bytes_at_mut, memory};
use crate::errors::{OrRaise, raise};
use pyo3::buffer::PyUntypedBuffer;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use terrace_client::{Kind, ObjectError, Region};

#[pyclass(frozen, module = "terrace._native")]
pub struct Where(terrace_client::Where);

#[pyclass(frozen, module = "terrace._native")]
pub struct Selected(terrace_client::Selection);

/// Offset and count of a block; `None`: all cells.
type Block = Option<(Vec<u64>, Vec<u64>)>;

fn within(py: Python<'_>, block: Block) -> PyResult<Option<Region>> {
    block.map(|(offset, count)| region(py, &offset, &count, &vec![1; offset.len()])).transpose()
}

#[pymethods]
impl Where {
    #[new]
    fn new(py: Python<'_>, array: &Array, comparison: &str) -> PyResult<Where> {
        terrace_client::Where::new(array.inner(), comparison).or_raise(py).map(Where)
    }

    fn both(&self, other: &Where) -> Where {
        Where(self.0.clone().and(other.0.clone()))
    }

    fn either(&self, other: &Where) -> Where {
        Where(self.0.clone().or(other.0.clone()))
    }

    fn select(&self, py: Python<'_>, block: Block) -> PyResult<Selected> {
        let within = within(py, block)?;
        py.detach(|| self.0.select(within.as_ref())).or_raise(py).map(Selected)
    }
}

#[pymethods]
impl Selected {
    #[getter]
    fn count(&self) -> u64 {
        self.0.count()
    }

    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.0.shape())
    }

    /// Into a buffer of `count` numbers of 64 bits.
    fn positions_into(&self, py: Python<'_>, buffer: &Bound<'_, PyAny>) -> PyResult<()> {
        let buffer = PyUntypedBuffer::get(buffer)?;
        let memory = memory(&buffer, true)?;
        // SAFETY: `buffer` outlives the call.
        let places = unsafe { bytes_at_mut(memory) };
        check(py, self.0.count() as u128 * 8, places.len())?;
        places
            .chunks_exact_mut(8)
            .zip(self.0.positions())
            .for_each(|(place, at)| place.copy_from_slice(&at.to_ne_bytes()));
        Ok(())
    }

    /// Into a buffer of `count` cells.
    fn data_into(&self, py: Python<'_>, array: &Array, buffer: &Bound<'_, PyAny>) -> PyResult<()> {
        let buffer = PyUntypedBuffer::get(buffer)?;
        let memory = memory(&buffer, true)?;
        // SAFETY: `buffer` outlives the call.
        let place = unsafe { bytes_at_mut(memory) };
        check(py, self.0.count() as u128 * array.inner().spec().data_type.size() as u128, place.len())?;
        let data = py.detach(|| self.0.data(array.inner())).or_raise(py)?;
        place.copy_from_slice(&data);
        Ok(())
    }
}

fn check(py: Python<'_>, wanted: u128, bytes: usize) -> PyResult<()> {
    if wanted == bytes as u128 {
        return Ok(());
    }
    Err(raise(py, ObjectError::new(Kind::Invalid, format!("the selection has {wanted} bytes, the buffer {bytes}"))))
}

/// Least, greatest, and how many cells each bin has.
#[pyfunction]
pub fn histogram(
    py: Python<'_>,
    array: &Array,
    block: Block,
    bins: usize,
    bounds: Option<(f64, f64)>,
) -> PyResult<(f64, f64, Vec<u64>)> {
    let within = within(py, block)?;
    let found = py.detach(|| terrace_client::histogram(array.inner(), within.as_ref(), bins, bounds)).or_raise(py)?;
    Ok((found.low, found.high, found.counts))
}
