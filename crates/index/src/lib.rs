//! The shared memory between an agent and the programs of its runs.
//!
//!   header │ processes │ records │ filter │ table │ ring
//!
//! One file, made by the agent, mapped by every program under `terrace run`. Look-ups cost no message; a new file
//! costs none either: the program takes a record, fills it, and publishes its name through the ring.
//!
//! Invariant: nothing here is ever locked. A program may be killed between any two stores, so each structure is
//! either lock-free or owned by a process that others can see to be dead.
//! Reason: hooks run inside `malloc`, between `fork` and `exec`, and in signal handlers of programs we don't know.
//!
//! The file is sparse: a page that nobody touched takes no memory. All zeroes is the valid empty state.
#![cfg_attr(not(test), no_std)]

pub mod calls;
pub mod climbing;
pub mod guard;
pub mod habits;
pub mod proxy;
pub mod reads;
pub mod ring;
pub mod table;

use core::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering::*};

pub const MAGIC: u64 = u64::from_le_bytes(*b"terrace7");
/// What the library and the programs that share its memory must agree on: the version, and the source of this crate.
pub const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "+", env!("TERRACE_LAYOUT"));
/// Name of the library's symbol that has `VERSION` as its bytes.
pub const VERSION_SYMBOL: &str = "terrace_library_version";
pub const PATH_MAX: usize = 4096;
pub const DEVICES: usize = 16;
pub const ALIASES: usize = 4;
pub const RECORDS: usize = 1 << 20;
pub const TABLE_SLOTS: usize = 1 << 22;
pub const FILTER_WORDS: usize = 1 << 16;
pub const RING_SLOTS: usize = 4096;
pub const PROCESSES: usize = 4096;
/// Characters of an object's name: 20 bits of record number and 64 random bits, 6 in each character. Short, because ext4 keeps
/// a link's text of up to 59 bytes in the inode, and takes a block of its own for a longer one: to free that costs up to
/// a millisecond at each removal and each flush.
pub const NAME_LEN: usize = 14;
const _: () = assert!(RECORDS <= 1 << 20 && NAME_LEN * 6 == 20 + 64);
/// An old description whose file was moved live is marked by this offset plus a token (below ext4's 16 TiB limit).
pub const OFFSET_TOKEN_BASE: i64 = 1 << 43;
/// What follows an object's name where the object is a directory. The name is a directory's too, with nothing else in it: who goes up
/// from the placed directory without us (a static program, a shell outside of the run) finds no other object there.
pub const DIRECTORY_SUFFIX: &str = "/d";
/// Where files of placed directories go that their tier has no room for: below an object directory of a lower tier.
pub const SPILLS: &str = "spill/";
/// Added to `st_ino` of what lies in a placed directory, by its device: the root has inodes of the same numbers.
pub const INSIDE_BASE: u64 = 1 << 44;
/// `st_ino` of files born in a tier: above what file systems here give out, below 2^53 (JavaScript, awk).
pub const INO_BASE: u64 = 1 << 52;
/// So many serial numbers lie between two indexes' `st_ino`.
pub const INO_SERIALS: u64 = 1 << 32;
/// The name of the directory below the root that is ours; directory listings leave it out.
pub const PRIVATE_DIR: &str = ".terrace";
/// In it, files that come from an object store and are not whole: they lie in tiers and are flushed as any file of the root, and no listing
/// shows them.
pub const ARRIVING_DIR: &str = "arriving";

/// This path, relative to the root, is Terrace's own: nothing there is placed.
pub fn is_private(relative: &[u8]) -> bool {
    let Some(inside) = relative.strip_prefix(PRIVATE_DIR.as_bytes()) else { return false };
    let is_or_in = |rest: &[u8]| rest.is_empty() || rest[0] == b'/';
    let arriving =
        || inside.get(1..).and_then(|inside| inside.strip_prefix(ARRIVING_DIR.as_bytes())).is_some_and(is_or_in);
    is_or_in(inside) && !arriving()
}
/// Where the library puts a page with nothing but `syscall; ret`, so that the supervisor's filter knows its calls by their
/// address. Far from where Linux, Go, Java and the sanitizers put anything.
pub const GATE: usize = 0x6720_0000_0000;
/// The option of prctl(2) by which the library asks whether it is under the supervisor's filter, and the error number that the
/// filter answers with (EBADE). A kernel knows no such option, and says EINVAL.
pub const SERVED_QUESTION: u32 = u32::from_be_bytes(*b"trrc");
pub const SERVED_ANSWER: i32 = 52;
/// Environment variable with the path of the index file; set by `terrace run`, kept across exec by the library.
pub const INDEX_ENV: &str = "TERRACE_INDEX";

/// A path stored inline; `len` is published last.
#[repr(C)]
pub struct PathText {
    len: AtomicU32,
    _pad: u32,
    bytes: core::cell::UnsafeCell<[u8; PATH_MAX]>,
}

// SAFETY: written by the agent before the index is handed to any program, read-only afterwards.
unsafe impl Sync for PathText {}

impl PathText {
    pub fn get(&self) -> &[u8] {
        let len = (self.len.load(Acquire) as usize).min(PATH_MAX);
        // SAFETY: `len` was stored after the bytes, which never change again.
        unsafe { &(&*self.bytes.get())[..len] }
    }
    /// Called by the agent only, before it publishes the index.
    pub fn set(&self, path: &[u8]) {
        assert!(path.len() < PATH_MAX, "paths are checked when settings are read");
        // SAFETY: the agent is the only writer and has not published the index yet.
        unsafe { (&mut *self.bytes.get())[..path.len()].copy_from_slice(path) };
        self.len.store(path.len() as u32, Release);
    }
}

/// One directory of one tier. Several devices with the same `tier` are one tier.
#[repr(C)]
pub struct Device {
    /// 0 is the fastest tier.
    pub tier: AtomicU32,
    /// 1 while new files may be placed here; the agent clears it when the device is full or sick.
    pub accepts: AtomicU32,
    /// `st_dev` of the object directory.
    pub dev: AtomicU64,
    /// Bytes that may be used: the configured share, lowered by the agent to what the file system really has left, less the reserve.
    pub capacity: AtomicI64,
    /// Bytes reserved by records (shared by all processes).
    pub used: AtomicI64,
    /// Most bytes that one reservation takes.
    pub grant_max: AtomicI64,
    /// Of the used ones: bytes of spilled files.
    pub spilled: AtomicI64,
    _pad: [u64; 2],
    /// The object directory, with a trailing slash: link text = this + object name.
    pub dir: PathText,
}

impl Device {
    pub fn free(&self) -> i64 {
        self.capacity.load(Relaxed) - self.used.load(Relaxed)
    }
    /// Takes `bytes` if they fit. Never takes part of them.
    pub fn reserve(&self, bytes: i64) -> bool {
        let mut used = self.used.load(Relaxed);
        loop {
            if used + bytes > self.capacity.load(Relaxed) {
                return false;
            }
            match self.used.compare_exchange_weak(used, used + bytes, AcqRel, Relaxed) {
                Ok(_) => return true,
                Err(now) => used = now,
            }
        }
    }
    pub fn unreserve(&self, bytes: i64) {
        self.used.fetch_sub(bytes, AcqRel);
    }
}

/// Where a file of a placed directory lies, if not in that.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Spill {
    /// In a lower tier.
    Device(usize),
    /// In the root's file system.
    Root,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum State {
    Free = 0,
    New = 1,
    Current = 2,
    Clean = 3,
    Durable = 4,
    Moving = 5,
    Moved = 6,
    Dead = 7,
    Committing = 8,
    /// A placed directory: in the root a link, in the tier a directory.
    Directory = 9,
}

impl State {
    pub fn of(value: u32) -> State {
        match value {
            1 => State::New,
            2 => State::Current,
            3 => State::Clean,
            4 => State::Durable,
            5 => State::Moving,
            6 => State::Moved,
            7 => State::Dead,
            8 => State::Committing,
            9 => State::Directory,
            _ => State::Free,
        }
    }
    /// The agent is in a critical section of this record: leave the guard, wait, look again.
    pub fn is_busy(self) -> bool {
        matches!(self, State::Moving | State::Committing)
    }
}

/// A file that has reserved so much is told of: a copy of it can begin while it is still being written.
pub const GROWN_BYTES: i64 = 8 << 20;

/// Set once a program mapped the object shared, or has it open for writing without the library: its descriptors can't be
/// exchanged, so it never moves live.
pub const FLAG_MAPPED: u32 = 1;
/// A directory's record, while the agent renames in it: programs see the times that are noted.
pub const FLAG_RENAMING: u32 = 2;
/// The agent has been told to look how the object grows, and still does.
pub const FLAG_WATCHED: u32 = 8;
/// A durable file's last name is gone: a file with a name and this inode number is another.
pub const FLAG_UNLINKED: u32 = 4;

/// A file of a placed directory, or a spilled one, that had no record before it moved.
pub const FLAG_UNRECORDED: u32 = 16;
/// Of such a record: the spilled file has the name.
pub const FLAG_NAMED: u32 = 32;
/// The record of a spilled file's new place, on its device.
pub const FLAG_SPILLED: u32 = 64;
/// The same, in the root.
pub const FLAG_SPILLED_ROOT: u32 = 128;

/// What its program's habit is to learn of the file has been told.
pub const FLAG_LEARNT: u32 = 256;

/// One placed file; 128 bytes.
#[repr(C)]
pub struct Record {
    /// 0: free. Grows with every use of the record, so a stale reader can tell.
    pub serial: AtomicU64,
    /// The random half of the object's name; a link whose text doesn't match is stale.
    pub random: AtomicU64,
    state: AtomicU32,
    /// Index into `Header::devices`.
    pub device: AtomicU32,
    pub flags: AtomicU32,
    /// Seconds since the agent's start when it was last opened (LRU).
    pub used_at: AtomicU32,
    /// Inode of the object on its device.
    pub object_ino: AtomicU64,
    /// `st_ino` that programs see, whatever tier the file is in.
    pub ino: AtomicU64,
    /// Bytes taken from the device for this file.
    pub reserved: AtomicI64,
    /// `Clean`, `Durable`: the root's file as it was when it was equal to the object. A difference means that it was changed.
    pub durable_ino: AtomicU64,
    pub durable_size: AtomicU64,
    pub durable_mtime_ns: AtomicI64,
    pub durable_ctime_ns: AtomicI64,
    /// `st_ctime` that programs see while the root's file is unchanged.
    pub ctime_ns: AtomicI64,
    /// `Moved`: the record (plus 1) that has the bytes now.
    pub moved_to: AtomicU32,
    /// Next record (plus 1) of the free list.
    next_free: AtomicU32,
    /// Inode of the link in the root, 0 until the agent looked; for directory listings.
    pub link_ino: AtomicU64,
    /// When the root's file was made, if programs are awaited with descriptors of an object that it took the place of: an inode number alone
    /// may be another file's by now. 0: not known.
    pub durable_birth_ns: AtomicI64,
    /// By which habit of a program it was made (`habits::Key`); 0: by none.
    pub habit: AtomicU32,
    /// How often it was opened for reading, if it was made by a habit.
    pub opens: AtomicU32,
}

impl Record {
    pub fn state(&self) -> State {
        State::of(self.state.load(SeqCst))
    }
    pub fn set_state(&self, state: State) {
        self.state.store(state as u32, SeqCst);
    }
    pub fn change_state(&self, from: State, to: State) -> bool {
        self.state.compare_exchange(from as u32, to as u32, SeqCst, SeqCst).is_ok()
    }
}

/// What every program needs to know; counters at the end are for the run's report.
#[repr(C)]
pub struct Header {
    /// `MAGIC`, stored last by the agent.
    pub magic: AtomicU64,
    pub agent_pid: AtomicU32,
    pub device_count: AtomicU32,
    pub root_dev: AtomicU64,
    pub root_ino: AtomicU64,
    /// Seconds since the agent's start; the library stamps records with it.
    pub now: AtomicU32,
    /// Programs may place new files (cleared while the agent shuts down).
    pub accepts: AtomicU32,
    pub next_serial: AtomicU64,
    /// Records handed out so far from the never-used end of the array.
    next_record: AtomicU32,
    /// 1: another node holds what it was told of files here. Who changes one of them has that called back (`CallKind::Break`).
    pub promised: AtomicU32,
    /// Free list head: (tag << 32) | (record + 1).
    free_head: AtomicU64,
    /// Grows when any object starts to move live. 0: no descriptor can be stale.
    pub moves_seq: AtomicU64,
    /// Grows when any object was unlinked by the agent: a path that said ENOENT is worth a second look. Also when a file of
    /// the root was replaced by a link: an open that waited meanwhile may have the old file.
    pub evictions_seq: AtomicU64,
    /// Records in state `Clean`: when 0, opening a durable file needs no look at the table.
    pub clean_count: AtomicI64,
    /// Records in state `Clean` or `Durable`: when 0, `stat` of a durable file needs no look at the table.
    pub durable_count: AtomicI64,
    /// Commits in progress, and directory renames that wait for them to pass (see `guard::dir_rename`).
    pub committing: AtomicU32,
    pub dir_renames: AtomicU32,
    /// Directories renamed so far: canonical paths remembered before are worthless.
    pub dir_renamed: AtomicU32,
    /// Grows, while there are placed directories, when a name may have come to lead to another directory: what was remembered before of
    /// where directories are is worthless.
    pub ways: AtomicU32,
    pub epoch: [AtomicU32; 2],
    // Counters for the report.
    pub opens_tier: AtomicU64,
    pub opens_durable: AtomicU64,
    pub creates_tier: AtomicU64,
    pub creates_durable: AtomicU64,
    /// Of these: small files, by a habit.
    pub creates_small: AtomicU64,
    pub fallbacks: AtomicU64,
    /// 1 while the agent sleeps: a program that fills the ring stores 0 and wakes it (a futex).
    pub bell: AtomicU32,
    /// When a program last read on in a listing, by `listing_time`: no commit begins for a moment. 0: a name
    /// that a commit gives to another file stays where it is in the root's listings, so nobody needs to know.
    pub listed_at: AtomicU32,
    /// 1: a file system that was asked for a rename that replaces nothing (RENAME_NOREPLACE) does not know it.
    pub refuses_noreplace: AtomicU32,
    /// 1: the root's server may know nothing any more (ESTALE) of a file or link that has lost its last name.
    pub forgets_removed: AtomicU32,
    /// Bytes that all devices together may hold; 0: no quota.
    pub quota: AtomicI64,
    /// Grows when a commit begins: the inodes of names that were read before may be other files' since.
    pub commits_seq: AtomicU64,
    /// Grows before a link's name is taken away (as `commits_seq`), and between the end of a name and the end of its object:
    /// whom a link led nowhere while this stood still has not lost a race.
    pub removals_seq: AtomicU64,
    /// This node's tag, as a number.
    pub node: AtomicU32,
    /// Other nodes that are registered at the root: while there are none, nobody looks for links of theirs.
    pub others: AtomicU32,
    /// Placed directories that are there: while there are none, no path is looked at for `..`.
    pub directories: AtomicI64,
    /// 1: a directory that a program makes may be placed, so the agent is asked.
    pub places_directories: AtomicU32,
    /// 1: by another setting (`directories = "all"`) it might be placed, which would gain something: such directories are counted.
    pub counts_directories: AtomicU32,
    pub unplaced_directories: AtomicU64,
    /// 1: files of placed directories may be spilled. While it is 0 nobody looks for links in them.
    pub spilling: AtomicU32,
    /// 1: programs' habits of making small files are learnt, and the root has room for these.
    pub learning: AtomicU32,
    /// 1: small files were made or written in the root by a habit.
    pub small_in_root: AtomicU32,
    /// What this index adds to the `st_ino` that it gives: a file keeps its number when it goes to another node, where it must be nobody
    /// else's. Below `INO_BASE`, a multiple of `INO_SERIALS`.
    pub inode_salt: AtomicU64,
    pub root: PathText,
    pub alias_count: AtomicU32,
    /// 1: there may be staged arrays below the root, where none is looked for before.
    pub stages_in_root: AtomicU32,
    /// Other spellings of the root that programs may use (the unresolved path given by the user, `$PWD`).
    pub aliases: [PathText; ALIASES],
    pub call_socket: PathText,
    /// Path of the preload library, for exec in a scrubbed environment.
    pub library: PathText,
    pub index_path: PathText,
    /// Where files are spilled that no tier has room for, with a trailing slash.
    pub spills: PathText,
    pub devices: [Device; DEVICES],
}

#[repr(C)]
pub struct Layout {
    pub header: Header,
    pub processes: [guard::Process; PROCESSES],
    pub records: [Record; RECORDS],
    /// One bit for each key that was ever put into the table.
    pub filter: [AtomicU64; FILTER_WORDS],
    pub table: [table::Slot; TABLE_SLOTS],
    pub reads: reads::Reads,
    pub habits: habits::Habits,
    pub ring: ring::Ring,
}

/// Bytes of the index file.
pub const INDEX_BYTES: usize = core::mem::size_of::<Layout>();

/// A mapped index. Copy it freely; it lives as long as the process.
#[derive(Clone, Copy)]
pub struct Index(&'static Layout);

impl core::ops::Deref for Index {
    type Target = Layout;
    fn deref(&self) -> &Layout {
        self.0
    }
}

impl Index {
    /// # Safety
    /// `base` must be the page-aligned start of a shared mapping of `INDEX_BYTES` bytes that is never unmapped.
    pub unsafe fn from_mapping(base: *const u8) -> Index {
        // SAFETY: as the caller promised; all fields are atomics or written before publication.
        Index(unsafe { &*(base as *const Layout) })
    }

    pub fn devices(&self) -> &[Device] {
        let count = (self.header.device_count.load(Acquire) as usize).min(DEVICES);
        &self.header.devices[..count]
    }

    /// Takes `bytes` of the device if they fit there and in the quota. (A device's capacity follows the quota too, but only as
    /// often as the agent looks.)
    pub fn reserve(&self, device: usize, bytes: i64) -> bool {
        let quota = self.header.quota.load(Relaxed);
        let used_in_all = || self.devices().iter().map(|device| device.used.load(Relaxed)).sum::<i64>();
        (quota == 0 || used_in_all().saturating_add(bytes) <= quota) && self.header.devices[device].reserve(bytes)
    }

    pub fn record(&self, number: u32) -> Option<&Record> {
        self.records.get(number as usize)
    }

    /// Takes a record and gives it a new serial; `None` when all are in use.
    pub fn take_record(&self) -> Option<u32> {
        let number = self.pop_free().or_else(|| {
            let next = self.header.next_record.fetch_add(1, AcqRel);
            if (next as usize) < RECORDS {
                Some(next)
            } else {
                self.header.next_record.store(RECORDS as u32, Release);
                None
            }
        })?;
        let record = &self.records[number as usize];
        let serial = self.header.next_serial.fetch_add(1, AcqRel) + 1;
        record.flags.store(0, Relaxed);
        record.reserved.store(0, Relaxed);
        record.moved_to.store(0, Relaxed);
        record.link_ino.store(0, Relaxed);
        record.object_ino.store(0, Relaxed);
        record.durable_ino.store(0, Relaxed);
        record.durable_birth_ns.store(0, Relaxed);
        record.ctime_ns.store(0, Relaxed);
        record.habit.store(0, Relaxed);
        record.opens.store(0, Relaxed);
        record.ino.store(self.shown_ino(serial), Relaxed);
        record.set_state(State::New);
        record.serial.store(serial, Release);
        Some(number)
    }

    /// `st_ino` of the file with this serial number.
    pub fn shown_ino(&self, serial: u64) -> u64 {
        INO_BASE + self.header.inode_salt.load(Relaxed) + serial % INO_SERIALS
    }

    /// Gives a record back; nobody may still find it (its table keys are removed).
    pub fn free_record(&self, number: u32) {
        let record = &self.records[number as usize];
        record.set_state(State::Free);
        record.serial.store(0, Release);
        record.random.store(0, Relaxed);
        let mut head = self.header.free_head.load(Acquire);
        loop {
            record.next_free.store(head as u32, Relaxed);
            let tagged = ((head >> 32).wrapping_add(1) << 32) | (number as u64 + 1);
            match self.header.free_head.compare_exchange_weak(head, tagged, AcqRel, Acquire) {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }

    /// Agent only, before any program has this index: takes exactly these records (ascending), which links in the root
    /// name already. Those in between are free.
    pub fn adopt_records(&self, numbers: &[u32]) {
        let mut next = 0;
        for &number in numbers {
            (next..number).for_each(|free| self.free_record(free));
            let record = &self.records[number as usize];
            let serial = self.header.next_serial.fetch_add(1, AcqRel) + 1;
            record.ino.store(self.shown_ino(serial), Relaxed);
            record.set_state(State::New);
            record.serial.store(serial, Release);
            next = number + 1;
        }
        self.header.next_record.store(next, Release);
    }

    fn pop_free(&self) -> Option<u32> {
        let mut head = self.header.free_head.load(Acquire);
        loop {
            let number = (head as u32).checked_sub(1)?;
            let next = self.records[number as usize].next_free.load(Acquire);
            let tagged = ((head >> 32).wrapping_add(1) << 32) | next as u64;
            match self.header.free_head.compare_exchange_weak(head, tagged, AcqRel, Acquire) {
                Ok(_) => return Some(number),
                Err(now) => head = now,
            }
        }
    }

    /// Records used so far lie in `0..records_end()`.
    pub fn records_end(&self) -> u32 {
        self.header.next_record.load(Acquire).min(RECORDS as u32)
    }

    /// The record whose object this link text names: its device's directory, its number, its random half.
    /// `None` for every link that Terrace didn't make, and for stale ones.
    pub fn record_of_link(&self, text: &[u8]) -> Option<u32> {
        let text = text.strip_suffix(DIRECTORY_SUFFIX.as_bytes()).unwrap_or(text);
        let (dir, name) = text.split_at_checked(text.len().checked_sub(NAME_LEN)?)?;
        let (number, random) = parse_name(name)?;
        let device = self.devices().iter().position(|device| device.dir.get() == dir)?;
        let record = self.record(number)?;
        (record.random.load(Acquire) == random
            && record.device.load(Relaxed) == device as u32
            && record.state() != State::Free)
            .then_some(number)
    }

    /// The link leads to an object of another node: its directory has another tag than ours.
    pub fn is_elsewhere(&self, text: &[u8]) -> bool {
        const TAG: usize = 9; // `.5f3a9c01`
        let text = text.strip_suffix(DIRECTORY_SUFFIX.as_bytes()).unwrap_or(text);
        let Some((dir, name)) = text.len().checked_sub(NAME_LEN).and_then(|at| text.split_at_checked(at)) else {
            return false;
        };
        let Some(dir) = dir.strip_suffix(b"/") else { return false };
        if parse_name(name).is_none() || dir.len() < TAG || dir[0] != b'/' {
            return false;
        }
        let (dir, tag) = dir.split_at(dir.len() - TAG);
        let digit = |tag: Option<u32>, byte: &u8| Some(tag? << 4 | (*byte as char).to_digit(16)?);
        let Some(tag) = tag[1..].iter().fold(Some(0), digit).filter(|_| tag[0] == b'.') else { return false };
        let component = dir.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
        component.starts_with(b"terrace-") && tag != self.header.node.load(Relaxed)
    }

    /// True when a link of this length may lead to another node's object, whatever its tiers are called: a cheap test before reading the link.
    pub fn may_lead_elsewhere(&self, len: u64) -> bool {
        const SHORTEST: usize = "/terrace-".len() + ".5f3a9c01".len() + "/".len() + NAME_LEN;
        len >= SHORTEST as u64 && self.header.others.load(Relaxed) > 0
    }

    /// True when a link of this length may be ours: a cheap test before reading the link.
    pub fn is_link_len(&self, len: u64) -> bool {
        let more = DIRECTORY_SUFFIX.len() as u64;
        let is = |device: &Device| {
            let file = device.dir.get().len() as u64 + NAME_LEN as u64;
            len == file || len == file + more
        };
        self.devices().iter().any(is)
    }

    /// A canonical path that is the container of a placed directory: where the kernel leads a program that goes up from that by itself.
    pub fn container(&self, path: &[u8]) -> Option<u32> {
        let numbered = self.devices().iter().enumerate();
        let found = |(number, device): (usize, &Device)| {
            let (record, random) = parse_name(path.strip_prefix(device.dir.get())?)?;
            let found = self.record(record)?;
            let is_this = found.random.load(Acquire) == random && found.device.load(Relaxed) == number as u32;
            (is_this && found.state() == State::Directory).then_some(record)
        };
        numbered.filter_map(found).next()
    }

    /// A canonical path in a tier that lies in a placed directory, or is one: the directory's record, and what follows it (empty, or
    /// with its slash).
    pub fn inside<'a>(&self, path: &'a [u8]) -> Option<(u32, &'a [u8])> {
        let suffix = DIRECTORY_SUFFIX.as_bytes();
        self.devices().iter().enumerate().find_map(|(number, device)| {
            let (name, rest) = path.strip_prefix(device.dir.get())?.split_at_checked(NAME_LEN)?;
            let rest = rest.strip_prefix(suffix).filter(|rest| matches!(rest.first(), None | Some(b'/')))?;
            let (record, random) = parse_name(name)?;
            let found = self.record(record)?;
            (found.random.load(Acquire) == random && found.device.load(Relaxed) == number as u32)
                .then_some((record, rest))
        })
    }

    /// Where a spilled file lies, by its path: the text of the link in the placed directory.
    pub fn spill(&self, path: &[u8]) -> Option<Spill> {
        let (dir, name) = path.split_at_checked(path.len().checked_sub(NAME_LEN)?)?;
        parse_name(name)?;
        if dir == self.header.spills.get() {
            return Some(Spill::Root);
        }
        let dir = dir.strip_suffix(SPILLS.as_bytes())?;
        self.devices().iter().position(|device| device.dir.get() == dir).map(Spill::Device)
    }

    /// A directory of this canonical path is where files of its device are spilled to.
    pub fn is_for_spilled(&self, path: &[u8]) -> bool {
        let dir = path.strip_suffix(SPILLS.trim_end_matches('/').as_bytes());
        dir.is_some_and(|dir| self.devices().iter().any(|device| device.dir.get() == dir))
    }

    pub fn device_of_dev(&self, dev: u64) -> bool {
        self.devices().iter().any(|device| device.dev.load(Relaxed) == dev)
    }

    /// The record of an object by `st_dev`, `st_ino` and `st_nlink`, as `fstat` of a descriptor gives them.
    /// An object that was unlinked has no name: a file that has one is another, to which the file system gave the number again.
    pub fn record_of_object(&self, dev: u64, ino: u64, nlink: u64) -> Option<u32> {
        for (number, device) in self.devices().iter().enumerate() {
            // Two directories may lie on one file system; the key has the first device's number.
            if device.dev.load(Relaxed) == dev {
                let record = self.table_get(table::object_key(number as u32, ino))?;
                let found = &self.records[record as usize];
                // An evicted object's record has no object any more, though its key is kept for descriptors of it.
                let is_gone = matches!(found.state(), State::Dead | State::Moved)
                    || found.object_ino.load(Acquire) != ino & (u64::MAX >> 8);
                return (nlink == 0 || !is_gone).then_some(record);
            }
        }
        None
    }

    /// True if some record has, or lately had, an object of this identity.
    pub fn has_object_key(&self, dev: u64, ino: u64) -> bool {
        let device = self.devices().iter().position(|device| device.dev.load(Relaxed) == dev);
        device.is_some_and(|device| self.table_get(table::object_key(device as u32, ino)).is_some())
    }

    /// The key under which an object on `device` is found: directories on one file system share the first one's number.
    pub fn object_key(&self, device: u32, ino: u64) -> u64 {
        let dev = self.header.devices[device as usize].dev.load(Relaxed);
        let first = self.devices().iter().position(|d| d.dev.load(Relaxed) == dev).unwrap_or(device as usize);
        table::object_key(first as u32, ino)
    }

    /// The record of a file or link in the root by its inode there.
    pub fn record_of_root_ino(&self, ino: u64) -> Option<u32> {
        self.table_get(table::root_key(ino))
    }
}

const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// A moment of CLOCK_MONOTONIC_COARSE for `Header::listed_at`: in milliseconds, which wrap around; at least 1.
pub fn listing_time(seconds: i64, nanoseconds: i64) -> u32 {
    ((seconds * 1000 + nanoseconds / 1_000_000) as u32).max(1)
}

/// Writes an object's name. `number` is a record's, below `RECORDS`.
pub fn write_name(number: u32, random: u64, out: &mut [u8; NAME_LEN]) {
    let mut value = (number as u128) << 64 | random as u128;
    for byte in out.iter_mut().rev() {
        *byte = LETTERS[value as usize & 63];
        value >>= 6;
    }
}

/// Reads an object's name: its record and the random half. `None` for anything else.
pub fn parse_name(name: &[u8]) -> Option<(u32, u64)> {
    if name.len() != NAME_LEN {
        return None;
    }
    let mut value: u128 = 0;
    for &byte in name {
        let digit = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'-' => 62,
            b'_' => 63,
            _ => return None,
        };
        value = value << 6 | digit as u128;
    }
    Some(((value >> 64) as u32, value as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    pub fn empty_index() -> Index {
        // SAFETY: an anonymous zeroed mapping of the right size that is never unmapped.
        unsafe {
            let layout = std::alloc::Layout::from_size_align(INDEX_BYTES, 4096).unwrap();
            Index::from_mapping(std::alloc::alloc_zeroed(layout))
        }
    }

    #[test]
    fn a_name_reads_back_as_it_was_written() {
        for (number, random) in [(0, 0), (42, u64::MAX), (RECORDS as u32 - 1, 0x0123_4567_89ab_cdef)] {
            let mut name = [0; NAME_LEN];
            write_name(number, random, &mut name);
            assert_eq!(parse_name(&name), Some((number, random)));
        }
        assert_eq!(parse_name(b"AAAAAAAAAAAAA."), None);
        assert_eq!(parse_name(b"short"), None);
    }

    #[test]
    fn a_record_is_reused_with_a_new_serial() {
        let index = empty_index();
        let first = index.take_record().unwrap();
        let serial = index.records[first as usize].serial.load(Relaxed);
        index.free_record(first);
        assert_eq!(index.take_record(), Some(first));
        assert!(index.records[first as usize].serial.load(Relaxed) > serial);
    }

    #[test]
    fn adopted_records_are_taken_and_all_others_are_free() {
        let index = empty_index();
        index.adopt_records(&[1, 4]);
        let mut others: Vec<u32> = (0..4).map(|_| index.take_record().unwrap()).collect();
        others.sort();
        assert_eq!(others, [0, 2, 3, 5]);
        assert_eq!(index.records[4].state(), State::New);
    }

    #[test]
    fn records_taken_by_many_threads_are_distinct() {
        let index = empty_index();
        let threads: Vec<_> = (0..4)
            .map(|_| {
                std::thread::spawn(move || {
                    let mut kept = vec![];
                    for i in 0..10_000 {
                        let number = index.take_record().unwrap();
                        if i % 3 == 0 { kept.push(number) } else { index.free_record(number) }
                    }
                    kept
                })
            })
            .collect();
        let mut all: Vec<u32> = threads.into_iter().flat_map(|t| t.join().unwrap()).collect();
        let count = all.len();
        all.sort();
        all.dedup();
        assert_eq!(all.len(), count);
    }

    #[test]
    fn a_reservation_never_exceeds_capacity() {
        let index = empty_index();
        let device = &index.header.devices[0];
        device.capacity.store(1000, Relaxed);
        let threads: Vec<_> = (0..4)
            .map(|_| std::thread::spawn(move || (0..1000).filter(|_| index.header.devices[0].reserve(7)).count()))
            .collect();
        let granted: usize = threads.into_iter().map(|t| t.join().unwrap()).sum();
        assert_eq!(granted, 1000 / 7);
        assert_eq!(device.free(), 1000 % 7);
    }

    #[test]
    fn only_links_that_terrace_made_lead_to_a_record() {
        let index = empty_index();
        index.header.devices[0].dir.set(b"/dev/shm/t/o/");
        index.header.device_count.store(1, Release);
        let number = index.take_record().unwrap();
        index.records[number as usize].random.store(99, Relaxed);
        let mut name = [0; NAME_LEN];
        write_name(number, 99, &mut name);
        let link = [b"/dev/shm/t/o/".as_slice(), &name].concat();
        assert_eq!(index.record_of_link(&link), Some(number));
        assert_eq!(index.record_of_link(&[b"/dev/shm/t/x/".as_slice(), &name].concat()), None);
        write_name(number, 98, &mut name);
        assert_eq!(index.record_of_link(&[b"/dev/shm/t/o/".as_slice(), &name].concat()), None);
        assert_eq!(index.record_of_link(b"out.nii"), None);
    }
}
