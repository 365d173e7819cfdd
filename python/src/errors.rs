//! Errors of the client as exceptions of `terrace.errors`, which has one class for each kind.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyDict;
use terrace_client::ObjectError;

static CLASSES: PyOnceLock<Py<PyDict>> = PyOnceLock::new();

fn exception(py: Python<'_>, error: &ObjectError) -> PyResult<PyErr> {
    let classes = CLASSES.get_or_try_init(py, || {
        let found = py.import("terrace.errors")?.getattr("BY_KIND")?;
        Ok::<_, PyErr>(found.cast_into::<PyDict>()?.unbind())
    })?;
    let class = classes.bind(py).as_any().get_item(error.kind as i32)?;
    let raised = class.call1((error.message.as_str(), error.hint.as_deref()))?;
    Ok(PyErr::from_value(raised))
}

pub fn raise(py: Python<'_>, error: ObjectError) -> PyErr {
    exception(py, &error).unwrap_or_else(|failure| failure)
}

/// `?` for results of the client.
pub trait OrRaise<T> {
    fn or_raise(self, py: Python<'_>) -> PyResult<T>;
}

impl<T> OrRaise<T> for terrace_client::Result<T> {
    fn or_raise(self, py: Python<'_>) -> PyResult<T> {
        self.map_err(|error| raise(py, error))
    }
}
