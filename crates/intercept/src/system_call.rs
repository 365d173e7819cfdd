//! `syscall(2)`: programs and languages that make path calls by number (Python's and Go's cgo packages, tests) come here.
//!
//! The function is naked, so that calls which return twice or on another stack (clone, vfork) pass through as if it were libc's.

use crate::{
    agent_call, attributes, changes, data_calls, directory, exec, gate, make_directory, names, open, open_how, real,
    stat,
};
use core::arch::naked_asm;
use core::ffi::{c_char, c_int};

/// Calls that return twice pass; `dispatch` has the others.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syscall() -> i64 {
    naked_asm!(
        "cmp rdi, {clone}",
        "je 2f",
        "cmp rdi, {fork}",
        "je 2f",
        "cmp rdi, {vfork}",
        "je 3f",
        "cmp rdi, {clone3}",
        "je 2f",
        "cmp rdi, {sigreturn}",
        "je 2f",
        "jmp {dispatch}",
        // vfork shares the stack: the return address must live in a register while the child runs.
        "3:",
        "jmp {vfork_hook}",
        "2:",
        gate::arguments!(),
        "syscall",
        "4:",
        "cmp rax, -4095",
        "jae 5f",
        "ret",
        "5:",
        "mov rdi, rax",
        "jmp {failed}",
        clone = const libc::SYS_clone,
        fork = const libc::SYS_fork,
        vfork = const libc::SYS_vfork,
        clone3 = const libc::SYS_clone3,
        sigreturn = const libc::SYS_rt_sigreturn,
        vfork_hook = sym vfork,
        dispatch = sym dispatch,
        failed = sym failed,
    )
}

/// vfork(2): the child has our memory, and what it does with its own descriptors and its own working directory is noted there.
/// So the parent forgets what is noted of either when it goes on.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfork() -> c_int {
    naked_asm!(
        // The child returns on our stack: the return address must live in a register meanwhile.
        "pop rdi",
        "mov eax, {vfork}",
        "syscall",
        "push rdi",
        "test rax, rax",
        "je 2f",
        "push rax",
        "call {parent}",
        "pop rdi",
        "cmp rdi, -4095",
        "jae 3f",
        "mov rax, rdi",
        "2:",
        "ret",
        "3:",
        "jmp {failed}",
        vfork = const libc::SYS_vfork,
        parent = sym after_vfork,
        failed = sym failed,
    )
}

extern "C" fn after_vfork() {
    crate::data::forget_range(0, u32::MAX);
    crate::process::forget_cwd();
}

unsafe extern "C" fn failed(raw: isize) -> i64 {
    real::outcome(raw) as i64
}

const CWD: c_int = libc::AT_FDCWD;
/// And, between them, getxattrat and listxattrat.
const SETXATTRAT: i64 = 463;
const REMOVEXATTRAT: i64 = 466;

unsafe extern "C" fn dispatch(nr: i64, a: usize, b: usize, c: usize, d: usize, e: usize, f: usize) -> i64 {
    let path = |value: usize| value as *const c_char;
    // SAFETY: the program's own arguments, taken as the call's numbers say.
    let raw: isize = unsafe {
        match nr {
            libc::SYS_open => open::open_at(CWD, path(a), b as i32, c as u32),
            libc::SYS_openat => open::open_at(a as i32, path(b), c as i32, d as u32),
            libc::SYS_creat => open::open_at(CWD, path(a), libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC, b as u32),
            libc::SYS_stat => stat::stat_at(CWD, path(a), b as *mut libc::stat, 0),
            libc::SYS_lstat => stat::stat_at(CWD, path(a), b as *mut libc::stat, libc::AT_SYMLINK_NOFOLLOW),
            libc::SYS_fstat => return stat::fstat(a as c_int, b as *mut libc::stat) as i64,
            libc::SYS_newfstatat => stat::stat_at(a as i32, path(b), c as *mut libc::stat, d as i32),
            libc::SYS_statx => stat::statx_at(a as i32, path(b), c as i32, d as u32, e as *mut libc::statx),
            libc::SYS_rename => names::rename_at(CWD, path(a), CWD, path(b), 0),
            libc::SYS_renameat => names::rename_at(a as i32, path(b), c as i32, path(d), 0),
            libc::SYS_renameat2 => names::rename_at(a as i32, path(b), c as i32, path(d), e as u32),
            libc::SYS_unlink => names::unlink_at(CWD, path(a), 0),
            libc::SYS_unlinkat => names::unlink_at(a as i32, path(b), c as i32),
            libc::SYS_link => names::link_at(CWD, path(a), CWD, path(b), 0),
            libc::SYS_linkat => names::link_at(a as i32, path(b), c as i32, path(d), e as i32),
            libc::SYS_symlink => crate::climbing::symlink_at(path(a), CWD, path(b)),
            libc::SYS_symlinkat => crate::climbing::symlink_at(path(a), b as i32, path(c)),
            libc::SYS_readlink => crate::canonical::readlink_at(CWD, path(a), b as *mut c_char, c),
            libc::SYS_readlinkat => crate::canonical::readlink_at(a as i32, path(b), c as *mut c_char, d),
            libc::SYS_getdents64 => directory::getdents(a as i32, b as *mut _, c),
            libc::SYS_execve => exec::exec_at(CWD, path(a), b as *const _, c as *const _, 0),
            libc::SYS_execveat => exec::exec_at(a as i32, path(b), c as *const _, d as *const _, e as i32),
            libc::SYS_write => return data_calls::write(a as c_int, b as *const _, c) as i64,
            libc::SYS_pwrite64 => return data_calls::pwrite64(a as c_int, b as *const _, c, d as i64) as i64,
            libc::SYS_ftruncate => return data_calls::ftruncate(a as c_int, b as i64) as i64,
            libc::SYS_truncate => return attributes::truncate(path(a), b as i64) as i64,
            libc::SYS_fallocate => {
                return data_calls::fallocate(a as c_int, b as c_int, c as i64, d as i64) as i64;
            }
            libc::SYS_copy_file_range => {
                return data_calls::copy_file_range(a as c_int, b as *mut i64, c as c_int, d as *mut i64, e, f as u32)
                    as i64;
            }
            libc::SYS_chdir | libc::SYS_fchdir => crate::process::change_directory(nr, a),
            libc::SYS_mkdir => make_directory::mkdir_at(CWD, path(a), b as u32),
            libc::SYS_mkdirat => make_directory::mkdir_at(a as i32, path(b), c as u32),
            libc::SYS_rmdir => make_directory::rmdir_at(CWD, path(a)),
            libc::SYS_chroot => names::change_root(path(a)),
            libc::SYS_openat2 => open_how::open_how(a as i32, path(b), c as *const _, d),
            libc::SYS_getdents => directory::getdents_old(a as i32, b as *mut _, c),
            libc::SYS_chmod => return changes::chmod(path(a), b as u32) as i64,
            libc::SYS_fchmodat => return changes::fchmodat(a as c_int, path(b), c as u32, 0) as i64,
            changes::SYS_FCHMODAT2 => changes::fchmodat2(a as c_int, path(b), c as u32, d as c_int),
            libc::SYS_fchmod => return changes::fchmod(a as c_int, b as u32) as i64,
            libc::SYS_chown => return changes::chown(path(a), b as u32, c as u32) as i64,
            libc::SYS_lchown => return changes::lchown(path(a), b as u32, c as u32) as i64,
            libc::SYS_fchown => return changes::fchown(a as c_int, b as u32, c as u32) as i64,
            libc::SYS_fchownat => {
                return changes::fchownat(a as c_int, path(b), c as u32, d as u32, e as c_int) as i64;
            }
            libc::SYS_utimensat => return changes::times(a as c_int, path(b), c as *const _, d as c_int) as i64,
            SETXATTRAT..=REMOVEXATTRAT => {
                let flags = attributes::follow_if_ours(a as c_int, path(b), c as c_int);
                agent_call::changed(gate::call6(nr, a, b, flags as usize, d, e, f))
            }
            // Among them those that only a supervisor serves, or notes.
            _ => gate::outside6(nr, a, b, c, d, e, f),
        }
    };
    real::outcome(raw) as i64
}
