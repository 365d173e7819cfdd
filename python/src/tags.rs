//! Values of tags: bool, int, float, str, and lists of numbers.

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyFloat, PyInt, PyList, PyString, PyTuple};
use terrace_client::{TagMatch, TagValue};

pub fn value(given: &Bound<'_, PyAny>) -> PyResult<TagValue> {
    if given.is_instance_of::<PyBool>() {
        return Ok(TagValue::Bool(given.extract()?));
    }
    if given.is_instance_of::<PyInt>() {
        let number = given.extract::<i64>();
        return number.map(TagValue::Int).map_err(|_| PyValueError::new_err("a tag's integer has 64 bits with sign"));
    }
    if given.is_instance_of::<PyFloat>() {
        return Ok(TagValue::Float(given.extract()?));
    }
    if given.is_instance_of::<PyString>() {
        return Ok(TagValue::Text(given.extract()?));
    }
    if given.is_instance_of::<PyList>() || given.is_instance_of::<PyTuple>() {
        let is_text = given.try_iter()?.any(|item| item.is_ok_and(|item| item.is_instance_of::<PyBool>()));
        if let (false, Ok(numbers)) = (is_text, given.extract::<Vec<i64>>()) {
            return Ok(TagValue::Ints(numbers));
        }
        if let (false, Ok(numbers)) = (is_text, given.extract::<Vec<f64>>()) {
            return Ok(TagValue::Floats(numbers));
        }
    }
    let kind = given.get_type().name()?;
    Err(PyTypeError::new_err(format!("a tag's value is a bool, int, float, str, or a list of numbers, not {kind}")))
}

pub fn object<'py>(py: Python<'py>, value: TagValue) -> PyResult<Bound<'py, PyAny>> {
    Ok(match value {
        TagValue::Bool(value) => PyBool::new(py, value).to_owned().into_any(),
        TagValue::Int(value) => value.into_pyobject(py)?.into_any(),
        TagValue::Float(value) => value.into_pyobject(py)?.into_any(),
        TagValue::Text(value) => value.into_pyobject(py)?.into_any(),
        TagValue::Ints(values) => values.into_pyobject(py)?.into_any(),
        TagValue::Floats(values) => values.into_pyobject(py)?.into_any(),
    })
}

/// `how` is one of any, exact, range, prefix, suffix, infix, like; the operands are its values.
pub fn matches(how: &str, operands: &Bound<'_, PyTuple>) -> PyResult<TagMatch> {
    let operand = |number: usize| operands.get_item(number);
    let bound = |number: usize| -> PyResult<Option<TagValue>> {
        let given = operand(number)?;
        if given.is_none() { Ok(None) } else { value(&given).map(Some) }
    };
    let text = |number: usize| operand(number)?.extract::<String>();
    Ok(match how {
        "any" => TagMatch::Any,
        "exact" => TagMatch::Exact(value(&operand(0)?)?),
        "range" => TagMatch::Range { low: bound(0)?, high: bound(1)? },
        "prefix" => TagMatch::Prefix(text(0)?),
        "suffix" => TagMatch::Suffix(text(0)?),
        "infix" => TagMatch::Infix(text(0)?),
        "like" => TagMatch::Wild(text(0)?),
        other => return Err(PyValueError::new_err(format!("`{other}` is not a way to match tags"))),
    })
}
