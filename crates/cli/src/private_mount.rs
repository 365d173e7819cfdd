//! The private mount of `terrace run --mount`: what the run, the new process and the server have to do with it.
//!
//!   run ──starts──▶ view server (outside the namespace, with the preload library; `terrace_view::serve`)
//!    │                 ▲
//!    └─fork─▶ child ───┘  namespace made, root mounted over, the mount's other end sent; then exec, as any program
//!
//! Messages, as in `supervision`: `M` and the mount's other end (child to server), `E` the run's program has ended (run to server),
//! `D` all has ended, or `H` something goes on and the server holds the agent (server to run). An end of the socket without `D` or `H`
//! says that the server was killed: the kernel then fails every call on the mount (ENOTCONN).
//!
//! The program itself has neither library nor supervisor: by the mount it gets files, and would look for links in vain.

use crate::keeper::Keeper;
use crate::supervision::{
    ENDED, LAST_STEPS, MESSAGE_MAX, PATIENCE, Supervised, inherit, inherited, log_of, own_program, pair, receive,
    receive_from_program, send,
};
use std::io::{self, PipeReader, PipeWriter, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, mpsc};
use terrace_core::control::Request;
use terrace_tool::control_client::Client;
use terrace_tool::errln;
use terrace_tool::failure::{Failure, Result, warn};
use terrace_tool::settings_file::{last_in_force, read_settings};
use terrace_view::{Namespace, Refused};

const MOUNTED: u8 = b'M';
const DONE: u8 = b'D';
const HOLDING: u8 = b'H';

/// The run's end of it.
pub struct PrivateMount {
    root: PathBuf,
    namespace: Arc<Namespace>,
    socket: OwnedFd,
    answers: mpsc::Receiver<u8>,
    is_lost: Arc<AtomicBool>,
    refusal: PipeReader,
    refuse: PipeWriter,
}

/// The way into a private mount over `root`, or a refusal by name.
pub fn namespace(root: &Path) -> Result<Namespace> {
    let probed = terrace_view::probe(root).map_err(|error| Failure::io("look at the root", root, error))?;
    probed.map_err(|refused| no_mount(&refused))
}

fn no_mount(refused: &Refused) -> Failure {
    Failure::bad_input(format!("a private mount can't be had here: {refused}"), refused.advice())
}

impl PrivateMount {
    pub fn start(
        settings: &terrace_core::settings::Settings,
        namespace: Namespace,
        quiet: bool,
    ) -> Result<PrivateMount> {
        let root = settings.root.clone();
        if !quiet {
            tell_costs(&root, namespace.in_user_namespace());
        }
        let (ours, theirs) = pair().map_err(|error| Failure::new(format!("can't make a socket pair: {error}")))?;
        let (refusal, refuse) = io::pipe().map_err(|error| Failure::new(format!("can't make a pipe: {error}")))?;
        let mut command = own_program("view");
        command.arg("--settings").arg(settings.in_force()).arg("--socket").arg(theirs.as_raw_fd().to_string());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log_of(settings)?).current_dir("/");
        // What makes it see files, and make them in tiers.
        command.env("LD_PRELOAD", &settings.library).env("TERRACE_INDEX", settings.index());
        inherit(&mut command, &[theirs.as_raw_fd()]);
        let mut server = command
            .spawn()
            .map_err(|error| Failure::new(format!("can't start the private mount's server: {error}")))?;
        drop(theirs);
        std::thread::spawn(move || server.wait());
        let (say, answers) = mpsc::channel();
        let listening = ours.try_clone().map_err(|error| Failure::new(format!("can't copy a socket: {error}")))?;
        let is_lost = Arc::new(AtomicBool::new(false));
        let (lost, at, log) = (is_lost.clone(), root.clone(), settings.log());
        std::thread::spawn(move || listen(&listening, &say, &lost, &at, &log));
        Ok(PrivateMount { root, namespace: Arc::new(namespace), socket: ours, answers, is_lost, refusal, refuse })
    }

    /// For the new process, before exec: its root is the mount, and so is that of all that it starts.
    pub fn enter(&self) -> impl FnMut() -> io::Result<()> + Send + Sync + 'static {
        let (namespace, socket, refuse) = (self.namespace.clone(), self.socket.as_raw_fd(), self.refuse.as_raw_fd());
        move || {
            let entered = namespace.enter().map(|mount| {
                // SAFETY: the socket is open in the child until exec.
                send(unsafe { BorrowedFd::borrow_raw(socket) }, MOUNTED, &[], Some(mount.as_fd()))
            });
            let refused = match entered {
                // Our copy of the mount's end is closed by now: if the server dies, this fails and does not wait for ever.
                Ok(Ok(())) => match namespace.enter_directory() {
                    Ok(()) => return Ok(()),
                    Err(refused) => refused,
                },
                Ok(Err(error)) => return Err(error),
                Err(refused) => refused,
            };
            let bytes = refused.bytes();
            // SAFETY: the pipe is open in the child until exec.
            unsafe { libc::write(refuse, bytes.as_ptr().cast(), bytes.len()) };
            Err(io::Error::from_raw_os_error(libc::EPERM))
        }
    }

    /// Why the new process could not enter, if it could not: to be asked after it has ended.
    pub fn refused(&self) -> Option<Failure> {
        rustix::io::ioctl_fionbio(&self.refusal, true).ok()?;
        let mut bytes = [0; 5];
        (&self.refusal).read_exact(&mut bytes).ok()?;
        Refused::of_bytes(&bytes).as_ref().map(no_mount)
    }

    /// The run's program has ended. As for supervision: what goes on keeps its mount.
    pub fn end(self) -> Supervised {
        let _ = send(self.socket.as_fd(), ENDED, &[], None);
        let left_behind = self.answers.recv_timeout(PATIENCE) == Ok(HOLDING);
        let is_lost = self.is_lost.load(SeqCst);
        let warnings = if is_lost { vec![lost(&self.root)] } else { vec![] };
        Supervised { left_behind, is_lost, warnings }
    }
}

fn tell_costs(root: &Path, in_user_namespace: bool) {
    errln!(
        "terrace: private mount at {}: each look-up, read and write passes through user space; a look at a file or an open takes some 50 \
         times as long as natively (docs/reference/programs-matrix.md)",
        root.display()
    );
    if in_user_namespace {
        errln!(
            "terrace: its programs are in a user namespace: files of other users belong to nobody there, and setuid programs gain no rights"
        );
    }
}

fn lost(root: &Path) -> String {
    format!(
        "the private mount's server was killed: calls of programs on {} fail now (ENOTCONN, \"transport endpoint is not connected\"), so \
         their results are not to be trusted; what had been written is safe",
        root.display()
    )
}

/// Hears what the server says, until it is gone.
fn listen(socket: &OwnedFd, answers: &mpsc::Sender<u8>, is_lost: &AtomicBool, root: &Path, log: &Path) {
    let mut buffer = [0; MESSAGE_MAX];
    let mut is_over = false;
    while let Ok((1.., _)) = receive(socket.as_fd(), &mut buffer) {
        is_over = true;
        let _ = answers.send(buffer[0]);
    }
    if !is_over {
        is_lost.store(true, SeqCst);
        // The user must know, also of a run that is quiet.
        warn(format!("{} (what it said is in {})", lost(root), log.display()));
    }
}

/// `terrace view`: serves the mount until nobody has it any more; holds the agent for what outlives the run.
pub fn view(settings: &Path, socket: RawFd) -> Result<()> {
    let socket = inherited(socket)?;
    // Signals of the terminal are for the program.
    rustix::process::setsid().ok();
    let settings = read_settings(settings)?;
    let Some(fuse) = receive_from_program(&socket, MOUNTED)? else { return Ok(()) };
    let (say, events) = mpsc::channel();
    let (root, done) = (settings.root.clone(), say.clone());
    std::thread::spawn(move || {
        let served = terrace_view::serve(&root, fuse);
        let is_aborted = |error: &io::Error| error.raw_os_error() == Some(libc::ECONNABORTED);
        let _ = done.send(match &served {
            Ok(()) => Event::Served,
            Err(error) if is_aborted(error) => Event::Aborted,
            Err(error) => {
                errln!("the private mount of {} could not be served: {error}", root.display());
                Event::NotServed
            }
        });
    });
    let hearing = socket.try_clone().map_err(|error| Failure::new(format!("can't copy a socket: {error}")))?;
    std::thread::spawn(move || {
        let mut buffer = [0; MESSAGE_MAX];
        let _ = say.send(Event::RunEnded { told: matches!(receive(hearing.as_fd(), &mut buffer), Ok((1.., _))) });
    });
    // Either may come first: a program's end is the end of its mount, if nothing else has it. The run's word is always taken: what is
    // left unread makes an end of the socket an error (ECONNRESET), which to the run would be our death.
    let (mut run_told, mut is_served) = (None, false);
    while run_told.is_none() || !is_served {
        let event = match run_told {
            None => events.recv().ok(),
            Some(told) => match events.recv_timeout(LAST_STEPS) {
                Err(mpsc::RecvTimeoutError::Timeout) => return go_on(&settings, &socket, told, &events),
                event => event.ok(),
            },
        };
        match event {
            Some(Event::RunEnded { told }) => run_told = Some(told),
            Some(Event::Served) => is_served = true,
            // The end of the mount's last program looks so, too, where the kernel is quicker than its own farewell.
            Some(Event::Aborted) if run_told.is_some() => is_served = true,
            Some(Event::Aborted) => match events.recv_timeout(LAST_STEPS) {
                Ok(Event::RunEnded { told }) => (run_told, is_served) = (Some(told), true),
                _ => return Err(Failure::new("the private mount was aborted")),
            },
            Some(Event::NotServed) | None => return Err(Failure::new("the private mount could not be served")),
        }
    }
    let _ = send(socket.as_fd(), DONE, &[], None);
    Ok(())
}

enum Event {
    /// The mount is gone.
    Served,
    /// The kernel has broken it off (fuse(4), ECONNABORTED).
    Aborted,
    NotServed,
    /// By its own word, or killed.
    RunEnded {
        told: bool,
    },
}

/// The program has ended, and others that it started have not: the agent is held for them, and their files are flushed at their end.
fn go_on(
    settings: &terrace_core::settings::Settings,
    socket: &OwnedFd,
    told: bool,
    events: &mpsc::Receiver<Event>,
) -> Result<()> {
    let in_force = last_in_force(settings);
    let held = Keeper::hold(&in_force, "(what a run left behind)", true);
    if told {
        let _ = send(socket.as_fd(), HOLDING, &[], None);
    }
    let _ = events.recv();
    let (_keeper, _) = held?;
    let request = Request::Flush { paths: vec![], all: false, end_of_run: true };
    let flushed = Client::connect(settings).and_then(|mut client| client.move_files(&request, |_| {}));
    flushed.map(|_| ()).map_err(terrace_tool::control_client::lost)
}
