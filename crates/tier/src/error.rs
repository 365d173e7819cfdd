//! Errors: what failed, on what, and what the caller does next.
//!
//! The errno is chosen where the error is born and travels as its `io::Error` source.

use rustix::io::Errno;
use std::io;
use std::path::{Path, PathBuf};

pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What the caller does with an error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    /// The state of the world was in the way: the same call may succeed later.
    Retry,
    /// The request or the configuration is wrong: somebody has to change it.
    FixInput,
    /// Neither helps: report it and leave the data where it is.
    GiveUp,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The source is not what it was when its copy began; the copy is worthless.
    #[error("{} changed while it was copied", path.display())]
    SourceChanged { path: PathBuf },
    /// A program wants to write the source; the copy was given up so that it need not wait.
    #[error("copying {} stopped because a program opened it for writing", path.display())]
    LeaseBroken { path: PathBuf },
    #[error("copying {} was interrupted", path.display())]
    Aborted { path: PathBuf },
    /// A name that cannot be below a tier.
    #[error("{:?} is not a name in a tier: {reason}", path)]
    Name { path: PathBuf, reason: &'static str },
    #[error("can't {action} {}: {source}", path.display())]
    Io { action: &'static str, path: PathBuf, source: io::Error },
    #[error("the journal {} is in use by another agent", path.display())]
    JournalLocked { path: PathBuf },
    #[error("the journal {} can't be read: {reason}", path.display())]
    JournalCorrupt { path: PathBuf, reason: String },
    #[error("can't write the journal {}: {source}", path.display())]
    Journal { path: PathBuf, source: io::Error },
}

impl Error {
    pub fn io(action: &'static str, path: impl Into<PathBuf>, source: impl Into<io::Error>) -> Error {
        Error::Io { action, path: path.into(), source: source.into() }
    }

    pub fn path(&self) -> &Path {
        match self {
            Error::SourceChanged { path }
            | Error::LeaseBroken { path }
            | Error::Aborted { path }
            | Error::Name { path, .. }
            | Error::Io { path, .. }
            | Error::JournalLocked { path }
            | Error::JournalCorrupt { path, .. }
            | Error::Journal { path, .. } => path,
        }
    }

    /// The errno to give to a program; EIO where the system gave none.
    pub fn errno(&self) -> i32 {
        match self {
            Error::Io { source, .. } | Error::Journal { source, .. } => source.raw_os_error().unwrap_or(libc::EIO),
            Error::SourceChanged { .. } | Error::LeaseBroken { .. } => libc::EAGAIN,
            Error::Aborted { .. } => libc::EINTR,
            Error::Name { .. } => libc::EINVAL,
            Error::JournalLocked { .. } => libc::EBUSY,
            Error::JournalCorrupt { .. } => libc::EIO,
        }
    }

    pub fn next(&self) -> Next {
        match self {
            Error::SourceChanged { .. } | Error::LeaseBroken { .. } | Error::Aborted { .. } => Next::Retry,
            Error::JournalLocked { .. } => Next::Retry,
            Error::Name { .. } => Next::FixInput,
            Error::JournalCorrupt { .. } => Next::GiveUp,
            Error::Io { .. } | Error::Journal { .. } => match self.errno() {
                libc::EINTR | libc::EAGAIN | libc::EBUSY | libc::ETXTBSY | libc::ENOSPC | libc::EDQUOT => Next::Retry,
                libc::EMFILE | libc::ENFILE | libc::ENOMEM | libc::ETIMEDOUT | libc::ESTALE => Next::Retry,
                libc::EROFS | libc::EACCES | libc::EPERM | libc::ENOTDIR | libc::ENAMETOOLONG => Next::FixInput,
                libc::EISDIR | libc::EINVAL | libc::ELOOP | libc::EFBIG => Next::FixInput,
                _ => Next::GiveUp,
            },
        }
    }

    pub fn is_not_found(&self) -> bool {
        matches!(self, Error::Io { .. }) && self.errno() == libc::ENOENT
    }

    /// The tier, or the user's share of it, is full.
    pub fn is_no_space(&self) -> bool {
        matches!(self.errno(), libc::ENOSPC | libc::EDQUOT)
    }

    /// A sentence that says what to do, where something can be done.
    pub fn hint(&self) -> Option<String> {
        let text = match self {
            Error::JournalLocked { .. } => {
                "wait for the other agent to end, or stop it; `terrace status` shows it".into()
            }
            Error::JournalCorrupt { path, .. } => format!(
                "move it aside (`mv {0} {0}.old`) and run `terrace recover`: links in the root say where the files are",
                path.display()
            ),
            Error::Journal { path, .. } if self.is_no_space() => {
                format!("free space on the file system of {}, or set `state` to a directory elsewhere", path.display())
            }
            Error::Io { .. } => match self.errno() {
                libc::ENOSPC => "free space on that file system".into(),
                libc::EDQUOT => "your quota on that file system is used up: free some of it".into(),
                libc::EROFS => "the file system is mounted read-only: choose another directory".into(),
                libc::EACCES | libc::EPERM => "check owner and mode of the directories on the way".into(),
                libc::EMFILE => "raise the limit of open files (`ulimit -n`)".into(),
                _ => return None,
            },
            _ => return None,
        };
        Some(text)
    }
}

impl PartialEq<Errno> for Error {
    fn eq(&self, errno: &Errno) -> bool {
        self.errno() == errno.raw_os_error()
    }
}
