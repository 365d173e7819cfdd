//! Spilled files: of a placed directory whose tier is full. The file lies in a lower tier, or in the root's file system, and its name in
//! the directory is a link to it.
//!
//!   new file ─▶ its directory's tier is (nearly) full? ─▶ file below `spill/` ─▶ link in the directory
//!   a name goes ─▶ was it such a link, and its last name? ─▶ the file goes
//!
//! A spilled file has no record. All that lies in placed directories goes at the end of the run, and spilled files with it: what is left
//! behind by who was killed waits until then.
//!
//! Invariant: the link is made last, and goes first: who finds the name finds the file. While nothing is spilled, and no tier is nearly
//! full, all of this costs one look at a number.

use crate::agent_call::{Request, call};
use crate::create::{has_default_acl, random, room_min};
use crate::path::{Parent, Path};
use crate::placed;
use crate::{caller, data, gate, link, make_directory, process, readable, stat};
use core::ffi::c_char;
use core::sync::atomic::Ordering::*;
use terrace_index::calls::CallKind;
use terrace_index::{Index, NAME_LEN, RECORDS, SPILLS, Spill};

/// So often the agent is asked for room for one name: another program may be faster.
const ROOM_TRIES: usize = 4;

#[inline]
pub fn any(index: Index) -> bool {
    index.header.spilling.load(Relaxed) != 0
}

/// The name is a spilled file's.
pub fn is_at(index: Index, dirfd: i32, path: *const c_char) -> bool {
    let mut text = Path::new();
    any(index) && text.of_link_at(dirfd, path) && index.spill(text.get()).is_some()
}

/// `status` is a link's that lies in a tier: if it is a spilled file's, becomes that's.
pub fn look_through(index: Index, dirfd: i32, path: *const c_char, status: &mut libc::stat, flags: i32) -> bool {
    if !any(index) || !index.device_of_dev(status.st_dev) || !is_at(index, dirfd, path) {
        return false;
    }
    let flags = flags & !libc::AT_SYMLINK_NOFOLLOW;
    let Some(found) = stat::kernel_stat(dirfd, path, flags) else { return false };
    *status = found;
    stat::rewrite_durable(index, status);
    placed::rewrite(index, dirfd, path, flags, status);
    true
}

/// A name of the file at the path was made or changed, which is a change of the file: chown to the same owner sets the time of that, and
/// nothing else, unless there are setuid bits to lose.
pub fn touch(index: Index, dirfd: i32, path: *const c_char) {
    let mut file = Path::new();
    if any(index) && file.of_link_at(dirfd, path) && index.spill(file.get()).is_some() {
        touch_file(&file);
    }
}

fn touch_file(file: &Path) {
    let bits = |found: libc::stat| found.st_mode & (libc::S_ISUID | libc::S_ISGID);
    if stat::kernel_stat(libc::AT_FDCWD, file.as_ptr(), 0).map(bits) == Some(0) {
        // SAFETY: a terminated path of ours.
        unsafe { gate::call3(libc::SYS_chown, file.as_ptr() as usize, usize::MAX, usize::MAX) };
    }
}

/// A new file in a placed directory whose tier has no room for it, as the kernel's open returns it. `None`: it is made where it is.
pub fn create(index: Index, dirfd: i32, path: *const c_char, flags: i32, mode: u32) -> Option<isize> {
    // What a program without the library will write, nobody counts: its files look by themselves.
    let is_unseen = caller::is_supervisor() && placed::any(index);
    if !any(index) && !is_unseen {
        return None;
    }
    let parent = Parent::of(dirfd, path).ok()??;
    let directory = placed::leads_inside(index, parent.fd)?;
    let own = link::record(&index, directory).device.load(Relaxed) as usize % terrace_index::DEVICES;
    let least = room_min(&index.header.devices[own]);
    let is_full = index.header.devices[own].free() < least || is_unseen && free_at(parent.fd) < least;
    if !is_full || has_default_acl(&parent) {
        return None;
    }
    begin(index);
    let above = stat::kernel_stat(parent.fd, c"".as_ptr(), libc::AT_EMPTY_PATH)?;
    let group = if above.st_mode & libc::S_ISGID != 0 { above.st_gid as usize } else { usize::MAX };
    let mut tried = 1u32 << own;
    loop {
        let device = below(index, own, tried);
        if let Some(device) = device {
            tried |= 1 << device;
        }
        let mut file = Path::new();
        let Some(fd) = make(index, device, flags, mode, group, &mut file) else {
            // Not even in the root: the kernel says what is wrong where the file would be.
            device?;
            continue;
        };
        // SAFETY: terminated paths of ours and the program's; a descriptor of ours.
        unsafe {
            let (at, base) = (parent.fd as usize, parent.base as usize);
            let linked = gate::call3(libc::SYS_symlinkat, file.as_ptr() as usize, at, base);
            if linked == 0 {
                return Some(fd);
            }
            gate::call1(libc::SYS_unlink, file.as_ptr() as usize);
            gate::call1(libc::SYS_close, fd as usize);
            return (linked == -(libc::EEXIST as isize)).then_some(linked);
        }
    }
}

/// Makes a name. Where that lies in a placed directory whose tier has no room for it, the agent moves files down first.
pub fn with_room(dirfd: i32, path: *const c_char, make: impl Fn() -> isize) -> isize {
    let mut made = with_root_room(&make);
    for _ in 0..ROOM_TRIES {
        if made != -(libc::ENOSPC as isize) || !has_made_room(dirfd, path) {
            break;
        }
        made = make();
    }
    made
}

/// Makes a name in the root. Where that is full, the agent is asked to let go of files without names first.
pub fn with_root_room(make: impl Fn() -> isize) -> isize {
    let made = make();
    if has_root_room(made) { make() } else { made }
}

/// The call said that the root is full, and the agent has let go of what nobody else has open there.
pub fn has_root_room(made: isize) -> bool {
    matches!(-made as i32, libc::ENOSPC | libc::EDQUOT) && process::index().is_some_and(data::has_let_go)
}

/// After ENOSPC: the agent has found room in the tier of the placed directory that the name lies in.
#[cold]
pub fn has_made_room(dirfd: i32, path: *const c_char) -> bool {
    let Some(index) = process::index().filter(|&index| placed::any(index)) else { return false };
    let mut name = Path::new();
    if !readable::is_text(path) || !make_directory::plain(path, &mut name) {
        return false;
    }
    let Ok(Some(parent)) = Parent::of(dirfd, name.as_ptr()) else { return false };
    has_made_room_in(index, parent.fd)
}

/// As `has_made_room`, of the directory itself.
pub fn has_made_room_in(index: Index, directory: i32) -> bool {
    placed::leads_inside(index, directory).is_some_and(|record| {
        begin(index);
        call(index, &Request { kind: CallKind::MakeRoom, record, size: 0, path: b"", fd: -1 }).status == 0
    })
}

/// What the file system of a directory has free at this moment.
fn free_at(fd: i32) -> i64 {
    // SAFETY: a zeroed structure is valid, and the kernel fills it.
    unsafe {
        let mut space: libc::statfs = core::mem::zeroed();
        match gate::call2(libc::SYS_fstatfs, fd as usize, &raw mut space as usize) {
            0 => (space.f_bavail as i64).saturating_mul(space.f_bsize),
            _ => i64::MAX,
        }
    }
}

/// The fastest lower tier with room that was not tried.
fn below(index: Index, own: usize, tried: u32) -> Option<usize> {
    let tier = |device: usize| index.header.devices[device].tier.load(Relaxed);
    let takes = |&number: &usize| {
        let device = &index.header.devices[number];
        tried & 1 << number == 0
            && tier(number) > tier(own)
            && device.accepts.load(Relaxed) != 0
            && device.free() >= room_min(device)
    };
    (0..index.devices().len()).filter(takes).min_by_key(|&number| (tier(number), -index.header.devices[number].free()))
}

/// The file, under no name that programs know; its path in `file`.
fn make(index: Index, device: Option<usize>, flags: i32, mode: u32, group: usize, file: &mut Path) -> Option<isize> {
    let mut name = [0; NAME_LEN];
    terrace_index::write_name(RECORDS as u32 - 1, random(), &mut name);
    let fits = match device {
        Some(device) => file.push(index.header.devices[device].dir.get()) && file.push(SPILLS.as_bytes()),
        None => file.push(index.header.spills.get()),
    };
    if !fits || !file.push(&name) || file.get().len() == NAME_LEN {
        return None;
    }
    let kept = flags & !(libc::O_TRUNC | libc::O_NOFOLLOW | libc::O_DIRECTORY) | libc::O_CREAT | libc::O_EXCL;
    // SAFETY: a terminated path of ours; a descriptor of ours.
    unsafe {
        let (cwd, path) = (libc::AT_FDCWD as usize, file.as_ptr() as usize);
        let fd = gate::call4(libc::SYS_openat, cwd, path, kept as usize, mode as usize);
        if fd < 0 {
            return None;
        }
        if group != usize::MAX {
            gate::call3(libc::SYS_fchown, fd as usize, usize::MAX, group);
        }
        Some(fd)
    }
}

/// Another name for the spilled file at a name, as the kernel's link(2) returns it: the file's own first, then the link to that.
pub fn name_again(dirfd: i32, path: *const c_char, parent: &Parent) -> isize {
    let (mut file, mut again) = (Path::new(), Path::new());
    let mut name = [0; NAME_LEN];
    terrace_index::write_name(RECORDS as u32 - 1, random(), &mut name);
    let fits = file.of_link_at(dirfd, path)
        && file.get().len() > NAME_LEN
        && again.push(&file.get()[..file.get().len() - NAME_LEN])
        && again.push(&name);
    if !fits {
        return -(libc::ENOENT as isize);
    }
    // SAFETY: terminated paths of ours and the program's.
    unsafe {
        let cwd = libc::AT_FDCWD as usize;
        let named = gate::call5(libc::SYS_linkat, cwd, file.as_ptr() as usize, cwd, again.as_ptr() as usize, 0);
        if named != 0 {
            return named;
        }
        let (at, base) = (parent.fd as usize, parent.base as usize);
        let linked = gate::call3(libc::SYS_symlinkat, again.as_ptr() as usize, at, base);
        if linked != 0 {
            gate::call1(libc::SYS_unlink, again.as_ptr() as usize);
        }
        linked
    }
}

/// Two names that lead to one spilled file: to the kernel they are names of two links, or of a link and the file.
pub fn are_names_of_one(index: Index, one: (i32, *const c_char), other: (i32, *const c_char)) -> bool {
    let found = |(dirfd, path)| stat::kernel_stat(dirfd, path, 0).map(|found| (found.st_dev, found.st_ino));
    any(index)
        && readable::is_text(one.1)
        && readable::is_text(other.1)
        && (is_at(index, one.0, one.1) || is_at(index, other.0, other.1))
        && found(one).is_some_and(|file| found(other) == Some(file))
}

/// A spilled file's name that a call is about to take away.
pub struct Leaving {
    handle: link::Handle,
    file: Path,
}

impl Leaving {
    pub fn look(index: Index, dirfd: i32, path: *const c_char) -> Option<Leaving> {
        if !is_at(index, dirfd, path) {
            return None;
        }
        let handle = link::Handle::of(dirfd, path)?;
        let mut file = Path::new();
        (file.of_link_at(handle.fd(), c"".as_ptr()) && index.spill(file.get()).is_some())
            .then_some(Leaving { handle, file })
    }

    /// After the call: what the name led to goes, and with its last name the file.
    pub fn end(self) {
        if self.handle.is_removed() {
            // SAFETY: a terminated path of ours.
            unsafe { gate::call1(libc::SYS_unlink, self.file.as_ptr() as usize) };
        }
    }
}

/// A path leads to a spilled file.
pub fn is_led_to(index: Index, path: *const c_char) -> bool {
    if !any(index) {
        return false;
    }
    let flags = libc::O_PATH | libc::O_CLOEXEC;
    let mut text = Path::new();
    // SAFETY: the program's path; a descriptor of ours.
    unsafe {
        let fd = gate::call4(libc::SYS_openat, libc::AT_FDCWD as usize, path as usize, flags as usize, 0);
        if fd < 0 {
            return false;
        }
        let found = text.of_descriptor(fd as i32);
        gate::call1(libc::SYS_close, fd as usize);
        found && index.spill(text.get()).is_some()
    }
}

/// A new file's directory had no room for it: from now on files are spilled. False: they were before.
pub fn begin(index: Index) -> bool {
    placed::any(index) && index.header.spilling.swap(1, SeqCst) == 0
}

/// What lies there is in the space of its device's inode numbers.
pub fn device_of(index: Index, text: &[u8]) -> Option<usize> {
    match index.spill(text)? {
        Spill::Device(device) => Some(device),
        Spill::Root => None,
    }
}
