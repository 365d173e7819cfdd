//! What could not be done, as it is told: to who started the program, and to who has sent a request.

use crate::reply::{Reply, json};
use axum::http::StatusCode;
use terrace_client::{Kind, ObjectError};

#[derive(Debug)]
pub struct Failure {
    pub message: String,
    pub hint: Option<String>,
    pub code: i32,
}

impl Failure {
    pub fn new(message: impl Into<String>) -> Failure {
        Failure { message: message.into(), hint: None, code: 1 }
    }
    pub fn bad_input(message: impl Into<String>) -> Failure {
        Failure { code: 2, ..Failure::new(message) }
    }
    pub fn hint(self, hint: impl Into<String>) -> Failure {
        Failure { hint: Some(hint.into()), ..self }
    }
    pub fn print(&self) {
        eprintln!("terrace-web: error: {}", self.message);
        if let Some(hint) = &self.hint {
            eprintln!("terrace-web: hint: {hint}");
        }
    }
}

impl From<ObjectError> for Failure {
    fn from(error: ObjectError) -> Failure {
        Failure { message: error.message, hint: error.hint, code: 1 }
    }
}

/// Why a request is not answered with what it asked for.
#[derive(Debug)]
pub struct Refusal {
    pub status: StatusCode,
    pub message: String,
    pub hint: Option<String>,
}

pub type Answer<T> = Result<T, Refusal>;

impl Refusal {
    pub fn new(status: StatusCode, message: impl Into<String>) -> Refusal {
        Refusal { status, message: message.into(), hint: None }
    }
    pub fn not_found(message: impl Into<String>) -> Refusal {
        Refusal::new(StatusCode::NOT_FOUND, message)
    }
    pub fn bad(message: impl Into<String>) -> Refusal {
        Refusal::new(StatusCode::BAD_REQUEST, message)
    }
    pub fn reply(&self) -> Reply {
        let body = serde_json::json!({"error": self.message, "hint": self.hint});
        Reply { status: self.status, ..json(&body) }
    }
}

impl From<ObjectError> for Refusal {
    fn from(error: ObjectError) -> Refusal {
        let status = match error.kind {
            Kind::NotFound | Kind::OutOfBounds => StatusCode::NOT_FOUND,
            Kind::WrongKind | Kind::Invalid => StatusCode::BAD_REQUEST,
            Kind::Denied => StatusCode::FORBIDDEN,
            Kind::NoAgent | Kind::Busy => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Refusal { status, message: error.message, hint: error.hint }
    }
}
