//! What can go wrong with a query: a sentence, and what to do about it.

use crate::nodes::of_text;
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
                let text = inner.to_string();
                of_text(&text).unwrap_or_else(|| Error::new(Kind::System, text))
            }
            DataFusionError::ResourcesExhausted(message) => {
                // The pool's own word stands below those who hold most.
                let of_pool = message.lines().find_map(|line| line.strip_prefix("Error: "));
                let told = of_pool.or(message.lines().next()).unwrap_or_default();
                Error::new(Kind::NoSpace, format!("the query needs more memory than it may have: {told}"))
                    .hint("give it more with --memory, ask for less at once, or, if it does not yet, let it spill with --spill DIR")
            }
            DataFusionError::Internal(message) => internal(message),
            root => {
                let message = root.strip_backtrace();
                let message = message.strip_prefix("Error during planning: ").unwrap_or(&message);
                not_taken(message).unwrap_or_else(|| Error::invalid(message.to_owned()))
            }
        }
    }
}

/// The engine's word for what it holds to be its own fault, without its request to report it to its makers.
fn internal(message: &str) -> Error {
    if let Some(told) = not_taken(message) {
        return told;
    }
    let message = message.split(".\nThis issue was likely caused by a bug").next().unwrap_or_default();
    Error::new(Kind::System, format!("the query engine has failed at this query: {message}"))
        .hint("say it in another way, and please report the query")
}

/// A function that does not take what it was given. The engine tells of all that it would take, and of some of its functions that this is
/// a fault of its own.
fn not_taken(message: &str) -> Option<Error> {
    if let Some((_, why)) = message.split_once("user-defined coercion failed with: External error: ")
        && !message.contains("failed to match any signature")
    {
        let why = why.split(". No function matches").next().unwrap_or(why);
        let (what, hint) = why.split_once("\nhint: ").map_or((why, None), |(what, hint)| (what, Some(hint)));
        let told = Error::invalid(what.trim());
        return Some(if let Some(hint) = hint { told.hint(hint.trim()) } else { told });
    }
    let function = message.split_once("Function '")?.1.split_once("' failed to match any signature")?.0;
    let given =
        message.split_once("argument types '").and_then(|(_, rest)| rest.split_once("'. ")).map(|(call, _)| call);
    let given = given.map(|call| {
        call.replace("FixedSizeList(2 x non-null Float32)", "complex64")
            .replace("FixedSizeList(2 x non-null Float64)", "complex128")
    });
    Some(Error::invalid(match given {
        Some(call) => format!("the function `{function}` does not take what it is given: {call}"),
        None => format!("the function `{function}` does not take what it is given"),
    }))
}

impl From<Error> for DataFusionError {
    fn from(error: Error) -> DataFusionError {
        DataFusionError::External(Box::new(error))
    }
}
