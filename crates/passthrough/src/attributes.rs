//! From `stat` to FUSE's attributes, and from FUSE's times to `utimensat`'s.

use fuser::{FileAttr, FileType, INodeNo, TimeOrNow};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub fn attributes(stat: &libc::stat) -> FileAttr {
    FileAttr {
        ino: INodeNo(stat.st_ino),
        size: stat.st_size as u64,
        blocks: stat.st_blocks as u64,
        atime: time(stat.st_atime, stat.st_atime_nsec),
        mtime: time(stat.st_mtime, stat.st_mtime_nsec),
        ctime: time(stat.st_ctime, stat.st_ctime_nsec),
        crtime: UNIX_EPOCH,
        kind: file_type(stat.st_mode),
        perm: (stat.st_mode & 0o7777) as u16,
        nlink: stat.st_nlink as u32,
        uid: stat.st_uid,
        gid: stat.st_gid,
        rdev: stat.st_rdev as u32,
        blksize: stat.st_blksize as u32,
        flags: 0,
    }
}

pub fn file_type(mode: u32) -> FileType {
    match mode & libc::S_IFMT {
        libc::S_IFDIR => FileType::Directory,
        libc::S_IFLNK => FileType::Symlink,
        libc::S_IFIFO => FileType::NamedPipe,
        libc::S_IFSOCK => FileType::Socket,
        libc::S_IFCHR => FileType::CharDevice,
        libc::S_IFBLK => FileType::BlockDevice,
        _ => FileType::RegularFile,
    }
}

fn time(seconds: i64, nanoseconds: i64) -> SystemTime {
    let fraction = Duration::from_nanos(nanoseconds.unsigned_abs());
    if seconds >= 0 {
        UNIX_EPOCH + Duration::from_secs(seconds as u64) + fraction
    } else {
        UNIX_EPOCH - Duration::from_secs(seconds.unsigned_abs()) + fraction
    }
}

/// `None`: as it is.
pub fn timespec(wanted: Option<TimeOrNow>) -> libc::timespec {
    match wanted {
        None => libc::timespec { tv_sec: 0, tv_nsec: libc::UTIME_OMIT },
        Some(TimeOrNow::Now) => libc::timespec { tv_sec: 0, tv_nsec: libc::UTIME_NOW },
        Some(TimeOrNow::SpecificTime(at)) => match at.duration_since(UNIX_EPOCH) {
            Ok(after) => libc::timespec { tv_sec: after.as_secs() as i64, tv_nsec: after.subsec_nanos().into() },
            Err(before) => {
                let before = before.duration();
                let borrow = i64::from(before.subsec_nanos() > 0);
                libc::timespec {
                    tv_sec: -(before.as_secs() as i64) - borrow,
                    tv_nsec: borrow * 1_000_000_000 - i64::from(before.subsec_nanos()),
                }
            }
        },
    }
}

/// `DT_…` of a directory's entry; what it doesn't say shows as a regular file until somebody looks.
pub fn listed_type(kind: u8) -> FileType {
    match kind {
        libc::DT_DIR => FileType::Directory,
        libc::DT_LNK => FileType::Symlink,
        libc::DT_FIFO => FileType::NamedPipe,
        libc::DT_SOCK => FileType::Socket,
        libc::DT_CHR => FileType::CharDevice,
        libc::DT_BLK => FileType::BlockDevice,
        _ => FileType::RegularFile,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_1970_survive_the_round_trip() {
        for (seconds, nanoseconds) in [(0, 0), (5, 7), (-1, 0), (-1, 999_999_999), (-3, 1)] {
            let there = timespec(Some(TimeOrNow::SpecificTime(time(seconds, nanoseconds))));
            assert_eq!((there.tv_sec, there.tv_nsec), (seconds, nanoseconds));
        }
    }
}
