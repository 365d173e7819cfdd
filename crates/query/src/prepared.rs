//! Prepared statements. Nothing is kept of them: the client holds a statement, with the values of its parameters if it has some, in the
//! handle that it was given, and gives it back.
//!
//! ```text
//!   text                               a statement as it is
//!   \0 LENGTH(4, little) text rows      and its values: one row, as a stream of Arrow's
//! ```

use arrow::error::ArrowError;
use arrow::ipc::reader::StreamReader;
use arrow::ipc::writer::StreamWriter;
use arrow_flight::sql::server::PeekableFlightDataStream;
use arrow_flight::{FlightData, decode::FlightRecordBatchStream, error::FlightError};
use futures::{StreamExt, TryStreamExt};
use terrace_analysis::Values;
use terrace_analysis::arrow::array::RecordBatch;
use terrace_analysis::datafusion::scalar::ScalarValue;
use tonic::Status;

const BOUND: u8 = 0;
/// Of the values of one statement.
const VALUES_BYTES_MAX: usize = 1 << 20;

fn refused(text: impl Into<String>) -> Status {
    Status::invalid_argument(text)
}

/// The one row that a client sends for a statement's parameters.
pub async fn values(sent: PeekableFlightDataStream) -> Result<RecordBatch, Status> {
    let messages = sent.into_peekable().map_err(|status| FlightError::Tonic(Box::new(status)));
    // The first one has the command; it may have no schema.
    let messages = messages.try_filter(|message: &FlightData| {
        let has_something = !message.data_header.is_empty();
        async move { has_something }
    });
    let mut batches = FlightRecordBatchStream::new_from_flight_data(messages);
    let mut row: Option<RecordBatch> = None;
    while let Some(batch) = batches.next().await {
        let batch = batch.map_err(Status::from)?;
        if batch.num_rows() == 0 {
            continue;
        }
        if row.is_some() || batch.num_rows() > 1 {
            return Err(refused("a statement takes one row of values at a time\nhint: execute it once for each row"));
        }
        if batch.get_array_memory_size() > VALUES_BYTES_MAX {
            return Err(refused("the values of a statement may have 1 MiB together"));
        }
        row = Some(batch);
    }
    row.ok_or_else(|| refused("there is no row of values for the statement's parameters"))
}

/// A handle for the statement of this one, with these values.
pub fn bound(handle: &[u8], row: &RecordBatch) -> Result<Vec<u8>, Status> {
    let (text, _) = parts(handle)?;
    let length = u32::try_from(text.len()).map_err(|_| refused("the statement is too long"))?;
    let mut bytes = [&[BOUND][..], &length.to_le_bytes(), text.as_bytes()].concat();
    let mut writer = StreamWriter::try_new(&mut bytes, &row.schema()).map_err(broken)?;
    writer.write(row).and_then(|()| writer.finish()).map_err(broken)?;
    drop(writer);
    Ok(bytes)
}

/// A handle's statement, and the values of its parameters.
pub fn opened(handle: &[u8]) -> Result<(&str, Values), Status> {
    let (text, rows) = parts(handle)?;
    if rows.is_empty() {
        return Ok((text, Values::default()));
    }
    let row = StreamReader::try_new(rows, None).map_err(broken)?.next();
    let row = row.ok_or_else(|| refused("the statement's handle has no values"))?.map_err(broken)?;
    if row.num_rows() != 1 {
        return Err(refused("the statement's handle does not have one row of values"));
    }
    let values = row.columns().iter().map(|column| ScalarValue::try_from_array(column, 0));
    Ok((text, Values(values.collect::<Result<_, _>>().map_err(|error| refused(error.to_string()))?)))
}

fn parts(handle: &[u8]) -> Result<(&str, &[u8]), Status> {
    let (text, rows) = match handle {
        [BOUND, rest @ ..] => {
            let cut = rest
                .split_first_chunk()
                .and_then(|(length, rest)| rest.split_at_checked(u32::from_le_bytes(*length) as usize));
            cut.ok_or_else(|| refused("the statement's handle is cut short"))?
        }
        text => (text, &[][..]),
    };
    let text = std::str::from_utf8(text).map_err(|_| refused("the statement is not UTF-8"))?;
    Ok((text, rows))
}

fn broken(error: ArrowError) -> Status {
    refused(format!("the values of the statement's parameters can't be read: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use terrace_analysis::arrow::array::{ArrayRef, Int64Array, StringArray};

    #[test]
    fn a_handle_has_its_statement_and_the_values_that_were_bound_last() {
        let row = |number: i64| {
            let columns: [(&str, ArrayRef); 2] =
                [("$1", Arc::new(Int64Array::from(vec![number]))), ("$2", Arc::new(StringArray::from(vec!["é"])))];
            RecordBatch::try_from_iter(columns).unwrap()
        };
        let text = "SELECT $1, $2";
        assert_eq!(opened(text.as_bytes()).unwrap().0, text);
        let first = bound(text.as_bytes(), &row(1)).unwrap();
        let second = bound(&first, &row(2)).unwrap();
        for (handle, number) in [(&first, 1i64), (&second, 2)] {
            let (found, values) = opened(handle).unwrap();
            assert_eq!((found, values.0), (text, vec![ScalarValue::from(number), ScalarValue::from("é")]));
        }
        for cut in 1..second.len() {
            // Whatever a client makes of a handle, it is answered.
            let _ = opened(&second[..cut]);
        }
        assert!(opened(&[0, 255, 255, 255, 255, 1]).is_err());
    }
}
