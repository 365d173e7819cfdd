//! A root, its tiers and its settings, for one test.

use crate::{Outcome, Tree, terrace_binary, wait_until};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use terrace_core::control::{Request, Response, Status};
use terrace_core::settings::root_id;

/// What a test wants its workplace to be like. The default: one fast tier of 4 MiB, files flushed soon after they are closed.
#[derive(Clone, Debug)]
pub struct Wish {
    tiers: Vec<(String, String)>,
    top: String,
    policy: String,
    mover: String,
    settle: String,
    root: Option<PathBuf>,
    user: Option<u32>,
    patience: u64,
    mount: bool,
}

impl Default for Wish {
    fn default() -> Wish {
        Wish {
            tiers: vec![],
            top: String::new(),
            policy: String::new(),
            mover: String::new(),
            settle: "20ms".into(),
            root: None,
            user: None,
            patience: 240,
            mount: false,
        }
    }
}

impl Wish {
    /// Adds a tier, slower than those before.
    pub fn tier(mut self, name: &str, capacity: &str) -> Wish {
        self.tiers.push((name.into(), capacity.into()));
        self
    }
    /// Lines of `terrace.toml` before the first section.
    pub fn top(mut self, lines: &str) -> Wish {
        self.top.push_str(&format!("{lines}\n"));
        self
    }
    pub fn policy(mut self, lines: &str) -> Wish {
        self.policy.push_str(&format!("{lines}\n"));
        self
    }
    pub fn mover(mut self, lines: &str) -> Wish {
        self.mover.push_str(&format!("{lines}\n"));
        self
    }
    /// How long a closed file waits for its flush.
    pub fn settle(mut self, duration: &str) -> Wish {
        self.settle = duration.into();
        self
    }
    /// Accelerates this directory instead of a new one.
    pub fn root(mut self, root: &Path) -> Wish {
        self.root = Some(root.to_owned());
        self
    }
    /// Seconds after which a run that does not end is killed.
    pub fn patience(mut self, seconds: u64) -> Wish {
        self.patience = seconds;
        self
    }
    /// Programs are reached by a private mount.
    pub fn mount(mut self) -> Wish {
        self.mount = true;
        self
    }
    /// Everything runs as this user and group (when the tests run as root).
    pub fn user(mut self, id: u32) -> Wish {
        self.user = Some(id);
        self
    }
    pub fn build(self) -> Workplace {
        Workplace::of(self)
    }
}

pub struct Workplace {
    /// On the durable file system: the root, the state, settings, scratch.
    durable: tempfile::TempDir,
    /// In memory: the tiers, the runtime directory.
    fast: tempfile::TempDir,
    root: PathBuf,
    config: PathBuf,
    user: Option<u32>,
    patience: u64,
    mount: bool,
}

impl Default for Workplace {
    fn default() -> Workplace {
        Workplace::of(Wish::default())
    }
}

impl Workplace {
    pub fn new() -> Workplace {
        Workplace::default()
    }

    fn of(wish: Wish) -> Workplace {
        let directory = |base: &str| tempfile::Builder::new().prefix("tt-").tempdir_in(base).unwrap();
        let (durable, fast) = (directory("/var/tmp"), directory("/dev/shm"));
        let root = wish.root.clone().unwrap_or_else(|| durable.path().join("root"));
        let mut tiers = wish.tiers.clone();
        if tiers.is_empty() {
            tiers.push(("ram".into(), "4MiB".into()));
        }
        // Files of tests are small, and most tests are about files in tiers.
        let small_files = if wish.top.contains("small_files") { "" } else { "small_files = \"place\"" };
        let mut toml = format!(
            "root = {:?}\nstate = {:?}\nruntime = {:?}\n{small_files}\n{}\n",
            root,
            durable.path().join("state"),
            fast.path().join("run"),
            wish.top
        );
        for (name, capacity) in &tiers {
            let path = fast.path().join(name);
            std::fs::create_dir(&path).unwrap();
            toml.push_str(&format!("[[tier]]\nname = {name:?}\npath = {path:?}\ncapacity = {capacity:?}\n"));
        }
        toml.push_str(&format!("[policy]\n{}\n[mover]\nsettle = {:?}\n{}\n", wish.policy, wish.settle, wish.mover));
        let config = durable.path().join("terrace.toml");
        std::fs::write(&config, toml).unwrap();
        for directory in
            [root.clone(), durable.path().join("state"), fast.path().join("run"), durable.path().join("scratch")]
        {
            std::fs::create_dir_all(directory).unwrap();
        }
        if let Some(user) = wish.user {
            for base in [durable.path(), fast.path()] {
                for found in walkdir::WalkDir::new(base) {
                    std::os::unix::fs::chown(found.unwrap().path(), Some(user), Some(user)).unwrap();
                }
            }
        }
        Workplace {
            durable,
            fast,
            root,
            config,
            user: wish.user,
            patience: wish.patience,
            mount: wish.mount || by_mount(),
        }
    }

    pub fn root(&self) -> &Path {
        &self.root
    }
    /// A directory on the durable file system outside the root.
    pub fn scratch(&self) -> PathBuf {
        self.durable.path().join("scratch")
    }
    pub fn config(&self) -> &Path {
        &self.config
    }
    pub fn tier(&self, name: &str) -> PathBuf {
        self.fast.path().join(name)
    }
    pub fn runtime(&self) -> PathBuf {
        self.fast.path().join("run").join(root_id(&self.root))
    }
    pub fn state(&self) -> PathBuf {
        self.durable.path().join("state").join(root_id(&self.root))
    }
    pub fn agent_log(&self) -> String {
        std::fs::read_to_string(self.state().join("agent.log")).unwrap_or_default()
    }

    /// `terrace SUBCOMMAND` with this workplace's settings; add arguments to it.
    pub fn terrace(&self, subcommand: &str) -> Command {
        let mut command = self.in_root(&terrace_binary());
        command.arg(subcommand).arg("--config").arg(&self.config);
        // `make test-doors` runs the tests with each way to reach programs.
        command.envs(std::env::var_os("TERRACE_DOOR").filter(|_| !by_mount()).map(|door| ("TERRACE_DOOR", door)));
        // Conformance suites with habits learnt, by hand.
        command.envs(std::env::var_os("TERRACE_SMALL_FILES").map(|word| ("TERRACE_SMALL_FILES", word)));
        command
    }

    /// `terrace run … -- COMMAND`, to be spawned; stderr has the program's words only.
    pub fn run_command(&self, flags: &[&str], command: &[&str]) -> Command {
        let mut run = self.terrace("run");
        run.arg("--quiet").args(flags);
        if !self.mount {
            run.arg("--").args(command);
            return run;
        }
        run.args(["--mount", "--"]).args(command);
        match self.user {
            Some(user) if !crate::fuse_is_open_to_all() => with_fuse_for_all(&run, user),
            _ => run,
        }
    }

    /// Runs a command in the root under `terrace run`, to its end and the end of its flush.
    pub fn run(&self, command: &[&str]) -> Outcome {
        self.run_with(&[], command)
    }

    pub fn run_with(&self, flags: &[&str], command: &[&str]) -> Outcome {
        let report = self.durable.path().join("report.json");
        let _ = std::fs::remove_file(&report);
        let mut all_flags = vec!["--report", report.to_str().unwrap()];
        all_flags.extend(flags);
        let mut outcome = Outcome::within(self.patience, &mut self.run_command(&all_flags, command));
        if outcome.code == 137
            && let Some(status) = self.status()
        {
            eprintln!("the agent's status at that time: {status:?}");
        }
        outcome.report = std::fs::read(&report).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
        outcome
    }

    /// Runs a bash script in the root under `terrace run`.
    pub fn sh(&self, script: &str) -> Outcome {
        self.run(&["bash", "-euo", "pipefail", "-c", script])
    }

    /// Runs a command in the root without Terrace.
    pub fn native(&self, command: &[&str]) -> Outcome {
        Outcome::of(self.in_root(Path::new(command[0])).args(&command[1..]).output().unwrap())
    }

    pub fn native_sh(&self, script: &str) -> Outcome {
        self.native(&["bash", "-euo", "pipefail", "-c", script])
    }

    /// Starts a bash script under `terrace run`; its output is piped.
    pub fn start(&self, script: &str) -> Child {
        self.start_with(&[], &["bash", "-euo", "pipefail", "-c", script])
    }

    pub fn start_with(&self, flags: &[&str], command: &[&str]) -> Child {
        self.run_command(flags, command)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    }

    /// A command with the same environment natively and accelerated, in the root.
    fn in_root(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.current_dir(&self.root).stdin(Stdio::null());
        // Whoever runs the tests in the background (nohup, a shell's &) has them ignore signals, and a shell can't trap those.
        // SAFETY: signal(2) only, between fork and exec.
        unsafe {
            command.pre_exec(|| {
                for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT] {
                    libc::signal(signal, libc::SIG_DFL);
                }
                Ok(())
            })
        };
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("TERRACE_")) {
            command.env_remove(name);
        }
        let fixed = [
            ("LC_ALL", "C.UTF-8"),
            ("TZ", "UTC"),
            ("GIT_AUTHOR_NAME", "A"),
            ("GIT_AUTHOR_EMAIL", "a@example.org"),
            ("GIT_AUTHOR_DATE", "2026-01-01T00:00:00Z"),
            ("GIT_COMMITTER_NAME", "A"),
            ("GIT_COMMITTER_EMAIL", "a@example.org"),
            ("GIT_COMMITTER_DATE", "2026-01-01T00:00:00Z"),
            ("GIT_CONFIG_NOSYSTEM", "1"),
            // Threads make packs that differ from run to run.
            ("GIT_CONFIG_COUNT", "1"),
            ("GIT_CONFIG_KEY_0", "pack.threads"),
            ("GIT_CONFIG_VALUE_0", "1"),
            ("PYTHONDONTWRITEBYTECODE", "1"),
        ];
        command.envs(fixed).env("HOME", self.scratch()).env("SCRATCH", self.scratch()).env("ROOT", &self.root);
        if let Some(user) = self.user {
            command.uid(user).gid(user);
        }
        command
    }

    /// One request to the agent, and the last response. `None` when no agent listens.
    pub fn ask(&self, request: &Request) -> Option<Response> {
        let mut stream = UnixStream::connect(self.runtime().join("control")).ok()?;
        let mut line = serde_json::to_vec(request).unwrap();
        line.push(b'\n');
        stream.write_all(&line).ok()?;
        for line in BufReader::new(stream).lines() {
            let response: Response = serde_json::from_str(&line.ok()?).expect("the agent speaks its own language");
            if response.is_last() {
                return Some(response);
            }
        }
        None
    }

    pub fn status(&self) -> Option<Status> {
        match self.ask(&Request::Status)? {
            Response::Status { status } => Some(status),
            other => panic!("Status was answered by {other:?}"),
        }
    }

    /// Waits until the agent is gone, so that nothing of Terrace is in the root.
    #[track_caller]
    pub fn wait_for_the_agents_end(&self) {
        let is_gone =
            wait_until(60, || UnixStream::connect(self.runtime().join("control")).is_err() && !self.is_locked());
        assert!(is_gone, "the agent is still there.\n--- status\n{:#?}\n--- log\n{}", self.status(), self.agent_log());
    }

    /// True while an agent holds the runtime directory's lock.
    pub fn is_locked(&self) -> bool {
        let Ok(lock) = std::fs::File::open(self.runtime().join("lock")) else { return false };
        lock.try_lock_shared().is_err()
    }

    /// What is in the root, seen without Terrace after the agent has gone. Nothing may be left in a tier.
    #[track_caller]
    pub fn settled_tree(&self) -> Tree {
        self.wait_for_the_agents_end();
        let tree = Tree::of(&self.root);
        let leftovers = tree.leftovers();
        assert!(leftovers.is_empty(), "not flushed: {leftovers:#?}\n--- log\n{}", self.agent_log());
        tree
    }

    fn agent_pid(&self) -> Option<i32> {
        self.status().map(|status| status.agent_pid as i32)
    }
}

/// `TERRACE_DOOR=mount` runs the tests by private mounts, which are no setting.
fn by_mount() -> bool {
    std::env::var_os("TERRACE_DOOR").is_some_and(|door| door == "mount")
}

/// The same command where /dev/fuse has rights for everybody, as on most systems: a copy of it over it, for this command alone.
fn with_fuse_for_all(command: &Command, user: u32) -> Command {
    let script = "mount -t tmpfs none /mnt && mknod -m 666 /mnt/fuse c 10 229 && mount --bind /mnt/fuse /dev/fuse && \
                  exec setpriv --reuid $0 --regid $0 --clear-groups \"$@\"";
    let mut wrapped = Command::new("unshare");
    wrapped.args(["-m", "bash", "-euc", script, &user.to_string()]).arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => wrapped.env(name, value),
            None => wrapped.env_remove(name),
        };
    }
    wrapped.current_dir(command.get_current_dir().expect("commands run in a root")).stdin(Stdio::null());
    wrapped
}

impl Drop for Workplace {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = self.agent_log();
            let tail: Vec<&str> = log.lines().rev().take(30).collect();
            for line in tail.iter().rev() {
                eprintln!("agent.log: {line}");
            }
        }
        if !wait_until(5, || !self.is_locked())
            && let Some(pid) = self.agent_pid().filter(|&pid| pid > 1)
        {
            // SAFETY: the pid is that of this workplace's own agent, which answered just now.
            unsafe { libc::kill(pid, libc::SIGKILL) };
        }
    }
}
