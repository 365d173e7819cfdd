//! Workers on other nodes, reached by ssh: network, UTS and time namespaces of this machine, each with an ssh server of its own.

use crate::support::{Place, has, rows, skipped, text};
use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

struct Nodes {
    place: Place,
    names: Vec<String>,
    servers: Vec<Child>,
    address: String,
}

fn sh(script: &str) -> bool {
    Command::new("sh")
        .args(["-ec", script])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|s| s.success())
}

impl Nodes {
    /// `None`, and told, where this machine can't have them.
    fn new() -> Option<Nodes> {
        let sshd = std::path::Path::new("/usr/sbin/sshd");
        if !sshd.exists() || !["ssh", "ssh-keygen", "ip", "unshare"].iter().all(|program| has(program)) {
            skipped("no ssh server (tests/setup.sh installs one)");
            return None;
        }
        // Tests of one process run at the same time.
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let unique = format!("{}n{count}", std::process::id());
        let net = (std::process::id() * 4 + count * 2) % 240;
        let name = format!("tb{unique}");
        // `ip netns exec` makes the root mount a slave, which a plain chroot has not.
        let is_possible = format!(
            "unshare --uts --time --monotonic=5 --fork true && ip netns add {name}
             ip netns exec {name} true || {{ ip netns del {name}; exit 1; }}
             ip netns del {name}"
        );
        if !sh(&is_possible) {
            skipped("network, UTS and time namespaces need root, and a root directory that is a mount");
            return None;
        }
        let place = Place::new();
        let path = |name: &str| place.path(name).display().to_string();
        std::fs::create_dir_all("/run/sshd").unwrap();
        for key in ["host", "user"] {
            assert!(sh(&format!("ssh-keygen -q -t ed25519 -N '' -f {}", path(key))));
        }
        let mut nodes = Nodes { names: vec![], servers: vec![], address: format!("10.213.{net}.1"), place };
        let mut config = String::new();
        for index in 0..2_u32 {
            let name = format!("tb{unique}{index}");
            let net = format!("10.213.{}", net + index);
            nodes.names.push(name.clone());
            assert!(sh(&format!(
                "ip netns add {name}; ip link add {name} type veth peer name eth0 netns {name}
                 ip addr add {net}.1/24 dev {name}; ip link set {name} up
                 ip -n {name} addr add {net}.2/24 dev eth0; ip -n {name} link set eth0 up; ip -n {name} link set lo up
                 ip -n {name} route add default via {net}.1"
            )));
            let server = nodes.place.path(&name);
            let of_server = format!(
                "Port 22\nListenAddress {net}.2\nHostKey {}\nAuthorizedKeysFile {}.pub\nPermitRootLogin yes\nStrictModes no\n\
                 UsePAM no\nPidFile none\n",
                nodes.place.path("host").display(),
                nodes.place.path("user").display()
            );
            std::fs::write(&server, of_server).unwrap();
            // Each node has another name and another clock: hours ahead of the coordinator's.
            let started = Command::new("ip")
                .args(["netns", "exec", &name, "unshare", "--uts", "--time", "--fork", "--kill-child"])
                .arg(format!("--monotonic={}", 5000 * (index + 1)))
                .args(["sh", "-c", &format!("hostname node{index}; exec /usr/sbin/sshd -D -e -f {}", server.display())])
                .stderr(Stdio::null())
                .spawn();
            nodes.servers.push(started.unwrap());
            config.push_str(&format!(
                "Host node{index}\n  HostName {net}.2\n  User root\n  IdentityFile {}\n  IdentitiesOnly yes\n  LogLevel ERROR\n  \
                 StrictHostKeyChecking no\n  UserKnownHostsFile /dev/null\n  ConnectionAttempts 20\n",
                nodes.place.path("user").display()
            ));
        }
        std::fs::write(nodes.place.path("ssh.config"), config).unwrap();
        let programs = nodes.place.path("programs");
        std::fs::create_dir_all(&programs).unwrap();
        let script = format!("#!/bin/sh\nexec /usr/bin/ssh -F {} \"$@\"\n", nodes.place.path("ssh.config").display());
        std::fs::write(programs.join("ssh"), script).unwrap();
        std::fs::set_permissions(programs.join("ssh"), std::fs::Permissions::from_mode(0o755)).unwrap();
        Some(nodes)
    }

    fn start(&self, name: &str, mut experiment: Value) -> Command {
        experiment["launch"] = json!({ "address": self.address, "hosts": ["node0", "node1"] });
        let mut command = self.place.start(name, experiment);
        let path = std::env::var("PATH").unwrap();
        command.env("PATH", format!("{}:{path}", self.place.path("programs").display()));
        command
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        for server in &mut self.servers {
            let _ = server.kill();
            let _ = server.wait();
        }
        for name in &self.names {
            sh(&format!("ip netns pids {name} | xargs -r kill -9"));
            sh(&format!("ip netns del {name}; ip link del {name} || true"));
        }
    }
}

#[test]
fn workers_on_two_nodes_start_together_by_clocks_that_differ_and_read_what_the_other_node_wrote() {
    let Some(nodes) = Nodes::new() else { return };
    let base = json!({ "workers": 4, "reorder": "node", "barriers": true,
        "workload": { "offset": { "data_size": "1M", "request_size": "64K" } } });
    let output =
        nodes.start("r", json!({ "base": base, "factors": { "files": ["shared", "per_worker"] } })).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let rows = rows(&nodes.place.path("r"));
    assert_eq!(rows.len(), 4);
    for row in &rows {
        assert_eq!(row["nodes"], 2);
        assert_eq!(row["bytes"], 4 << 20);
        // The clocks are 5000 s apart: an offset that is not measured would be seen in both.
        let uncertainty = row["clock_uncertainty_s"].as_f64().unwrap();
        assert!(uncertainty > 0.0 && uncertainty < 0.1, "{uncertainty}");
        assert!(row["start_spread_s"].as_f64().unwrap() < 1.0, "{}", row["start_spread_s"]);
        assert!(row["elapsed_s"].as_f64().unwrap() < 60.0, "{}", row["elapsed_s"]);
    }
    for row in rows.iter().filter(|row| row["operation"] == "read") {
        assert_eq!(row["own_node_reads"], 0);
        assert_eq!(row["bytes_verified"], 4 << 20);
    }
}

#[test]
fn a_node_that_can_no_longer_be_reached_ends_its_run_within_5_seconds() {
    let Some(nodes) = Nodes::new() else { return };
    let base = json!({ "workers": 2, "operations": ["write"], "backend": { "posix": { "added_delay": "20ms" } },
        "workload": { "offset": { "data_size": "64M", "request_size": "16K" } } });
    let mut running = nodes.start("r", json!({ "base": base })).stderr(Stdio::null()).spawn().unwrap();
    let data = nodes.place.data();
    let deadline = Instant::now() + Duration::from_secs(30);
    while !std::fs::read_dir(&data).is_ok_and(|mut files| files.next().is_some()) && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(20));
    }
    std::thread::sleep(Duration::from_millis(300));
    // No packet says that the connection has ended.
    let cut = Instant::now();
    assert!(sh(&format!("ip link set {} down", nodes.names[1])));
    let status = running.wait().unwrap();
    let took = cut.elapsed();
    assert_eq!(status.code(), Some(1));
    let rows = rows(&nodes.place.path("r"));
    assert_eq!(rows[0]["status"], "partial");
    assert!(rows[0]["error"].as_str().unwrap().contains("on node1"), "{}", rows[0]["error"]);
    assert!(took < Duration::from_secs(6), "the run ended only after {took:?}");
    assert!(nodes.place.left().is_empty());
}

/// Two workers, of which the second one's clock goes slower by a twentieth; when they really began is in FAKE_LOG.
const DRIFTING: &str = r#"
import json, os, socket, struct, sys, threading, time
host, port = sys.argv[sys.argv.index("--connect") + 1].rsplit(":", 1)
began = time.monotonic_ns()
lock = threading.Lock()
def worker(rank, drift):
    def clock():
        now = time.monotonic_ns()
        return now + int((now - began) * drift)
    link = socket.create_connection((host, int(port)))
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    incoming = link.makefile("rb")
    def say(message):
        text = json.dumps(message).encode()
        link.sendall(struct.pack(">I", len(text)) + text)
    say({"Hello": {"token": os.environ["TERRACE_BENCH_TOKEN"], "host": f"fake{rank}", "pid": os.getpid(), "rank": rank, "clock": f"{rank}"}})
    while head := incoming.read(4):
        message = json.loads(incoming.read(struct.unpack(">I", head)[0]))
        if message == "Ping":
            say({"Pong": {"at_ns": clock()}})
        elif message == "Bye":
            return
        elif "Prepare" in message:
            say({"Prepared": {"cache": {"pages": 0, "resident": 0}}})
        elif "Start" in message:
            while (left := message["Start"]["at_ns"] - clock()) > 0:
                time.sleep(left / 2e9)
            with lock, open(os.environ["FAKE_LOG"], "a") as log:
                print(time.monotonic_ns(), file=log)
            report = dict.fromkeys(["began_ns", "opened_ns", "first_ns", "last_ns", "flushed_ns", "closed_ns"], clock())
            report["flushed_ns"] += 1000
            report |= dict.fromkeys(["own_ns", "requests", "bytes", "read_requests", "read_bytes", "bytes_planned", "bytes_verified", "late_ns_max"], 1)
            say({"Done": report | {"sizes": {}, "latencies": ""}})
threads = [threading.Thread(target=worker, args=(rank, rank * -0.05)) for rank in range(2)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
"#;

#[test]
fn clocks_that_drift_apart_are_measured_anew() {
    if !has("python3") {
        return skipped("no python3");
    }
    let place = Place::new();
    let (script, log) = (place.path("drifting.py"), place.path("log"));
    std::fs::write(&script, DRIFTING).unwrap();
    let experiment = json!({ "launch": { "command": format!("python3 {}", script.display()) },
        "base": { "workers": 2, "operations": ["write"], "repetitions": 2, "delay": "4s", "backend": { "null": {} } } });
    let output = place.start("r", experiment).env("FAKE_LOG", &log).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let starts: Vec<i64> = std::fs::read_to_string(log).unwrap().lines().map(|line| line.parse().unwrap()).collect();
    assert_eq!(starts.len(), 4);
    // After four seconds the clocks are 200 ms further apart than at the beginning.
    for pair in starts.chunks(2) {
        let apart_ms = (pair[1] - pair[0]).abs() / 1_000_000;
        assert!(apart_ms < 100, "workers began {apart_ms} ms apart");
    }
}
