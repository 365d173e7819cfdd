//! The seccomp filter: which system calls of a program come to the supervisor.
//!
//!   32-bit program ─▶ allow, and once notify    call not below ─▶ allow (from the kernel's bitmap, without running the filter)
//!   a call below ─▶ its condition on the arguments ─▶ from the library's gate page? ─▶ allow, else notify
//!
//! Traps only what the kernel would not do right by itself: reading, writing, closing, mkdir, chdir and most others are
//! native. A filter sees numbers, not paths, so calls outside the root come too and are sent on.

use crate::loader::Loader;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};
use terrace_index::{GATE, SERVED_ANSWER, SERVED_QUESTION};

/// What is looked at before a call is taken to the supervisor; arguments count from 0.
#[derive(Clone, Copy)]
enum Condition {
    Always,
    /// The argument has one of these bits.
    AnyOf(u32, u32),
    /// The argument has none of these bits.
    NoneOf(u32, u32),
    /// The flags of an open, which see.
    OpenFlags(u32),
    /// As `OpenFlags`, and not one of the dynamic loader's or the C library's own.
    OpenAt,
    /// As `OpenAt`, whatever its flags.
    AnyOpenAt,
    /// Not one of the dynamic loader's looks at a descriptor.
    Look,
}

/// The flags of every open of the dynamic loader.
pub const LOADER_OPEN: u32 = (libc::O_RDONLY | libc::O_CLOEXEC) as u32;

use Condition::*;

const NOFOLLOW: u32 = libc::AT_SYMLINK_NOFOLLOW as u32;
const REMOVEDIR: u32 = libc::AT_REMOVEDIR as u32;
/// A new view of the file system, or of the rights in it.
pub const NEW_VIEW: u32 = (libc::CLONE_NEWNS | libc::CLONE_NEWUSER) as u32;
pub const SYS_FCHMODAT2: i64 = 452;

const TRAPPED: &[(i64, Condition)] = &[
    (libc::SYS_open, OpenFlags(1)),
    (libc::SYS_openat, OpenAt),
    (libc::SYS_creat, Always),
    (libc::SYS_openat2, Always),
    (libc::SYS_stat, Always),
    (libc::SYS_lstat, Always),
    (libc::SYS_fstat, Always),
    (libc::SYS_newfstatat, Look),
    (libc::SYS_statx, Always),
    (libc::SYS_readlink, Always),
    (libc::SYS_readlinkat, Always),
    (libc::SYS_getdents64, Always),
    (libc::SYS_getdents, Always),
    (libc::SYS_unlink, Always),
    (libc::SYS_unlinkat, NoneOf(2, REMOVEDIR)),
    (libc::SYS_rename, Always),
    (libc::SYS_renameat, Always),
    (libc::SYS_renameat2, Always),
    (libc::SYS_link, Always),
    (libc::SYS_linkat, Always),
    (libc::SYS_truncate, Always),
    (libc::SYS_copy_file_range, Always),
    (libc::SYS_lchown, Always),
    (libc::SYS_chown, Always),
    (libc::SYS_fchownat, Always),
    (libc::SYS_fchown, Always),
    (libc::SYS_chmod, Always),
    (libc::SYS_fchmodat, Always),
    (SYS_FCHMODAT2, Always),
    (libc::SYS_fchmod, Always),
    (libc::SYS_utimensat, Always),
    (libc::SYS_futimesat, Always),
    (libc::SYS_utimes, Always),
    (libc::SYS_utime, Always),
    (libc::SYS_setxattr, Always),
    (libc::SYS_fsetxattr, Always),
    (libc::SYS_removexattr, Always),
    (libc::SYS_fremovexattr, Always),
    (libc::SYS_lsetxattr, Always),
    (libc::SYS_lgetxattr, Always),
    (libc::SYS_llistxattr, Always),
    (libc::SYS_lremovexattr, Always),
    (SYS_SETXATTRAT, AnyOf(2, NOFOLLOW)),
    (SYS_GETXATTRAT, AnyOf(2, NOFOLLOW)),
    (SYS_LISTXATTRAT, AnyOf(2, NOFOLLOW)),
    (SYS_REMOVEXATTRAT, AnyOf(2, NOFOLLOW)),
    (libc::SYS_statfs, Always),
    (libc::SYS_fstatfs, Always),
    (libc::SYS_execve, Always),
    (libc::SYS_execveat, Always),
    // Not served, only told of.
    (libc::SYS_inotify_add_watch, Always),
    // Not served, only noted: from then on each call's rights and view are looked at.
    (libc::SYS_umask, Always),
    (libc::SYS_setuid, Always),
    (libc::SYS_setgid, Always),
    (libc::SYS_setreuid, Always),
    (libc::SYS_setregid, Always),
    (libc::SYS_setresuid, Always),
    (libc::SYS_setresgid, Always),
    (libc::SYS_setfsuid, Always),
    (libc::SYS_setfsgid, Always),
    (libc::SYS_setgroups, Always),
    (libc::SYS_capset, Always),
    (libc::SYS_chroot, Always),
    (libc::SYS_pivot_root, Always),
    (libc::SYS_setns, Always),
    (libc::SYS_unshare, AnyOf(0, NEW_VIEW)),
    (libc::SYS_clone, AnyOf(0, NEW_VIEW)),
    // Its flags are in memory, where no filter looks.
    (libc::SYS_clone3, Always),
];

/// Where directories are placed: what tells where a program is, or may lead `..` out of one.
const TRAPPED_FOR_DIRECTORIES: &[(i64, Condition)] = &[
    (libc::SYS_getcwd, Always),
    (libc::SYS_chdir, Always),
    (libc::SYS_mkdir, Always),
    (libc::SYS_mkdirat, Always),
    (libc::SYS_rmdir, Always),
    (libc::SYS_access, Always),
    (libc::SYS_faccessat, Always),
    (libc::SYS_faccessat2, Always),
    (libc::SYS_getxattr, Always),
    (libc::SYS_listxattr, Always),
    (libc::SYS_symlink, Always),
    (libc::SYS_symlinkat, Always),
    (libc::SYS_mknod, Always),
    (libc::SYS_mknodat, Always),
];

/// What the supervisor refuses, and says so, whoever asks (`calls::refuse`).
const REFUSED: &[i64] = &[libc::SYS_io_uring_setup, SYS_LANDLOCK_CREATE_RULESET];

pub const SYS_SETXATTRAT: i64 = 463;
pub const SYS_GETXATTRAT: i64 = 464;
pub const SYS_LISTXATTRAT: i64 = 465;
pub const SYS_REMOVEXATTRAT: i64 = 466;
pub const SYS_LANDLOCK_CREATE_RULESET: i64 = 444;

pub const ARCH_X86_64: u32 = 0xc000_003e;
const ARCH_I386: u32 = 0x4000_0003;
/// set_thread_area(2): what C libraries of 32 bits do once, when a program or a thread begins.
const I386_BEGINS: u32 = 243;
const OFFSET_NR: u32 = 0;
const OFFSET_ARCH: u32 = 4;
const OFFSET_POINTER: u32 = 8;
const PAGE: u32 = 4096;
/// The high half of an address from which on the kernel maps libraries, and the loader; programs lie far below.
const LIBRARIES: u32 = 0x7000;

const fn argument(number: u32) -> u32 {
    16 + 8 * number
}

fn statement(code: u32, k: u32) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt: 0, jf: 0, k }
}

fn jump(code: u32, k: u32, jt: u8, jf: u8) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt, jf, k }
}

fn load(offset: u32) -> libc::sock_filter {
    statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, offset)
}

fn give(what: u32) -> libc::sock_filter {
    statement(libc::BPF_RET | libc::BPF_K, what)
}

const JEQ: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
const JGE: u32 = libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K;
const JSET: u32 = libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K;
const ALLOW: u32 = libc::SECCOMP_RET_ALLOW;

/// What is left out of a jump to the tail: filled in when the tail's place is known.
const TAIL: u32 = u32::MAX;

fn to_tail() -> libc::sock_filter {
    statement(libc::BPF_JMP | libc::BPF_JA, TAIL)
}

fn block(condition: Condition, loader: Option<Loader>) -> Vec<libc::sock_filter> {
    match condition {
        Always => vec![to_tail()],
        AnyOf(number, bits) => vec![load(argument(number)), jump(JSET, bits, 1, 0), give(ALLOW), to_tail()],
        NoneOf(number, bits) => vec![load(argument(number)), jump(JSET, bits, 0, 1), give(ALLOW), to_tail()],
        // Of a descriptor that stands only for the name, the kernel follows our links unless it is told not to; nor can a
        // directory be one of them.
        OpenFlags(number) => vec![
            load(argument(number)),
            jump(JSET, libc::O_PATH as u32, 0, 1),
            jump(JSET, libc::O_NOFOLLOW as u32, 0, 3),
            jump(JSET, libc::O_DIRECTORY as u32, 0, 1),
            jump(JSET, libc::O_CREAT as u32, 0, 1),
            to_tail(),
            give(ALLOW),
        ],
        OpenAt | AnyOpenAt => {
            let mut open = loader.map_or(vec![], |loader| {
                vec![
                    load(argument(2)),
                    // For reading, and no more is asked for.
                    statement(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, !libc::O_CLOEXEC as u32),
                    jump(JEQ, libc::O_RDONLY as u32, 0, 7),
                    load(OFFSET_POINTER + 4),
                    jump(JGE, LIBRARIES, 0, 5),
                    load(OFFSET_POINTER),
                    statement(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, PAGE - 1),
                    jump(JEQ, loader.open, 1, 0),
                    jump(JEQ, loader.internal_open, 0, 1),
                    give(ALLOW),
                ]
            });
            open.extend(block(if matches!(condition, OpenAt) { OpenFlags(2) } else { Always }, None));
            open
        }
        // The distance from the path (in X) to the instruction, in 32 bits.
        Look => {
            let mut look = loader.map_or(vec![], |loader| {
                vec![
                    load(argument(1)),
                    statement(libc::BPF_MISC | libc::BPF_TAX, 0),
                    load(OFFSET_POINTER),
                    statement(libc::BPF_ALU | libc::BPF_SUB | libc::BPF_X, 0),
                    jump(JEQ, loader.look, 0, 1),
                    give(ALLOW),
                ]
            });
            look.push(to_tail());
            look
        }
    }
}

/// The program, ready to be installed between `fork` and `exec`.
#[derive(Clone)]
pub struct Filter(Vec<libc::sock_filter>);

impl Filter {
    /// `loader`: whose calls are let on. `directories`: they may be placed as a whole.
    pub fn new(loader: Option<Loader>, directories: bool) -> Filter {
        let mut program = vec![
            load(OFFSET_ARCH),
            jump(JEQ, ARCH_X86_64, 5, 0),
            jump(JEQ, ARCH_I386, 0, 3),
            load(OFFSET_NR),
            jump(JEQ, I386_BEGINS, 0, 1),
            give(libc::SECCOMP_RET_USER_NOTIF),
            give(ALLOW),
            load(OFFSET_NR),
        ];
        let more = if directories { TRAPPED_FOR_DIRECTORIES } else { &[] };
        for &(nr, condition) in TRAPPED.iter().chain(more) {
            let condition = match condition {
                NoneOf(..) if directories => Always,
                OpenFlags(_) if directories => Always,
                OpenAt if directories => AnyOpenAt,
                condition => condition,
            };
            let block = block(condition, loader);
            program.push(jump(JEQ, nr as u32, 0, block.len() as u8));
            program.extend(block);
        }
        for &nr in REFUSED {
            program.push(jump(JEQ, nr as u32, 0, 1));
            program.push(give(libc::SECCOMP_RET_USER_NOTIF));
        }
        program.extend([
            jump(JEQ, libc::SYS_prctl as u32, 0, 3),
            load(argument(0)),
            jump(JEQ, SERVED_QUESTION, 0, 1),
            give(libc::SECCOMP_RET_ERRNO | SERVED_ANSWER as u32),
        ]);
        program.push(give(ALLOW));
        let tail = program.len();
        for (at, statement) in program.iter_mut().enumerate() {
            if statement.code as u32 == libc::BPF_JMP | libc::BPF_JA && statement.k == TAIL {
                statement.k = (tail - at - 1) as u32;
            }
        }
        program.extend([
            load(OFFSET_POINTER + 4),
            jump(JEQ, (GATE >> 32) as u32, 0, 3),
            load(OFFSET_POINTER),
            statement(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, !(PAGE - 1)),
            jump(JEQ, GATE as u32, 1, 0),
            give(libc::SECCOMP_RET_USER_NOTIF),
            give(ALLOW),
        ]);
        Filter(program)
    }

    /// Takes what the dynamic loader does to a listener, and nothing else.
    pub fn for_loader() -> Filter {
        let mut program = vec![load(OFFSET_NR)];
        for nr in [libc::SYS_openat, libc::SYS_newfstatat] {
            program.extend([jump(JEQ, nr as u32, 0, 1), give(libc::SECCOMP_RET_USER_NOTIF)]);
        }
        program.push(give(ALLOW));
        Filter(program)
    }

    /// Puts the calling thread, and all that it starts, under the filter; the descriptor is where its calls arrive.
    /// Async-signal-safe. `without_privileges`: without CAP_SYS_ADMIN the kernel wants a promise that no program that is
    /// started gains rights.
    pub fn install(&self, without_privileges: bool) -> io::Result<OwnedFd> {
        let program = libc::sock_fprog { len: self.0.len() as u16, filter: self.0.as_ptr() as *mut libc::sock_filter };
        // SAFETY: the program lives through the calls; the descriptor is new and ours.
        unsafe {
            if without_privileges && libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 {
                return Err(io::Error::last_os_error());
            }
            let flags = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER | libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV;
            let fd = libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const program);
            if fd < 0 { Err(io::Error::last_os_error()) } else { Ok(OwnedFd::from_raw_fd(fd as i32)) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOADER: Loader = Loader { open: 0x123, look: 0xffff_f000, internal_open: 0x001 };

    /// Runs the program as the kernel does.
    fn verdict(nr: i64, pointer: u64, args: [u64; 6]) -> u32 {
        verdict_for(ARCH_X86_64, nr, pointer, args)
    }

    fn verdict_for(arch: u32, nr: i64, pointer: u64, args: [u64; 6]) -> u32 {
        let mut data = [0u8; 64];
        data[..4].copy_from_slice(&(nr as u32).to_le_bytes());
        data[4..8].copy_from_slice(&arch.to_le_bytes());
        data[8..16].copy_from_slice(&pointer.to_le_bytes());
        for (i, argument) in args.iter().enumerate() {
            data[16 + 8 * i..24 + 8 * i].copy_from_slice(&argument.to_le_bytes());
        }
        let program = Filter::new(Some(LOADER), false).0;
        let (mut at, mut accumulator, mut other) = (0, 0u32, 0u32);
        loop {
            let statement = &program[at];
            at += 1;
            match statement.code as u32 {
                code if code == libc::BPF_LD | libc::BPF_W | libc::BPF_ABS => {
                    let offset = statement.k as usize;
                    accumulator = u32::from_le_bytes(data[offset..offset + 4].try_into().unwrap());
                }
                code if code == libc::BPF_RET | libc::BPF_K => return statement.k,
                code if code == libc::BPF_JMP | libc::BPF_JA => at += statement.k as usize,
                code if code == libc::BPF_ALU | libc::BPF_AND | libc::BPF_K => accumulator &= statement.k,
                code if code == libc::BPF_ALU | libc::BPF_SUB | libc::BPF_X => {
                    accumulator = accumulator.wrapping_sub(other)
                }
                code if code == libc::BPF_MISC | libc::BPF_TAX => other = accumulator,
                code => {
                    let holds = match code {
                        JEQ => accumulator == statement.k,
                        JGE => accumulator >= statement.k,
                        JSET => accumulator & statement.k != 0,
                        other => panic!("unknown statement {other:#x}"),
                    };
                    at += if holds { statement.jt } else { statement.jf } as usize;
                }
            }
        }
    }

    const NOTIFY: u32 = libc::SECCOMP_RET_USER_NOTIF;

    #[test]
    fn what_the_kernel_does_right_is_not_trapped() {
        for nr in [libc::SYS_read, libc::SYS_write, libc::SYS_close, libc::SYS_mkdir, libc::SYS_chdir, libc::SYS_mmap] {
            assert_eq!(verdict(nr, 0x400000, [0; 6]), ALLOW);
        }
        let directory = (libc::O_DIRECTORY | libc::O_NOFOLLOW) as u64;
        assert_eq!(verdict(libc::SYS_openat, 0x400000, [0, 0, directory, 0, 0, 0]), ALLOW);
        assert_eq!(verdict(libc::SYS_openat, 0x400000, [0, 0, libc::O_PATH as u64, 0, 0, 0]), ALLOW);
        assert_eq!(verdict(libc::SYS_unlinkat, 0x400000, [0, 0, libc::AT_REMOVEDIR as u64, 0, 0, 0]), ALLOW);
    }

    #[test]
    fn what_needs_us_is_trapped_unless_the_library_asks() {
        let calls = [
            (libc::SYS_openat, [0, 0, (libc::O_CREAT | libc::O_WRONLY) as u64, 0, 0, 0]),
            (libc::SYS_open, [0, 0, 0, 0, 0, 0]),
            (libc::SYS_newfstatat, [0; 6]),
            (libc::SYS_unlinkat, [0; 6]),
            (libc::SYS_utimensat, [0; 6]),
            (libc::SYS_fchownat, [0; 6]),
            (libc::SYS_fchmod, [0; 6]),
            (libc::SYS_umask, [0; 6]),
        ];
        for (nr, args) in calls {
            assert_eq!(verdict(nr, 0x400000, args), NOTIFY, "call {nr}");
            assert_eq!(verdict(nr, GATE as u64 + 2, args), ALLOW, "call {nr}");
            assert_eq!(verdict(nr, GATE as u64 + 4096, args), NOTIFY, "call {nr}");
            assert_eq!(verdict(nr, (GATE as u64 + 2) & 0xffff_ffff, args), NOTIFY, "call {nr}");
        }
    }

    #[test]
    fn the_library_learns_that_it_is_served_and_others_are_let_on() {
        let yes = libc::SECCOMP_RET_ERRNO | SERVED_ANSWER as u32;
        assert_eq!(verdict(libc::SYS_prctl, 0x400000, [SERVED_QUESTION as u64, 0, 0, 0, 0, 0]), yes);
        assert_eq!(verdict(libc::SYS_prctl, 0x400000, [libc::PR_GET_SECCOMP as u64, 0, 0, 0, 0, 0]), ALLOW);
    }

    #[test]
    fn the_loaders_own_calls_are_let_on_and_others_like_them_are_not() {
        let open = [0, 0, LOADER_OPEN as u64, 0, 0, 0];
        assert_eq!(verdict(libc::SYS_openat, 0x7f00_0000_5123, open), ALLOW);
        assert_eq!(verdict(libc::SYS_openat, 0x7f00_0000_5124, open), NOTIFY);
        assert_eq!(verdict(libc::SYS_openat, 0x7f00_0000_5001, open), ALLOW);
        assert_eq!(verdict(libc::SYS_openat, 0x40_5001, open), NOTIFY);
        assert_eq!(verdict(libc::SYS_openat, 0x7f00_0000_5001, [0; 6]), ALLOW);
        assert_eq!(verdict(libc::SYS_openat, 0x7f00_0000_5001, [0, 0, libc::O_NOFOLLOW as u64, 0, 0, 0]), NOTIFY);
        assert_eq!(verdict(libc::SYS_openat, 0x40_5123, open), NOTIFY);
        assert_eq!(verdict(libc::SYS_openat, 0x7f00_0000_5123, [0, 0, libc::O_WRONLY as u64, 0, 0, 0]), NOTIFY);
        let look = |path: u64| [3, path, 0, libc::AT_EMPTY_PATH as u64, 0, 0];
        assert_eq!(verdict(libc::SYS_newfstatat, 0x7f01_0000_0800, look(0x7f01_0000_1800)), ALLOW);
        assert_eq!(verdict(libc::SYS_newfstatat, 0x7f01_0000_0801, look(0x7f01_0000_1800)), NOTIFY);
    }

    #[test]
    fn what_is_refused_comes_from_the_gate_too() {
        for nr in [libc::SYS_io_uring_setup, SYS_LANDLOCK_CREATE_RULESET] {
            assert_eq!(verdict(nr, 0x400000, [0; 6]), NOTIFY);
            assert_eq!(verdict(nr, GATE as u64 + 2, [0; 6]), NOTIFY);
        }
    }

    #[test]
    fn a_name_that_is_opened_and_not_followed_is_trapped() {
        let flags = |flags: i32| [0, 0, flags as u64, 0, 0, 0];
        assert_eq!(verdict(libc::SYS_openat, 0x400000, flags(libc::O_PATH | libc::O_NOFOLLOW)), NOTIFY);
        let directory = libc::O_PATH | libc::O_NOFOLLOW | libc::O_DIRECTORY;
        assert_eq!(verdict(libc::SYS_openat, 0x400000, flags(directory)), ALLOW);
        assert_eq!(verdict(libc::SYS_openat, 0x400000, flags(libc::O_PATH | libc::O_CLOEXEC)), ALLOW);
    }

    #[test]
    fn a_32_bit_program_is_told_of_once_and_let_on() {
        assert_eq!(verdict_for(ARCH_I386, I386_BEGINS as i64, 0x400000, [0; 6]), NOTIFY);
        assert_eq!(verdict_for(ARCH_I386, 5, 0x400000, [0; 6]), ALLOW);
        assert_eq!(verdict_for(0xc000_00b7, I386_BEGINS as i64, 0x400000, [0; 6]), ALLOW);
    }
}
