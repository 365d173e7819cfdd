//! Cells that this agent reads from a client's memory, and writes into it, beside their connection.
//!
//! Invariant: an endpoint that has failed is closed before the client is told: nothing moves any more.

use super::remote::RemoteClient;
use std::net::TcpStream;
use std::os::fd::AsFd;
use terrace_core::objects::wire::{PAYLOAD_BYTES_MAX, Response, There};
use terrace_core::objects::{Kind, ObjectError, Region, Result};
use terrace_fabric::Endpoint;

/// What one connection has beside it.
pub struct Beside {
    connection: TcpStream,
    endpoint: Option<Endpoint>,
}

impl Beside {
    pub fn new(connection: TcpStream) -> Beside {
        Beside { connection, endpoint: None }
    }

    /// An endpoint where the client has reached this agent.
    pub fn meet(&mut self, provider: &str, client: &[u8]) -> Response {
        let met = (|| {
            let at = self.connection.local_addr().ok().map(|address| address.ip());
            let mut endpoint = Endpoint::open(Some(provider), at)?;
            endpoint.meet(client)?;
            Ok((endpoint.address()?, endpoint))
        })();
        match met {
            Ok((address, endpoint)) => {
                self.endpoint = Some(endpoint);
                Response::Fabric { address }
            }
            Err(error) => {
                let error: ObjectError = error;
                Response::Unmoved { reason: error.message }
            }
        }
    }

    pub fn pull(
        &mut self,
        client: &mut RemoteClient,
        path: &str,
        region: &Region,
        bytes: u64,
        from: There,
    ) -> Response {
        if bytes > PAYLOAD_BYTES_MAX {
            return Response::Failed(ObjectError::invalid(format!("{bytes} bytes are more than travel at once")));
        }
        let Beside { connection, endpoint } = self;
        let mut failed = None;
        let done = client.put_by(path, region, bytes, |place| {
            moved(endpoint, &mut failed, |endpoint| endpoint.read(from, place, connection.as_fd()))
        });
        answer(done, failed)
    }

    pub fn push(&mut self, client: &mut RemoteClient, path: &str, region: &Region, bytes: u64, to: There) -> Response {
        let Beside { connection, endpoint } = self;
        let mut failed = None;
        let done = client.lend_or_copy(path, region, &mut |cells| match cells.len() as u64 == bytes {
            true => moved(endpoint, &mut failed, |endpoint| endpoint.write(cells, to, connection.as_fd())),
            false => Err(ObjectError::invalid(format!("{region} has {} bytes, not {bytes}", cells.len()))),
        });
        answer(done, failed)
    }
}

/// A failure of the fabric closes the endpoint; it is told apart from one of the array.
fn moved(
    endpoint: &mut Option<Endpoint>,
    failed: &mut Option<String>,
    act: impl FnOnce(&mut Endpoint) -> Result<()>,
) -> Result<()> {
    let acted = match endpoint {
        Some(endpoint) => act(endpoint),
        None => Err(ObjectError::new(Kind::Protocol, "this connection has no fabric")),
    };
    acted.inspect_err(|error| {
        *endpoint = None;
        *failed = Some(error.message.clone());
    })
}

fn answer(done: Result<()>, failed: Option<String>) -> Response {
    match (failed, done) {
        (Some(reason), _) => Response::Unmoved { reason },
        (None, Ok(())) => Response::Done,
        (None, Err(error)) => Response::Failed(error),
    }
}
