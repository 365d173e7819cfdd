//! Doing a call with the rights of the thread that asked for it.
//!
//! As long as nobody in the run changed its rights they are ours, and there is nothing to do. Afterwards each call is looked
//! at: with the same rights it is done as before, with others by taking them for the time of the call (root can), and
//! where that isn't possible the kernel does the plain thing.

use crate::target::{Rights, Status};
use std::io;

/// This thread's rights, to go back to.
pub struct Own {
    rights: Rights,
    /// Of a capset call: low and high half.
    permitted: u64,
    inheritable: u64,
}

#[repr(C)]
struct CapabilityHeader {
    version: u32,
    pid: i32,
}

#[derive(Clone, Copy, Default)]
#[repr(C)]
struct CapabilityData {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

/// CAP_SYS_PTRACE: to read a path from the thread's memory. It opens no file.
const LOOK_AT_OTHERS: u64 = 1 << 19;

const VERSION_3: u32 = 0x2008_0522;

impl Own {
    pub fn of(status: &Status) -> Own {
        let header = CapabilityHeader { version: VERSION_3, pid: 0 };
        let mut data = [CapabilityData::default(); 2];
        // SAFETY: structures of the version named.
        unsafe { libc::syscall(libc::SYS_capget, &raw const header, data.as_mut_ptr()) };
        let both = |low: u32, high: u32| low as u64 | (high as u64) << 32;
        Own {
            rights: status.rights.clone(),
            permitted: both(data[0].permitted, data[1].permitted),
            inheritable: both(data[0].inheritable, data[1].inheritable),
        }
    }

    pub fn is_root(&self) -> bool {
        self.rights.user == 0
    }

    pub fn user(&self) -> u32 {
        self.rights.user
    }

    pub fn group(&self) -> u32 {
        self.rights.group
    }

    pub fn is_user(&self, user: u32) -> bool {
        self.rights.user == user
    }

    pub fn are(&self, rights: &Rights) -> bool {
        self.rights == *rights
    }

    /// Runs `act` with these rights. Err: they can't be taken.
    pub fn with<T>(&self, rights: &Rights, act: impl FnOnce() -> T) -> io::Result<T> {
        if self.rights.user != 0 {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let taken = self.take(&Rights { capabilities: rights.capabilities | LOOK_AT_OTHERS, ..rights.clone() });
        let result = taken.map(|()| act());
        // Before anything else: rights that can't be given back must not be used for another thread's call.
        self.restore();
        result
    }

    /// This thread has these rights from now on, whatever others it has, or was started with.
    pub fn restore(&self) {
        if self.rights.user == 0 {
            self.set_capabilities(self.rights.capabilities).expect("these rights are permitted");
            self.take(&self.rights).expect("root may take its own rights back");
        }
    }

    /// The raw calls concern this thread alone; libc's would change all threads.
    fn take(&self, rights: &Rights) -> io::Result<()> {
        // SAFETY: by value, or a live list.
        unsafe {
            if libc::syscall(libc::SYS_setgroups, rights.groups.len(), rights.groups.as_ptr()) != 0 {
                return Err(io::Error::last_os_error());
            }
            // They say what was before, not whether they worked: a second call tells.
            libc::syscall(libc::SYS_setfsgid, rights.group);
            libc::syscall(libc::SYS_setfsuid, rights.user);
            let refused = u32::MAX;
            if libc::syscall(libc::SYS_setfsgid, refused) as u32 != rights.group
                || libc::syscall(libc::SYS_setfsuid, refused) as u32 != rights.user
            {
                return Err(io::ErrorKind::PermissionDenied.into());
            }
        }
        self.set_capabilities(rights.capabilities & self.permitted)
    }

    fn set_capabilities(&self, effective: u64) -> io::Result<()> {
        let header = CapabilityHeader { version: VERSION_3, pid: 0 };
        let half = |shift: u32| CapabilityData {
            effective: (effective >> shift) as u32,
            permitted: (self.permitted >> shift) as u32,
            inheritable: (self.inheritable >> shift) as u32,
        };
        let data = [half(0), half(32)];
        // SAFETY: structures of the version named.
        match unsafe { libc::syscall(libc::SYS_capset, &raw const header, data.as_ptr()) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}
