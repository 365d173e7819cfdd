//! What an array holds at one moment, seen where it lies: for queries, which read cells without copying them first.
//!
//! Invariant: while a view lives, the cells of its layers don't change. A view raises the flag of starving readers before it
//! looks at the records, so owners leave the room of buried extents alone; a generation that ends unlinks its segments, and
//! the mappings of a view keep them.

use super::super::log::{Log, State};
use super::super::mapped::MappedFile;
use super::ArrayHandle;
use std::sync::Arc;
use std::sync::atomic::Ordering::*;
use terrace_core::objects::{Kind, ObjectError, Region, Result};

/// The same for every view of an extent, and of no other one, whatever becomes of its array.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ExtentId {
    pub(super) stage: Arc<str>,
    /// Of the log.
    pub(super) generation: u64,
    pub(super) record: u64,
}

/// One extent: packed cells of a region.
pub struct Layer {
    pub region: Region,
    pub id: ExtentId,
    /// Least and greatest value, where whoever put it has said so.
    pub range: Option<(f64, f64)>,
    file: Arc<MappedFile>,
    position: u64,
    bytes: u64,
}

impl Layer {
    /// Readable for as long as the view lives.
    pub fn cells(&self) -> *const u8 {
        // SAFETY: the extent lies in its segment, as was looked at when the view was made.
        unsafe { self.file.base().add(self.position as usize) }
    }
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
    /// So much of it, by whoever has the view.
    pub fn was_read(&self, bytes: u64) {
        self.file.was_read(bytes);
    }
}

/// Memory that is read again and again. It does not hold the view.
pub struct OftenRead(Arc<MappedFile>);

impl OftenRead {
    pub fn bytes(&self) -> u64 {
        self.0.len() as u64
    }
    /// What is read next is read faster, where the kernel can do that; it takes as long as to read it some five times.
    pub fn gather(&self) {
        self.0.gather();
    }
}

pub struct View {
    /// As it is at this moment.
    pub shape: Vec<u64>,
    /// The shape of what lies below the layers.
    pub base_shape: Vec<u64>,
    /// The durable form may have cells; else what no layer covers is the fill value.
    pub has_base: bool,
    /// Oldest first.
    pub layers: Vec<Layer>,
    _hold: Option<Hold>,
}

/// Owners leave the room of buried extents alone.
struct Hold(Arc<Log>);

impl Hold {
    fn new(log: &Arc<Log>) -> Hold {
        log.header().starved.fetch_add(1, SeqCst);
        Hold(log.clone())
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.0.header().starved.fetch_sub(1, SeqCst);
    }
}

impl View {
    /// All that there is lies below.
    pub fn of_base(shape: Vec<u64>) -> View {
        View { base_shape: shape.clone(), shape, has_base: true, layers: vec![], _hold: None }
    }

    /// What is memory of that kind, and was not gathered yet.
    pub fn often_read(&self) -> Vec<OftenRead> {
        let mut files: Vec<&Arc<MappedFile>> = vec![];
        for layer in &self.layers {
            // A segment's extents mostly follow one another.
            if layer.file.is_to_be_gathered() && !files.iter().any(|known| Arc::ptr_eq(known, &layer.file)) {
                files.push(&layer.file);
            }
        }
        files.into_iter().map(|file| OftenRead(file.clone())).collect()
    }

    /// The same layers, as part of an array of this shape that has cells elsewhere, too.
    pub fn over(self, shape: Vec<u64>) -> View {
        View { base_shape: shape.clone(), shape, has_base: true, ..self }
    }
}

impl ArrayHandle {
    pub fn view(&self) -> Result<View> {
        loop {
            if let Some(view) = self.view_once()? {
                return Ok(view);
            }
        }
    }

    /// `None`: what was looked at has changed meanwhile.
    fn view_once(&self) -> Result<Option<View>> {
        let mut inner = self.locked();
        self.current(&mut inner, false)?;
        let shape = inner.shape_now(&self.spec);
        let base_shape = inner.base_shape();
        let has_base = inner.has_base;
        let Some(staged) = inner.staged.as_mut() else {
            return Ok(Some(View { shape, base_shape, has_base, layers: vec![], _hold: None }));
        };
        let hold = Hold::new(&staged.log);
        staged.catch_up();
        let log = staged.log.clone();
        let id = staged.extent_id(0);
        let mut layers = vec![];
        let extents: Vec<_> = staged.extents.iter().copied().collect();
        for extent in extents {
            let file = match staged.mapped.get(&self.place, &staged.stage, extent.spot.segment) {
                Ok(file) => file,
                Err(error) if error.kind == Kind::NotFound && !self.is_in_place(&staged.stage, &log) => {
                    inner.staged = None;
                    return Ok(None);
                }
                Err(error) => return Err(error),
            };
            if (extent.spot.position + extent.spot.bytes) as usize > file.len() {
                return Err(ObjectError::new(
                    Kind::Damaged,
                    format!("an extent of {} lies beyond its segment's end", self.directory().display()),
                ));
            }
            layers.push(Layer {
                region: extent.region,
                id: ExtentId { record: extent.record, ..id.clone() },
                range: log.known_range(extent.record),
                file,
                position: extent.spot.position,
                bytes: extent.spot.bytes,
            });
        }
        let buried: Vec<u64> = layers
            .iter()
            .map(|layer| layer.id.record)
            .filter(|&record| log.state(record) != State::Committed)
            .collect();
        if buried.is_empty() {
            let (shape, base_shape) = (inner.shape_now(&self.spec), inner.base_shape());
            return Ok(Some(View { shape, base_shape, has_base, layers, _hold: Some(hold) }));
        }
        let staged = inner.staged.as_mut().expect("it was there above, under the same lock");
        // What has passed is left out by the next look, which uses its room again.
        for record in buried.into_iter().filter(|&record| record >= log.passed()) {
            staged.extents.remove(record);
        }
        Ok(None)
    }

    /// A region's cells as they lie below all layers, packed.
    pub fn read_base(&self, region: &Region, cells: &mut [u8]) -> Result<()> {
        self.check_bytes(region, cells.len())?;
        self.base.read(&self.place, region, cells)
    }
}
