//! Several agents of one root, on this machine.

use crate::{Workplace, wait_until};
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Stdio};
use terrace_client::{Session, agents_of, token_of_root};
use terrace_core::members::suffix;

/// `terrace serve --hosts` until it is dropped; all hosts are this one, by another loopback address each.
pub struct Agents {
    pub process: Child,
    pub root: PathBuf,
    runtime: PathBuf,
    count: usize,
}

impl Agents {
    pub fn start(place: &Workplace, count: usize) -> Agents {
        let hosts = place.scratch().join("hosts");
        let names: String = (0..count).map(|number| format!("127.0.0.{}\n", number + 1)).collect();
        std::fs::write(&hosts, names).unwrap();
        let mut command = place.terrace("serve");
        command.args(["--quiet", "--launcher", "env HOST={host}", "--hosts"]).arg(&hosts);
        let mut process = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(line.starts_with("export TERRACE_ROOT="), "{line:?}");
        Agents { process, root: place.root().into(), runtime: place.runtime().parent().unwrap().into(), count }
    }

    /// Of this agent, for programs of its node.
    pub fn index(&self, number: usize) -> PathBuf {
        let id = terrace_core::settings::root_id(&self.root) + &suffix(number as u32);
        self.runtime.join(id).join("index")
    }

    /// A session with this agent, as a program of its node has it.
    pub fn beside(&self, number: usize) -> Session {
        Session::open(&self.index(number)).unwrap()
    }

    /// The processes that answer parts of queries beside the agents.
    pub fn query_nodes(&self) -> Vec<u32> {
        let beside = children_of(self.process.id()).into_iter().flat_map(children_of);
        beside.filter(|&pid| name_of(pid) == "terrace-query").collect()
    }

    /// A session with this agent, as a program of another node has it.
    pub fn elsewhere(&self, number: usize) -> Session {
        let agents = agents_of(&self.root).unwrap().expect("the agents are written down");
        assert_eq!(agents.len(), self.count);
        Session::connect_to(&agents[number].address, &token_of_root(&self.root).unwrap()).unwrap()
    }

    pub fn end(mut self) {
        // SAFETY: our own child.
        unsafe { libc::kill(self.process.id() as i32, libc::SIGTERM) };
        assert!(wait_until(100, || self.process.try_wait().unwrap().is_some()), "the agents do not end");
        assert_eq!(self.process.wait().unwrap().code(), Some(0));
        let id = terrace_core::settings::root_id(&self.root);
        let is_locked = |number: usize| {
            let lock = self.runtime.join(format!("{id}{}", suffix(number as u32))).join("lock");
            std::fs::File::open(lock).is_ok_and(|lock| lock.try_lock_shared().is_err())
        };
        assert!(!(0..self.count).any(is_locked), "an agent is still there");
    }

    /// Kills everything, as a power cut does.
    pub fn kill(self) {
        self.killed(true);
    }

    /// Kills the launch with all that it started but the agents, which end by themselves when no program is connected to them.
    pub fn kill_launch(self) {
        self.killed(false);
    }

    fn killed(mut self, with_agents: bool) {
        let serves = children_of(self.process.id());
        let beside: Vec<u32> = serves.iter().flat_map(|&serve| children_of(serve)).collect();
        let (queries, agents): (Vec<u32>, Vec<u32>) =
            beside.into_iter().partition(|&pid| name_of(pid) == "terrace-query");
        assert!(serves.len() == self.count && agents.len() == self.count, "{serves:?} {agents:?}");
        let agents = agents.into_iter().filter(|_| with_agents);
        for pid in [self.process.id()].into_iter().chain(serves).chain(queries).chain(agents) {
            // SAFETY: processes that this test has started.
            unsafe { libc::kill(pid as i32, libc::SIGKILL) };
        }
        self.process.wait().unwrap();
    }
}

impl Drop for Agents {
    fn drop(&mut self) {
        if self.process.try_wait().is_ok_and(|status| status.is_none()) {
            // SAFETY: our own child, which ends its own.
            unsafe { libc::kill(self.process.id() as i32, libc::SIGTERM) };
            let _ = self.process.wait();
        }
    }
}

fn name_of(pid: u32) -> String {
    std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim().into()
}

fn children_of(pid: u32) -> Vec<u32> {
    let parent_of = |stat: String| stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse::<u32>().ok();
    let processes =
        std::fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let is_child =
        |&process: &u32| std::fs::read_to_string(format!("/proc/{process}/stat")).ok().and_then(parent_of) == Some(pid);
    processes.filter(is_child).collect()
}
