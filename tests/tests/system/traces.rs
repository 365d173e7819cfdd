//! Moves, runs and queries as OpenTelemetry spans: `terrace web` beside real runs, and a collector that is a few lines of HTTP.

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use terrace_tests::{Http, Outcome, Wish, Workplace, wait_until};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const PARENT: &str = "b7ad6b7169203331";

/// Takes spans at `/v1/traces`, and keeps them.
struct Collector {
    address: String,
    /// What it answers; 0: nothing, ever.
    answer: Arc<AtomicU16>,
    requests: Arc<Mutex<Vec<(String, ExportTraceServiceRequest)>>>,
}

impl Collector {
    fn begin(address: &str) -> Collector {
        let listener = TcpListener::bind(address).unwrap();
        let collector = Collector {
            address: listener.local_addr().unwrap().to_string(),
            answer: Arc::new(AtomicU16::new(200)),
            requests: Arc::default(),
        };
        let (answer, requests) = (collector.answer.clone(), collector.requests.clone());
        std::thread::spawn(move || {
            for connection in listener.incoming().flatten() {
                let (answer, requests) = (answer.clone(), requests.clone());
                std::thread::spawn(move || take(connection, &answer, &requests));
            }
        });
        collector
    }

    fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    fn spans(&self) -> Vec<Span> {
        let requests = self.requests.lock().unwrap();
        let resources = requests.iter().flat_map(|(_, request)| &request.resource_spans);
        resources.flat_map(|resource| &resource.scope_spans).flat_map(|scope| scope.spans.clone()).collect()
    }

    /// The spans of this name, when there are so many.
    #[track_caller]
    fn wait_for(&self, count: usize, is_meant: impl Fn(&Span) -> bool) -> Vec<Span> {
        let found = || self.spans().into_iter().filter(|span| is_meant(span)).collect::<Vec<_>>();
        assert!(wait_until(30, || found().len() >= count), "{count} spans do not come; there are {:#?}", self.spans());
        found()
    }
}

fn take(connection: TcpStream, answer: &AtomicU16, requests: &Mutex<Vec<(String, ExportTraceServiceRequest)>>) {
    let mut reader = BufReader::new(connection);
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if reader.read_line(&mut head).unwrap_or(0) == 0 {
                return;
            }
        }
        let length = head.lines().find_map(|line| line.to_lowercase().strip_prefix("content-length: ")?.parse().ok());
        let mut body = vec![0; length.expect("a length is said")];
        reader.read_exact(&mut body).unwrap();
        let status = answer.load(SeqCst);
        if status == 0 {
            std::thread::sleep(Duration::from_secs(600));
        }
        if status == 200 {
            let request = ExportTraceServiceRequest::decode(&body[..]).expect("it is OTLP");
            requests.lock().unwrap().push((head, request));
        }
        let said = format!("HTTP/1.1 {status} As told\r\nContent-Length: 0\r\n\r\n");
        if reader.get_mut().write_all(said.as_bytes()).is_err() {
            return;
        }
    }
}

fn text<'a>(attributes: &'a [KeyValue], key: &str) -> &'a str {
    match value(attributes, key) {
        Some(Value::StringValue(text)) => text,
        other => panic!("{key} is {other:?}"),
    }
}

fn number(attributes: &[KeyValue], key: &str) -> i64 {
    match value(attributes, key) {
        Some(Value::IntValue(number)) => *number,
        other => panic!("{key} is {other:?}"),
    }
}

fn value<'a>(attributes: &'a [KeyValue], key: &str) -> Option<&'a Value> {
    attributes.iter().find(|found| found.key == key)?.value.as_ref()?.value.as_ref()
}

fn hex(id: &[u8]) -> String {
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn has_failed(span: &Span) -> bool {
    span.status.as_ref().is_some_and(|status| status.code == 2)
}

/// A flush of this file, which went well or not.
fn is_flush(place: &Workplace, name: &str, fails: bool) -> impl Fn(&Span) -> bool {
    let path = place.root().join(name).to_str().unwrap().to_owned();
    move |span| span.name == "flush" && text(&span.attributes, "file.path") == path && has_failed(span) == fails
}

/// `terrace web`, with these variables.
struct Web {
    process: Child,
    http: Http,
}

impl Web {
    fn begin(place: &Workplace, variables: &[(&str, &str)]) -> Web {
        let mut command = place.terrace("web");
        command.envs(variables.iter().copied()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let page = lines.next().expect("a line").unwrap();
        let url = page.strip_prefix("page: ").unwrap().split_once("/?").unwrap().0;
        let token = std::fs::read_to_string(place.state().join("web.token")).unwrap();
        Web { http: Http::new(url, token.trim()), process }
    }

    /// What it has said.
    fn end(self) -> String {
        // SAFETY: our own child.
        unsafe { libc::kill(self.process.id() as i32, libc::SIGTERM) };
        Outcome::of_child(20, self.process).ok().stderr
    }
}

/// A program that writes two files and stays until it is told to end.
fn begin_run(place: &Workplace, variables: &[(&str, &str)]) -> Child {
    let script = "mkdir d; echo yes > f; echo deep > d/g; while [ ! -e $SCRATCH/end ]; do sleep 0.05; done";
    let mut command: Command = place.run_command(&[], &["bash", "-c", script, "it"]);
    command.envs(variables.iter().copied()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

fn end_run(place: &Workplace, run: Child) {
    std::fs::write(place.scratch().join("end"), "").unwrap();
    Outcome::of_child(60, run).ok();
}

#[test]
fn a_run_goes_on_with_its_starters_trace_and_its_moves_are_below_it() {
    let place = Workplace::new();
    let collector = Collector::begin("127.0.0.1:0");
    let traceparent = format!("00-{TRACE}-{PARENT}-01");
    let run = begin_run(&place, &[("TRACEPARENT", &traceparent)]);
    assert!(wait_until(20, || place.status().is_some_and(|status| status.runs.len() == 1)));
    let web = Web::begin(
        &place,
        &[
            ("OTEL_EXPORTER_OTLP_ENDPOINT", &collector.url()),
            ("OTEL_EXPORTER_OTLP_HEADERS", "x-key=secret"),
            ("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test"),
        ],
    );
    let f = collector.wait_for(1, is_flush(&place, "f", false)).remove(0);
    let g = collector.wait_for(1, is_flush(&place, "d/g", false)).remove(0);
    assert!(!collector.spans().iter().any(|span| span.name == "run"), "it lives");
    end_run(&place, run);
    let run = collector.wait_for(1, |span| span.name == "run").remove(0);
    assert_eq!((hex(&run.trace_id), hex(&run.parent_span_id)), (TRACE.into(), PARENT.into()));
    let words: Vec<_> = match value(&run.attributes, "process.command_args") {
        Some(Value::ArrayValue(words)) => words.values.iter().collect(),
        other => panic!("{other:?}"),
    };
    assert_eq!((words.len(), words[0]), (4, &AnyValue { value: Some(Value::StringValue("bash".into())) }));
    for (flush, bytes) in [(&f, 4), (&g, 5)] {
        assert_eq!((hex(&flush.trace_id), &flush.parent_span_id), (TRACE.into(), &run.span_id));
        assert_eq!(
            (number(&flush.attributes, "terrace.bytes"), text(&flush.attributes, "terrace.tier")),
            (bytes, "ram")
        );
        let (begin, end) = (flush.start_time_unix_nano, flush.end_time_unix_nano);
        assert!(run.start_time_unix_nano <= begin && begin < end && end <= run.end_time_unix_nano, "{flush:?} {run:?}");
    }
    let (head, request) = collector.requests.lock().unwrap()[0].clone();
    assert!(head.starts_with("POST /v1/traces ") && head.to_lowercase().contains("x-key: secret"), "{head}");
    let resource = &request.resource_spans[0].resource.as_ref().unwrap().attributes;
    assert_eq!(text(resource, "service.name"), "terrace");
    assert_eq!(text(resource, "deployment.environment.name"), "test");
    assert_eq!(text(resource, "terrace.root"), place.root().to_str().unwrap());
    assert_eq!(web.end(), "");
    let mut ids: Vec<Vec<u8>> = collector.spans().into_iter().map(|span| span.span_id).collect();
    let all = ids.len();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), all, "nothing is told twice");
}

#[test]
fn a_failed_flush_is_an_error_with_its_reason_and_the_next_one_that_works_is_none() {
    let place = Wish::default().settle("500ms").build();
    let collector = Collector::begin("127.0.0.1:0");
    let mut shell = place.shell();
    let web = Web::begin(&place, &[("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", &format!("{}/v1/traces", collector.url()))]);
    shell.does("echo precious > f");
    let away = place.root().with_file_name("away");
    std::fs::rename(place.root(), &away).unwrap();
    let failed = collector.wait_for(1, is_flush(&place, "f", true)).remove(0);
    assert!(failed.status.as_ref().unwrap().message.contains("put it back"), "{failed:?}");
    std::fs::rename(&away, place.root()).unwrap();
    let flushed = collector.wait_for(1, is_flush(&place, "f", false)).remove(0);
    assert_eq!(flushed.parent_span_id, failed.parent_span_id, "both belong to the shell's run");
    assert_eq!(web.end(), "");
    shell.ends_and_leaves();
    // The server ended before the run: what was below the run still has it above it.
    let run = collector.wait_for(1, |span| span.name == "run").remove(0);
    assert_eq!(run.span_id, flushed.parent_span_id);
    assert_eq!(value(&run.attributes, "terrace.unfinished"), Some(&Value::BoolValue(true)));
}

#[test]
fn a_query_that_ended_is_a_span_with_its_text_and_its_error() {
    let place = Workplace::new();
    let collector = Collector::begin("127.0.0.1:0");
    let shell = place.shell();
    let web = Web::begin(&place, &[("OTEL_EXPORTER_OTLP_ENDPOINT", &collector.url()), ("OTEL_SERVICE_NAME", "study")]);
    let ask = |text: &str| Outcome::of(place.terrace("sql").arg(text).output().unwrap());
    ask("select 40 + 2 as answer").ok();
    assert_ne!(ask("select nothing").code, 0);
    let found = collector.wait_for(2, |span| span.name == "query");
    let about =
        |text_of: &str| found.iter().find(|span| text(&span.attributes, "db.query.text").contains(text_of)).unwrap();
    assert!(!has_failed(about("40 + 2")) && number(&about("40 + 2").attributes, "db.response.returned_rows") == 1);
    assert!(has_failed(about("nothing")));
    let (_, request) = collector.requests.lock().unwrap()[0].clone();
    assert_eq!(text(&request.resource_spans[0].resource.as_ref().unwrap().attributes, "service.name"), "study");
    assert_eq!(web.end(), "");
    shell.ends_and_leaves();
}

#[test]
fn a_collector_that_is_away_disturbs_nothing_and_gets_what_waited_when_it_comes() {
    let place = Workplace::new();
    let address = terrace_tests::Served::free_address();
    let run = begin_run(&place, &[]);
    assert!(wait_until(20, || place.status().is_some_and(|status| status.runs.len() == 1)));
    let web = Web::begin(&place, &[("OTEL_EXPORTER_OTLP_ENDPOINT", &format!("http://{address}"))]);
    assert!(wait_until(20, || !place.root().join("d/g").is_symlink() && place.root().join("d/g").exists()));
    assert_eq!(web.http.get("/api/status").status, 200);
    std::thread::sleep(Duration::from_secs(3));
    let collector = Collector::begin(&address);
    collector.answer.store(503, SeqCst);
    end_run(&place, run);
    std::thread::sleep(Duration::from_secs(2));
    collector.answer.store(200, SeqCst);
    let run = collector.wait_for(1, |span| span.name == "run").remove(0);
    assert_eq!((run.parent_span_id.len(), hex(&run.trace_id).len()), (0, 32), "a trace of its own");
    for name in ["f", "d/g"] {
        let flush = collector.wait_for(1, is_flush(&place, name, false)).remove(0);
        assert_eq!(flush.parent_span_id, run.span_id);
    }
    let said = web.end();
    assert_eq!(said.matches("does not take spans").count(), 1, "{said}");
}

#[test]
fn a_collector_that_refuses_or_never_answers_keeps_no_server_from_its_end() {
    for answer in [400, 0] {
        let place = Workplace::new();
        let collector = Collector::begin("127.0.0.1:0");
        collector.answer.store(answer, SeqCst);
        let shell = place.shell();
        let web = Web::begin(&place, &[("OTEL_EXPORTER_OTLP_ENDPOINT", &collector.url())]);
        assert_eq!(place.run(&["sh", "-c", "echo x > f"]).code, 0);
        std::thread::sleep(Duration::from_secs(2));
        assert_eq!(web.http.get("/api/status").status, 200);
        let begun = Instant::now();
        let said = web.end();
        assert!(begun.elapsed() < Duration::from_secs(8), "it ends after {:?}", begun.elapsed());
        assert_eq!(said.contains("/v1/traces answered 400"), answer == 400, "{said}");
        shell.ends_and_leaves();
    }
}

#[test]
fn nothing_is_sent_where_no_collector_is_named_or_traces_are_off() {
    let place = Workplace::new();
    let collector = Collector::begin("127.0.0.1:0");
    let shell = place.shell();
    for off in [("OTEL_SDK_DISABLED", "true"), ("OTEL_TRACES_EXPORTER", "none")] {
        let web = Web::begin(&place, &[("OTEL_EXPORTER_OTLP_ENDPOINT", &collector.url()), off]);
        place.run(&["sh", "-c", "echo x > f"]).ok();
        std::thread::sleep(Duration::from_secs(2));
        assert_eq!(web.end(), "");
    }
    assert!(collector.spans().is_empty());
    shell.ends_and_leaves();
}
