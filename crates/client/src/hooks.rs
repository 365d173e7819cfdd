//! Functions that are applied to a region's cells as they are put, before anybody sees them, or as they are got: a conversion of units, a
//! check, a statistic that is kept beside the array.
//!
//!   put: the program's cells ─▶ a copy ─▶ each function, in the order in which they were added ─▶ the tier
//!   get: the tier ─▶ the program's buffer ─▶ each function
//!
//! They belong to the open array and its clones, in this process: others put and get as they did. A function that fails ends the put, and
//! nothing is put; of a get the buffer's content is not defined then.

use crate::array::Array;
use std::ffi::{CString, c_char, c_int, c_void};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::sync::{Arc, RwLock};
use terrace_core::objects::{ArraySpec, Kind, ObjectError, RANK_MAX, Region, Result};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum When {
    Put,
    Get,
}

type Function = dyn Fn(&Region, &ArraySpec, &mut [u8]) -> Result<()> + Send + Sync;

/// As a C program writes it: `terrace_region`, the cells' type by name, the cells (packed, in C order) and their bytes. Not 0: it has failed.
pub type Foreign = unsafe extern "C" fn(*const ForeignRegion, *const c_char, *mut c_void, usize, *mut c_void) -> c_int;

/// `terrace_region` of terrace.h.
#[repr(C)]
pub struct ForeignRegion {
    rank: c_int,
    offset: [u64; RANK_MAX],
    count: [u64; RANK_MAX],
    stride: [u64; RANK_MAX],
}

#[derive(Default)]
pub(crate) struct Hooks {
    on_put: Chain,
    on_get: Chain,
}

#[derive(Default)]
struct Chain {
    /// Looked at by every put and get.
    is_used: AtomicBool,
    functions: RwLock<Vec<Arc<Function>>>,
}

impl Hooks {
    fn chain(&self, when: When) -> &Chain {
        match when {
            When::Put => &self.on_put,
            When::Get => &self.on_get,
        }
    }

    pub fn has(&self, when: When) -> bool {
        self.chain(when).is_used.load(Acquire)
    }

    pub fn apply(&self, when: When, region: &Region, spec: &ArraySpec, cells: &mut [u8]) -> Result<()> {
        if !self.has(when) || region.is_empty() {
            return Ok(());
        }
        // A function may add others, or put into this very array.
        let functions = self.chain(when).functions.read().unwrap_or_else(|poisoned| poisoned.into_inner()).clone();
        functions.iter().try_for_each(|function| function(region, spec, cells))
    }

    fn add(&self, when: When, function: Arc<Function>) {
        let chain = self.chain(when);
        chain.functions.write().unwrap_or_else(|poisoned| poisoned.into_inner()).push(function);
        chain.is_used.store(true, Release);
    }

    fn clear(&self) {
        for chain in [&self.on_put, &self.on_get] {
            chain.is_used.store(false, Release);
            chain.functions.write().unwrap_or_else(|poisoned| poisoned.into_inner()).clear();
        }
    }
}

impl Array {
    /// Applies a function to the cells of each region that is put, or got, by this open array or a clone of it, after those that were added
    /// before. It is given packed cells and may change them.
    pub fn hook(
        &self,
        when: When,
        function: impl Fn(&Region, &ArraySpec, &mut [u8]) -> Result<()> + Send + Sync + 'static,
    ) {
        self.hooks.add(when, Arc::new(function));
    }

    /// Applies a function of a shared library, by its name. The library stays loaded.
    ///
    /// # Safety
    /// The library may be loaded, and has a function of the type [`Foreign`] by that name, which any thread may call with `context`.
    pub unsafe fn hook_library(&self, when: When, library: &Path, symbol: &str, context: *mut c_void) -> Result<()> {
        let refused = |error: libloading::Error| {
            ObjectError::new(
                Kind::NotFound,
                format!("the function `{symbol}` of {} can't be used: {error}", library.display()),
            )
        };
        // SAFETY: as the caller promises.
        let function = unsafe {
            let library = libloading::Library::new(library).map_err(refused)?;
            let function = *library.get::<Foreign>(symbol.as_bytes()).map_err(refused)?;
            // Its functions may be called for as long as the process lives.
            std::mem::forget(library);
            function
        };
        // SAFETY: as the caller promises.
        unsafe { self.hook_foreign(when, symbol, function, context) };
        Ok(())
    }

    /// # Safety
    /// Any thread may call the function with `context`, for as long as the array is open.
    pub unsafe fn hook_foreign(&self, when: When, name: &str, function: Foreign, context: *mut c_void) {
        struct Context(*mut c_void);
        // SAFETY: as the caller promises.
        unsafe impl Send for Context {}
        // SAFETY: as the caller promises.
        unsafe impl Sync for Context {}
        let (name, context) = (name.to_owned(), Context(context));
        self.hook(when, move |region, spec, cells| {
            let context = &context;
            let told = ForeignRegion::of(region);
            let kind = CString::new(spec.data_type.name()).expect("names of types have no zero byte");
            // SAFETY: the cells are ours for as long as the call lasts; the rest as the caller promised.
            let code = unsafe { function(&told, kind.as_ptr(), cells.as_mut_ptr().cast(), cells.len(), context.0) };
            match code {
                0 => Ok(()),
                code => Err(ObjectError::invalid(format!("the function `{name}` has refused {region}, with {code}"))),
            }
        });
    }

    /// All functions that were added are applied no more.
    pub fn unhook(&self) {
        self.hooks.clear();
    }

    /// What is to be put instead of these cells.
    pub(crate) fn hooked(&self, region: &Region, cells: &[u8]) -> Result<Option<Vec<u8>>> {
        if !self.hooks.has(When::Put) {
            return Ok(None);
        }
        let wanted = region.cells() as u128 * self.spec().data_type.size() as u128;
        // The put itself says what is wrong.
        if wanted != cells.len() as u128 || region.rank() != self.spec().rank() {
            return Ok(None);
        }
        let mut changed = cells.to_vec();
        self.hooks.apply(When::Put, region, self.spec(), &mut changed)?;
        Ok(Some(changed))
    }
}

impl ForeignRegion {
    fn of(region: &Region) -> ForeignRegion {
        let mut told = ForeignRegion {
            rank: region.rank() as c_int,
            offset: [0; RANK_MAX],
            count: [0; RANK_MAX],
            stride: [1; RANK_MAX],
        };
        told.offset[..region.rank()].copy_from_slice(region.offset());
        told.count[..region.rank()].copy_from_slice(region.count());
        told.stride[..region.rank()].copy_from_slice(region.stride());
        told
    }
}
