//! Why a request is not answered, as its sender is told. What the program itself can't do is a `terrace_tool::failure::Failure`.

use crate::reply::{Reply, json};
use axum::http::StatusCode;
use terrace_client::{Kind, ObjectError};

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
