//! A session of queries: SQL and plans over the tables of one root.

use crate::cf_time::cf_time;
use crate::complex;
use crate::control::{self, Control, Limits, Query, Register, Shares, answer, checked, on_behalf, with_memory_of};
use crate::error::{Error, Result};
use crate::exact;
use crate::exec::STACK_BYTES;
use crate::extreme::extremes;
use crate::interpolate::{self, interpolate};
use crate::names::ReadByName;
use crate::nesting;
use crate::nodes::Nodes;
use crate::parameters::Values;
use crate::planning::aside;
use crate::rounding::rounding;
use crate::rules::array_rules;
use crate::spill::Spill;
use crate::sum::exact_sum;
use crate::tables::{CATALOG, Names, Objects, ROOT_SCHEMA};
use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::error::DataFusionError;
use datafusion::execution::context::SQLOptions;
use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::memory_pool::{MemoryLimit, TrackConsumersPool};
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::execution::session_state::SessionStateBuilder;
use datafusion::execution::{FunctionRegistry, SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use datafusion::prelude::{DataFrame, SessionConfig, SessionContext};
use futures::{FutureExt, StreamExt};
use std::any::Any;
use std::num::NonZeroUsize;
use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use terrace_client::{Kind, Session};

/// For how long an error waits, at most, for what still runs for its query.
const ENDING_MAX: Duration = Duration::from_secs(1);

/// What a session may use, and how it plans.
#[derive(Clone, Debug)]
pub struct Options {
    /// Bytes that all queries of the session may hold at once; `None`: no limit.
    pub memory_bytes_max: Option<usize>,
    /// Where sorts, joins and aggregates put what does not fit; `None`: they fail.
    pub spill: Option<PathBuf>,
    /// Threads, at most 1024; `None`: one for each processor.
    pub threads: Option<usize>,
    /// Bytes that one query may hold; `None`: as all together.
    pub query_memory_bytes_max: Option<usize>,
    /// How long a query may take, from when it is asked until its last row; `None`: as long as it takes.
    pub query_time_max: Option<Duration>,
    /// Who asks, for `terrace.queries`.
    pub who: String,
    /// Array-native plans; without them every query goes DataFusion's way, for comparison.
    pub array_plans: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            memory_bytes_max: None,
            spill: None,
            threads: None,
            query_memory_bytes_max: None,
            query_time_max: None,
            who: String::new(),
            array_plans: true,
        }
    }
}

/// Cheap to clone; all clones are one session.
#[derive(Clone)]
pub struct Queries {
    context: SessionContext,
    objects: Arc<Objects>,
    who: Arc<str>,
}

/// Rows of a batch: larger than DataFusion's own choice, because batches are mostly views of tier memory.
const BATCH_ROWS: usize = 16 << 10;

/// How many of those who hold most an error names.
const CONSUMERS_NAMED: NonZeroUsize = NonZeroUsize::new(3).unwrap();
/// A sort with less than this gets no further; so many threads as have it work at once.
const THREAD_BYTES_MIN: usize = 32 << 20;
/// What a sort keeps free to merge what it has spilled, as DataFusion has it.
const MERGE_BYTES_MAX: usize = 10 << 20;

const THREADS_MAX: usize = 1024;

/// What each of so many sorts is to merge with: as much as what it sorts.
fn merge_bytes(bytes: usize, sorts: usize) -> usize {
    (bytes / sorts / 2).min(MERGE_BYTES_MAX)
}

/// What each sort is to merge with.
pub fn merge_bytes_of(config: &SessionConfig) -> usize {
    config.options().execution.sort_spill_reservation_bytes
}

/// A context without any tables, for those who bring their own.
pub fn context(options: &Options) -> Result<SessionContext> {
    let mut config = SessionConfig::new()
        .with_information_schema(true)
        .with_create_default_catalog_and_schema(false)
        .with_default_catalog_and_schema(CATALOG, ROOT_SCHEMA)
        .with_batch_size(BATCH_ROWS);
    // Names of arrays are case-sensitive, as files' are.
    config.options_mut().sql_parser.enable_ident_normalization = false;
    // What is less than a NaN whose sign is set, is nothing to the engine: such a bound would leave out all rows.
    config.options_mut().optimizer.enable_aggregate_dynamic_filter_pushdown = false;
    if let Some(threads) = options.threads {
        config = config.with_target_partitions(threads.max(1));
    }
    let mut runtime = RuntimeEnvBuilder::new();
    // One query may have all.
    let bytes_of_query = [options.memory_bytes_max, options.query_memory_bytes_max].into_iter().flatten().min();
    if let Some(bytes) = bytes_of_query {
        let threads = config.target_partitions().min(bytes / THREAD_BYTES_MIN).max(1);
        let to_merge = merge_bytes(bytes, 2 * threads);
        config = config.with_target_partitions(threads).with_sort_spill_reservation_bytes(to_merge);
    }
    if let Some(bytes) = options.memory_bytes_max {
        runtime = match options.spill {
            // Each sort, join and aggregate has its part, so that one that spills late leaves the others theirs.
            Some(_) => {
                let pool = TrackConsumersPool::new(Shares::new(bytes, merge_bytes_of(&config)), CONSUMERS_NAMED);
                runtime.with_memory_pool(Arc::new(pool))
            }
            None => runtime.with_memory_limit(bytes, 1.0),
        };
    }
    let spill = options.spill.as_deref().map(Spill::new).transpose()?;
    let spilling = match &spill {
        Some(spill) => DiskManagerMode::Directories(vec![spill.directory().to_owned()]),
        None => DiskManagerMode::Disabled,
    };
    if let Some(spill) = spill {
        config = config.with_extension(Arc::new(spill));
    }
    runtime = runtime.with_disk_manager_builder(DiskManagerBuilder::default().with_mode(spilling));
    let mut state = SessionStateBuilder::new()
        .with_config(config)
        .with_runtime_env(Arc::new(runtime.build()?))
        // Before the engine's own: these know complex numbers.
        .with_expr_planners(vec![Arc::new(complex::Operators)])
        .with_default_features();
    if options.array_plans {
        state = array_rules().into_iter().fold(state, SessionStateBuilder::with_optimizer_rule);
    }
    let mut state = state.build();
    register_functions(&mut state)?;
    Ok(SessionContext::new_with_state(state))
}

/// Those that are ours, and those that ours are called instead of.
pub fn register_functions(registry: &mut dyn FunctionRegistry) -> Result<()> {
    for function in [exact_sum(), complex::average()].into_iter().chain(extremes()) {
        registry.register_udaf(Arc::new(function))?;
    }
    for function in [cf_time(), interpolate()].into_iter().chain(complex::functions()).chain(rounding()) {
        registry.register_udf(Arc::new(function))?;
    }
    Ok(())
}

/// Plans a query. Nothing is changed by SQL: statements that would are refused.
pub async fn plan(context: &SessionContext, text: &str) -> Result<DataFrame> {
    plan_with(context, text, Values::default()).await
}

/// As `plan`, with values for the statement's parameters; none: they stay what they are.
pub async fn plan_with(context: &SessionContext, text: &str, values: Values) -> Result<DataFrame> {
    nesting::check(text)?;
    let options = SQLOptions::new().with_allow_ddl(false).with_allow_dml(false).with_allow_statements(false);
    let (context, text) = (context.clone(), text.to_owned());
    aside(async move {
        exact::check(&text)?;
        let (state, mut plan) = context.sql_with_options(&text, options).await?.into_parts();
        if !values.0.is_empty() {
            plan = plan.with_param_values(values.of_plan())?;
        }
        Ok(DataFrame::new(state, exact::exact(interpolate::bound(&context, plan).await?)?))
    })
    .await
}

/// Runs a plan: its rows as they come. It is run for the query on whose behalf this is called.
///
/// A join holds the rows of one side by their keys, which is fastest, and can't spill. Where others could, and there is no memory for that,
/// the plan is made again: both sides are sorted.
///
/// What several agents share is read beside them.
pub async fn stream(frame: DataFrame) -> Result<SendableRecordBatchStream> {
    let read = ReadByName::default();
    let rows = unchecked(frame, &read).await?;
    Ok(read.checked(rows))
}

async fn unchecked(frame: DataFrame, read: &ReadByName) -> Result<SendableRecordBatchStream> {
    let (mut state, plan) = frame.into_parts();
    if let Some(nodes) = state.config().get_extension::<Nodes>() {
        let (state, plan, read) = (state.clone(), plan.clone(), read.clone());
        let planning = async move {
            read.learn(&plan)?;
            nodes.planned(&state, &plan).await
        };
        if let Some(planned) = aside(planning).await? {
            let rows = run(planned.task, std::future::ready(Ok(planned.plan))).await?;
            // Else it is done here, which can do with less.
            if let Some(rows) = unless_exhausted(rows).await {
                return Ok(rows);
            }
        }
    }
    let environment = state.runtime_env();
    let of_all = match environment.memory_pool.memory_limit() {
        MemoryLimit::Finite(bytes) => Some(bytes),
        _ => None,
    };
    let limit = control::current().memory_bytes_max.into_iter().chain(of_all).min();
    let joins = joins(&plan);
    let may_sort = limit.filter(|_| environment.disk_manager.tmp_files_enabled() && joins > 0);
    let Some(limit) = may_sort else {
        return stream_once(DataFrame::new(state, plan), read).await;
    };
    let options = &mut state.config_mut().options_mut().optimizer;
    // All of one side is held before the first row comes.
    options.repartition_joins = false;
    let rows = stream_once(DataFrame::new(state.clone(), plan.clone()), read).await?;
    if let Some(rows) = unless_exhausted(rows).await {
        return Ok(rows);
    }
    let config = state.config_mut();
    config.options_mut().optimizer.repartition_joins = true;
    config.options_mut().optimizer.prefer_hash_join = false;
    // With one the engine sorts no side.
    let threads = config.target_partitions().max(2);
    config.options_mut().execution.target_partitions = threads;
    config.options_mut().execution.sort_spill_reservation_bytes = merge_bytes(limit, 2 * joins * threads);
    stream_once(DataFrame::new(state, plan), read).await
}

/// `None`: there was not enough memory for the first row, and all of it is given back.
async fn unless_exhausted(mut rows: SendableRecordBatchStream) -> Option<SendableRecordBatchStream> {
    let first = match rows.next().await {
        Some(Err(error)) if matches!(error.find_root(), DataFusionError::ResourcesExhausted(_)) => {
            drop(rows);
            let control = control::current();
            control.has_given_back().await;
            [&control.cells, &control.planned].into_iter().for_each(|count| count.store(0, Relaxed));
            return None;
        }
        first => first,
    };
    let schema = rows.schema();
    let rows = futures::stream::iter(first).chain(rows);
    Some(Box::pin(RecordBatchStreamAdapter::new(schema, rows)))
}

/// How many it has; one for each expression with a subquery. What can't be walked through is run as it is.
fn joins(plan: &LogicalPlan) -> usize {
    let mut joins = 0;
    let counted = plan.apply(|plan| {
        let with_subquery = plan.expressions().iter().filter(|expression| !is_plain(expression)).count();
        joins += with_subquery + matches!(plan, LogicalPlan::Join(_)) as usize;
        Ok(TreeNodeRecursion::Continue)
    });
    counted.map_or(0, |_| joins)
}

/// Without a subquery, of which a join is made.
fn is_plain(expression: &Expr) -> bool {
    let is_subquery = |expression: &Expr| {
        Ok(matches!(
            expression,
            Expr::Exists(_) | Expr::InSubquery(_) | Expr::ScalarSubquery(_) | Expr::SetComparison(_)
        ))
    };
    !expression.exists(is_subquery).unwrap_or(true)
}

async fn stream_once(frame: DataFrame, read: &ReadByName) -> Result<SendableRecordBatchStream> {
    let (task, read) = (frame.task_ctx(), read.clone());
    let planning = async move {
        read.learn(frame.logical_plan())?;
        Ok(frame.create_physical_plan().await?)
    };
    run(task, planning).await
}

async fn run(
    task: TaskContext,
    planning: impl Future<Output = Result<Arc<dyn ExecutionPlan>>> + Send + 'static,
) -> Result<SendableRecordBatchStream> {
    let control = control::current();
    let config = task.session_config().clone().with_extension(control.clone());
    let environment = with_memory_of(&control, &task.runtime_env(), merge_bytes_of(&config));
    let task = Arc::new(task.with_session_config(config).with_runtime(environment));
    let held = Arc::downgrade(&task);
    let stream = aside(async move {
        let plan = checked(planning.await?, &control)?;
        Ok(execute_stream(plan, task)?)
    })
    .await?;
    let schema = stream.schema();
    let batches = futures::stream::unfold(Some((stream, held)), |running| async {
        let (mut stream, held) = running?;
        let batch = AssertUnwindSafe(stream.next()).catch_unwind().await;
        match batch.unwrap_or_else(|_| Some(Err(engine_failed().into())))? {
            Ok(batch) => Some((Ok(batch), Some((stream, held)))),
            Err(error) => {
                drop(stream);
                // A task of the engine that waits for others takes it for a fault that a runtime cancels them.
                control::within(ENDING_MAX, || held.strong_count() == 0).await;
                Some((Err(error), None))
            }
        }
    });
    Ok(Box::pin(RecordBatchStreamAdapter::new(schema, batches.boxed())))
}

/// A fault of the engine is one query's failure, where programs unwind.
pub fn engine_failed() -> Error {
    Error::new(Kind::System, "the query engine has failed at this query; others are not touched")
        .hint("say it in another way, and please report the query")
}

impl Queries {
    pub fn new(session: Session, options: &Options) -> Result<Queries> {
        let limits = Limits { memory_bytes_max: options.query_memory_bytes_max, time_max: options.query_time_max };
        let queries = Register::new(session.runtime_directory(), limits);
        let objects = Arc::new(Objects::new(session, queries));
        let mut context = context(options)?;
        if let Some(nodes) = Nodes::of(&objects)?.filter(|_| options.array_plans) {
            let state = SessionStateBuilder::new_from_existing(context.state());
            let config = context.copied_config().with_extension(Arc::new(nodes));
            context = SessionContext::new_with_state(state.with_config(config).build());
        }
        context.register_catalog(CATALOG, Arc::new(Names(objects.clone())));
        Ok(Queries { context, objects, who: options.who.as_str().into() })
    }

    /// What DataFusion's own interfaces need: registering functions, building plans.
    pub fn context(&self) -> &SessionContext {
        &self.context
    }
    pub fn objects(&self) -> &Arc<Objects> {
        &self.objects
    }

    /// Removes what was spilled: queries that still run fail. For a process that ends without letting go of everything.
    pub fn remove_spilled(&self) {
        if let Some(spill) = self.context.copied_config().get_extension::<Spill>() {
            spill.remove();
        }
    }

    /// Plans a query. Nothing is changed by SQL: statements that would are refused.
    pub async fn sql(&self, text: &str) -> Result<DataFrame> {
        plan(&self.context, text).await
    }

    /// A query is in `terrace.queries` from now on. `answer` gives its rows, of plans that are made `on_behalf` of its control.
    pub fn begin(&self, text: &str) -> Query {
        self.objects.queries.begin(text, &self.who)
    }

    /// The table of a name, to build a plan on.
    pub async fn table(&self, name: &str) -> Result<DataFrame> {
        let reference = datafusion::common::TableReference::full(CATALOG, ROOT_SCHEMA, name);
        match self.context.table(reference).await {
            Ok(table) => Ok(table),
            Err(_) if self.objects.grid(name)?.is_none() => Err(Error::new(
                Kind::NotFound,
                format!("there is no table `{name}`: no array, and no container with arrays"),
            )),
            Err(error) => Err(error.into()),
        }
    }
}

/// What is asked, unless the query is to end before; the query knows what failed.
pub async fn asked<T>(query: &Query, asking: impl Future<Output = Result<T>>) -> Result<T> {
    let control = query.control();
    let done = tokio::select! {
        biased;
        error = control.ending() => Err(error),
        done = on_behalf(control.clone(), asking) => done,
    };
    done.inspect_err(|error| query.failed(&error.message))
}

/// Queries for programs that don't wait in an async runtime: it brings its own.
pub struct Engine {
    runtime: tokio::runtime::Runtime,
    threads: Option<usize>,
    queries: Queries,
}

impl Engine {
    pub fn new(session: Session, options: &Options) -> Result<Engine> {
        let threads = options.threads.unwrap_or(1);
        if threads > THREADS_MAX {
            return Err(Error::invalid(format!("{threads} threads for queries: at most {THREADS_MAX}")));
        }
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        runtime.thread_stack_size(STACK_BYTES);
        if let Some(threads) = options.threads {
            runtime.worker_threads(threads.max(1));
        }
        let runtime = runtime
            .enable_all()
            .build()
            .map_err(|error| Error::new(Kind::System, format!("no runtime for queries can be started: {error}")))?;
        Ok(Engine { runtime, threads: options.threads, queries: Queries::new(session, options)? })
    }

    pub fn queries(&self) -> &Queries {
        &self.queries
    }
    /// As many as were wanted.
    pub fn threads(&self) -> Option<usize> {
        self.threads
    }
    pub fn runtime(&self) -> &tokio::runtime::Runtime {
        &self.runtime
    }

    pub fn sql(&self, text: &str) -> Result<Batches<'_>> {
        self.batches(text, async {
            let frame = self.queries.sql(text).await?;
            stream(frame).await
        })
    }

    /// It is in no list of queries.
    pub fn run(&self, frame: DataFrame) -> Result<Batches<'_>> {
        let stream = self.runtime.block_on(stream(frame))?;
        Ok(Batches { engine: self, id: None, control: None, stream, shown: None })
    }

    /// What a front end of another language answers to this text: its rows on this runtime.
    pub fn batches(
        &self,
        text: &str,
        asking: impl Future<Output = Result<SendableRecordBatchStream>>,
    ) -> Result<Batches<'_>> {
        let query = self.queries.begin(text);
        let stream = self.runtime.block_on(asked(&query, asking))?;
        let (id, control) = (Some(query.id().to_owned()), Some(query.control().clone()));
        Ok(Batches { engine: self, id, control, stream: answer(query, stream), shown: None })
    }
}

/// A query's result, batch by batch.
pub struct Batches<'a> {
    engine: &'a Engine,
    id: Option<String>,
    control: Option<Arc<Control>>,
    stream: SendableRecordBatchStream,
    /// Let go of when the first rows are there.
    shown: Option<Box<dyn Any>>,
}

impl Batches<'_> {
    /// Keeps something until the first rows are there, or the end.
    pub fn showing(mut self, shown: impl Any) -> Self {
        self.shown = Some(Box::new(shown));
        self
    }

    /// By which the query is in the list, where it is.
    pub fn id(&self) -> Option<&str> {
        self.id.as_deref()
    }
    /// Whether the next rows are the error of an end that is wanted.
    pub fn is_to_end(&self) -> bool {
        self.control.as_ref().is_some_and(|control| control.wanted_end().is_some())
    }
    pub fn schema(&self) -> SchemaRef {
        self.stream.schema()
    }
}

impl Iterator for Batches<'_> {
    type Item = Result<RecordBatch>;
    fn next(&mut self) -> Option<Result<RecordBatch>> {
        let batch = self.engine.runtime.block_on(self.stream.next()).map(|batch| batch.map_err(Into::into));
        self.shown = None;
        batch
    }
}
