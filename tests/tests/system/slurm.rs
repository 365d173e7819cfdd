//! Under a real Slurm: job scripts, steps, arrays, and how jobs end.

use terrace_tests::{Node, Nodes, Slurm, terrace_binary, wait_until};

struct Cluster {
    nodes: Nodes,
    a: Node,
    b: Node,
    slurm: Slurm,
}

const FLAGS: &str = "--settle 1h --tier ram=/dev/shm:64MiB";

impl Cluster {
    fn new() -> Option<Cluster> {
        Cluster::with(&[])
    }

    /// With more lines of slurm.conf.
    fn with(more: &[String]) -> Option<Cluster> {
        let nodes = Nodes::new()?;
        let (a, b) = (nodes.node("nodea"), nodes.node("nodeb"));
        let slurm = Slurm::start(&nodes, &[&a, &b], more)?;
        Some(Cluster { nodes, a, b, slurm })
    }

    /// A job on both nodes, two tasks each; its script knows `$T`, the flags of a run by `$F`, and is in the root.
    fn submit(&self, flags: &str, script: &str) -> u32 {
        let whole =
            format!("cd {}\nT={}\nF='{FLAGS}'\n{script}", self.nodes.root().display(), terrace_binary().display());
        self.slurm.submit(&self.a, &format!("-N2 --ntasks-per-node=2 {flags}"), &whole)
    }

    fn is_link(&self, name: &str) -> bool {
        self.nodes.root().join(name).is_symlink()
    }

    #[track_caller]
    fn await_links(&self, job: u32, names: &[&str]) {
        let are_there = wait_until(60, || names.iter().all(|name| self.is_link(name)));
        assert!(are_there, "{names:?} are not in tiers:\n{}", self.slurm.output(job));
    }

    fn has_left(&self) -> bool {
        !self.nodes.root().join(".terrace").exists()
    }

    #[track_caller]
    fn assert_durable(&self, files: &[&str], said: &str) {
        for name in files {
            assert!(!self.is_link(name) && self.nodes.root().join(name).exists(), "{name} is not durable:\n{said}");
        }
        assert!(wait_until(10, || self.has_left()), "{}\n{said}", self.a.native("find .terrace").stdout);
    }
}

/// Lines of a report that begin with this name.
fn rows<'a>(said: &'a str, name: &str) -> Vec<Vec<&'a str>> {
    let words = said.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    words.filter(|words| words.first() == Some(&name) && words.len() > 6).collect()
}

const EACH: &str = "sh -c 'echo $SLURM_PROCID >f-$SLURM_PROCID'";
const ALL: [&str; 4] = ["f-0", "f-1", "f-2", "f-3"];
/// Made when those have all of their bytes.
const WHOLE: [&str; 4] = ["whole-0", "whole-1", "whole-2", "whole-3"];

#[test]
fn a_job_script_accelerates_the_tasks_of_its_steps_on_every_node() {
    let Some(cluster) = Cluster::new() else { return };
    let job = cluster.submit("", &format!("$T run --nodes slurm $F -- srun {EACH}\necho rc=$?"));
    let said = cluster.slurm.await_end(&cluster.a, job);
    assert!(said.contains("rc=0"), "{said}");
    for node in ["nodea", "nodeb"] {
        let found = rows(&said, node);
        assert!(found.len() == 1 && found[0][1] == "2", "two files made in the tier of {node}, in one report:\n{said}");
    }
    cluster.assert_durable(&ALL, &said);
}

#[test]
fn a_step_of_runs_has_one_report_and_one_agent_a_node() {
    let Some(cluster) = Cluster::new() else { return };
    let job = cluster.submit(
        "",
        "srun $T run $F -- sh -c 'echo $SLURM_PROCID >f-$SLURM_PROCID; sleep 0.$SLURM_PROCID; exit $((SLURM_PROCID == 3))'\necho rc=$?",
    );
    let said = cluster.slurm.await_end(&cluster.a, job);
    assert!(said.contains("rc=1"), "{said}");
    assert_eq!(said.matches("4 tasks ran for up to").count(), 1, "{said}");
    assert!(said.contains("and 1 of them exited with another code than 0"), "{said}");
    assert!(!said.contains("the program ran for"), "a task has a report of its own:\n{said}");
    for node in ["nodea", "nodeb"] {
        let found = rows(&said, node);
        assert!(found.len() == 1 && found[0][1] == "2", "{said}");
    }
    cluster.assert_durable(&ALL, &said);
}

#[test]
fn jobs_of_an_array_share_a_root_and_its_agents() {
    let Some(cluster) = Cluster::new() else { return };
    let script =
        "$T run --nodes slurm $F -- srun sh -c 'echo x >f-$SLURM_ARRAY_TASK_ID-$SLURM_PROCID; sleep 1'\necho rc=$?";
    let whole =
        format!("cd {}\nT={}\nF='{FLAGS}'\n{script}", cluster.nodes.root().display(), terrace_binary().display());
    let job = cluster.slurm.submit(&cluster.a, "-N2 --ntasks-per-node=1 --array=0-3", &whole);
    let said = cluster.slurm.await_end(&cluster.a, job);
    assert_eq!(said.matches("rc=0").count(), 4, "{said}");
    let files: Vec<String> = (0..4).flat_map(|job| (0..2).map(move |task| format!("f-{job}-{task}"))).collect();
    cluster.assert_durable(&files.iter().map(String::as_str).collect::<Vec<_>>(), &said);
}

#[test]
fn a_job_that_is_cancelled_is_flushed_on_every_node_before_it_is_killed() {
    let Some(cluster) = Cluster::new() else { return };
    // Some seconds of flushing on each node.
    let task = "sh -c 'head -c 6000000 /dev/zero >f-$SLURM_PROCID; echo . >whole-$SLURM_PROCID; sleep 100'";
    let job = cluster.submit("", &format!("exec $T run --nodes slurm $F --bandwidth 4MiB/s -- srun {task}"));
    cluster.await_links(job, &WHOLE);
    cluster.slurm.on(&cluster.a, &format!("scancel {job}")).ok();
    let said = cluster.slurm.await_end(&cluster.a, job);
    assert!(!said.contains("not to be trusted") && !said.contains("agent had died"), "{said}");
    cluster.assert_durable(&ALL, &said);
    for name in ALL {
        assert_eq!(std::fs::metadata(cluster.nodes.root().join(name)).unwrap().len(), 6_000_000, "{name}\n{said}");
    }
}

#[test]
fn a_job_is_flushed_before_its_time_limit_which_slurm_tells() {
    let Some(cluster) = Cluster::new() else { return };
    // The limit is a minute, whatever the environment says: this Slurm sets no end time.
    let job = cluster.submit(
        "--time=1",
        &format!("$T run --nodes slurm $F --walltime-margin 50s -- srun sh -c 'echo $SLURM_PROCID >f-$SLURM_PROCID; sleep 300'\necho rc=$?; {EACH}"),
    );
    let said = cluster.slurm.await_end(&cluster.a, job);
    assert!(said.contains("the walltime is near its end") && !said.contains("DUE TO TIME LIMIT"), "{said}");
    assert!(said.contains("rc="), "the script went on:\n{said}");
    cluster.assert_durable(&ALL, &said);
}

#[test]
fn what_a_node_that_failed_held_is_told_and_found_again_on_it() {
    let Some(cluster) = Cluster::new() else { return };
    let task = "sh -c 'echo $SLURM_PROCID >f-$SLURM_PROCID; sleep 100'";
    let job = cluster.submit("--no-kill", &format!("$T run --nodes slurm $F -- srun --no-kill {task}\necho rc=$?"));
    cluster.await_links(job, &ALL);
    cluster.b.kill_all();
    cluster.slurm.on(&cluster.a, &format!("scontrol update nodename=nodeb state=down reason=test; scancel {job}")).ok();
    let said = cluster.slurm.await_end(&cluster.a, job);
    for name in ["f-0", "f-1"] {
        assert!(!cluster.is_link(name), "{name} of the node that lives is durable:\n{said}");
    }
    assert!(cluster.is_link("f-2") && cluster.is_link("f-3"), "{said}");
    let listed = cluster.a.terrace(&["ls"]).ok().stdout;
    assert_eq!(listed.matches("node nodeb").count(), 2, "{listed}");
    cluster.b.terrace(&["recover"]).ok();
    cluster.a.terrace(&["recover"]).ok();
    for name in ALL {
        assert!(!cluster.is_link(name), "{name}");
    }
}

#[test]
fn a_run_that_reaches_one_node_of_several_says_so_once() {
    let Some(cluster) = Cluster::new() else { return };
    let job = cluster.submit("", &format!("$T run $F -- srun {EACH}"));
    let said = cluster.slurm.await_end(&cluster.a, job);
    assert_eq!(said.matches("only this one (nodea) is accelerated").count(), 1, "{said}");
    cluster.assert_durable(&ALL, &said);
}

#[test]
fn what_a_killed_job_left_on_a_node_is_flushed_by_the_epilog() {
    let place = tempfile::tempdir_in("/tmp").unwrap();
    let epilog = place.path().join("epilog.sh");
    let drain = format!("#!/bin/sh\nexec {} drain --uid \"$SLURM_JOB_UID\"\n", terrace_binary().display());
    std::fs::write(&epilog, drain).unwrap();
    std::fs::set_permissions(&epilog, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let Some(cluster) = Cluster::with(&[format!("Epilog={}", epilog.display())]) else { return };
    let job = cluster.submit(
        "",
        "$T run --nodes slurm $F -- srun sh -c 'echo $SLURM_PROCID >f-$SLURM_PROCID; sleep 100' & sleep 100",
    );
    cluster.await_links(job, &ALL);
    // All of Terrace is killed at once, and then the job. The keeper goes by the name of /proc/self/exe.
    for signal in ["STOP", "KILL"] {
        for node in [&cluster.a, &cluster.b] {
            node.native(&format!("pkill -{signal} -x 'terrace|exe'")).ok();
        }
    }
    assert!(cluster.is_link("f-0") && cluster.is_link("f-3"), "the test shows nothing: the files are durable");
    cluster.slurm.on(&cluster.a, &format!("scancel {job}")).ok();
    let said = cluster.slurm.await_end(&cluster.a, job);
    assert!(
        wait_until(60, || ALL.iter().all(|name| !cluster.is_link(name))),
        "{said}\n{}",
        cluster.a.terrace(&["ls"]).stdout
    );
}

/// The plugin in a directory of its own; `None`, and said, where Slurm's headers are not installed.
fn plugin() -> Option<tempfile::TempDir> {
    let place = tempfile::tempdir_in("/tmp").unwrap();
    let built =
        std::process::Command::new(terrace_tests::checkout().join("drivers/slurm/build.sh")).arg(place.path()).status();
    assert!(built.unwrap().success(), "the plugin does not compile");
    if !place.path().join("spank_terrace.so").exists() {
        terrace_tests::skipped("the SPANK plugin needs Slurm's headers: apt-get install libslurm-dev");
        return None;
    }
    Some(place)
}

fn spank(place: &std::path::Path) -> String {
    format!("spank:required {}/spank_terrace.so terrace={}", place.display(), terrace_binary().display())
}

#[test]
fn the_plugin_accelerates_a_job_that_asks_for_it_and_no_other() {
    let Some(place) = plugin() else { return };
    let Some(cluster) = Cluster::with(&[spank(place.path())]) else { return };
    let terrace = terrace_binary().display().to_string();
    let step = |flags: &str, name: &str| {
        let task = format!(
            "echo $SLURM_PROCID >{name}-$SLURM_PROCID; echo {name}: ${{TERRACE_INDEX:-native}}; {terrace} ls {name}-$SLURM_PROCID"
        );
        format!("srun {flags} sh -c '{task}'\n")
    };
    let ask = format!("--terrace=\"{FLAGS}\"");
    let script = format!("cd {}\n{}{}", cluster.nodes.root().display(), step(&ask, "with"), step("", "without"));
    let job = cluster.slurm.submit(&cluster.a, "-N2 --ntasks-per-node=2", &script);
    let said = cluster.slurm.await_end(&cluster.a, job);
    let in_tier = said.lines().filter(|line| line.starts_with("ram ") && line.contains(" with-")).count();
    assert!(in_tier == 4 && said.matches("with: /dev/shm/").count() == 4, "{said}");
    assert!(said.matches("without: native").count() == 4 && !said.contains(" without-"), "{said}");
    cluster.assert_durable(&["with-0", "with-3", "without-0", "without-3"], &said);
}

#[test]
fn under_the_plugin_a_cancelled_job_is_flushed_however_long_it_takes() {
    let Some(place) = plugin() else { return };
    let Some(cluster) = Cluster::with(&[spank(place.path())]) else { return };
    // Longer than Slurm waits before it kills.
    let flags = format!("{FLAGS} --bandwidth 1MiB/s");
    let script = format!(
        "cd {}\nexec srun sh -c 'head -c 8000000 /dev/zero >f-$SLURM_PROCID; echo . >whole-$SLURM_PROCID; sleep 100'",
        cluster.nodes.root().display()
    );
    let job = cluster.slurm.submit(&cluster.a, &format!("-N2 --ntasks-per-node=2 --terrace='{flags}'"), &script);
    cluster.await_links(job, &WHOLE);
    cluster.slurm.on(&cluster.a, &format!("scancel {job}")).ok();
    let said = cluster.slurm.await_end(&cluster.a, job);
    assert!(wait_until(60, || ALL.iter().all(|name| !cluster.is_link(name))), "{said}");
    for name in ALL {
        assert_eq!(std::fs::metadata(cluster.nodes.root().join(name)).unwrap().len(), 8_000_000, "{name}\n{said}");
    }
}
