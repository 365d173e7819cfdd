//! What the faster tiers give, measured for `--report`: a file without a name is written and read in each of them.
//!
//! Programs' own reads and writes are the kernel's, and nobody has timed them. The durable tier is not measured so: its bandwidth is
//! that of the run's flushes, and a moment of a shared file system says little.

use serde::Serialize;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};
use terrace_core::control::TierStatus;
use terrace_tool::filesystem::FileSystem;

const PIECE: usize = 1 << 20;
const PIECES_MAX: u64 = 64;
/// So much of the free space at most.
const PART_OF_FREE: u64 = 4;
const PATIENCE: Duration = Duration::from_millis(200);

/// Bytes a second.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Bandwidth {
    pub tier: String,
    pub in_memory: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_bytes_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub write_bytes_s: Option<f64>,
    pub measured_by: &'static str,
}

/// Of each tier whose directory takes files without names and has room.
pub fn of_fast_tiers(tiers: &[TierStatus]) -> Vec<Bandwidth> {
    let fast = tiers.iter().filter(|tier| !tier.durable);
    fast.filter_map(|tier| of_directory(&tier.name, tier.paths.first()?).ok()).collect()
}

fn of_directory(tier: &str, directory: &Path) -> io::Result<Bandwidth> {
    let filesystem = rustix::fs::statvfs(directory)?;
    let pieces = (filesystem.f_bavail * filesystem.f_frsize / PART_OF_FREE / PIECE as u64).min(PIECES_MAX);
    let file = File::options()
        .read(true)
        .write(true)
        .custom_flags(libc::O_TMPFILE | libc::O_CLOEXEC)
        .mode(0o600)
        .open(directory)?;
    let mut piece = vec![0x5a; PIECE];
    let (write_bytes_s, written) = rate(pieces, |offset| file.write_all_at(&piece, offset))?;
    let (read_bytes_s, _) = rate(written, |offset| file.read_exact_at(&mut piece, offset))?;
    Ok(Bandwidth {
        tier: tier.to_owned(),
        in_memory: FileSystem::of(directory).is_ok_and(|filesystem| filesystem.is_memory()),
        read_bytes_s: Some(read_bytes_s),
        write_bytes_s: Some(write_bytes_s),
        measured_by: "one process at the run's end, in pieces of 1 MiB, through the page cache",
    })
}

/// Bytes a second, and how many pieces there were time for.
fn rate(pieces: u64, mut work: impl FnMut(u64) -> io::Result<()>) -> io::Result<(f64, u64)> {
    let begun = Instant::now();
    let mut done = 0;
    while done < pieces && begun.elapsed() < PATIENCE {
        work(done * PIECE as u64)?;
        done += 1;
    }
    match done {
        0 => Err(io::ErrorKind::StorageFull.into()),
        done => Ok(((done * PIECE as u64) as f64 / begun.elapsed().as_secs_f64().max(1e-9), done)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_faster_tier_has_a_bandwidth_and_nothing_is_left_of_the_measurement() {
        let place = tempfile::tempdir_in("/dev/shm").unwrap();
        let tier = |name: &str, path: &Path, durable| TierStatus {
            name: name.into(),
            paths: vec![path.into()],
            durable,
            ..TierStatus::default()
        };
        let gone = place.path().join("gone");
        let tiers = [tier("ram", place.path(), false), tier("gone", &gone, false), tier("root", place.path(), true)];
        let found = of_fast_tiers(&tiers);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].tier == "ram" && found[0].in_memory, "{found:?}");
        assert!(found[0].read_bytes_s > Some(0.0) && found[0].write_bytes_s > Some(0.0), "{found:?}");
        assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 0);
    }
}
