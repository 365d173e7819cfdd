//! Cells that go by libfabric, beside the connection on which everything is asked.
//!
//! `TERRACE_FABRIC`: a provider (tcp, verbs, cxi, efa), `auto` for the best one, or `off`. Unset, it is `auto` where the user has
//! said that nobody else is on the network (`plain://`), and `off` elsewhere: what a fabric moves is not encrypted, and it needs more
//! than the one port that a tunnel has.

use crate::rpc::{Stream, broken, exchange, receive, send, unexpected};
use std::os::fd::AsFd;
use terrace_core::objects::wire::{Request, Response, There};
use terrace_core::objects::{Kind, ObjectError, Result};
use terrace_fabric::{Endpoint, Exposed};

/// From so many bytes on it pays to tell where they are.
pub const BYTES_MIN: usize = 256 << 10;
const VARIABLE: &str = "TERRACE_FABRIC";

/// What one connection has beside it.
pub enum Fabric {
    /// `is_private`: nobody else is on the network.
    Untried {
        is_private: bool,
    },
    Off,
    On(Box<Endpoint>),
}

/// Cells that the agent reads, or that it writes.
pub enum Cells<'a> {
    ToAgent(&'a [u8]),
    FromAgent(&'a mut [u8]),
}

impl Cells<'_> {
    pub fn len(&self) -> usize {
        match self {
            Cells::ToAgent(cells) => cells.len(),
            Cells::FromAgent(cells) => cells.len(),
        }
    }

    fn expose(&mut self, endpoint: &mut Endpoint) -> Result<Exposed<'_>> {
        match self {
            Cells::ToAgent(cells) => endpoint.expose(cells),
            Cells::FromAgent(cells) => endpoint.expose_mut(cells),
        }
    }
}

/// What the user wants: a provider, or the best one (`auto`).
struct Wish {
    provider: Option<String>,
    is_own: bool,
}

/// Cells may go by a fabric to an agent that is reached like this.
pub fn is_wanted(is_private: bool) -> bool {
    wish(is_private).is_some()
}

fn wish(is_private: bool) -> Option<Wish> {
    match std::env::var(VARIABLE).ok().as_deref() {
        Some("off" | "0" | "false") => None,
        Some("auto" | "on" | "1" | "true") => Some(Wish { provider: None, is_own: true }),
        Some("") | None => is_private.then_some(Wish { provider: None, is_own: false }),
        Some(provider) => Some(Wish { provider: Some(provider.into()), is_own: true }),
    }
}

/// An answer, and why the cells were not moved although the user wants a fabric.
pub type Talked = (Response, Option<ObjectError>);

/// Asks for cells to be moved. `Unmoved`: there is no fabric.
pub fn talk(
    stream: &mut Stream,
    cells: &mut Cells<'_>,
    request: &impl Fn(There) -> Request,
) -> std::io::Result<Talked> {
    let unmoved = |error: ObjectError, is_own: bool| {
        (Response::Unmoved { reason: error.message.clone() }, is_own.then_some(error))
    };
    let mut endpoint = match std::mem::replace(&mut stream.fabric, Fabric::Off) {
        Fabric::On(endpoint) => endpoint,
        Fabric::Off => return Ok((Response::Unmoved { reason: String::new() }, None)),
        Fabric::Untried { is_private } => match wish(is_private) {
            None => return Ok((Response::Unmoved { reason: String::new() }, None)),
            Some(wish) => match meet(stream, &wish)? {
                Ok(endpoint) => Box::new(endpoint),
                Err(error) => return Ok(unmoved(error, wish.is_own)),
            },
        },
    };
    let answer = {
        let exposed = match cells.expose(&mut endpoint) {
            Ok(exposed) => exposed,
            Err(error) => return Ok(unmoved(error, false)),
        };
        send(stream, &request(exposed.there()), &[])?;
        let socket = stream.socket().expect("an agent on this node needs no fabric").as_fd();
        // Nothing is known of the cells then, nor of what the agent will say: the connection is given up.
        endpoint.attend(socket).map_err(|error| std::io::Error::other(error.message))?;
        let (answer, payload) = receive(stream)?;
        if payload != 0 {
            return Err(broken(unexpected(&answer)));
        }
        answer
    };
    if !matches!(answer, Response::Unmoved { .. }) {
        stream.fabric = Fabric::On(endpoint);
    }
    Ok((answer, None))
}

fn meet(stream: &mut Stream, wish: &Wish) -> std::io::Result<Result<Endpoint>> {
    let at = stream.socket().map(|socket| socket.local_addr()).transpose()?;
    let opened = Endpoint::open(wish.provider.as_deref(), at.map(|at| at.ip()))
        .and_then(|endpoint| Ok((endpoint.provider(), endpoint.address()?, endpoint)));
    let (provider, address, mut endpoint) = match opened {
        Ok(opened) => opened,
        Err(error) => return Ok(Err(error.hint(format!("{VARIABLE} says which fabric is used")))),
    };
    Ok(match exchange(stream, &Request::Fabric { provider, address }, &[])?.0 {
        Response::Fabric { address } => endpoint.meet(&address).map(|()| endpoint),
        Response::Failed(error) => Err(error),
        Response::Unmoved { reason } => {
            Err(ObjectError::new(Kind::System, format!("the agent has no fabric: {reason}")))
        }
        other => Err(unexpected(&other)),
    })
}
