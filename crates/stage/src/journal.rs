//! What was sent and brought, so that it is not again: one file for each directory and URL, in `$XDG_STATE_HOME/terrace/stage`.
//!
//! Each line is one fact in JSON, written when it has become one. A line that a kill cut off is no fact. What a journal says is believed
//! only if the file and the store's object are still as it says; a journal that is removed costs moving again, nothing else.

use crate::remote::Remote;
use crate::tree::State;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use terrace_tool::failure::{Failure, Result, warn};

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Fact {
    /// One way or the other: the file and the object are the same.
    #[serde(alias = "sent")]
    Same {
        key: String,
        state: State,
        etag: String,
    },
    Begun {
        key: String,
        upload: Upload,
    },
    Part {
        key: String,
        number: usize,
        id: String,
    },
    Ended {
        key: String,
    },
}

/// An upload in parts that has begun.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
pub struct Upload {
    pub id: String,
    pub state: State,
    pub part_bytes: u64,
    /// By number.
    #[serde(default)]
    pub parts: BTreeMap<usize, String>,
}

/// So many lines more than there are facts, twice over, and the journal is written anew.
const LINES_SLACK: usize = 1000;

/// Of what moves.
#[derive(Clone, Copy)]
pub enum Way {
    Out,
    In,
}

#[derive(Default)]
struct Known {
    same: HashMap<String, (State, String)>,
    uploads: HashMap<String, Upload>,
}

pub struct Journal {
    path: PathBuf,
    file: Mutex<File>,
    known: Mutex<Known>,
}

impl Journal {
    /// Waits while another process does the same: its work need not be done again.
    pub fn open(way: Way, directory: &Path, remote: &Remote) -> Result<Journal> {
        let directory = directory.canonicalize().map_err(|error| Failure::io("read", directory, error))?;
        let mut hash = Sha256::new();
        hash.update(directory.as_os_str().as_bytes());
        hash.update([way as u8]);
        hash.update(remote.to_string());
        let name: String = hash.finalize()[..16].iter().map(|byte| format!("{byte:02x}")).collect();
        let place = journals()?;
        std::fs::create_dir_all(&place).map_err(|error| Failure::io("make", &place, error))?;
        let waiting = || match way {
            Way::Out => warn(format!("another process sends {} to {remote}: this one waits", directory.display())),
            Way::In => warn(format!("another process brings {remote} into {}: this one waits", directory.display())),
        };
        Journal::at(place.join(name), waiting).map_err(|error| Failure::io("use the journal below", &place, error))
    }

    pub(crate) fn at(path: PathBuf, waiting: impl FnOnce()) -> std::io::Result<Journal> {
        let mut file = File::options().append(true).read(true).create(true).open(&path)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(std::fs::TryLockError::WouldBlock) => {
                waiting();
                file.lock()?;
            }
            Err(std::fs::TryLockError::Error(error)) => return Err(error),
        }
        let text = std::fs::read(&path)?;
        let mut known = Known::default();
        let whole = text.iter().rposition(|&byte| byte == b'\n').map_or(0, |last| last + 1);
        let mut lines = 0;
        for line in text[..whole].split(|&byte| byte == b'\n').filter(|line| !line.is_empty()) {
            lines += 1;
            // A line that makes no sense is of another version, or damaged: its file is sent again.
            if let Ok(fact) = serde_json::from_slice(line) {
                known.learn(fact);
            }
        }
        if lines > known.facts() * 2 + LINES_SLACK {
            // A kill in between costs moving again.
            file.set_len(0)?;
            file.write_all(&known.as_text())?;
        } else {
            file.set_len(whole as u64)?;
        }
        Ok(Journal { path, file: Mutex::new(file), known: Mutex::new(known) })
    }

    fn note(&self, fact: Fact) -> Result<()> {
        let line = line(&fact);
        let written = self.file.lock().expect("no one panics with the journal").write_all(&line);
        written.map_err(|error| Failure::io("write the journal", &self.path, error))?;
        self.known.lock().expect("no one panics with what is known").learn(fact);
        Ok(())
    }

    /// The file's state and the object's tag when it was moved.
    pub fn same(&self, key: &str) -> Option<(State, String)> {
        self.known.lock().expect("as above").same.get(key).cloned()
    }

    pub fn upload(&self, key: &str) -> Option<Upload> {
        self.known.lock().expect("as above").uploads.get(key).cloned()
    }

    pub fn note_same(&self, key: &str, state: State, etag: String) -> Result<()> {
        self.note(Fact::Same { key: key.to_owned(), state, etag })
    }

    pub fn note_begun(&self, key: &str, upload: Upload) -> Result<()> {
        self.note(Fact::Begun { key: key.to_owned(), upload })
    }

    pub fn note_part(&self, key: &str, number: usize, id: String) -> Result<()> {
        self.note(Fact::Part { key: key.to_owned(), number, id })
    }

    pub fn note_ended(&self, key: &str) -> Result<()> {
        self.note(Fact::Ended { key: key.to_owned() })
    }
}

impl Known {
    fn facts(&self) -> usize {
        self.same.len() + self.uploads.values().map(|upload| 1 + upload.parts.len()).sum::<usize>()
    }

    fn as_text(&self) -> Vec<u8> {
        let same = self.same.iter().map(|(key, (state, etag))| Fact::Same {
            key: key.clone(),
            state: *state,
            etag: etag.clone(),
        });
        // With the parts that the store has.
        let begun = self.uploads.iter().map(|(key, upload)| Fact::Begun { key: key.clone(), upload: upload.clone() });
        same.chain(begun).flat_map(|fact| line(&fact)).collect()
    }

    fn learn(&mut self, fact: Fact) {
        match fact {
            Fact::Same { key, state, etag } => {
                self.uploads.remove(&key);
                self.same.insert(key, (state, etag));
            }
            Fact::Begun { key, upload } => {
                self.uploads.insert(key, upload);
            }
            Fact::Part { key, number, id } => {
                if let Some(upload) = self.uploads.get_mut(&key) {
                    upload.parts.insert(number, id);
                }
            }
            Fact::Ended { key } => {
                self.uploads.remove(&key);
            }
        }
    }
}

fn line(fact: &Fact) -> Vec<u8> {
    let mut line = serde_json::to_vec(fact).expect("a fact is plain data");
    line.push(b'\n');
    line
}

fn journals() -> Result<PathBuf> {
    let set = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let base = set("XDG_STATE_HOME").or_else(|| Some(std::env::home_dir()?.join(".local/state")));
    let base = base.ok_or_else(|| {
        Failure::bad_input(
            "neither XDG_STATE_HOME nor HOME is an absolute path",
            "set one: what was moved is noted there",
        )
    })?;
    Ok(base.join("terrace/stage"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(size: u64) -> State {
        State { size, mtime: (1, 2) }
    }

    #[test]
    fn what_was_noted_is_known_to_the_next_process_and_a_line_that_was_cut_off_is_not() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("journal");
        let journal = Journal::at(path.clone(), || ()).unwrap();
        let upload = Upload { id: "u".into(), state: state(9), part_bytes: 4, parts: BTreeMap::new() };
        journal.note_begun("big", upload.clone()).unwrap();
        journal.note_part("big", 1, "p1".into()).unwrap();
        journal.note_begun("done", upload.clone()).unwrap();
        journal.note_same("done", state(9), "e".into()).unwrap();
        journal.note_begun("dropped", upload).unwrap();
        journal.note_ended("dropped").unwrap();
        let (told, waits) = std::sync::mpsc::channel();
        let second = path.clone();
        let second = std::thread::spawn(move || Journal::at(second, || told.send(()).unwrap()).unwrap().same("done"));
        waits.recv().unwrap();
        drop(journal);
        assert_eq!(second.join().unwrap(), Some((state(9), "e".to_owned())));
        let cut = [std::fs::read(&path).unwrap().as_slice(), b"{\"part\":{\"key\":\"big\",\"num"].concat();
        std::fs::write(&path, cut).unwrap();

        let journal = Journal::at(path.clone(), || ()).unwrap();
        assert_eq!(journal.upload("big").unwrap().parts, BTreeMap::from([(1, "p1".to_owned())]));
        assert_eq!((journal.upload("done"), journal.upload("dropped")), (None, None));
        assert_eq!(journal.same("done"), Some((state(9), "e".to_owned())));
        journal.note_part("big", 0, "p0".into()).unwrap();
        drop(journal);
        assert_eq!(Journal::at(path, || ()).unwrap().upload("big").unwrap().parts.len(), 2);
    }

    #[test]
    fn a_journal_does_not_grow_for_ever() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("journal");
        let journal = Journal::at(path.clone(), || ()).unwrap();
        let parts = BTreeMap::from([(0, "p0".to_owned())]);
        journal.note_begun("big", Upload { id: "u".into(), state: state(9), part_bytes: 4, parts }).unwrap();
        for size in 0..3 * LINES_SLACK as u64 {
            journal.note_same("again", state(size), "e".into()).unwrap();
        }
        drop(journal);
        let known = |journal: &Journal| (journal.same("again"), journal.upload("big").map(|upload| upload.parts.len()));
        let journal = Journal::at(path.clone(), || ()).unwrap();
        let expected = (Some((state(3 * LINES_SLACK as u64 - 1), "e".to_owned())), Some(1));
        assert_eq!(known(&journal), expected);
        drop(journal);
        assert!(std::fs::read_to_string(&path).unwrap().lines().count() == 2);
        assert_eq!(known(&Journal::at(path, || ()).unwrap()), expected);
    }
}
