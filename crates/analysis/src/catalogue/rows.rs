//! Objects, arrays, regions, steps and tags as rows.

use super::walk;
use crate::control::Record;
use crate::error::Result;
use crate::tables::{Objects, complete_steps, dimension_names};
use arrow::array::*;
use arrow::datatypes::{Float64Type, UInt64Type};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};
use terrace_client::{Kind, ObjectKind, TagValue};

fn kind_name(kind: ObjectKind) -> &'static str {
    match kind {
        ObjectKind::Container => "container",
        ObjectKind::Bytes => "bytes",
        ObjectKind::Array => "array",
    }
}

fn split(path: &str) -> (&str, &str) {
    path.rsplit_once('/').unwrap_or(("", path))
}

/// Removed since it was listed, or damaged: not a row.
fn is_gone(kind: Kind) -> bool {
    matches!(kind, Kind::NotFound | Kind::WrongKind | Kind::Damaged | Kind::Denied)
}

macro_rules! batch {
    ($($name:literal: $values:expr),* $(,)?) => {
        Ok(RecordBatch::try_from_iter([$(($name, Arc::new($values) as ArrayRef)),*])?)
    };
}

fn texts<T: AsRef<str>>(values: impl IntoIterator<Item = T>) -> StringArray {
    StringArray::from_iter_values(values)
}

fn lists(values: &[Vec<u64>]) -> ListArray {
    ListArray::from_iter_primitive::<UInt64Type, _, _>(
        values.iter().map(|list| Some(list.iter().map(|value| Some(*value)).collect::<Vec<_>>())),
    )
}

pub fn objects(objects: &Objects) -> Result<RecordBatch> {
    let mut rows = vec![];
    for found in walk(&objects.session, "")? {
        match objects.session.stat(&found.path) {
            Ok(status) => rows.push((found.path, status)),
            Err(error) if is_gone(error.kind) => {}
            Err(error) => return Err(error.into()),
        }
    }
    batch! {
        "path": texts(rows.iter().map(|(path, _)| path)),
        "container": texts(rows.iter().map(|(path, _)| split(path).0)),
        "name": texts(rows.iter().map(|(path, _)| split(path).1)),
        "kind": texts(rows.iter().map(|(_, status)| kind_name(status.kind))),
        "bytes": UInt64Array::from_iter_values(rows.iter().map(|(_, status)| status.bytes)),
        "tier": texts(rows.iter().map(|(_, status)| &status.tier)),
        "is_durable": BooleanArray::from_iter(rows.iter().map(|(_, status)| Some(status.is_durable))),
    }
}

pub fn containers(objects: &Objects) -> Result<RecordBatch> {
    let found = walk(&objects.session, "")?;
    let count = |path: &str, kind: Option<ObjectKind>| {
        found.iter().filter(|other| split(&other.path).0 == path && kind.is_none_or(|kind| other.kind == kind)).count()
            as u64
    };
    let mut paths: Vec<&str> = vec![""];
    paths.extend(found.iter().filter(|found| found.kind == ObjectKind::Container).map(|found| found.path.as_str()));
    batch! {
        "path": texts(&paths),
        "objects": UInt64Array::from_iter_values(paths.iter().map(|path| count(path, None))),
        "arrays": UInt64Array::from_iter_values(paths.iter().map(|path| count(path, Some(ObjectKind::Array)))),
    }
}

/// Arrays that are there, with their shape now.
fn all_arrays(objects: &Objects) -> Result<Vec<(String, terrace_client::Array)>> {
    let mut arrays = vec![];
    for found in walk(&objects.session, "")?.into_iter().filter(|found| found.kind == ObjectKind::Array) {
        match objects.array(&found.path) {
            Ok(array) => arrays.push((found.path, array)),
            Err(error) if is_gone(error.kind) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(arrays)
}

pub fn arrays(objects: &Objects) -> Result<RecordBatch> {
    let mut rows = vec![];
    for (path, array) in all_arrays(objects)? {
        let status = objects.session.stat(&path)?;
        rows.push((path, array.spec().clone(), array.shape()?, status));
    }
    let shapes: Vec<Vec<u64>> = rows.iter().map(|row| row.2.clone()).collect();
    let chunks: Vec<Vec<u64>> = rows.iter().map(|row| row.1.chunks.clone()).collect();
    let mut names = ListBuilder::new(StringBuilder::new());
    let mut unlimited = ListBuilder::new(BooleanBuilder::new());
    for (_, spec, ..) in &rows {
        dimension_names(spec).iter().for_each(|name| names.values().append_value(name));
        names.append(true);
        spec.unlimited.iter().for_each(|flag| unlimited.values().append_value(*flag));
        unlimited.append(true);
    }
    batch! {
        "path": texts(rows.iter().map(|row| &row.0)),
        "container": texts(rows.iter().map(|row| split(&row.0).0)),
        "name": texts(rows.iter().map(|row| split(&row.0).1)),
        "data_type": texts(rows.iter().map(|row| row.1.data_type.name())),
        "shape": lists(&shapes),
        "dimensions": names.finish(),
        "unlimited": unlimited.finish(),
        "chunks": lists(&chunks),
        "bytes": UInt64Array::from_iter_values(rows.iter().map(|row| row.3.bytes)),
        "tier": texts(rows.iter().map(|row| &row.3.tier)),
        "is_durable": BooleanArray::from_iter(rows.iter().map(|row| Some(row.3.is_durable))),
    }
}

pub fn queries(objects: &Objects) -> Result<RecordBatch> {
    let rows = objects.queries.records();
    let numbers = |of: fn(&Record) -> u64| UInt64Array::from_iter_values(rows.iter().map(of));
    let micros = |time: SystemTime| time.duration_since(UNIX_EPOCH).unwrap_or_default().as_micros() as i64;
    batch! {
        "id": texts(rows.iter().map(|row| &row.id)),
        "who": texts(rows.iter().map(|row| &row.who)),
        "sql": texts(rows.iter().map(|row| &row.text)),
        "state": texts(rows.iter().map(|row| row.state.name())),
        "started": TimestampMicrosecondArray::from_iter_values(rows.iter().map(|row| micros(row.started))).with_timezone("UTC"),
        "elapsed_s": Float64Array::from_iter_values(rows.iter().map(|row| row.elapsed.as_secs_f64())),
        "progress": Float64Array::from_iter(rows.iter().map(Record::progress)),
        "cells_read": numbers(|row| row.cells),
        "rows": numbers(|row| row.rows),
        "bytes": numbers(|row| row.bytes),
        "memory_bytes_peak": numbers(|row| row.memory_bytes_peak),
        "error": StringArray::from_iter(rows.iter().map(|row| row.error.as_deref())),
    }
}

pub fn regions(objects: &Objects) -> Result<RecordBatch> {
    let (mut paths, mut bytes) = (vec![], vec![]);
    let (mut offsets, mut counts, mut strides) = (vec![], vec![], vec![]);
    let mut ranges: Vec<Option<(f64, f64)>> = vec![];
    for (path, array) in all_arrays(objects)? {
        for layer in &array.view()?.layers {
            paths.push(path.clone());
            bytes.push(layer.bytes());
            offsets.push(layer.region.offset().to_vec());
            counts.push(layer.region.count().to_vec());
            strides.push(layer.region.stride().to_vec());
            ranges.push(layer.range);
        }
    }
    batch! {
        "path": texts(&paths),
        "offset": lists(&offsets),
        "count": lists(&counts),
        "stride": lists(&strides),
        "bytes": UInt64Array::from_iter_values(bytes),
        "minimum": PrimitiveArray::<Float64Type>::from_iter(ranges.iter().map(|range| range.map(|(low, _)| low))),
        "maximum": PrimitiveArray::<Float64Type>::from_iter(ranges.iter().map(|range| range.map(|(_, high)| high))),
    }
}

pub fn steps(objects: &Objects) -> Result<RecordBatch> {
    let mut rows = vec![];
    for (path, array) in all_arrays(objects)? {
        let spec = array.spec();
        let names = dimension_names(spec);
        if let Some(d) = spec.grows_along() {
            let view = array.view()?;
            rows.push((path, names[d].clone(), view.shape[d], complete_steps(&view, d)));
        }
    }
    batch! {
        "path": texts(rows.iter().map(|row| &row.0)),
        "container": texts(rows.iter().map(|row| split(&row.0).0)),
        "dimension": texts(rows.iter().map(|row| &row.1)),
        "begun": UInt64Array::from_iter_values(rows.iter().map(|row| row.2)),
        "complete": UInt64Array::from_iter_values(rows.iter().map(|row| row.3)),
    }
}

pub fn tags(objects: &Objects) -> Result<RecordBatch> {
    let mut rows: Vec<(String, String, TagValue)> = vec![];
    let paths = walk(&objects.session, "")?.into_iter().map(|found| found.path);
    for path in std::iter::once(String::new()).chain(paths) {
        match objects.session.tags(&path) {
            Ok(tags) => rows.extend(tags.into_iter().map(|(key, value)| (path.clone(), key, value))),
            Err(error) if is_gone(error.kind) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let kind = |value: &TagValue| match value {
        TagValue::Bool(_) => "bool",
        TagValue::Int(_) => "int",
        TagValue::Float(_) => "float",
        TagValue::Text(_) => "text",
        TagValue::Ints(_) => "ints",
        TagValue::Floats(_) => "floats",
    };
    let number = |value: &TagValue| match value {
        TagValue::Int(value) => Some(*value as f64),
        TagValue::Float(value) => Some(*value),
        _ => None,
    };
    batch! {
        "path": texts(rows.iter().map(|row| &row.0)),
        "key": texts(rows.iter().map(|row| &row.1)),
        "kind": texts(rows.iter().map(|row| kind(&row.2))),
        "value": texts(rows.iter().map(|row| row.2.to_string())),
        "number": Float64Array::from_iter(rows.iter().map(|row| number(&row.2))),
    }
}
