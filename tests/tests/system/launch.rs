//! One run for all nodes of a job: `terrace run --nodes`. Nodes are namespaces; what ssh or srun would do, a remote shell of the
//! harness does.

use std::process::{Child, Stdio};
use std::time::Duration;
use terrace_tests::{Node, Nodes, Outcome, RemoteShell, wait_until};

struct Job {
    nodes: Nodes,
    a: Node,
    b: Node,
    c: Node,
    shell: RemoteShell,
}

impl Job {
    fn new() -> Option<Job> {
        let nodes = Nodes::new()?;
        let (a, b, c) = (nodes.node("nodea"), nodes.node("nodeb"), nodes.node("nodec"));
        let shell = nodes.remote_shell(&[&a, &b, &c]);
        Some(Job { nodes, a, b, c, shell })
    }

    /// `terrace run --nodes hosts:HOSTS` on the first node; `on NODE COMMAND` starts a task elsewhere.
    fn start(&self, flags: &[&str], script: &str) -> Child {
        let enter = self.shell.enter.display();
        let launcher = format!("{enter} {{host}}");
        let mut command = self.a.command(&terrace_tests::terrace_binary());
        command.args(["run", "--settle", "1h", "--tier", "ram=/dev/shm:64MiB", "--launcher", &launcher]);
        if !flags.contains(&"--nodes") {
            command.args(["--nodes", "hosts:nodea,nodeb,nodec"]);
        }
        let whole = format!("on() {{ {enter} \"$@\"; }}\n{script}");
        command.args(flags).args(["--", "bash", "-euc", &whole]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    fn run(&self, flags: &[&str], script: &str) -> Outcome {
        Outcome::of_child(120, self.start(flags, script))
    }

    fn has(&self, name: &str) -> bool {
        self.nodes.root().join(name).symlink_metadata().is_ok()
    }

    fn await_file(&self, name: &str, running: &mut Child) {
        let is_over = wait_until(60, || self.has(name) || running.try_wait().unwrap().is_some());
        assert!(is_over && self.has(name), "{name} does not come");
    }

    fn is_link(&self, name: &str) -> bool {
        self.nodes.root().join(name).is_symlink()
    }

    fn text(&self, name: &str) -> String {
        std::fs::read_to_string(self.nodes.root().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    /// Nothing of Terrace is in the root, and each file has its bytes there.
    #[track_caller]
    fn assert_durable(&self, files: &[(&str, &str)]) {
        for (name, text) in files {
            assert!(!self.is_link(name), "{name} is a link");
            assert_eq!(&self.text(name), text, "{name}");
        }
        assert!(!self.has(".terrace"), "{:?}", self.a.native("find .terrace").stdout);
    }
}

/// `nsenter` forks: the run is its child.
fn signal_run(child: &Child, signal: i32) {
    let children = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", child.id())).unwrap();
    let run = children.split_whitespace().next().expect("nsenter has started the run");
    // SAFETY: the run of this test.
    unsafe { libc::kill(run.parse().unwrap(), signal) };
}

#[test]
fn tasks_on_every_node_of_a_launch_write_into_that_nodes_tier_and_all_is_flushed_at_the_end() {
    let Some(job) = Job::new() else { return };
    let mut running = job.start(
        &[],
        "for n in nodea nodeb nodec; do on $n sh -c 'echo from-$(hostname) >g-$(hostname)'; done; echo . >ready; while [ ! -e end ]; do sleep 0.05; done",
    );
    job.await_file("ready", &mut running);
    let tags: std::collections::BTreeSet<String> = ["g-nodea", "g-nodeb", "g-nodec"]
        .iter()
        .map(|name| {
            let target =
                std::fs::read_link(job.nodes.root().join(name)).unwrap_or_else(|_| panic!("{name} is no link"));
            target.parent().unwrap().extension().unwrap().to_string_lossy().into_owned()
        })
        .collect();
    assert_eq!(tags.len(), 3, "each in its own node's tier: {tags:?}");
    std::fs::write(job.nodes.root().join("end"), "").unwrap();
    let outcome = Outcome::of_child(120, running).ok();
    for name in ["end", "ready"] {
        std::fs::remove_file(job.nodes.root().join(name)).unwrap();
    }
    let texts = ["a", "b", "c"].map(|n| (format!("g-node{n}"), format!("from-node{n}\n")));
    job.assert_durable(&texts.each_ref().map(|(name, text)| (name.as_str(), text.as_str())));
    // One report: a line a node, and their sums.
    let rows = |first: &str| outcome.stderr.lines().filter(|line| line.trim_start().starts_with(first)).count();
    for node in ["nodea ", "nodeb ", "nodec ", "3 nodes "] {
        assert_eq!(rows(node), 1, "{node}: {outcome:?}");
    }
    assert_eq!(outcome.stderr.matches("the program ran for").count(), 1, "{outcome:?}");
}

#[test]
fn the_report_of_a_launch_has_each_nodes_numbers() {
    let Some(job) = Job::new() else { return };
    let file = job.nodes.root().parent().unwrap().join("report.json");
    job.run(
        &["--quiet", "--report", file.to_str().unwrap()],
        "on nodeb sh -c 'echo 1 >b1; echo 2 >b2'; on nodec sh -c 'echo 3 >c1'; echo 4 >a1",
    )
    .ok();
    let report: serde_json::Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    let of = |host: &str| {
        let nodes = report["nodes"].as_array().unwrap();
        let node = nodes.iter().find(|node| node["host"] == host).unwrap_or_else(|| panic!("{host}: {report}"));
        assert_eq!(node["trouble"], serde_json::Value::Null);
        (node["tiers"][0]["written_files"].as_u64().unwrap(), node["final_flush"]["files"].as_u64().unwrap())
    };
    assert_eq!((of("nodea"), of("nodeb"), of("nodec")), ((1, 1), (2, 2), (1, 1)));
    assert_eq!(report["nodes"].as_array().unwrap().len(), 3);
    job.assert_durable(&[("a1", "4\n"), ("b1", "1\n"), ("b2", "2\n"), ("c1", "3\n")]);
}

#[test]
fn a_launchs_exit_code_is_the_programs_and_its_files_are_flushed_on_every_node_whatever_it_was() {
    let Some(job) = Job::new() else { return };
    job.run(&["--quiet"], "on nodeb sh -c 'echo x >f'; exit 7").ends_with(7);
    job.assert_durable(&[("f", "x\n")]);
}

#[test]
fn a_launch_that_is_told_to_end_flushes_every_node() {
    let Some(job) = Job::new() else { return };
    let mut running = job
        .start(&["--quiet", "--kill-wait", "60s"], "on nodeb sh -c 'echo b >f'; echo a >g; echo . >ready; sleep 100");
    job.await_file("ready", &mut running);
    assert!(job.is_link("f") && job.is_link("g"), "the test shows nothing: the files are durable");
    signal_run(&running, libc::SIGTERM);
    Outcome::of_child(120, running).ends_with(143);
    job.assert_durable(&[("f", "b\n"), ("g", "a\n")]);
}

#[test]
fn what_a_node_could_not_flush_before_its_time_was_up_is_told_by_node() {
    let Some(job) = Job::new() else { return };
    // Slow enough that it can't be done in two seconds.
    let mut running = job.start(
        &["--quiet", "--kill-wait", "3s", "--bandwidth", "1MiB/s"],
        "on nodeb sh -c 'head -c 20000000 /dev/zero >f'; echo . >ready; sleep 100",
    );
    job.await_file("ready", &mut running);
    signal_run(&running, libc::SIGTERM);
    let outcome = Outcome::of_child(60, running).ends_with(74);
    let lines: Vec<&str> = outcome.stderr.lines().filter(|line| line.contains("on nodeb:")).collect();
    assert!(lines.len() == 1 && lines[0].contains("time was up"), "{outcome:?}");
    // The nodes go on, if they are let, and lose nothing.
    assert!(
        wait_until(90, || !job.is_link("f") && !job.has(".terrace/nodes")),
        "{:?}",
        job.a.native("find .terrace").stdout
    );
    assert_eq!(job.text("f").len(), 20_000_000);
}

#[test]
fn nodes_end_by_themselves_when_their_launch_is_killed() {
    let Some(job) = Job::new() else { return };
    let mut running =
        job.start(&["--quiet"], "on nodeb sh -c 'echo b >f'; on nodec sh -c 'echo c >g'; echo . >ready; sleep 100");
    job.await_file("ready", &mut running);
    assert!(job.is_link("f") && job.is_link("g"), "the test shows nothing: the files are durable");
    job.a.kill_all();
    running.wait().unwrap();
    for node in [&job.b, &job.c] {
        let is_gone = || node.native("! pgrep -x terrace").code == 0;
        assert!(wait_until(60, is_gone), "{} is still held: {}", node.name(), node.native("ps ax").stdout);
    }
    assert!(!job.is_link("f") && !job.is_link("g"));
    job.a.terrace(&["recover"]).ok();
    std::fs::remove_file(job.nodes.root().join("ready")).unwrap();
    job.assert_durable(&[("f", "b\n"), ("g", "c\n")]);
}

#[test]
fn a_node_that_dies_is_named_and_the_others_are_durable() {
    let Some(job) = Job::new() else { return };
    let mut running = job.start(
        &[],
        "on nodeb sh -c 'echo b >f'; on nodec sh -c 'echo c >g'; echo . >ready; while [ ! -e end ]; do sleep 0.05; done",
    );
    job.await_file("ready", &mut running);
    assert!(job.is_link("f"), "the test shows nothing: f is durable");
    job.b.kill_all();
    std::thread::sleep(Duration::from_millis(300));
    std::fs::write(job.nodes.root().join("end"), "").unwrap();
    let outcome = Outcome::of_child(60, running).ends_with(74);
    assert!(outcome.stderr.contains("warning: nodeb has left the launch"), "{outcome:?}");
    assert!(
        outcome.stderr.contains("on nodeb: it has left the launch without a word (1 files are there)"),
        "{outcome:?}"
    );
    assert!(!job.is_link("g") && job.text("g") == "c\n", "{outcome:?}");
    // What it held is found again on it, and from anywhere it is told where it is.
    assert!(job.is_link("f"));
    let elsewhere = job.c.terrace(&["ls"]).ok().stdout;
    assert!(elsewhere.contains("node nodeb"), "{elsewhere}");
    job.b.terrace(&["recover"]).ok();
    for name in ["end", "ready"] {
        std::fs::remove_file(job.nodes.root().join(name)).unwrap();
    }
    job.assert_durable(&[("f", "b\n"), ("g", "c\n")]);
}

#[test]
fn a_node_where_no_agent_can_be_started_ends_the_launch_before_its_program() {
    let Some(job) = Job::new() else { return };
    let outcome = job.run(&["--nodes", "hosts:nodea,nodeb,nowhere"], "echo started >f");
    assert!(outcome.code == 1 && outcome.stderr.contains("nowhere: no agent could be started there"), "{outcome:?}");
    job.assert_durable(&[]);
    assert!(!job.has("f"));
}

#[test]
fn nodes_that_cannot_be_found_are_bad_input() {
    let Some(nodes) = Nodes::new() else { return };
    let a = nodes.node("nodea");
    for (wanted, said) in [("slurm", "SLURM_JOB_NODELIST"), ("pbs", "PBS_NODEFILE"), ("cloud", "--nodes cloud")] {
        let outcome = a.terrace(&["run", "--nodes", wanted, "--", "touch", "f"]).ends_with(2);
        assert!(outcome.stderr.contains(said) && outcome.stderr.contains("hint"), "{outcome:?}");
    }
    let supervised = a.terrace(&["run", "--nodes", "hosts:nodea", "--supervise-only", "--", "touch", "f"]).ends_with(2);
    assert!(supervised.stderr.contains("by the preload library"), "{supervised:?}");
    assert_eq!(std::fs::read_dir(nodes.root()).unwrap().count(), 0);
}

#[test]
fn the_supervisor_and_its_keeper_outlive_a_schedulers_sigterm() {
    let Some(nodes) = Nodes::new() else { return };
    let a = nodes.node("nodea");
    let script = "trap 'echo told >>log; exit 0' TERM; echo . >log; while :; do sleep 0.05; done";
    let mut command = a.command(&terrace_tests::terrace_binary());
    command.args(["run", "--settle", "1h", "--tier", "ram=/dev/shm:64MiB", "--", "bash", "-uc", script]);
    let running = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    assert!(wait_until(60, || nodes.root().join("log").symlink_metadata().is_ok()));
    // As scancel does, to every process of the job, and some get it twice.
    a.native("kill -TERM -1; kill -TERM -1").ok();
    let outcome = Outcome::of_child(60, running).ok();
    assert!(!outcome.stderr.contains("not to be trusted") && !outcome.stderr.contains("agent had died"), "{outcome:?}");
    // A shell that hears it again before it has left says so again, natively too.
    let log = std::fs::read_to_string(nodes.root().join("log")).unwrap();
    assert!([".\ntold\n", ".\ntold\ntold\n"].contains(&log.as_str()), "{log}");
    assert!(!nodes.root().join(".terrace").exists());
}

#[test]
fn status_lists_other_nodes_files_as_json_with_and_without_an_agent() {
    let Some(nodes) = Nodes::new() else { return };
    let (a, b) = (nodes.node("nodea"), nodes.node("nodeb"));
    let on_a = a.start("echo one >f");
    let on_b = b.start("echo two >g");
    let files = |node: &Node| {
        let said = node.terrace(&["status", "--json"]).stdout;
        let status: serde_json::Value = serde_json::from_str(&said).unwrap_or_else(|_| panic!("{said}"));
        let files = status["elsewhere"].as_array().unwrap_or_else(|| panic!("{said}")).clone();
        files.iter().map(|file| (file["path"].to_string(), file["node"].to_string())).collect::<Vec<_>>()
    };
    let of = |name: &str, node: &str| {
        let path = nodes.root().join(name).canonicalize().unwrap_or(nodes.root().join(name));
        (format!("\"{}\"", path.display()), format!("\"{node}\""))
    };
    assert!(files(&a).contains(&of("g", "nodeb")) && !files(&a).contains(&of("f", "nodea")), "{:?}", files(&a));
    let login = nodes.node("login");
    assert!(
        files(&login).contains(&of("f", "nodea")) && files(&login).contains(&of("g", "nodeb")),
        "{:?}",
        files(&login)
    );
    a.end(on_a).ok();
    b.end(on_b).ok();
}

#[test]
fn drain_makes_durable_what_a_users_killed_jobs_left_below_every_root() {
    let Some(nodes) = Nodes::new() else { return };
    let a = nodes.node("nodea");
    std::fs::create_dir(nodes.root().join("other")).unwrap();
    for (root, file) in [(".", "f"), ("other", "other/g")] {
        let script = format!("echo left >{}; echo . >ready; sleep 100", file.rsplit('/').next().unwrap());
        let mut command = a.command(&terrace_tests::terrace_binary());
        command.args([
            "run",
            "-q",
            "--settle",
            "1h",
            "--tier",
            "ram=/dev/shm:64MiB",
            "--root",
            root,
            "--",
            "bash",
            "-euc",
        ]);
        let mut run = command.arg(format!("cd {root}; {script}")).spawn().unwrap();
        assert!(wait_until(60, || nodes.root().join(root).join("ready").symlink_metadata().is_ok()));
        a.kill_all();
        run.wait().unwrap();
        assert!(nodes.root().join(file).is_symlink(), "the test shows nothing: {file} is durable");
    }
    let of_others = a.terrace(&["drain", "--uid", "12345"]).ok();
    assert!(of_others.stdout.is_empty() && nodes.root().join("f").is_symlink(), "{of_others:?}");
    let said = a.terrace(&["drain", "--uid", "0"]).ok();
    for file in ["f", "other/g"] {
        assert!(!nodes.root().join(file).is_symlink(), "{said:?}");
        assert_eq!(std::fs::read_to_string(nodes.root().join(file)).unwrap(), "left\n");
    }
    assert_eq!(a.terrace(&["drain"]).ok().stdout, "", "nothing is left to do");
}

#[test]
fn plain_ssh_is_the_way_to_hosts_that_are_named_and_a_node_that_nothing_used_is_pointed_out() {
    let Some(job) = Job::new() else { return };
    // The harness's stands for ssh: its words are a shell's, and it passes no environment on.
    let path = format!("{}:{}", job.shell.ssh.parent().unwrap().display(), std::env::var("PATH").unwrap());
    let hosts = job.nodes.root().parent().unwrap().join("hosts.txt");
    std::fs::write(&hosts, "nodea slots=4\nnodeb slots=4\n").unwrap();
    let mut command = job.a.command(&terrace_tests::terrace_binary());
    command.args(["run", "--tier", "ram=/dev/shm:64MiB", "--nodes", &format!("hosts:{}", hosts.display()), "--"]);
    let script = format!("echo a >f; ssh nodeb 'echo b >{}/g'", job.nodes.root().display());
    let outcome = Outcome::within(60, command.env("PATH", path).args(["bash", "-euc", &script])).ok();
    assert!(
        outcome.stderr.contains("no program on nodeb used its agent") && outcome.stderr.contains("LD_PRELOAD"),
        "{outcome:?}"
    );
    job.assert_durable(&[("f", "a\n"), ("g", "b\n")]);
}
