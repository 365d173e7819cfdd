//! A common subset of IOR's command line, translated into an experiment.

use crate::error::{Error, Result};
use serde_json::{Map, Value, json};
use std::path::Path;
use terrace_core::size::Size;

/// Options that have a value.
const VALUED: &str = "abstoNidDQGTJOfZUlX";

/// `ior ARGUMENTS` as an experiment of our own format.
pub fn translate(arguments: &[String]) -> Result<Value> {
    let mut options = Options::default();
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        if argument.ends_with("ior") && !argument.starts_with('-') {
            continue;
        }
        if let Some(long) = argument.strip_prefix("--") {
            options.long(long)?;
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
    options.experiment()
}

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
    fsync: bool,
    fsync_each: bool,
    collective: bool,
    view: bool,
    random: bool,
    keep: bool,
    barriers: bool,
    direct: bool,
    directory_each: bool,
    reorder: bool,
    reorder_by: u64,
    delay: u64,
    stonewall: u64,
    wear_out: bool,
    seed: u64,
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
            fsync: false,
            fsync_each: false,
            collective: false,
            view: false,
            random: false,
            keep: false,
            barriers: false,
            direct: false,
            directory_each: false,
            reorder: false,
            reorder_by: 1,
            delay: 0,
            stonewall: 0,
            wear_out: false,
            seed: 0,
        }
    }
}

fn number(letter: char, text: &str) -> Result<u64> {
    text.parse().map_err(|_| Error::input(format!("-{letter} {text} is not a whole number"), "give a number"))
}

fn size(letter: char, text: &str) -> Result<u64> {
    match Size::parse(text) {
        Ok(Size::Bytes(bytes)) if bytes > 0 => Ok(bytes),
        _ => Err(Error::input(format!("-{letter} {text} is not a size"), "for example `32m`")),
    }
}

impl Options {
    fn flag(&mut self, letter: char) -> Result<()> {
        match letter {
            'F' => self.file_per_process = true,
            'w' => self.write = true,
            'r' => self.read = true,
            // We check whatever we read.
            'R' => self.read = true,
            // What was written is read back: there must be a write, as in IOR.
            'W' => (self.write, self.read) = (true, true),
            'e' => self.fsync = true,
            'Y' => self.fsync_each = true,
            'c' => self.collective = true,
            'V' => self.view = true,
            'z' => self.random = true,
            'k' => self.keep = true,
            'g' => self.barriers = true,
            'B' => self.direct = true,
            'u' => self.directory_each = true,
            'C' => self.reorder = true,
            // How much is said, and a time stamp in the data: ours always has more than that.
            'v' | 'q' | 'K' => {}
            other => return Err(unknown(&format!("-{other}"))),
        }
        Ok(())
    }

    fn value(&mut self, letter: char, text: &str) -> Result<()> {
        match letter {
            'a' => self.api = text.to_ascii_uppercase(),
            'b' => self.block = size(letter, text)?,
            't' => self.transfer = size(letter, text)?,
            's' => self.segments = number(letter, text)?,
            'N' => self.tasks = number(letter, text)?,
            'i' => self.repetitions = number(letter, text)?,
            'o' => self.file = text.into(),
            'd' => self.delay = number(letter, text)?,
            'D' => self.stonewall = number(letter, text)?,
            'Q' => self.reorder_by = number(letter, text)?,
            'G' => self.seed = number(letter, text)?,
            'O' => self.directive(text)?,
            other => return Err(unknown(&format!("-{other}"))),
        }
        Ok(())
    }

    fn directive(&mut self, text: &str) -> Result<()> {
        for directive in text.split(',') {
            match directive.split_once('=') {
                Some(("stoneWallingWearOut", "1")) => self.wear_out = true,
                Some(("useO_DIRECT", "1")) => self.direct = true,
                _ => return Err(unknown(&format!("-O {directive}"))),
            }
        }
        Ok(())
    }

    fn long(&mut self, long: &str) -> Result<()> {
        match long {
            "posix.odirect" => self.direct = true,
            "mpiio.useFileView" => self.view = true,
            _ => return Err(unknown(&format!("--{long}"))),
        }
        Ok(())
    }

    fn experiment(self) -> Result<Value> {
        if self.segments == 0 || self.tasks == 0 || self.repetitions == 0 {
            return Err(Error::input("-s, -N and -i must be at least 1", "leave them out, or give a number"));
        }
        if !self.block.is_multiple_of(self.transfer) {
            return Err(Error::input("-b must be a multiple of -t, as in IOR", "for example `-b 32m -t 1m`"));
        }
        let data = self
            .block
            .checked_mul(self.segments)
            .ok_or_else(|| Error::input("-b times -s is too large", "use less"))?;
        let backend = match self.api.as_str() {
            "POSIX" => json!({ "posix": { "direct": self.direct } }),
            "MPIIO" => json!({ "mpiio": { "collective": self.collective } }),
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
        };
        if self.view {
            return Err(Error::input(
                "-V (and --mpiio.useFileView) have no counterpart for IOR's blocks: views here are of parts of a grid",
                "leave it out, or give a `dataset` workload with `\"mpiio\": { \"view\": true }`",
            ));
        }
        let (write, read) = if self.write || self.read { (self.write, self.read) } else { (true, true) };
        let mut operations = vec![];
        if write {
            operations.push("write");
        }
        if read {
            operations.push("read");
        }
        let path = Path::new(&self.file);
        let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let pattern = match (self.random, self.segments) {
            (true, _) => "random",
            (false, 1) => "sequential",
            _ => "segmented",
        };
        let mut base = Map::new();
        base.insert("workers".into(), json!(self.tasks));
        base.insert("operations".into(), json!(operations));
        base.insert("files".into(), json!(if self.file_per_process { "per_worker" } else { "shared" }));
        base.insert("file_name".into(), json!(name));
        base.insert("directory_per_worker".into(), json!(self.directory_each));
        base.insert("keep".into(), json!(self.keep));
        let flush = if self.fsync_each {
            "request"
        } else if self.fsync {
            "end"
        } else {
            "never"
        };
        base.insert("flush".into(), json!(flush));
        base.insert("barriers".into(), json!(self.barriers));
        base.insert("delay".into(), json!(self.delay));
        base.insert("backend".into(), backend);
        if self.reorder {
            base.insert("reorder".into(), json!({ "shift": self.reorder_by }));
        }
        if self.stonewall > 0 {
            base.insert("stonewall".into(), json!({ "after": self.stonewall, "wear_out": self.wear_out }));
        }
        base.insert(
            "workload".into(),
            json!({ "offset": {
                "pattern": pattern, "data_size": data, "request_size": self.transfer, "segments": self.segments } }),
        );
        Ok(json!({
            "name": "ior", "directory": directory, "seed": self.seed, "replications": self.repetitions, "base": base
        }))
    }
}

fn unknown(option: &str) -> Error {
    Error::input(
        format!("IOR's option `{option}` is not translated"),
        "translated are -a -b -t -s -N -i -o -d -D -Q -G -F -w -r -W -R -e -Y -c -V -z -k -g -B -u -C, -O with stoneWallingWearOut or useO_DIRECT, --posix.odirect, --mpiio.useFileView",
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
        let text = translate(&words).unwrap().to_string();
        Plan::of(&Experiment::parse(&text, Format::Json).unwrap()).unwrap().runs[0].settings.clone()
    }

    #[test]
    fn the_common_options_mean_what_they_mean_in_ior() {
        let settings = settings("ior -a POSIX -b 32m -t1m -s 4 -F -N 8 -we -C -Q 2 -g -D 5 -o /scratch/f");
        assert_eq!((settings.workers, settings.files, settings.flush), (8, Files::PerWorker, Flush::End));
        assert_eq!(settings.operations, [Operation::Write]);
        assert_eq!(settings.reorder, Reorder::Shift(2));
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
            let message = translate(&words).unwrap_err().to_string();
            assert!(message.contains(named), "{line}: {message}");
        }
    }
}
