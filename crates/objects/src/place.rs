//! A root's shared index, mapped, and this process's slot in it.
//!
//! The slot is claimed anew after a fork: a counter that a fork handler raises tells that the process is another one. Nothing
//! here is locked, so a child of a process with many threads may go on.

use crate::calls;
use crate::failure::Context;
use rustix::fs::{Mode, OFlags};
use rustix::mm::{MapFlags, ProtFlags};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Once;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering::*};
use terrace_core::objects::{Kind, ObjectError, Result};
use terrace_index::guard::Domain;
use terrace_index::{INDEX_BYTES, Index, MAGIC, PRIVATE_DIR};

pub struct Place {
    index: Index,
    index_path: PathBuf,
    index_ino: u64,
    root: PathBuf,
    /// (generation of forks) << 32 | slot + 1
    slot: AtomicU64,
}

static FORKS: AtomicU32 = AtomicU32::new(0);
static WATCH_FORKS: Once = Once::new();

extern "C" fn on_fork() {
    FORKS.fetch_add(1, SeqCst);
}

/// Indices that this process has mapped. A mapping stays, so who opens a place again and again gets the same one; a file that is
/// mapped keeps its inode, so another one is another index.
struct KnownMapping {
    /// 0: free; 1: being written.
    base: AtomicUsize,
    device: AtomicU64,
    inode: AtomicU64,
}

static KNOWN: [KnownMapping; 64] =
    [const { KnownMapping { base: AtomicUsize::new(0), device: AtomicU64::new(0), inode: AtomicU64::new(0) } }; 64];

fn known_mapping((device, inode): (u64, u64)) -> Option<usize> {
    KNOWN.iter().find_map(|known| {
        let base = known.base.load(Acquire);
        let is_it = base > 1 && known.device.load(Relaxed) == device && known.inode.load(Relaxed) == inode;
        is_it.then_some(base)
    })
}

/// Where all places are taken, nothing is remembered, and the next one maps it anew.
fn remember_mapping((device, inode): (u64, u64), base: usize) {
    if let Some(known) = KNOWN.iter().find(|known| known.base.compare_exchange(0, 1, AcqRel, Relaxed).is_ok()) {
        known.device.store(device, Relaxed);
        known.inode.store(inode, Relaxed);
        known.base.store(base, Release);
    }
}

/// How often this process's line of ancestors has forked since the engine was first used: state that must not be shared by
/// parent and child is tagged with it.
pub fn fork_generation() -> u32 {
    WATCH_FORKS.call_once(|| {
        // SAFETY: the handler only raises an atomic.
        unsafe { libc::pthread_atfork(None, None, Some(on_fork)) };
    });
    FORKS.load(Relaxed)
}

impl Place {
    /// Maps the index of an agent that serves, or served a moment ago.
    pub fn open(index_path: &Path) -> Result<Place> {
        fork_generation();
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = calls::open(index_path, flags, Mode::empty()).context("open the index", index_path)?;
        let stat = calls::fstat(&fd).context("look at the index", index_path)?;
        let unusable = |reason: &str| {
            ObjectError::new(Kind::Protocol, format!("the index {} can't be used: {reason}", index_path.display()))
        };
        if stat.st_size as usize != INDEX_BYTES {
            return Err(unusable("it is of another version of Terrace"));
        }
        if stat.st_uid != rustix::process::geteuid().as_raw() && !rustix::process::geteuid().is_root() {
            return Err(ObjectError::new(Kind::Denied, format!("{} belongs to another user", index_path.display())));
        }
        let key = (stat.st_dev, stat.st_ino);
        let known = known_mapping(key);
        let base = match known {
            Some(base) => base,
            None => {
                let flags = MapFlags::SHARED | MapFlags::NORESERVE;
                // SAFETY: a new mapping of a file of this size, never unmapped (below only if nobody has seen it).
                unsafe {
                    rustix::mm::mmap(
                        std::ptr::null_mut(),
                        INDEX_BYTES,
                        ProtFlags::READ | ProtFlags::WRITE,
                        flags,
                        &fd,
                        0,
                    )
                }
                .context("map", index_path)? as usize
            }
        };
        // SAFETY: page-aligned, of the right length, and kept.
        let index = unsafe { Index::from_mapping(base as *const u8) };
        if index.header.magic.load(Acquire) != MAGIC {
            if known.is_none() {
                // SAFETY: `index` is not used after this.
                let _ = unsafe { rustix::mm::munmap(base as *mut _, INDEX_BYTES) };
            }
            return Err(unusable("its agent has left, or is of another version"));
        }
        if known.is_none() {
            remember_mapping(key, base);
        }
        let root = PathBuf::from(OsStr::from_bytes(index.header.root.get()));
        Ok(Place { index, index_path: index_path.into(), index_ino: stat.st_ino, root, slot: AtomicU64::new(0) })
    }

    /// The agent's own: it has mapped the index already.
    pub fn of(index: Index, index_path: &Path) -> Place {
        fork_generation();
        let index_ino = calls::lstat(index_path).map_or(0, |found| found.st_ino);
        let root = PathBuf::from(OsStr::from_bytes(index.header.root.get()));
        Place { index, index_path: index_path.into(), index_ino, root, slot: AtomicU64::new(0) }
    }

    pub fn index(&self) -> Index {
        self.index
    }
    pub fn root(&self) -> &Path {
        &self.root
    }
    pub fn index_path(&self) -> &Path {
        &self.index_path
    }

    /// The agent's number, where a root has several.
    pub fn member(&self) -> Option<u32> {
        let runtime = self.index_path.parent()?.file_name()?.to_str()?;
        terrace_core::members::number_of(runtime)
    }

    /// Our directory in the root.
    pub fn private(&self) -> PathBuf {
        let tag = terrace_core::nodes::new_tag(self.index.header.node.load(Acquire) as u64);
        self.root.join(terrace_core::nodes::private(PRIVATE_DIR, Some(&tag)))
    }

    /// Runs `work` while no other agent of the root does the same.
    pub fn alone<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        if self.member().is_none() {
            return work();
        }
        let path = terrace_core::members::directory(&self.root, PRIVATE_DIR).join("turn");
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC;
        let file = match rustix::fs::open(&path, flags, Mode::RUSR | Mode::WUSR) {
            // The others have left, and taken along what all used.
            Err(rustix::io::Errno::NOENT) => return work(),
            file => file.context("open", &path)?,
        };
        rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive).context("lock", &path)?;
        work()
    }

    /// The index file is still the one that is mapped: no other agent made a new one.
    pub fn is_in_use(&self) -> bool {
        self.index.header.magic.load(Acquire) == MAGIC
            && calls::lstat(&self.index_path).is_ok_and(|found| found.st_ino == self.index_ino)
    }

    fn process_slot(&self) -> u32 {
        let generation = fork_generation() as u64;
        let held = self.slot.load(Acquire);
        if held != 0 && held >> 32 == generation {
            return held as u32 - 1;
        }
        // The preload library in this process may have one already: the guards of both add up in it.
        let pid = std::process::id();
        let shared = self.index.processes.iter().position(|process| process.pid.load(Acquire) == pid);
        let slot = shared.map_or_else(|| self.index.claim_process(pid, is_dead), |slot| slot as u32);
        self.slot.store(generation << 32 | (slot as u64 + 1), Release);
        slot
    }

    /// Runs `work` inside a guard: the agent changes no record's state from not busy to moved or committed meanwhile.
    pub fn guarded<T>(&self, domain: Domain, work: impl FnOnce() -> T) -> T {
        let entered = self.index.guard_enter(self.process_slot(), domain);
        let result = work();
        self.index.guard_leave(entered);
        result
    }
}

pub fn is_dead(pid: u32) -> bool {
    match rustix::process::Pid::from_raw(pid as i32) {
        Some(pid) => rustix::process::test_kill_process(pid) == Err(rustix::io::Errno::SRCH),
        None => true,
    }
}

pub fn sleep_us(microseconds: u64) {
    std::thread::sleep(std::time::Duration::from_micros(microseconds));
}

/// 64 random bits.
pub fn random() -> u64 {
    let mut bytes = [0u8; 8];
    let got = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    assert_eq!(got, Ok(8), "the kernel has random numbers from early boot on");
    u64::from_le_bytes(bytes)
}

/// An object's name: relative to the root, or absolute below it; without `.`, `..` and our own directory. The root is "".
pub fn normal_path(root: &Path, name: &str) -> Result<PathBuf> {
    let bad = |reason: &str| {
        Err(ObjectError::invalid(format!("`{}` is not an object's name: {reason}", name.escape_debug()))
            .hint(format!("names are paths below {}", root.display())))
    };
    let path = Path::new(name);
    let relative = match path.strip_prefix(root) {
        Ok(relative) => relative,
        Err(_) if path.is_absolute() => return bad("it is not below the root"),
        Err(_) => path,
    };
    let mut clean = PathBuf::new();
    for component in relative.components() {
        match component {
            Component::Normal(part) if part.len() > 255 => return bad("a part of it is longer than 255 bytes"),
            Component::Normal(part) => clean.push(part),
            Component::CurDir => {}
            _ => return bad("`..` has no meaning in it"),
        }
    }
    if clean.starts_with(PRIVATE_DIR) {
        return bad("that directory is Terrace's own");
    }
    if name.contains('\0') || root.as_os_str().len() + clean.as_os_str().len() + 32 > terrace_index::PATH_MAX {
        return bad("it is too long, or has a zero byte");
    }
    Ok(clean)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_a_path_below_the_root_and_nothing_else() {
        let root = Path::new("/data/study");
        let normal = |name: &str| normal_path(root, name).map(|path| path.display().to_string()).ok();
        assert_eq!(normal("a/b").as_deref(), Some("a/b"));
        assert_eq!(normal("./a//b/").as_deref(), Some("a/b"));
        assert_eq!(normal("/data/study/x").as_deref(), Some("x"));
        assert_eq!(normal("").as_deref(), Some(""));
        for bad in ["/data/other", "../x", "a/../../x", ".terrace/tmp/x", "a\0b"] {
            assert_eq!(normal(bad), None, "{bad}");
        }
    }
}
