//! Another shape for an array that is durable, and has no staged form.
//!
//!   chunks that are cut off: removed; those at the new bounds: written anew, with the fill value beyond ─▶ zarr.json
//!
//! Cells go before the shape: if the agent is killed between, they read as the fill value, and never come back when the array grows again.

use super::base::Base;
use super::copying::{copy_overlap, fill};
use super::flush::check_writable;
use super::metadata::{Metadata, read_metadata, write_metadata};
use crate::calls;
use crate::failure::Context;
use crate::place::{Place, random};
use rustix::fs::{Mode, OFlags};
use std::fs::File;
use std::io::Write;
use std::path::Path;
use terrace_core::objects::{ArraySpec, Kind, ObjectError, Overlap, Region, Result};

fn metadata_of(directory: &Path) -> Result<Metadata> {
    let found = read_metadata(directory)?.filter(|metadata| metadata.array.is_some());
    found.ok_or_else(|| ObjectError::new(Kind::WrongKind, format!("{} is not an array", directory.display())))
}

/// Whether the array in `directory` can have this shape.
pub fn check_reshape(directory: &Path, shape: &[u64]) -> Result<()> {
    let metadata = metadata_of(directory)?;
    let Some(array) = &metadata.array else { unreachable!("it is an array's") };
    check_writable(array.is_raw)?;
    if shape.len() != array.spec.rank() {
        return Err(ObjectError::invalid(format!(
            "a shape of {} dimensions for {}, which has {}",
            shape.len(),
            directory.display(),
            array.spec.rank()
        )));
    }
    ArraySpec { shape: shape.into(), ..array.spec.clone() }.checked().map(drop)
}

/// `durable`: what was written is synced.
pub fn reshape(place: &Place, directory: &Path, shape: &[u64], durable: bool) -> Result<()> {
    check_reshape(directory, shape)?;
    let metadata = metadata_of(directory)?;
    let Some(array) = &metadata.array else { unreachable!("it is an array's") };
    let (base, fill_value) = (Base::new(directory, array, None), array.spec.fill.clone());
    let old = array.spec.shape.clone();
    // Of those that are there, not of those that the bounds have room for: an array that grew far is nearly empty.
    let is_cut = |chunk: &Vec<u64>| {
        let within = chunk.iter().zip(&base.grid(&old)).all(|(index, extent)| index < extent);
        within
            && chunk
                .iter()
                .zip(&array.spec.chunks)
                .zip(shape.iter().zip(&old))
                .any(|((index, extent), (now, before))| now < before && *index >= now / extent)
    };
    let is_smaller = shape.iter().zip(&old).any(|(now, before)| now < before);
    let mut cut = if is_smaller { base.chunks_there()? } else { vec![] };
    cut.retain(is_cut);
    for chunk in cut {
        let whole = base.chunk_region(&chunk);
        if whole.offset().iter().zip(shape).any(|(start, extent)| start >= extent) {
            base.remove_chunk(&chunk)?;
            continue;
        }
        let Some(cells) = base.chunk(place, &chunk)? else { continue };
        let ends = whole.count().iter().zip(whole.offset()).zip(shape);
        let count: Vec<u64> = ends.map(|((count, start), extent)| *count.min(&(extent - start))).collect();
        let inside = Region::block(whole.offset(), &count)?;
        let size = fill_value.len();
        let (mut part, mut left) = (vec![0; inside.cells() as usize * size], vec![0; cells.len()]);
        fill(&mut left, &fill_value);
        if let (Some(out), Some(into)) = (Overlap::of(&whole, &inside), Overlap::of(&inside, &whole)) {
            // SAFETY: each buffer has all cells of its region.
            unsafe {
                copy_overlap(&out, size, cells.as_ptr(), part.as_mut_ptr());
                copy_overlap(&into, size, part.as_ptr(), left.as_mut_ptr());
            }
        }
        replace_chunk(&base, &chunk, &left, durable)?;
    }
    place.alone(|| {
        let mut metadata = metadata_of(directory)?;
        metadata.set_shape(shape);
        write_metadata(directory, &metadata, durable)
    })
}

fn replace_chunk(base: &Base, chunk: &[u64], cells: &[u8], durable: bool) -> Result<()> {
    let path = base.chunk_path(chunk).with_file_name(format!(".chunk.{:016x}", random()));
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let mut file = File::from(calls::open(&path, flags, Mode::from_raw_mode(0o666)).context("create", &path)?);
    let written = file.write_all(cells).and_then(|()| if durable { file.sync_data() } else { Ok(()) });
    written.context("write", &path).and_then(|()| base.commit_chunk(chunk, &path)).inspect_err(|_| {
        let _ = calls::unlink(&path);
    })
}
