//! Bytes objects. The Python half makes files of them.

use crate::errors::{OrRaise, raise};
use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::{PyBufferError, PyValueError};
use pyo3::prelude::*;
use std::sync::Mutex;
use terrace_client::ObjectError;

#[pyclass(frozen, module = "terrace._native")]
pub struct Bytes(Mutex<Option<terrace_client::Bytes>>);

/// A buffer's bytes as they lie in memory: address and length (an address alone may cross to where the lock is released).
pub fn memory(buffer: &PyUntypedBuffer, is_written: bool) -> PyResult<(usize, usize)> {
    if !buffer.is_c_contiguous() {
        return Err(PyBufferError::new_err("the buffer is not contiguous in C order"));
    }
    if is_written && buffer.readonly() {
        return Err(PyBufferError::new_err("the buffer is read-only"));
    }
    Ok((buffer.buf_ptr() as usize, buffer.len_bytes()))
}

/// # Safety
/// The buffer behind it is alive for as long as the slice.
pub unsafe fn bytes_at<'a>((address, length): (usize, usize)) -> &'a [u8] {
    // SAFETY: as the caller promises; an empty buffer's address may be null.
    if length == 0 { &[] } else { unsafe { std::slice::from_raw_parts(address as *const u8, length) } }
}

/// # Safety
/// As `bytes_at`, and the buffer is writable.
pub unsafe fn bytes_at_mut<'a>((address, length): (usize, usize)) -> &'a mut [u8] {
    // SAFETY: as the caller promises.
    if length == 0 { &mut [] } else { unsafe { std::slice::from_raw_parts_mut(address as *mut u8, length) } }
}

impl Bytes {
    pub fn new(bytes: terrace_client::Bytes) -> Bytes {
        Bytes(Mutex::new(Some(bytes)))
    }

    fn with<T: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&terrace_client::Bytes) -> terrace_client::Result<T> + Send,
    ) -> PyResult<T> {
        let done = py.detach(|| {
            let bytes = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            bytes.as_ref().map(call)
        });
        match done {
            Some(result) => result.or_raise(py),
            None => Err(PyValueError::new_err("I/O operation on closed file.")),
        }
    }
}

#[pymethods]
impl Bytes {
    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        self.with(py, |bytes| bytes.len()).map(|length| length as usize)
    }

    fn read_into(&self, py: Python<'_>, position: u64, buffer: &Bound<'_, PyAny>) -> PyResult<usize> {
        let buffer = PyUntypedBuffer::get(buffer)?;
        let memory = memory(&buffer, true)?;
        // SAFETY: `buffer` outlives the call.
        self.with(py, |bytes| bytes.read_at(position, unsafe { bytes_at_mut(memory) }))
    }

    fn write(&self, py: Python<'_>, position: u64, buffer: &Bound<'_, PyAny>) -> PyResult<usize> {
        let buffer = PyUntypedBuffer::get(buffer)?;
        let memory = memory(&buffer, false)?;
        if position.checked_add(memory.1 as u64).is_none_or(|end| end > i64::MAX as u64) {
            return Err(raise(py, ObjectError::invalid(format!("a write at {position}: it is too far away"))));
        }
        // SAFETY: `buffer` outlives the call.
        self.with(py, |bytes| bytes.write_at(position, unsafe { bytes_at(memory) }))?;
        Ok(memory.1)
    }

    /// Where it went.
    fn append(&self, py: Python<'_>, buffer: &Bound<'_, PyAny>) -> PyResult<u64> {
        let buffer = PyUntypedBuffer::get(buffer)?;
        let memory = memory(&buffer, false)?;
        // SAFETY: `buffer` outlives the call.
        self.with(py, |bytes| bytes.append(unsafe { bytes_at(memory) }))
    }

    fn set_length(&self, py: Python<'_>, length: u64) -> PyResult<()> {
        self.with(py, |bytes| bytes.set_len(length))
    }

    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, |bytes| bytes.flush())
    }

    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, |bytes| bytes.sync())
    }

    /// Closing twice is allowed, as of files.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let closed = py.detach(|| {
            let taken = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).take();
            taken.map(terrace_client::Bytes::close)
        });
        closed.unwrap_or(Ok(())).or_raise(py)
    }
}
