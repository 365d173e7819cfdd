//! The table of mounts: is this inside a run that has a private mount of the root?

use std::path::Path;

/// True in a program of a run whose private mount is at `root`.
pub fn is_at(root: &Path) -> bool {
    use std::os::unix::ffi::OsStrExt;
    let Ok(mounts) = std::fs::read("/proc/self/mountinfo") else { return false };
    mounts.split(|byte| *byte == b'\n').any(|line| {
        let mut words = line.split(|byte| *byte == b' ');
        let is_root = words.nth(4).is_some_and(|at| unescaped(at) == root.as_os_str().as_bytes());
        is_root && words.skip_while(|word| *word != b"-").nth(1) == Some(b"fuse.terrace")
    })
}

/// A path in mountinfo: blanks and backslashes are three octal digits (proc_pid_mountinfo(5)).
fn unescaped(text: &[u8]) -> Vec<u8> {
    let mut bytes = vec![];
    let mut rest = text;
    while let Some((first, after)) = rest.split_first() {
        let digits = after.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.filter(|_| *first == b'\\').and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[3..];
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_in_mountinfo_are_read_as_they_are() {
        assert_eq!(unescaped(br"/a\040b\134c\0"), br"/a b\c\0");
        assert!(!is_at(Path::new("/proc")));
    }
}
