//! The list of queries, as the page shows it: those that run, and the last that ended; and the end of one.

use crate::refusal::{Answer, Refusal};
use crate::reply::{Reply, json};
use crate::store::Store;
use serde_json::{Value, json};
use std::time::{Duration, UNIX_EPOCH};
use terrace_client::queries::{Record, cancel as end, in_order, of_session, read};

/// For a query to end.
const PATIENCE: Duration = Duration::from_secs(10);
/// Rows that the page shows, and characters of a query's text.
const LISTED_MAX: usize = 50;
const TEXT_CHARS_MAX: usize = 1000;

pub fn listed(store: &Store) -> Answer<Value> {
    let records = in_order(read(&of_session(store.session()).map_err(unseen)?));
    Ok(json!({"queries": records.iter().take(LISTED_MAX).map(told).collect::<Vec<Value>>()}))
}

pub fn cancel(store: &Store, id: &str) -> Answer<Reply> {
    end(&of_session(store.session()).map_err(unseen)?, id, PATIENCE)?;
    Ok(json(&json!({"ended": id})))
}

fn unseen(error: terrace_client::ObjectError) -> Refusal {
    Refusal { status: axum::http::StatusCode::NOT_IMPLEMENTED, ..error.into() }
}

fn told(record: &Record) -> Value {
    json!({
        "id": record.id, "who": record.who, "text": record.text.chars().take(TEXT_CHARS_MAX).collect::<String>(),
        "state": record.state.name(), "progress": record.progress(),
        "started_s": record.started.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64(),
        "elapsed_s": record.elapsed.as_secs_f64(), "rows": record.rows, "bytes": record.bytes,
        "memory_bytes_peak": record.memory_bytes_peak, "error": record.error,
    })
}
