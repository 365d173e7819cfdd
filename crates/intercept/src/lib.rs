//! The files door: what `terrace run` preloads into every program.
//!
//! A file whose bytes lie in a faster tier is, in the root, a link to them (see ARCHITECTURE.md), so the kernel opens,
//! reads and writes the right bytes without us. This library
//!
//!   creates new files in the fastest tier with room     create.rs, temporaries.rs
//!   opens what the kernel would, by restricted ways too  open.rs, open_how.rs
//!   hides that they are links                           stat.rs, directory.rs, canonical.rs, attributes.rs, changes.rs, walk.rs
//!   keeps count of what is written                      data.rs, entry.rs
//!   has other nodes' files brought                     elsewhere.rs
//!   locks files where they are now                       locks.rs
//!   changes no name in the middle of a commit           names.rs
//!   places whole directories, and leads `..` out of them make_directory.rs, placed.rs, dots.rs, inside.rs
//!   makes files elsewhere that these have no room for  spill.rs
//!   follows programs into other programs                exec.rs, system_call.rs
//!   decides for programs that it can't reach            proxy.rs, caller.rs (loaded by their supervisor)
//!
//! Invariants: it allocates nothing, locks nothing, uses no thread-local and no Rust `std`: hooks run between `fork` and
//! `exec`, in signal handlers and inside `malloc`. Every system call of its own goes through one page of code (gate.rs), so
//! that a seccomp filter can let exactly those through.
//! Outside the root it adds a comparison of the path's first bytes.
#![no_std]
#![allow(non_camel_case_types, clippy::missing_safety_doc)]
// Hooks have the C library's signatures, and every one of them is called with a C program's pointers.
#![allow(clippy::not_unsafe_ptr_arg_deref)]

#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
compile_error!("the preload library is written for Linux on x86-64 (system calls, entry patches)");

mod agent_call;
mod attributes;
mod caller;
mod canonical;
mod changes;
mod climbing;
mod create;
mod data;
mod data_calls;
mod directory;
mod dots;
mod durable;
mod elsewhere;
mod entry;
mod events;
mod exec;
mod gate;
mod habits;
mod inside;
mod link;
mod locks;
mod make_directory;
mod names;
mod objects;
mod open;
mod open_how;
mod path;
mod placed;
mod process;
mod proxy;
mod readable;
mod real;
mod recent;
mod remembered;
mod scratch;
mod spill;
mod stat;
mod stream;
mod system_call;
mod temporaries;
mod walk;

/// For `terrace run`, which reads it in the file.
#[unsafe(export_name = "terrace_library_version")]
pub static VERSION: [u8; terrace_index::VERSION.len()] = {
    let mut bytes = [0; terrace_index::VERSION.len()];
    bytes.copy_from_slice(terrace_index::VERSION.as_bytes());
    bytes
};

/// What `entry.rs` leads the C library's own calls to.
static HOOKS: entry::Hooks = entry::Hooks {
    write: data_calls::write as *const (),
    read: data_calls::read as *const (),
    lseek: data_calls::lseek as *const (),
    getdents64: directory::getdents64 as *const (),
    fstatat: stat::fstatat64 as *const (),
    readlink: canonical::readlink as *const (),
    execve: exec::execve as *const (),
};

/// Runs before the program's main: patches the C library if the program inherited descriptors of placed files.
#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn() = {
    extern "C" fn construct() {
        if let Some(index) = process::index()
            && (0..3).any(|fd| data::is_placed(index, fd))
        {
            entry::patch();
        }
    }
    construct
};

// `core` is compiled with unwind tables that name this function; we never unwind. Hidden, so that it is nobody else's.
core::arch::global_asm!(".globl rust_eh_personality", ".hidden rust_eh_personality", "rust_eh_personality: ud2");

/// Overflow checks and bounds are proven or wanted here; a broken invariant must end the program, not corrupt its data.
#[panic_handler]
fn panic(_: &core::panic::PanicInfo) -> ! {
    const MESSAGE: &[u8] = b"terrace: internal error in the preload library; please report it\n";
    // SAFETY: a plain write(2) of a constant, then abort by signal.
    unsafe {
        gate::call3(libc::SYS_write, 2, MESSAGE.as_ptr() as usize, MESSAGE.len());
        gate::call2(libc::SYS_kill, gate::call0(libc::SYS_getpid) as usize, libc::SIGABRT as usize);
        loop {
            gate::call1(libc::SYS_exit_group, 134);
        }
    }
}
