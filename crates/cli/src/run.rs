//! `terrace run`: check, join or start the agent, run the program, flush, report.
//!
//!   settings ─▶ checks ─▶ agent ─▶ RunBegin ─▶ program ─▶ Flush(end of run) ─▶ report ─▶ exit code
//!
//! Invariant: whatever ends the program (success, failure, a signal, the walltime), the flush follows, and the exit code is the
//! program's own unless data could not be made durable, or its calls could not be served to the end.

use crate::agent_process::{self, ensure};
use crate::args::RunArgs;
use crate::child::{self, Ended, Start};
use crate::door::Door;
use crate::keeper::{Begun, Keeper};
use crate::launch::Launch;
use crate::object_storage::Staging;
use crate::private_mount::{self, PrivateMount};
use crate::program::{Kind, Program, Weight, reach};
use crate::progress::Progress;
use crate::report::page::{self, Phases};
use crate::report::timeline::{Moment, Timeline};
use crate::report::{Facts, NodeReport, Report};
use crate::scheduler::{self, Limit, TimeLeft};
use crate::signals::{Signals, wake};
use crate::step::Step;
use crate::supervision::{self, Supervised, Supervision};
use crate::{check, dry_run, elsewhere, hdf5};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use terrace_core::control::{Request, Response, Status};
use terrace_core::settings::Settings;
use terrace_core::size::show_bytes;
use terrace_tool::control_client::{Client, Moved, running};
use terrace_tool::errln;
use terrace_tool::failure::{Failure, Result, code, warn};
use terrace_tool::resolve::{self, Resolved};
use terrace_tool::settings_file::last_in_force;

/// A prefetch that takes longer goes on beside the program.
const PREFETCH_PATIENCE: Duration = Duration::from_secs(1);
const FLUSH_TRIES: u32 = 5;
/// Files of other nodes that take longer to count are told of at the run's end.
const ELSEWHERE_PATIENCE: Duration = Duration::from_secs(1);

pub fn run(args: &RunArgs) -> Result<i32> {
    let begun_at = (Instant::now(), SystemTime::now());
    let mut resolved = resolve::resolve_here(&args.settings)?;
    if !args.quiet {
        resolved.print_warnings();
    }
    if let Some(hdf5) = args.hdf5 {
        hdf5.set_policy(&mut resolved.settings);
    }
    if args.dry_run {
        check::root(&resolved.settings.root)?;
        return dry_run::run(&resolved);
    }
    if args.command.is_empty() {
        return Err(Failure::bad_input("no command was given", "write it after two dashes: terrace run -- CMD ARGS"));
    }
    let wanted_nodes = Launch::wanted(args)?;
    let environment = |name: &str| std::env::var(name).ok();
    if wanted_nodes.is_none() && !args.quiet {
        scheduler::warn_of_other_nodes(&args.command, &environment);
    }
    let deadline = deadline(args, begun_at)?;
    if let Some(report) = &args.report {
        check_report_place(report)?;
    }
    // Also beside an agent that has other tiers: a slip is to be named, and not to be without effect.
    resolved.settings.tiers.iter().try_for_each(check::capacity)?;
    check::settings(&resolved.settings, running(&resolved.settings)?.is_some())?;
    let driver = args.cfitsio.then(|| cfitsio_driver(&resolved.settings)).transpose()?;
    let mut staging = Staging::wanted(args, &resolved)?;
    let hdf5 = args.hdf5.map(|hdf5| hdf5::environment(hdf5, &resolved.settings)).transpose()?;
    resolved.settings.library = loadable(&resolved.settings, &resolved.settings.library, resolve::LIBRARY)?;
    let settings = &resolved.settings;
    let door = args.doors.door(Door::of(&resolved))?;
    if wanted_nodes.is_some() && matches!(door, Door::Supervise | Door::Mount) {
        return Err(Failure::bad_input(
            format!("--nodes reaches programs on other nodes by the preload library, and the door is `{door}`"),
            "leave the door out, or say --preload-only",
        ));
    }
    check_program(&args.command, door, args.quiet)?;
    check::library_version(&settings.library)?;
    let namespace = (door == Door::Mount).then(|| private_mount::namespace(&settings.root)).transpose()?;

    let signals = Signals::block().map_err(|error| Failure::new(format!("can't take signals: {error}")))?;
    let words: Vec<String> = args.command.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let learning = match door {
        Door::Preload | Door::Mount => None,
        Door::Both | Door::Supervise => Some(supervision::learn(settings)),
    };
    let (keeper, begun) = Keeper::begin(settings, &words, args.quiet)?;
    let step = Step::of(settings, &environment)?;
    if let Some(step) = &step {
        step.sweep();
        step.begin(&begun)?;
    }
    let mut time = TimeLeft::new(args.kill_wait.or_else(|| scheduler::kill_wait(&environment)));
    let mut launch = match wanted_nodes {
        Some(wanted) => Some(Launch::begin(wanted, args, settings, &signals)?),
        None => None,
    };
    let is_page = args.report.as_ref().is_some_and(|file| page::is_page(file));
    let timeline = is_page.then(|| Timeline::begin(settings, &begun.before, begun_at.0)).flatten();
    prefetch(settings);
    if let Some(words) = elsewhere::above_in_words(settings).filter(|_| !args.quiet) {
        warn(words);
    }
    let on_others = look_elsewhere(settings);
    let told = tell_elsewhere(&on_others, ELSEWHERE_PATIENCE, args.quiet);

    let brought = staging.as_mut().map(|staging| staging.bring(&begun, deadline, settings, &signals, &mut time));
    let not_brought = brought.transpose()?.flatten();
    // What is there then is not the program's result.
    staging = staging.filter(|_| not_brought.is_none());

    let supervision = learning
        .filter(|_| not_brought.is_none())
        .map(|learning| Supervision::start(settings, learning, args.quiet))
        .transpose()?;
    let mount = namespace.map(|namespace| PrivateMount::start(settings, namespace, args.quiet)).transpose()?;
    let start = Start {
        command: &args.command,
        library: matches!(door, Door::Both | Door::Preload).then_some(settings.library.as_path()),
        driver: driver.as_deref(),
        environment: hdf5.unwrap_or_default(),
        supervision: supervision.as_ref(),
        mount: mount.as_ref(),
        index: &begun.index,
        deadline,
        agent_pid: begun.agent_pid,
        ending: &|| launch.iter().for_each(Launch::flush_now),
    };
    let mut phases = Phases { program_from_s: begun_at.0.elapsed().as_secs_f64(), ..Phases::default() };
    let ran = match not_brought {
        Some(ended) => Ok(ended),
        None => {
            staging.iter_mut().for_each(|staging| staging.begin_sending(&signals));
            child::run(&start, &signals, &mut time)
        }
    };
    phases.program_to_s = begun_at.0.elapsed().as_secs_f64();
    // Whatever became of the program, the nodes begin to flush.
    launch.iter_mut().for_each(Launch::say_end);
    let ended = match ran {
        Ok(ended) => ended,
        Err(failure) => {
            launch.map(|launch| launch.end(settings, &signals, time.end()));
            return Err(failure);
        }
    };
    // Before the agent's connection ends: what still runs needs the agent.
    let supervised = match mount {
        Some(mount) => mount.end(),
        None => supervision.map(Supervision::end).unwrap_or_default(),
    };

    let unbrought = staging.as_mut().and_then(|staging| staging.end_bringing(ended.code == 0));
    let flush_begun = Instant::now();
    let flushed = flush_attended(settings, &signals, args.quiet, &mut time);
    let others = launch.map(|launch| launch.end(settings, &signals, time.end()));
    let flush_wait = flush_begun.elapsed();
    phases.flushed_s = begun_at.0.elapsed().as_secs_f64();
    let moments = timeline.map(Timeline::end).unwrap_or_default();
    let unsent = staging.and_then(|mut staging| staging.send(ended.code == 0, &begun, &signals, &mut time));
    let mut report = report_of(
        &resolved,
        door,
        &words,
        &begun,
        &keeper,
        &ended,
        &flushed,
        flush_wait,
        begun_at,
        args.report.is_some(),
    );
    let own = |before: &Status| {
        let after = Client::connect(settings).and_then(|mut client| client.status()).ok();
        let tag = std::fs::read_to_string(settings.node_file()).unwrap_or_default();
        let host = terrace_agent::node::host();
        NodeReport::of(tag.trim(), &host, before, after.as_ref(), &flushed, keeper.restarts())
    };
    // Of several tasks, one tells.
    let mut tells = true;
    match (others, &step) {
        (Some(others), _) => report.nodes = std::iter::once(own(&begun.before)).chain(others).collect(),
        (None, Some(step)) => {
            let nodes = step.end(|before| own(before).ran(ended.elapsed.as_secs_f64(), ended.code))?;
            tells = nodes.is_some();
            report.nodes = nodes.unwrap_or_default();
        }
        (None, None) => {}
    }
    if supervised.left_behind && !args.quiet {
        warn(
            "some of the program's processes still run: their files stay in the tiers and are flushed when they have ended",
        );
    }
    if !told {
        tell_elsewhere(&on_others, Duration::ZERO, args.quiet);
    }
    end_attended(keeper, &signals, &mut time);
    if let Some(hdf5) = args.hdf5 {
        hdf5.clean(settings);
    }
    finish(
        args,
        settings,
        &ended,
        supervised,
        Kept { flushed, unsent, unbrought },
        report,
        tells.then_some((phases, moments)),
    )
}

/// What became of the run's files: in the root, and in object stores.
struct Kept {
    flushed: Result<Moved>,
    unsent: Option<Failure>,
    unbrought: Option<Failure>,
}

fn finish(
    args: &RunArgs,
    settings: &Settings,
    ended: &Ended,
    supervised: Supervised,
    kept: Kept,
    mut report: Report,
    told: Option<(Phases, Vec<Moment>)>,
) -> Result<i32> {
    let Kept { flushed, unsent, unbrought } = kept;
    let tells = told.is_some();
    let (exit_code, failure) = match &flushed {
        Ok(moved) if moved.failures.is_empty() && supervised.is_lost && ended.code == 0 => (code::NOT_SERVED, None),
        Ok(moved) if moved.failures.is_empty() => (ended.code, None),
        Ok(moved) => (code::NOT_DURABLE, Some(not_durable(moved, settings))),
        Err(failure) => {
            let hint =
                format!("the data is safe in its tier; run `terrace recover --root {}`", settings.root.display());
            let failure =
                Failure::new(format!("not everything is known to be durable: {}", failure.message)).hint(hint);
            (code::NOT_DURABLE, Some(failure.code(code::NOT_DURABLE)))
        }
    };
    // Tasks of a step say of their own node what was left.
    let is_step = report.nodes.iter().any(|node| node.tasks > 0);
    let others = report.nodes.get(1..).filter(|_| !is_step).unwrap_or_default();
    let elsewhere = left_elsewhere(others, settings);
    let exit_code =
        if elsewhere.is_some() || unsent.is_some() || unbrought.is_some() { code::NOT_DURABLE } else { exit_code };
    report.exit_code = exit_code;
    if !args.quiet {
        if tells {
            // In one piece: jobs may share a terminal, or a file.
            let text = report.to_string();
            terrace_tool::output::tell(format_args!("{text}"));
        }
        if let Ok(moved) = &flushed {
            for path in &moved.open_files {
                warn(format!("{} was still open for writing: what had been written is flushed", path.display()));
            }
        }
        if ended.out_of_time {
            warn("the program was ended because of the walltime");
        }
    }
    // They were told when they came.
    report.warnings.extend(supervised.warnings);
    if let (Some(file), Some((phases, moments))) = (args.report.as_ref().filter(|file| page::is_page(file)), &told) {
        page::write(file, &report, *phases, moments)?;
    } else if let Some(file) = args.report.as_ref().filter(|_| tells) {
        let text = serde_json::to_vec_pretty(&report).expect("a report is plain data");
        std::fs::write(file, text).map_err(|error| Failure::io("write the report", file, error))?;
    }
    for failure in failure.into_iter().chain(elsewhere).chain(unbrought).chain(unsent) {
        failure.print();
    }
    Ok(exit_code)
}

pub fn not_durable(moved: &Moved, settings: &Settings) -> Failure {
    let mut text = format!("{} files could not be made durable:", moved.failures.len());
    for failure in moved.failures.iter().take(20) {
        text.push_str(&format!("\n  {}: {}", failure.path.display(), failure.reason));
    }
    if moved.failures.len() > 20 {
        text.push_str(&format!("\n  … and {} more", moved.failures.len() - 20));
    }
    Failure::new(text).code(code::NOT_DURABLE).hint(format!(
        "they are safe in their tier; remove the cause (free space in {0}, permissions), then run `terrace recover --root {0}`",
        settings.root.display()
    ))
}

/// What the other nodes of a launch have not made durable, by node.
fn left_elsewhere(nodes: &[NodeReport], settings: &Settings) -> Option<Failure> {
    let mut lines = String::new();
    for node in nodes.iter().filter(|node| !node.is_durable()) {
        let why = node.trouble.clone().unwrap_or_else(|| {
            let failures = node.final_flush.iter().flat_map(|flush| &flush.failures);
            let all: Vec<String> =
                failures.take(20).map(|failure| format!("{}: {}", failure.path.display(), failure.reason)).collect();
            all.join("; ")
        });
        let left = if node.left_files > 0 { format!(" ({} files are there)", node.left_files) } else { String::new() };
        lines.push_str(&format!("\n  on {}: {why}{left}", node.host));
    }
    (!lines.is_empty()).then(|| {
        Failure::new(format!("not everything on the other nodes is known to be durable:{lines}"))
            .hint(format!(
                "what is left is safe in those nodes' tiers while they are up; run `terrace recover --root {}` on each of them",
                settings.root.display()
            ))
            .code(code::NOT_DURABLE)
    })
}

/// When the program must end, to leave time for the flush.
fn deadline(args: &RunArgs, (now, _): (Instant, SystemTime)) -> Result<Option<Instant>> {
    let left = match args.walltime {
        Some(given) => given,
        None => match scheduler::limit(&|name| std::env::var(name).ok()) {
            Limit::Left(left) => left,
            Limit::NoJob | Limit::None => return Ok(None),
            Limit::Unknown => {
                if !args.quiet {
                    warn(
                        "the batch system does not say when this job's time is up: without --walltime the program is not ended in \
                         time for the flush",
                    );
                }
                return Ok(None);
            }
        },
    };
    if left <= args.walltime_margin {
        return Err(Failure::bad_input(
            format!(
                "the walltime ({} s) leaves no time before its margin ({} s)",
                left.as_secs(),
                args.walltime_margin.as_secs()
            ),
            "raise --walltime, or lower --walltime-margin",
        ));
    }
    Ok(Some(now + (left - args.walltime_margin)))
}

/// Refuses by name what could not be served; warns of what will not be.
fn check_program(command: &[OsString], door: Door, quiet: bool) -> Result<()> {
    let program = Program::of_command(command);
    let reach = reach(&program, door, rustix::process::geteuid().is_root());
    let Some(refusal) = reach.refusal() else {
        for limit in reach.limits.iter().filter(|limit| limit.weight == Weight::Warning && !quiet) {
            warn(format!("{program}: {}; {}", limit.what, limit.advice));
        }
        return Ok(());
    };
    let failure = match program.last().kind {
        Kind::NotFound => Failure::new(program.to_string()).code(code::NOT_FOUND),
        Kind::NotExecutable(_) => Failure::new(program.to_string()).code(code::NOT_EXECUTABLE),
        _ => Failure::new(format!("{program}: {}", refusal.what)).code(code::BAD_INPUT),
    };
    Err(failure.hint(&refusal.advice))
}

fn check_report_place(file: &Path) -> Result<()> {
    let directory = match file.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    if page::is_page(file) {
        page::check()?;
    }
    match directory.is_dir() && !file.is_dir() {
        true => Ok(()),
        false => Err(Failure::bad_input(
            format!("the report {} can't be written there", file.display()),
            "give a file in an existing directory to --report",
        )),
    }
}

/// The CFITSIO driver lies beside the preload library. It is not preloaded unasked: a command is often a script, so that what
/// its programs link is not known beforehand, and one library more costs every one of them its loading.
fn cfitsio_driver(settings: &Settings) -> Result<PathBuf> {
    const DRIVER: &str = "libterrace_cfitsio.so";
    let driver = settings.library.with_file_name(DRIVER);
    if !driver.exists() {
        return Err(Failure::bad_input(
            format!("the CFITSIO driver {} is not there", driver.display()),
            "`make build` makes it beside the preload library; or run without --cfitsio",
        ));
    }
    loadable(settings, &driver, DRIVER)
}

/// A library by a path that LD_PRELOAD can hold: it separates by spaces and colons.
pub fn loadable(settings: &Settings, library: &Path, name: &str) -> Result<PathBuf> {
    use std::os::unix::ffi::OsStrExt;
    let is_plain =
        |path: &Path| !path.as_os_str().as_bytes().iter().any(|byte| matches!(byte, b' ' | b':' | b'\n' | b'\t'));
    if is_plain(library) {
        return Ok(library.to_owned());
    }
    let link = settings.runtime.join(name);
    if !is_plain(&link) {
        return Err(Failure::bad_input(
            format!("the preload library {} has a space or a colon in its path", library.display()),
            "name it by another path with --library",
        ));
    }
    agent_process::make_runtime(settings)?;
    if std::fs::read_link(&link).is_ok_and(|target| target == library) {
        return Ok(link);
    }
    let _ = std::fs::remove_file(&link);
    std::os::unix::fs::symlink(library, &link).map_err(|error| Failure::io("make the link", &link, error))?;
    Ok(link)
}

/// Brings up what policy says: small sets before the program starts, large ones beside it.
fn prefetch(settings: &Settings) {
    if settings.policy.prefetch.is_empty() {
        return;
    }
    let (done, wait) = mpsc::channel();
    let settings = settings.clone();
    std::thread::spawn(move || {
        let asked = Client::connect(&settings)
            .and_then(|mut client| client.move_files(&Request::Prefetch { paths: vec![] }, |_| {}));
        let _ = done.send(asked);
    });
    if let Ok(Err(error)) = wait.recv_timeout(PREFETCH_PATIENCE) {
        warn(format!("prefetching could not be done: {error}"));
    }
}

/// Files that are in other nodes' tiers are counted beside the run, where there are other nodes.
fn look_elsewhere(settings: &Settings) -> mpsc::Receiver<Option<String>> {
    let (done, wait) = mpsc::channel();
    if elsewhere::nodes(settings).is_empty() {
        return wait;
    }
    let settings = settings.clone();
    std::thread::spawn(move || done.send(elsewhere::in_words(&settings)));
    wait
}

/// True: all is known, and was said.
fn tell_elsewhere(look: &mpsc::Receiver<Option<String>>, patience: Duration, quiet: bool) -> bool {
    match look.recv_timeout(patience) {
        Ok(Some(words)) if !quiet => warn(words),
        Ok(_) => {}
        Err(mpsc::RecvTimeoutError::Disconnected) => {}
        Err(mpsc::RecvTimeoutError::Timeout) => return false,
    }
    true
}

/// The final flush, while signals are still taken: the first asks for patience, a second from the keyboard stops waiting.
pub fn flush_attended(settings: &Settings, signals: &Signals, quiet: bool, time: &mut TimeLeft) -> Result<Moved> {
    let flushing = settings.clone();
    let attended = attended(signals, time, move || {
        let progress = Progress::new("flushing", quiet);
        flush(&flushing, |response| progress.show(response))
    });
    match attended {
        Attended::Done(flushed) => flushed,
        Attended::Stopped => Err(Failure::new("you stopped waiting for the flush; the agent goes on with it")),
        Attended::TimeUp => {
            let left = Client::connect(settings).and_then(|mut client| client.status()).ok();
            let left = left.map_or_else(String::new, |status| {
                format!(": {} files ({}) are left", status.unflushed_files, show_bytes(status.unflushed_bytes))
            });
            Err(Failure::new(format!("time was up before the flush was{left}")))
        }
    }
}

/// Waits, in the same way, until the agent has left and the root is clean, if no other run needs it.
pub fn end_attended(keeper: Keeper, signals: &Signals, time: &mut TimeLeft) {
    attended(signals, time, || keeper.end());
}

enum Attended<Done> {
    Done(Done),
    /// The user waits no longer.
    Stopped,
    TimeUp,
}

fn attended<Done: Send + 'static>(
    signals: &Signals,
    time: &mut TimeLeft,
    work: impl FnOnce() -> Done + Send + 'static,
) -> Attended<Done> {
    let (done, wait) = mpsc::channel();
    std::thread::spawn(move || {
        let _ = done.send(work());
        wake();
    });
    let mut interrupts = 0;
    loop {
        if let Ok(done) = wait.try_recv() {
            return Attended::Done(done);
        }
        if time.is_up() {
            return Attended::TimeUp;
        }
        let patience =
            time.end().map_or(Duration::from_secs(3600), |end| end.saturating_duration_since(Instant::now()));
        let taken = signals.next(patience);
        match taken.map(|taken| taken.signal) {
            Some(libc::SIGTSTP) => crate::signals::stop_self(),
            Some(signal @ (libc::SIGINT | libc::SIGTERM | libc::SIGHUP | libc::SIGQUIT)) => {
                if signal == libc::SIGTERM {
                    time.begin();
                }
                interrupts += 1;
                if interrupts == 1 {
                    errln!(
                        "terrace: the program has ended; its files are still being flushed (interrupt again to stop waiting)"
                    );
                } else if signal == libc::SIGINT {
                    return Attended::Stopped;
                }
            }
            _ => {}
        }
    }
}

/// The flush at a run's end, by as many agents as it takes.
pub fn flush(settings: &Settings, mut progress: impl FnMut(&Response)) -> Result<Moved> {
    let request = Request::Flush { paths: vec![], all: false, end_of_run: true };
    let mut last = None;
    for attempt in 0..FLUSH_TRIES {
        let in_force = last_in_force(settings);
        let mut connection = ensure(&in_force, attempt > 0)?;
        match connection.move_files(&request, &mut progress) {
            Ok(moved) => return Ok(moved),
            // The agent died: the next one goes on where it was.
            Err(error) => last = Some(terrace_tool::control_client::lost(error)),
        }
    }
    Err(last.expect("there was at least one try"))
}

#[allow(clippy::too_many_arguments)]
fn report_of(
    resolved: &Resolved,
    door: Door,
    words: &[String],
    begun: &Begun,
    keeper: &Keeper,
    ended: &Ended,
    flushed: &Result<Moved>,
    flush_wait: Duration,
    (start, wall_start): (Instant, SystemTime),
    measures: bool,
) -> Report {
    let after = Client::connect(&resolved.settings).and_then(|mut client| client.status()).ok();
    Report::new(Facts {
        resolved,
        door,
        command: words,
        started_unix_s: wall_start.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64(),
        program_exit_code: ended.code,
        program_s: ended.elapsed.as_secs_f64(),
        flush_wait_s: flush_wait.as_secs_f64(),
        total_s: start.elapsed().as_secs_f64(),
        agent_restarts: keeper.restarts(),
        before: &begun.before,
        after: after.as_ref(),
        flushed: flushed.as_ref().ok(),
        measures,
    })
}
