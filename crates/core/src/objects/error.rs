//! What can go wrong with an object, as a kind that the caller acts on and a sentence that tells what and on what.

use serde::{Deserialize, Serialize};

/// What the caller does next follows from the kind. The numbers are part of the C interface and of the wire.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, Serialize, Deserialize)]
#[repr(i32)]
pub enum Kind {
    /// There is no object of this name.
    NotFound = 1,
    /// The name is taken.
    Exists = 2,
    /// Another kind of object than the call needs, or one that was opened for reading only.
    WrongKind = 3,
    /// A type, rank, count or option that makes no sense.
    Invalid = 4,
    /// A region that does not lie inside the array, or a read past a file's end.
    OutOfBounds = 5,
    /// The last tier is full.
    NoSpace = 6,
    /// A lock or an object was not to be had in the time given.
    Busy = 7,
    /// No agent answers.
    NoAgent = 8,
    /// The token is wrong, or the files belong to another user.
    Denied = 9,
    /// The peer does not speak this language, or sent something broken.
    Protocol = 10,
    /// The operating system said no.
    System = 11,
    /// The object's files are damaged.
    Damaged = 12,
}

impl Kind {
    pub fn of(number: i32) -> Option<Kind> {
        use Kind::*;
        let all = [
            NotFound,
            Exists,
            WrongKind,
            Invalid,
            OutOfBounds,
            NoSpace,
            Busy,
            NoAgent,
            Denied,
            Protocol,
            System,
            Damaged,
        ];
        all.into_iter().find(|kind| *kind as i32 == number)
    }
}

#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error, Serialize, Deserialize)]
#[error("{message}")]
pub struct ObjectError {
    pub kind: Kind,
    /// What failed and on what.
    pub message: String,
    /// What to do about it, where that is known.
    pub hint: Option<String>,
}

impl crate::refusal::Explained for ObjectError {
    fn hint(&self) -> Option<String> {
        self.hint.clone()
    }
    fn is_bad_input(&self) -> bool {
        matches!(self.kind, Kind::Invalid | Kind::OutOfBounds | Kind::WrongKind)
    }
}

pub type Result<T> = std::result::Result<T, ObjectError>;

impl ObjectError {
    pub fn new(kind: Kind, message: impl Into<String>) -> ObjectError {
        ObjectError { kind, message: message.into(), hint: None }
    }
    pub fn invalid(message: impl Into<String>) -> ObjectError {
        ObjectError::new(Kind::Invalid, message)
    }
    pub fn hint(self, hint: impl Into<String>) -> ObjectError {
        ObjectError { hint: Some(hint.into()), ..self }
    }
    /// The errno that comes nearest, for interfaces that have nothing better.
    pub fn errno(&self) -> i32 {
        match self.kind {
            Kind::NotFound => 2,
            Kind::Exists => 17,
            Kind::WrongKind => 20,
            Kind::Invalid | Kind::OutOfBounds => 22,
            Kind::NoSpace => 28,
            Kind::Busy => 16,
            Kind::NoAgent => 111,
            Kind::Denied => 13,
            Kind::Protocol => 71,
            Kind::System | Kind::Damaged => 5,
        }
    }
}
