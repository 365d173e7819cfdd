//! A run's supervision: the keeper that `run` starts, the supervisor that the keeper starts, and what they say to each other.
//!
//!   run ──socket──▶ keeper ──▶ supervisor
//!    │                ▲
//!    └─fork─▶ child ──┘  filter installed, listener sent, then exec (which waits for the supervisor)
//!
//! Messages, one packet each: `L` and the listener (child to keeper), `E` the run's program has ended (run to keeper), `D` all
//! has ended, or `H` something goes on and the keeper holds the agent (keeper to run), `S` all was served to its end (supervisor
//! to run), `X` nothing is served any more (keeper to run), `W…` a warning for the user. An end of the socket without `S`, `D` or
//! `H` says that keeper and supervisor were both killed.
//! Reason for two processes: see `terrace_supervise::keep`. The keeper outlives the run if one of its programs does.

use crate::keeper::Keeper;
use crate::service::SuperviseArgs;
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;
use terrace_core::control::Request;
use terrace_core::policy::Policy;
use terrace_core::settings::Settings;
use terrace_supervise::{Filter, HOPELESS};
use terrace_tool::control_client::Client;
use terrace_tool::errln;
use terrace_tool::failure::{Failure, Result, code, warn};
use terrace_tool::settings_file::{last_in_force, read_settings};

const LISTENER: u8 = b'L';
pub const ENDED: u8 = b'E';
const DONE: u8 = b'D';
const HOLDING: u8 = b'H';
const WARNING: u8 = b'W';
const SERVED: u8 = b'S';
const LOST: u8 = b'X';

/// The run's last processes have so long to be gone before they count as left behind.
pub const LAST_STEPS: Duration = Duration::from_millis(100);
pub const PATIENCE: Duration = Duration::from_secs(10);
pub const MESSAGE_MAX: usize = 4096;

/// The run's end of it.
pub struct Supervision {
    socket: OwnedFd,
    filter: Filter,
    answers: mpsc::Receiver<u8>,
    heard: Arc<Heard>,
}

/// What the keeper and the supervisor said.
#[derive(Default)]
struct Heard {
    warnings: Mutex<Vec<String>>,
    is_lost: AtomicBool,
}

impl Heard {
    fn warn(&self, text: &str, quiet: bool) {
        if !quiet {
            warn(text);
        }
        self.warnings.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).push(text.to_owned());
    }

    /// What has no supervisor any more fails, whatever it is: the user must know, also of a run that is quiet.
    fn lose(&self, why: &str) {
        self.is_lost.store(true, SeqCst);
        self.warn(
            &format!(
                "{why}: system calls of programs that it served fail now (ENOSYS, \"function not implemented\"), so their results \
                 are not to be trusted; the files that were written are safe"
            ),
            false,
        );
    }
}

/// How a run's supervision ended.
#[derive(Default)]
pub struct Supervised {
    /// Processes of the program go on, and the keeper holds the agent for them.
    pub left_behind: bool,
    /// Calls of programs failed because nobody was left to serve them.
    pub is_lost: bool,
    pub warnings: Vec<String>,
}

/// What a run's filter lets pass is learned while its agent starts.
pub fn learn(settings: &Settings) -> JoinHandle<Filter> {
    let policy = Policy::compile(&settings.policy);
    let directories = policy.is_ok_and(|policy| settings.directories.may_place(&policy));
    std::thread::spawn(move || Filter::new(terrace_supervise::learn_loader(), directories))
}

impl Supervision {
    pub fn start(settings: &Settings, learning: JoinHandle<Filter>, quiet: bool) -> Result<Supervision> {
        let (ours, theirs) = pair().map_err(|error| Failure::new(format!("can't make a socket pair: {error}")))?;
        let mut command = own_program("keep");
        command.arg("--settings").arg(settings.in_force()).arg("--socket").arg(theirs.as_raw_fd().to_string());
        let log = log_of(settings)?;
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).current_dir("/");
        // What a keeper does is not part of any run.
        command.env_remove("LD_PRELOAD").env_remove("TERRACE_INDEX");
        inherit(&mut command, &[theirs.as_raw_fd()]);
        let mut keeper =
            command.spawn().map_err(|error| Failure::new(format!("can't start the supervisor's keeper: {error}")))?;
        drop(theirs);
        std::thread::spawn(move || keeper.wait());
        let (send, answers) = mpsc::channel();
        let listening = ours.try_clone().map_err(|error| Failure::new(format!("can't copy a socket: {error}")))?;
        let heard = Arc::new(Heard::default());
        let hearing = heard.clone();
        std::thread::spawn(move || listen(&listening, &send, &hearing, quiet));
        let filter = learning.join().map_err(|_| Failure::new("can't make the filter of the supervisor"))?;
        Ok(Supervision { socket: ours, filter, answers, heard })
    }

    /// For the new process, before exec: it and all that it starts are supervised.
    pub fn enter(&self) -> impl FnMut() -> io::Result<()> + Send + Sync + 'static {
        let filter = self.filter.clone();
        let socket = self.socket.as_raw_fd();
        let without_privileges = !rustix::process::geteuid().is_root();
        move || {
            let listener = filter.install(without_privileges)?;
            // SAFETY: the socket is open in the child until exec.
            let socket = unsafe { BorrowedFd::borrow_raw(socket) };
            send(socket, LISTENER, &[], Some(listener.as_fd()))
        }
    }

    /// The run's program has ended.
    pub fn end(self) -> Supervised {
        // If nobody hears it, the wait ends at once: the socket has another end no more.
        let _ = send(self.socket.as_fd(), ENDED, &[], None);
        let left_behind = self.answers.recv_timeout(PATIENCE) == Ok(HOLDING);
        let warnings =
            std::mem::take(&mut *self.heard.warnings.lock().unwrap_or_else(|poisoned| poisoned.into_inner()));
        Supervised { left_behind, is_lost: self.heard.is_lost.load(SeqCst), warnings }
    }
}

/// Passes on what the keeper says, until it is gone.
fn listen(socket: &OwnedFd, answers: &mpsc::Sender<u8>, heard: &Heard, quiet: bool) {
    let mut buffer = [0; MESSAGE_MAX];
    let mut is_over = false;
    while let Ok((count @ 1.., _)) = receive(socket.as_fd(), &mut buffer) {
        match buffer[0] {
            WARNING => heard.warn(&String::from_utf8_lossy(&buffer[1..count]), quiet),
            SERVED => is_over = true,
            LOST => {
                is_over = true;
                heard.lose("the supervisor can't be started again");
            }
            other => {
                is_over = true;
                let _ = answers.send(other);
            }
        }
    }
    if !is_over {
        heard.lose("the supervisor and its keeper were killed");
    }
}

/// `terrace keep`: takes the listener, keeps a supervisor at work, holds the agent for what outlives the run.
pub fn keep(settings: &Path, socket: RawFd) -> Result<()> {
    let socket = inherited(socket)?;
    // Signals of the terminal are for the program.
    rustix::process::setsid().ok();
    let settings = read_settings(settings)?;
    // The next supervisor needs the library of this run, whatever is installed in its place meanwhile.
    let library = std::fs::File::open(&settings.library)
        .map_err(|error| Failure::io("read the preload library", &settings.library, error))?;
    let library = crate::limits::out_of_the_way(library.as_fd())
        .map_err(|error| Failure::new(format!("can't keep the preload library open: {error}")))?;
    let Some(listener) = receive_from_program(&socket, LISTENER)? else { return Ok(()) };
    // SAFETY: by value; no other thread runs yet.
    let umask = unsafe {
        let umask = libc::umask(0o77);
        libc::umask(umask);
        umask
    };
    let (done, ended) = mpsc::channel();
    let said = socket.try_clone().map_err(|error| Failure::new(format!("can't copy a socket: {error}")))?;
    let (thread_settings, thread_socket) = (settings.clone(), said);
    std::thread::spawn(move || {
        let settings = thread_settings;
        let listener = listener;
        let start = |listener: BorrowedFd<'_>, board: BorrowedFd<'_>| {
            start_supervisor(&settings, library.as_fd(), listener, board, thread_socket.as_fd())
        };
        let died = |how: String| errln!("the supervisor ended ({how}) and is started again");
        let kept = terrace_supervise::keep(&listener, umask, start, died);
        if kept.is_err() {
            let _ = send(thread_socket.as_fd(), LOST, &[], None);
        }
        let _ = done.send(kept);
    });
    // The run's word that its program has ended, or its own end.
    let mut buffer = [0; MESSAGE_MAX];
    let told = matches!(receive(socket.as_fd(), &mut buffer), Ok((1.., _)));
    match ended.recv_timeout(LAST_STEPS) {
        Err(mpsc::RecvTimeoutError::Timeout) => {}
        _ => {
            let _ = send(socket.as_fd(), DONE, &[], None);
            return Ok(());
        }
    }
    let in_force = last_in_force(&settings);
    let words = ["(what a run left behind)".to_owned()];
    let held = Keeper::begin(&in_force, &words, true);
    if told {
        let _ = send(socket.as_fd(), HOLDING, &[], None);
    }
    drop(socket);
    let _ = ended.recv();
    let (_keeper, _) = held?;
    let request = Request::Flush { paths: vec![], all: false, end_of_run: true };
    let flushed = Client::connect(&settings).and_then(|mut client| client.move_files(&request, |_| {}));
    flushed.map(|_| ()).map_err(terrace_tool::control_client::lost)
}

fn start_supervisor(
    settings: &Settings,
    library: BorrowedFd<'_>,
    listener: BorrowedFd<'_>,
    board: BorrowedFd<'_>,
    socket: BorrowedFd<'_>,
) -> io::Result<Child> {
    let mut command = own_program("supervise");
    command.arg("--library").arg(format!("/proc/self/fd/{}", library.as_raw_fd()));
    command.arg("--index").arg(settings.index());
    for (name, fd) in [("--listener", listener), ("--board", board), ("--socket", socket)] {
        command.arg(name).arg(fd.as_raw_fd().to_string());
    }
    command.stdin(Stdio::null()).stdout(Stdio::null());
    inherit(&mut command, &[library, listener, board, socket].map(|fd| fd.as_raw_fd()));
    command.spawn()
}

/// `terrace supervise`: answers until the last program has ended.
pub fn supervise(args: SuperviseArgs) -> Result<()> {
    let (listener, board, socket) = (inherited(args.listener)?, inherited(args.board)?, inherited(args.socket)?);
    let log = crate::limits::lead_nowhere()
        .map_err(|error| Failure::new(format!("the supervisor can't arrange its descriptors: {error}")))?;
    let told = socket.try_clone().map_err(|error| Failure::new(format!("can't copy a socket: {error}")))?;
    // Nobody hears it once the run has ended; then it is in the log only.
    let tell = move |text: String| {
        let _ = writeln!(&log, "{text}");
        let _ = send(told.as_fd(), WARNING, text.as_bytes(), None);
    };
    terrace_supervise::serve(listener, board, &args.library, &args.index, tell).map_err(|error| {
        let code = if error.kind() == io::ErrorKind::Unsupported { HOPELESS } else { code::FAILED };
        Failure::new(format!("can't supervise: {error}")).code(code)
    })?;
    let _ = send(socket.as_fd(), SERVED, &[], None);
    Ok(())
}

/// This very program, also after its file was replaced.
pub fn own_program(subcommand: &str) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg0("terrace").arg(subcommand);
    command
}

pub fn log_of(settings: &Settings) -> Result<Stdio> {
    let path = settings.log();
    match std::fs::OpenOptions::new().append(true).create(true).open(&path) {
        Ok(file) => Ok(file.into()),
        Err(error) => Err(Failure::io("write the agent's log", &path, error)),
    }
}

/// The child keeps these, and no signal is blocked in it.
pub fn inherit(command: &mut Command, fds: &[RawFd]) {
    let fds = fds.to_vec();
    // SAFETY: fcntl and sigprocmask are async-signal-safe.
    unsafe {
        command.pre_exec(move || {
            for &fd in &fds {
                if libc::fcntl(fd, libc::F_SETFD, 0) != 0 {
                    return Err(io::Error::last_os_error());
                }
            }
            crate::signals::unblock_all()
        });
    }
}

pub fn inherited(fd: RawFd) -> Result<OwnedFd> {
    // SAFETY: asks only.
    if fd < 3 || unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) } != 0 {
        return Err(Failure::bad_input("this command is started by `terrace run`", "use `terrace run -- CMD`"));
    }
    // SAFETY: open, and given to us by who started us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

pub fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut fds = [0; 2];
    // SAFETY: an array of two; both descriptors are new and ours.
    unsafe {
        match libc::socketpair(libc::AF_UNIX, libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC, 0, fds.as_mut_ptr()) {
            0 => Ok((OwnedFd::from_raw_fd(fds[0]), OwnedFd::from_raw_fd(fds[1]))),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

#[repr(align(8))]
struct Control([u8; 32]);

/// One packet; async-signal-safe.
pub fn send(socket: BorrowedFd<'_>, kind: u8, text: &[u8], fd: Option<BorrowedFd<'_>>) -> io::Result<()> {
    let mut kind = kind;
    let text = &text[..text.len().min(MESSAGE_MAX - 1)];
    let mut control = Control([0; 32]);
    // SAFETY: live buffers; the control message has the size that CMSG_LEN says.
    unsafe {
        let mut vectors = [
            libc::iovec { iov_base: (&raw mut kind).cast(), iov_len: 1 },
            libc::iovec { iov_base: text.as_ptr() as *mut libc::c_void, iov_len: text.len() },
        ];
        let mut message: libc::msghdr = std::mem::zeroed();
        message.msg_iov = vectors.as_mut_ptr();
        message.msg_iovlen = 2;
        if let Some(fd) = fd {
            message.msg_control = control.0.as_mut_ptr().cast();
            message.msg_controllen = libc::CMSG_SPACE(4) as _;
            let header = libc::CMSG_FIRSTHDR(&message);
            (*header).cmsg_level = libc::SOL_SOCKET;
            (*header).cmsg_type = libc::SCM_RIGHTS;
            (*header).cmsg_len = libc::CMSG_LEN(4) as _;
            *(libc::CMSG_DATA(header) as *mut RawFd) = fd.as_raw_fd();
        }
        match libc::sendmsg(socket.as_raw_fd(), &message, libc::MSG_NOSIGNAL) {
            0.. => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// One packet, and a descriptor if it has one. 0 bytes: the other end is gone.
pub fn receive(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<(usize, Option<OwnedFd>)> {
    let mut control = Control([0; 32]);
    // SAFETY: live buffers; a descriptor that comes is new and ours.
    unsafe {
        let mut vector = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
        let mut message: libc::msghdr = std::mem::zeroed();
        message.msg_iov = &mut vector;
        message.msg_iovlen = 1;
        message.msg_control = control.0.as_mut_ptr().cast();
        message.msg_controllen = control.0.len();
        let count = loop {
            match libc::recvmsg(socket.as_raw_fd(), &mut message, libc::MSG_CMSG_CLOEXEC) {
                count if count >= 0 => break count as usize,
                _ if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => {}
                _ => return Err(io::Error::last_os_error()),
            }
        };
        let header = libc::CMSG_FIRSTHDR(&message);
        let fd = (!header.is_null() && (*header).cmsg_type == libc::SCM_RIGHTS)
            .then(|| OwnedFd::from_raw_fd(*(libc::CMSG_DATA(header) as *const RawFd)));
        Ok((count, fd))
    }
}

/// What the run's program sends in a packet of this kind as it begins. `None`: the run ended before that.
pub fn receive_from_program(socket: &OwnedFd, kind: u8) -> Result<Option<OwnedFd>> {
    let mut buffer = [0; MESSAGE_MAX];
    loop {
        match receive(socket.as_fd(), &mut buffer) {
            Ok((0, _)) => return Ok(None),
            Ok((_, Some(sent))) if buffer[0] == kind => return Ok(Some(sent)),
            Ok((_, None)) if buffer[0] == ENDED => return Ok(None),
            Ok(_) => {}
            Err(error) => return Err(Failure::new(format!("lost the connection to `terrace run`: {error}"))),
        }
    }
}
