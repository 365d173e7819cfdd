//! How names in SQL lead to tables: `"study/run1"` and `study.run1` are the container `study/run1` below the root, `terrace.tags`
//! is a table of the catalogue.

use super::Objects;
use crate::catalogue;
use crate::scan::GridTable;
use async_trait::async_trait;
use datafusion::catalog::{CatalogProvider, SchemaProvider, TableProvider};
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::TableType;
use std::fmt::{Debug, Formatter};
use std::sync::Arc;
use terrace_client::ObjectKind;

pub const CATALOG: &str = "terrace";
/// Names without a schema are looked up from the root on.
pub const ROOT_SCHEMA: &str = "root";

pub struct Names(pub Arc<Objects>);

impl Debug for Names {
    fn fmt(&self, out: &mut Formatter<'_>) -> std::fmt::Result {
        write!(out, "Names below {}", self.0.session.root().display())
    }
}

impl CatalogProvider for Names {
    fn schema_names(&self) -> Vec<String> {
        vec![ROOT_SCHEMA.into(), catalogue::SCHEMA.into()]
    }
    fn schema(&self, name: &str) -> Option<Arc<dyn SchemaProvider>> {
        match name {
            ROOT_SCHEMA => Some(Arc::new(Container { objects: self.0.clone(), prefix: String::new() })),
            catalogue::SCHEMA => Some(Arc::new(catalogue::Catalogue(self.0.clone()))),
            name => {
                let is_container = self.0.session.stat(name).is_ok_and(|status| status.kind == ObjectKind::Container);
                is_container.then(|| {
                    Arc::new(Container { objects: self.0.clone(), prefix: format!("{name}/") })
                        as Arc<dyn SchemaProvider>
                })
            }
        }
    }
}

struct Container {
    objects: Arc<Objects>,
    /// Empty, or with a slash at its end.
    prefix: String,
}

impl Debug for Container {
    fn fmt(&self, out: &mut Formatter<'_>) -> std::fmt::Result {
        write!(out, "Container({})", self.prefix)
    }
}

#[async_trait]
impl SchemaProvider for Container {
    fn table_names(&self) -> Vec<String> {
        let tables = catalogue::walk(&self.objects.session, self.prefix.trim_end_matches('/'));
        let mut names: Vec<String> = vec![];
        for found in tables.unwrap_or_default().iter().filter(|found| found.kind == ObjectKind::Array) {
            let container = found.path.rsplit_once('/').map_or("", |(container, _)| container);
            let known = container.strip_prefix(&self.prefix).filter(|name| !name.is_empty());
            if let Some(name) = known
                && names.last().is_none_or(|last| last != name)
            {
                names.push(name.into());
            }
        }
        names.sort_unstable();
        names.dedup();
        names
    }
    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>, DataFusionError> {
        let grid = self.objects.grid(&format!("{}{name}", self.prefix))?;
        Ok(grid.map(|grid| Arc::new(GridTable(Arc::new(grid))) as Arc<dyn TableProvider>))
    }
    async fn table_type(&self, name: &str) -> Result<Option<TableType>, DataFusionError> {
        Ok(self.table_exist(name).then_some(TableType::Base))
    }
    fn table_exist(&self, name: &str) -> bool {
        self.objects.session.exists(&format!("{}{name}", self.prefix)).unwrap_or(false)
    }
}
