//! Answers and messages, as every command prints them: by `out!`, `outln!` and `errln!`, never by `println!`, which panics when nobody
//! reads any more (`terrace ls | head -1`). The linter guards it (clippy::print_stdout).
//!
//!   out!  ──▶ standard output ──▶ reader has gone: the rest is dropped, the command ends as it would have ended
//!                              └▶ disk full, …: remembered; `finish` makes it the command's failure

use crate::failure::{Failure, code};
use std::fmt::Arguments;
use std::io::{ErrorKind, Write};
use std::sync::Mutex;

/// Why nothing can be written any more.
static BROKEN: Mutex<Option<std::io::Error>> = Mutex::new(None);

#[macro_export]
macro_rules! out {
    ($($part:tt)*) => { $crate::output::print(format_args!($($part)*)) };
}

#[macro_export]
macro_rules! outln {
    () => { $crate::output::print(format_args!("\n")) };
    ($($part:tt)*) => { $crate::output::print(format_args!("{}\n", format_args!($($part)*))) };
}

#[macro_export]
macro_rules! errln {
    ($($part:tt)*) => { $crate::output::tell(format_args!("{}\n", format_args!($($part)*))) };
}

fn broken() -> std::sync::MutexGuard<'static, Option<std::io::Error>> {
    BROKEN.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

pub fn print(text: Arguments<'_>) {
    let mut broken = broken();
    if broken.is_none() {
        *broken = std::io::stdout().lock().write_fmt(text).err();
    }
}

/// If nobody reads it, the exit code still says how it went.
pub fn tell(text: Arguments<'_>) {
    let _ = std::io::stderr().lock().write_fmt(text);
}

/// For what prints again and again: nobody reads it any more.
pub fn is_over() -> bool {
    let mut broken = broken();
    if broken.is_none() {
        *broken = std::io::stdout().lock().flush().err();
    }
    broken.is_some()
}

/// The command's exit code: a reader who has seen enough is no failure, an answer that is not whole is one.
pub fn finish(exit_code: i32) -> i32 {
    if !is_over() {
        return exit_code;
    }
    match broken().take() {
        Some(error) if error.kind() != ErrorKind::BrokenPipe => {
            Failure::new(format!("can't write the answer to standard output: {error}")).print();
            if exit_code == 0 { code::FAILED } else { exit_code }
        }
        _ => exit_code,
    }
}
