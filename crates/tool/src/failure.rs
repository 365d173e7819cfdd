//! How a command ends badly: a sentence, a hint, an exit code.

use std::fmt;
use std::io::Write;
use std::path::Path;
use terrace_core::refusal::Explained;

/// Exit codes besides the program's own.
pub mod code {
    /// Something that was asked for could not be done.
    pub const FAILED: i32 = 1;
    /// Bad input: nothing was done.
    pub const BAD_INPUT: i32 = 2;
    /// The supervisor was lost, and with it calls of programs that nevertheless ended well (EX_SOFTWARE).
    pub const NOT_SERVED: i32 = 70;
    /// Data could not be made durable (EX_IOERR).
    pub const NOT_DURABLE: i32 = 74;
    /// The command was found and can't be executed; it was not found (as in env(1)).
    pub const NOT_EXECUTABLE: i32 = 126;
    pub const NOT_FOUND: i32 = 127;
}

#[derive(Debug)]
pub struct Failure {
    pub message: String,
    pub hint: Option<String>,
    pub code: i32,
}

pub type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    pub fn new(message: impl Into<String>) -> Failure {
        Failure { message: message.into(), hint: None, code: code::FAILED }
    }
    pub fn bad_input(message: impl Into<String>, hint: impl Into<String>) -> Failure {
        Failure { message: message.into(), hint: Some(hint.into()), code: code::BAD_INPUT }
    }
    /// Bad input whose message says all that there is to say.
    pub fn invalid(message: impl Into<String>) -> Failure {
        Failure::new(message).code(code::BAD_INPUT)
    }
    pub fn io(doing: &str, path: &Path, error: impl fmt::Display) -> Failure {
        Failure::new(format!("can't {doing} {}: {error}", path.display()))
    }
    pub fn hint(mut self, hint: impl Into<String>) -> Failure {
        self.hint = Some(hint.into());
        self
    }
    pub fn code(mut self, code: i32) -> Failure {
        self.code = code;
        self
    }
    pub fn print(&self) {
        self.print_as("terrace: ");
    }
    /// `prefix`: the program that speaks, where it has a name of its own.
    pub fn print_as(&self, prefix: &str) {
        let mut text = format!("{prefix}error: {}\n", self.message);
        if let Some(hint) = &self.hint {
            text.push_str(&format!("{prefix}hint: {hint}\n"));
        }
        // If nobody takes it, the exit code still says it.
        let _ = std::io::stderr().write_all(text.as_bytes());
    }
}

/// Every error of ours that says what to do about it.
impl<E: Explained> From<E> for Failure {
    fn from(error: E) -> Failure {
        let code = if error.is_bad_input() { code::BAD_INPUT } else { code::FAILED };
        Failure { message: error.to_string(), hint: error.hint(), code }
    }
}

/// Something the user should know that stops nothing.
pub fn warn(text: impl fmt::Display) {
    let _ = writeln!(std::io::stderr(), "terrace: warning: {text}");
}
