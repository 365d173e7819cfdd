//! Which parts of a plan run on which nodes.

use super::channel::{Channels, address_of, url_of};
use super::recipe::{Codec, Recipe, is_without_cells};
use super::share::Share;
use super::worker::QUERY_HEADER;
use crate::error::Result;
use crate::exact;
use crate::exec::{ArrayExec, Seen, Work};
use crate::names::grid_of;
use crate::reduce::{Merge, Partial, Run};
use crate::tables::Objects;
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::catalog::Session;
use datafusion::common::display::{PlanType, StringifiedPlan};
use datafusion::common::internal_err;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::error::{DataFusionError, Result as DataFusionResult};
use datafusion::execution::context::QueryPlanner;
use datafusion::execution::session_state::{SessionState, SessionStateBuilder};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::explain::ExplainExec;
use datafusion::physical_planner::{DefaultPhysicalPlanner, PhysicalPlanner};
use datafusion_distributed::{
    DesiredTaskCountEvent, DesiredTaskCountEventResponse, DistributedExec, DistributedExt, DistributedLeafExec,
    RouteTasksEvent, RouteTasksEventResponse, ScaleUpLeafNodeEvent, ScaleUpLeafNodeEventResponse,
    SessionStateBuilderExt, WorkerResolver, display_plan_ascii,
};
use std::any::Any;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use terrace_client::QueryNode;
use tonic::codegen::http::{HeaderMap, HeaderName, HeaderValue};
use url::Url;

/// A session's way to other nodes, where the root has several agents.
pub struct Nodes {
    objects: Arc<Objects>,
    channels: Channels,
}

/// A plan of which parts run on other nodes, and what it is run with.
pub struct Planned {
    pub plan: Arc<dyn ExecutionPlan>,
    pub task: TaskContext,
}

/// Those that take part in one query.
#[derive(Clone)]
struct Team {
    nodes: Arc<[QueryNode]>,
    urls: Arc<[Url]>,
}

impl Nodes {
    /// `None`: one agent has everything.
    pub fn of(objects: &Arc<Objects>) -> Result<Option<Nodes>> {
        let Some(token) = objects.session.agents_token() else { return Ok(None) };
        Ok(Some(Nodes { objects: objects.clone(), channels: Channels::new(token)? }))
    }

    /// `None`: it is best done here, as it reads nothing that several agents share, or can't be told.
    pub async fn planned(&self, state: &SessionState, plan: &LogicalPlan) -> Result<Option<Planned>> {
        if !reads_shared(plan, state)? {
            return Ok(None);
        }
        let nodes: Arc<[QueryNode]> = self.objects.session.query_nodes().into();
        if nodes.len() < 2 {
            return Ok(None);
        }
        let urls = nodes.iter().map(url_of).collect::<DataFusionResult<Arc<[Url]>>>()?;
        let state = self.with_team(state, Team { nodes, urls }, matches!(plan, LogicalPlan::Analyze(_)))?;
        let asked = match plan {
            LogicalPlan::Explain(explain) => &explain.plan,
            other => other,
        };
        let distributed = match state.create_physical_plan(asked).await {
            Err(error) if is_untold(&error) => return Ok(None),
            planned => planned?,
        };
        let plan = match plan {
            LogicalPlan::Explain(_) => explained(&state, plan, &distributed).await?,
            _ => distributed,
        };
        Ok(Some(Planned { plan, task: TaskContext::from(&state) }))
    }

    fn with_team(&self, state: &SessionState, team: Team, is_analyzed: bool) -> DataFusionResult<SessionState> {
        let (desired, shared, routed) = (team.clone(), team.clone(), team.clone());
        let state = SessionStateBuilder::new_from_existing(state.clone())
            .with_query_planner(Arc::new(Split))
            .with_distributed_planner()
            .with_distributed_worker_resolver(team)
            .with_distributed_channel_resolver(self.channels.clone())
            .with_distributed_user_codec(Codec { objects: self.objects.clone() })
            .with_distributed_desired_task_count_handler(move |event: DesiredTaskCountEvent<'_>| desired.wanted(event))
            .with_distributed_scale_up_leaf_node_handler(move |event: ScaleUpLeafNodeEvent<'_>| shared.shares(event))
            .with_distributed_route_tasks_handler(move |event: RouteTasksEvent<'_>| routed.routes(event))
            // Each node does its part of all sides of a union.
            .with_distributed_children_isolator_unions(false)?
            .with_distributed_passthrough_headers(HeaderMap::from_iter([(QUERY_ID, query_id())]))?
            .with_distributed_metrics_collection(is_analyzed)?
            // Cells of simulations hardly become smaller.
            .with_distributed_compression(None)?;
        Ok(state.build())
    }
}

const QUERY_ID: HeaderName = HeaderName::from_static(QUERY_HEADER);

/// Another one for each query of any node.
fn query_id() -> HeaderValue {
    let random = || RandomState::new().build_hasher().finish();
    HeaderValue::from_str(&format!("{:x}-{:x}", random(), random())).expect("digits and a dash")
}

/// Whether a plan reads arrays that several agents share, and nothing of it is bound to this process.
fn reads_shared(plan: &LogicalPlan, state: &SessionState) -> DataFusionResult<bool> {
    let known = state.scalar_functions();
    let own: Vec<String> = exact::functions().iter().map(|function| function.name().to_owned()).collect();
    // What interpolates holds its array.
    let is_told = |name: &str| {
        name != crate::interpolate::NAME && (known.contains_key(name) || own.iter().any(|own| own == name))
    };
    let (mut is_shared, mut is_bound) = (false, false);
    plan.apply_with_subqueries(|plan| {
        is_shared |= grid_of(plan).is_some_and(|grid| grid.is_shared());
        for expr in plan.expressions() {
            let is_untold = |expr: &Expr| matches!(expr, Expr::ScalarFunction(called) if !is_told(called.func.name()));
            is_bound |= expr.exists(|expr| Ok(is_untold(expr)))?;
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(is_shared && !is_bound)
}

/// What EXPLAIN shows, with what runs where instead of the plan of one node.
async fn explained(
    state: &SessionState,
    explain: &LogicalPlan,
    distributed: &Arc<dyn ExecutionPlan>,
) -> DataFusionResult<Arc<dyn ExecutionPlan>> {
    let plain = DefaultPhysicalPlanner::default().create_physical_plan(&state.optimize(explain)?, state).await?;
    let Some(shown) = plain.downcast_ref::<ExplainExec>().filter(|_| distributed.is::<DistributedExec>()) else {
        return Ok(plain);
    };
    let stages = display_plan_ascii(distributed.as_ref(), false);
    let is_final = |shown: &&StringifiedPlan| shown.plan_type != PlanType::FinalPhysicalPlan;
    let mut plans: Vec<StringifiedPlan> = shown.stringified_plans().iter().filter(is_final).cloned().collect();
    plans.push(StringifiedPlan::new(PlanType::FinalPhysicalPlan, stages));
    Ok(Arc::new(ExplainExec::new(plain.schema(), plans, shown.verbose())))
}

impl WorkerResolver for Team {
    fn get_urls(&self) -> DataFusionResult<Vec<Url>> {
        Ok(self.urls.to_vec())
    }
}

fn leaf(plan: &Arc<dyn ExecutionPlan>) -> Option<&ArrayExec> {
    plan.downcast_ref::<ArrayExec>()
}

impl Team {
    fn wanted(&self, event: DesiredTaskCountEvent<'_>) -> Option<DataFusionResult<DesiredTaskCountEventResponse>> {
        Some(Ok(match leaf(event.plan)?.work().can_be_shared() {
            true => DesiredTaskCountEventResponse::desired(self.nodes.len()),
            false => DesiredTaskCountEventResponse::maximum(1),
        }))
    }

    fn shares(&self, event: ScaleUpLeafNodeEvent<'_>) -> Option<DataFusionResult<ScaleUpLeafNodeEventResponse>> {
        let work = leaf(event.plan)?.work();
        // One task has all of it.
        if event.task_count != self.nodes.len() || !work.can_be_shared() {
            return None;
        }
        let agents: Vec<u32> = self.nodes.iter().map(|node| node.agent).collect();
        let part = |recipe: &Option<Recipe>, own: usize| -> Arc<dyn ExecutionPlan> {
            let mut recipe = recipe.clone();
            if let Some(Recipe::Scan { share, .. } | Recipe::Partial { share, .. }) = &mut recipe {
                *share = Some(Share { agents: agents.clone(), own });
            }
            let place = format!("agent {} at {}", self.nodes[own].agent, address_of(&self.urls[own]));
            Arc::new(ArrayExec::new(Arc::new(Portion { of: work.clone(), recipe, place })))
        };
        let told = work.recipe().map_err(DataFusionError::from);
        let leaf = told.and_then(|recipe| {
            let parts = (0..self.nodes.len()).map(|own| part(&recipe, own));
            DistributedLeafExec::try_new(event.plan.clone(), parts)
        });
        Some(leaf.map(|leaf| ScaleUpLeafNodeEventResponse::new(Arc::new(leaf))))
    }

    fn routes(&self, event: RouteTasksEvent<'_>) -> Option<DataFusionResult<RouteTasksEventResponse>> {
        (event.task_count == self.urls.len()).then(|| Ok(RouteTasksEventResponse::new(self.urls.to_vec())))
    }
}

/// A leaf's part that another node does.
struct Portion {
    of: Arc<dyn Work>,
    recipe: Option<Recipe>,
    place: String,
}

impl Work for Portion {
    fn name(&self) -> &'static str {
        self.of.name()
    }
    fn describe(&self) -> String {
        format!("by {}", self.place)
    }
    fn schema(&self) -> SchemaRef {
        self.of.schema()
    }
    fn partitions(&self) -> usize {
        self.of.partitions()
    }
    fn rows(&self) -> usize {
        self.of.rows()
    }
    fn cells(&self, partition: usize) -> u64 {
        self.of.cells(partition)
    }
    fn recipe(&self) -> Result<Option<Recipe>> {
        Ok(self.recipe.clone())
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
    fn stream(&self, _: usize, _: Arc<TaskContext>, _: Seen) -> DataFusionResult<SendableRecordBatchStream> {
        internal_err!("a part of {} is done here", self.place)
    }
}

/// Plans as one node does, with reductions in two steps; what can't be told to other nodes is an error.
#[derive(Debug)]
struct Split;

#[derive(Debug, thiserror::Error)]
#[error("`{0}` is for one node")]
struct Untold(String);

fn is_untold(error: &DataFusionError) -> bool {
    matches!(error.find_root(), DataFusionError::External(error) if error.is::<Untold>())
}

#[async_trait]
impl QueryPlanner for Split {
    async fn create_physical_plan(
        &self,
        plan: &LogicalPlan,
        session: &dyn Session,
    ) -> DataFusionResult<Arc<dyn ExecutionPlan>> {
        let plan = DefaultPhysicalPlanner::default().create_physical_plan(plan, session).await?;
        let plan = plan.transform_up(in_two_steps).data()?;
        let mut is_shared = false;
        plan.apply(|plan| {
            if plan.children().is_empty() {
                let can_be_told = match leaf(plan) {
                    Some(leaf) => leaf.work().recipe()?.is_some(),
                    None => is_without_cells(plan),
                };
                if !can_be_told {
                    return Err(DataFusionError::External(Box::new(Untold(plan.name().into()))));
                }
                is_shared |= leaf(plan).is_some_and(|leaf| leaf.work().can_be_shared());
            }
            Ok(TreeNodeRecursion::Continue)
        })?;
        match is_shared {
            true => Ok(plan),
            false => Err(DataFusionError::External(Box::new(Untold("all of it".into())))),
        }
    }
}

fn in_two_steps(plan: Arc<dyn ExecutionPlan>) -> DataFusionResult<Transformed<Arc<dyn ExecutionPlan>>> {
    let run = leaf(&plan).and_then(|leaf| leaf.work().as_any().downcast_ref::<Run>());
    let Some(run) = run.filter(|run| run.reduced.can_be_split()) else { return Ok(Transformed::no(plan)) };
    let states = Arc::new(ArrayExec::new(Arc::new(Partial::new(run.reduced.clone(), run.threads))));
    let states = Arc::new(CoalescePartitionsExec::new(states));
    Ok(Transformed::yes(Arc::new(Merge::new(run.reduced.clone(), run.fields.clone(), states)?)))
}
