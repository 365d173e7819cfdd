//! Where spans go: a collector that the environment names, by OpenTelemetry's own variables.

use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use opentelemetry::KeyValue;
use opentelemetry_http::hyper::HyperClient;
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use opentelemetry_otlp::{RetryPolicy, SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SpanData, SpanExporter as _};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use terrace_tool::failure::{Failure, warn};

const TIMEOUT: Duration = Duration::from_secs(10);
const SERVICE: &str = "terrace";

pub struct Collector {
    exporter: SpanExporter,
    last: Arc<Mutex<Last>>,
}

/// What became of the last request, which the exporter puts into words only.
#[derive(Debug, Default)]
struct Last {
    /// 0: there was no answer.
    status: u16,
    error: Option<String>,
}

pub enum Sent {
    Taken,
    /// As they are, they are never taken.
    Refused(String),
    Away(String),
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.trim().is_empty())
}

/// Of the traces, or of all that is told.
fn of_traces(name: &str) -> Option<String> {
    variable(&format!("OTEL_EXPORTER_OTLP_TRACES_{name}")).or_else(|| variable(&format!("OTEL_EXPORTER_OTLP_{name}")))
}

impl Collector {
    /// `None`: none is named, or traces are switched off.
    pub fn from_environment(root: &Path) -> Result<Option<Collector>, Failure> {
        let is_off = variable("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true"))
            || variable("OTEL_TRACES_EXPORTER").is_some_and(|value| value != "otlp");
        let Some(endpoint) = of_traces("ENDPOINT").filter(|_| !is_off) else { return Ok(None) };
        if let Some(protocol) = of_traces("PROTOCOL").filter(|protocol| protocol != "http/protobuf") {
            warn(format!("OTEL_EXPORTER_OTLP_PROTOCOL is {protocol}; traces are sent by http/protobuf"));
        }
        let last = Arc::<Mutex<Last>>::default();
        let timeout =
            of_traces("TIMEOUT").and_then(|value| value.trim().parse().ok()).map_or(TIMEOUT, Duration::from_millis);
        let client = Client { inner: HyperClient::new(connector(&endpoint)?, timeout, None), last: last.clone() };
        let built = SpanExporter::builder()
            .with_http()
            .with_http_client(client)
            .with_protocol(opentelemetry_otlp::Protocol::HttpBinary)
            .with_timeout(timeout)
            // What is not taken waits in the queue.
            .with_retry_policy(RetryPolicy::disabled())
            .build();
        let mut exporter = built.map_err(|error| {
            Failure::bad_input(
                format!("traces can't be sent: {error}"),
                "OTEL_EXPORTER_OTLP_ENDPOINT is an address such as http://127.0.0.1:4318; without it none are sent",
            )
        })?;
        exporter.set_resource(&resource(root));
        Ok(Some(Collector { exporter, last }))
    }

    pub async fn send(&self, spans: Vec<SpanData>) -> Sent {
        *lock(&self.last) = Last::default();
        let Err(error) = self.exporter.export(spans).await else { return Sent::Taken };
        let last = std::mem::take(&mut *lock(&self.last));
        let reason = last.error.unwrap_or_else(|| error.to_string());
        match last.status {
            // It is to be tried again, says the protocol.
            429 | 502..=504 | 0 => Sent::Away(reason),
            _ => Sent::Refused(reason),
        }
    }
}

fn lock(last: &Mutex<Last>) -> MutexGuard<'_, Last> {
    last.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// The environment's attributes come last, and so win.
fn resource(root: &Path) -> Resource {
    let named = Resource::builder().build();
    let has_name = variable("OTEL_SERVICE_NAME").is_some()
        || variable("OTEL_RESOURCE_ATTRIBUTES").is_some_and(|list| list.contains("service.name="));
    let own = [
        KeyValue::new("service.version", env!("CARGO_PKG_VERSION")),
        KeyValue::new("terrace.root", root.to_string_lossy().into_owned()),
    ];
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let resource = Resource::builder_empty()
        .with_attributes(own)
        .with_attribute(KeyValue::new("host.name", host.trim().to_owned()))
        .with_attributes(named.iter().map(|(key, value)| KeyValue::new(key.clone(), value.clone())));
    match has_name {
        true => resource.build(),
        false => resource.with_service_name(SERVICE).build(),
    }
}

fn connector(endpoint: &str) -> Result<HttpsConnector<HttpConnector>, Failure> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = match HttpsConnectorBuilder::new().with_provider_and_native_roots(provider.clone()) {
        Ok(builder) => builder,
        Err(error) if endpoint.trim_start().starts_with("https") => {
            return Err(Failure::bad_input(
                format!("no certificates are there by which {endpoint} could be known: {error}"),
                "install the system's (ca-certificates), or name a file of them in SSL_CERT_FILE",
            ));
        }
        Err(_) => {
            let config = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
            let config = config.map_err(|error| Failure::new(format!("TLS can't be had: {error}")))?;
            let none = rustls::RootCertStore::empty();
            HttpsConnectorBuilder::new().with_tls_config(config.with_root_certificates(none).with_no_client_auth())
        }
    };
    Ok(builder.https_or_http().enable_http1().build())
}

#[derive(Debug)]
struct Client<C> {
    inner: C,
    last: Arc<Mutex<Last>>,
}

#[async_trait::async_trait]
impl<C: HttpClient> HttpClient for Client<C> {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let address = request.uri().clone();
        let response = self.inner.send_bytes(request).await;
        *lock(&self.last) = match &response {
            Ok(response) if response.status().is_success() => Last { status: response.status().as_u16(), error: None },
            Ok(response) => {
                let status = response.status();
                Last { status: status.as_u16(), error: Some(format!("{address} answered {status}")) }
            }
            Err(error) => Last { status: 0, error: Some(format!("{address}: {}", causes(error.as_ref()))) },
        };
        response
    }
}

/// An error with what it comes from.
fn causes(error: &(dyn std::error::Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}
