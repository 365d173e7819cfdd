//! Slurm on nodes of one machine: slurmctld on the first one, a slurmd on each, Debian's packages as they are.

use crate::{Node, Nodes, Outcome, skipped, wait_until};
use std::path::{Path, PathBuf};

pub struct Slurm {
    place: PathBuf,
}

/// SIGKILL follows a SIGTERM after so many seconds.
pub const KILL_WAIT_S: u32 = 12;

impl Slurm {
    /// `None`, and said loudly, where it is not installed or can't be started.
    pub fn start(nodes: &Nodes, of: &[&Node], more: &[String]) -> Option<Slurm> {
        let missing: Vec<&str> = ["munged", "slurmctld", "slurmd", "sbatch", "srun", "ip"]
            .into_iter()
            .filter(|program| {
                !["/usr/sbin", "/usr/bin", "/sbin", "/bin"].iter().any(|d| Path::new(d).join(program).exists())
            })
            .collect();
        if !missing.is_empty() {
            skipped(&format!(
                "Slurm is not installed ({} missing): apt-get install slurmctld slurmd slurm-client munge",
                missing.join(", ")
            ));
            return None;
        }
        let place = nodes.root().parent().unwrap().join("slurm");
        for directory in ["", "munge", "controller", "log"] {
            std::fs::create_dir_all(place.join(directory)).unwrap();
        }
        let slurm = Slurm { place };
        slurm.configure(of, more);
        let began = slurm.begin(of);
        if !began {
            skipped(&format!("Slurm does not start here: {}", slurm.logs()));
            return None;
        }
        Some(slurm)
    }

    fn file(&self, name: &str) -> String {
        self.place.join(name).display().to_string()
    }

    /// `more`: lines of slurm.conf; one that begins with `spank:` is of its list of plugins.
    fn configure(&self, of: &[&Node], more: &[String]) {
        let key: Vec<u8> = (0..1024u32).map(|byte| (byte.wrapping_mul(2654435761) >> 13) as u8).collect();
        std::fs::write(self.file("key"), key).unwrap();
        std::fs::set_permissions(self.file("key"), std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        let mut lines = vec![
            "ClusterName=tests".into(),
            format!("SlurmctldHost={}({})", of[0].name(), of[0].address()),
            "AuthType=auth/munge".into(),
            format!("AuthInfo=socket={}", self.file("munge/socket")),
            "CryptoType=crypto/munge".into(),
            "SlurmUser=root".into(),
            format!("StateSaveLocation={}", self.file("controller")),
            format!("SlurmdSpoolDir={}", self.file("spool-%n")),
            format!("SlurmctldPidFile={}", self.file("controller.pid")),
            format!("SlurmdPidFile={}", self.file("%n.pid")),
            format!("SlurmctldLogFile={}", self.file("log/controller")),
            format!("SlurmdLogFile={}", self.file("log/%n")),
            format!("PlugStackConfig={}", self.file("plugstack.conf")),
            format!("KillWait={KILL_WAIT_S}"),
            format!("PartitionName=main Nodes={} Default=YES MaxTime=INFINITE State=UP", names(of)),
        ];
        for line in [
            "ProctrackType=proctrack/linuxproc",
            "TaskPlugin=task/none",
            "SwitchType=switch/none",
            "MpiDefault=none",
            "ReturnToService=2",
            "SchedulerType=sched/backfill",
            "SelectType=select/cons_tres",
            "SelectTypeParameters=CR_Core",
            "SlurmdTimeout=10",
            "SlurmctldTimeout=10",
            "OverTimeLimit=0",
            "SlurmdParameters=config_overrides",
            "AccountingStorageType=accounting_storage/none",
            "JobAcctGatherType=jobacct_gather/none",
            // Tests are not to wait for the next turn of the scheduler.
            "SchedulerParameters=sched_interval=1,bf_interval=1",
        ] {
            lines.push(line.into());
        }
        for node in of {
            lines.push(format!("NodeName={} NodeAddr={} CPUs=4 State=UNKNOWN", node.name(), node.address()));
            std::fs::create_dir_all(self.file(&format!("spool-{}", node.name()))).unwrap();
        }
        let plugins: String = more.iter().filter_map(|line| line.strip_prefix("spank:")).collect();
        lines.extend(more.iter().filter(|line| !line.starts_with("spank:")).cloned());
        std::fs::write(self.file("slurm.conf"), lines.join("\n") + "\n").unwrap();
        std::fs::write(self.file("plugstack.conf"), plugins + "\n").unwrap();
    }

    fn begin(&self, of: &[&Node]) -> bool {
        let munge = ["key-file", "socket", "pid-file", "log-file", "seed-file"]
            .iter()
            .zip(["key", "munge/socket", "munge/pid", "log/munge", "munge/seed"])
            .map(|(flag, file)| format!("--{flag}={}", self.file(file)))
            .collect::<Vec<_>>()
            .join(" ");
        let conf = self.file("slurm.conf");
        let quietly = "</dev/null >/dev/null 2>&1";
        // One munged serves all: its socket lies in the directory that they share.
        let on = |node: &Node, script: &str| node.native(&format!("export PATH=$PATH:/usr/sbin; {script}")).code == 0;
        let begun = on(of[0], &format!("munged --force {munge} {quietly}"))
            && on(of[0], &format!("slurmctld -f {conf} {quietly}"))
            && of.iter().all(|node| on(node, &format!("slurmd -N {} -f {conf} {quietly}", node.name())));
        let idle = format!("{}", of.len());
        begun && wait_until(60, || self.on(of[0], "sinfo -h -t idle -o %D").stdout.trim() == idle)
    }

    /// A command of Slurm's, or of a user's in a job.
    pub fn on(&self, node: &Node, script: &str) -> Outcome {
        node.native(&format!("export SLURM_CONF={}; {script}", self.file("slurm.conf")))
    }

    /// Submits a script; the job's number. Its output goes to `OUT-NUMBER` beside the root.
    pub fn submit(&self, node: &Node, flags: &str, script: &str) -> u32 {
        let file = self.file("job.sh");
        std::fs::write(&file, format!("#!/bin/bash\n{script}\n")).unwrap();
        let output = self.file("out-%A");
        let said = self.on(node, &format!("sbatch --parsable --open-mode=append -o {output} {flags} {file}")).ok();
        said.stdout.trim().parse().unwrap_or_else(|_| panic!("{said:?}"))
    }

    pub fn is_over(&self, node: &Node, job: u32) -> bool {
        self.on(node, &format!("squeue -h -j {job}")).stdout.trim().is_empty()
    }

    #[track_caller]
    pub fn await_end(&self, node: &Node, job: u32) -> String {
        let is_over = wait_until(150, || {
            std::thread::sleep(std::time::Duration::from_millis(200));
            self.is_over(node, job)
        });
        let said = self.output(job);
        assert!(is_over, "job {job} does not end:\n{said}\n{}", self.on(node, "squeue; sinfo").stdout);
        said
    }

    pub fn output(&self, job: u32) -> String {
        String::from_utf8_lossy(&std::fs::read(self.file(&format!("out-{job}"))).unwrap_or_default()).into_owned()
    }

    fn logs(&self) -> String {
        let logs = std::fs::read_dir(self.place.join("log")).into_iter().flatten().flatten();
        logs.map(|log| std::fs::read_to_string(log.path()).unwrap_or_default())
            .map(|text| text.lines().rev().take(5).collect::<Vec<_>>().join("\n"))
            .collect::<Vec<_>>()
            .join("\n")
    }
}

fn names(of: &[&Node]) -> String {
    of.iter().map(|node| node.name()).collect::<Vec<_>>().join(",")
}
