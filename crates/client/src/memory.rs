//! Regions of the program's memory: cells that lie apart there, as in HDF5's memory space, are put and got as they lie.

use crate::array::Array;
use terrace_core::objects::{ObjectError, Overlap, Region, Result};
use terrace_objects::array::copy_overlap;

impl Array {
    /// Puts cells into `region` that lie in `memory`, a region of a buffer of this shape (in cells). The regions have as many cells; the
    /// first of one is that of the other, and so on in C order.
    pub fn put_from(&self, region: &Region, shape: &[u64], memory: &Region, buffer: &[u8]) -> Result<()> {
        let whole = self.checked_memory(region, shape, memory, buffer.len())?;
        if *memory == whole {
            return self.put(region, buffer);
        }
        let size = self.spec().data_type.size();
        let mut cells = vec![0; memory.cells() as usize * size];
        if let Some(overlap) = Overlap::of(&whole, memory) {
            // SAFETY: the buffer has all cells of its shape, `cells` those of the region, as was looked at.
            unsafe { copy_overlap(&overlap, size, buffer.as_ptr(), cells.as_mut_ptr()) };
        }
        self.put(region, &cells)
    }

    /// Gets cells of `region` into `memory`; all other cells of the buffer stay what they are.
    pub fn get_into(&self, region: &Region, shape: &[u64], memory: &Region, buffer: &mut [u8]) -> Result<()> {
        let whole = self.checked_memory(region, shape, memory, buffer.len())?;
        if *memory == whole {
            return self.get(region, buffer);
        }
        let size = self.spec().data_type.size();
        let mut cells = vec![0; memory.cells() as usize * size];
        self.get(region, &mut cells)?;
        if let Some(overlap) = Overlap::of(memory, &whole) {
            // SAFETY: as above.
            unsafe { copy_overlap(&overlap, size, cells.as_ptr(), buffer.as_mut_ptr()) };
        }
        Ok(())
    }

    fn checked_memory(&self, region: &Region, shape: &[u64], memory: &Region, bytes: usize) -> Result<Region> {
        let whole = Region::whole(shape)?;
        memory.check_rank(shape.len())?;
        memory.check_within(shape)?;
        if memory.cells() != region.cells() {
            return Err(ObjectError::invalid(format!(
                "{region} has {} cells, the memory's {memory} has {}",
                region.cells(),
                memory.cells()
            )));
        }
        let size = self.spec().data_type.size() as u64;
        if whole.cells().checked_mul(size) != Some(bytes as u64) {
            return Err(ObjectError::invalid(format!(
                "a buffer of shape {shape:?} has {} cells of {size} bytes, this one has {bytes} bytes",
                whole.cells()
            )));
        }
        Ok(whole)
    }
}
