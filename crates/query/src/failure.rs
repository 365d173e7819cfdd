//! What could not be done, as it is told.

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
        eprintln!("error: {}", self.message);
        if let Some(hint) = &self.hint {
            eprintln!("hint: {hint}");
        }
    }
}

impl From<terrace_analysis::Error> for Failure {
    fn from(error: terrace_analysis::Error) -> Failure {
        Failure { message: error.message, hint: error.hint, code: 1 }
    }
}

impl From<arrow::error::ArrowError> for Failure {
    fn from(error: arrow::error::ArrowError) -> Failure {
        Failure::new(format!("rows can't be written: {error}"))
    }
}
