//! Nodes that share a root, on one machine: each has mount, PID, network and UTS namespaces of its own, with a private
//! /dev/shm and a private /var/tmp. The root is a directory that all of them see, as on a parallel file system.
//!
//! A bridge in a network namespace of its own connects them, by which they reach each other's names; a node can be cut off
//! (`Node::cut`).
//!
//! Needs root; a test that can't have nodes says so loudly (`Nodes::new` gives `None`).

use crate::{Outcome, is_at_the_top, is_root, skipped, succeeds, terrace_binary, wait_until};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

pub struct Nodes {
    shared: tempfile::TempDir,
    wire: Wire,
}

/// The wire between nodes.
struct Wire {
    /// Its first process, which has nothing but the namespace.
    holder: Child,
    nodes: AtomicU32,
}

impl Wire {
    fn new() -> Wire {
        let script = "ip link add wire type bridge; ip link set wire up; echo ready; exec sleep 100000";
        let mut holder = Command::new("unshare")
            .args(["-n", "sh", "-euc", script])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(holder.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n", "no bridge can be made: is ip(8) there?");
        Wire { holder, nodes: AtomicU32::new(0) }
    }

    /// The network's end of the new node's cable, and the node's address.
    fn connect(&self, init: &str) -> (String, String) {
        let number = self.nodes.fetch_add(1, Relaxed) + 1;
        let (port, address) = (format!("node{number}"), format!("10.77.0.{number}"));
        let plug =
            format!("ip link add {port} type veth peer name eth0 netns {init}; ip link set {port} master wire up");
        in_network(&self.holder.id().to_string(), &plug);
        in_network(init, &format!("ip link set lo up; ip addr add {address}/24 dev eth0; ip link set eth0 up"));
        (port, address)
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

fn in_network(of: &str, script: &str) {
    let done = Command::new("nsenter").args(["-t", of, "-n", "sh", "-euc", script]).status().unwrap();
    assert!(done.success(), "{script}");
}

impl Nodes {
    pub fn new() -> Option<Nodes> {
        let can = || succeeds("unshare", &["-mnpuf", "--mount-proc", "mount", "-t", "tmpfs", "none", "/dev/shm"]);
        if !is_root() || !is_at_the_top() || !can() {
            skipped("nodes need root, the right to make namespaces, and a root directory that is no plain chroot's");
            return None;
        }
        // Not below what each node has for itself.
        let shared = tempfile::Builder::new().prefix("tt-nodes-").tempdir_in("/tmp").unwrap();
        std::fs::create_dir(shared.path().join("root")).unwrap();
        std::fs::write(shared.path().join("hosts"), "127.0.0.1 localhost\n").unwrap();
        Some(Nodes { shared, wire: Wire::new() })
    }

    /// The /etc/hosts of every node.
    fn hosts(&self) -> PathBuf {
        self.shared.path().join("hosts")
    }

    pub fn root(&self) -> PathBuf {
        self.shared.path().join("root")
    }

    /// By which any node starts commands on these.
    pub fn remote_shell(&self, nodes: &[&Node]) -> RemoteShell {
        let place = self.shared.path();
        for node in nodes {
            std::fs::write(place.join(&node.name), &node.init).unwrap();
        }
        let (program, socket) = (place.join("remote_shell.py"), place.join("shell"));
        std::fs::write(&program, include_str!("remote_shell.py")).unwrap();
        let mut server = Command::new("python3");
        server.arg(&program).arg("serve").arg(&socket).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut server = server.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(server.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        let script = |name: &str, words: String| {
            let path = place.join(name);
            std::fs::write(&path, format!("#!/bin/sh\nexec python3 {} {words} \"$@\"\n", program.display())).unwrap();
            std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
            path
        };
        let enter = script("enter", socket.display().to_string());
        let ssh = script("ssh", format!("ssh {}", socket.display()));
        RemoteShell { server, enter, ssh }
    }

    /// A node that has just been started.
    pub fn node(&self, name: &str) -> Node {
        let script = "hostname $0; mount -t tmpfs none /dev/shm; mount -t tmpfs none /var/tmp
            if [ -e /etc/hosts ]; then mount --bind $1 /etc/hosts; fi; echo ready; exec sleep 100000";
        let mut unshare = Command::new("unshare")
            .args(["-mnpuf", "--mount-proc", "--kill-child", "sh", "-euc", script, name])
            .arg(self.hosts())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(unshare.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n", "node {name} can't be made");
        let children = format!("/proc/{0}/task/{0}/children", unshare.id());
        let init = std::fs::read_to_string(children).unwrap().trim().to_owned();
        let (port, address) = self.wire.connect(&init);
        // In place: the file is bound over the nodes' own.
        let mut hosts = std::fs::OpenOptions::new().append(true).open(self.hosts()).unwrap();
        writeln!(hosts, "{address} {name}").unwrap();
        let wire = self.wire.holder.id().to_string();
        Node { name: name.into(), address, root: self.root(), unshare, init, wire, port }
    }
}

/// A remote shell between nodes: what ssh and srun are between machines.
pub struct RemoteShell {
    server: Child,
    /// `enter NODE COMMAND ARGUMENT…`, with the caller's environment and directory.
    pub enter: PathBuf,
    /// As ssh: its words are a shell's, and no environment is passed on.
    pub ssh: PathBuf,
}

impl Drop for RemoteShell {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

pub struct Node {
    name: String,
    address: String,
    root: PathBuf,
    unshare: Child,
    /// The first process of its PID namespace, as this one sees it.
    init: String,
    /// The network's process, and its end of this node's cable.
    wire: String,
    port: String,
}

impl Node {
    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn address(&self) -> &str {
        &self.address
    }

    /// A command in the root, on this node.
    pub fn command(&self, program: &Path) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["-t", &self.init, "-m", "-n", "-p", "-u"]);
        command.arg(format!("--wdns={}", self.root.display())).arg("--").arg(program).stdin(Stdio::null());
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("TERRACE_")) {
            command.env_remove(name);
        }
        command.env("ROOT", &self.root).env("LC_ALL", "C.UTF-8");
        // As workplaces have it: most tests are about files in tiers.
        command.env("TERRACE_SMALL_FILES", "place");
        command
    }

    pub fn outcome(&self, command: &mut Command) -> Outcome {
        Outcome::within(120, command)
    }

    /// Natively.
    pub fn native(&self, script: &str) -> Outcome {
        self.outcome(self.command(Path::new("bash")).args(["-euc", script]))
    }

    /// `terrace SUBCOMMAND …`
    pub fn terrace(&self, arguments: &[&str]) -> Outcome {
        self.outcome(self.command(&terrace_binary()).args(arguments))
    }

    /// A bash script under `terrace run`.
    pub fn run(&self, script: &str) -> Outcome {
        self.terrace(&["run", "--settle", "1h", "--tier", "ram=/dev/shm:64MiB", "--", "bash", "-euc", script])
    }

    /// A run that goes on until `end` is made in the root; returns when its script has got so far.
    pub fn start(&self, script: &str) -> Child {
        self.start_with(&["--tier", "ram=/dev/shm:64MiB"], None, script)
    }

    /// As `start`, with these settings, and an agent that is killed at a step.
    pub fn start_with(&self, settings: &[&str], kill_at: Option<&str>, script: &str) -> Child {
        let ready = self.root.join(format!("ready-on-{}", self.name));
        let whole =
            format!("{script}\n: >$ROOT/ready-on-{0}; while [ ! -e $ROOT/end-{0} ]; do sleep 0.02; done", self.name);
        let mut command = self.command(&terrace_binary());
        command.args(["run", "--settle", "1h"]).args(settings).args(["--", "bash", "-euc", &whole]);
        if let Some(step) = kill_at {
            command.env("TERRACE_KILL_AT", step);
        }
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let is_there = || ready.symlink_metadata().is_ok();
        if !wait_until(60, || is_there() || child.try_wait().unwrap().is_some()) || !is_there() {
            panic!("the run on {} does not come: {:?}", self.name, Outcome::of_child(1, child));
        }
        child
    }

    pub fn end(&self, run: Child) -> Outcome {
        std::fs::write(self.root.join(format!("end-{}", self.name)), "").unwrap();
        let outcome = Outcome::of_child(120, run);
        for file in ["end", "ready-on"] {
            let _ = std::fs::remove_file(self.root.join(format!("{file}-{}", self.name)));
        }
        outcome
    }

    /// Pulls the cable.
    pub fn cut(&self) {
        in_network(&self.wire, &format!("ip link set {} down", self.port));
    }

    pub fn mend(&self) {
        in_network(&self.wire, &format!("ip link set {} up", self.port));
    }

    /// The processes of the node, by the numbers that they have outside of it, with their command lines.
    pub fn processes(&self) -> Vec<(i32, Vec<String>)> {
        let namespace = |pid: &str| std::fs::read_link(format!("/proc/{pid}/ns/pid")).ok();
        let own = namespace(&self.init).expect("the node lives");
        let all = std::fs::read_dir("/proc").unwrap().flatten();
        let numbers = all.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
        numbers
            .filter(|pid| namespace(&pid.to_string()).as_ref() == Some(&own))
            .filter_map(|pid| {
                let line = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
                let words = line.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word).into_owned());
                Some((pid, words.collect()))
            })
            .collect()
    }

    /// The node's agent, by its number outside, while one runs.
    pub fn agent(&self) -> Option<i32> {
        self.processes()
            .into_iter()
            .find(|(_, line)| line.get(1).is_some_and(|word| word == "agent"))
            .map(|(pid, _)| pid)
    }

    /// Kills every process of the node but its first, as an out-of-memory killer in a hurry.
    pub fn kill_all(&self) {
        self.native("kill -9 -1; sleep 0.1").ok();
    }

    /// As a reboot does: no process is left, and memory is empty. What lies on disk (/var/tmp) stays.
    pub fn reboot(&self) {
        self.kill_all();
        self.native("umount -l /dev/shm; mount -t tmpfs none /dev/shm").ok();
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.unshare.kill();
        let _ = self.unshare.wait();
    }
}
