//! An answer's rows in chunks, as the program that asks wants them: told at once where they are few, else in memory that it maps.
//!
//! ```text
//!   batches of a few thousand rows ──▶ chunk: inline   an Arrow stream
//!                                         or  stream   the same in a segment: texts, lists, NULLs
//!                                         or  columns  packed values of each column behind one another: one array of all rows
//! ```

use crate::lending::Lender;
use std::io::Write;
use std::time::{Duration, Instant};
use terrace_analysis::Batches;
use terrace_analysis::arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use terrace_analysis::arrow::buffer::Buffer;
use terrace_analysis::arrow::datatypes::{DataType, SchemaRef};
use terrace_analysis::arrow::error::ArrowError;
use terrace_analysis::arrow::ipc::writer::StreamEncoder;
use terrace_tool::failure::Failure;

const INLINE: u8 = 1;
const STREAM: u8 = 2;
const COLUMNS: u8 = 3;
/// A page of each column of a segment costs more.
const INLINE_BYTES_MAX: u64 = 64 << 10;
const CHUNK_BYTES: u64 = 8 << 20;
/// So many are written at once.
const WRITTEN_BYTES: u64 = 4 << 20;
/// Whoever reads as rows come gets them by then.
const CHUNK_TIME: Duration = Duration::from_millis(100);

pub struct Chunks<'a> {
    batches: Batches<'a>,
    lender: Option<&'a Lender>,
    /// Comes first in the next chunk.
    next: Option<RecordBatch>,
    failure: Option<Failure>,
    /// All batches were had.
    is_whole: bool,
}

/// How much one chunk has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wanted {
    /// Some of the next rows.
    Some,
    /// All that are left, as far as they are of one form.
    All,
}

fn failed(error: impl std::fmt::Display) -> Failure {
    Failure::new(format!("rows can't be told: {error}"))
}

impl<'a> Chunks<'a> {
    pub fn new(batches: Batches<'a>, lender: Option<&'a Lender>) -> Chunks<'a> {
        Chunks { batches, lender, next: None, failure: None, is_whole: false }
    }

    /// An Arrow stream without rows.
    pub fn schema(&self) -> Result<Vec<u8>, Failure> {
        stream(&self.batches.schema(), &[]).map_err(failed)
    }

    /// Lets go of rows whose query is to end; that is told when they are asked for.
    pub fn look(&mut self) {
        if self.failure.is_none() && self.batches.is_to_end() {
            self.next = None;
            self.more();
        }
    }

    fn batch(&mut self) -> Result<Option<RecordBatch>, Failure> {
        if let Some(batch) = self.next.take() {
            return Ok(Some(batch));
        }
        if let Some(failure) = self.failure.take() {
            return Err(failure);
        }
        for batch in self.batches.by_ref() {
            let batch = batch?;
            if batch.num_rows() > 0 {
                return Ok(Some(batch));
            }
        }
        self.is_whole = true;
        Ok(None)
    }

    /// Whether it is known that nothing follows what was told.
    pub fn is_whole(&self) -> bool {
        self.is_whole && self.next.is_none() && self.failure.is_none()
    }

    /// What `next` gives behind rows that are there: a failure is told after them.
    fn more(&mut self) -> Option<RecordBatch> {
        self.batch().unwrap_or_else(|failure| {
            self.failure = Some(failure);
            None
        })
    }

    /// The next rows, told to `out`; whether there were any.
    pub fn tell(&mut self, wanted: Wanted, out: &mut impl Write) -> Result<bool, Failure> {
        let Some(first) = self.batch()? else { return Ok(false) };
        let begun = Instant::now();
        let is_enough = |bytes: u64| match wanted {
            Wanted::All => false,
            Wanted::Some => bytes >= CHUNK_BYTES || begun.elapsed() >= CHUNK_TIME,
        };
        let schema = first.schema();
        let mut bytes = bytes_of(&first);
        let mut few = vec![first];
        while bytes <= INLINE_BYTES_MAX && !is_enough(bytes) {
            let Some(batch) = self.more() else { break };
            bytes += bytes_of(&batch);
            few.push(batch);
        }
        let lender = match self.lender {
            Some(lender) if bytes > INLINE_BYTES_MAX => lender,
            _ => {
                let stream = stream(&schema, &few).map_err(failed)?;
                out.write_all(&[INLINE]).map_err(failed)?;
                out.write_all(&(stream.len() as u64).to_le_bytes()).map_err(failed)?;
                out.write_all(&stream).map_err(failed)?;
                return Ok(true);
            }
        };
        let is_packed = few.iter().all(|batch| packed(batch).is_some());
        let mut few = few.into_iter();
        let mut segment = lender.segment(if is_packed { schema.fields().len() } else { 1 }).map_err(failed)?;
        let (mut rows, mut waiting, mut pieces) = (0, 0, vec![]);
        let mut encoder = StreamEncoder::try_new(&schema).map_err(failed)?;
        while let Some(batch) = few.next().or_else(|| if is_enough(bytes) { None } else { self.more() }) {
            let told: Vec<(usize, Buffer)> = if is_packed {
                let Some(columns) = packed(&batch) else {
                    // It is told next.
                    self.next = Some(batch);
                    break;
                };
                columns.into_iter().enumerate().collect()
            } else {
                encoder.encode(&batch).map_err(failed)?.into_iter().map(|buffer| (0, buffer)).collect()
            };
            rows += batch.num_rows() as u64;
            waiting += told.iter().map(|(_, piece)| piece.len() as u64).sum::<u64>();
            pieces.extend(told);
            bytes = segment.bytes() + waiting;
            if waiting >= WRITTEN_BYTES {
                segment.append(&pieces).map_err(failed)?;
                pieces.clear();
                waiting = 0;
            }
        }
        if !is_packed {
            pieces.extend(encoder.finish().map_err(failed)?.into_iter().map(|buffer| (0, buffer)));
        }
        segment.append(&pieces).map_err(failed)?;
        let length = if is_packed { rows } else { segment.bytes() };
        let number = lender.lend(segment).map_err(failed)?;
        out.write_all(&[if is_packed { COLUMNS } else { STREAM }]).map_err(failed)?;
        out.write_all(&number.to_le_bytes()).map_err(failed)?;
        out.write_all(&length.to_le_bytes()).map_err(failed)?;
        Ok(true)
    }
}

fn stream(schema: &SchemaRef, batches: &[RecordBatch]) -> Result<Vec<u8>, ArrowError> {
    let mut encoder = StreamEncoder::try_new(schema)?;
    let mut bytes = vec![];
    for batch in batches {
        encoder.encode(batch)?.iter().for_each(|buffer| bytes.extend_from_slice(buffer));
    }
    encoder.finish()?.iter().for_each(|buffer| bytes.extend_from_slice(buffer));
    Ok(bytes)
}

fn bytes_of(batch: &RecordBatch) -> u64 {
    let bytes = |column: &ArrayRef| column.to_data().get_slice_memory_size().unwrap_or(0) as u64;
    batch.columns().iter().map(bytes).sum()
}

/// The columns' values as they lie, where that is all that there is to tell of them.
fn packed(batch: &RecordBatch) -> Option<Vec<Buffer>> {
    (batch.num_columns() > 0).then(|| batch.columns().iter().map(values).collect())?
}

fn values(column: &ArrayRef) -> Option<Buffer> {
    if column.null_count() > 0 {
        return None;
    }
    match column.data_type() {
        // Vectors, and complex numbers.
        DataType::FixedSizeList(_, length) => {
            let inner = column.as_fixed_size_list().values();
            (*length > 0 && inner.len() == column.len() * *length as usize && inner.data_type().is_primitive())
                .then(|| values(inner))?
        }
        kind => {
            let width = kind.primitive_width()?;
            let data = column.to_data();
            Some(data.buffers()[0].slice_with_length(data.offset() * width, data.len() * width))
        }
    }
}
