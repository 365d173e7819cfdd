//! `terrace serve`, reached from this node, by TCP and by HTTP.

use crate::{Http, Workplace, wait_until};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

/// `terrace serve` until it is dropped.
pub struct Served {
    process: Child,
    pub address: String,
    pub index: PathBuf,
    /// Where it serves HTTP, if the flags have `--http`.
    pub http: Option<Http>,
    /// Where it serves Flight SQL (ADDRESS:PORT), if the flags have `--flight`.
    pub flight: Option<String>,
    /// By which clients know it, if it speaks TLS.
    pub certificate: PathBuf,
}

impl Served {
    pub const TOKEN: &str = "0123456789abcdef-and-more";

    pub fn begin(place: &Workplace, flags: &[&str]) -> Served {
        Served::begin_at(place, &Served::free_address(), flags)
    }

    pub fn free_address() -> String {
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        format!("127.0.0.1:{port}")
    }

    /// At an address that others know already.
    pub fn begin_at(place: &Workplace, address: &str, flags: &[&str]) -> Served {
        Served::begin_in(place, address, flags, &[])
    }

    /// By another command, which is given this one (`ip netns exec NAME`).
    pub fn begin_in(place: &Workplace, address: &str, flags: &[&str], by: &[&str]) -> Served {
        let address = address.to_owned();
        let token_file = place.scratch().join("token");
        std::fs::write(&token_file, format!("{}\n", Served::TOKEN)).unwrap();
        let mut command = place.terrace("serve");
        command.args(["--quiet", "--listen", &address, "--token-file"]).arg(&token_file).args(flags);
        if let [program, arguments @ ..] = by {
            let mut outer = std::process::Command::new(program);
            outer.args(arguments).arg(command.get_program()).args(command.get_args());
            for (name, value) in command.get_envs() {
                match value {
                    Some(value) => outer.env(name, value),
                    None => outer.env_remove(name),
                };
            }
            command = outer;
        }
        let mut process = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let line = lines.next().expect("a line for eval").unwrap();
        let index = line.strip_prefix("export TERRACE_INDEX=").expect("the line for eval");
        let http = flags.contains(&"--http").then(|| {
            let line = lines.next().expect("a second line for eval").unwrap();
            Http::new(line.strip_prefix("export TERRACE_HTTP=").expect("the second line for eval"), Served::TOKEN)
        });
        let flight = flags.contains(&"--flight").then(|| {
            let line = lines.next().expect("another line for eval").unwrap();
            line.strip_prefix("export TERRACE_FLIGHT=").expect("it").split_once("://").expect("an address").1.to_owned()
        });
        let certificate = token_file.with_extension("certificate");
        Served { process, address, index: Path::new(index).to_owned(), http, flight, certificate }
    }

    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Kills the agent; whoever has started it starts it again.
    pub fn kill_agent(&self, place: &Workplace) {
        let Some(pid) = place.status().map(|status| status.agent_pid as i32).filter(|&pid| pid > 1) else { return };
        // SAFETY: the agent of this test's own workplace.
        unsafe { libc::kill(pid, libc::SIGKILL) };
        let is_another = || place.status().is_some_and(|status| status.agent_pid as i32 != pid && status.agent_pid > 1);
        assert!(wait_until(60, is_another), "the agent is not started again");
    }

    /// Ends it as a batch system does; everything is durable then.
    pub fn end(mut self) {
        // SAFETY: our own child.
        unsafe { libc::kill(self.process.id() as i32, libc::SIGTERM) };
        assert!(wait_until(60, || self.process.try_wait().unwrap().is_some()), "`terrace serve` does not end");
        assert_eq!(self.process.wait().unwrap().code(), Some(0));
    }
}

impl Served {
    /// Kills it and its agent, as a power cut does.
    pub fn kill(mut self, place: &Workplace) {
        let agent = place.status().expect("the agent answers").agent_pid as i32;
        for pid in [self.process.id() as i32, agent] {
            // SAFETY: processes that this test has started.
            unsafe { libc::kill(pid, libc::SIGKILL) };
        }
        let _ = self.process.wait();
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
