//! Parts of queries of other nodes' programs: see `terrace_analysis::worker_service`.
//!
//! Invariant: a part ends when the request that has told of it does: then its query is answered, or who asked is gone.

use crate::listening;
use std::pin::Pin;
use std::task::{Context, Poll};
use terrace_analysis::{Options, Parts, QUERY_HEADER, worker_service};
use terrace_client::Session;
use terrace_tool::failure::Failure;
use terrace_tool::server_args::ServerArgs;
use tonic::body::Body;
use tonic::codegen::http::Request;
use tonic::codegen::{Body as HttpBody, Bytes, Service};
use tonic::server::NamedService;
use tonic::service::interceptor::InterceptedService;

/// Beside those that compute, for who asks.
const SERVING_THREADS: usize = 2;
/// The request that lasts as long as its query.
const LASTING: &str = "/CoordinatorChannel";

pub fn serve(options: Options, target: String, listening: &ServerArgs) -> Result<(), Failure> {
    let computing = options.threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
    let (worker, parts) = worker_service(options, move || Ok(Session::connect(&target)?))?;
    listening::serve(listening, computing + SERVING_THREADS, |server, guard| {
        let service = Watched { service: worker.into_worker_server(), parts };
        Ok(server.add_service(InterceptedService::new(service, guard)))
    })?;
    // What is still computed changes nothing, and is not waited for.
    std::process::exit(0)
}

/// A service that tells when a query's own request has ended.
#[derive(Clone)]
struct Watched<S> {
    service: S,
    parts: Parts,
}

impl<S: NamedService> NamedService for Watched<S> {
    const NAME: &'static str = S::NAME;
}

impl<S: Service<Request<Body>>> Service<Request<Body>> for Watched<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.service.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> S::Future {
        let id = request.headers().get(QUERY_HEADER).and_then(|id| id.to_str().ok()).map(String::from);
        let query = id.filter(|_| request.uri().path().ends_with(LASTING));
        let request = match query {
            Some(query) => request.map(|body| Body::new(Lasting { body, query, parts: self.parts.clone() })),
            None => request,
        };
        self.service.call(request)
    }
}

struct Lasting {
    body: Body,
    query: String,
    parts: Parts,
}

impl HttpBody for Lasting {
    type Data = Bytes;
    type Error = tonic::Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, tonic::Status>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }
}

impl Drop for Lasting {
    fn drop(&mut self) {
        self.parts.end(&self.query);
    }
}
