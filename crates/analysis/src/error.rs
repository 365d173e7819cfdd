//! What can go wrong with a query: a sentence, and what to do about it.

use datafusion::error::DataFusionError;
use terrace_client::{Kind, ObjectError};

pub type Result<T> = std::result::Result<T, Error>;

#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    pub kind: Kind,
    pub message: String,
    pub hint: Option<String>,
}

impl terrace_core::refusal::Explained for Error {
    fn hint(&self) -> Option<String> {
        self.hint.clone()
    }
}

impl Error {
    pub fn new(kind: Kind, message: impl Into<String>) -> Error {
        Error { kind, message: message.into(), hint: None }
    }
    pub fn invalid(message: impl Into<String>) -> Error {
        Error::new(Kind::Invalid, message)
    }
    pub fn hint(self, hint: impl Into<String>) -> Error {
        Error { hint: Some(hint.into()), ..self }
    }
}

impl From<ObjectError> for Error {
    fn from(error: ObjectError) -> Error {
        Error { kind: error.kind, message: error.message, hint: error.hint }
    }
}

impl From<arrow::error::ArrowError> for Error {
    fn from(error: arrow::error::ArrowError) -> Error {
        DataFusionError::from(error).into()
    }
}

impl From<DataFusionError> for Error {
    fn from(error: DataFusionError) -> Error {
        match error.find_root() {
            DataFusionError::External(inner) => {
                if let Some(own) = inner.downcast_ref::<Error>() {
                    return Error { kind: own.kind, message: own.message.clone(), hint: own.hint.clone() };
                }
                Error::new(Kind::System, inner.to_string())
            }
            DataFusionError::ResourcesExhausted(message) => {
                let first = message.lines().next().unwrap_or_default();
                Error::new(Kind::NoSpace, format!("the query needs more memory than it may have: {first}"))
                    .hint("give it more with --memory, ask for less at once, or let it spill with --spill DIR")
            }
            DataFusionError::Internal(message) => internal(message),
            root => {
                let message = root.strip_backtrace();
                let message = message.strip_prefix("Error during planning: ").unwrap_or(&message);
                Error::invalid(message.to_owned())
            }
        }
    }
}

/// The engine's word for what it holds to be its own fault, with a request to report it to its makers. A function that was given what it
/// does not take is told so, too.
fn internal(message: &str) -> Error {
    let message = message.split("\n\nbacktrace:").next().unwrap_or_default();
    let message = message.split(".\nThis issue was likely caused by a bug").next().unwrap_or_default();
    let function =
        message.strip_prefix("Function '").and_then(|rest| rest.split_once("' failed to match any signature"));
    match function {
        Some((function, why)) => {
            // `Expected …, but received T` is said once for each type that it takes.
            let given =
                why.rsplit_once("received ").map(|(_, given)| given.split([',', '(']).next().unwrap_or(given).trim());
            let given = given.filter(|given| given.starts_with(|first: char| first.is_ascii_uppercase()));
            let given =
                given.map_or_else(|| "what it was given".to_owned(), |given| format!("an argument of type {given}"));
            Error::invalid(format!("the function `{function}` does not take {given}"))
        }
        None => Error::new(Kind::System, format!("the query engine has failed at this query: {message}"))
            .hint("say it in another way, and please report the query"),
    }
}

impl From<Error> for DataFusionError {
    fn from(error: Error) -> DataFusionError {
        DataFusionError::External(Box::new(error))
    }
}
