//! Who has a file open, or mapped: what the kernel shows of all processes below /proc (proc(5)).
//!
//! To show a process's mappings the kernel waits for its memory, which a process that gives back a mapping holds for as long as its
//! file system takes to write it: for ever, if that hangs. So the look has a thread of its own, and whoever asked goes on without it.

use crate::shared::path::read_link;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::sync::mpsc;
use std::time::Duration;

/// What the kernel adds to the path of a file that has lost its name.
pub const DELETED: &[u8] = b" (deleted)";
/// A look takes milliseconds, on a busy machine some tens of them.
const PATIENCE: Duration = Duration::from_secs(5);

/// True while a look lasts longer than its patience: the next ones would not fare better, and each would leave a thread behind.
static HANGS: AtomicBool = AtomicBool::new(false);

/// The file that is looked for.
#[derive(Clone)]
pub struct Wanted {
    pub dev: u64,
    pub ino: u64,
    /// Its canonical path.
    pub name: Vec<u8>,
    /// The library's file name, by which a process that has loaded it is known.
    pub library: Vec<u8>,
}

/// A process that has the file open.
pub struct Holder {
    pub pid: u32,
    pub has_library: bool,
}

/// Who has it open. `None`: somebody has it mapped shared, or the kernel doesn't say in time.
pub fn holders(wanted: &Wanted) -> Option<Vec<Holder>> {
    let wanted = wanted.clone();
    within(PATIENCE, &HANGS, move || look(&wanted)).flatten()
}

/// What `work` gives, if it does so in time.
fn within<T: Send + 'static>(
    patience: Duration,
    hangs: &'static AtomicBool,
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    if hangs.load(Acquire) {
        return None;
    }
    let (sender, receiver) = mpsc::channel();
    let worker = move || {
        // Nobody listens when it comes too late.
        let _ = sender.send(work());
        hangs.store(false, Release);
    };
    std::thread::Builder::new().name("holders".into()).spawn(worker).ok()?;
    match receiver.recv_timeout(patience) {
        Ok(found) => Some(found),
        Err(_) => {
            hangs.store(true, Release);
            // It may have come to its end in between.
            let late = receiver.try_recv().ok();
            if late.is_some() {
                hangs.store(false, Release);
            }
            late
        }
    }
}

fn look(wanted: &Wanted) -> Option<Vec<Holder>> {
    let identity =
        format!("{:02x}:{:02x} {} ", rustix::fs::major(wanted.dev), rustix::fs::minor(wanted.dev), wanted.ino);
    let is_mapped_shared = |line: &[u8]| {
        let mut fields = line.splitn(3, |&byte| byte == b' ');
        let is_shared = fields.nth(1).is_some_and(|access| access.get(3) == Some(&b's'));
        is_shared && (contains(line, identity.as_bytes()) || line.ends_with(&wanted.name))
    };
    let mut found = vec![];
    for process in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = process.file_name().to_str().and_then(|pid| pid.parse::<u32>().ok()) else { continue };
        if pid == std::process::id() {
            continue;
        }
        let maps = std::fs::read(process.path().join("maps")).unwrap_or_default();
        if maps.split(|&byte| byte == b'\n').any(is_mapped_shared) {
            return None;
        }
        let fds = std::fs::read_dir(process.path().join("fd")).into_iter().flatten().flatten();
        let has_it = fds.into_iter().any(|fd| {
            read_link(fd.path().as_os_str().as_bytes())
                .is_some_and(|text| text.strip_suffix(DELETED).unwrap_or(&text) == wanted.name)
        });
        if has_it {
            found.push(Holder { pid, has_library: contains(&maps, &wanted.library) });
        }
    }
    Some(found)
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    !part.is_empty() && bytes.windows(part.len()).any(|window| window == part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_asks_goes_on_without_an_answer_that_does_not_come_and_nobody_waits_for_it_again() {
        static HANGS: AtomicBool = AtomicBool::new(false);
        let (go_on, wait) = mpsc::channel::<()>();
        let patience = Duration::from_millis(20);
        assert!(within(patience, &HANGS, move || wait.recv()).is_none());
        let (asked, was_asked) = mpsc::channel();
        assert!(within(patience, &HANGS, move || asked.send(())).is_none());
        assert!(was_asked.recv().is_err(), "no second thread waits");
        go_on.send(()).unwrap();
        while HANGS.load(Acquire) {
            std::thread::yield_now();
        }
        assert_eq!(within(Duration::from_secs(20), &HANGS, || 7), Some(7));
    }

    #[test]
    fn a_file_is_found_with_who_has_it_open_and_one_that_is_mapped_with_nobody() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let found = rustix::fs::stat(file.path()).unwrap();
        let name = file.path().canonicalize().unwrap().as_os_str().as_bytes().to_vec();
        let wanted = Wanted { dev: found.st_dev, ino: found.st_ino, name, library: b"libterrace".to_vec() };
        assert!(holders(&wanted).unwrap().is_empty(), "this process is not looked at");
        let mut reader = std::process::Command::new("sleep").arg("60").stdin(file.reopen().unwrap()).spawn().unwrap();
        let holders = holders(&wanted).unwrap();
        reader.kill().unwrap();
        reader.wait().unwrap();
        assert_eq!(
            holders.iter().map(|holder| (holder.pid, holder.has_library)).collect::<Vec<_>>(),
            [(reader.id(), false)]
        );
    }
}
