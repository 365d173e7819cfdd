//! Rows as CSV and Parquet: a column for each field and each factor.

use super::row::Row;
use crate::error::{Error, Result};
use parquet::basic::{Compression, LogicalType, Repetition, Type as Physical};
use parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int64Type};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::Type;
use serde_json::Value;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

/// A column: its name, and each row's value.
struct Column {
    name: String,
    values: Vec<Value>,
}

fn columns(rows: &[Row]) -> Result<Vec<Column>> {
    let mut columns: Vec<Column> = Vec::new();
    let mut put = |name: String, index: usize, value: Value| {
        let found = columns.iter().position(|column| column.name == name);
        let at = found.unwrap_or_else(|| {
            columns.push(Column { name, values: vec![] });
            columns.len() - 1
        });
        let values = &mut columns[at].values;
        values.resize(index, Value::Null);
        values.push(value);
    };
    for (index, row) in rows.iter().enumerate() {
        let Ok(Value::Object(fields)) = serde_json::to_value(row) else {
            return Err(Error::failed("a row is no object"));
        };
        for (name, value) in fields {
            match value {
                Value::Object(factors) if name == "factors" => {
                    for (factor, level) in factors {
                        put(format!("factor.{factor}"), index, level);
                    }
                }
                Value::Object(_) | Value::Array(_) => put(name, index, Value::String(value.to_string())),
                value => put(name, index, value),
            }
        }
    }
    for column in &mut columns {
        column.values.resize(rows.len(), Value::Null);
    }
    Ok(columns)
}

pub fn to_csv(rows: &[Row], path: &Path) -> Result<()> {
    let failed = |error: csv::Error| Error::failed(format!("can't write {}: {error}", path.display()));
    let columns = columns(rows)?;
    let mut writer = csv::Writer::from_path(path).map_err(failed)?;
    writer.write_record(columns.iter().map(|column| &column.name)).map_err(failed)?;
    for index in 0..rows.len() {
        let cells = columns.iter().map(|column| match &column.values[index] {
            Value::Null => String::new(),
            Value::String(text) => text.clone(),
            other => other.to_string(),
        });
        writer.write_record(cells).map_err(failed)?;
    }
    writer.flush().map_err(|error| Error::io("write", path.display(), error))
}

pub fn to_parquet(rows: &[Row], path: &Path) -> Result<()> {
    let failed =
        |error: parquet::errors::ParquetError| Error::failed(format!("can't write {}: {error}", path.display()));
    let columns = columns(rows)?;
    let kinds: Vec<Physical> = columns.iter().map(|column| kind(&column.values)).collect();
    let fields = columns
        .iter()
        .zip(&kinds)
        .map(|(column, kind)| {
            let text = (*kind == Physical::BYTE_ARRAY).then_some(LogicalType::String);
            Type::primitive_type_builder(&column.name, *kind)
                .with_repetition(Repetition::OPTIONAL)
                .with_logical_type(text)
                .build()
                .map(Arc::new)
        })
        .collect::<std::result::Result<Vec<_>, _>>()
        .map_err(failed)?;
    let schema = Type::group_type_builder("rows").with_fields(fields).build().map_err(failed)?;
    let properties = WriterProperties::builder().set_compression(Compression::SNAPPY).build();
    let file = File::create(path).map_err(|error| Error::io("create", path.display(), error))?;
    let mut writer = SerializedFileWriter::new(file, Arc::new(schema), Arc::new(properties)).map_err(failed)?;
    let mut group = writer.next_row_group().map_err(failed)?;
    for (column, kind) in columns.iter().zip(&kinds) {
        let levels: Vec<i16> = column.values.iter().map(|value| i16::from(!value.is_null())).collect();
        let there = column.values.iter().filter(|value| !value.is_null());
        let mut out = group.next_column().map_err(failed)?.expect("there is a column for each field");
        match kind {
            Physical::INT64 => {
                let values: Vec<i64> = there.map(whole).collect();
                out.typed::<Int64Type>().write_batch(&values, Some(&levels), None).map_err(failed)?;
            }
            Physical::DOUBLE => {
                let values: Vec<f64> = there.map(|value| value.as_f64().unwrap_or(f64::NAN)).collect();
                out.typed::<DoubleType>().write_batch(&values, Some(&levels), None).map_err(failed)?;
            }
            _ => {
                let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                let values: Vec<ByteArray> = there.map(|value| ByteArray::from(text(value).into_bytes())).collect();
                out.typed::<ByteArrayType>().write_batch(&values, Some(&levels), None).map_err(failed)?;
            }
        }
        out.close().map_err(failed)?;
    }
    group.close().map_err(failed)?;
    writer.close().map_err(failed)?;
    Ok(())
}

fn kind(values: &[Value]) -> Physical {
    let mut numbers = values.iter().filter(|value| !value.is_null()).peekable();
    if numbers.peek().is_none() || values.iter().any(|value| !value.is_number() && !value.is_null()) {
        return Physical::BYTE_ARRAY;
    }
    if numbers.all(|value| value.is_i64() || value.is_u64()) { Physical::INT64 } else { Physical::DOUBLE }
}

fn whole(value: &Value) -> i64 {
    value.as_i64().unwrap_or(i64::MAX)
}
