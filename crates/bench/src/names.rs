//! Names of files: what a user may write in `file_name`, and what each worker makes of it.
//!
//!   "f.{worker:08}.{replication}" ──of_repetition──▶ "f.{worker:08}.3" ──of_worker──▶ "f.00000002.3"
//!
//! A file of each worker's own whose name does not say where the worker's number goes has it behind the name, with eight digits,
//! and in a directory of its own named after the worker: IOR's names, so that either tool reads what the other one wrote.

use crate::error::{Error, Result};
use crate::settings::{Files, RunSettings, Workload};

const HINT: &str = "in braces are `{worker}`, `{run}`, `{replication}`, `{repetition}`, with a width as in `{worker:08}`, or choices that workers take in turn: `{a|b}`";

/// A piece of a name, as it was written.
enum Piece<'a> {
    Text(&'a str),
    /// What is between braces.
    Place(&'a str),
}

fn pieces(name: &str) -> Result<Vec<Piece<'_>>> {
    let mut pieces = Vec::new();
    let mut rest = name;
    while let Some(open) = rest.find('{') {
        let close = rest[open..]
            .find('}')
            .ok_or_else(|| Error::input(format!("`file_name` is `{name}`: a brace is not closed"), HINT))?;
        pieces.push(Piece::Text(&rest[..open]));
        pieces.push(Piece::Place(&rest[open + 1..open + close]));
        rest = &rest[open + close + 1..];
    }
    pieces.push(Piece::Text(rest));
    Ok(pieces)
}

/// The number's name and its width.
fn number(place: &str) -> Option<(&str, usize)> {
    let (name, width) = place.split_once(':').unwrap_or((place, "0"));
    let known = matches!(name, "worker" | "run" | "replication" | "repetition");
    let width: usize = width.parse().ok()?;
    (known && width <= 20).then_some((name, width))
}

fn is_of_worker(place: &str) -> bool {
    place.contains('|') || number(place).is_some_and(|(name, _)| name == "worker")
}

/// Refuses what is no name below the experiment's directory.
pub fn check(settings: &RunSettings) -> Result<()> {
    let Some(name) = &settings.file_name else { return Ok(()) };
    let mut of_worker = false;
    let mut ways = vec![String::new()];
    for piece in pieces(name)? {
        let texts: Vec<&str> = match piece {
            Piece::Text(text) => vec![text],
            Piece::Place(place) if place.contains('|') => place.split('|').collect(),
            Piece::Place(place) if number(place).is_some() => vec!["0"],
            Piece::Place(place) => {
                return Err(Error::input(format!("`file_name` is `{name}`: `{{{place}}}` is not known"), HINT));
            }
        };
        if let Piece::Place(place) = piece {
            of_worker |= is_of_worker(place);
        }
        ways = ways.iter().flat_map(|way| texts.iter().map(move |text| format!("{way}{text}"))).collect();
        if ways.len() > 100_000 {
            return Err(Error::input(format!("`file_name` is `{name}`: too many choices"), HINT));
        }
    }
    if ways.iter().any(|way| way.split('/').any(|part| matches!(part, "" | "." | ".."))) {
        return Err(Error::input(
            format!("`{name}` can't be a file's name"),
            "give a name below the experiment's directory",
        ));
    }
    let own = settings.files == Files::PerWorker && !matches!(settings.workload, Workload::Metadata(_));
    if of_worker && !own {
        return Err(Error::input(
            format!("`file_name` is `{name}`, which differs by worker, but all workers use one"),
            "set `files` to `per_worker`, or take the worker's part out of the name",
        ));
    }
    Ok(())
}

/// The name with all numbers but the worker's.
pub fn of_repetition(name: &str, run: u32, replication: u32, repetition: u32) -> String {
    put(name, |place| {
        let (name, width) = number(place)?;
        let value = match name {
            "run" => run,
            "replication" => replication,
            "repetition" => repetition,
            _ => return None,
        };
        Some(format!("{value:0width$}"))
    })
}

/// The name of this worker's file; one that does not differ by worker gets the worker's number behind it.
pub fn of_worker(name: &str, worker: u32) -> String {
    if !differs(name) {
        return format!("{name}.{worker:08}");
    }
    put(name, |place| {
        if place.contains('|') {
            let choices: Vec<&str> = place.split('|').collect();
            return Some(choices[worker as usize % choices.len()].to_owned());
        }
        let (name, width) = number(place)?;
        (name == "worker").then(|| format!("{worker:0width$}"))
    })
}

fn differs(name: &str) -> bool {
    pieces(name)
        .is_ok_and(|pieces| pieces.iter().any(|piece| matches!(piece, Piece::Place(place) if is_of_worker(place))))
}

/// Whether the directories in the name differ by worker, and so are the experiment's own.
pub fn has_own_directory(name: &str) -> bool {
    name.rsplit_once('/').is_some_and(|(directory, _)| differs(directory))
}

fn put(name: &str, value: impl Fn(&str) -> Option<String>) -> String {
    let Ok(pieces) = pieces(name) else { return name.to_owned() };
    pieces
        .into_iter()
        .map(|piece| match piece {
            Piece::Text(text) => text.to_owned(),
            Piece::Place(place) => value(place).unwrap_or_else(|| format!("{{{place}}}")),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_iors_unless_they_say_otherwise() {
        assert_eq!(of_worker("file", 12), "file.00000012");
        assert_eq!(of_worker("{worker}/file.{worker:08}.3", 12), "12/file.00000012.3");
        assert_eq!(of_worker("{a/f|b/f}.{worker:08}", 3), "b/f.00000003");
        assert_eq!(of_repetition("f.{replication}.{run}.{repetition}.{worker}", 1, 2, 3), "f.2.1.3.{worker}");
        assert!(has_own_directory("task.{worker}/f.{worker}") && !has_own_directory("d/f.{worker}"));
    }

    #[test]
    fn names_that_lead_elsewhere_or_are_not_understood_are_refused() {
        let said = |name: &str, files| {
            let settings = RunSettings { file_name: Some(name.into()), files, ..RunSettings::default() };
            check(&settings).map_err(|error| error.to_string())
        };
        assert!(said("f.{worker:08}", Files::PerWorker).is_ok());
        assert!(said("f.{replication}", Files::Shared).is_ok());
        assert!(said("f.{worker}", Files::Shared).unwrap_err().contains("differs by worker"));
        assert!(said("f.{rank}", Files::PerWorker).unwrap_err().contains("{rank}"));
        assert!(said("f.{worker", Files::PerWorker).unwrap_err().contains("not closed"));
        assert!(said("{../a|b}", Files::PerWorker).unwrap_err().contains("can't be a file's name"));
    }
}
