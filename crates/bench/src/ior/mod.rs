//! IOR's command line and its scripts, translated into an experiment.
//!
//!   arguments ──Options──▶ one run      -f SCRIPT ──Options, changed by each line──▶ a run for each `run`
//!
//! What IOR refuses is refused, by its reasons; what has no counterpart here is named. Facts are of IOR 4.1: options and defaults,
//! names of files, which task reads whose data.

mod script;

use crate::error::{Error, Result};
use serde_json::{Map, Value, json};
use std::path::{Component, Path, PathBuf};
use terrace_core::size::Size;

/// Options that have a value.
const VALUED: &str = "AabdDfGijJlMNoOQstTUX";

/// An experiment, and what somebody who knows the command line should know about it.
pub struct Translation {
    pub experiment: Value,
    pub notes: Vec<String>,
}

/// `ior ARGUMENTS` as an experiment of our own format.
pub fn translate(arguments: &[String]) -> Result<Translation> {
    let mut options = Options::default();
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        if argument.ends_with("ior") && !argument.starts_with('-') {
            continue;
        }
        if let Some(long) = argument.strip_prefix("--") {
            let (name, value) = match long.split_once('=') {
                Some((name, value)) => (name, Some(value.to_owned())),
                None => (long, None),
            };
            options.long(name, value, &mut || rest.next().cloned())?;
            continue;
        }
        let Some(letters) = argument.strip_prefix('-').filter(|letters| !letters.is_empty()) else {
            return Err(Error::input(format!("`{argument}` is no option of IOR"), "give IOR's options behind `--`"));
        };
        let mut letters = letters.chars();
        while let Some(letter) = letters.next() {
            if !VALUED.contains(letter) {
                options.flag(letter)?;
                continue;
            }
            // `-b 32m`, `-b32m` and `-b=32m` are one.
            let behind = letters.as_str().trim_start_matches('=');
            let value = if behind.is_empty() { rest.next().cloned() } else { Some(behind.to_owned()) };
            let value = value.ok_or_else(|| Error::input(format!("-{letter} has no value"), "for example `-b 32m`"))?;
            options.value(letter, &value)?;
            break;
        }
    }
    let mut runs = match options.script.take() {
        Some(path) => script::runs(&options, Path::new(&path))?,
        None => vec![options],
    };
    let notes = notes(&runs);
    let time_limit = runs.iter().map(|run| run.minutes_max).max().unwrap_or(0);
    let seed = runs[0].seed();
    let (directory, names) = place(&runs)?;
    // The repetitions of one command line are replications, which the report summarises.
    let replications = if runs.len() == 1 { std::mem::replace(&mut runs[0].repetitions, 1) } else { 1 };
    let several = runs.len() > 1;
    let mut settings = Vec::new();
    for (run, name) in runs.into_iter().zip(names) {
        let repetitions = run.repetitions;
        let mut run = run.settings(&name, several)?;
        if several {
            run.insert("repetitions".into(), json!(repetitions));
        }
        settings.push(Value::Object(run));
    }
    let mut experiment = json!({ "name": "ior", "directory": directory, "seed": seed, "replications": replications });
    if time_limit > 0 {
        experiment["time_limit"] = json!(format!("{}s", time_limit * 60));
    }
    if several {
        let named = |(index, settings)| json!({ "name": format!("{}", index + 1), "settings": settings });
        experiment["order"] = json!("fixed");
        experiment["runs"] = settings.into_iter().enumerate().map(named).collect();
    } else {
        experiment["base"] = settings.remove(0);
    }
    Ok(Translation { experiment, notes })
}

/// The directory that all runs' files are below, and their names in it.
fn place(runs: &[Options]) -> Result<(PathBuf, Vec<String>)> {
    let paths: Vec<Vec<PathBuf>> = runs.iter().map(Options::paths).collect();
    let all = || paths.iter().flatten();
    if all().any(|path| path.is_absolute()) && all().any(|path| path.is_relative()) {
        return Err(Error::input(
            "some test files are absolute, and others are not",
            "make all absolute, or all relative",
        ));
    }
    let first = all().next().expect("a run has a file");
    let mut directory = first.parent().unwrap_or(Path::new("")).to_owned();
    while !all().all(|path| path.starts_with(&directory)) {
        directory.pop();
    }
    let mut names = Vec::new();
    for (run, paths) in runs.iter().zip(&paths) {
        let mut below = Vec::new();
        for path in paths {
            let name = path.strip_prefix(&directory).ok().and_then(Path::to_str).filter(|name| !name.is_empty());
            below.push(
                name.ok_or_else(|| Error::input(format!("-o {}: this is no file's name", run.file), "give another"))?,
            );
        }
        if below.iter().any(|name| name.contains(['{', '}', '|'])) {
            return Err(Error::input(
                format!("-o {}: names with braces or bars are not taken", run.file),
                "give another",
            ));
        }
        names.push(run.name(&below));
    }
    let directory = if directory.as_os_str().is_empty() { PathBuf::from(".") } else { directory };
    Ok((directory, names))
}

fn notes(runs: &[Options]) -> Vec<String> {
    let mut notes: Vec<String> = Vec::new();
    let mut note = |text: &str| {
        if !notes.iter().any(|known| known == text) {
            notes.push(text.to_owned());
        }
    };
    for run in runs {
        run.without_effect.iter().for_each(|option| {
            note(&format!("{option} has no effect here: results always have all rows, as JSON, CSV and Parquet"));
        });
        if run.reorder > 0 {
            note(
                "-C reads what was written so many nodes before, as IOR does: where all workers run on one node, each reads its own data",
            );
        }
        if run.random > 0 && run.segments > 1 {
            note("-z with -s: requests are shuffled over all segments; IOR repeats one order in each");
        }
        if run.view {
            note("-V: one call moves all blocks of a task; IOR makes one for each transfer");
        }
        if run.existing {
            note("-E: a file that is written over stays at the end, whatever -k says");
        }
        if run.read && !run.check && !run.write {
            note("-r without -R: data is checked where it is known who wrote it; a set that IOR wrote is only read");
        }
    }
    notes
}

#[derive(Clone)]
struct Options {
    api: String,
    block: u64,
    transfer: u64,
    segments: u64,
    tasks: u64,
    repetitions: u64,
    file: String,
    file_per_process: bool,
    write: bool,
    read: bool,
    check: bool,
    fsync: bool,
    fsync_each: bool,
    collective: bool,
    view: bool,
    random: u32,
    random_seed: Option<i64>,
    keep: bool,
    barriers: bool,
    direct: bool,
    directory_each: bool,
    reorder: u32,
    reorder_random: u32,
    reorder_seed: i64,
    reorder_by: u64,
    delay: u64,
    stonewall: u64,
    wear_out: bool,
    status_file: bool,
    signature: Option<i64>,
    multiple_files: bool,
    existing: bool,
    minutes_max: u64,
    alignment: u64,
    stripe_count: Option<u64>,
    stripe_size: Option<u64>,
    script: Option<String>,
    without_effect: Vec<String>,
}

impl Default for Options {
    /// IOR's own.
    fn default() -> Options {
        Options {
            api: "POSIX".into(),
            block: 1 << 20,
            transfer: 256 << 10,
            segments: 1,
            tasks: 1,
            repetitions: 1,
            file: "testFile".into(),
            file_per_process: false,
            write: false,
            read: false,
            check: false,
            fsync: false,
            fsync_each: false,
            collective: false,
            view: false,
            random: 0,
            random_seed: None,
            keep: false,
            barriers: false,
            direct: false,
            directory_each: false,
            reorder: 0,
            reorder_random: 0,
            reorder_seed: 0,
            reorder_by: 1,
            delay: 0,
            stonewall: 0,
            wear_out: false,
            status_file: false,
            signature: None,
            multiple_files: false,
            existing: false,
            minutes_max: 0,
            alignment: 1,
            stripe_count: None,
            stripe_size: None,
            script: None,
            without_effect: vec![],
        }
    }
}

/// IOR takes `2k` for 2048 wherever it wants a number.
fn number(option: &str, text: &str) -> Result<u64> {
    match text.trim().parse().map(Size::Bytes).or_else(|_| Size::parse(text.trim())) {
        Ok(Size::Bytes(number)) => Ok(number),
        _ => Err(Error::input(format!("{option} {text} is not a whole number"), "give a number")),
    }
}

fn signed(option: &str, text: &str) -> Result<i64> {
    text.trim().parse().map_err(|_| Error::input(format!("{option} {text} is not a whole number"), "give a number"))
}

fn size(option: &str, text: &str) -> Result<u64> {
    match Size::parse(text.trim()) {
        Ok(Size::Bytes(bytes)) if bytes > 0 => Ok(bytes),
        _ => Err(Error::input(format!("{option} {text} is not a size"), "for example `32m`")),
    }
}

impl Options {
    fn flag(&mut self, letter: char) -> Result<()> {
        match letter {
            'F' => self.file_per_process = true,
            'w' => self.write = true,
            'r' => self.read = true,
            'R' => (self.read, self.check) = (true, true),
            // What was written is read back: there must be a write, as in IOR.
            'W' => (self.write, self.read, self.check) = (true, true, true),
            'e' => self.fsync = true,
            'E' => self.existing = true,
            'Y' => self.fsync_each = true,
            'c' => self.collective = true,
            'V' => self.view = true,
            'z' => self.random += 1,
            'Z' => self.reorder_random += 1,
            'k' => self.keep = true,
            'g' => self.barriers = true,
            'B' => self.direct = true,
            'm' => self.multiple_files = true,
            'u' => self.directory_each = true,
            'C' => self.reorder += 1,
            // How much is said, a time stamp in the data, no second attempt: ours always has more than that.
            'v' | 'q' | 'K' | 'x' => {}
            other => return Err(unknown(&format!("-{other}"))),
        }
        Ok(())
    }

    fn value(&mut self, letter: char, text: &str) -> Result<()> {
        let option = format!("-{letter}");
        match letter {
            // A number for the user's own books.
            'A' => {}
            'a' => self.api = text.to_ascii_uppercase(),
            'b' => self.block = size(&option, text)?,
            't' => self.transfer = size(&option, text)?,
            's' => self.segments = number(&option, text)?,
            'N' => self.tasks = number(&option, text)?,
            'i' => self.repetitions = number(&option, text)?,
            'o' => self.file = text.into(),
            'd' => self.delay = number(&option, text)?,
            'D' => self.stonewall = number(&option, text)?,
            'Q' => self.reorder_by = number(&option, text)?,
            'G' => self.signature = Some(signed(&option, text)?),
            'X' => self.reorder_seed = signed(&option, text)?,
            'T' => self.minutes_max = number(&option, text)?,
            'J' => self.alignment = number(&option, text)?,
            'f' => self.script = Some(text.into()),
            'l' => packets(text)?,
            'O' => text.split(',').try_for_each(|directive| self.directive(directive))?,
            other => return Err(unknown(&format!("-{other}"))),
        }
        Ok(())
    }

    /// `name=value`, of -O and of scripts, in any case.
    fn directive(&mut self, directive: &str) -> Result<()> {
        let (name, value) = directive
            .split_once('=')
            .ok_or_else(|| Error::input(format!("`{directive}` is no directive of IOR"), "write NAME=VALUE"))?;
        let (name, value) = (name.trim(), value.trim());
        let lower = name.to_ascii_lowercase();
        let named = || unknown(&format!("-O {name}={value}"));
        let truth = || number(name, value).map(|number| number > 0);
        let count = || number(name, value).map(|number| u32::try_from(number).unwrap_or(u32::MAX));
        let zero = || match number(name, value)? {
            0 => Ok(()),
            _ => Err(named()),
        };
        match lower.as_str() {
            "api" => self.api = value.to_ascii_uppercase(),
            "testfile" => self.file = value.into(),
            "blocksize" => self.block = size(name, value)?,
            "transfersize" => self.transfer = size(name, value)?,
            "segmentcount" => self.segments = number(name, value)?,
            "numtasks" => self.tasks = number(name, value)?,
            "repetitions" => self.repetitions = number(name, value)?,
            "intertestdelay" => self.delay = number(name, value)?,
            "deadlineforstonewalling" => self.stonewall = number(name, value)?,
            "stonewallingwearout" => self.wear_out = truth()?,
            // How much was written is noted with the data, and whoever reads knows it.
            "stonewallingstatusfile" => self.status_file = true,
            "maxtimeduration" => self.minutes_max = number(name, value)?,
            "readfile" => self.read = truth()?,
            "writefile" => self.write = truth()?,
            "checkread" if truth()? => (self.read, self.check) = (true, true),
            "checkwrite" if truth()? => (self.write, self.read, self.check) = (true, true, true),
            "checkread" | "checkwrite" => {}
            "fileperproc" => self.file_per_process = truth()?,
            "uniquedir" => self.directory_each = truth()?,
            "multifile" => self.multiple_files = truth()?,
            "useexistingtestfile" => self.existing = truth()?,
            "keepfile" => self.keep = truth()?,
            "fsync" => self.fsync = truth()?,
            "fsyncperwrite" => self.fsync_each = truth()?,
            "intratestbarriers" => self.barriers = truth()?,
            "collective" => self.collective = truth()?,
            "usefileview" => self.view = truth()?,
            "useo_direct" => self.direct = truth()?,
            "randomoffset" => self.random = count()?,
            "taskpernodeoffset" => self.reorder_by = number(name, value)?,
            "reordertasks" | "reordertasksconstant" => self.reorder = count()?,
            "reordertasksrandom" => self.reorder_random = count()?,
            "reordertasksrandomseed" => self.reorder_seed = signed(name, value)?,
            "settimestampsignature" => self.signature = Some(signed(name, value)?),
            "setalignment" => self.alignment = number(name, value)?,
            "datapackettype" => packets(value)?,
            "lustrestripecount" => self.stripe_count = Some(number(name, value)?),
            "lustrestripesize" => self.stripe_size = Some(size(name, value)?),
            "verbose" | "refnum" | "debug" | "platform" | "keepfilewitherror" | "singlexferattempt"
            | "warningaserrors" => {}
            "summaryformat"
            | "summaryfile"
            | "summaryalways"
            | "saverankperformancedetailscsv"
            | "saveperopdatacsv" => {
                self.without_effect.push(format!("-O {name}"));
            }
            // Without an effect where they are 0, as they are without them.
            "mintimeduration"
            | "interiodelay"
            | "stonewallingwearoutiterations"
            | "dualmount"
            | "memorypertask"
            | "memorypernode"
            | "outlierthreshold"
            | "lustrestartost"
            | "lustreignorelocks"
            | "numnodes" => zero()?,
            _ if name.starts_with("--") => self.long(&name[2..], Some(value.to_owned()), &mut || None)?,
            _ => return Err(named()),
        }
        Ok(())
    }

    fn long(&mut self, name: &str, given: Option<String>, next: &mut dyn FnMut() -> Option<String>) -> Result<()> {
        let option = format!("--{name}");
        let is_on = given.as_deref() != Some("0");
        let mut value = || {
            given.clone().or_else(&mut *next).ok_or_else(|| Error::input(format!("{option} has no value"), "give one"))
        };
        match name {
            "posix.odirect" => self.direct = is_on,
            "mpiio.useFileView" => self.view = is_on,
            "collective" => self.collective = is_on,
            "random-offset-seed" => self.random_seed = Some(signed(&option, &value()?)?),
            "dataPacketType" => packets(&value()?)?,
            "posix.lustre.stripecount" => self.stripe_count = Some(number(&option, &value()?)?),
            "posix.lustre.stripesize" => self.stripe_size = Some(size(&option, &value()?)?),
            "hdf5.setAlignment" => self.alignment = number(&option, &value()?)?,
            "hdf5.collectiveMetadata" | "warningAsErrors" => {}
            _ => return Err(unknown(&option)),
        }
        Ok(())
    }

    fn seed(&self) -> u64 {
        let random = self.random_seed.unwrap_or(0).cast_unsigned();
        self.signature.unwrap_or(0).cast_unsigned() ^ random.rotate_left(32)
    }

    fn paths(&self) -> Vec<PathBuf> {
        let plain = |name: &str| Path::new(name).components().filter(|part| *part != Component::CurDir).collect();
        let names: Vec<PathBuf> = self.file.split('@').filter(|name| !name.is_empty()).map(plain).collect();
        // One shared file has the first of several names, as in IOR.
        let count = if self.file_per_process { names.len() } else { 1 };
        if names.is_empty() { vec![PathBuf::from("testFile")] } else { names[..count].to_vec() }
    }

    /// IOR's name, in the words of `file_name`.
    fn name(&self, below: &[&str]) -> String {
        let mut name = if below.len() == 1 { below[0].to_owned() } else { format!("{{{}}}", below.join("|")) };
        if self.file_per_process {
            if self.directory_each {
                name = match name.rsplit_once('/') {
                    Some((directory, file)) => format!("{directory}/{{worker}}/{file}"),
                    None => format!("{{worker}}/{name}"),
                };
            }
            name.push_str(".{worker:08}");
        }
        if self.multiple_files {
            name.push_str(".{replication}");
        }
        name
    }

    /// What IOR refuses, for its reasons.
    fn check(&self) -> Result<()> {
        let refuse = |message: &str, hint: &str| Err(Error::input(message, hint));
        let shared = !self.file_per_process;
        if self.segments == 0 || self.tasks == 0 || self.repetitions == 0 {
            return refuse("-s, -N and -i must be at least 1", "leave them out, or give a number");
        }
        if !self.block.is_multiple_of(self.transfer) {
            return refuse("-b must be a multiple of -t, as in IOR", "for example `-b 32m -t 1m`");
        }
        if !self.transfer.is_multiple_of(8) {
            return refuse("-b and -t must be multiples of 8, as in IOR", "for example `-b 32m -t 1m`");
        }
        if self.random > 1 {
            return refuse("-z given twice (requests that may overlap) has no counterpart", "give it once");
        }
        if self.random > 0 && self.block == self.transfer {
            return refuse(
                "-z shuffles the transfers of a block, and a block has only one: IOR refuses it, too",
                "make -b larger than -t",
            );
        }
        if self.reorder > 0 && self.reorder_random > 0 {
            return refuse("-C and -Z exclude each other, as in IOR", "give one of them");
        }
        if self.random > 0 && shared && self.reorder + self.reorder_random > 0 {
            return refuse("-z with -C or -Z needs -F, as in IOR", "add -F, or leave one out");
        }
        if self.random > 0 && self.check && self.random_seed.is_none() {
            return refuse("-z with -R or -W needs --random-offset-seed, as in IOR", "add `--random-offset-seed 1`");
        }
        if self.random > 0 && self.api == "HDF5" {
            return refuse("-z is not to be had with HDF5, as in IOR", "use another interface");
        }
        if self.wear_out && self.stonewall == 0 {
            return refuse("stoneWallingWearOut needs a stonewall, as in IOR", "add `-D SECONDS`");
        }
        if self.status_file && !self.keep {
            return refuse("stoneWallingStatusFile needs -k, as in IOR", "add -k, or leave it out");
        }
        if self.directory_each && self.file.contains('@') {
            return refuse("-u can't be used with several names (a@b), as in IOR", "leave one out");
        }
        Ok(())
    }

    fn settings(self, name: &str, several: bool) -> Result<Map<String, Value>> {
        self.check()?;
        let data = self
            .block
            .checked_mul(self.segments)
            .ok_or_else(|| Error::input("-b times -s is too large", "use less"))?;
        let mut base = Map::new();
        let mut put = |key: &str, value: Value| drop(base.insert(key.to_owned(), value));
        put("backend", self.backend()?);
        let (write, read) = if self.write || self.read { (self.write, self.read) } else { (true, true) };
        let operations = [(write, "write"), (read, "read")];
        put("operations", operations.iter().filter(|(does, _)| *does).map(|(_, name)| json!(name)).collect());
        put("workers", json!(self.tasks));
        put("files", json!(if self.file_per_process { "per_worker" } else { "shared" }));
        put("file_name", json!(name));
        put("keep", json!(self.keep || self.existing));
        if self.existing {
            put("existing", json!("overwrite"));
        }
        let flush = match (self.fsync_each, self.fsync) {
            (true, _) => "request",
            (_, true) => "end",
            _ => "never",
        };
        put("flush", json!(flush));
        put("barriers", json!(self.barriers));
        put("delay", json!(self.delay));
        if read && !self.check && !write {
            put("verify", json!("noted"));
        }
        if several {
            put("seed", json!(self.seed()));
        }
        if self.reorder > 0 {
            put("reorder", json!({ "nodes": self.reorder_by }));
        }
        if self.reorder_random > 0 {
            // A negative seed stands for another order in each repetition.
            let seed = (self.reorder_seed >= 0).then_some(self.reorder_seed);
            let mut random = json!({ "nodes": self.reorder_by, "each_once": self.reorder_random > 1 });
            if let Some(seed) = seed {
                random["seed"] = json!(seed);
            }
            put("reorder", json!({ "random": random }));
        }
        if self.stonewall > 0 {
            put("stonewall", json!({ "after": self.stonewall, "wear_out": self.wear_out }));
        }
        if self.stripe_count.is_some() || self.stripe_size.is_some() {
            let mut stripes = Map::new();
            stripes.extend(self.stripe_count.map(|count| ("stripe_count".to_owned(), json!(count))));
            stripes.extend(self.stripe_size.map(|size| ("stripe_size".to_owned(), json!(size))));
            put("layout", json!({ "lustre": stripes }));
        }
        let pattern = match (self.random, self.segments) {
            (1.., _) => "random",
            (0, 1) => "sequential",
            _ => "segmented",
        };
        let workload = if self.view {
            // A task's blocks are a part of a grid of segments, tasks and words.
            json!({ "dataset": { "variables": ["int64"], "dimensions": [self.segments, self.tasks, self.block / 8], "divisions": [1, self.tasks, 1] } })
        } else {
            json!({ "offset": {
                "pattern": pattern, "data_size": data, "request_size": self.transfer, "segments": self.segments } })
        };
        put("workload", workload);
        Ok(base)
    }

    fn backend(&self) -> Result<Value> {
        if self.view && (self.api != "MPIIO" || self.random > 0 || self.stonewall > 0) {
            return Err(Error::input(
                "-V (and --mpiio.useFileView) is for `-a MPIIO`, without -z and -D",
                "leave it out, or use MPIIO",
            ));
        }
        if self.alignment > 1 && self.api != "HDF5" {
            return Err(Error::input("-J (alignment) is for `-a HDF5`", "leave it out"));
        }
        Ok(match self.api.as_str() {
            "POSIX" => json!({ "posix": { "direct": self.direct } }),
            "MPIIO" => json!({ "mpiio": { "collective": self.collective, "view": self.view } }),
            "HDF5" if self.alignment > 1 => {
                json!({ "hdf5": { "collective": self.collective, "alignment": self.alignment } })
            }
            "HDF5" => json!({ "hdf5": { "collective": self.collective } }),
            "MMAP" => json!({ "mmap": {} }),
            "AIO" | "LIBAIO" => json!({ "io_uring": { "direct": self.direct } }),
            "DUMMY" => json!({ "null": {} }),
            other => {
                return Err(Error::input(
                    format!("IOR's interface `{other}` has no counterpart"),
                    "use POSIX, MPIIO, HDF5, MMAP or AIO",
                ));
            }
        })
    }
}

/// Our data always says where it belongs, and does not compress: whatever kind is asked for is had.
fn packets(text: &str) -> Result<()> {
    match text.trim() {
        "o" | "offset" | "i" | "incompressible" | "t" | "timestamp" | "r" | "random" => Ok(()),
        other => Err(Error::input(
            format!("-l {other} is no kind of data of IOR"),
            "it is offset, incompressible, timestamp or random",
        )),
    }
}

fn unknown(option: &str) -> Error {
    Error::input(
        format!("IOR's option `{option}` is not translated"),
        "docs/guide/bench.md lists what is, under \"IOR's command line\"",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::{Experiment, Format};
    use crate::plan::Plan;
    use crate::settings::*;

    fn settings(line: &str) -> RunSettings {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        let text = translate(&words).unwrap().experiment.to_string();
        Plan::of(&Experiment::parse(&text, Format::Json).unwrap()).unwrap().runs[0].settings.clone()
    }

    #[test]
    fn the_common_options_mean_what_they_mean_in_ior() {
        let settings = settings("ior -a POSIX -b 32m -t1m -s 4 -F -N 8 -we -C -Q 2 -g -D 5 -o /scratch/f");
        assert_eq!((settings.workers, settings.files, settings.flush), (8, Files::PerWorker, Flush::End));
        assert_eq!(settings.operations, [Operation::Write]);
        assert_eq!(settings.reorder, Reorder::Nodes(2));
        assert!(settings.barriers && settings.stonewall.is_some());
        let Workload::Offset(offset) = settings.workload else { panic!() };
        assert_eq!((offset.pattern, offset.segments), (Pattern::Segmented, 4));
        assert_eq!(offset.data_size, Sizes::One(crate::quantity::Bytes(128 << 20)));
    }

    #[test]
    fn an_option_that_is_not_translated_is_named() {
        for (line, named) in [
            ("-j 5", "`-j`"),
            ("-b 1m --hdf5.chunk=5", "--hdf5.chunk"),
            ("-b", "no value"),
            ("-b 3m -t 2m", "multiple"),
        ] {
            let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            let message = translate(&words).map(drop).unwrap_err().to_string();
            assert!(message.contains(named), "{line}: {message}");
        }
    }
}
