//! Regions that have left the log of their array before they were sent a way: written down, one file for each way and array.
//!
//! Invariant: a region is in its file before it leaves the log, and until the target has it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::{Result, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use terrace_core::objects::{Region, key_of_name};

#[derive(Default)]
pub struct Unsent {
    directory: PathBuf,
    by_way: Mutex<BTreeMap<(u64, String), VecDeque<Region>>>,
}

impl Unsent {
    /// Reads what an earlier agent has left.
    pub fn open(directory: &Path) -> Unsent {
        let mut by_way: BTreeMap<(u64, String), VecDeque<Region>> = BTreeMap::new();
        for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let way = name.to_str().and_then(|name| u64::from_str_radix(name.split_once('-')?.0, 16).ok());
            let (Some(way), Ok(text)) = (way, std::fs::read_to_string(entry.path())) else { continue };
            // A line that was cut off by a kill is the last one, and its region is still in the log.
            let whole = text.rfind('\n').map_or(0, |end| end + 1);
            if whole < text.len() {
                let _ = std::fs::write(entry.path(), &text[..whole]);
            }
            let mut lines = text[..whole].lines();
            let Some(Ok(array)) = lines.next().map(serde_json::from_str::<String>) else { continue };
            let regions = lines.map_while(|line| serde_json::from_str::<Region>(line).ok());
            by_way.insert((way, array), regions.collect());
        }
        Unsent { directory: directory.into(), by_way: Mutex::new(by_way) }
    }

    fn file(&self, way: u64, array: &str) -> PathBuf {
        self.directory.join(format!("{way:016x}-{:016x}", key_of_name(array)))
    }

    pub fn add(&self, way: u64, array: &str, regions: Vec<Region>) -> Result<()> {
        let mut by_way = self.by_way.lock().unwrap();
        let path = self.file(way, array);
        let is_new = !path.exists();
        let mut text = String::new();
        if is_new {
            text = serde_json::to_string(array)? + "\n";
        }
        for region in &regions {
            text += &serde_json::to_string(region)?;
            text.push('\n');
        }
        let open = || std::fs::OpenOptions::new().append(true).create(true).mode(0o600).open(&path);
        let mut file = match open() {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                std::fs::create_dir_all(&self.directory)?;
                open()?
            }
            opened => opened?,
        };
        file.write_all(text.as_bytes())?;
        file.sync_data()?;
        by_way.entry((way, array.into())).or_default().extend(regions);
        Ok(())
    }

    pub fn count(&self, way: u64, array: &str) -> usize {
        self.by_way.lock().unwrap().get(&(way, array.to_owned())).map_or(0, VecDeque::len)
    }

    pub fn get(&self, way: u64, array: &str, number: usize) -> Option<Region> {
        self.by_way.lock().unwrap().get(&(way, array.to_owned()))?.get(number).copied()
    }

    /// All regions of an array that wait to be sent a way.
    pub fn all(&self, way: u64, array: &str) -> Vec<Region> {
        let by_way = self.by_way.lock().unwrap();
        by_way.get(&(way, array.to_owned())).into_iter().flatten().copied().collect()
    }

    /// The oldest has arrived. An agent that is killed now sends it again, as it is then.
    pub fn arrived(&self, way: u64, array: &str) {
        let mut by_way = self.by_way.lock().unwrap();
        let key = (way, array.to_owned());
        let Some(regions) = by_way.get_mut(&key) else { return };
        regions.pop_front();
        if regions.is_empty() {
            by_way.remove(&key);
            let _ = std::fs::remove_file(self.file(way, array));
        }
    }

    /// The array is not there any more.
    pub fn forget(&self, way: u64, array: &str) {
        self.by_way.lock().unwrap().remove(&(way, array.to_owned()));
        let _ = std::fs::remove_file(self.file(way, array));
    }

    /// Arrays that have some.
    pub fn names(&self) -> BTreeSet<String> {
        self.by_way.lock().unwrap().keys().map(|(_, array)| array.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_cut_and_has_not_arrived_is_found_by_the_next_agent() {
        let place = tempfile::tempdir().unwrap();
        let directory = place.path().join("forwards");
        let region = |step| Region::block(&[step, 0], &[1, 5]).unwrap();
        let unsent = Unsent::open(&directory);
        unsent.add(7, "run/p", vec![region(0), region(1)]).unwrap();
        unsent.add(7, "run/p", vec![region(2)]).unwrap();
        unsent.add(9, "run/p", vec![region(0)]).unwrap();
        unsent.arrived(9, "run/p");
        unsent.arrived(7, "run/p");
        let found = Unsent::open(&directory);
        assert_eq!(found.count(9, "run/p"), 0);
        // One that has arrived may be sent again; none is lost.
        assert_eq!(found.all(7, "run/p"), [region(0), region(1), region(2)]);
        (0..3).for_each(|_| found.arrived(7, "run/p"));
        assert!(Unsent::open(&directory).names().is_empty());
    }

    #[test]
    fn a_line_that_was_cut_off_is_left_out() {
        let place = tempfile::tempdir().unwrap();
        let unsent = Unsent::open(place.path());
        unsent.add(1, "a", vec![Region::block(&[3], &[4]).unwrap()]).unwrap();
        let path = unsent.file(1, "a");
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, format!("{text}[[1],[")).unwrap();
        assert_eq!(Unsent::open(place.path()).count(1, "a"), 1);
    }
}
