//! Placed directories: in the root a link, in a tier a directory with all that programs make in it.
//!
//!   asked for by a program ─▶ policy drops, or flushes, all below? ─▶ record, container ─▶ (the program makes directory and link)
//!   end of the run ─▶ an empty directory, or the mirror (`kept`), takes the link's place ─▶ what was in the tier goes
//!
//! What lies below has no record, no event and no request to the root: the kernel walks the tier.
//!
//! Invariant: the name in the root is a link to the whole directory, or a directory. It is never absent in between where the root's file
//! system exchanges names. What policy does not drop is copied into the root, and synced, before.

use crate::files::Files;
use crate::files::mover::mirror;
use crate::shared::ended::{Move, now_ns};
use crate::shared::index_file::{object_name, random_half};
use crate::shared::path::{as_path, read_link};
use crate::shared::request::{Outcome, Scope};
use rustix::fs::Mode;
use rustix::io::Errno;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::*;
use std::time::{Duration, Instant};
use terrace_core::control::{Failure, MoveKind};
use terrace_core::policy::Mode as PolicyMode;
use terrace_core::settings::Directories;
use terrace_index::climbing::told;
use terrace_index::{DIRECTORY_SUFFIX, State};
use terrace_tier::{Step, reached};

/// A device with less than this free takes no directories.
const ROOM_MIN: i64 = 1 << 20;
/// Nobody makes anything beside the directory; others get through it, where they get to it: root's programs may switch to another user.
pub const CONTAINER_MODE: u32 = 0o511;
/// Between two counts of what lies in directories pass so many times what the last one took.
const COUNT_SHARE: u32 = 20;
const COUNT_MIN: Duration = Duration::from_millis(200);
/// A file system is nearly full, and nothing that is there can move.
const LOW_WAIT: Duration = Duration::from_millis(500);
pub const PATIENCE: Duration = Duration::from_secs(5);

/// What lies in placed directories is counted by walking through them.
#[derive(Default)]
pub struct RoomCount {
    next: Option<Instant>,
    /// Not before: a tier's file system that is nearly full is looked at again.
    next_low: Option<Instant>,
}

impl Files {
    /// As settings and policy are, some directory may be placed. Where none can be, programs aren't asked for what only they need.
    pub fn places_directories(&self) -> bool {
        self.settings.directories.may_place(&self.policy)
    }

    /// With `directories = "all"` some might be placed that are not, of a root whose server takes its time for each name.
    pub fn would_gain_by_placing_more(&self) -> bool {
        self.settings.directories == Directories::Scratch
            && Directories::All.may_place(&self.policy)
            && self.index.header.forgets_removed.load(Relaxed) != 0
    }

    /// A program is about to make this directory: its record, with a container that waits for it. Err: an errno for mkdir(2), where
    /// EOPNOTSUPP means that it is made in the root.
    pub fn prepare_directory(&self, path: &[u8], (uid, _gid): (u32, u32)) -> Result<u32, i32> {
        const NOT_HERE: i32 = libc::EOPNOTSUPP;
        let relative = self.relative(path).ok_or(NOT_HERE)?;
        let is_wanted = self.places_directories()
            && !self.has_others() // to them it would lead nowhere
            && self.index.header.accepts.load(Acquire) != 0
            && uid == rustix::process::geteuid().as_raw()
            && self.settings.directories.places(&self.policy, relative);
        if !is_wanted {
            return Err(NOT_HERE);
        }
        let devices = self.index.devices().iter().enumerate();
        let takes = devices.filter(|(_, device)| device.accepts.load(Relaxed) != 0 && device.free() >= ROOM_MIN);
        let best = takes.min_by_key(|(_, device)| (device.tier.load(Relaxed), -device.free()));
        let (device, _) = best.ok_or(NOT_HERE)?;
        let number = self.index.take_record().ok_or(NOT_HERE)?;
        let record = self.record(number);
        record.random.store(random_half(), Release);
        record.device.store(device as u32, Release);
        let container = self.container(number);
        if std::fs::DirBuilder::new().mode(0o700).create(&container).is_err() {
            self.index.free_record(number);
            return Err(NOT_HERE);
        }
        // Before anything can fill the tier.
        self.keep_link_room(device);
        Ok(number)
    }

    /// The directory that holds nothing but a record's directory.
    pub fn container(&self, number: u32) -> PathBuf {
        self.devices[self.device_of(number)].dir.join(self.object_name(number))
    }

    pub fn is_directory(&self, number: u32) -> bool {
        self.record(number).state() == State::Directory
    }

    /// Policy drops all that there may ever be below this path.
    pub fn is_scratch(&self, path: &[u8]) -> bool {
        self.relative(path).is_some_and(|relative| self.policy.drops_all_below(relative))
    }

    /// What becomes of a record's file, or of the files in its directory.
    pub fn mode_of(&self, number: u32, path: &[u8]) -> PolicyMode {
        match self.is_directory(number) {
            true if self.is_scratch(path) => PolicyMode::Remove,
            true => PolicyMode::Move,
            false => self.mode(path),
        }
    }

    pub fn directories_in(&self, scope: &Scope) -> Vec<(u32, u64, Vec<u8>)> {
        let catalogue = self.catalogue();
        let numbers = (0..self.index.records_end()).filter(|&number| self.is_directory(number));
        let named = numbers.filter_map(|number| {
            let serial = self.serial(number);
            Some((number, serial, catalogue.path(number, serial)?))
        });
        named.filter(|(_, _, path)| scope.has(path)).collect()
    }

    /// At the end of the last run: no directory stays in a tier.
    pub fn end_directories(&self, scope: &Scope, outcome: &mut Outcome) {
        if self.index.header.directories.load(SeqCst) <= 0 {
            return;
        }
        for (number, serial, path) in self.directories_in(scope) {
            if self.serial(number) == serial
                && self.is_scratch(&path)
                && let Err(error) = self.drop_directory(number)
            {
                outcome.failures.push(Failure { path: as_path(&path).into(), reason: error.to_string() });
            }
        }
        self.flush_directories(scope, outcome);
        self.end_spilled();
    }

    /// An empty directory takes the link's place, with the attributes of the placed one.
    fn drop_directory(&self, number: u32) -> std::io::Result<()> {
        let begin_ns = now_ns();
        let _claim = self.claims.take(number, PATIENCE).ok_or_else(|| errno(libc::EBUSY))?;
        let Some(path) = self.located_directory(number) else { return Ok(()) };
        let (files, bytes) = count(&self.object_path(number));
        let empty = self.tmp_dir().join(self.object_name(number));
        let _ = std::fs::remove_dir(&empty);
        std::fs::create_dir(&empty)?;
        give_attributes(&self.object_path(number), &empty)?;
        self.put_directory(number, &empty, &path, || Ok(())).inspect_err(|_| drop(std::fs::remove_dir(&empty)))?;
        self.totals.removed_files.fetch_add(files, Relaxed);
        self.totals.removed_bytes.fetch_add(bytes, Relaxed);
        let (path, tier) = (&path, Some(self.devices[self.device_of(number)].tier));
        self.ended.note(&Move { kind: MoveKind::Remove, path, bytes, tier, begin_ns, error: None });
        Ok(())
    }

    /// `directory` (below our private one) and the link at `path` exchange their names; then the link and all in the tier go. If
    /// what is there differs from the copy (`is_as_copied` fails), all is as it was.
    pub fn put_directory(
        &self,
        number: u32,
        directory: &Path,
        path: &[u8],
        is_as_copied: impl Fn() -> std::io::Result<()>,
    ) -> std::io::Result<()> {
        let Some(barrier) = self.commit_barrier() else { return Err(errno(libc::EBUSY)) };
        self.exchange_names(directory, as_path(path))?;
        let is_ours = read_link(directory.as_os_str().as_bytes())
            .is_some_and(|text| text == self.object_path(number).as_os_str().as_bytes());
        // A program was faster, and what has the name is not ours to take away.
        let checked = if is_ours { is_as_copied() } else { Err(errno(libc::EBUSY)) };
        if let Err(error) = checked {
            self.exchange_names(directory, as_path(path))?;
            return Err(error);
        }
        reached(Step::FlushRenamed);
        std::fs::remove_file(directory)?;
        drop(barrier);
        let contents = self.object_path(number);
        let container = self.container(number);
        self.directory_is_gone(number);
        self.index.header.removals_seq.fetch_add(1, SeqCst);
        remove_tree(&contents, &container);
        Ok(())
    }

    /// In one step where the root's file system can do that; elsewhere the name is absent for a moment.
    fn exchange_names(&self, own: &Path, name: &Path) -> std::io::Result<()> {
        let exchanged = self.exchange_in_root(own, name);
        self.index.header.ways.fetch_add(1, SeqCst);
        exchanged
    }

    fn exchange_in_root(&self, own: &Path, name: &Path) -> std::io::Result<()> {
        match self.root_tier.exchange(own, name) {
            Err(Errno::NOTSUP) => {
                let aside = self.tmp_dir().join(object_name(terrace_index::RECORDS as u32 - 1, random_half()));
                let give_back = |error: Errno| {
                    let _ = rustix::fs::rename(&aside, name);
                    error
                };
                rustix::fs::rename(name, &aside)?;
                rustix::fs::rename(own, name).map_err(give_back)?;
                Ok(rustix::fs::rename(&aside, own)?)
            }
            done => Ok(done?),
        }
    }

    /// The text that a program gave a symbolic link in a placed directory, or one that leads to the same place.
    pub fn written_in(&self, link: &Path) -> std::io::Result<PathBuf> {
        let stored = std::fs::read_link(link)?;
        let shown = link.parent().and_then(|directory| self.shown(directory.as_os_str().as_bytes()));
        let told = shown.as_deref().and_then(|directory| told(directory, stored.as_os_str().as_bytes()));
        Ok(match told {
            Some((ups, rest)) => {
                let up = std::iter::repeat_n(Path::new(".."), ups).collect::<PathBuf>();
                if rest.is_empty() { up } else { up.join(as_path(rest)) }
            }
            None => stored,
        })
    }

    /// What a directory in a placed one is called in the root.
    pub fn shown(&self, directory: &[u8]) -> Option<Vec<u8>> {
        let (number, rest) = self.index.inside(directory)?;
        let mut name = self.catalogue().path(number, self.serial(number))?;
        name.extend_from_slice(rest);
        Some(name)
    }

    /// The record of a directory that has no name any more.
    fn directory_is_gone(&self, number: u32) {
        let serial = self.serial(number);
        if !self.record(number).change_state(State::Directory, State::Dead) {
            return;
        }
        self.index.header.directories.fetch_sub(1, SeqCst);
        self.index.table_remove(self.object_key(number), number);
        self.forget_link(number);
        self.unreserve(number);
        let mut catalogue = self.catalogue();
        catalogue.set_path(number, serial, b"");
        catalogue.entry(number, serial).since = Instant::now();
    }

    pub fn located_directory(&self, number: u32) -> Option<Vec<u8>> {
        let serial = self.serial(number);
        if !self.is_directory(number) {
            return None;
        }
        self.located(number, serial).or_else(|| {
            self.drain_events();
            self.walk_tree();
            self.located(number, serial)
        })
    }

    /// Counts what lies in placed directories, as far as it has changed: it is no record's.
    pub fn count_directories(&self, state: &mut RoomCount) {
        if self.index.header.directories.load(Relaxed) <= 0 || state.next.is_some_and(|next| Instant::now() < next) {
            return;
        }
        let begun = Instant::now();
        for number in (0..self.index.records_end()).filter(|&number| self.is_directory(number)) {
            let (_, bytes) = count(&self.object_path(number));
            let record = self.record(number);
            let before = record.reserved.swap(bytes as i64, AcqRel);
            self.index.header.devices[self.device_of(number)].used.fetch_add(bytes as i64 - before, AcqRel);
        }
        self.count_spilled();
        state.next = Some(Instant::now() + (begun.elapsed() * COUNT_SHARE).max(COUNT_MIN));
        if state.next_low.is_none_or(|next| Instant::now() >= next) {
            state.next_low = self.keep_room_for_unseen().then(|| Instant::now() + LOW_WAIT);
        }
    }

    /// Files and bytes in a placed directory, for who asks what is in the tiers.
    pub fn size_of_directory(&self, number: u32) -> (u64, u64) {
        count(&self.object_path(number))
    }

    /// After a killed agent: the record of a directory whose link was found (`None`: it has no name).
    pub fn adopt_directory(&self, number: u32) {
        let Ok(found) = std::fs::symlink_metadata(self.object_path_of_directory(number)) else { return };
        self.record(number).object_ino.store(found.ino(), Release);
        self.index.table_put(self.object_key(number), number);
        self.record(number).set_state(State::Directory);
        self.plan_mirror(number);
    }

    pub fn object_path_of_directory(&self, number: u32) -> PathBuf {
        self.container(number).join(&DIRECTORY_SUFFIX[1..])
    }

    /// A link to a placed directory that is not there any more (the machine was restarted, or its program killed as it removed it).
    /// True: what its mirror has is back; else it is an empty directory.
    pub fn replace_lost_directory(&self, path: &[u8], object: &Path) -> std::io::Result<bool> {
        let kept = self.kept_dir().join(object);
        if let Some(tree) = mirror::restore(&kept)? {
            self.exchange_names(&tree, as_path(path))?;
            std::fs::remove_dir_all(&kept)?;
            return Ok(true);
        }
        let empty = self.tmp_dir().join("lost-directory");
        let _ = std::fs::remove_dir(&empty);
        std::fs::create_dir(&empty)?;
        match self.exchange_names(&empty, as_path(path)) {
            Ok(()) => std::fs::remove_file(&empty).map(|()| false),
            Err(error) => std::fs::remove_dir(&empty).and(Err(error)),
        }
    }

    /// A container whose directory no name leads to.
    pub fn discard_container(&self, container: &Path) -> bool {
        remove_tree(&container.join(&DIRECTORY_SUFFIX[1..]), container);
        std::fs::symlink_metadata(container).is_err()
    }
}

pub fn errno(number: i32) -> std::io::Error {
    std::io::Error::from_raw_os_error(number)
}

/// Mode, owner and times; what can't be given (another owner, where we are not root) is left.
pub fn give_attributes(from: &Path, to: &Path) -> std::io::Result<()> {
    let found = std::fs::symlink_metadata(from)?;
    let own = std::fs::symlink_metadata(to)?;
    if (own.uid(), own.gid()) != (found.uid(), found.gid()) {
        let _ = std::os::unix::fs::chown(to, Some(found.uid()), Some(found.gid()));
    }
    rustix::fs::chmod(to, Mode::from_raw_mode(found.mode() & 0o7777))?;
    Ok(())
}

/// Files below a directory, and the bytes that all take.
pub fn count(directory: &Path) -> (u64, u64) {
    let (mut files, mut bytes) = (0, 0);
    each_below(directory, |_, found| {
        files += !found.is_dir() as u64;
        bytes += found.blocks() * 512;
    });
    (files, bytes)
}

/// What lies below a directory, as far as it can be looked at.
pub fn each_below(directory: &Path, mut see: impl FnMut(&std::fs::DirEntry, &std::fs::Metadata)) {
    let mut pending = vec![directory.to_owned()];
    while let Some(directory) = pending.pop() {
        for entry in std::fs::read_dir(&directory).into_iter().flatten().flatten() {
            let Ok(found) = entry.metadata() else { continue };
            if found.is_dir() {
                pending.push(entry.path());
            }
            see(&entry, &found);
        }
    }
}

/// Also where a program took its own right to look into a directory, or to change it.
fn remove_tree(contents: &Path, container: &Path) {
    let open = |path: &Path| std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o700));
    let _ = open(container);
    if std::fs::remove_dir_all(contents).is_err() {
        let mut pending = vec![contents.to_owned()];
        while let Some(directory) = pending.pop() {
            let _ = open(&directory);
            let entries = std::fs::read_dir(&directory).into_iter().flatten().flatten();
            pending.extend(
                entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).map(|entry| entry.path()),
            );
        }
        let _ = std::fs::remove_dir_all(contents);
    }
    // With links in it that led programs on.
    let _ = std::fs::remove_dir_all(container);
}

/// Where processes are, and what they have open: all but our own, and those of other users, of which nothing can be said.
pub fn used_places() -> Vec<PathBuf> {
    let own = std::process::id().to_string();
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let processes = processes.filter(|entry| {
        let name = entry.file_name();
        name.as_bytes().first().is_some_and(u8::is_ascii_digit) && name.as_bytes() != own.as_bytes()
    });
    let links = processes.map(|entry| entry.path()).flat_map(|process| {
        let open = std::fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
        open.map(|entry| entry.path()).chain([process.join("cwd")]).collect::<Vec<_>>()
    });
    links.filter_map(|link| std::fs::read_link(link).ok()).collect()
}
