//! The languages that queries are asked in.

use crate::statements;
use terrace_analysis::{Batches, Engine, Result};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Language {
    Sql,
    Savime,
}

impl Language {
    /// Queries in a text.
    pub fn split(self, text: &str) -> Vec<&str> {
        match self {
            Language::Sql => statements::split(text),
            Language::Savime => terrace_savime::split(text),
        }
    }

    /// Whether the text ends a query, so that a prompt need not ask for more.
    pub fn is_complete(self, text: &str) -> bool {
        match self {
            Language::Sql => statements::is_complete(text),
            Language::Savime => terrace_savime::is_complete(text),
        }
    }

    pub fn run<'a>(self, engine: &'a Engine, text: &str) -> Result<Batches<'a>> {
        match self {
            Language::Sql => engine.sql(text),
            Language::Savime => terrace_savime::run_on(engine, text),
        }
    }

    pub fn example(self) -> &'static str {
        match self {
            Language::Sql => "terrace sql 'SELECT * FROM terrace.objects'",
            Language::Savime => "terrace savime 'show();'",
        }
    }
}
