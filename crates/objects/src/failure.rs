//! From an errno to an error that says what failed and on what.

use rustix::io::Errno;
use std::path::Path;
use terrace_core::objects::{Kind, ObjectError};

pub fn system(what: &str, path: &Path, errno: Errno) -> ObjectError {
    let kind = match errno {
        Errno::NOENT | Errno::NOTDIR => Kind::NotFound,
        Errno::EXIST => Kind::Exists,
        Errno::ISDIR => Kind::WrongKind,
        Errno::NOSPC | Errno::DQUOT => Kind::NoSpace,
        Errno::ACCESS | Errno::PERM | Errno::ROFS => Kind::Denied,
        _ => Kind::System,
    };
    let reason = std::io::Error::from_raw_os_error(errno.raw_os_error());
    ObjectError::new(kind, format!("can't {what} {}: {reason}", path.display()))
}

/// `result.context("open", path)?`
pub trait Context<T> {
    fn context(self, what: &str, path: &Path) -> Result<T, ObjectError>;
}

impl<T> Context<T> for rustix::io::Result<T> {
    fn context(self, what: &str, path: &Path) -> Result<T, ObjectError> {
        self.map_err(|errno| system(what, path, errno))
    }
}

impl<T> Context<T> for std::io::Result<T> {
    fn context(self, what: &str, path: &Path) -> Result<T, ObjectError> {
        self.map_err(|error| system(what, path, Errno::from_raw_os_error(error.raw_os_error().unwrap_or(libc::EIO))))
    }
}
