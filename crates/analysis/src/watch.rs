//! Standing queries: a query that is asked once for each step, when the step is complete in all arrays of its container.
//!
//! Invariant: steps are answered in order, each once; whoever is ended after step k goes on from k + 1.

use crate::error::{Error, Result};
use crate::session::Queries;
use arrow::array::RecordBatch;
use datafusion::common::ScalarValue;
use std::time::Duration;

/// How often steps are looked for: soon after one came, seldom when none comes.
const LOOK_MIN: Duration = Duration::from_millis(1);
const LOOK_MAX: Duration = Duration::from_millis(50);

pub struct Watch {
    queries: Queries,
    container: String,
    dimension: String,
    query: String,
    next: u64,
}

/// What a query said of a step.
pub struct Answer {
    /// From 0.
    pub step: u64,
    pub rows: Vec<RecordBatch>,
}

impl Watch {
    /// `query` says `$step` for the step's coordinate. `from`: the first step that is asked about.
    pub fn new(queries: &Queries, container: &str, query: &str, from: u64) -> Result<Watch> {
        if !query.contains("$step") {
            return Err(Error::invalid("a standing query does not say which step it is about")
                .hint("compare the step's dimension with $step: SELECT max(v) FROM run WHERE time = $step"));
        }
        let dimension = queries.objects().step_dimension(container)?.ok_or_else(|| {
            Error::invalid(format!("no array of `{container}` has a dimension that grows, so it has no steps"))
                .hint("create its arrays with an unlimited dimension")
        })?;
        Ok(Watch { queries: queries.clone(), container: container.into(), dimension, query: query.into(), next: from })
    }

    /// Waits so long for the next step (`None`: as long as it takes). `None`: there was none.
    pub async fn next(&mut self, patience: Option<Duration>) -> Result<Option<Answer>> {
        let begun = std::time::Instant::now();
        let mut look = LOOK_MIN;
        loop {
            let grid = self.queries.objects().grid(&self.container)?;
            let dimension = grid.as_ref().and_then(|grid| grid.dimensions.iter().find(|d| d.name == self.dimension));
            if let Some(dimension) = dimension.filter(|dimension| dimension.extent > self.next) {
                let coordinate = dimension.axis.values(self.next..self.next + 1);
                let coordinate = ScalarValue::try_from_array(&coordinate, 0)?;
                let frame = self.queries.sql(&self.query).await?.with_param_values(vec![("step", coordinate)])?;
                let answer = Answer { step: self.next, rows: frame.collect().await? };
                self.next += 1;
                return Ok(Some(answer));
            }
            drop(grid);
            if patience.is_some_and(|patience| begun.elapsed() >= patience) {
                return Ok(None);
            }
            let pause = look;
            let slept = tokio::task::spawn_blocking(move || std::thread::sleep(pause));
            slept.await.map_err(|error| Error::new(terrace_client::Kind::System, error.to_string()))?;
            look = (look * 2).min(LOOK_MAX);
        }
    }
}
