//! Chunks that other programs have written compressed or sharded, decoded: clients read only those that are cells as they are.

use std::path::Path;
use std::sync::Arc;
use terrace_core::objects::{Kind, ObjectError, Result};
use terrace_objects::array;
use zarrs::array::{Array, ArrayBytes};
use zarrs::filesystem::FilesystemStore;

/// All cells of a chunk in C order, in this machine's byte order; `None`: it is not stored, all of it has the fill value.
pub fn decoded_chunk(directory: &Path, chunk: &[u64]) -> Result<Option<Vec<u8>>> {
    let metadata = array::read_metadata(directory)?.and_then(|metadata| metadata.array);
    let Some(known) = metadata else {
        return Err(ObjectError::new(Kind::NotFound, format!("{} is not an array", directory.display())));
    };
    if chunk.len() != known.spec.rank() {
        return Err(ObjectError::invalid(format!(
            "a chunk of an array of {} dimensions has as many indices, not {}",
            known.spec.rank(),
            chunk.len()
        )));
    }
    let unusable = |what: &str, error: &dyn std::fmt::Display| {
        ObjectError::new(Kind::WrongKind, format!("{what} of {} can't be read: {error}", directory.display()))
    };
    let store = FilesystemStore::new(directory).map_err(|error| unusable("the directory", &error))?;
    let array = Array::open(Arc::new(store), "/").map_err(|error| unusable("the codecs", &error))?;
    let cells: Option<ArrayBytes<'static>> = array.retrieve_chunk_if_exists(chunk).map_err(|error| {
        ObjectError::new(Kind::Damaged, format!("chunk {chunk:?} of {} can't be decoded: {error}", directory.display()))
    })?;
    cells
        .map(|cells| match cells {
            ArrayBytes::Fixed(bytes) => Ok(bytes.into_owned()),
            _ => Err(ObjectError::new(Kind::WrongKind, format!("{} has cells of varying length", directory.display()))),
        })
        .transpose()
}
