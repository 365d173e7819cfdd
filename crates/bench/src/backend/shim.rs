//! Backends in C (MPI-IO, HDF5, NetCDF): a small library, built for the MPI that is here, and loaded by the worker.
//!
//!   shim/*.c ──mpicc, once for each compiler and source──▶ cache directory ──dlopen──▶ the functions of shim.h
//!
//! Nothing of MPI is linked into this program, so it runs where there is none, and one build serves any MPI.

use super::{Backend, Blocks, Target};
use crate::error::{Error, Result};
use crate::settings::BackendSettings;
use crate::workload::Block;
use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW, Symbol};
use sha2::{Digest, Sha256};
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

const HEADER: &str = include_str!("../../shim/shim.h");
const MPIIO: &str = include_str!("../../shim/mpiio.c");
const HDF5: &str = include_str!("../../shim/hdf5.c");
const NETCDF: &str = include_str!("../../shim/netcdf.c");

const MESSAGE_BYTES: usize = 1024;

/// `struct tb_open` of shim.h.
#[repr(C)]
struct OpenArguments {
    path: *const c_char,
    hints: *const c_char,
    file_bytes: u64,
    write: c_int,
    shared: c_int,
    collective: c_int,
    view: c_int,
    seek: c_int,
    block_count: u32,
    blocks: *const RawBlock,
}

/// `struct tb_block` of shim.h.
#[repr(C)]
struct RawBlock {
    variable: u32,
    dimensions: u32,
    element_bytes: u64,
    base: u64,
    sizes: *const u64,
    starts: *const u64,
    counts: *const u64,
}

impl RawBlock {
    /// Valid as long as the block is.
    fn of(block: &Block) -> RawBlock {
        RawBlock {
            variable: block.variable,
            dimensions: block.sizes.len() as u32,
            element_bytes: block.element_bytes,
            base: block.base,
            sizes: block.sizes.as_ptr(),
            starts: block.starts.as_ptr(),
            counts: block.counts.as_ptr(),
        }
    }
}

type Start = unsafe extern "C" fn(*mut c_char) -> c_int;
type Open = unsafe extern "C" fn(*const OpenArguments, *mut c_char) -> *mut c_void;
type Move = unsafe extern "C" fn(*mut c_void, c_int, u64, *mut c_void, u64, *mut c_char) -> c_int;
type MoveBlock = unsafe extern "C" fn(*mut c_void, c_int, *const RawBlock, *mut c_void, *mut c_char) -> c_int;
type Simple = unsafe extern "C" fn(*mut c_void, *mut c_char) -> c_int;
type Join = unsafe extern "C" fn(*mut c_void, c_int, *mut c_char) -> c_int;
type Finish = unsafe extern "C" fn();

struct Functions {
    open: Symbol<Open>,
    transfer: Symbol<Move>,
    transfer_block: Symbol<MoveBlock>,
    join: Symbol<Join>,
    flush: Symbol<Simple>,
    close: Symbol<Simple>,
    finish: Symbol<Finish>,
    /// Stays loaded: MPI can't be started twice in a process.
    _library: Library,
}

/// Ends MPI when the worker ends.
static LOADED: Mutex<Vec<(PathBuf, &'static Functions)>> = Mutex::new(Vec::new());

pub struct Shim {
    functions: &'static Functions,
    handle: *mut c_void,
    takes_blocks: bool,
    collective: bool,
    view: bool,
    seek: bool,
    hints: CString,
}

struct Kind {
    name: &'static str,
    source: &'static str,
    /// For pkg-config.
    package: Option<&'static str>,
    debian: &'static str,
}

fn kind(settings: &BackendSettings) -> Kind {
    match settings {
        BackendSettings::Hdf5(_) => {
            Kind { name: "hdf5", source: HDF5, package: Some("hdf5-openmpi"), debian: "libhdf5-openmpi-dev" }
        }
        BackendSettings::Netcdf(_) => {
            Kind { name: "netcdf", source: NETCDF, package: Some("netcdf-mpi"), debian: "libnetcdf-mpi-dev" }
        }
        _ => Kind { name: "mpiio", source: MPIIO, package: None, debian: "libopenmpi-dev openmpi-bin" },
    }
}

/// Where the library of this backend is, after building it if need be.
pub fn build(settings: &BackendSettings) -> Result<PathBuf> {
    let kind = kind(settings);
    let missing = |what: String| {
        let hint = format!("install an MPI with its compiler (Debian: {}), or use another backend", kind.debian);
        Error::input(format!("the backend `{}` can't be built: {what}", kind.name), hint)
    };
    let compiler = std::env::var("MPICC").unwrap_or_else(|_| "mpicc".into());
    let shown =
        Command::new(&compiler).arg("-show").output().map_err(|error| missing(format!("`{compiler}`: {error}")))?;
    if !shown.status.success() {
        return Err(missing(format!("`{compiler} -show` failed")));
    }
    let flags = match kind.package {
        None => vec![],
        Some(package) => {
            let ask = |arguments: &[&str]| {
                let output = Command::new("pkg-config").args(arguments).arg(package).output();
                let output = output.map_err(|error| missing(format!("`pkg-config`: {error}")))?;
                if !output.status.success() {
                    return Err(missing(format!("pkg-config does not know `{package}`")));
                }
                Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
            };
            // Debian's NetCDF has its headers below the prefix, and says otherwise.
            let headers = format!("-I{}/include", ask(&["--variable=prefix"])?);
            let flags = ask(&["--cflags", "--libs"])?;
            flags.split_whitespace().map(str::to_owned).chain([headers]).collect()
        }
    };
    let mut digest = Sha256::new();
    for part in [HEADER.as_bytes(), kind.source.as_bytes(), &shown.stdout, flags.join(" ").as_bytes()] {
        digest.update(part);
    }
    let hash: String = digest.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    let directory = cache_directory()?;
    let library = directory.join(format!("libterrace_bench_{}_{hash}.so", kind.name));
    if library.exists() {
        return Ok(library);
    }
    let work = tempfile::tempdir_in(&directory).map_err(|error| Error::io("work in", directory.display(), error))?;
    let source = work.path().join(format!("{}.c", kind.name));
    let built = work.path().join("built.so");
    for (path, text) in [(work.path().join("shim.h"), HEADER), (source.clone(), kind.source)] {
        std::fs::write(&path, text).map_err(|error| Error::io("write", path.display(), error))?;
    }
    let output = Command::new(&compiler)
        .args(["-O2", "-Wall", "-fPIC", "-shared", "-o"])
        .arg(&built)
        .arg(&source)
        .args(&flags)
        .output()
        .map_err(|error| missing(format!("`{compiler}`: {error}")))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(missing(format!("{compiler} says:\n{}", said.trim())));
    }
    // Others may build the same at the same time: the last rename wins, and all are equal.
    std::fs::rename(&built, &library).map_err(|error| Error::io("put in place", library.display(), error))?;
    Ok(library)
}

/// The user's own, for what is built or installed once.
pub fn cache_directory() -> Result<PathBuf> {
    // One that is empty or relative counts as not set (XDG Base Directory Specification).
    let set = |variable: &str| std::env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute());
    let base = set("XDG_CACHE_HOME").or_else(|| Some(set("HOME")?.join(".cache"))).ok_or_else(|| {
        Error::input("neither XDG_CACHE_HOME nor HOME is an absolute path", "set one: built backends are kept there")
    })?;
    let directory = base.join("terrace").join("bench");
    std::fs::create_dir_all(&directory).map_err(|error| Error::io("create", directory.display(), error))?;
    Ok(directory)
}

impl Shim {
    pub fn load(settings: &BackendSettings) -> Result<Shim> {
        let path = build(settings)?;
        let mut loaded = LOADED.lock().map_err(|_| Error::failed("a thread of this worker failed"))?;
        let functions = match loaded.iter().find(|(known, _)| *known == path) {
            Some((_, functions)) => *functions,
            None => {
                let functions: &'static Functions = Box::leak(Box::new(load(&path)?));
                loaded.push((path, functions));
                functions
            }
        };
        let (collective, view, seek, hints) = match settings {
            BackendSettings::Mpiio(mpi) => (mpi.collective, mpi.view, mpi.seek, mpi.hints.clone()),
            BackendSettings::Hdf5(library) | BackendSettings::Netcdf(library) => {
                let alignment = library.alignment.map(|bytes| ("alignment".to_owned(), bytes.0.to_string()));
                (library.collective, false, false, alignment.into_iter().collect())
            }
            _ => return Err(Error::failed("this backend is not in C")),
        };
        let hints: String = hints.iter().map(|(key, value)| format!("{key}={value}\n")).collect();
        Ok(Shim {
            functions,
            handle: std::ptr::null_mut(),
            takes_blocks: view || !matches!(settings, BackendSettings::Mpiio(_)),
            collective,
            view,
            seek,
            hints: CString::new(hints).map_err(|_| Error::input("a hint has a zero byte", "remove it"))?,
        })
    }

    /// Ends what the loaded libraries have started.
    pub fn finish_all() {
        if let Ok(loaded) = LOADED.lock()
            && let Some((_, functions)) = loaded.first()
        {
            // SAFETY: no file is open any more; the function takes nothing.
            unsafe { (functions.finish)() };
        }
    }

    fn simple(&self, function: &Symbol<Simple>) -> io::Result<()> {
        if self.handle.is_null() {
            return Err(super::not_open());
        }
        // SAFETY: the handle is open, the message has the size that shim.h asks for.
        said(|message| unsafe { function(self.handle, message) })
    }

    fn transfer(&self, write: bool, offset: u64, buffer: *mut u8, bytes: usize) -> io::Result<()> {
        if self.handle.is_null() {
            return Err(super::not_open());
        }
        let write = c_int::from(write);
        // SAFETY: the handle is open, the buffer is valid for so many bytes.
        said(|message| unsafe {
            (self.functions.transfer)(self.handle, write, offset, buffer.cast(), bytes as u64, message)
        })
    }

    fn transfer_block(&self, write: bool, block: &Block, buffer: *mut u8) -> io::Result<()> {
        if self.handle.is_null() {
            return Err(super::not_open());
        }
        let (write, raw) = (c_int::from(write), RawBlock::of(block));
        // SAFETY: the handle is open, the caller's buffer has the block's size, the block outlives the call.
        said(|message| unsafe { (self.functions.transfer_block)(self.handle, write, &raw, buffer.cast(), message) })
    }
}

fn load(path: &Path) -> Result<Functions> {
    let failed = |error: libloading::Error| Error::failed(format!("can't load {}: {error}", path.display()));
    // SAFETY: the library is ours, built from shim/*.c; MPI's own plug-ins want its symbols global.
    let library = unsafe { Library::open(Some(path), RTLD_NOW | RTLD_GLOBAL) }.map_err(failed)?;
    // SAFETY: the types are those of shim.h.
    let (start, functions) = unsafe {
        let start: Symbol<Start> = library.get(b"tb_start\0").map_err(failed)?;
        let functions = Functions {
            open: library.get(b"tb_open\0").map_err(failed)?,
            transfer: library.get(b"tb_transfer\0").map_err(failed)?,
            transfer_block: library.get(b"tb_transfer_block\0").map_err(failed)?,
            join: library.get(b"tb_join\0").map_err(failed)?,
            flush: library.get(b"tb_flush\0").map_err(failed)?,
            close: library.get(b"tb_close\0").map_err(failed)?,
            finish: library.get(b"tb_finish\0").map_err(failed)?,
            _library: library,
        };
        (start, functions)
    };
    // SAFETY: the message has the size that shim.h asks for.
    said(|message| unsafe { start(message) }).map_err(|error| Error::io("start", "MPI", error))?;
    Ok(functions)
}

/// Calls with room for a message; anything but 0 is a failure that the message explains.
fn said(call: impl FnOnce(*mut c_char) -> c_int) -> io::Result<()> {
    let mut message = [0 as c_char; MESSAGE_BYTES];
    if call(message.as_mut_ptr()) == 0 {
        return Ok(());
    }
    // SAFETY: the shim ends its messages with a zero, and the array began as zeros.
    let text = unsafe { CStr::from_ptr(message.as_ptr()) };
    Err(io::Error::other(text.to_string_lossy().into_owned()))
}

impl Backend for Shim {
    fn open(&mut self, target: &Target) -> io::Result<()> {
        let path = CString::new(target.path.as_os_str().as_bytes())?;
        let blocks: Vec<RawBlock> = target.blocks.iter().map(RawBlock::of).collect();
        let arguments = OpenArguments {
            path: path.as_ptr(),
            hints: self.hints.as_ptr(),
            file_bytes: target.file_bytes,
            write: c_int::from(target.write),
            shared: c_int::from(target.shared),
            collective: c_int::from(self.collective),
            view: c_int::from(self.view),
            seek: c_int::from(self.seek),
            block_count: blocks.len() as u32,
            blocks: blocks.as_ptr(),
        };
        let mut handle = std::ptr::null_mut();
        said(|message| {
            // SAFETY: the arguments live through the call; the shim keeps none of their pointers.
            handle = unsafe { (self.functions.open)(&arguments, message) };
            c_int::from(handle.is_null())
        })?;
        self.handle = handle;
        Ok(())
    }
    fn write(&mut self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.transfer(true, offset, data.as_ptr().cast_mut(), data.len())
    }
    fn read(&mut self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.transfer(false, offset, buffer.as_mut_ptr(), buffer.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        self.simple(&self.functions.flush)
    }
    fn close(&mut self) -> io::Result<()> {
        let closed = self.simple(&self.functions.close);
        self.handle = std::ptr::null_mut();
        closed
    }
    fn remove(&mut self, path: &Path) -> io::Result<()> {
        std::fs::remove_file(path)
    }
    fn blocks(&mut self) -> Option<&mut dyn Blocks> {
        if self.takes_blocks { Some(self) } else { None }
    }
    fn collective(&self) -> bool {
        self.collective
    }
    fn join_call(&mut self, write: bool) -> io::Result<()> {
        // SAFETY: the handle is open: this is called within the loop of requests.
        said(|message| unsafe { (self.functions.join)(self.handle, c_int::from(write), message) })
    }
}

impl Blocks for Shim {
    fn write_block(&mut self, block: &Block, data: &[u8]) -> io::Result<()> {
        self.transfer_block(true, block, data.as_ptr().cast_mut())
    }
    fn read_block(&mut self, block: &Block, buffer: &mut [u8]) -> io::Result<()> {
        self.transfer_block(false, block, buffer.as_mut_ptr())
    }
}
