//! Sessions: names, containers, tags.

use crate::array::Array;
use crate::bytes::Bytes;
use crate::errors::{OrRaise, raise};
use crate::stager::{Stager, Steps};
use crate::{tags, waiting};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use std::path::PathBuf;
use terrace_client::{
    ArraySpec, Create, DataType, Kind, ObjectError, ObjectKind, Placement, Status, TagQuery, queries,
};
use terrace_objects::array::{Metadata, write_metadata};

#[pyclass(frozen, module = "terrace._native")]
pub struct Session(terrace_client::Session);

fn create(how: &str) -> PyResult<Create> {
    match how {
        "new" => Ok(Create::New),
        "replace" => Ok(Create::Replace),
        "if missing" => Ok(Create::IfMissing),
        other => Err(PyValueError::new_err(format!("`{other}` is not one of: new, replace, if missing"))),
    }
}

fn placement(how: &str) -> PyResult<Placement> {
    match how {
        "local" => Ok(Placement::Local),
        "spread" => Ok(Placement::Spread),
        "one" => Ok(Placement::One),
        other => Err(PyValueError::new_err(format!("`{other}` is not one of: local, spread, one"))),
    }
}

fn kind(kind: ObjectKind) -> &'static str {
    match kind {
        ObjectKind::Container => "container",
        ObjectKind::Bytes => "bytes",
        ObjectKind::Array => "array",
    }
}

pub fn describe<'py>(py: Python<'py>, spec: &ArraySpec) -> PyResult<Bound<'py, PyDict>> {
    let described = PyDict::new(py);
    described.set_item("dtype", spec.data_type.name())?;
    described.set_item("shape", PyTuple::new(py, &spec.shape)?)?;
    described.set_item("unlimited", PyTuple::new(py, &spec.unlimited)?)?;
    described.set_item("chunks", PyTuple::new(py, &spec.chunks)?)?;
    described.set_item("fill", pyo3::types::PyBytes::new(py, &spec.fill))?;
    described.set_item("dimensions", PyTuple::new(py, &spec.dimensions)?)?;
    let placement = match spec.placement {
        Placement::Local | Placement::At(_) => "local",
        Placement::Spread => "spread",
        Placement::One => "one",
    };
    described.set_item("placement", placement)?;
    Ok(described)
}

fn status<'py>(py: Python<'py>, status: &Status) -> PyResult<Bound<'py, PyDict>> {
    let found = PyDict::new(py);
    found.set_item("kind", kind(status.kind))?;
    found.set_item("bytes", status.bytes)?;
    found.set_item("tier", &status.tier)?;
    found.set_item("is_durable", status.is_durable)?;
    let spec = status.spec.as_ref().map(|spec| describe(py, spec)).transpose()?;
    found.set_item("spec", spec)?;
    Ok(found)
}

#[pymethods]
impl Session {
    #[staticmethod]
    fn connect(py: Python<'_>, target: &str) -> PyResult<Session> {
        py.detach(|| terrace_client::Session::connect(target)).or_raise(py).map(Session)
    }

    #[staticmethod]
    fn open(py: Python<'_>, index: PathBuf) -> PyResult<Session> {
        py.detach(|| terrace_client::Session::open(&index)).or_raise(py).map(Session)
    }

    #[getter]
    fn root(&self) -> String {
        self.0.root().to_string_lossy().into_owned()
    }

    #[getter]
    fn is_local(&self) -> bool {
        !self.0.is_elsewhere()
    }

    #[getter]
    fn addresses<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.0.addresses())
    }

    fn create_container(&self, py: Python<'_>, name: &str, how: &str) -> PyResult<()> {
        let how = create(how)?;
        py.detach(|| self.0.create_container(name, how)).or_raise(py)
    }

    fn list(&self, py: Python<'_>, name: &str) -> PyResult<Vec<(String, &'static str)>> {
        let entries = py.detach(|| self.0.list(name)).or_raise(py)?;
        Ok(entries.into_iter().map(|entry| (entry.name, kind(entry.kind))).collect())
    }

    fn stat<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyDict>> {
        let found = py.detach(|| self.0.stat(name)).or_raise(py)?;
        status(py, &found)
    }

    fn exists(&self, py: Python<'_>, name: &str) -> PyResult<bool> {
        py.detach(|| self.0.exists(name)).or_raise(py)
    }

    fn remove(&self, py: Python<'_>, name: &str, with_contents: bool) -> PyResult<()> {
        py.detach(|| self.0.remove(name, with_contents)).or_raise(py)
    }

    fn rename(&self, py: Python<'_>, name: &str, to: &str) -> PyResult<()> {
        py.detach(|| self.0.rename(name, to)).or_raise(py)
    }

    fn add_member(&self, py: Python<'_>, container: &str, object: &str) -> PyResult<()> {
        py.detach(|| self.0.add_member(container, object)).or_raise(py)
    }

    fn remove_member(&self, py: Python<'_>, container: &str, object: &str) -> PyResult<()> {
        py.detach(|| self.0.remove_member(container, object)).or_raise(py)
    }

    fn members(&self, py: Python<'_>, container: &str) -> PyResult<Vec<String>> {
        let members = py.detach(|| self.0.members(container)).or_raise(py)?;
        Ok(members.into_iter().map(|(name, _)| name).collect())
    }

    fn containers_of(&self, py: Python<'_>, object: &str) -> PyResult<Vec<String>> {
        py.detach(|| self.0.containers_of(object)).or_raise(py)
    }

    /// None: it did not appear in the time given.
    fn wait_for<'py>(&self, py: Python<'py>, name: &str, timeout: Option<f64>) -> PyResult<Option<Bound<'py, PyDict>>> {
        let found =
            waiting::in_steps(py, waiting::patience(timeout)?, |step| match self.0.wait_for(name, Some(step)) {
                Err(error) if error.kind == Kind::Busy => None,
                result => Some(result),
            })?;
        found.map(|found| found.or_raise(py).and_then(|found| status(py, &found))).transpose()
    }

    fn create_bytes(&self, py: Python<'_>, name: &str, how: &str) -> PyResult<Bytes> {
        let how = create(how)?;
        py.detach(|| self.0.create_bytes(name, how)).or_raise(py).map(Bytes::new)
    }

    fn open_bytes(&self, py: Python<'_>, name: &str, writable: bool) -> PyResult<Bytes> {
        py.detach(|| self.0.open_bytes(name, writable)).or_raise(py).map(Bytes::new)
    }

    #[allow(clippy::too_many_arguments)] // Python's wrapper gives them names
    fn create_array(
        &self,
        py: Python<'_>,
        name: &str,
        dtype: &str,
        shape: Vec<u64>,
        unlimited: Vec<bool>,
        chunks: Vec<u64>,
        fill: Vec<u8>,
        dimensions: Vec<String>,
        place: &str,
        how: &str,
    ) -> PyResult<Array> {
        let data_type = DataType::parse(dtype).or_raise(py)?;
        let spec = ArraySpec { data_type, shape, unlimited, chunks, fill, dimensions, placement: placement(place)? };
        let how = create(how)?;
        py.detach(|| self.0.create_array(name, &spec, how)).or_raise(py).map(Array::new)
    }

    fn open_array(&self, py: Python<'_>, name: &str, writable: bool) -> PyResult<Array> {
        py.detach(|| self.0.open_array(name, writable)).or_raise(py).map(Array::new)
    }

    fn stager(&self, py: Python<'_>, queue_bytes: u64, drops: bool, threads: usize) -> PyResult<Stager> {
        Stager::new(py, &self.0, queue_bytes, drops, threads)
    }

    fn steps(&self, py: Python<'_>, container: &str, from_step: u64, arrays: Vec<String>) -> PyResult<Steps> {
        let names: Vec<&str> = arrays.iter().map(String::as_str).collect();
        self.0.steps(container, from_step, &names).or_raise(py).map(Steps::new)
    }

    fn flush(&self, py: Python<'_>, name: &str) -> PyResult<()> {
        let (session, name) = (self.0.clone(), name.to_owned());
        waiting::abandonable(py, move || session.flush(&name))
    }

    fn evict(&self, py: Python<'_>, name: &str) -> PyResult<()> {
        let (session, name) = (self.0.clone(), name.to_owned());
        waiting::abandonable(py, move || session.evict(&name))
    }

    fn prefetch(&self, py: Python<'_>, name: &str) -> PyResult<()> {
        let (session, name) = (self.0.clone(), name.to_owned());
        waiting::abandonable(py, move || session.prefetch(&name))
    }

    fn put_tags(&self, py: Python<'_>, name: &str, given: &Bound<'_, PyDict>) -> PyResult<()> {
        let mut values = vec![];
        for (key, value) in given.iter() {
            values.push((key.extract::<String>()?, tags::value(&value)?));
        }
        py.detach(|| self.0.put_tags(name, values)).or_raise(py)
    }

    fn delete_tag(&self, py: Python<'_>, name: &str, key: &str) -> PyResult<()> {
        py.detach(|| self.0.delete_tag(name, key)).or_raise(py)
    }

    fn tags<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyDict>> {
        let found = PyDict::new(py);
        for (key, value) in py.detach(|| self.0.tags(name)).or_raise(py)? {
            found.set_item(key, tags::object(py, value)?)?;
        }
        Ok(found)
    }

    fn query(
        &self,
        py: Python<'_>,
        key: &str,
        how: &str,
        operands: &Bound<'_, PyTuple>,
        below: &str,
    ) -> PyResult<Vec<String>> {
        let query = TagQuery { key: key.into(), matches: tags::matches(how, operands)?, below: below.into() };
        py.detach(|| self.0.query(&query)).or_raise(py)
    }

    /// The queries of this root, each as a text of JSON, those that run first.
    fn queries(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        let records = py.detach(|| queries::of_session(&self.0).map(|directory| queries::read(&directory)));
        Ok(queries::in_order(records.or_raise(py)?).iter().map(|record| record.to_json().to_string()).collect())
    }

    /// Ends one, and waits for so many seconds until it has.
    fn cancel_query(&self, py: Python<'_>, id: &str, patience: f64) -> PyResult<()> {
        let patience = waiting::patience(Some(patience))?.unwrap_or_default();
        py.detach(|| queries::cancel(&queries::of_session(&self.0)?, id, patience)).or_raise(py)
    }

    /// Writes the `zarr.json` of a container or array that is there, as it is given: for attributes that are no tags.
    fn write_zarr_metadata(&self, py: Python<'_>, name: &str, text: &str) -> PyResult<()> {
        let metadata = Metadata::parse(text.as_bytes()).or_raise(py)?;
        let relative = terrace_objects::normal_path(self.0.root(), name).or_raise(py)?;
        let directory = self.0.root().join(relative);
        if !directory.is_dir() {
            let message = format!("`{name}` is not a container or an array");
            return Err(raise(py, ObjectError::new(Kind::WrongKind, message)));
        }
        py.detach(|| write_metadata(&directory, &metadata, false)).or_raise(py)
    }

    fn __repr__(&self) -> String {
        format!("<terrace._native.Session of {}>", self.0.root().display())
    }
}

/// What a `zarr.json` says: None for a group, else the array's spec and whether its chunks are cells as they lie.
#[pyfunction]
pub fn parse_zarr_metadata<'py>(py: Python<'py>, text: &str) -> PyResult<Option<(Bound<'py, PyDict>, bool)>> {
    let metadata = Metadata::parse(text.as_bytes()).or_raise(py)?;
    metadata.array.map(|array| Ok((describe(py, &array.spec)?, array.is_raw))).transpose()
}
