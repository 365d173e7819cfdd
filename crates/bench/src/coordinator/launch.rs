//! Starting worker processes: here, by ssh on other hosts, by a launcher such as mpirun or srun, under `terrace run`.

use crate::error::{Error, Result};
use crate::experiment::Launch;
use crate::protocol::{TOKEN_VARIABLE, WORKER_VARIABLE};
use crate::settings::BackendSettings;
use std::fmt::Write as _;
use std::io::{Read, Write as _};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// What the backend asks of the launch, besides what the experiment says.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LaunchKind {
    Plain,
    /// MPI must start the workers.
    Mpi,
    /// Each worker below `terrace run` with these arguments.
    TerraceRun(Vec<String>),
}

pub struct Launched {
    children: Vec<(Child, Option<ExitStatus>)>,
}

/// 128 random bits: a worker that does not know it is not ours.
pub fn token() -> Result<String> {
    let mut bytes = [0; 16];
    std::fs::File::open("/dev/urandom")
        .and_then(|mut file| file.read_exact(&mut bytes))
        .map_err(|error| Error::io("read", "/dev/urandom", error))?;
    Ok(bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    }))
}

fn own_program() -> Result<PathBuf> {
    std::env::current_exe().map_err(|error| Error::io("find", "the program itself", error))
}

/// `terrace` beside this program, or on the PATH.
fn terrace_program() -> Result<PathBuf> {
    let beside = own_program()?.parent().map(|directory| directory.join("terrace"));
    Ok(beside.filter(|path| path.exists()).unwrap_or_else(|| "terrace".into()))
}

pub fn is_on_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| directory.join(program).is_file())
}

/// Refuses a launch whose program is not here.
pub fn launcher(launch: &Launch, backend: &BackendSettings) -> Result<()> {
    let there = |program: &str, hint: &str| {
        if program.contains('/') && Path::new(program).is_file() || is_on_path(program) {
            return Ok(());
        }
        Err(Error::input(format!("`{program}`, which starts the workers, is not on the PATH"), hint))
    };
    if let Some(command) = &launch.command {
        return command.split_whitespace().next().map_or(Ok(()), |program| there(program, "see `launch.command`"));
    }
    if backend.needs_mpi() {
        return mpi_command().map(drop);
    }
    if !launch.hosts.is_empty() {
        return there("ssh", "install OpenSSH's client, or say in `launch.command` what starts the workers");
    }
    let under_terrace = match backend {
        BackendSettings::TerraceFiles(_) => true,
        BackendSettings::TerraceObjects(objects) => objects.connect.is_none(),
        _ => false,
    };
    let terrace = terrace_program()?;
    if under_terrace { there(&terrace.to_string_lossy(), "put `terrace` beside `terrace-bench`") } else { Ok(()) }
}

impl Launched {
    pub fn start(launch: &Launch, kind: &LaunchKind, workers: u32, address: &str, token: &str) -> Result<Launched> {
        let program = own_program()?;
        let template = match (&launch.command, kind) {
            (Some(command), _) => Some(command.clone()),
            (None, LaunchKind::Mpi) => Some(mpi_command()?),
            _ => None,
        };
        let mut launched = Launched { children: vec![] };
        if let Some(template) = template {
            let text = template.replace("{workers}", &workers.to_string());
            let mut words = text.split_whitespace();
            let launcher = words
                .next()
                .ok_or_else(|| Error::input("`launch.command` is empty", "for example `mpirun -n {workers}`"))?;
            let mut command = Command::new(launcher);
            command.args(words).arg(&program).args(["worker", "--connect", address]);
            // mpirun passes its own environment on to local processes, srun to all.
            command.env(TOKEN_VARIABLE, token);
            launched.spawn(command, None)?;
            return Ok(launched);
        }
        for worker in 0..workers {
            let mut command = match launch.hosts.get(worker as usize % launch.hosts.len().max(1)) {
                Some(host) => over_ssh(host, &program, address, worker),
                None => here(kind, &program, address)?,
            };
            command.env(WORKER_VARIABLE, worker.to_string());
            if launch.hosts.is_empty() {
                command.env(TOKEN_VARIABLE, token);
                launched.spawn(command, None)?;
            } else {
                launched.spawn(command, Some(token))?;
            }
        }
        Ok(launched)
    }

    fn spawn(&mut self, mut command: Command, input: Option<&str>) -> Result<()> {
        let stdin = if input.is_some() { Stdio::piped() } else { Stdio::null() };
        let mut child = command.stdin(stdin).stdout(Stdio::null()).spawn().map_err(|error| {
            let program = command.get_program().to_string_lossy();
            Error::input(format!("can't start `{program}`: {error}"), "see `launch` in docs/guide/bench.md")
        })?;
        if let (Some(mut stdin), Some(input)) = (child.stdin.take(), input) {
            // An ssh that ended already is noticed while the workers join.
            let _ = writeln!(stdin, "{input}");
        }
        self.children.push((child, None));
        Ok(())
    }

    fn look(&mut self) {
        for (child, status) in &mut self.children {
            if status.is_none() {
                *status = child.try_wait().ok().flatten();
            }
        }
    }

    pub fn have_ended(&mut self) -> bool {
        self.look();
        self.children.iter().all(|(_, status)| status.is_some())
    }

    /// How a process ended that did not end well.
    pub fn failure(&self) -> Option<String> {
        let failed = self.children.iter().filter_map(|(_, status)| *status).find(|status| !status.success());
        failed.map(|status| format!("{status}; what it said is above"))
    }

    /// The reason, when a process has ended although nobody told it to.
    pub fn failed_early(&mut self) -> Option<String> {
        self.look();
        let (_, status) = self.children.iter().find(|(_, status)| status.is_some())?;
        status.map(|status| format!("their process ended ({status}); what it said is above"))
    }

    /// How a process of ours ended, for a message: `: signal 9`.
    pub fn how_it_ended(&mut self, pid: u32) -> String {
        // The connection's end comes before the process is a zombie.
        let deadline = Instant::now() + Duration::from_millis(300);
        loop {
            self.look();
            let ended = self.children.iter().find(|(child, status)| child.id() == pid && status.is_some());
            if let Some((_, Some(status))) = ended {
                return match status.signal() {
                    Some(libc::SIGBUS) => ": signal 7, which a mapped file on a full disk gives".into(),
                    Some(signal) => format!(": signal {signal}"),
                    None => format!(": {status}"),
                };
            }
            if Instant::now() > deadline {
                return String::new();
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    pub fn kill(&mut self) {
        self.look();
        for (child, status) in &mut self.children {
            if status.is_none() {
                // A launcher must end its own processes: it gets a second for it.
                // SAFETY: the child has not been waited for, so its number is still its own.
                unsafe { libc::kill(child.id() as i32, libc::SIGTERM) };
            }
        }
        self.wait(Duration::from_secs(1));
    }

    /// Waits until all have ended; kills what has not after the patience.
    pub fn wait(&mut self, patience: Duration) {
        let deadline = Instant::now() + patience;
        let mut pause = Duration::from_micros(200);
        loop {
            self.look();
            if self.children.iter().all(|(_, status)| status.is_some()) {
                return;
            }
            if Instant::now() > deadline {
                break;
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(20));
        }
        for (child, status) in &mut self.children {
            if status.is_none() {
                let _ = child.kill();
                *status = child.wait().ok();
            }
        }
    }
}

/// Workers that never joined end as well.
impl Drop for Launched {
    fn drop(&mut self) {
        self.kill();
    }
}

fn mpi_command() -> Result<String> {
    if !is_on_path("mpirun") {
        return Err(Error::input(
            "`mpirun` is not on the PATH, and this backend needs MPI",
            "install an MPI (Debian: openmpi-bin libopenmpi-dev), or say in `launch.command` what starts the workers",
        ));
    }
    // Open MPI wants to be asked for more workers than cores, and as root; others refuse the words.
    let version = Command::new("mpirun")
        .arg("--version")
        .output()
        .map_err(|error| Error::io("run", "mpirun --version", error))?;
    let open_mpi = String::from_utf8_lossy(&version.stdout).contains("Open MPI");
    let root = if open_mpi && rustix::process::geteuid().is_root() { "--allow-run-as-root " } else { "" };
    // Waiting workers must not spin on the cores that others need.
    let open = if open_mpi { "--oversubscribe --bind-to none --mca mpi_yield_when_idle 1 " } else { "" };
    Ok(format!("mpirun {root}{open}-n {{workers}}"))
}

fn here(kind: &LaunchKind, program: &Path, address: &str) -> Result<Command> {
    let mut command;
    if let LaunchKind::TerraceRun(arguments) = kind {
        command = Command::new(terrace_program()?);
        command.args(["run", "--quiet"]).args(arguments).arg("--").arg(program);
    } else {
        command = Command::new(program);
    }
    command.args(["worker", "--connect", address]);
    Ok(command)
}

/// The token goes through standard input: a command line would show it to everybody on both machines.
fn over_ssh(host: &str, program: &Path, address: &str, worker: u32) -> Command {
    let mut command = Command::new("ssh");
    command.args(["-o", "BatchMode=yes", host, "--", "env", &format!("{WORKER_VARIABLE}={worker}")]);
    command.arg(program).args(["worker", "--token-from-stdin", "--connect", address]);
    command
}
