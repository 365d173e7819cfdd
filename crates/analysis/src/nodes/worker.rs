//! What answers parts of queries beside an agent.

use super::channel::Channels;
use super::fault::{ForAnotherNode, carried};
use super::recipe::{Codec, is_without_cells};
use crate::control::{checked, of_config, with_memory_of};
use crate::error::{Error, Result};
use crate::exact;
use crate::exec::ArrayExec;
use crate::session::{Options, context, merge_bytes_of, register_functions};
use crate::tables::Objects;
use crate::{Limits, Query, Register};
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::error::{DataFusionError, Result as DataFusionResult};
use datafusion::execution::FunctionRegistry;
use datafusion::execution::session_state::SessionState;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::filter_pushdown::FilterPushdown;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::{
    ChildrenPropertiesMode, ExecutionPlan, ReplaceChildrenOptions, SortOrderPushdownResult,
};
use datafusion::prelude::SessionConfig;
use datafusion_distributed::{
    DistributedConfig, DistributedExt, NetworkBoundaryExt, Worker, WorkerPlanRewriteEvent,
    WorkerPlanRewriteEventResponse, WorkerQueryContext,
};
use futures::TryFutureExt;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use terrace_client::{Kind, Session};

/// What all parts of queries on this node use; connected when the first one comes: agents that begin together wait for each other.
struct Place {
    options: Options,
    connect: Box<dyn Fn() -> Result<Session> + Send + Sync>,
    connected: OnceLock<(Arc<Objects>, Channels)>,
}

impl Place {
    fn connected(&self) -> Result<&(Arc<Objects>, Channels)> {
        if let Some(connected) = self.connected.get() {
            return Ok(connected);
        }
        let session = (self.connect)()?;
        let limits =
            Limits { memory_bytes_max: self.options.query_memory_bytes_max, time_max: self.options.query_time_max };
        let queries = Register::new(session.runtime_directory(), limits);
        let Some(token) = session.agents_token() else {
            return Err(Error::new(Kind::NoAgent, "the root has one agent: it has no other nodes"));
        };
        let channels = Channels::new(token)?;
        Ok(self.connected.get_or_init(|| (Arc::new(Objects::new(session, queries)), channels)))
    }
}

/// Which query a part is of.
pub const QUERY_HEADER: &str = "x-terrace-query";

/// Parts that are computed here, by the query that they are of. An operator that does not yield keeps its task, and what the task holds: it
/// ends when it is told so, and not when it is let go of.
#[derive(Clone, Default)]
pub struct Parts(Arc<Mutex<HashMap<String, Vec<Query>>>>);

impl Parts {
    fn begun(&self, query: &str, part: Query) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(query.into()).or_default().push(part);
    }

    /// Who asked has the answer, or is gone: whatever still computes for it is of no use.
    pub fn end(&self, query: &str) {
        let parts = self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(query);
        parts.into_iter().flatten().for_each(|part| part.finished());
    }
}

/// The service of a node. Whoever asks has shown the agents' token.
pub fn worker_service(
    options: Options,
    connect: impl Fn() -> Result<Session> + Send + Sync + 'static,
) -> Result<(Worker, Parts)> {
    let parts = Parts::default();
    let told_of = parts.clone();
    let own = context(&options)?;
    let place = Arc::new(Place { options, connect: Box::new(connect), connected: OnceLock::new() });
    let (runtime, config) = (own.runtime_env(), own.copied_config());
    let session = move |query: WorkerQueryContext| {
        let (place, runtime, config, parts) = (place.clone(), runtime.clone(), config.clone(), told_of.clone());
        let begun = async move {
            let connecting = tokio::task::spawn_blocking(move || place.connected().cloned());
            let (objects, channels) =
                connecting.await.map_err(|error| DataFusionError::External(Box::new(error)))??;
            let part = objects.queries.begin("a part of a query", "another node");
            let control = part.control().clone();
            let Some(id) = query.headers.get(QUERY_HEADER).and_then(|id| id.to_str().ok()) else {
                return Err(Error::new(Kind::Protocol, "a part of a query that has no name").into());
            };
            parts.begun(id, part);
            let mut builder = query.builder;
            let told = builder.config().take().unwrap_or_default();
            let mut told = told.with_target_partitions(config.target_partitions()).with_batch_size(config.batch_size());
            told.set_extension(control.clone());
            told.set_extension(Arc::new(ForAnotherNode));
            let environment = with_memory_of(&control, &runtime, merge_bytes_of(&told));
            let mut state: SessionState = builder
                .with_config(told)
                .with_runtime_env(environment)
                .with_distributed_user_codec(Codec { objects })
                .with_distributed_channel_resolver(channels)
                .with_distributed_worker_plan_rewrite_handler(ending)
                .build();
            register_functions(&mut state)?;
            for function in exact::functions() {
                state.register_udf(Arc::new(function))?;
            }
            Ok(state)
        };
        begun.map_err(carried)
    };
    Ok((Worker::from_session_builder(session), parts))
}

/// The same plan, which ends when its query is to. Where its operators are measured, each is to be where who asks knows it: then leaves
/// alone look.
fn ending(event: WorkerPlanRewriteEvent<'_>) -> DataFusionResult<WorkerPlanRewriteEventResponse> {
    refuse_others(&event.plan).map_err(carried)?;
    let is_measured = DistributedConfig::from_session_config(event.session_config)?.collect_metrics;
    Ok(WorkerPlanRewriteEventResponse::new(match is_measured {
        true => event.plan,
        false => checked(with_late_filters(event.plan, event.session_config)?, &of_config(event.session_config))?,
    }))
}

/// Sorts with a limit tell the scans below them what comes too late: the plan that came here has lost that. Those of joins wait for parts
/// that other nodes have.
fn with_late_filters(plan: Arc<dyn ExecutionPlan>, config: &SessionConfig) -> DataFusionResult<Arc<dyn ExecutionPlan>> {
    let mut options = config.options().as_ref().clone();
    options.optimizer.enable_join_dynamic_filter_pushdown = false;
    options.optimizer.enable_aggregate_dynamic_filter_pushdown = false;
    FilterPushdown::new_post_optimization().optimize(with_order(plan)?, &options)
}

/// A scan begins with what is sorted first, where no more than that is wanted. The sort stays: DataFusion's own rule would put one above it
/// that merges its partitions, of which who asks knows another number.
fn with_order(plan: Arc<dyn ExecutionPlan>) -> DataFusionResult<Arc<dyn ExecutionPlan>> {
    let ordered = |plan: Arc<dyn ExecutionPlan>| {
        let Some(sort) = plan.downcast_ref::<SortExec>().filter(|sort| sort.fetch().is_some()) else {
            return Ok(Transformed::no(plan));
        };
        match sort.input().try_pushdown_sort(sort.expr())? {
            SortOrderPushdownResult::Inexact { inner } if sort.input().is::<ArrayExec>() => {
                let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
                Ok(Transformed::yes(plan.replace_children(vec![inner], options)?))
            }
            _ => Ok(Transformed::no(plan)),
        }
    };
    plan.transform_up(ordered).data()
}

/// A node reads the cells of arrays, whatever else its library could: files, or what writes them, are in no plan of ours.
fn refuse_others(plan: &Arc<dyn ExecutionPlan>) -> DataFusionResult<()> {
    plan.apply(|plan| {
        let is_ours = !plan.children().is_empty()
            || plan.is::<ArrayExec>()
            || plan.is_network_boundary()
            || is_without_cells(plan);
        match is_ours && !plan.name().contains("Sink") {
            true => Ok(TreeNodeRecursion::Continue),
            false => Err(Error::new(Kind::Denied, format!("a node does no `{}`", plan.name())).into()),
        }
    })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::datatypes::Schema;
    use datafusion::datasource::memory::MemorySourceConfig;
    use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
    use datafusion::physical_plan::empty::EmptyExec;
    use datafusion::physical_plan::work_table::WorkTableExec;

    #[test]
    fn a_node_reads_nothing_but_arrays() {
        let schema = Arc::new(Schema::empty());
        let nothing: Arc<dyn ExecutionPlan> = Arc::new(EmptyExec::new(schema.clone()));
        let below = |leaf| Arc::new(CoalescePartitionsExec::new(leaf)) as Arc<dyn ExecutionPlan>;
        assert!(refuse_others(&nothing).is_ok() && refuse_others(&below(nothing)).is_ok());
        let rows: Arc<dyn ExecutionPlan> = MemorySourceConfig::try_new_exec(&[vec![]], schema.clone(), None).unwrap();
        let table: Arc<dyn ExecutionPlan> = Arc::new(WorkTableExec::new("t".into(), schema, None).unwrap());
        for leaf in [rows, table] {
            for plan in [leaf.clone(), below(leaf)] {
                let refused = Error::from(refuse_others(&plan).unwrap_err());
                assert_eq!(refused.kind, Kind::Denied, "{refused}");
            }
        }
    }
}
