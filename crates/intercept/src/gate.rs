//! Our own system calls. All of them are made by one instruction on one page (section `.text.gate`), which a seccomp filter
//! can recognise by the instruction pointer.

use core::arch::naked_asm;

/// The raw system call: arguments as for `syscall(2)`, result as the kernel gives it (negative errno).
///
/// # Safety
/// That of the system call.
#[unsafe(naked)]
#[unsafe(link_section = ".text.gate")]
pub unsafe extern "C" fn call6(nr: i64, a: usize, b: usize, c: usize, d: usize, e: usize, f: usize) -> isize {
    naked_asm!(
        "mov rax, rdi",
        "mov rdi, rsi",
        "mov rsi, rdx",
        "mov rdx, rcx",
        "mov r10, r8",
        "mov r8, r9",
        "mov r9, [rsp + 8]",
        "syscall",
        "ret",
    )
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
