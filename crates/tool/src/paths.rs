//! Paths as a user spells them.

use std::path::{Component, Path, PathBuf};

/// Absolute, without `.` and repeated slashes; `..` and links are left to the kernel.
pub fn absolute(base: &Path, path: &Path) -> PathBuf {
    base.join(path).components().filter(|part| !matches!(part, Component::CurDir)).collect()
}

pub fn canonical_or_same(path: PathBuf) -> PathBuf {
    path.canonicalize().unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absolute_paths_lose_only_what_means_nothing() {
        assert_eq!(absolute(Path::new("/a"), Path::new("./b//c/.")), Path::new("/a/b/c"));
        assert_eq!(absolute(Path::new("/a"), Path::new("../b")), Path::new("/a/../b"));
        assert_eq!(absolute(Path::new("/a"), Path::new("/b")), Path::new("/b"));
    }
}
