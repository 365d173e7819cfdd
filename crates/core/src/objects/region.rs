//! A region: which cells of an array are meant, as a start, a count and a step in each dimension.

use super::RANK_MAX;
use super::error::{Kind, ObjectError, Result};
use serde::{Deserialize, Serialize};
use std::hash::{Hash, Hasher};

/// Cells `offset + i * stride`, `0 <= i < count`, in each dimension; packed in C order in a buffer. Without dimensions: one cell.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Parts", into = "Parts")]
pub struct Region {
    rank: u8,
    offset: [u64; RANK_MAX],
    count: [u64; RANK_MAX],
    stride: [u64; RANK_MAX],
}

/// Dimensions that there are not are equal in all regions.
impl Hash for Region {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.offset(), self.count(), self.stride()).hash(state);
    }
}

#[derive(Serialize, Deserialize)]
struct Parts(Vec<u64>, Vec<u64>, Vec<u64>);

impl From<Region> for Parts {
    fn from(region: Region) -> Parts {
        Parts(region.offset().into(), region.count().into(), region.stride().into())
    }
}

impl TryFrom<Parts> for Region {
    type Error = ObjectError;
    fn try_from(Parts(offset, count, stride): Parts) -> Result<Region> {
        Region::strided(&offset, &count, &stride)
    }
}

/// Product of counts; `None` if it is more than 2^62, which no array is.
pub fn cells(count: &[u64]) -> Option<u64> {
    let product = count.iter().try_fold(1u64, |product, &count| product.checked_mul(count))?;
    (product <= 1 << 62).then_some(product)
}

impl Region {
    /// A block without steps.
    pub fn block(offset: &[u64], count: &[u64]) -> Result<Region> {
        Region::strided(offset, count, &[1; RANK_MAX][..offset.len().min(RANK_MAX)])
    }

    pub fn strided(offset: &[u64], count: &[u64], stride: &[u64]) -> Result<Region> {
        let rank = offset.len();
        if rank > RANK_MAX || count.len() != rank || stride.len() != rank {
            return Err(ObjectError::invalid(format!(
                "a region with {rank} offsets, {} counts and {} strides: one of each for each of up to {RANK_MAX} dimensions",
                count.len(),
                stride.len()
            )));
        }
        let mut region =
            Region { rank: rank as u8, offset: [0; RANK_MAX], count: [0; RANK_MAX], stride: [1; RANK_MAX] };
        for dimension in 0..rank {
            if stride[dimension] == 0 {
                return Err(ObjectError::invalid(format!("a region's stride in dimension {dimension} is 0")));
            }
            let steps = count[dimension].saturating_sub(1).checked_mul(stride[dimension]);
            let last = steps.and_then(|steps| steps.checked_add(offset[dimension]));
            if last.is_none_or(|last| last >= 1 << 62) || count[dimension] >= 1 << 62 {
                return Err(ObjectError::new(
                    Kind::OutOfBounds,
                    format!("a region reaches beyond 2^62 in dimension {dimension}"),
                ));
            }
            region.offset[dimension] = offset[dimension];
            region.count[dimension] = count[dimension];
            // One cell has no step: regions that mean the same are equal.
            region.stride[dimension] = if count[dimension] <= 1 { 1 } else { stride[dimension] };
        }
        if cells(region.count()).is_none() {
            return Err(ObjectError::new(
                Kind::OutOfBounds,
                format!("a region of counts {count:?} has too many cells"),
            ));
        }
        Ok(region)
    }

    /// All of an array.
    pub fn whole(shape: &[u64]) -> Result<Region> {
        Region::block(&[0; RANK_MAX][..shape.len().min(RANK_MAX)], shape)
    }

    pub fn rank(&self) -> usize {
        self.rank as usize
    }
    pub fn offset(&self) -> &[u64] {
        &self.offset[..self.rank()]
    }
    pub fn count(&self) -> &[u64] {
        &self.count[..self.rank()]
    }
    pub fn stride(&self) -> &[u64] {
        &self.stride[..self.rank()]
    }
    pub fn cells(&self) -> u64 {
        cells(self.count()).expect("checked when the region was made")
    }
    pub fn is_empty(&self) -> bool {
        self.count().contains(&0)
    }
    pub fn is_block(&self) -> bool {
        self.stride().iter().all(|&stride| stride == 1)
    }

    /// One past the last cell in each dimension (the offset where the count is 0).
    pub fn end(&self) -> [u64; RANK_MAX] {
        let mut end = [0; RANK_MAX];
        for (dimension, end) in end.iter_mut().enumerate().take(self.rank()) {
            *end = match self.count[dimension] {
                0 => self.offset[dimension],
                count => self.offset[dimension] + (count - 1) * self.stride[dimension] + 1,
            };
        }
        end
    }

    /// An error that names the bounds, unless the region lies inside `shape`.
    pub fn check_within(&self, shape: &[u64]) -> Result<()> {
        self.check_rank(shape.len())?;
        let end = self.end();
        match (0..self.rank()).find(|&dimension| end[dimension] > shape[dimension]) {
            None => Ok(()),
            Some(dimension) => Err(ObjectError::new(
                Kind::OutOfBounds,
                format!(
                    "{self} reaches cell {} of dimension {dimension}, which has {} cells: the array's shape is {shape:?}",
                    end[dimension] - 1,
                    shape[dimension]
                ),
            )),
        }
    }

    pub fn check_rank(&self, rank: usize) -> Result<()> {
        match self.rank() == rank {
            true => Ok(()),
            false => Err(ObjectError::invalid(format!("{self} has {} dimensions, the array has {rank}", self.rank()))),
        }
    }
}

impl std::fmt::Display for Region {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "region offset {:?} count {:?}", self.offset(), self.count())?;
        if self.is_block() { Ok(()) } else { write!(out, " stride {:?}", self.stride()) }
    }
}

impl std::fmt::Debug for Region {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{self}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_region_out_of_bounds_says_which_bounds() {
        let region = Region::block(&[2, 3], &[4, 5]).unwrap();
        assert!(region.check_within(&[6, 8]).is_ok());
        let error = region.check_within(&[6, 7]).unwrap_err();
        assert_eq!(error.kind, Kind::OutOfBounds);
        assert!(error.message.contains("cell 7 of dimension 1") && error.message.contains("[6, 7]"), "{error}");
        assert_eq!(region.check_within(&[6]).unwrap_err().kind, Kind::Invalid);
    }

    #[test]
    fn a_region_without_dimensions_is_one_cell() {
        let region = Region::whole(&[]).unwrap();
        assert_eq!((region.rank(), region.cells(), region.is_empty()), (0, 1, false));
        assert!(region.check_within(&[]).is_ok());
        assert_eq!(region.check_within(&[1]).unwrap_err().kind, Kind::Invalid);
    }

    #[test]
    fn what_can_not_be_counted_is_refused() {
        assert!(Region::block(&[u64::MAX], &[2]).is_err());
        assert!(Region::strided(&[0], &[u64::MAX / 2], &[3]).is_err());
        assert!(Region::block(&[0; 3], &[1 << 30; 3]).is_err());
        assert!(Region::block(&[0; 9], &[1; 9]).is_err());
        assert!(Region::block(&[0], &[1, 1]).is_err());
        assert!(Region::strided(&[0], &[1], &[0]).is_err());
    }
}
