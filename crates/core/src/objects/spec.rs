//! What an array is: its type, shape, chunks and fill value.

use super::error::{ObjectError, Result};
use super::region::cells;
use super::{DataType, RANK_MAX};
use serde::{Deserialize, Serialize};

/// Which agents keep an object's regions, where there are several.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash, Serialize, Deserialize)]
pub enum Placement {
    /// Chunks go to all agents in turn (`Spreading`).
    #[default]
    Spread,
    /// All of the object is on the agent of the node that creates it.
    Local,
    /// All of the object is on one agent, chosen by rendezvous hashing.
    One,
    /// All of the object is on this agent; on one that is chosen, if there is none of this number.
    At(u32),
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ArraySpec {
    pub data_type: DataType,
    /// At creation; a dimension that is `unlimited` grows with what is put. Empty: one cell, without dimensions.
    pub shape: Vec<u64>,
    pub unlimited: Vec<bool>,
    /// Cells of one chunk of the durable form, in each dimension. Empty: chosen by `checked`.
    pub chunks: Vec<u64>,
    /// One cell's bytes, read where nothing was written. Empty: zeroes.
    pub fill: Vec<u8>,
    /// Empty, or one for each dimension; arrays of a container that share names share dimensions.
    pub dimensions: Vec<String>,
    pub placement: Placement,
}

/// A chunk that nobody chose has about so many bytes: large enough to stream, small enough to rewrite.
const CHUNK_BYTES: u64 = 4 << 20;
/// Largest chunk that may be asked for.
const CHUNK_BYTES_MAX: u64 = 1 << 31;

impl ArraySpec {
    /// The dimension that steps are counted by: the first that grows.
    pub fn grows_along(&self) -> Option<usize> {
        self.unlimited.iter().position(|grows| *grows)
    }

    pub fn new(data_type: DataType, shape: &[u64]) -> ArraySpec {
        ArraySpec {
            data_type,
            shape: shape.into(),
            unlimited: vec![false; shape.len()],
            chunks: vec![],
            fill: vec![],
            dimensions: vec![],
            placement: Placement::default(),
        }
    }
    /// The dimension grows with what is put; its shape at the start may be 0.
    pub fn unlimited(mut self, dimension: usize) -> ArraySpec {
        if let Some(flag) = self.unlimited.get_mut(dimension) {
            *flag = true;
        }
        self
    }
    pub fn chunks(mut self, chunks: &[u64]) -> ArraySpec {
        self.chunks = chunks.into();
        self
    }
    /// One cell's bytes, little-endian.
    pub fn fill(mut self, cell: &[u8]) -> ArraySpec {
        self.fill = cell.into();
        self
    }
    pub fn dimensions(mut self, names: &[&str]) -> ArraySpec {
        self.dimensions = names.iter().map(|name| name.to_string()).collect();
        self
    }
    pub fn placement(mut self, placement: Placement) -> ArraySpec {
        self.placement = placement;
        self
    }

    pub fn rank(&self) -> usize {
        self.shape.len()
    }

    /// Complete, or refused.
    pub fn checked(mut self) -> Result<ArraySpec> {
        let rank = self.shape.len();
        if rank > RANK_MAX {
            return Err(ObjectError::invalid(format!("an array of {rank} dimensions: up to {RANK_MAX} are possible")));
        }
        match self.data_type {
            DataType::Bytes(length) => DataType::string(length).map(drop)?,
            DataType::Unicode(length) => DataType::unicode(length).map(drop)?,
            _ => {}
        }
        let size = self.data_type.size() as u64;
        let lengths = [
            ("unlimited flags", self.unlimited.len()),
            ("chunk sizes", self.chunks.len()),
            ("names", self.dimensions.len()),
        ];
        if let Some((what, length)) = lengths.into_iter().find(|&(_, length)| length != rank && length != 0) {
            return Err(ObjectError::invalid(format!("{length} {what} for {rank} dimensions")));
        }
        if self.unlimited.is_empty() {
            self.unlimited = vec![false; rank];
        }
        if let Some(name) = self.dimensions.iter().find(|name| name.len() > 255) {
            return Err(ObjectError::invalid(format!("a dimension's name of {} bytes: at most 255", name.len())));
        }
        let bytes = cells(&self.shape).and_then(|cells| cells.checked_mul(size)).filter(|&bytes| bytes < 1 << 62);
        if bytes.is_none() || self.shape.iter().any(|&count| count >= 1 << 62) {
            return Err(ObjectError::invalid(format!("an array of shape {:?} has too many cells", self.shape)));
        }
        match self.fill.len() {
            0 => self.fill = vec![0; size as usize],
            length if length as u64 == size => {}
            length => {
                return Err(ObjectError::invalid(format!("a fill value of {length} bytes for cells of {size} bytes")));
            }
        }
        if self.data_type == DataType::Bool && self.fill[0] > 1 {
            return Err(ObjectError::invalid(format!("a fill value of {} for cells that are 0 or 1", self.fill[0])));
        }
        if self.chunks.is_empty() {
            self.chunks = chosen_chunks(&self.shape, size);
        }
        let chunk_bytes = cells(&self.chunks).and_then(|cells| cells.checked_mul(size));
        if self.chunks.contains(&0) || chunk_bytes.is_none_or(|bytes| bytes > CHUNK_BYTES_MAX) {
            return Err(ObjectError::invalid(format!(
                "chunks of {:?} cells of {size} bytes: at least 1 cell, at most {CHUNK_BYTES_MAX} bytes",
                self.chunks
            )));
        }
        Ok(self)
    }
}

/// Whole in the inner dimensions as far as it goes, so that a chunk is one run of a C-ordered array; an unlimited dimension
/// of unknown extent counts as long.
fn chosen_chunks(shape: &[u64], size: u64) -> Vec<u64> {
    let mut left = (CHUNK_BYTES / size).max(1);
    let mut chunks = vec![1; shape.len()];
    for dimension in (0..shape.len()).rev() {
        let extent = if shape[dimension] == 0 { u64::MAX } else { shape[dimension] };
        chunks[dimension] = extent.min(left).max(1);
        left = (left / chunks[dimension]).max(1);
    }
    chunks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_that_nobody_chose_are_long_in_the_inner_dimensions() {
        let spec = ArraySpec::new(DataType::Float32, &[100, 2000, 3000]).checked().unwrap();
        assert_eq!(spec.chunks, [1, 349, 3000]);
        let spec = ArraySpec::new(DataType::Float64, &[0, 10]).unlimited(0).checked().unwrap();
        assert_eq!(spec.chunks, [52428, 10]);
        assert_eq!(spec.fill, [0; 8]);
    }

    #[test]
    fn an_array_without_dimensions_has_one_cell_and_one_chunk() {
        let spec = ArraySpec::new(DataType::Int16, &[]).checked().unwrap();
        assert_eq!((spec.chunks.len(), spec.fill.len(), spec.grows_along()), (0, 2, None));
        assert!(ArraySpec::new(DataType::Int16, &[]).chunks(&[1]).checked().is_err());
    }

    #[test]
    fn specs_that_make_no_sense_are_refused() {
        let good = || ArraySpec::new(DataType::Int16, &[4, 4]);
        assert!(good().checked().is_ok());
        assert!(ArraySpec::new(DataType::Int16, &[1; 9]).checked().is_err());
        assert!(ArraySpec::new(DataType::Int16, &[1 << 40, 1 << 40]).checked().is_err());
        assert!(good().chunks(&[1]).checked().is_err());
        assert!(good().chunks(&[0, 1]).checked().is_err());
        assert!(good().chunks(&[1 << 20, 1 << 20]).checked().is_err());
        assert!(good().fill(&[1]).checked().is_err());
        assert!(good().dimensions(&["x"]).checked().is_err());
        assert!(ArraySpec::new(DataType::Bytes(0), &[1]).checked().is_err());
    }
}
