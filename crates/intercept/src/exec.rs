//! Programs that start programs: the library and the index stay in the environment, however it was scrubbed.
//!
//! A placed file that is to be executed becomes a real one first: a loader looks for libraries relative to the path that the
//! kernel resolved ($ORIGIN, /proc/self/exe), and a tier may be mounted noexec.
//!
//! A vfork child shares its parent's memory: nothing here allocates or keeps anything but on its own stack, except for an
//! environment of more than `ENTRIES` variables, which takes a mapping that exec drops.

use crate::placed::Way;
use crate::{entry, gate, open, process, readable, real, stat};
use core::arch::naked_asm;
use core::ffi::{CStr, c_char, c_int, c_void};
use terrace_index::{INDEX_ENV, Index, PATH_MAX};

const ENTRIES: usize = 1024;
const PRELOAD: &[u8] = b"LD_PRELOAD";

/// An environment with our two variables; borrowed where it has them already.
struct Environment {
    entries: [*const c_char; ENTRIES],
    preload: [u8; PATH_MAX],
    index: [u8; PATH_MAX],
    mapped: *mut *const c_char,
}

impl Environment {
    fn new() -> Environment {
        Environment {
            entries: [core::ptr::null(); ENTRIES],
            preload: [0; PATH_MAX],
            index: [0; PATH_MAX],
            mapped: core::ptr::null_mut(),
        }
    }

    /// The program's environment, completed.
    unsafe fn complete(&mut self, index: Index, original: *const *const c_char) -> *const *const c_char {
        // SAFETY: a null-terminated array of C strings, or null (which Linux takes as empty).
        unsafe {
            let mut count = 0;
            let (mut preload, mut has_index) = (None, false);
            while !original.is_null() && !(*original.add(count)).is_null() {
                let entry = *original.add(count);
                if let Some(value) = process::value_of(entry, PRELOAD) {
                    preload = Some((count, value));
                }
                has_index |= process::value_of(entry, INDEX_ENV.as_bytes()).is_some();
                count += 1;
            }
            let library = index.header.library.get();
            let has_library = preload.is_some_and(|(_, value)| {
                CStr::from_ptr(value).to_bytes().windows(library.len()).any(|w| w == library)
            });
            if has_library && has_index || library.is_empty() {
                return original;
            }
            let entries = match self.room(count + 3) {
                Some(entries) => entries,
                None => return original,
            };
            let mut used = 0;
            for i in 0..count {
                if !has_library && preload.is_some_and(|(at, _)| at == i) {
                    continue;
                }
                *entries.add(used) = *original.add(i);
                used += 1;
            }
            if !has_library {
                let others = preload.map_or(b"".as_slice(), |(_, value)| CStr::from_ptr(value).to_bytes());
                let colon: &[u8] = if others.is_empty() { b"" } else { b":" };
                if join(&mut self.preload, &[PRELOAD, b"=", library, colon, others]) {
                    *entries.add(used) = self.preload.as_ptr() as *const c_char;
                    used += 1;
                } else if let Some((at, _)) = preload {
                    *entries.add(used) = *original.add(at);
                    used += 1;
                }
            }
            if !has_index && join(&mut self.index, &[INDEX_ENV.as_bytes(), b"=", index.header.index_path.get()]) {
                *entries.add(used) = self.index.as_ptr() as *const c_char;
                used += 1;
            }
            *entries.add(used) = core::ptr::null();
            entries
        }
    }

    fn room(&mut self, count: usize) -> Option<*mut *const c_char> {
        if count <= ENTRIES {
            return Some(self.entries.as_mut_ptr());
        }
        // SAFETY: an anonymous mapping.
        let made = unsafe {
            gate::call6(
                libc::SYS_mmap,
                0,
                count * size_of::<*const c_char>(),
                (libc::PROT_READ | libc::PROT_WRITE) as usize,
                (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as usize,
                usize::MAX,
                0,
            )
        };
        if made < 0 && made > -4096 {
            return None;
        }
        self.mapped = made as *mut *const c_char;
        Some(self.mapped)
    }
}

fn join(out: &mut [u8; PATH_MAX], parts: &[&[u8]]) -> bool {
    let mut len = 0;
    for part in parts {
        if len + part.len() >= PATH_MAX {
            return false;
        }
        out[len..len + part.len()].copy_from_slice(part);
        len += part.len();
    }
    out[len] = 0;
    true
}

fn materialise(index: Index, dirfd: i32, path: *const c_char) {
    if !path.is_null() && process::may_be_below_root(index, dirfd, path) {
        open::materialise_path(index, dirfd, path, true);
    }
}

/// Its file says that whoever runs it becomes another user or group.
fn gives_rights(dirfd: i32, path: *const c_char, flags: i32) -> bool {
    stat::kernel_stat(dirfd, path, flags & (libc::AT_EMPTY_PATH | libc::AT_SYMLINK_NOFOLLOW))
        .is_some_and(|found| found.st_mode & (libc::S_ISUID | libc::S_ISGID) != 0)
}

pub unsafe fn exec_at(
    dirfd: i32,
    path: *const c_char,
    argv: *const *const c_char,
    envp: *const *const c_char,
    flags: i32,
) -> isize {
    let way = Way::of(dirfd, path);
    let (dirfd, path) = (way.dirfd(), way.path());
    // The supervisor is to say of a program that loses its rights in the run, and to note one that has others.
    let call = match gate::is_served() && gives_rights(dirfd, path, flags) {
        true => gate::outside6,
        false => gate::call6,
    };
    // SAFETY: the program's own arguments.
    unsafe {
        let run = |envp: *const *const c_char| {
            let (path, argv, envp) = (path as usize, argv as usize, envp as usize);
            match dirfd == libc::AT_FDCWD && flags == 0 {
                true => call(libc::SYS_execve, path, argv, envp, 0, 0, 0),
                false => call(libc::SYS_execveat, dirfd as usize, path, argv, envp, flags as usize, 0),
            }
        };
        let Some(index) = process::index() else { return run(envp) };
        materialise(index, dirfd, path);
        let mut environment = Environment::new();
        // Of what can't be read the kernel says so.
        run(if readable::are_texts(envp) { environment.complete(index, envp) } else { envp })
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn execve(path: *const c_char, argv: *const *const c_char, envp: *const *const c_char) -> c_int {
    real::outcome(unsafe { exec_at(libc::AT_FDCWD, path, argv, envp, 0) }) as c_int
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn execv(path: *const c_char, argv: *const *const c_char) -> c_int {
    unsafe { execve(path, argv, real::environ) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn execveat(
    dirfd: c_int,
    path: *const c_char,
    argv: *const *const c_char,
    envp: *const *const c_char,
    flags: c_int,
) -> c_int {
    real::outcome(unsafe { exec_at(dirfd, path, argv, envp, flags) }) as c_int
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fexecve(fd: c_int, argv: *const *const c_char, envp: *const *const c_char) -> c_int {
    unsafe { execveat(fd, c"".as_ptr(), argv, envp, libc::AT_EMPTY_PATH) }
}

/// The search through PATH is the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execvpe(file: *const c_char, argv: *const *const c_char, envp: *const *const c_char) -> c_int {
    let real = crate::real!("execvpe": fn(*const c_char, *const *const c_char, *const *const c_char) -> c_int);
    // SAFETY: the program's own arguments.
    unsafe {
        let Some(index) = process::index() else { return real(file, argv, envp) };
        if !file.is_null() && CStr::from_ptr(file).to_bytes().contains(&b'/') {
            materialise(index, libc::AT_FDCWD, file);
        }
        entry::expect_internal_execve();
        let mut environment = Environment::new();
        real(file, argv, environment.complete(index, envp))
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn execvp(file: *const c_char, argv: *const *const c_char) -> c_int {
    unsafe { execvpe(file, argv, real::environ) }
}

macro_rules! spawn_hooks {
    ($($name:ident)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            pid: *mut c_int,
            path: *const c_char,
            actions: *const c_void,
            attributes: *const c_void,
            argv: *const *const c_char,
            envp: *const *const c_char,
        ) -> c_int {
            let real = $crate::real_named!($name: fn(
                *mut c_int, *const c_char, *const c_void, *const c_void, *const *const c_char, *const *const c_char) -> c_int);
            // SAFETY: the program's own arguments.
            unsafe {
                let Some(index) = process::index() else { return real(pid, path, actions, attributes, argv, envp) };
                if !path.is_null() && CStr::from_ptr(path).to_bytes().contains(&b'/') {
                    materialise(index, libc::AT_FDCWD, path);
                }
                entry::expect_internal_execve();
                let mut environment = Environment::new();
                real(pid, path, actions, attributes, argv, environment.complete(index, envp))
            }
        }
    )*};
}

spawn_hooks! { posix_spawn posix_spawnp }

// execl and its kin: the arguments arrive in five registers and then on the stack, in order. With the registers copied to
// right below the stack arguments (where the return address and a saved register were), all of them are one array.
macro_rules! execl_hook {
    ($name:ident, $then:ident) => {
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name() -> c_int {
            naked_asm!(
                // Keep the return address and the callee-saved registers below the array that will be made.
                "pop rax",
                "push r9",
                "push r8",
                "push rcx",
                "push rdx",
                "push rsi",
                "mov rsi, rsp",
                "push rax",
                "push rbx",
                "mov rbx, rsp",
                "and rsp, -16",
                "call {then}",
                "mov rsp, rbx",
                "pop rbx",
                "pop rdx",
                "add rsp, 40",
                "jmp rdx",
                then = sym $then,
            )
        }
    };
}

execl_hook!(execl, execl_then);
execl_hook!(execlp, execlp_then);
execl_hook!(execle, execle_then);

unsafe extern "C" fn execl_then(path: *const c_char, argv: *const *const c_char) -> c_int {
    unsafe { execv(path, argv) }
}
unsafe extern "C" fn execlp_then(file: *const c_char, argv: *const *const c_char) -> c_int {
    unsafe { execvp(file, argv) }
}
/// The environment follows the terminating null.
unsafe extern "C" fn execle_then(path: *const c_char, argv: *const *const c_char) -> c_int {
    // SAFETY: execl's arguments end with a null, execle's go on with the environment.
    unsafe {
        let mut end = argv;
        while !(*end).is_null() {
            end = end.add(1);
        }
        execve(path, argv, *(end.add(1)) as *const *const c_char)
    }
}
