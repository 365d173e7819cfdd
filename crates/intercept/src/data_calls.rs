//! The C library's calls on descriptors that read, write, seek or size a file.

use crate::data::{self, Need, reading, writing};
use crate::{gate, habits, process, readable, real, real::outcome};
use core::ffi::{c_int, c_void};

/// Bytes of one step where the kernel takes a length far beyond the file (copy_file_range of "everything").
const STEP: usize = 4 << 20;

#[unsafe(no_mangle)]
pub unsafe extern "C" fn write(fd: c_int, buffer: *const c_void, count: usize) -> isize {
    let real = real::real_write();
    // SAFETY: the program's buffer, here and in all hooks of this module.
    writing(fd, Need::Growth(count as i64), || unsafe { real(fd, buffer, count) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn read(fd: c_int, buffer: *mut c_void, count: usize) -> isize {
    let real = real::real_read();
    reading(fd, || unsafe { real(fd, buffer, count) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn __read_chk(fd: c_int, buffer: *mut c_void, count: usize, size: usize) -> isize {
    assert!(count <= size, "a checked read beyond its buffer");
    unsafe { read(fd, buffer, count) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn lseek(fd: c_int, offset: i64, whence: c_int) -> i64 {
    reading(fd, || outcome(unsafe { gate::call3(libc::SYS_lseek, fd as usize, offset as usize, whence as usize) }))
        as i64
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn lseek64(fd: c_int, offset: i64, whence: c_int) -> i64 {
    unsafe { lseek(fd, offset, whence) }
}

macro_rules! read_hooks {
    ($($name:ident($($arg:ident: $ty:ty),*);)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(fd: c_int, $($arg: $ty),*) -> isize {
            let real = $crate::real_named!($name: fn(c_int, $($ty),*) -> isize);
            reading(fd, || unsafe { real(fd, $($arg),*) })
        }
    )*};
}

/// As `real!`, with the name as an identifier.
#[macro_export]
macro_rules! real_named {
    ($name:ident : fn($($arg:ty),* $(,)?) -> $ret:ty) => {{
        static REAL: $crate::real::Real = $crate::real::Real::new(
            match core::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) { Ok(name) => name, Err(_) => panic!() });
        // SAFETY: the C library's function of this name has this signature.
        unsafe { core::mem::transmute::<*mut core::ffi::c_void, unsafe extern "C" fn($($arg),*) -> $ret>(REAL.get()) }
    }};
}

type iov = *const libc::iovec;

read_hooks! {
    pread(buffer: *mut c_void, count: usize, offset: i64);
    pread64(buffer: *mut c_void, count: usize, offset: i64);
    __pread_chk(buffer: *mut c_void, count: usize, offset: i64, size: usize);
    __pread64_chk(buffer: *mut c_void, count: usize, offset: i64, size: usize);
    readv(vector: iov, count: c_int);
    preadv(vector: iov, count: c_int, offset: i64);
    preadv64(vector: iov, count: c_int, offset: i64);
    preadv2(vector: iov, count: c_int, offset: i64, flags: c_int);
    preadv64v2(vector: iov, count: c_int, offset: i64, flags: c_int);
    readahead(offset: i64, count: usize);
}

macro_rules! sync_hooks {
    ($($name:ident;)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(fd: c_int) -> c_int {
            let real = $crate::real_named!($name: fn(c_int) -> c_int);
            data::synced(fd);
            reading(fd, || unsafe { real(fd) as isize }) as c_int
        }
    )*};
}

sync_hooks! {
    fsync;
    fdatasync;
}

fn bytes_of(vector: iov, count: c_int) -> i64 {
    /// The kernel refuses more (UIO_MAXIOV).
    const VECTORS_MAX: usize = 1024;
    let count = usize::try_from(count).unwrap_or(0);
    if count > VECTORS_MAX || !readable::are_bytes(vector as *const c_void, count * size_of::<libc::iovec>()) {
        return 0;
    }
    let mut sum = 0i64;
    for i in 0..count {
        // SAFETY: the program gives `count` entries; the kernel would read them as well.
        sum = sum.saturating_add(unsafe { (*vector.add(i)).iov_len } as i64);
    }
    sum
}

macro_rules! write_hooks {
    ($($name:ident($($arg:ident: $ty:ty),*) needs $need:expr;)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(fd: c_int, $($arg: $ty),*) -> isize {
            let real = $crate::real_named!($name: fn(c_int, $($ty),*) -> isize);
            writing(fd, $need, || unsafe { real(fd, $($arg),*) })
        }
    )*};
}

write_hooks! {
    pwrite(buffer: *const c_void, count: usize, offset: i64) needs Need::Growth(count as i64);
    pwrite64(buffer: *const c_void, count: usize, offset: i64) needs Need::Growth(count as i64);
    writev(vector: iov, count: c_int) needs Need::Growth(bytes_of(vector, count));
    pwritev(vector: iov, count: c_int, offset: i64) needs Need::Growth(bytes_of(vector, count));
    pwritev64(vector: iov, count: c_int, offset: i64) needs Need::Growth(bytes_of(vector, count));
    pwritev2(vector: iov, count: c_int, offset: i64, flags: c_int) needs Need::Growth(bytes_of(vector, count));
    pwritev64v2(vector: iov, count: c_int, offset: i64, flags: c_int) needs Need::Growth(bytes_of(vector, count));
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftruncate(fd: c_int, length: i64) -> c_int {
    writing(fd, Need::Total(length), || {
        outcome(unsafe { gate::call2(libc::SYS_ftruncate, fd as usize, length as usize) })
    }) as c_int
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftruncate64(fd: c_int, length: i64) -> c_int {
    unsafe { ftruncate(fd, length) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fallocate(fd: c_int, mode: c_int, offset: i64, length: i64) -> c_int {
    // Punching holes and collapsing give room back; the rest may reach to offset + length.
    let need = if mode & !libc::FALLOC_FL_KEEP_SIZE == 0 {
        Need::Total(offset.saturating_add(length))
    } else {
        Need::Growth(0)
    };
    writing(fd, need, || {
        outcome(unsafe {
            gate::call4(libc::SYS_fallocate, fd as usize, mode as usize, offset as usize, length as usize)
        })
    }) as c_int
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fallocate64(fd: c_int, mode: c_int, offset: i64, length: i64) -> c_int {
    unsafe { fallocate(fd, mode, offset, length) }
}

/// posix_fallocate(3) returns an errno and leaves errno alone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_fallocate(fd: c_int, offset: i64, length: i64) -> c_int {
    let real = crate::real!("posix_fallocate": fn(c_int, i64, i64) -> c_int);
    let kept = real::errno();
    let result =
        writing(fd, Need::Total(offset.saturating_add(length)), || match unsafe { real(fd, offset, length) } {
            0 => 0,
            errno => {
                real::set_errno(errno);
                -1
            }
        });
    let errno = real::errno();
    real::set_errno(kept);
    if result < 0 { errno } else { 0 }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_fallocate64(fd: c_int, offset: i64, length: i64) -> c_int {
    unsafe { posix_fallocate(fd, offset, length) }
}

/// How much a copy of at most `count` bytes from `fd` at `offset` (or its own position) can write.
fn available(fd: c_int, offset: *const i64, count: usize) -> usize {
    // SAFETY: a zeroed stat is valid; `offset` is the program's, or null.
    unsafe {
        let mut status: libc::stat = core::mem::zeroed();
        if !(offset.is_null() || readable::are_bytes(offset as *const c_void, size_of::<i64>()))
            || gate::call2(libc::SYS_fstat, fd as usize, &raw mut status as usize) != 0
            || status.st_mode & libc::S_IFMT != libc::S_IFREG
        {
            return count;
        }
        let at = if offset.is_null() {
            gate::call3(libc::SYS_lseek, fd as usize, 0, libc::SEEK_CUR as usize) as i64
        } else {
            *offset
        };
        count.min((status.st_size - at).max(0) as usize)
    }
}

/// One call of the program, in steps: a guard is held for one of them, and what is counted is what it may write. Ends where a step
/// gave less than it was asked for; an error counts only if nothing was done.
fn in_steps(count: usize, mut step: impl FnMut(usize) -> isize) -> isize {
    let mut done = 0;
    loop {
        let most = (count - done).min(STEP);
        let result = step(most);
        if result < 0 {
            return if done > 0 { done as isize } else { result };
        }
        done += result as usize;
        if (result as usize) < most || done == count {
            return done as isize;
        }
    }
}

/// What copy_file_range does, for two file systems: reads and writes. The bytes copied, or an errno as the kernel returns it.
unsafe fn copy_by_hand(from: c_int, from_offset: *mut i64, to: c_int, to_offset: *mut i64, count: usize) -> isize {
    const BUFFER: usize = 128 << 10;
    // SAFETY: a buffer of our own; the offsets are the program's or null, as the kernel has just checked.
    unsafe {
        let protection = (libc::PROT_READ | libc::PROT_WRITE) as usize;
        let flags = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as usize;
        let buffer = gate::call6(libc::SYS_mmap, 0, BUFFER, protection, flags, usize::MAX, 0);
        if buffer < 0 {
            return buffer;
        }
        let at = |call: [i64; 2], fd: c_int, offset: *mut i64, bytes: usize, done: usize| {
            if offset.is_null() {
                gate::call3(call[0], fd as usize, buffer as usize, bytes)
            } else {
                gate::call4(call[1], fd as usize, buffer as usize, bytes, *offset as usize + done)
            }
        };
        let (mut done, mut error) = (0usize, 0);
        while done < count {
            let got = at([libc::SYS_read, libc::SYS_pread64], from, from_offset, (count - done).min(BUFFER), done);
            if got <= 0 {
                error = got;
                break;
            }
            let put = at([libc::SYS_write, libc::SYS_pwrite64], to, to_offset, got as usize, done);
            done += put.max(0) as usize;
            if put < got {
                error = put.min(0);
                if from_offset.is_null() {
                    let back = put.max(0) - got;
                    gate::call3(libc::SYS_lseek, from as usize, back as usize, libc::SEEK_CUR as usize);
                }
                break;
            }
        }
        gate::call2(libc::SYS_munmap, buffer as usize, BUFFER);
        if done == 0 {
            return error;
        }
        for offset in [from_offset, to_offset] {
            if !offset.is_null() {
                *offset += done as i64;
            }
        }
        done as isize
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn copy_file_range(
    from: c_int,
    from_offset: *mut i64,
    to: c_int,
    to_offset: *mut i64,
    count: usize,
    flags: u32,
) -> isize {
    let step = |count: usize| {
        outcome(unsafe {
            gate::call6(
                libc::SYS_copy_file_range,
                from as usize,
                from_offset as usize,
                to as usize,
                to_offset as usize,
                count,
                flags as usize,
            )
        })
    };
    let Some(index) = process::index() else { return step(count) };
    if reading(from, || 0) < 0 {
        return -1;
    }
    // Programs see one file system where there are two.
    let step_or_copy = |count: usize| match step(count) {
        -1 if real::errno() == libc::EXDEV && flags == 0 => unsafe {
            outcome(copy_by_hand(from, from_offset, to, to_offset, count))
        },
        result => result,
    };
    if !data::is_placed(index, to) {
        let moved = if data::is_placed(index, from) { in_steps(count, step_or_copy) } else { step(count) };
        return data::noted(index, to, moved);
    }
    in_steps(count, |most| {
        let count = available(from, from_offset, most);
        writing(to, Need::Growth(count as i64), || step_or_copy(count))
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendfile(to: c_int, from: c_int, offset: *mut i64, count: usize) -> isize {
    let step = |count: usize| {
        outcome(unsafe { gate::call4(libc::SYS_sendfile, to as usize, from as usize, offset as usize, count) })
    };
    let Some(index) = process::index() else { return step(count) };
    if reading(from, || 0) < 0 {
        return -1;
    }
    if !data::is_placed(index, to) {
        return data::noted(index, to, step(count));
    }
    in_steps(count, |most| {
        let count = available(from, offset, most);
        writing(to, Need::Growth(count as i64), || step(count))
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendfile64(to: c_int, from: c_int, offset: *mut i64, count: usize) -> isize {
    unsafe { sendfile(to, from, offset, count) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn splice(
    from: c_int,
    from_offset: *mut i64,
    to: c_int,
    to_offset: *mut i64,
    count: usize,
    flags: u32,
) -> isize {
    let real = crate::real!("splice": fn(c_int, *mut i64, c_int, *mut i64, usize, u32) -> isize);
    if reading(from, || 0) < 0 {
        return -1;
    }
    let step = |count: usize| unsafe { real(from, from_offset, to, to_offset, count, flags) };
    let Some(index) = process::index() else { return step(count) };
    if !data::is_placed(index, to) {
        return data::noted(index, to, step(count));
    }
    let count = count.min(STEP);
    writing(to, Need::Growth(count as i64), || step(count))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmap(
    address: *mut c_void,
    length: usize,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: i64,
) -> *mut c_void {
    let mut held = None;
    if fd >= 0
        && flags & libc::MAP_ANONYMOUS == 0
        && let Some(index) = process::index()
    {
        if flags & libc::MAP_TYPE == libc::MAP_PRIVATE {
            if reading(fd, || 0) < 0 {
                return libc::MAP_FAILED;
            }
        } else {
            held = data::mapped(index, fd).map(|entered| (index, entered));
        }
    }
    if !address.is_null() && (protection & libc::PROT_READ == 0 || flags & libc::MAP_FIXED != 0) {
        readable::forget(address as usize, length);
    }
    let result = unsafe {
        gate::call6(
            libc::SYS_mmap,
            address as usize,
            length,
            protection as usize,
            flags as usize,
            fd as usize,
            offset as usize,
        )
    };
    if let Some((index, entered)) = held {
        index.guard_leave(entered);
    }
    outcome(result) as *mut c_void
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmap64(
    address: *mut c_void,
    length: usize,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: i64,
) -> *mut c_void {
    unsafe { mmap(address, length, protection, flags, fd, offset) }
}

// Descriptors that get a new meaning: what we knew of them is forgotten.

#[unsafe(no_mangle)]
pub unsafe extern "C" fn dup(fd: c_int) -> c_int {
    let new = outcome(unsafe { gate::call1(libc::SYS_dup, fd as usize) }) as c_int;
    data::forget(new);
    new
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn dup2(fd: c_int, to: c_int) -> c_int {
    let new = outcome(unsafe { gate::call2(libc::SYS_dup2, fd as usize, to as usize) }) as c_int;
    data::forget(new);
    new
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn dup3(fd: c_int, to: c_int, flags: c_int) -> c_int {
    let new = outcome(unsafe { gate::call3(libc::SYS_dup3, fd as usize, to as usize, flags as usize) }) as c_int;
    data::forget(new);
    new
}

// A closed number may come back as a pipe: a guard must never be held over a write that waits for a reader.

#[unsafe(no_mangle)]
pub unsafe extern "C" fn close(fd: c_int) -> c_int {
    let made = habits::take_made(fd);
    data::forget(fd);
    let result = outcome(unsafe { gate::call1(libc::SYS_close, fd as usize) }) as c_int;
    made.into_iter().for_each(habits::closed);
    result
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fclose(stream: *mut c_void) -> c_int {
    let fileno = crate::real!("fileno": fn(*mut c_void) -> c_int);
    let real = crate::real!("fclose": fn(*mut c_void) -> c_int);
    let kept = real::errno();
    // fileno of a stream without a descriptor (fmemopen) is -1 and sets errno.
    let fd = unsafe { fileno(stream) };
    real::set_errno(kept);
    let made = habits::take_made(fd);
    let result = unsafe { real(stream) };
    data::forget(fd);
    made.into_iter().for_each(habits::closed);
    result
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn close_range(first: u32, last: u32, flags: c_int) -> c_int {
    data::forget_range(first, last);
    outcome(unsafe { gate::call3(libc::SYS_close_range, first as usize, last as usize, flags as usize) }) as c_int
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn closefrom(first: c_int) {
    unsafe { close_range(first.max(0) as u32, u32::MAX, 0) };
}

// Asynchronous calls run in threads of libc's own (or the kernel's), where no descriptor can be exchanged: such a file does not
// move live.

/// The descriptor is the first field of an aiocb.
unsafe fn keep_place(control: *const c_int) {
    if let (Some(index), false) = (process::index(), control.is_null()) {
        // SAFETY: the program's own structure.
        data::written_later(index, unsafe { *control });
    }
}

macro_rules! aio_hooks {
    ($($name:ident;)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(control: *mut c_int) -> c_int {
            let real = $crate::real_named!($name: fn(*mut c_int) -> c_int);
            unsafe {
                keep_place(control);
                real(control)
            }
        }
    )*};
}

aio_hooks! {
    aio_read;
    aio_read64;
    aio_write;
    aio_write64;
}

macro_rules! lio_hooks {
    ($($name:ident;)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(mode: c_int, list: *const *mut c_int, count: c_int, event: *mut c_void) -> c_int {
            let real = $crate::real_named!($name: fn(c_int, *const *mut c_int, c_int, *mut c_void) -> c_int);
            unsafe {
                for i in 0..count.max(0) as usize {
                    keep_place(*list.add(i));
                }
                real(mode, list, count, event)
            }
        }
    )*};
}

lio_hooks! {
    lio_listio;
    lio_listio64;
}
