//! The catalogue as tables: what there is, where it lies, what is said about it, what moves. Each is made when a query names it.

mod agent;
mod rows;

use crate::error::Result;
use crate::tables::Objects;
use arrow::array::RecordBatch;
use async_trait::async_trait;
use datafusion::catalog::{MemTable, SchemaProvider, TableProvider};
use datafusion::error::Result as DataFusionResult;
use datafusion::logical_expr::TableType;
use std::fmt::{Debug, Formatter};
use std::sync::Arc;
use terrace_client::{Kind, ObjectKind, Session};

pub const SCHEMA: &str = "terrace";

pub struct Catalogue(pub Arc<Objects>);

impl Debug for Catalogue {
    fn fmt(&self, out: &mut Formatter<'_>) -> std::fmt::Result {
        write!(out, "Catalogue of {}", self.0.session.root().display())
    }
}

type Made = fn(&Objects) -> Result<RecordBatch>;

const TABLES: [(&str, Made); 9] = [
    ("arrays", rows::arrays),
    ("containers", rows::containers),
    ("objects", rows::objects),
    ("queries", rows::queries),
    ("regions", rows::regions),
    ("steps", rows::steps),
    ("tags", rows::tags),
    ("tiers", agent::tiers),
    ("transfers", agent::transfers),
];

#[async_trait]
impl SchemaProvider for Catalogue {
    fn table_names(&self) -> Vec<String> {
        TABLES.iter().map(|(name, _)| name.to_string()).collect()
    }
    async fn table(&self, name: &str) -> DataFusionResult<Option<Arc<dyn TableProvider>>> {
        let Some((_, made)) = TABLES.iter().find(|(known, _)| *known == name) else { return Ok(None) };
        let batch = made(&self.0)?;
        Ok(Some(Arc::new(MemTable::try_new(batch.schema(), vec![vec![batch]])?)))
    }
    async fn table_type(&self, name: &str) -> DataFusionResult<Option<TableType>> {
        Ok(self.table_exist(name).then_some(TableType::Base))
    }
    fn table_exist(&self, name: &str) -> bool {
        TABLES.iter().any(|(known, _)| *known == name)
    }
}

/// An object and its path below the root.
pub struct Found {
    pub path: String,
    pub kind: ObjectKind,
}

/// All objects at and below a container, by path; what is removed meanwhile is left out.
pub fn walk(session: &Session, below: &str) -> Result<Vec<Found>> {
    let mut found = vec![];
    let mut waiting = vec![below.to_owned()];
    while let Some(container) = waiting.pop() {
        let entries = match session.list(&container) {
            Err(error) if matches!(error.kind, Kind::NotFound | Kind::Denied) => continue,
            entries => entries?,
        };
        for entry in entries {
            let path = if container.is_empty() { entry.name } else { format!("{container}/{}", entry.name) };
            if entry.kind == ObjectKind::Container {
                waiting.push(path.clone());
            }
            found.push(Found { path, kind: entry.kind });
        }
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(found)
}
