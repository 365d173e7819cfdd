//! `terrace web`, and `terrace serve --http`: the program `terrace-web`, which lies beside this one, with the agent of these settings.
//!
//! A program of its own: its library (an HTTP server) stays out of every other command, and what is sent to it harms no agent.

use crate::args::{ServeArgs, WebArgs};
use crate::programs::beside;
use crate::reach::{Reached, reach};
use crate::serve::listening;
use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread::JoinHandle;
use terrace_client::Session;
use terrace_core::settings::{ListenSettings, Protection};
use terrace_index::INDEX_ENV;
use terrace_tool::errln;
use terrace_tool::failure::{Failure, Result, code, warn};
use terrace_tool::resolve::resolve;
use terrace_tool::setting_args::SettingArgs;

/// Where programs of an environment find the store and the page.
pub const URL_ENV: &str = "TERRACE_HTTP";
const PROGRAM: &str = "terrace-web";

pub fn web(args: &WebArgs) -> Result<i32> {
    // Kept into the program.
    let reached = reach(args.connect.as_deref(), &args.settings)?;
    // What is kept for the root: the token.
    let settings = match &reached {
        Reached::Root(settings) | Reached::Kept(settings, _) => (**settings).clone(),
        Reached::Index(index) => {
            let root = Some(Session::open(index)?.root().as_os_str().to_owned());
            resolve(&SettingArgs { root, ..args.settings.clone() })?.settings
        }
        Reached::Target(_) => resolve(&args.settings)?.settings,
    };
    let listen = listening::for_http(&args.listen, args.token_file.as_deref(), args.tls, args.plain, &settings)?;
    let mut command = program(&listen)?;
    reached.tell(&mut command)?;
    limit(&mut command, &args.query_memory, &args.query_timeout, args.query_spill.as_deref());
    let error = command.exec();
    drop(reached);
    Err(Failure::io("run", Path::new(PROGRAM), error).code(code::NOT_EXECUTABLE))
}

fn program(listen: &ListenSettings) -> Result<Command> {
    let mut command = Command::new(beside(PROGRAM)?);
    command.args(["--listen", &listen.address, "--token-file"]).arg(&listen.token_file);
    match &listen.protection {
        Protection::Loopback => {}
        Protection::Plain => {
            command.arg("--plain");
        }
        Protection::Tls { certificate, key } => {
            command.arg("--certificate").arg(certificate).arg("--key").arg(key);
        }
    }
    Ok(command)
}

/// What a query of the page may take.
fn limit(command: &mut Command, memory: &Option<OsString>, timeout: &Option<OsString>, spill: Option<&Path>) {
    for (flag, value) in [("--query-memory", memory), ("--query-timeout", timeout)] {
        if let Some(value) = value {
            command.arg(flag).arg(value);
        }
    }
    if let Some(directory) = spill {
        command.arg("--query-spill").arg(directory);
    }
}

/// The program beside an agent that is served; it ends when this goes away, however it does.
pub struct Web {
    url: String,
    /// Its end is the program's end.
    input: Option<ChildStdin>,
    ending: Arc<AtomicBool>,
    watch: Option<JoinHandle<()>>,
}

impl Web {
    pub fn start(listen: &ListenSettings, index: &Path, args: &ServeArgs) -> Result<Web> {
        let quiet = args.quiet;
        let mut command = program(listen)?;
        limit(&mut command, &args.query_memory_each, &args.query_timeout, args.query_spill.as_deref());
        command.arg("--until-input-ends").env(INDEX_ENV, index).stdin(Stdio::piped()).stdout(Stdio::piped());
        // Signals of a terminal are for `serve`, which ends this when it is time.
        command.process_group(0);
        // SAFETY: sigprocmask is async-signal-safe, and nothing else happens between fork and exec.
        unsafe { command.pre_exec(crate::signals::unblock_all) };
        let mut child = command.spawn().map_err(|error| Failure::io("run", Path::new(PROGRAM), error))?;
        let input = child.stdin.take();
        let mut words = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        let first = words.next().and_then(std::result::Result::ok);
        let Some(page) = first.as_deref().and_then(|line| line.strip_prefix("page: ")) else {
            let _ = child.wait();
            return Err(Failure::bad_input("objects can't be served over HTTP", "see what terrace-web has said above"));
        };
        let url = page.split("/?").next().unwrap_or(page).to_owned();
        if !quiet {
            errln!("terrace: page: {page}");
        }
        let ending = Arc::new(AtomicBool::new(false));
        let is_ending = ending.clone();
        let watch = std::thread::spawn(move || {
            for line in words.map_while(std::result::Result::ok).filter(|_| !quiet) {
                errln!("terrace: {line}");
            }
            watch(child, &is_ending);
        });
        Ok(Web { url, input, ending, watch: Some(watch) })
    }

    pub fn url(&self) -> &str {
        &self.url
    }
}

/// The agent serves all others meanwhile.
fn watch(mut child: Child, is_ending: &AtomicBool) {
    let ended = child.wait();
    if !is_ending.load(SeqCst) {
        let how = ended.map_or_else(|error| error.to_string(), |status| status.to_string());
        warn(format!(
            "objects are no longer served over HTTP: {PROGRAM} has ended ({how}); `terrace web` serves them again"
        ));
    }
}

impl Drop for Web {
    fn drop(&mut self) {
        self.ending.store(true, SeqCst);
        drop(self.input.take());
        if let Some(watch) = self.watch.take() {
            let _ = watch.join();
        }
    }
}
