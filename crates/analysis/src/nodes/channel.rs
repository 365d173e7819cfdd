//! Connections to nodes: TLS with the certificate that the node's agent has, and the token that all agents of the root want to see.

use crate::error::Error;
use arrow::array::RecordBatch;
use async_trait::async_trait;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::TaskContext;
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use datafusion_distributed::grpc::{BoxCloneSyncChannel, create_worker_client};
use datafusion_distributed::{
    ChannelResolver, CoordinatorToWorkerMsg, ExecuteTaskRequest, GetWorkerInfoRequest, GetWorkerInfoResponse,
    SetPlanRequest, WorkerChannel, WorkerToCoordinatorMsg,
};
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use std::collections::HashMap;
use std::io::Error as IoError;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::Duration;
use terrace_client::{Kind, QueryNode, client_config};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};
use tonic::Status;
use tonic::codegen::http::{HeaderMap, HeaderValue, Request, Uri, header};
use tonic::transport::Endpoint;
use tower::ServiceExt;
use url::Url;

/// What of a node's URL is the fingerprint of its certificate, so that other nodes that are told of it know it, too.
const FINGERPRINT: &str = "certificate";
/// A node that says nothing for so long is gone.
const ALIVE_INTERVAL: Duration = Duration::from_secs(5);
const ALIVE_PATIENCE: Duration = Duration::from_secs(10);
const CONNECT_PATIENCE: Duration = Duration::from_secs(10);

pub fn url_of(node: &QueryNode) -> Result<Url> {
    let mut url = Url::parse(&format!("http://{}", node.address)).map_err(|error| {
        Error::new(
            Kind::Protocol,
            format!("agent {} says that `{}` is its address for queries: {error}", node.agent, node.address),
        )
    })?;
    if let Some(fingerprint) = &node.fingerprint {
        url.query_pairs_mut().append_pair(FINGERPRINT, fingerprint);
    }
    Ok(url)
}

/// As an error names it.
pub fn address_of(url: &Url) -> String {
    format!("{}:{}", url.host_str().unwrap_or_default(), url.port().unwrap_or_default())
}

/// Connections have threads of their own: a query's end with it where it fails or is long, and other queries go on to use what it has
/// connected.
static THREADS: LazyLock<std::io::Result<Runtime>> =
    LazyLock::new(|| Builder::new_multi_thread().worker_threads(2).thread_name("nodes").enable_all().build());

/// One connection for each node, made when it is first asked.
#[derive(Clone)]
pub struct Channels {
    authorization: HeaderValue,
    known: Arc<Mutex<HashMap<Url, BoxCloneSyncChannel>>>,
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

async fn connect(address: String, fingerprint: Option<String>) -> std::io::Result<TokioIo<Box<dyn Stream>>> {
    let gone = |error: IoError| IoError::new(error.kind(), format!("the node at {address} can't be reached: {error}"));
    let stream = TcpStream::connect(&address).await.map_err(gone)?;
    stream.set_nodelay(true)?;
    let Some(fingerprint) = fingerprint else { return Ok(TokioIo::new(Box::new(stream))) };
    let mut config = client_config(&fingerprint)?;
    config.alpn_protocols = vec![b"h2".to_vec()];
    let name = ServerName::try_from("terrace").expect("a name that is right");
    let stream = tokio_rustls::TlsConnector::from(Arc::new(config)).connect(name, stream).await.map_err(gone)?;
    Ok(TokioIo::new(Box::new(stream)))
}

impl Channels {
    pub fn new(token: &str) -> Result<Channels> {
        let authorization = HeaderValue::from_str(&format!("Bearer {token}"))
            .map_err(|_| Error::new(Kind::Denied, "the token of this root's agents can't be sent in a header"))?;
        Ok(Channels { authorization, known: Arc::default() })
    }

    fn channel(&self, url: &Url) -> Result<BoxCloneSyncChannel> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(channel) = known.get(url) {
            return Ok(channel.clone());
        }
        let address = address_of(url);
        let fingerprint = url.query_pairs().find(|(key, _)| key == FINGERPRINT).map(|(_, value)| value.into_owned());
        let endpoint = Endpoint::from_shared(format!("http://{address}"))
            .map_err(|error| DataFusionError::External(Box::new(error)))?
            .http2_keep_alive_interval(ALIVE_INTERVAL)
            .keep_alive_timeout(ALIVE_PATIENCE)
            .connect_timeout(CONNECT_PATIENCE);
        let threads = THREADS.as_ref().map_err(|error| {
            Error::new(Kind::System, format!("threads for connections to nodes can't be had: {error}"))
        })?;
        let _of_threads = threads.enter();
        // It is made when it is first used, and made again when it was lost.
        let channel = endpoint.connect_with_connector_lazy(tower::service_fn(move |_: Uri| {
            connect(address.clone(), fingerprint.clone())
        }));
        let authorization = self.authorization.clone();
        let channel = BoxCloneSyncChannel::new(channel.map_request(move |mut request: Request<_>| {
            request.headers_mut().insert(header::AUTHORIZATION, authorization.clone());
            request
        }));
        known.insert(url.clone(), channel.clone());
        Ok(channel)
    }
}

#[async_trait]
impl ChannelResolver for Channels {
    async fn get_worker_client_for_url(&self, url: &Url) -> Result<Box<dyn WorkerChannel>> {
        Ok(Box::new(Named { client: create_worker_client(self.channel(url)?), address: address_of(url).into() }))
    }
}

/// A client of which errors tell the node.
struct Named {
    client: Box<dyn WorkerChannel>,
    address: Arc<str>,
}

/// What the connection's end says, where it is not the node's own word.
fn named(address: &str, error: DataFusionError) -> DataFusionError {
    let DataFusionError::External(inner) = error.find_root() else { return error };
    let Some(status) = inner.downcast_ref::<Status>() else { return error };
    let why = match std::error::Error::source(status).map(ToString::to_string) {
        Some(source) if !status.message().contains(&source) => format!("{}: {source}", status.message()),
        _ => status.message().to_owned(),
    };
    let told =
        format!("the node at {address}, which answers a part of the query, has gone, or can't be reached: {why}");
    Error::new(Kind::System, told).hint("ask again: it is started anew where its agent lives").into()
}

#[async_trait]
impl WorkerChannel for Named {
    async fn coordinator_channel(
        &mut self,
        headers: HeaderMap,
        request: SetPlanRequest,
        told: BoxStream<'static, CoordinatorToWorkerMsg>,
        metrics: ExecutionPlanMetricsSet,
        context: &Arc<TaskContext>,
    ) -> Result<BoxStream<'static, Result<WorkerToCoordinatorMsg>>> {
        let address = self.address.clone();
        let answered = self.client.coordinator_channel(headers, request, told, metrics, context).await;
        let answers = answered.map_err(|error| named(&address, error))?;
        Ok(answers.map_err(move |error| named(&address, error)).boxed())
    }

    async fn execute_task(
        &mut self,
        headers: HeaderMap,
        request: ExecuteTaskRequest,
        metrics: ExecutionPlanMetricsSet,
        context: &Arc<TaskContext>,
    ) -> Result<Vec<BoxStream<'static, Result<RecordBatch>>>> {
        let answered = self.client.execute_task(headers, request, metrics, context).await;
        let partitions = answered.map_err(|error| named(&self.address, error))?;
        let with_name = |rows: BoxStream<'static, Result<RecordBatch>>| {
            let address = self.address.clone();
            rows.map_err(move |error| named(&address, error)).boxed()
        };
        Ok(partitions.into_iter().map(with_name).collect())
    }

    async fn get_worker_info(&mut self, request: GetWorkerInfoRequest) -> Result<GetWorkerInfoResponse> {
        self.client.get_worker_info(request).await.map_err(|error| named(&self.address, error))
    }
}
