//! Results: one row for each operation of each repetition, kept in a directory that can be resumed and compared.

mod export;
mod row;
mod store;

pub use export::{to_csv, to_parquet};
pub use row::{Facts, Row, Status, row};
pub use store::{Store, manifest, unix_seconds, write, write_json};
