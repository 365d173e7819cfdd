//! Rows in a format. All but tables stream: nothing is kept until the end.

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, Field, Schema};
use arrow::util::pretty::pretty_format_batches;
use parquet::arrow::ArrowWriter;
use std::fs::OpenOptions;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use terrace_analysis::{Answer, Batches};
use terrace_tool::failure::Failure;

#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Format {
    Table,
    Csv,
    /// A list of objects
    Json,
    /// An object a line
    Ndjson,
    /// Arrow's IPC stream
    Arrow,
    Parquet,
    /// What the page shows: the first rows as texts, numbers for a plot, and how many rows there are
    #[value(skip)]
    Page,
    /// As SAVIME tells a client: `#x,d,int64|v,a,double:1`, then values between commas
    Savime,
}

/// As the kernel has it.
const LINKS_MAX: usize = 40;
/// Rows that a table shows; other formats give all.
const TABLE_ROWS_MAX: usize = 1000;
/// Cells that the page is told, and bytes of each: what a browser draws without a pause.
const PAGE_CELLS_MAX: usize = 50_000;
const PAGE_CELL_BYTES_MAX: usize = 500;

impl Format {
    pub fn of_path(path: &Path) -> Option<Format> {
        match path.extension()?.to_str()? {
            "csv" => Some(Format::Csv),
            "json" => Some(Format::Json),
            "ndjson" | "jsonl" => Some(Format::Ndjson),
            "arrow" | "arrows" | "ipc" => Some(Format::Arrow),
            "parquet" => Some(Format::Parquet),
            "txt" => Some(Format::Table),
            _ => None,
        }
    }
}

pub fn to_stdout(batches: Batches<'_>, format: Format) -> Result<(), Failure> {
    let out = BufWriter::with_capacity(1 << 20, std::io::stdout());
    match write(batches, format, out) {
        Err(failure) if is_reader_gone(&failure) => Ok(()),
        done => done,
    }
}

/// A file appears when all rows are in it, where links lead to and with the rights that it has; pipes and devices are written into.
pub fn to_file(batches: Batches<'_>, format: Format, path: &Path) -> Result<(), Failure> {
    let failed = |what: &str, error: std::io::Error| Failure::new(format!("can't {what} {}: {error}", path.display()));
    let there = std::fs::metadata(path).ok();
    if there.as_ref().is_some_and(|there| !there.is_file()) {
        let file = OpenOptions::new().write(true).open(path).map_err(|error| failed("write", error))?;
        return write(batches, format, BufWriter::with_capacity(1 << 20, file));
    }
    let target = linked(path).map_err(|error| failed("create", error))?;
    let mut name = target.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.partial", std::process::id()));
    let partial = target.with_file_name(name);
    // Of another process that had this number.
    let _ = std::fs::remove_file(&partial);
    let file = OpenOptions::new().write(true).create_new(true).open(&partial);
    let file = file.map_err(|error| failed("create", error))?;
    let kept = there.map_or(Ok(()), |there| file.set_permissions(there.permissions()));
    let written = kept
        .map_err(|error| failed("create", error))
        .and_then(|()| write(batches, format, BufWriter::with_capacity(1 << 20, file)))
        .and_then(|()| std::fs::rename(&partial, &target).map_err(|error| failed("create", error)));
    if written.is_err() {
        let _ = std::fs::remove_file(&partial);
    }
    written
}

/// Where symbolic links lead to, be it there or not.
fn linked(path: &Path) -> std::io::Result<PathBuf> {
    let mut target = path.to_owned();
    for _ in 0..LINKS_MAX {
        match std::fs::read_link(&target) {
            Ok(next) => target = target.with_file_name("").join(next),
            // It is no link.
            Err(_) => return Ok(target),
        }
    }
    Err(std::io::Error::other("too many links lead to one another"))
}

/// Whoever read the rows has seen enough: no failure of ours.
pub fn is_reader_gone(failure: &Failure) -> bool {
    failure.message.contains("Broken pipe")
}

fn broken(error: impl std::fmt::Display) -> Failure {
    Failure::new(format!("rows can't be written: {error}"))
}

pub fn write(batches: Batches<'_>, format: Format, mut out: impl Write + Send) -> Result<(), Failure> {
    let schema = batches.schema();
    match format {
        Format::Table => return table(batches, out),
        Format::Csv => {
            let mut writer = arrow::csv::WriterBuilder::new().with_header(true).build(&mut out);
            let mut any = false;
            for batch in batches {
                writer.write(&texts_of_lists(batch?)?).map_err(broken)?;
                any = true;
            }
            if !any {
                writer.write(&texts_of_lists(RecordBatch::new_empty(schema))?).map_err(broken)?;
            }
        }
        Format::Json => {
            let mut writer = arrow::json::ArrayWriter::new(&mut out);
            for batch in batches {
                writer.write(&batch?).map_err(broken)?;
            }
            writer.finish().map_err(broken)?;
            drop(writer);
            writeln!(out).map_err(broken)?;
        }
        Format::Ndjson => {
            let mut writer = arrow::json::LineDelimitedWriter::new(&mut out);
            for batch in batches {
                writer.write(&batch?).map_err(broken)?;
            }
            writer.finish().map_err(broken)?;
        }
        Format::Arrow => {
            let mut writer = arrow::ipc::writer::StreamWriter::try_new(&mut out, &schema).map_err(broken)?;
            // Whoever reads has the columns before the first rows are computed, and can ask how far the query is.
            writer.flush().map_err(broken)?;
            for batch in batches {
                writer.write(&batch?).map_err(broken)?;
            }
            writer.finish().map_err(broken)?;
        }
        Format::Savime => savime(batches, &schema, &mut out)?,
        Format::Page => page(batches, &schema, &mut out)?,
        Format::Parquet => {
            let failed = |error| Failure::new(format!("rows can't be written as Parquet: {error}"));
            let mut writer = ArrowWriter::try_new(&mut out, schema, None).map_err(failed)?;
            for batch in batches {
                writer.write(&batch?).map_err(failed)?;
            }
            writer.close().map_err(failed)?;
        }
    }
    out.flush().map_err(broken)
}

/// `{"columns": [{"name", "type", "numbers"}], "rows": [[text or null]], "count"}`; `numbers` is null for what is no number.
fn page(batches: Batches<'_>, schema: &Schema, out: &mut impl Write) -> Result<(), Failure> {
    use arrow::array::{Array, AsArray};
    use arrow::datatypes::Float64Type;
    use arrow::util::display::{ArrayFormatter, FormatOptions};
    use serde_json::{Value, json};
    let rows_max = TABLE_ROWS_MAX.min(PAGE_CELLS_MAX / schema.fields().len().max(1)).max(1);
    let is_number = |field: &Field| field.data_type().is_numeric();
    let mut numbers: Vec<Vec<Value>> = vec![vec![]; schema.fields().len()];
    let (mut rows, mut count) = (vec![], 0);
    for batch in batches {
        let batch = batch?;
        count += batch.num_rows();
        let shown = batch.slice(0, batch.num_rows().min(rows_max.saturating_sub(rows.len())));
        if shown.num_rows() == 0 {
            continue;
        }
        let columns = shown.columns().iter();
        let formatters = columns.map(|column| ArrayFormatter::try_new(column, &FormatOptions::default()));
        let formatters = formatters.collect::<Result<Vec<_>, _>>().map_err(broken)?;
        for row in 0..shown.num_rows() {
            let cells = formatters.iter().zip(shown.columns()).map(|(formatter, column)| match column.is_null(row) {
                true => Value::Null,
                false => shortened(formatter.value(row).to_string()).into(),
            });
            rows.push(Value::from_iter(cells));
        }
        for ((column, field), told) in shown.columns().iter().zip(schema.fields()).zip(&mut numbers) {
            if is_number(field) {
                let floats = arrow::compute::cast(column, &DataType::Float64).map_err(broken)?;
                // One that is not finite is null in JSON.
                told.extend(floats.as_primitive::<Float64Type>().iter().map(|value| json!(value)));
            }
        }
    }
    let columns = schema.fields().iter().zip(numbers).map(|(field, numbers)| {
        let numbers = if is_number(field) { Value::from(numbers) } else { Value::Null };
        json!({"name": field.name(), "type": field.data_type().to_string(), "numbers": numbers})
    });
    let told = json!({"columns": Value::from_iter(columns), "rows": rows, "count": count});
    out.write_all(told.to_string().as_bytes()).map_err(broken)
}

fn shortened(mut text: String) -> String {
    if text.len() > PAGE_CELL_BYTES_MAX {
        text.truncate(text.floor_char_boundary(PAGE_CELL_BYTES_MAX));
        text.push('…');
    }
    text
}

/// A line that says of each element its name, whether it is a dimension (d) or an attribute (a), and its type; then the rows.
fn savime(batches: Batches<'_>, schema: &Schema, out: &mut (impl Write + Send)) -> Result<(), Failure> {
    use terrace_savime::{DIMENSION, ELEMENT, name_of_arrow};
    let said = schema.fields().iter().map(|field| {
        let (type_name, count) = match field.data_type() {
            DataType::FixedSizeList(item, count) => (name_of_arrow(item.data_type()), *count),
            one => (name_of_arrow(one), 1),
        };
        match field.metadata().get(ELEMENT).is_some_and(|kind| kind == DIMENSION) {
            true => format!("{},d,{type_name}", field.name()),
            false => format!("{},a,{type_name}:{count}", field.name()),
        }
    });
    writeln!(out, "#{}", said.collect::<Vec<_>>().join("|")).map_err(broken)?;
    let mut writer = arrow::csv::WriterBuilder::new().with_header(false).build(&mut *out);
    for batch in batches {
        writer.write(&texts_of_lists(components_of_vectors(batch?)?)?).map_err(broken)?;
    }
    Ok(())
}

/// The values of a vector one after the other, as a client of SAVIME reads them.
fn components_of_vectors(batch: RecordBatch) -> Result<RecordBatch, Failure> {
    use arrow::array::{Array, AsArray, UInt64Array};
    let schema = batch.schema();
    if !schema.fields().iter().any(|field| matches!(field.data_type(), DataType::FixedSizeList(..))) {
        return Ok(batch);
    }
    let (mut fields, mut columns) = (vec![], vec![]);
    for (field, column) in schema.fields().iter().zip(batch.columns()) {
        let Some(vectors) = column.as_fixed_size_list_opt() else {
            fields.push(field.as_ref().clone());
            columns.push(column.clone());
            continue;
        };
        let (first, count) = (vectors.value_offset(0) as u64, vectors.value_length() as u64);
        for number in 0..count {
            let places = UInt64Array::from_iter(
                (0..vectors.len() as u64)
                    .map(|row| vectors.is_valid(row as usize).then_some(first + row * count + number)),
            );
            columns.push(arrow::compute::take(vectors.values(), &places, None).map_err(broken)?);
            fields.push(Field::new(format!("{}:{number}", field.name()), vectors.value_type(), true));
        }
    }
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).map_err(broken)
}

/// CSV has no lists: they are written as texts.
fn texts_of_lists(batch: RecordBatch) -> Result<RecordBatch, Failure> {
    use arrow::array::{ArrayRef, StringArray};
    use arrow::util::display::{ArrayFormatter, FormatOptions};
    if !batch.columns().iter().any(|column| column.data_type().is_nested()) {
        return Ok(batch);
    }
    let mut columns: Vec<(String, ArrayRef)> = vec![];
    for (field, column) in batch.schema().fields().iter().zip(batch.columns()) {
        let column = if column.data_type().is_nested() {
            let formatter = ArrayFormatter::try_new(column, &FormatOptions::default()).map_err(broken)?;
            let texts = (0..column.len()).map(|row| formatter.value(row).to_string());
            std::sync::Arc::new(StringArray::from_iter_values(texts)) as ArrayRef
        } else {
            column.clone()
        };
        columns.push((field.name().clone(), column));
    }
    RecordBatch::try_from_iter(columns).map_err(broken)
}

fn table(batches: Batches<'_>, mut out: impl Write) -> Result<(), Failure> {
    let schema = batches.schema();
    let (mut shown, mut rows) = (vec![], 0);
    for batch in batches {
        let batch = batch?;
        let room = TABLE_ROWS_MAX.saturating_sub(rows);
        if room > 0 {
            shown.push(batch.slice(0, room.min(batch.num_rows())));
        }
        rows += batch.num_rows();
    }
    if shown.is_empty() {
        shown.push(RecordBatch::new_empty(schema));
    }
    let text = pretty_format_batches(&shown).map_err(broken)?;
    let plural = if rows == 1 { "" } else { "s" };
    writeln!(out, "{text}\n{rows} row{plural}").map_err(broken)?;
    if rows > TABLE_ROWS_MAX {
        writeln!(out, "The first {TABLE_ROWS_MAX} are shown; --format csv (json, arrow, parquet) gives all.")
            .map_err(broken)?;
    }
    out.flush().map_err(broken)
}

/// Rows of one step of a standing query; with a header when it is the first that has any.
pub fn step(answer: &Answer, format: Format, is_first: bool) -> Result<(), Failure> {
    if answer.rows.iter().all(|batch| batch.num_rows() == 0) {
        return Ok(());
    }
    let mut out = std::io::stdout().lock();
    match format {
        Format::Csv => {
            let mut writer = arrow::csv::WriterBuilder::new().with_header(is_first).build(&mut out);
            for batch in &answer.rows {
                writer.write(&texts_of_lists(batch.clone())?).map_err(broken)?;
            }
        }
        Format::Json | Format::Ndjson => {
            let mut writer = arrow::json::LineDelimitedWriter::new(&mut out);
            writer.write_batches(&answer.rows.iter().collect::<Vec<_>>()).map_err(broken)?;
            writer.finish().map_err(broken)?;
        }
        Format::Table => {
            let text = pretty_format_batches(&answer.rows).map_err(broken)?;
            writeln!(out, "step {}\n{text}", answer.step).map_err(broken)?;
        }
        Format::Arrow | Format::Parquet | Format::Savime | Format::Page => {
            return Err(Failure::invalid("a standing query's rows are written as a table, CSV, JSON or NDJSON"));
        }
    }
    out.flush().map_err(broken)
}
