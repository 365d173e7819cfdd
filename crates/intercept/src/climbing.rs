//! Symbolic links that lead out of a placed directory by `..`: made as the kernel can follow them, shown as the program wrote them
//! (`terrace_index::climbing`).

use crate::path::{Parent, Path};
use crate::placed::{self, Way};
use crate::{gate, process, readable, real, spill};
use core::ffi::{CStr, c_char, c_int};
use terrace_index::Index;
use terrace_index::climbing::{MARK, stored, told};

const CWD: c_int = libc::AT_FDCWD;

/// symlinkat(2), as the kernel returns it.
pub fn symlink_at(target: *const c_char, dirfd: i32, path: *const c_char) -> isize {
    let way = Way::of(dirfd, path);
    let (dirfd, path) = (way.dirfd(), way.path());
    let mut text = Path::new();
    let led = match process::index().filter(|&index| placed::any(index)) {
        Some(index) if leads_out(index, target, dirfd, path, &mut text) => text.as_ptr(),
        _ => target,
    };
    let made = spill::with_room(dirfd, path, || {
        // SAFETY: the program's own arguments, or the same target by another way.
        unsafe { gate::call3(libc::SYS_symlinkat, led as usize, dirfd as usize, path as usize) }
    });
    placed::ways_changed();
    made
}

/// A link of this text would climb out of a placed directory: what is stored instead.
#[cold]
fn leads_out(index: Index, target: *const c_char, dirfd: i32, path: *const c_char, out: &mut Path) -> bool {
    if !readable::is_text(target) {
        return false;
    }
    // SAFETY: the program's C string.
    let text = unsafe { CStr::from_ptr(target) }.to_bytes();
    if !text.starts_with(b"..") {
        return false;
    }
    let Ok(Some(parent)) = Parent::of(dirfd, path) else { return false };
    let (mut place, mut shown) = (Path::new(), Path::new());
    if !place.of_descriptor(parent.fd) || !placed::shown_now(index, place.get(), &mut shown) {
        return false;
    }
    let Some((_, rest)) = index.inside(place.get()) else { return false };
    let below = rest.iter().filter(|&&byte| byte == b'/').count();
    let Some((base, rest)) = stored(shown.get(), below, text) else { return false };
    out.push(base) && out.push(MARK) && out.push(rest)
}

/// What a program is to read of a link there, if it is stored otherwise.
pub fn read(index: Index, dirfd: i32, path: *const c_char, out: &mut Path) -> bool {
    let (mut text, mut place) = (Path::new(), Path::new());
    if !text.of_link_at(dirfd, path) || !text.get().windows(MARK.len()).any(|part| part == MARK) {
        return false;
    }
    let found = match Parent::of(dirfd, path) {
        Ok(Some(parent)) => place.of_descriptor(parent.fd),
        // A descriptor of the link itself.
        _ => dirfd != CWD && place.of_descriptor(dirfd) && place.cut_to_directory(),
    };
    let mut shown = Path::new();
    if !found || !placed::shown(index, place.get(), &mut shown) {
        return false;
    }
    let Some((ups, rest)) = told(shown.get(), text.get()) else { return false };
    out.clear();
    (0..ups).all(|up| out.push(if up == 0 { b".." } else { b"/.." }))
        && (rest.is_empty() || out.push(b"/") && out.push(rest))
}

/// The length of what a program reads of a link there, if it is stored otherwise.
pub fn length(index: Index, dirfd: i32, path: *const c_char) -> Option<usize> {
    let mut text = Path::new();
    read(index, dirfd, path, &mut text).then(|| text.get().len())
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn symlink(target: *const c_char, path: *const c_char) -> c_int {
    real::outcome(symlink_at(target, CWD, path)) as c_int
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn symlinkat(target: *const c_char, dirfd: c_int, path: *const c_char) -> c_int {
    real::outcome(symlink_at(target, dirfd, path)) as c_int
}
