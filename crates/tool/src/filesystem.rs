//! What the kernel says of a directory's file system, and of memory.

use rustix::fs::{Access, AtFlags, StatVfsMountFlags};
use std::io;
use std::path::Path;

pub struct FileSystem {
    /// `ext4`, `tmpfs`, `nfs`…
    pub kind: String,
    pub available_bytes: u64,
    pub total_bytes: u64,
    pub read_only: bool,
    pub no_exec: bool,
    pub no_suid: bool,
}

impl FileSystem {
    pub fn of(path: &Path) -> io::Result<FileSystem> {
        let vfs = rustix::fs::statvfs(path)?;
        let fs = rustix::fs::statfs(path)?;
        Ok(FileSystem {
            kind: kind_of_magic(fs.f_type as u64 & 0xffff_ffff),
            available_bytes: vfs.f_bavail.saturating_mul(vfs.f_frsize),
            total_bytes: vfs.f_blocks.saturating_mul(vfs.f_frsize),
            read_only: vfs.f_flag.contains(StatVfsMountFlags::RDONLY),
            no_exec: vfs.f_flag.contains(StatVfsMountFlags::NOEXEC),
            no_suid: vfs.f_flag.contains(StatVfsMountFlags::NOSUID),
        })
    }

    pub fn is_memory(&self) -> bool {
        matches!(self.kind.as_str(), "tmpfs" | "ramfs")
    }
}

fn kind_of_magic(magic: u64) -> String {
    let known = match magic {
        0xef53 => "ext4",
        0x0102_1994 => "tmpfs",
        0x8584_58f6 => "ramfs",
        0x5846_5342 => "xfs",
        0x9123_683e => "btrfs",
        0x6969 => "nfs",
        0x0bd0_0bd0 => "lustre",
        0x1983_0326 => "beegfs",
        0x4750_4653 => "gpfs",
        0x00c3_6400 => "ceph",
        0x6573_5546 => "fuse",
        0x794c_7630 => "overlay",
        0x4d44 => "vfat",
        0x2011_bab0 => "exfat",
        0x2fc1_2fc1 => "zfs",
        0xff53_4d42 | 0xfe53_4d42 => "cifs",
        0x0102_1997 => "9p",
        0x9fa0 => "proc",
        0x6265_6572 => "sysfs",
        _ => return format!("type {magic:#x}"),
    };
    known.to_owned()
}

/// May this process read, write and enter the directory?
pub fn is_writable(directory: &Path) -> bool {
    let wanted = Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK;
    rustix::fs::accessat(rustix::fs::CWD, directory, wanted, AtFlags::EACCESS).is_ok()
}

/// Memory that could be given to programs now, as the kernel estimates it.
pub fn memory_available_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().trim_end_matches("kB").trim().parse().ok()?;
    let of_machine = kib << 10;
    Some(cgroup_memory_left().map_or(of_machine, |left| left.min(of_machine)))
}

/// Memory and swap of this machine: files in memory need not have more.
pub fn memory_total_bytes() -> Option<u64> {
    let info = rustix::system::sysinfo();
    let units = info.totalram.checked_add(info.totalswap)?;
    units.checked_mul(u64::from(info.mem_unit))
}

/// What this process's control group may still take: batch systems set it to what the job asked for.
fn cgroup_memory_left() -> Option<u64> {
    let group = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    let path = group.lines().find_map(|line| line.strip_prefix("0::"))?;
    let mut directory = Path::new("/sys/fs/cgroup").join(path.trim_start_matches('/'));
    let mut left: Option<u64> = None;
    let number = |file: &Path| -> Option<u64> { std::fs::read_to_string(file).ok()?.trim().parse().ok() };
    while directory.starts_with("/sys/fs/cgroup") {
        if let (Some(max), Some(used)) =
            (number(&directory.join("memory.max")), number(&directory.join("memory.current")))
        {
            let here = max.saturating_sub(used);
            left = Some(left.map_or(here, |so_far| so_far.min(here)));
        }
        if !directory.pop() {
            break;
        }
    }
    left
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_memory_is_memory() {
        let fs = FileSystem::of(Path::new("/dev/shm")).unwrap();
        assert!(fs.is_memory() && fs.total_bytes > 0, "{}", fs.kind);
        assert!(memory_available_bytes().unwrap() > 0);
    }
}
