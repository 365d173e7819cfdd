//! Names: unlink, rename, link.
//!
//! The root's own file system does them, atomically. We see to three things around it: that the mover does not commit a file
//! while its name changes (a guard), that an object goes when its last name goes, and that the agent hears of it.
//!
//! A hard link needs a real file (a link of ours has one inode with one text, its copies would lose their target), so the
//! agent settles it first.

use crate::agent_call::{materialise, materialise_below};
use crate::elsewhere::{self, Brought};
use crate::events::publish;
use crate::inside;
use crate::link::{self, Link, Opened, record};
use crate::objects::Object;
use crate::open::{materialise_name, materialise_path};
use crate::path::{Parent, Path, below_root, descriptor_link};
use crate::placed::{self, Way};
use crate::spill::{self, Leaving};
use crate::{caller, data, gate, make_directory, process, readable, real, stat};
use core::ffi::{c_char, c_int, c_uint};
use core::sync::atomic::{AtomicBool, Ordering::*};
use terrace_index::guard::Domain;
use terrace_index::ring::{EventKind, NO_RECORD};
use terrace_index::{FLAG_UNLINKED, Index, State};

pub const WAIT_US: i64 = 100;
pub const BUSY: isize = isize::MIN;
/// A placed file would leave the root as a link: it is to be a real file first.
const LEAVES: isize = isize::MIN + 1;
/// A name that other nodes' files come and go at, while one link is made.
const LINKS_MAX: usize = 100;
/// So often one file is asked to be a real one before it is given a second name, and so many that have its name one after another.
const SETTLES_OF_ONE: usize = 10;
const SETTLES_MAX: usize = 1000;
/// A file that can't be made real while it leaves the root is refused after so many tries.
const SETTLES: usize = 10;

/// Tries `attempt` in a guard until no record that it meets is busy. `attempt` returns `BUSY` to wait.
pub fn in_guard(index: Index, mut attempt: impl FnMut() -> isize) -> isize {
    loop {
        let entered = process::enter(index, Domain::Names);
        let result = attempt();
        index.guard_leave(entered);
        if result != BUSY {
            return result;
        }
        process::sleep_us(WAIT_US);
    }
}

/// The link's record may change its state only after we left the guard.
fn is_busy(index: &Index, link: &Option<Link>) -> bool {
    is_busy_record(index, link.as_ref().map(|link| link.record))
}

/// The link's inode may be another file's as soon as its name is gone.
fn about_to_free(index: Index, link: &Option<Link>) {
    if link.is_some() {
        index.header.removals_seq.fetch_add(1, SeqCst);
    }
}

/// The last name of a placed file is gone: so is its object. Open descriptors keep its bytes, as of any file.
fn drop_object(index: Index, link: &Link) {
    let record = record(&index, link.record);
    record.set_state(State::Dead);
    index.header.removals_seq.fetch_add(1, SeqCst);
    // SAFETY: the object's terminated path or name.
    Object::of_link(index, link)
        .at(|dirfd, name| unsafe { gate::call3(libc::SYS_unlinkat, dirfd as usize, name as usize, 0) });
    let device = &index.header.devices[record.device.load(Relaxed) as usize % terrace_index::DEVICES];
    device.unreserve(record.reserved.swap(0, AcqRel));
    let ino = record.link_ino.load(Relaxed);
    if ino != 0 {
        index.table_remove(terrace_index::table::root_key(ino), link.record);
    }
}

/// After a call that took a name away: drops the object if it was this link's name. The record, if the agent is to be told.
/// Without a handle (no descriptor was left) nobody knows: the object stays, and the agent looks for its name.
fn drop_if_removed(index: Index, link: &Link, handle: Option<&link::Handle>) -> Option<u32> {
    match handle {
        Some(handle) if handle.is_removed_from_root(index) => drop_object(index, link),
        Some(_) => return None,
        None => {}
    }
    Some(link.record)
}

/// The record of a durable file with a replica at this name, which is about to go.
fn durable_record(index: Index, dirfd: i32, path: *const c_char) -> Option<u32> {
    if index.header.clean_count.load(Relaxed) <= 0 {
        return None;
    }
    known_record(index, dirfd, path).filter(|&number| record(&index, number).state() == State::Clean)
}

/// The record of a durable file (with a replica or not) at this name, its only one. It may be busy.
fn known_record(index: Index, dirfd: i32, path: *const c_char) -> Option<u32> {
    if index.header.durable_count.load(Relaxed) <= 0 {
        return None;
    }
    let status = stat::kernel_stat(dirfd, path, libc::AT_SYMLINK_NOFOLLOW)?;
    if status.st_mode & libc::S_IFMT != libc::S_IFREG || status.st_nlink != 1 {
        return None;
    }
    let number = index.record_of_root_ino(status.st_ino)?;
    let record = record(&index, number);
    (status.st_dev == index.header.root_dev.load(Relaxed)
        && record.durable_ino.load(Relaxed) == status.st_ino
        && (matches!(record.state(), State::Clean | State::Durable) || record.state().is_busy()))
    .then_some(number)
}

fn is_busy_record(index: &Index, number: Option<u32>) -> bool {
    number.is_some_and(|number| record(index, number).state().is_busy())
}

/// Whether the name that was last taken away was a link of ours: the next one will be like it.
static LAST_WAS_OURS: AtomicBool = AtomicBool::new(false);

/// The link of ours at a name that is about to go, and a handle of it. A program removes many of one kind: which look comes
/// first, the cheap one for real files or the one that is needed for links, is by what the last one was.
/// `Err(ENOENT)`: there is nothing, which is not worth a second request to a server.
fn about_to_go(index: Index, dirfd: i32, path: *const c_char) -> Result<(Option<Link>, Option<link::Handle>), isize> {
    let nothing = -(libc::ENOENT as isize);
    if !LAST_WAS_OURS.load(Relaxed) {
        match link::look(index, dirfd, path) {
            Err(errno) if errno == nothing => return Err(nothing),
            Ok(Some(_)) => {}
            Ok(None) | Err(_) => return Ok((None, None)),
        }
    }
    let (link, handle) = match link::Handle::open(index, dirfd, path) {
        Opened::Link(link, handle) => (Some(link), Some(handle)),
        Opened::NotOurs => (None, None),
        Opened::Nothing(errno) if errno == nothing => return Err(nothing),
        Opened::Nothing(_) => (link::read(index, dirfd, path), None),
    };
    LAST_WAS_OURS.store(link.is_some(), Relaxed);
    Ok((link, handle))
}

pub fn unlink_at(dirfd: i32, path: *const c_char, flags: i32) -> isize {
    if flags == libc::AT_REMOVEDIR {
        return make_directory::rmdir_at(dirfd, path);
    }
    let way = Way::of(dirfd, path);
    let (dirfd, path) = (way.dirfd(), way.path());
    let spilled = process::index().and_then(|index| Leaving::look(index, dirfd, path));
    let result = unlink_found(dirfd, path, flags);
    if result == 0 {
        spilled.into_iter().for_each(Leaving::end);
    }
    result
}

fn unlink_found(dirfd: i32, path: *const c_char, flags: i32) -> isize {
    // SAFETY: the program's own arguments.
    let native = || unsafe { gate::call3(libc::SYS_unlinkat, dirfd as usize, path as usize, flags as usize) };
    let Some(index) = process::index() else { return native() };
    if flags == 0 && inside::is_in_placed(index, dirfd, path) {
        return native();
    }
    if path.is_null()
        || flags != 0 // a directory, or what the kernel refuses
        || !process::may_be_below_root(index, dirfd, path) && link::read(index, dirfd, path).is_none()
    {
        return native();
    }
    // Its owner makes no commit over the name any more. One that is not there does not keep the name from being removed.
    match elsewhere::brought(index, dirfd, path, false) {
        Err(error) if !caller::is_still_there() => return error,
        _ => {}
    }
    let mut removed = None;
    let result = in_guard(index, || {
        let (link, handle) = match about_to_go(index, dirfd, path) {
            Ok(found) => found,
            Err(errno) => return errno,
        };
        if is_busy(&index, &link) {
            return BUSY;
        }
        if link.as_ref().is_some_and(|link| placed::is_directory(&index, link)) {
            return -(libc::EISDIR as isize);
        }
        let durable = if link.is_none() { known_record(index, dirfd, path) } else { None };
        if is_busy_record(&index, durable) {
            return BUSY;
        }
        about_to_free(index, &link);
        let result = native();
        if result == 0 {
            removed = match &link {
                Some(link) => drop_if_removed(index, link, handle.as_ref()),
                None => durable.filter(|&number| has_lost_its_name(index, number)),
            };
        }
        result
    });
    if let Some(number) = removed {
        publish(index, EventKind::Removed, number, b"", b"");
    }
    // To the kernel, a link that is named as a directory.
    if result == -(libc::ENOTDIR as isize) && make_directory::is_placed(index, dirfd, path) {
        return -(libc::EISDIR as isize);
    }
    result
}

/// Notes that a durable file's only name is gone. True if the agent has a replica to remove.
fn has_lost_its_name(index: Index, number: u32) -> bool {
    let record = record(&index, number);
    record.flags.fetch_or(FLAG_UNLINKED, SeqCst);
    record.state() == State::Clean
}

struct End {
    dirfd: i32,
    path: *const c_char,
    link: Option<Link>,
    durable: Option<u32>,
    /// Nothing has this name.
    is_nobodys: bool,
}

impl End {
    fn look(index: Index, dirfd: i32, path: *const c_char) -> End {
        let found = link::look(index, dirfd, path);
        let is_nobodys = matches!(found, Err(error) if error == -(libc::ENOENT as isize));
        let (link, durable) = match found {
            Ok(Some(link)) => (Some(link), None),
            _ if is_nobodys => (None, None),
            _ => (None, durable_record(index, dirfd, path)),
        };
        End { dirfd, path, link, durable, is_nobodys }
    }

    /// The name, not looked at.
    fn named(dirfd: i32, path: *const c_char) -> End {
        End { dirfd, path, link: None, durable: None, is_nobodys: false }
    }

    fn number(&self) -> Option<u32> {
        self.link.as_ref().map(|link| link.record).or(self.durable)
    }
    /// A rename changes the file's time of change; of a placed file, the kernel changed the link's. chown to the same owner
    /// sets it, and nothing else, unless there are setuid bits to lose: then it stays.
    fn touch(&self) {
        let Some(link) = &self.link else { return };
        // SAFETY: a zeroed stat is valid; the object's terminated path.
        unsafe {
            let mut status: libc::stat = core::mem::zeroed();
            let object = link.object() as usize;
            if gate::call2(libc::SYS_stat, object, &raw mut status as usize) == 0
                && status.st_mode & (libc::S_ISUID | libc::S_ISGID) == 0
            {
                gate::call3(libc::SYS_chown, object, usize::MAX, usize::MAX);
            }
        }
    }
    fn is_directory(&self) -> bool {
        stat::as_known_at(self.dirfd, self.path, libc::AT_SYMLINK_NOFOLLOW)
            .is_some_and(|found| found.st_mode & libc::S_IFMT == libc::S_IFDIR)
    }
    /// Where the name is, in full. `Below`: in `out`.
    fn locate(&self, index: Index, out: &mut Path) -> Place {
        self.locate_with(index, out, |_| true)
    }

    /// As `locate`, for a link of ours: others may follow it there.
    fn locate_link(&self, index: Index, out: &mut Path) -> Place {
        self.locate_with(index, out, is_for_links)
    }

    fn locate_with(&self, index: Index, out: &mut Path, takes: impl Fn(&Parent) -> bool) -> Place {
        if !readable::is_text(self.path) {
            return Place::Unknown;
        }
        let mut plain = Path::new();
        // SAFETY: the program's C string.
        let text = unsafe { core::ffi::CStr::from_ptr(self.path) }.to_bytes();
        let len = text.iter().rposition(|&byte| byte != b'/').map_or(0, |last| last + 1);
        out.clear();
        if !plain.push(&text[..len]) {
            return Place::Unknown;
        }
        match Parent::of(self.dirfd, plain.as_ptr()) {
            Ok(Some(parent)) => {
                if parent.path_below_root(index, out) {
                    return if takes(&parent) { Place::Below } else { Place::Elsewhere };
                }
                if !out.push(b"/") || !out.push(parent.base()) {
                    out.clear();
                }
                Place::Elsewhere
            }
            // An error that the call itself will meet.
            _ => Place::Unknown,
        }
    }
}

/// A text that lies outside the root may name something of ours all the same, by a link that leads there.
pub fn leads_to_ours(index: Index, dirfd: i32, path: *const c_char) -> bool {
    let Some(found) = stat::kernel_stat(dirfd, path, libc::AT_SYMLINK_NOFOLLOW) else { return false };
    let is_on_roots_device = found.st_dev == index.header.root_dev.load(Relaxed);
    match found.st_mode & libc::S_IFMT {
        // In a tier it may be stored otherwise than its program wrote it.
        libc::S_IFLNK if placed::any(index) && index.device_of_dev(found.st_dev) => true,
        libc::S_IFLNK => link::read(index, dirfd, path).is_some() || link::is_elsewhere(index, dirfd, path),
        libc::S_IFREG if is_on_roots_device => durable_record(index, dirfd, path).is_some(),
        libc::S_IFDIR if is_on_roots_device => {
            let end = End::named(dirfd, path);
            end.locate(index, &mut Path::new()) == Place::Below
        }
        _ => false,
    }
}

/// It is a directory in which others may follow our links: not one like /tmp. No server is asked for it.
fn is_for_links(parent: &Parent) -> bool {
    stat::as_known(parent.fd).is_none_or(|status| crate::create::others_may_follow(&status))
}

#[derive(PartialEq)]
enum Place {
    Below,
    Elsewhere,
    Unknown,
}

pub fn rename_at(olddir: i32, old: *const c_char, newdir: i32, new: *const c_char, flags: u32) -> isize {
    let (first, second) = (Way::of(olddir, old), Way::of(newdir, new));
    let (olddir, old, newdir, new) = (first.dirfd(), first.path(), second.dirfd(), second.path());
    if flags == 0 && process::index().is_some_and(|index| spill::are_names_of_one(index, (olddir, old), (newdir, new)))
    {
        return 0; // rename(2): it does nothing
    }
    let spilled = process::index().and_then(|index| Leaving::look(index, newdir, new));
    let result = spill::with_room(newdir, new, || rename_found(olddir, old, newdir, new, flags));
    if result == 0 {
        placed::ways_changed();
        spilled.into_iter().for_each(Leaving::end);
        if let Some(index) = process::index() {
            spill::touch(index, newdir, new);
        }
    }
    result
}

fn rename_found(olddir: i32, old: *const c_char, newdir: i32, new: *const c_char, flags: u32) -> isize {
    let native = || {
        // SAFETY: the program's own arguments.
        unsafe {
            if flags == 0 {
                gate::call4(libc::SYS_renameat, olddir as usize, old as usize, newdir as usize, new as usize)
            } else {
                gate::call5(
                    libc::SYS_renameat2,
                    olddir as usize,
                    old as usize,
                    newdir as usize,
                    new as usize,
                    flags as usize,
                )
            }
        }
    };
    let Some(index) = process::index() else { return native() };
    if let Some(renamed) = make_directory::rename(index, olddir, old, newdir, new, flags) {
        return renamed;
    }
    if old.is_null()
        || new.is_null()
        || !(process::may_be_below_root(index, olddir, old)
            || process::may_be_below_root(index, newdir, new)
            || leads_to_ours(index, olddir, old)
            || leads_to_ours(index, newdir, new))
    {
        return native();
    }
    for (dirfd, path) in [(olddir, old), (newdir, new)] {
        if let Err(error) = elsewhere::brought(index, dirfd, path, false) {
            return error;
        }
    }
    let (mut from, mut to) = (Path::new(), Path::new());
    let first = End::look(index, olddir, old);
    if flags == 0 && first.is_nobodys {
        return native();
    }
    if flags == 0 && REPLACES_NOTHING.load(Relaxed) && rename_to_nobodys(index, &first, newdir, new) {
        return 0;
    }
    let target = End::look(index, newdir, new);
    REPLACES_NOTHING.store(target.is_nobodys, Relaxed);
    if first.number().is_none() && target.number().is_none() {
        if first.is_directory() || (flags & libc::RENAME_EXCHANGE != 0 && target.is_directory()) {
            return rename_directory(index, native, &first, &target, flags);
        }
        return replace_durable(index, native, &first, &target, flags);
    }
    let exchanges = flags & libc::RENAME_EXCHANGE != 0;
    let source_leaves = target.locate_link(index, &mut to) == Place::Elsewhere;
    let target_leaves = exchanges && first.locate_link(index, &mut from) == Place::Elsewhere;
    let mut events = [None; 2];
    let mut removed = None;
    let mut attempt = || {
        let source = End::look(index, olddir, old);
        let target = End::look(index, newdir, new);
        if is_busy(&index, &source.link) || is_busy(&index, &target.link) {
            return BUSY;
        }
        if source_leaves && source.link.is_some() || target_leaves && target.link.is_some() {
            return LEAVES;
        }
        // Of an exchange or a rename to itself the target's name stays.
        let replaces = !exchanges && target.number() != source.number();
        let handle = match &target.link {
            Some(link) if replaces => match link::Handle::open(index, newdir, new) {
                Opened::Link(now, handle) if now.record == link.record => Some(handle),
                Opened::Nothing(_) if link::read(index, newdir, new).is_some_and(|now| now.record == link.record) => {
                    None
                }
                _ => return BUSY,
            },
            _ => None,
        };
        let replaced = if replaces && target.link.is_none() { known_record(index, newdir, new) } else { None };
        if is_busy_record(&index, replaced) {
            return BUSY;
        }
        if replaces {
            about_to_free(index, &target.link);
        }
        let result = native();
        if result != 0 {
            return result;
        }
        events = [source.number(), if exchanges { target.number() } else { None }];
        source.touch();
        if exchanges {
            target.touch();
        }
        // Two names of one inode stay as they are (rename(2)); link() keeps placed files from having two.
        if replaces {
            removed = match &target.link {
                Some(link) => drop_if_removed(index, link, handle.as_ref()),
                None => replaced.filter(|&number| has_lost_its_name(index, number)),
            };
        }
        result
    };
    let mut result = in_guard(index, &mut attempt);
    for _ in 0..SETTLES {
        if result != LEAVES {
            break;
        }
        if source_leaves {
            materialise_path(index, olddir, old, false);
        }
        if target_leaves {
            materialise_path(index, newdir, new, false);
        }
        result = in_guard(index, &mut attempt);
    }
    if result == LEAVES {
        // As between two file systems: the program copies it then.
        return -(libc::EXDEV as isize);
    }
    if result == 0 {
        if let Some(number) = events[0] {
            publish(index, EventKind::Renamed, number, b"", to.get());
        }
        if let Some(number) = events[1] {
            publish(index, EventKind::Renamed, number, b"", from.get());
        }
        if let Some(number) = removed {
            publish(index, EventKind::Removed, number, b"", b"");
        }
    }
    result
}

/// The last new name was nobody's, so the next one is taken to be nobody's, too.
static REPLACES_NOTHING: AtomicBool = AtomicBool::new(true);
/// This program may not call renameat2(2).
static HAS_NO_RENAMEAT2: AtomicBool = AtomicBool::new(false);

/// A file gets a name that is nobody's: the server is not asked for it before. False: it is somebody's or another file system's, or nothing
/// of this was possible, and the rename is to be done otherwise.
fn rename_to_nobodys(index: Index, source: &End, newdir: i32, new: *const c_char) -> bool {
    if index.header.refuses_noreplace.load(Relaxed) != 0 || HAS_NO_RENAMEAT2.load(Relaxed) {
        return false;
    }
    let Some(known) = stat::as_known_at(source.dirfd, source.path, libc::AT_SYMLINK_NOFOLLOW) else { return false };
    let rename = || {
        let (olddir, old) = (source.dirfd as usize, source.path as usize);
        let (newdir, new) = (newdir as usize, new as usize);
        // SAFETY: the program's own arguments.
        let result =
            unsafe { gate::call5(libc::SYS_renameat2, olddir, old, newdir, new, libc::RENAME_NOREPLACE as usize) };
        match -result as i32 {
            libc::EINVAL if known.st_dev == index.header.root_dev.load(Relaxed) => {
                index.header.refuses_noreplace.store(1, Relaxed)
            }
            libc::ENOSYS => HAS_NO_RENAMEAT2.store(true, Relaxed),
            _ => {}
        }
        result
    };
    if source.number().is_none() {
        // A directory takes along what is below it.
        return known.st_mode & libc::S_IFMT != libc::S_IFDIR && rename() == 0;
    }
    let mut to = Path::new();
    if End::named(newdir, new).locate_link(index, &mut to) != Place::Below {
        return false;
    }
    let mut renamed = None;
    let result = in_guard(index, || {
        let source = End::look(index, source.dirfd, source.path);
        if is_busy(&index, &source.link) {
            return BUSY;
        }
        let result = rename();
        if result == 0 {
            renamed = source.number();
            source.touch();
        }
        result
    });
    if let Some(number) = renamed {
        publish(index, EventKind::Renamed, number, b"", to.get());
    }
    result == 0
}

/// A rename of what has no object or replica, onto a durable file that was placed once: that loses its name, and its inode number
/// may soon be another file's.
fn replace_durable(index: Index, native: impl Fn() -> isize, source: &End, target: &End, flags: u32) -> isize {
    if flags != 0 || index.header.durable_count.load(Relaxed) <= 0 {
        return native();
    }
    let ino = |end: &End| stat::kernel_stat(end.dirfd, end.path, libc::AT_SYMLINK_NOFOLLOW).map(|status| status.st_ino);
    in_guard(index, || {
        let replaced = known_record(index, target.dirfd, target.path).filter(|_| ino(source) != ino(target));
        if is_busy_record(&index, replaced) {
            return BUSY;
        }
        let result = native();
        if result == 0
            && let Some(number) = replaced
        {
            has_lost_its_name(index, number);
        }
        result
    })
}

/// Does what concerns a directory while no commit is under way, and none begins.
pub fn between_commits(index: Index, act: impl FnOnce() -> isize) -> isize {
    index.header.dir_renames.fetch_add(1, SeqCst);
    for _ in 0..20_000 {
        if index.header.committing.load(SeqCst) == 0 {
            break;
        }
        process::sleep_us(WAIT_US);
    }
    let result = act();
    index.header.dir_renames.fetch_sub(1, SeqCst);
    result
}

/// A directory takes along everything below it, so no commit may be under way anywhere.
fn rename_directory(index: Index, native: impl Fn() -> isize, source: &End, target: &End, flags: u32) -> isize {
    let (mut from, mut to) = (Path::new(), Path::new());
    let exchanges = flags & libc::RENAME_EXCHANGE != 0;
    let from_place = source.locate(index, &mut from);
    let to_place = target.locate(index, &mut to);
    // What leaves the root must not depend on us any more. If that fails: as between two file systems.
    if to_place == Place::Elsewhere && from_place == Place::Below && materialise_below(index, from.get()) != 0
        || exchanges
            && from_place == Place::Elsewhere
            && to_place == Place::Below
            && materialise_below(index, to.get()) != 0
    {
        return -(libc::EXDEV as isize);
    }
    let result = between_commits(index, || {
        let result = native();
        index.header.dir_renamed.fetch_add(1, SeqCst);
        result
    });
    if result == 0 {
        publish(index, EventKind::Renamed, NO_RECORD, from.get(), to.get());
        if exchanges {
            publish(index, EventKind::Renamed, NO_RECORD, to.get(), from.get());
        }
    }
    result
}

pub fn link_at(olddir: i32, old: *const c_char, newdir: i32, new: *const c_char, flags: i32) -> isize {
    let made = link_found(olddir, old, newdir, new, flags);
    if made == 0 {
        placed::ways_changed(); // it may be a symbolic link
    }
    made
}

fn link_found(olddir: i32, old: *const c_char, newdir: i32, new: *const c_char, flags: i32) -> isize {
    let (first, second) = (Way::of(olddir, old), Way::of(newdir, new));
    let (olddir, old, newdir, new) = (first.dirfd(), first.path(), second.dirfd(), second.path());
    let native = || {
        // SAFETY: the program's own arguments.
        unsafe {
            gate::call5(libc::SYS_linkat, olddir as usize, old as usize, newdir as usize, new as usize, flags as usize)
        }
    };
    let Some(index) = process::index() else { return native() };
    let is_known = flags & !(libc::AT_SYMLINK_FOLLOW | libc::AT_EMPTY_PATH) == 0;
    if !is_known || !readable::is_text(old) || !readable::is_text(new) {
        return native();
    }
    if flags & libc::AT_EMPTY_PATH != 0 {
        // An open file by its descriptor: it becomes a real file, and the descriptor follows.
        settle_descriptor(index, olddir);
        return native();
    }
    let native = || spill::with_room(newdir, new, native);
    let follow = flags & libc::AT_SYMLINK_FOLLOW != 0;
    if spill::is_at(index, olddir, old) {
        return link_spilled(index, olddir, old, newdir, new);
    }
    if placed::link_at(index, olddir, old).is_some() {
        return -(libc::EPERM as isize); // of a directory, as the kernel says
    }
    if stat::kernel_stat(newdir, new, libc::AT_SYMLINK_NOFOLLOW).is_some() {
        // Not the kernel's own call: by then the name may be free, and it would make a second name of a link.
        let flags = if follow { 0 } else { libc::AT_SYMLINK_NOFOLLOW };
        return match stat::kernel_stat_or_error(olddir, old, flags) {
            Ok(_) => -(libc::EEXIST as isize),
            // Behind a link of another node there is a file.
            Err(_) if follow && stat::kernel_stat(olddir, old, libc::AT_SYMLINK_NOFOLLOW).is_some() => native(),
            Err(error) => error,
        };
    }
    let parent = Parent::of(newdir, new);
    if let Err(error) = parent
        && matches!(-error as i32, libc::EMFILE | libc::ENFILE | libc::ENOMEM)
    {
        return error; // the kernel needs no descriptor, and would name a link of ours
    }
    if cannot_be_made(parent) {
        // It fails, and the file is left where it is.
        let refused = native();
        let is_ours = refused == -(libc::EPERM as isize) && !follow && link::read(index, olddir, old).is_some();
        return if is_ours && may_be_linked(olddir, old) { -(libc::EACCES as isize) } else { refused };
    }
    for _ in 0..LINKS_MAX {
        if let Err(error) = elsewhere::brought(index, olddir, old, follow) {
            return error;
        }
        if !settle_name(index, olddir, old, follow) {
            // The durable tier is full, say: better no second name than one that dangles.
            return -(libc::EIO as isize);
        }
        if let Some(result) = make_directory::link_over_edge(index, (olddir, old), (newdir, new)) {
            return result;
        }
        if follow {
            break;
        }
        let is_there = || stat::kernel_stat(olddir, old, libc::AT_SYMLINK_NOFOLLOW).is_some();
        let linked = match link_regular(olddir, old, newdir, new) {
            Some(result) if spill::has_root_room(result) => link_regular(olddir, old, newdir, new),
            other => other,
        };
        match linked.map(|result| (result, -result as i32)) {
            // The name is another file's by now, and what was found had no other.
            Some((_, libc::ENOENT | libc::ESTALE)) if is_there() => continue,
            Some((_, libc::ENOSPC)) if spill::has_made_room(newdir, new) => continue,
            Some((result, _)) => return result,
            None => {}
        }
        // A link: of ours if another node has just made a file there.
        if link::read(index, olddir, old).is_none() {
            match elsewhere::bring(index, olddir, old, false) {
                Brought::Not => break,
                Brought::Failed(error) => return error,
                Brought::Done => {}
            }
        }
    }
    let is_an_objects = || link::read(index, olddir, old).is_some() || link::is_elsewhere(index, olddir, old);
    if !follow && is_an_objects() { -(libc::EIO as isize) } else { native() }
}

/// The file at the name becomes a real one, and so does each that takes its place meanwhile. False: it stays in its tier.
fn settle_name(index: Index, dirfd: i32, path: *const c_char, follow: bool) -> bool {
    let mut tries = 0;
    let mut before = link::read(index, dirfd, path);
    loop {
        // Whatever the name's own text: a link from outside may lead to it.
        let answer = materialise_name(index, dirfd, path, follow);
        let Some(now) = link::read(index, dirfd, path) else { return true };
        let is_another = before.is_none_or(|before: Link| before.text != now.text);
        // The agent had not heard yet of the name that it got.
        let may_try = is_another || matches!(answer, None | Some(0 | libc::ENOENT));
        tries += if is_another { 1 } else { SETTLES_MAX / SETTLES_OF_ONE };
        if tries >= SETTLES_MAX || !may_try {
            return follow;
        }
        before = Some(now);
    }
}

/// A second name for what is found at the first one now, by its descriptor: a name may be another node's link by the time of the kernel's
/// look. `None`: it is not a regular file.
fn link_regular(olddir: i32, old: *const c_char, newdir: i32, new: *const c_char) -> Option<isize> {
    let flags = libc::O_PATH | libc::O_NOFOLLOW | libc::O_CLOEXEC;
    // SAFETY: the program's paths, found readable; a descriptor of ours.
    unsafe {
        let fd = gate::call4(libc::SYS_openat, olddir as usize, old as usize, flags as usize, 0);
        if fd < 0 {
            return Some(fd);
        }
        let is_regular = |status: &libc::stat| status.st_mode & libc::S_IFMT == libc::S_IFREG;
        let result = data::fstat(fd as i32).filter(is_regular).map(|_| {
            let itself = descriptor_link(fd as i32);
            let (at, follow) = (libc::AT_FDCWD as usize, libc::AT_SYMLINK_FOLLOW as usize);
            gate::call5(libc::SYS_linkat, at, itself.as_ptr() as usize, newdir as usize, new as usize, follow)
        });
        // Of a file that has a name: there is no /proc.
        let has_name = || data::fstat(fd as i32).is_some_and(|status| status.st_nlink > 0);
        let result = result.filter(|result| *result != -(libc::ENOENT as isize) || !has_name());
        gate::call1(libc::SYS_close, fd as usize);
        result
    }
}

/// A second name in placed directories is a link to a second name of the file where it lies, so that it has as many as programs made.
fn link_spilled(index: Index, olddir: i32, old: *const c_char, newdir: i32, new: *const c_char) -> isize {
    let parent = match Parent::of(newdir, new) {
        Ok(Some(parent)) => parent,
        Ok(None) => return -(libc::EEXIST as isize),
        Err(error) => return error,
    };
    if placed::leads_inside(index, parent.fd).is_none() {
        let is_there = stat::kernel_stat(newdir, new, libc::AT_SYMLINK_NOFOLLOW).is_some();
        let linked = make_directory::link_over_edge(index, (olddir, old), (newdir, new));
        return linked.unwrap_or(-(if is_there { libc::EEXIST } else { libc::EXDEV } as isize));
    }
    spill::with_room(newdir, new, || spill::name_again(olddir, old, &parent))
}

/// `fs.protected_hardlinks` lets others link what they may read and write. It says of no symbolic link that it is such a file.
fn may_be_linked(dirfd: i32, path: *const c_char) -> bool {
    const SETS_GROUP: u32 = libc::S_ISGID | libc::S_IXGRP;
    // SAFETY: the program's path, found readable.
    let allowed = unsafe {
        let wanted = (libc::R_OK | libc::W_OK) as usize;
        gate::call4(libc::SYS_faccessat2, dirfd as usize, path as usize, wanted, libc::AT_EACCESS as usize)
    };
    let is_plain = |found: libc::stat| found.st_mode & libc::S_ISUID == 0 && found.st_mode & SETS_GROUP != SETS_GROUP;
    allowed == 0 && stat::kernel_stat(dirfd, path, 0).is_some_and(is_plain)
}

/// Its directory takes none.
fn cannot_be_made(parent: Result<Option<Parent>, isize>) -> bool {
    let Ok(Some(parent)) = parent else { return true };
    parent.may_change() == -(libc::EACCES as isize)
}

fn settle_descriptor(index: Index, fd: i32) {
    // SAFETY: a zeroed stat is valid.
    let number = unsafe {
        let mut status: libc::stat = core::mem::zeroed();
        if gate::call2(libc::SYS_fstat, fd as usize, &raw mut status as usize) != 0 {
            return;
        }
        data::record_of(index, fd, &status)
    };
    if let Some(number) = number {
        materialise(index, number);
        data::follow(index, fd);
    }
}

/// chroot(2) into a directory of the root: our links lead out of it, so that what lies below becomes real files first.
pub fn change_root(path: *const c_char) -> isize {
    if let Some(index) = process::index() {
        let flags = libc::O_PATH | libc::O_DIRECTORY | libc::O_CLOEXEC;
        // SAFETY: the program's path; a descriptor of ours.
        unsafe {
            let fd = gate::call4(libc::SYS_openat, CWD as usize, path as usize, flags as usize, 0);
            if fd >= 0 {
                let mut name = Path::new();
                if name.of_descriptor(fd as i32) && below_root(index, name.get()) {
                    materialise_below(index, name.get());
                }
                gate::call1(libc::SYS_close, fd as usize);
            }
        }
    }
    // The supervisor notes who has another root. SAFETY: the program's own argument.
    let result = unsafe { gate::outside6(libc::SYS_chroot, path as usize, 0, 0, 0, 0, 0) };
    placed::ways_changed();
    process::forget_cwd();
    result
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn chroot(path: *const c_char) -> c_int {
    returned(change_root(path))
}

fn returned(raw: isize) -> c_int {
    real::outcome(raw) as c_int
}

const CWD: c_int = libc::AT_FDCWD;

#[unsafe(no_mangle)]
pub unsafe extern "C" fn unlink(path: *const c_char) -> c_int {
    returned(unlink_at(CWD, path, 0))
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unlinkat(dirfd: c_int, path: *const c_char, flags: c_int) -> c_int {
    returned(unlink_at(dirfd, path, flags))
}
/// remove(3): unlink, or rmdir for a directory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remove(path: *const c_char) -> c_int {
    match unlink_at(CWD, path, 0) {
        errno if errno == -(libc::EISDIR as isize) || errno == -(libc::EPERM as isize) => {
            let rmdir = make_directory::rmdir_at(CWD, path);
            returned(if rmdir == -(libc::ENOTDIR as isize) { errno } else { rmdir })
        }
        result => returned(result),
    }
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rename(old: *const c_char, new: *const c_char) -> c_int {
    returned(rename_at(CWD, old, CWD, new, 0))
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn renameat(olddir: c_int, old: *const c_char, newdir: c_int, new: *const c_char) -> c_int {
    returned(rename_at(olddir, old, newdir, new, 0))
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn renameat2(
    olddir: c_int,
    old: *const c_char,
    newdir: c_int,
    new: *const c_char,
    flags: c_uint,
) -> c_int {
    returned(rename_at(olddir, old, newdir, new, flags))
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn link(old: *const c_char, new: *const c_char) -> c_int {
    returned(link_at(CWD, old, CWD, new, 0))
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linkat(
    olddir: c_int,
    old: *const c_char,
    newdir: c_int,
    new: *const c_char,
    flags: c_int,
) -> c_int {
    returned(link_at(olddir, old, newdir, new, flags))
}
