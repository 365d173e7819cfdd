//! What ends queries from outside while they are computed: Ctrl-C, and the end of the program that asked.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;
use terrace_analysis::{End, Engine};
use terrace_tool::failure::Failure;

/// As a shell tells that a program was interrupted.
const INTERRUPTED: i32 = 130;
/// For queries to be let go of, and to be said to have ended.
const PATIENCE: Duration = Duration::from_millis(500);

/// Who asks, for the list of queries: the user, and the program that started this one.
pub fn who() -> String {
    let user = std::env::var("USER").unwrap_or_else(|_| format!("uid {}", rustix::process::getuid().as_raw()));
    let parent = rustix::process::getppid().map(|parent| parent.as_raw_nonzero().get());
    let name = parent.and_then(|parent| std::fs::read_to_string(format!("/proc/{parent}/comm")).ok());
    match (name, parent) {
        (Some(name), Some(parent)) => format!("{user}, {} ({parent})", name.trim()),
        _ => user,
    }
}

static IS_INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// A failure as it is told to the shell: one that Ctrl-C has caused has a code of its own.
pub fn as_told(failure: Failure) -> Failure {
    if IS_INTERRUPTED.load(Relaxed) { failure.code(INTERRUPTED) } else { failure }
}

/// Ctrl-C ends the query that runs; where none does, or it is pressed again, this program.
pub fn ends_queries(engine: &Engine) -> Result<(), Failure> {
    let failed = |error: std::io::Error| Failure::new(format!("can't take signals: {error}"));
    // On a runtime of its own: all of the engine's threads may be computing.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
    let mut interrupts = {
        let _context = runtime.enter();
        tokio::signal::unix::signal(tokio::signal::unix::SignalKind::interrupt()).map_err(failed)?
    };
    let queries = Arc::downgrade(&engine.queries().objects().queries);
    let taken = move || {
        runtime.block_on(async {
            while interrupts.recv().await.is_some() {
                IS_INTERRUPTED.store(true, Relaxed);
                let ended = queries.upgrade().map_or(0, |queries| queries.end_all(End::Cancelled));
                if ended == 0 {
                    std::process::exit(INTERRUPTED);
                }
                // Pressed again at once: it is meant.
                tokio::select! {
                    more = interrupts.recv() => if more.is_some() { std::process::exit(INTERRUPTED) },
                    () = tokio::time::sleep(PATIENCE) => {}
                }
            }
        });
    };
    std::thread::Builder::new().name("interrupt".into()).spawn(taken).map_err(failed)?;
    Ok(())
}

/// Whoever asks by the standard input and is gone leaves no query behind.
pub fn ends_with_the_asker(engine: &Engine) {
    use rustix::event::{PollFd, PollFlags, poll};
    let queries = Arc::downgrade(&engine.queries().objects().queries);
    let look = move || {
        let input = std::io::stdin();
        // Only that the other end is closed is told without being asked for.
        let mut input = [PollFd::new(&input, PollFlags::empty())];
        while poll(&mut input, None) == Err(rustix::io::Errno::INTR) {}
        if let Some(queries) = queries.upgrade()
            && queries.end_all(End::Left) > 0
        {
            std::thread::sleep(PATIENCE);
            std::process::exit(0);
        }
    };
    // Without it a query goes on until it has rows to tell.
    let _ = std::thread::Builder::new().name("asker".into()).spawn(look);
}
