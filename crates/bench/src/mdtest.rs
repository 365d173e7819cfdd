//! mdtest's command line, translated into an experiment. Trees and files have mdtest's names (see `workload::metadata`).

use crate::error::{Error, Result};
use crate::ior::Translation;
use serde_json::json;
use terrace_core::size::Size;

/// Options that have a value.
const VALUED: &str = "abdBefGiIlnNpsVwWxz";

#[derive(Default)]
struct Options {
    directory: Option<String>,
    tasks: Option<u64>,
    items: u64,
    items_per_directory: u64,
    branch: u64,
    depth: u64,
    bytes: u64,
    bytes_read: Option<u64>,
    iterations: u64,
    stride: u64,
    stonewall: u64,
    create: bool,
    stat: bool,
    read: bool,
    remove: bool,
    files_only: bool,
    unique: bool,
    leaf_only: bool,
    sync: bool,
    verify: bool,
}

fn number(option: &str, text: &str) -> Result<u64> {
    match text.trim().parse().map(Size::Bytes).or_else(|_| Size::parse(text.trim())) {
        Ok(Size::Bytes(number)) => Ok(number),
        _ => Err(Error::input(format!("{option} {text} is not a whole number"), "give a number")),
    }
}

/// `mdtest ARGUMENTS`; `-s TASKS` of `mpirun` is not among them, so tasks are given by `--tasks N`.
pub fn translate(arguments: &[String]) -> Result<Translation> {
    let mut options = Options { branch: 1, iterations: 1, ..Options::default() };
    let mut notes = Vec::new();
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        if argument.ends_with("mdtest") && !argument.starts_with('-') {
            continue;
        }
        if let Some(long) = argument.strip_prefix("--") {
            let (name, value) = long.split_once('=').map_or((long, None), |(name, value)| (name, Some(value)));
            match (name, value) {
                ("tasks", Some(value)) => options.tasks = Some(number("--tasks", value)?),
                ("tasks", None) => {
                    let value = rest.next().ok_or_else(|| Error::input("--tasks has no value", "give a number"))?;
                    options.tasks = Some(number("--tasks", value)?);
                }
                ("verify-read", _) => options.verify = true,
                ("dataPacketType" | "warningAsErrors", _) => {}
                ("saveRankPerformanceDetails" | "savePerOpDataCSV" | "showRankStatistics", _) => {
                    notes.push(format!("--{name} has no effect here: results always have all rows"));
                }
                _ => return Err(unknown(argument)),
            }
            continue;
        }
        let Some(letters) = argument.strip_prefix('-').filter(|letters| !letters.is_empty()) else {
            return Err(Error::input(format!("`{argument}` is no option of mdtest"), "give its options behind `--`"));
        };
        let mut letters = letters.chars();
        while let Some(letter) = letters.next() {
            if !VALUED.contains(letter) {
                options.flag(letter)?;
                continue;
            }
            let behind = letters.as_str().trim_start_matches('=');
            let value = if behind.is_empty() { rest.next().cloned() } else { Some(behind.to_owned()) };
            let value =
                value.ok_or_else(|| Error::input(format!("-{letter} has no value"), "for example `-n 1000`"))?;
            options.value(letter, &value)?;
            break;
        }
    }
    if options.stride > 0 {
        notes.push("-N: every phase uses the files of the task so many further; mdtest takes once, twice and three times as many".into());
    }
    Ok(Translation { experiment: options.experiment()?, notes })
}

impl Options {
    fn flag(&mut self, letter: char) -> Result<()> {
        match letter {
            'C' => self.create = true,
            'T' => self.stat = true,
            'E' => self.read = true,
            'r' => self.remove = true,
            'F' => self.files_only = true,
            'u' => self.unique = true,
            'L' => self.leaf_only = true,
            'Y' => self.sync = true,
            'X' => self.verify = true,
            // What is printed, and whether making the directories is in the time: it never is here.
            'P' | 'v' | 'Z' | 't' => {}
            other => return Err(unknown(&format!("-{other}"))),
        }
        Ok(())
    }

    fn value(&mut self, letter: char, text: &str) -> Result<()> {
        let option = format!("-{letter}");
        match letter {
            'a' if text.eq_ignore_ascii_case("POSIX") => {}
            'd' if !text.contains('@') => self.directory = Some(text.into()),
            'b' => self.branch = number(&option, text)?,
            'z' => self.depth = number(&option, text)?,
            'n' => self.items = number(&option, text)?,
            'I' => self.items_per_directory = number(&option, text)?,
            'w' => self.bytes = number(&option, text)?,
            'e' => self.bytes_read = Some(number(&option, text)?),
            'i' => self.iterations = number(&option, text)?,
            'N' => self.stride = number(&option, text)?,
            'W' => self.stonewall = number(&option, text)?,
            // How many files a stonewall left is noted beside them; the data's offset is the experiment's own.
            'G' | 'V' | 'x' => {}
            _ => return Err(unknown(&format!("-{letter} {text}"))),
        }
        Ok(())
    }

    fn experiment(self) -> Result<serde_json::Value> {
        if !self.files_only {
            return Err(Error::input("mdtest's phases of directories have no counterpart", "add -F (files only)"));
        }
        let directories = match (self.branch, self.depth) {
            (0 | 1, depth) if self.leaf_only || depth == 0 => 1,
            (branch, depth) if self.leaf_only => branch.saturating_pow(depth as u32),
            (branch, depth) => (0..=depth).map(|level| branch.saturating_pow(level as u32)).sum(),
        };
        let wanted = match (self.items, self.items_per_directory) {
            (0, each) => each.saturating_mul(directories),
            (items, 0) => items / directories * directories,
            _ => {
                return Err(Error::input("-n and -I together (loops over directories) are not translated", "give one"));
            }
        };
        if wanted == 0 {
            return Err(Error::input("there are no files", "give -n or -I, at least one file for each directory"));
        }
        if self.bytes_read.is_some_and(|bytes| bytes > 0 && bytes != self.bytes) {
            return Err(Error::input("-e must be as much as -w: files are read whole", "make them equal"));
        }
        let all = !(self.create || self.stat || self.read || self.remove);
        let phases = [
            (self.create || all, "create"),
            (self.stat || all, "stat"),
            (self.read || all, "read_files"),
            (self.remove || all, "unlink"),
        ];
        let operations: Vec<&str> = phases.iter().filter(|(does, _)| *does).map(|(_, name)| *name).collect();
        let mut base = json!({
            "workers": self.tasks.unwrap_or(1),
            "operations": operations,
            "file_name": "test-dir.0-{replication}",
            // Whoever makes and does not remove leaves the files to the next.
            "keep": (self.create || self.stat || self.read) && !self.remove,
            "verify": self.verify,
            "workload": { "metadata": {
                "files": wanted, "depth": self.depth, "fanout": self.branch.max(1), "file_size": self.bytes,
                "shared_tree": !self.unique, "leaf_only": self.leaf_only, "sync": self.sync } }
        });
        if self.stride > 0 {
            base["reorder"] = json!({ "shift": self.stride });
        }
        if self.stonewall > 0 && operations.contains(&"create") {
            base["stonewall"] = json!({ "after": self.stonewall, "wear_out": true });
        }
        Ok(json!({
            "name": "mdtest", "directory": self.directory.unwrap_or_else(|| "out".into()),
            "replications": self.iterations.max(1), "base": base
        }))
    }
}

fn unknown(option: &str) -> Error {
    Error::input(
        format!("mdtest's option `{option}` is not translated"),
        "translated are -a POSIX -b -d -C -T -E -r -F -i -I -L -n -N -u -w -e -W -x -X -Y -z -G, and --tasks N for mpirun's -n",
    )
}
