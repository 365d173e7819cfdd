//! Several agents of one root, seen from one program.
//!
//!   array    chunks in turn (`Spreading`), or all of it on one agent; locks and the shape in force: its home
//!   bytes    the agent whose link the name is; else the one that the name's hash says
//!   tags     agent 0
//!
//! Invariant: at any time one agent answers for a thing, and every program works out the same one without asking.

use crate::rpc::{Address, Agent, Security, unexpected};
use std::path::Path;
use std::sync::{Arc, OnceLock};
use terrace_core::members::Member;
use terrace_core::objects::wire::{Request, Response};
use terrace_core::objects::{Kind, ObjectError, Result, choose, key_of_name};

pub struct Cluster {
    /// The agent whose node this program is on.
    pub here: Option<u32>,
    /// The agent that this program met first.
    pub first: u32,
    members: Vec<Member>,
    token: String,
    agents: Vec<OnceLock<Arc<Agent>>>,
}

impl Cluster {
    /// The agents that `first` is one of; `None`: it is alone.
    pub fn around(first: &Arc<Agent>, is_here: bool) -> Result<Option<Cluster>> {
        let (number, members, token) = match first.ask(&Request::Members)?.0 {
            Response::Members { members, .. } if members.len() < 2 => return Ok(None),
            Response::Members { number, members, token } if (number as usize) < members.len() => {
                (number, members, token)
            }
            other => return Err(unexpected(&other)),
        };
        let agents: Vec<OnceLock<Arc<Agent>>> = members.iter().map(|_| OnceLock::new()).collect();
        let _ = agents[number as usize].set(first.clone());
        Ok(Some(Cluster { here: is_here.then_some(number), first: number, members, token, agents }))
    }

    pub fn count(&self) -> u32 {
        self.members.len() as u32
    }

    /// What all agents want to see.
    pub fn token(&self) -> &str {
        &self.token
    }

    /// Of an agent's certificate; `None`: in the clear.
    pub fn fingerprint(&self, number: u32) -> Option<&str> {
        self.members[number as usize].fingerprint.as_deref()
    }

    /// Where the agents listen, ADDRESS:PORT, in their order.
    pub fn addresses(&self) -> Vec<String> {
        self.members.iter().map(|member| member.address.clone()).collect()
    }

    pub fn numbers(&self) -> std::ops::Range<u32> {
        0..self.count()
    }

    /// Connected to when it is first asked.
    pub fn agent(&self, root: &Path, number: u32) -> Arc<Agent> {
        let member = &self.members[number as usize];
        let connect = || {
            let security = member.fingerprint.clone().map_or(Security::Plain, Security::Tls);
            let address = Address::Tcp { address: member.address.clone(), token: self.token.clone(), security };
            Arc::new(Agent::new(root, address))
        };
        self.agents[number as usize].get_or_init(connect).clone()
    }

    /// Where a name is at home that no agent has something of.
    pub fn home_of(&self, name: &str) -> u32 {
        choose(key_of_name(name), self.count())
    }

    /// What each agent has to do; the first failure.
    pub fn each(&self, root: &Path, request: &Request) -> Result<()> {
        let results: Vec<Result<()>> = std::thread::scope(|scope| {
            let asked: Vec<_> =
                self.numbers().map(|number| scope.spawn(move || self.agent(root, number).done(request))).collect();
            asked.into_iter().map(|asked| asked.join().unwrap_or_else(|_| Err(lost()))).collect()
        });
        results.into_iter().collect()
    }
}

pub fn lost() -> ObjectError {
    ObjectError::new(Kind::System, "a thread of this program has died")
}
