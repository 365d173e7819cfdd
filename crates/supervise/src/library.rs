//! The preload library, loaded into this process for its decisions (see `terrace_index::proxy`).

use std::ffi::{CStr, CString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use terrace_index::proxy::{ENTRY, Table};

fn unfit(reason: String) -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, reason)
}

/// Its functions, on this index; `Unsupported`: another try would find the same. Local to this process's own symbols: its hooks replace nothing here.
pub fn load(library: &Path, index: &Path) -> io::Result<&'static Table> {
    let name = |path: &Path| CString::new(path.as_os_str().as_bytes()).map_err(io::Error::other);
    let (library_name, index_name) = (name(library)?, name(index)?);
    // SAFETY: C strings; the entry has this signature, and its table lives as long as the library, which stays.
    unsafe {
        let handle = libc::dlopen(library_name.as_ptr(), libc::RTLD_LAZY | libc::RTLD_LOCAL);
        if handle.is_null() {
            return Err(unfit(CStr::from_ptr(libc::dlerror()).to_string_lossy().into_owned()));
        }
        let entry = libc::dlsym(handle, ENTRY.as_ptr());
        if entry.is_null() {
            return Err(unfit(format!("{} is not of this version", library.display())));
        }
        let entry: unsafe extern "C" fn(*const libc::c_char) -> *const Table = std::mem::transmute(entry);
        let table = entry(index_name.as_ptr());
        if table.is_null() {
            return Err(unfit(format!("{} is not an index of this version", index.display())));
        }
        Ok(&*table)
    }
}
