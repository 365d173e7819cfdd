//! What can go wrong, by what the caller does about it.

use std::fmt;
use std::io;

pub type Result<T> = std::result::Result<T, Error>;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The experiment or the command line is wrong: nothing was run.
    #[error("{message}")]
    Input { message: String, hint: String },
    /// Something on this machine refused: a file, a program, a connection.
    #[error("{message}")]
    Failed { message: String },
    /// What was read is not what was written.
    #[error("{0}")]
    Wrong(String),
    /// Somebody ended it.
    #[error("interrupted by signal {0}")]
    Stopped(i32),
}

impl Error {
    pub fn input(message: impl fmt::Display, hint: impl fmt::Display) -> Error {
        Error::Input { message: message.to_string(), hint: hint.to_string() }
    }
    pub fn failed(message: impl fmt::Display) -> Error {
        Error::Failed { message: message.to_string() }
    }
    pub fn io(doing: &str, what: impl fmt::Display, error: impl Into<io::Error>) -> Error {
        let error: io::Error = error.into();
        let hint = match error.raw_os_error() {
            Some(libc::ENOSPC) => "; the storage is full: make room, or write less",
            Some(libc::EINVAL) if doing.contains("directly") => {
                "; direct I/O needs sizes and offsets that are multiples of the block size"
            }
            _ if error.kind() == io::ErrorKind::UnexpectedEof => "; the file is shorter than what was written",
            _ => "",
        };
        Error::Failed { message: format!("can't {doing} {what}: {error}{hint}") }
    }
    pub fn hint(&self) -> Option<&str> {
        match self {
            Error::Input { hint, .. } if !hint.is_empty() => Some(hint),
            _ => None,
        }
    }
}
