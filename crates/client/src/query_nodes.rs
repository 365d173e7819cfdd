//! Who answers parts of queries, where a root has several agents: beside each agent a process of its own.

use crate::rpc::unexpected;
use crate::session::Session;
use terrace_core::objects::Result;
use terrace_core::objects::wire::{Request, Response};

/// A process beside an agent, which reads what that agent keeps where it lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueryNode {
    pub agent: u32,
    /// ADDRESS:PORT
    pub address: String,
    /// Of its certificate; `None`: in the clear.
    pub fingerprint: Option<String>,
}

impl Session {
    /// Those that there are now. Empty: the root has one agent, or none of them has the program.
    pub fn query_nodes(&self) -> Vec<QueryNode> {
        let Some(cluster) = self.cluster() else { return vec![] };
        let ask = |number: u32| -> Result<Option<QueryNode>> {
            match cluster.agent(self.root(), number).ask(&Request::QueryNode)?.0 {
                Response::QueryNode { address } => Ok(address.map(|address| QueryNode {
                    agent: number,
                    address,
                    fingerprint: cluster.fingerprint(number).map(Into::into),
                })),
                other => Err(unexpected(&other)),
            }
        };
        std::thread::scope(|scope| {
            let asked: Vec<_> = cluster.numbers().map(|number| scope.spawn(move || ask(number))).collect();
            // What an agent that can't be asked keeps is read by another, which says what is wrong.
            asked.into_iter().filter_map(|asked| asked.join().ok()?.ok()?).collect()
        })
    }

    /// What all agents of this root want to see, where it has several.
    pub fn agents_token(&self) -> Option<&str> {
        self.cluster().map(|cluster| cluster.token())
    }
}
