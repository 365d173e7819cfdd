//! Which name each record has, as far as the agent was told.
//!
//! Programs tell of names through the ring; two of them may be told in another order than they happened. So a name
//! from here is a hint to be checked against the tree (`readlink`, `lstat`) before anything is done by it.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::{Duration, Instant};

/// Renames of directories that a late event may need.
const RENAMES_KEPT: usize = 256;

/// Why the last try to flush a record ended without a durable file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BlockReason {
    /// Some program has it open for writing.
    Open,
    /// Its name is not known (yet).
    Unlocated,
    /// It changed, or its name did, meanwhile: the next try may do.
    Changed,
    Failed(String),
}

#[derive(Clone, Debug)]
pub struct Entry {
    pub serial: u64,
    /// Absolute; empty: not known.
    pub path: Vec<u8>,
    /// Counted in the header as (`Clean`, `Clean` or `Durable`).
    counted: (bool, bool),
    /// When it became what it is (`Clean`: for the grace of an eviction; `Dead`: until the record is used again).
    pub since: Instant,
    pub blocked_by: Option<BlockReason>,
    /// Failures in a row.
    pub failures: u32,
    /// Tries so far, however they ended.
    pub tries: u64,
    /// The durable version kept in `.terrace/held` while the object is newer.
    pub held: bool,
    /// Somebody asked for it: it is flushed whatever policy says.
    pub is_forced: bool,
    /// The object's time of change when it was last equal to the root's file; 0: not known.
    pub object_ctime_ns: i64,
    /// Another node was told what it looks like.
    told: Option<Told>,
    /// When it came from another node.
    pub came: Option<Instant>,
    /// What the record had reserved when the surplus was last taken from it.
    pub trimmed_to: i64,
}

#[derive(Clone, Copy, Debug)]
struct Told {
    /// Since when it has been told without a pause.
    since: Instant,
    until: Instant,
}

/// A file that others look at again and again is flushed all the same, after so long.
const TOLD_MAX: Duration = Duration::from_secs(10);

impl Entry {
    /// Another node is told what it looks like, and relies on it for so long.
    pub fn tell(&mut self, now: Instant, holds: Duration) {
        let goes_on = self.told.filter(|told| now < told.until);
        let until = goes_on.map_or(now + holds, |told| told.until.max(now + holds));
        self.told = Some(Told { since: goes_on.map_or(now, |told| told.since), until });
    }

    /// Somebody relies on what he was told: without need it stays as it is.
    pub fn is_told(&self, now: Instant) -> bool {
        self.told.is_some_and(|told| now < told.until && now < told.since + TOLD_MAX)
    }
}

#[derive(Default)]
pub struct Catalogue {
    by_record: HashMap<u32, Entry>,
    by_path: BTreeMap<Vec<u8>, u32>,
    renames: VecDeque<(Vec<u8>, Vec<u8>)>,
}

impl Catalogue {
    /// The record's entry if it is of this use of the record; an entry of an earlier use is forgotten.
    pub fn get(&self, record: u32, serial: u64) -> Option<&Entry> {
        self.by_record.get(&record).filter(|entry| entry.serial == serial)
    }

    /// As `get`, made when it is not there.
    pub fn entry(&mut self, record: u32, serial: u64) -> &mut Entry {
        let mut counted = (false, false);
        if self.by_record.get(&record).is_some_and(|entry| entry.serial != serial)
            && let Some(earlier) = self.remove(record)
        {
            counted = earlier.counted;
        }
        self.by_record.entry(record).or_insert_with(|| Entry {
            serial,
            path: vec![],
            counted,
            since: Instant::now(),
            blocked_by: None,
            failures: 0,
            tries: 0,
            held: false,
            is_forced: false,
            object_ctime_ns: 0,
            told: None,
            came: None,
            trimmed_to: 0,
        })
    }

    pub fn path(&self, record: u32, serial: u64) -> Option<Vec<u8>> {
        self.get(record, serial).map(|entry| entry.path.clone()).filter(|path| !path.is_empty())
    }

    #[cfg(test)]
    fn record_at(&self, path: &[u8]) -> Option<u32> {
        self.by_path.get(path).copied()
    }

    /// The record is now at `path`; what was there before has no name that we know.
    pub fn set_path(&mut self, record: u32, serial: u64, path: &[u8]) {
        let old = std::mem::replace(&mut self.entry(record, serial).path, path.to_vec());
        if !old.is_empty() && self.by_path.get(&old) == Some(&record) {
            self.by_path.remove(&old);
        }
        if path.is_empty() {
            return;
        }
        if let Some(replaced) = self.by_path.insert(path.to_vec(), record)
            && replaced != record
            && let Some(entry) = self.by_record.get_mut(&replaced)
        {
            entry.path.clear();
        }
    }

    /// A directory was renamed: everything below it goes along. The records that went.
    pub fn rename_directory(&mut self, from: &[u8], to: &[u8]) -> Vec<u32> {
        let moved: Vec<(Vec<u8>, u32)> = self.below(from).map(|(path, record)| (path.to_vec(), record)).collect();
        for (path, record) in &moved {
            self.by_path.remove(path);
            let new = [to, &path[from.len()..]].concat();
            if let Some(entry) = self.by_record.get_mut(record) {
                entry.path.clone_from(&new);
            }
            self.by_path.insert(new, *record);
        }
        self.renames.push_back((from.to_vec(), to.to_vec()));
        if self.renames.len() > RENAMES_KEPT {
            self.renames.pop_front();
        }
        moved.into_iter().map(|(_, record)| record).collect()
    }

    /// Where a path may have gone by renames of directories that were told of before it was.
    pub fn after_renames(&self, path: &[u8]) -> Option<Vec<u8>> {
        let mut path = path.to_vec();
        let mut changed = false;
        for (from, to) in &self.renames {
            if path.starts_with(from) && path.get(from.len()) == Some(&b'/') {
                path = [to, &path[from.len()..]].concat();
                changed = true;
            }
        }
        changed.then_some(path)
    }

    /// Paths strictly below a directory.
    pub fn below<'a>(&'a self, directory: &[u8]) -> impl Iterator<Item = (&'a [u8], u32)> + use<'a> {
        let start = [directory, b"/"].concat();
        let prefix = start.clone();
        self.by_path
            .range(start..)
            .take_while(move |(path, _)| path.starts_with(&prefix))
            .map(|(path, record)| (path.as_slice(), *record))
    }

    /// Files of the path's directory, in the order of their names: those after it, and then those before it.
    pub fn beside<'a>(&'a self, path: &[u8]) -> impl Iterator<Item = u32> + use<'a> {
        let end = path.iter().rposition(|&byte| byte == b'/').map_or(0, |slash| slash + 1);
        let (first, past) = (path[..end].to_vec(), after(&path[..end]));
        let before = FilesBetween { catalogue: self, next: first, until: path.to_vec(), directory: end };
        FilesBetween { catalogue: self, next: [path, b"\0"].concat(), until: past, directory: end }.chain(before)
    }

    pub fn remove(&mut self, record: u32) -> Option<Entry> {
        let entry = self.by_record.remove(&record)?;
        if self.by_path.get(&entry.path) == Some(&record) {
            self.by_path.remove(&entry.path);
        }
        Some(entry)
    }

    pub fn iter(&self) -> impl Iterator<Item = (u32, &Entry)> {
        self.by_record.iter().map(|(record, entry)| (*record, entry))
    }

    /// Notes how the record is counted now; the changes of the two counts.
    pub fn recount(&mut self, record: u32, serial: u64, now: (bool, bool)) -> (i64, i64) {
        let entry = self.entry(record, serial);
        let before = std::mem::replace(&mut entry.counted, now);
        (now.0 as i64 - before.0 as i64, now.1 as i64 - before.1 as i64)
    }
}

/// The first text after all that begin with this one, which ends with a slash.
fn after(directory: &[u8]) -> Vec<u8> {
    [directory.strip_suffix(b"/").unwrap_or(directory), b"0"].concat()
}

/// Files of one directory; what lies in others below it is not walked through.
struct FilesBetween<'a> {
    catalogue: &'a Catalogue,
    next: Vec<u8>,
    until: Vec<u8>,
    /// How much of a path is its directory's, with the slash.
    directory: usize,
}

impl Iterator for FilesBetween<'_> {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        while self.next < self.until {
            let (path, record) = self.catalogue.by_path.range(self.next.clone()..self.until.clone()).next()?;
            match path[self.directory..].iter().position(|&byte| byte == b'/') {
                Some(slash) => self.next = after(&path[..self.directory + slash + 1]),
                None => {
                    self.next = [path, &b"\0"[..]].concat();
                    return Some(*record);
                }
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_renamed_directory_takes_its_files_along_and_nothing_else() {
        let mut catalogue = Catalogue::default();
        catalogue.set_path(1, 1, b"/r/d/a");
        catalogue.set_path(2, 2, b"/r/d/e/b");
        catalogue.set_path(3, 3, b"/r/d2/c");
        let mut moved = catalogue.rename_directory(b"/r/d", b"/r/x");
        moved.sort();
        assert_eq!(moved, [1, 2]);
        assert_eq!(catalogue.path(2, 2).unwrap(), b"/r/x/e/b");
        assert_eq!(catalogue.path(3, 3).unwrap(), b"/r/d2/c");
        assert_eq!(catalogue.record_at(b"/r/d/a"), None);
        assert_eq!(catalogue.after_renames(b"/r/d/late").unwrap(), b"/r/x/late");
        assert_eq!(catalogue.after_renames(b"/r/d2/late"), None);
    }

    #[test]
    fn a_name_belongs_to_the_record_that_took_it_last() {
        let mut catalogue = Catalogue::default();
        catalogue.set_path(1, 1, b"/r/a");
        catalogue.set_path(2, 2, b"/r/a");
        assert_eq!(catalogue.path(1, 1), None);
        assert_eq!(catalogue.record_at(b"/r/a"), Some(2));
        catalogue.remove(1);
        assert_eq!(catalogue.record_at(b"/r/a"), Some(2));
    }

    #[test]
    fn what_is_told_all_the_time_is_put_off_for_a_while_only() {
        let (mut catalogue, begin) = (Catalogue::default(), Instant::now());
        let at = |ms| begin + Duration::from_millis(ms);
        let entry = catalogue.entry(1, 1);
        assert!(!entry.is_told(begin));
        let holds = Duration::from_millis(300);
        let put_off = |entry: &mut Entry, ms| {
            entry.tell(at(ms), holds);
            entry.is_told(at(ms + 200))
        };
        assert!((0..9800).step_by(200).all(|ms| put_off(entry, ms)));
        assert!(!put_off(entry, 9_800) && !put_off(entry, 10_000));
        // After a pause it is told anew.
        assert!(put_off(entry, 10_400) && !entry.is_told(at(10_700)));
    }

    #[test]
    fn beside_a_file_are_those_of_its_directory_from_its_name_on() {
        let mut catalogue = Catalogue::default();
        let paths = [
            "/r/a",
            "/r/d/1",
            "/r/d/2",
            "/r/d/3",
            "/r/d/3/x",
            "/r/d/3.5/y",
            "/r/d/4",
            "/r/d/e/f/z",
            "/r/d/f",
            "/r/d0",
            "/r/e",
        ];
        for (number, path) in paths.iter().enumerate() {
            catalogue.set_path(number as u32, 1, path.as_bytes());
        }
        let beside =
            |path: &str| catalogue.beside(path.as_bytes()).map(|number| paths[number as usize]).collect::<Vec<_>>();
        assert_eq!(beside("/r/d/3"), ["/r/d/4", "/r/d/f", "/r/d/1", "/r/d/2"]);
        assert_eq!(beside("/r/d/none"), ["/r/d/1", "/r/d/2", "/r/d/3", "/r/d/4", "/r/d/f"]);
        assert_eq!(beside("/r/a"), ["/r/d0", "/r/e"]);
        assert_eq!(beside("/r/d/e/f/z"), [""; 0]);
    }

    #[test]
    fn an_earlier_use_of_a_record_is_forgotten() {
        let mut catalogue = Catalogue::default();
        catalogue.set_path(1, 1, b"/r/a");
        assert_eq!(catalogue.recount(1, 1, (true, true)), (1, 1));
        assert_eq!(catalogue.path(1, 9), None);
        catalogue.set_path(1, 9, b"/r/b");
        assert_eq!(catalogue.record_at(b"/r/a"), None);
    }
}
