//! Arrays and their regions.

use crate::call::{Failure, Outcome, call, call_close, call_open, given, out, space, text, used};
use crate::handles::handle;
use crate::session::{create_from, terrace_session};
use std::ffi::{c_char, c_int, c_void};
use terrace_client::{Array, ArraySpec, DataType, Kind, Placement, Region};

/// Most dimensions of an array.
pub const TERRACE_RANK_MAX: usize = 8;

/// An open array.
#[allow(non_camel_case_types)]
pub struct terrace_array {
    _private: (),
}

/// Which agents keep an array's regions, where there are several.
#[repr(C)]
#[allow(non_camel_case_types)]
pub enum terrace_placement {
    /// Chunks are spread over all agents.
    TERRACE_SPREAD = 0,
    /// All of the array is on the agent of the node that creates it.
    TERRACE_LOCAL = 1,
    /// All of the array is on one agent, which is chosen.
    TERRACE_ONE = 2,
}

/// What an array is to be. What is left zero is chosen.
#[repr(C)]
#[allow(non_camel_case_types)]
pub struct terrace_array_spec {
    /// "bool", "int8" to "int64", "uint8" to "uint64", "float16", "float32", "float64", "complex64", "complex128"; "S12": strings of
    /// 12 bytes; "U12": of 12 code points in 32 bits; "datetime64[s]", "timedelta64[s]" (D, h, m, s, ms, us, ns): 64-bit integers.
    pub data_type: *const c_char,
    /// Dimensions: up to TERRACE_RANK_MAX; 0: one cell. Cells lie in C order: the last dimension is the innermost.
    pub rank: c_int,
    pub shape: [u64; TERRACE_RANK_MAX],
    /// Dimensions that grow with what is put.
    pub unlimited: [bool; TERRACE_RANK_MAX],
    /// Cells of a chunk of the durable form.
    pub chunks: [u64; TERRACE_RANK_MAX],
    /// One cell, which is read where nothing was put; NULL: zeroes.
    pub fill: *const c_void,
    /// Names of the dimensions; arrays of a container that share names share dimensions.
    pub dimensions: [*const c_char; TERRACE_RANK_MAX],
    /// One of terrace_placement.
    pub placement: c_int,
}

/// Cells of an array: `count` of them in each dimension, from `offset` on, `stride` apart (0 is taken as 1).
#[repr(C)]
#[allow(non_camel_case_types)]
pub struct terrace_region {
    pub rank: c_int,
    pub offset: [u64; TERRACE_RANK_MAX],
    pub count: [u64; TERRACE_RANK_MAX],
    pub stride: [u64; TERRACE_RANK_MAX],
}

handle!(terrace_array, Array, "the array", "arrays");

fn rank_of(rank: c_int) -> Outcome<usize> {
    match usize::try_from(rank) {
        Ok(rank @ ..=TERRACE_RANK_MAX) => Ok(rank),
        _ => Err(Failure::invalid(format!("{rank} dimensions: up to {TERRACE_RANK_MAX} are possible"))),
    }
}

/// A region as C tells it.
pub fn region(told: *const terrace_region) -> Outcome<Region> {
    let told = &given(told, usize::from(!told.is_null()), "the region")?;
    let Some(told) = told.first() else { return Err(Failure::invalid("the region is NULL")) };
    let rank = rank_of(told.rank)?;
    let stride = told.stride.map(|stride| stride.max(1));
    Ok(Region::strided(&told.offset[..rank], &told.count[..rank], &stride[..rank])?)
}

/// The region, if it has just so many bytes of this array's cells.
pub fn region_of(array: &Array, told: *const terrace_region, bytes: usize) -> Outcome<Region> {
    let region = region(told)?;
    let rank = array.spec().rank();
    if region.rank() != rank {
        return Err(Failure::invalid(format!("a region of {} dimensions for an array of {rank}", region.rank())));
    }
    let wanted = region.cells() as u128 * array.spec().data_type.size() as u128;
    if wanted != bytes as u128 {
        return Err(Failure::invalid(format!("{region} has {wanted} bytes, the buffer {bytes}")));
    }
    Ok(region)
}

fn spec_from(told: *const terrace_array_spec) -> Outcome<ArraySpec> {
    let told = given(told, usize::from(!told.is_null()), "the spec")?;
    let Some(told) = told.first() else { return Err(Failure::invalid("the array's spec is NULL")) };
    let rank = rank_of(told.rank)?;
    if rank == 0 && told.shape[0] != 0 {
        return Err(Failure::invalid(format!(
            "the array's rank is 0, and its shape begins with {}: set the rank",
            told.shape[0]
        )));
    }
    let data_type = DataType::parse(text(told.data_type, "the data type")?)?;
    let mut spec = ArraySpec::new(data_type, &told.shape[..rank]);
    for dimension in (0..rank).filter(|&dimension| told.unlimited[dimension]) {
        spec = spec.unlimited(dimension);
    }
    let chunks = &told.chunks[..rank];
    if chunks.iter().any(|&cells| cells != 0) {
        spec = spec.chunks(chunks);
    }
    if !told.fill.is_null() {
        spec = spec.fill(given(told.fill.cast::<u8>(), data_type.size(), "the fill value")?);
    }
    if told.dimensions[..rank].iter().any(|name| !name.is_null()) {
        let names = told.dimensions[..rank].iter().map(|&name| text(name, "a dimension's name"));
        spec = spec.dimensions(&names.collect::<Outcome<Vec<_>>>()?);
    }
    Ok(spec.placement(match told.placement {
        0 => Placement::Spread,
        1 => Placement::Local,
        2 => Placement::One,
        other => return Err(Failure::invalid(format!("{other} is not one of terrace_placement"))),
    }))
}

/// Makes an array and opens it for putting and getting. `how`: one of terrace_create.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_array_create(
    session: *const terrace_session,
    name: *const c_char,
    spec: *const terrace_array_spec,
    how: c_int,
    array: *mut *mut terrace_array,
) -> c_int {
    call_open(array, || {
        let (session, spec) = (used(session)?, spec_from(spec)?);
        Ok(session.create_array(text(name, "the array's name")?, &spec, create_from(how)?)?)
    })
}

/// Opens an array: one that was created, or any Zarr v3 array below the root.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_array_open(
    session: *const terrace_session,
    name: *const c_char,
    writable: bool,
    array: *mut *mut terrace_array,
) -> c_int {
    call_open(array, || Ok(used(session)?.open_array(text(name, "the array's name")?, writable)?))
}

/// The number of dimensions, and their extents as they are now.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_array_shape(array: *const terrace_array, rank: *mut c_int, shape: *mut u64) -> c_int {
    call(|| {
        let found = used(array)?.shape()?;
        *out(rank, "the rank")? = found.len() as c_int;
        space(shape, found.len(), "the place for the shape (TERRACE_RANK_MAX numbers)")?.copy_from_slice(&found);
        Ok(())
    })
}

/// The type's name, with a zero byte at its end, into `name`, which has room for `size` bytes (16 are enough), and the bytes
/// of one cell. Either place may be NULL.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_array_type(
    array: *const terrace_array,
    name: *mut c_char,
    size: usize,
    cell_bytes: *mut usize,
) -> c_int {
    call(|| {
        let data_type = used(array)?.spec().data_type;
        if !cell_bytes.is_null() {
            *out(cell_bytes, "the size of a cell")? = data_type.size();
        }
        if name.is_null() {
            return Ok(());
        }
        let (text, space) = (data_type.name(), space(name.cast::<u8>(), size, "the place for the name")?);
        if space.len() <= text.len() {
            return Err(Failure::new(Kind::OutOfBounds, format!("the type's name needs {} bytes", text.len() + 1)));
        }
        space[..text.len()].copy_from_slice(text.as_bytes());
        space[text.len()] = 0;
        Ok(())
    })
}

/// Makes unlimited dimensions larger without putting anything.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_array_grow(array: *const terrace_array, rank: c_int, shape: *const u64) -> c_int {
    call(|| Ok(used(array)?.grow(given(shape, rank_of(rank)?, "the shape")?)?))
}

/// Gives the array any shape of the same rank, also a smaller one, and also where dimensions are not unlimited: for all who have it open. What
/// is cut off is gone. The array is made durable for it, and dropped from the tiers.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_array_resize(array: *const terrace_array, rank: c_int, shape: *const u64) -> c_int {
    call(|| Ok(used(array)?.resize(given(shape, rank_of(rank)?, "the shape")?)?))
}

/// Puts a region's cells, which lie packed in C order. When it returns every reader sees them.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_array_put(
    array: *const terrace_array,
    region: *const terrace_region,
    cells: *const c_void,
    bytes: usize,
) -> c_int {
    call(|| {
        let array = used(array)?;
        let region = region_of(&array, region, bytes)?;
        Ok(array.put(&region, given(cells.cast::<u8>(), bytes, "the buffer")?)?)
    })
}

/// Gets a region's cells, packed in C order; those that were never put are the fill value.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_array_get(
    array: *const terrace_array,
    region: *const terrace_region,
    cells: *mut c_void,
    bytes: usize,
) -> c_int {
    call(|| {
        let array = used(array)?;
        let region = region_of(&array, region, bytes)?;
        Ok(array.get(&region, space(cells.cast::<u8>(), bytes, "the buffer")?)?)
    })
}

/// Makes the array durable in the root.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_array_flush(array: *const terrace_array) -> c_int {
    call(|| Ok(used(array)?.flush()?))
}

/// Closes it. Transfers, locks and mappings of it go on.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_array_close(array: *mut terrace_array) -> c_int {
    call_close(array)
}
