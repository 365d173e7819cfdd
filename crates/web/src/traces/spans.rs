//! From what an agent tells to spans. A run has a trace of its own, or goes on with the one that its environment named; moves that end
//! while it lives are below it. What ends outside of any run has a trace of its own.

use opentelemetry::propagation::TextMapPropagator;
use opentelemetry::trace::{SpanContext, SpanId, SpanKind, Status, TraceContextExt, TraceFlags, TraceId, TraceState};
use opentelemetry::{Array, InstrumentationScope, KeyValue, StringValue, Value};
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{IdGenerator, RandomIdGenerator, SpanData, SpanEvents, SpanLinks};
use std::collections::HashMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use terrace_client::queries::{Record, State};
use terrace_core::control::{Ended, MoveSpan, Origin, RunSpan};

/// Runs that are remembered although nobody tells of them: their agent may be started again.
const RUNS_MAX: usize = 1024;
/// Of a command line, and of a query's text.
const TEXT_CHARS_MAX: usize = 4096;

/// The same run, whichever agent tells of it: its process, and when it began.
type RunKey = (u32, u64);

struct Run {
    context: SpanContext,
    /// Of who started it.
    parent: Option<SpanContext>,
    /// As it was told of last.
    last: RunSpan,
}

#[derive(Default)]
pub struct Spans {
    ids: RandomIdGenerator,
    runs: HashMap<RunKey, Run>,
    numbers: HashMap<u64, RunKey>,
}

fn key(run: &RunSpan) -> RunKey {
    (run.pid, run.begin_ns)
}

fn time(ns: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_nanos(ns)
}

fn short(text: &str) -> String {
    text.chars().take(TEXT_CHARS_MAX).collect()
}

/// A number that no protocol has room for is the greatest that it has.
fn count(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

impl Spans {
    pub fn of_agent(&mut self, ended: &Ended) -> Vec<SpanData> {
        self.numbers = ended.runs.iter().map(|run| (run.run, key(run))).collect();
        if self.runs.len() > RUNS_MAX {
            let told: Vec<RunKey> = ended.runs.iter().map(key).collect();
            self.runs.retain(|key, _| told.contains(key));
        }
        for run in &ended.runs {
            match self.runs.get_mut(&key(run)) {
                Some(known) => known.last = run.clone(),
                None => {
                    let parent = parent(&run.origin);
                    let context = self.context(parent.as_ref());
                    self.runs.insert(key(run), Run { context, parent, last: run.clone() });
                }
            }
        }
        let moves: Vec<SpanData> = ended.moves.iter().map(|done| self.of_move(done)).collect();
        let done = ended.runs.iter().filter(|run| run.end_ns.is_some());
        let runs: Vec<SpanData> = done.filter_map(|run| Some(of_run(&self.runs.remove(&key(run))?))).collect();
        // What whoever started a run does not record, we don't either.
        runs.into_iter().chain(moves).filter(|span| span.span_context.is_sampled()).collect()
    }

    /// Runs that live when nobody will tell of their end: what is below them has them above it.
    pub fn unfinished(&mut self) -> Vec<SpanData> {
        let runs = std::mem::take(&mut self.runs);
        runs.values().map(of_run).filter(|span| span.span_context.is_sampled()).collect()
    }

    pub fn of_query(&self, record: &Record) -> SpanData {
        let attributes = vec![
            KeyValue::new("db.system.name", "terrace"),
            KeyValue::new("db.query.text", short(&record.text)),
            KeyValue::new("db.response.returned_rows", count(record.rows)),
            KeyValue::new("terrace.bytes", count(record.bytes)),
            KeyValue::new("terrace.memory_bytes_peak", count(record.memory_bytes_peak)),
            KeyValue::new("terrace.query", record.id.clone()),
            KeyValue::new("terrace.who", record.who.clone()),
        ];
        let status = match (&record.error, record.state) {
            (Some(error), _) => Status::error(short(error)),
            (None, State::Finished) => Status::Ok,
            (None, state) => Status::error(state.name()),
        };
        let times = (record.started, record.started + record.elapsed);
        span("query", self.context(None), None, times, attributes, status)
    }

    fn of_move(&self, done: &MoveSpan) -> SpanData {
        let run = done.run.and_then(|run| self.runs.get(self.numbers.get(&run)?)).map(|run| &run.context);
        let mut attributes = vec![
            KeyValue::new("terrace.move", done.kind.name()),
            KeyValue::new("file.path", done.path.to_string_lossy().into_owned()),
            KeyValue::new("terrace.bytes", count(done.bytes)),
        ];
        attributes.extend(done.tier.iter().map(|tier| KeyValue::new("terrace.tier", tier.clone())));
        let status = done.error.clone().map_or(Status::Ok, Status::error);
        let times = (time(done.begin_ns), time(done.end_ns));
        span(done.kind.name(), self.context(run), run, times, attributes, status)
    }

    /// Of a new span.
    fn context(&self, parent: Option<&SpanContext>) -> SpanContext {
        let (trace, flags, state) = match parent {
            Some(parent) => (parent.trace_id(), parent.trace_flags(), parent.trace_state().clone()),
            None => (self.ids.new_trace_id(), TraceFlags::SAMPLED, TraceState::NONE),
        };
        SpanContext::new(trace, self.ids.new_span_id(), flags, false, state)
    }
}

fn parent(origin: &Origin) -> Option<SpanContext> {
    let mut carrier = HashMap::new();
    carrier.insert("traceparent".to_owned(), origin.traceparent.clone()?);
    carrier.extend(origin.tracestate.clone().map(|state| ("tracestate".to_owned(), state)));
    let context = TraceContextPropagator::new().extract_with_context(&opentelemetry::Context::new(), &carrier);
    let parent = context.span().span_context().clone();
    (parent.trace_id() != TraceId::INVALID).then_some(parent)
}

fn of_run(run: &Run) -> SpanData {
    let words: Vec<StringValue> = run.last.command.iter().map(|word| short(word).into()).collect();
    let mut attributes = vec![
        KeyValue::new("process.command_args", Value::Array(Array::String(words))),
        KeyValue::new("process.pid", i64::from(run.last.pid)),
    ];
    let end = run.last.end_ns.map_or_else(SystemTime::now, time);
    if run.last.end_ns.is_none() {
        attributes.push(KeyValue::new("terrace.unfinished", true));
    }
    span("run", run.context.clone(), run.parent.as_ref(), (time(run.last.begin_ns), end), attributes, Status::Unset)
}

fn span(
    name: &'static str,
    span_context: SpanContext,
    parent: Option<&SpanContext>,
    (start_time, end_time): (SystemTime, SystemTime),
    attributes: Vec<KeyValue>,
    status: Status,
) -> SpanData {
    SpanData {
        span_context,
        parent_span_id: parent.map_or(SpanId::INVALID, SpanContext::span_id),
        parent_span_is_remote: parent.is_some_and(SpanContext::is_remote),
        span_kind: SpanKind::Internal,
        name: name.into(),
        start_time,
        end_time,
        attributes,
        dropped_attributes_count: 0,
        events: SpanEvents::default(),
        links: SpanLinks::default(),
        status,
        instrumentation_scope: InstrumentationScope::builder("terrace").with_version(env!("CARGO_PKG_VERSION")).build(),
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use terrace_core::control::MoveKind;

    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-";

    fn run(flags: Option<&str>, end_ns: Option<u64>) -> RunSpan {
        let origin = Origin { traceparent: flags.map(|flags| format!("{PARENT}{flags}")), ..Origin::default() };
        RunSpan { run: 1, pid: 7, command: vec!["make".into(), "all".into()], origin, begin_ns: 1000, end_ns }
    }

    fn flush(run: Option<u64>, error: Option<&str>) -> MoveSpan {
        let (kind, path, tier) = (MoveKind::Flush, "/r/f".into(), Some("ram".into()));
        MoveSpan { kind, path, bytes: 5, tier, run, begin_ns: 1001, end_ns: 1002, error: error.map(str::to_owned) }
    }

    fn ended(runs: Vec<RunSpan>, moves: Vec<MoveSpan>) -> Ended {
        Ended { agent_ns: 1, lost: 0, next: 9, runs, moves }
    }

    pub fn a_move(spans: &mut Spans) -> SpanData {
        spans.of_agent(&ended(vec![], vec![flush(None, None)])).remove(0)
    }

    #[test]
    fn moves_are_below_their_run_and_a_run_below_who_started_it() {
        let mut spans = Spans::default();
        let moved = spans.of_agent(&ended(vec![run(Some("01"), None)], vec![flush(Some(1), None)]));
        let over = spans.of_agent(&ended(vec![run(Some("01"), Some(2000))], vec![flush(Some(1), Some("no room"))]));
        let [flushed, run, failed] = [&moved[0], &over[0], &over[1]];
        assert_eq!((moved.len(), over.len(), &*run.name, &*flushed.name), (1, 2, "run", "flush"));
        assert_eq!(run.span_context.trace_id().to_string(), "0af7651916cd43dd8448eb211c80319c");
        assert_eq!(run.parent_span_id.to_string(), "b7ad6b7169203331");
        assert!(run.parent_span_is_remote && !flushed.parent_span_is_remote);
        for below in [flushed, failed] {
            assert_eq!(below.parent_span_id, run.span_context.span_id());
            assert_eq!(below.span_context.trace_id(), run.span_context.trace_id());
        }
        assert_eq!((&flushed.status, &failed.status), (&Status::Ok, &Status::error("no room")));
        assert_eq!((run.start_time, run.end_time), (time(1000), time(2000)));
        assert!(spans.unfinished().is_empty());
    }

    #[test]
    fn a_run_without_a_trace_begins_one_and_a_move_without_a_run_does_too() {
        let mut spans = Spans::default();
        let found = spans.of_agent(&ended(vec![run(None, None)], vec![flush(Some(1), None), flush(None, None)]));
        assert_ne!(found[0].span_context.trace_id(), found[1].span_context.trace_id());
        assert_eq!(found[1].parent_span_id, SpanId::INVALID);
        // An agent that was started again tells of the same run: it is one span.
        let unfinished = spans.unfinished();
        assert_eq!(unfinished.len(), 1);
        assert_eq!(unfinished[0].span_context.span_id(), found[0].parent_span_id);
        assert_eq!(unfinished[0].parent_span_id, SpanId::INVALID);
    }

    #[test]
    fn what_the_starter_does_not_record_is_not_sent_and_nonsense_begins_a_trace() {
        let mut spans = Spans::default();
        let all = |flags| ended(vec![run(Some(flags), Some(2000))], vec![flush(Some(1), None)]);
        assert!(spans.of_agent(&all("00")).is_empty());
        let nonsense = spans.of_agent(&all("xx"));
        assert_eq!((nonsense.len(), nonsense[0].parent_span_id), (2, SpanId::INVALID));
    }
}
