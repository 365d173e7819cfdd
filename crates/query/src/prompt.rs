//! The prompt: queries over several lines until a semicolon, a history in a file, names completed from the catalogue.

use crate::language::Language;
use crate::output::{self, Format};
use crate::progress;
use rustyline::completion::{Completer, Pair};
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::FileHistory;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{Context, Editor, Helper};
use std::collections::BTreeSet;
use std::path::PathBuf;
use terrace_analysis::Engine;
use terrace_analysis::arrow::array::{Array, AsArray};
use terrace_tool::failure::Failure;
use terrace_tool::{errln, outln};

const WORDS: [&str; 32] = [
    "SELECT",
    "FROM",
    "WHERE",
    "GROUP BY",
    "ORDER BY",
    "HAVING",
    "LIMIT",
    "JOIN",
    "USING",
    "ON",
    "AND",
    "OR",
    "NOT",
    "BETWEEN",
    "IN",
    "AS",
    "DISTINCT",
    "UNION",
    "avg(",
    "sum(",
    "min(",
    "max(",
    "count(*)",
    "stddev(",
    "abs(",
    "sqrt(",
    "EXPLAIN",
    "DESCRIBE",
    "SHOW TABLES",
    "CASE",
    "WHEN",
    "END",
];

const HELP: &str = "A query ends with a semicolon. Tables are containers with arrays, by name: study, \"study/run1\".
  SHOW TABLES;   DESCRIBE study;   SELECT * FROM terrace.objects;   EXPLAIN SELECT …;
  \\format csv    how rows are written: table, csv, json, ndjson
  \\q             ends (so does Ctrl-D)";

const SAVIME_WORDS: [&str; 28] = [
    "aggregate(",
    "att2dim(",
    "batch(",
    "catalyze(",
    "create_dataset(",
    "create_tar(",
    "create_type(",
    "cross(",
    "derive(",
    "dimjoin(",
    "drop_dataset(",
    "drop_tar(",
    "drop_type(",
    "equijoin(",
    "load_subtar(",
    "reorient(",
    "save(",
    "scan(",
    "select(",
    "show()",
    "slice(",
    "split(",
    "store(",
    "subset(",
    "translate(",
    "union(",
    "where(",
    "literal(",
];

const SAVIME_HELP: &str =
    "A command ends with a semicolon. TARs are containers with arrays, by name: study, \"study/run1\".
  show();   scan(study);   aggregate(where(study, v > 1), avg, v, mean, x);   docs/reference/savime.md has them all
  \\format csv    how rows are written: table, csv, json, ndjson, savime
  \\q             ends (so does Ctrl-D)";

struct Names {
    words: BTreeSet<String>,
    language: Language,
}

impl Helper for Names {}
impl Highlighter for Names {}
impl Hinter for Names {
    type Hint = String;
}

impl Validator for Names {
    fn validate(&self, context: &mut ValidationContext<'_>) -> rustyline::Result<ValidationResult> {
        let text = context.input();
        let is_whole = text.trim().is_empty() || text.starts_with('\\') || self.language.is_complete(text);
        Ok(if is_whole { ValidationResult::Valid(None) } else { ValidationResult::Incomplete })
    }
}

impl Completer for Names {
    type Candidate = Pair;
    fn complete(&self, line: &str, position: usize, _: &Context<'_>) -> rustyline::Result<(usize, Vec<Pair>)> {
        Ok(completions(&self.words, &line[..position]))
    }
}

/// Where the word begins that is to be completed, and what it may become.
fn completions(words: &BTreeSet<String>, line: &str) -> (usize, Vec<Pair>) {
    let is_part = |letter: char| letter.is_alphanumeric() || "_./\"".contains(letter);
    let start =
        line.char_indices().rev().take_while(|(_, letter)| is_part(*letter)).last().map_or(line.len(), |(at, _)| at);
    let begun = line[start..].to_lowercase();
    if begun.is_empty() {
        return (start, vec![]);
    }
    let found = words.iter().filter(|word| word.to_lowercase().starts_with(&begun));
    (start, found.map(|word| Pair { display: word.clone(), replacement: word.clone() }).collect())
}

/// Tables and their columns; a catalogue that can't be read completes nothing.
fn names(engine: &Engine, language: Language) -> BTreeSet<String> {
    let known = if language == Language::Sql { &WORDS[..] } else { &SAVIME_WORDS[..] };
    let mut words: BTreeSet<String> = known.iter().map(|word| word.to_string()).collect();
    let query = "SELECT table_schema, table_name, column_name FROM information_schema.columns";
    let planned = engine.runtime().block_on(engine.queries().sql(query));
    let Ok(batches) = planned.and_then(|frame| engine.run(frame)) else { return words };
    for batch in batches.filter_map(Result::ok) {
        let texts = |column: usize| {
            let values = arrow::compute::cast(batch.column(column), &arrow::datatypes::DataType::Utf8);
            values.map(|values| values.as_string::<i32>().clone())
        };
        let (Ok(schemas), Ok(tables), Ok(columns)) = (texts(0), texts(1), texts(2)) else { continue };
        for row in 0..schemas.len() {
            let table = tables.value(row);
            let is_plain = table.chars().all(|letter| letter.is_alphanumeric() || letter == '_');
            words.insert(match schemas.value(row) {
                "root" if is_plain => table.to_owned(),
                "root" => format!("\"{table}\""),
                schema => format!("{schema}.{table}"),
            });
            words.insert(columns.value(row).to_owned());
        }
    }
    words
}

fn history_file(language: Language) -> Option<PathBuf> {
    let base = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from);
    let base = base.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".local/state")))?;
    let directory = base.join("terrace");
    std::fs::create_dir_all(&directory).ok()?;
    Some(directory.join(if language == Language::Sql { "sql-history" } else { "savime-history" }))
}

pub fn run(engine: &Engine, mut format: Format, language: Language) -> Result<(), Failure> {
    let failed = |error: ReadlineError| Failure::new(format!("the prompt can't be used: {error}"));
    let mut editor: Editor<Names, FileHistory> = Editor::new().map_err(failed)?;
    editor.set_helper(Some(Names { words: names(engine, language), language }));
    let history = history_file(language);
    if let Some(file) = &history {
        let _ = editor.load_history(file);
    }
    outln!("Tables of {}; \\? for help", engine.queries().objects().session.root().display());
    loop {
        let line = match editor.readline(if language == Language::Sql { "terrace> " } else { "savime> " }) {
            Ok(line) => line,
            Err(ReadlineError::Interrupted) => continue,
            Err(ReadlineError::Eof) => break,
            Err(ReadlineError::Io(error)) if error.kind() == std::io::ErrorKind::InvalidData => {
                errln!("what was typed is not UTF-8");
                continue;
            }
            Err(error) => return Err(failed(error)),
        };
        if line.trim().is_empty() {
            continue;
        }
        let _ = editor.add_history_entry(line.as_str());
        match line.trim() {
            "\\q" | "exit" | "quit" => break,
            "\\?" | "help" => outln!("{}", if language == Language::Sql { HELP } else { SAVIME_HELP }),
            other if other.starts_with("\\format") => match other.split_whitespace().nth(1) {
                Some("table") => format = Format::Table,
                Some("csv") => format = Format::Csv,
                Some("json") => format = Format::Json,
                Some("ndjson") => format = Format::Ndjson,
                Some("savime") => format = Format::Savime,
                _ => outln!("\\format table, csv, json, ndjson or savime"),
            },
            other if other.starts_with('\\') => outln!("`{other}` is not a command; \\? for help"),
            text => {
                for query in language.split(text) {
                    let shown = progress::show(engine);
                    let done = language.run(engine, query).map(|batches| batches.showing(shown)).map_err(Failure::from);
                    if let Err(failure) = done.and_then(|batches| output::to_stdout(batches, format)) {
                        failure.print_as("");
                    }
                }
                if let Some(helper) = editor.helper_mut() {
                    helper.words = names(engine, language);
                }
            }
        }
    }
    if let Some(file) = &history {
        let _ = editor.save_history(file);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_word_before_the_cursor_is_completed_from_names_of_any_case() {
        let words: BTreeSet<String> = ["SELECT", "study", "\"study/run1\"", "terrace.tags"].map(String::from).into();
        let of = |line: &str| {
            let (start, found) = completions(&words, line);
            (start, found.into_iter().map(|pair| pair.replacement).collect::<Vec<_>>())
        };
        assert_eq!(of("sel"), (0, vec!["SELECT".to_string()]));
        assert_eq!(of("SELECT * FROM stu"), (14, vec!["study".to_string()]));
        assert_eq!(of("SELECT * FROM terrace.t"), (14, vec!["terrace.tags".to_string()]));
        assert_eq!(of("SELECT * FROM \"stu"), (14, vec!["\"study/run1\"".to_string()]));
        assert_eq!(of("SELECT ").1, Vec::<String>::new());
    }
}
