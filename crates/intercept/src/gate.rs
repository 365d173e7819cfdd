//! Our own system calls. All of them are made by one instruction. In a process under a seccomp filter it is on a page of its
//! own at an address that the supervisor's filter knows (`terrace_index::GATE`), and so passes it.

use core::arch::naked_asm;
use core::sync::atomic::{AtomicBool, AtomicPtr, Ordering::*};
use terrace_index::{GATE, SERVED_ANSWER, SERVED_QUESTION};

/// `syscall; ret`: this library's own, until `raise` has made the page.
static ENTER: AtomicPtr<()> = AtomicPtr::new(enter as *const () as *mut ());

#[unsafe(naked)]
unsafe extern "C" fn enter() {
    naked_asm!("syscall", "ret")
}

/// From a C function's registers (the number, then six arguments) to a system call's.
macro_rules! arguments {
    () => {
        "mov rax, rdi
         mov rdi, rsi
         mov rsi, rdx
         mov rdx, rcx
         mov r10, r8
         mov r8, r9
         mov r9, [rsp + 8]"
    };
}
pub(crate) use arguments;

/// The raw system call: arguments as for `syscall(2)`, result as the kernel gives it (negative errno).
///
/// # Safety
/// That of the system call.
#[unsafe(naked)]
pub unsafe extern "C" fn call6(nr: i64, a: usize, b: usize, c: usize, d: usize, e: usize, f: usize) -> isize {
    naked_asm!(
        arguments!(),
        "jmp [rip + {enter}]",
        enter = sym ENTER,
    )
}

/// As `call6`, for a program's own call that is none of ours: where the process is supervised, the filter sees it.
///
/// # Safety
/// That of the system call.
#[unsafe(naked)]
pub unsafe extern "C" fn outside6(nr: i64, a: usize, b: usize, c: usize, d: usize, e: usize, f: usize) -> isize {
    naked_asm!(arguments!(), "syscall", "ret",)
}

const PAGE: usize = 4096;
const CODE: [u8; 3] = [0x0f, 0x05, 0xc3];

/// The filter is a supervisor's of ours: it answers the calls that the C library makes by itself.
static SERVED: AtomicBool = AtomicBool::new(false);

pub fn is_served() -> bool {
    SERVED.load(Relaxed)
}

/// Makes the page, if the process is under a filter. Where it can't be made, calls go on from here: right, but slower.
#[cold]
pub fn raise() {
    // SAFETY: a new page of our own, filled before it is used.
    unsafe {
        if call1(libc::SYS_prctl, libc::PR_GET_SECCOMP as usize) != libc::SECCOMP_MODE_FILTER as isize {
            return;
        }
        let answer = call1(libc::SYS_prctl, SERVED_QUESTION as usize);
        SERVED.store(answer == -(SERVED_ANSWER as isize), Relaxed);
        let page = call6(
            libc::SYS_mmap,
            GATE,
            PAGE,
            (libc::PROT_READ | libc::PROT_WRITE) as usize,
            (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE) as usize,
            usize::MAX,
            0,
        );
        if page != GATE as isize {
            // Something lies there, or another thread is making it. A kernel without MAP_FIXED_NOREPLACE maps elsewhere.
            if page > 0 {
                call2(libc::SYS_munmap, page as usize, PAGE);
            }
            return;
        }
        core::ptr::copy_nonoverlapping(CODE.as_ptr(), GATE as *mut u8, CODE.len());
        if call3(libc::SYS_mprotect, GATE, PAGE, (libc::PROT_READ | libc::PROT_EXEC) as usize) == 0 {
            ENTER.store(GATE as *mut (), Release);
        } else {
            call2(libc::SYS_munmap, GATE, PAGE);
        }
    }
}

macro_rules! fewer {
    ($($name:ident($($arg:ident),*);)*) => {$(
        /// # Safety
        /// That of the system call.
        #[inline]
        pub unsafe fn $name(nr: i64, $($arg: usize),*) -> isize {
            // SAFETY: as the caller promises; unused registers are ignored by the kernel.
            unsafe { fewer!(@pad nr; $($arg),*) }
        }
    )*};
    (@pad $nr:ident;) => { call6($nr, 0, 0, 0, 0, 0, 0) };
    (@pad $nr:ident; $a:ident) => { call6($nr, $a, 0, 0, 0, 0, 0) };
    (@pad $nr:ident; $a:ident, $b:ident) => { call6($nr, $a, $b, 0, 0, 0, 0) };
    (@pad $nr:ident; $a:ident, $b:ident, $c:ident) => { call6($nr, $a, $b, $c, 0, 0, 0) };
    (@pad $nr:ident; $a:ident, $b:ident, $c:ident, $d:ident) => { call6($nr, $a, $b, $c, $d, 0, 0) };
    (@pad $nr:ident; $a:ident, $b:ident, $c:ident, $d:ident, $e:ident) => { call6($nr, $a, $b, $c, $d, $e, 0) };
}

fewer! {
    call0();
    call1(a);
    call2(a, b);
    call3(a, b, c);
    call4(a, b, c, d);
    call5(a, b, c, d, e);
}
