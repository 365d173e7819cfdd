//! An array object, as a program uses it.

use crate::hooks::{Hooks, When};
use crate::identity::Identity;
use crate::remote::RemoteArray;
use crate::rpc::Stream;
use crate::session::Session;
use crate::spread::SpreadArray;
use crate::transfer::Transfer;
use std::sync::Arc;
use std::time::Duration;
use terrace_core::objects::wire::Request;
use terrace_core::objects::{ArraySpec, Element, Kind, ObjectError, Region, Result, Spreading};
use terrace_objects::array::{ArrayHandle, ExtentId, LockMode, View, Zones};

/// Cheap to clone; all clones are one open array.
#[derive(Clone)]
pub struct Array {
    session: Session,
    pub(crate) backend: Arc<Backend>,
    pub(crate) hooks: Arc<Hooks>,
    /// What its name led to, where that is asked for later.
    identity: Option<Identity>,
}

#[allow(clippy::large_enum_variant)] // it lies in an `Arc`, and nearly all are the large one
pub(crate) enum Backend {
    Here(ArrayHandle),
    Elsewhere(RemoteArray),
    Spread(SpreadArray),
}

/// A lock of a region: released when it is dropped, or when this process ends.
pub struct RegionLock {
    region: Region,
    mode: LockMode,
    _held: Held,
}

#[allow(dead_code)] // held, and let go
pub(crate) enum Held {
    Here(terrace_objects::array::RegionLock),
    Elsewhere(Stream),
}

impl RegionLock {
    pub fn region(&self) -> &Region {
        &self.region
    }
    pub fn mode(&self) -> LockMode {
        self.mode
    }
    /// Lets others have the region; so does dropping.
    pub fn release(self) {}
}

impl Array {
    pub(crate) fn new(session: Session, backend: Backend) -> Array {
        Array { session, backend: Arc::new(backend), hooks: Arc::default(), identity: None }
    }

    /// The array's name below the root; of one of this node its path.
    pub fn name(&self) -> String {
        match &*self.backend {
            Backend::Here(handle) => handle.directory().display().to_string(),
            Backend::Elsewhere(array) => array.path.clone(),
            Backend::Spread(array) => array.path().to_owned(),
        }
    }

    /// The same array, which knows what its name led to before it was opened.
    pub fn identified(self, identity: Identity) -> Array {
        Array { identity: Some(identity), ..self }
    }

    /// Its name leads to what it led to before it was opened, as far as that is known: nobody has made another one in its place.
    pub fn is_its_name(&self) -> bool {
        let Some(identity) = self.identity else { return true };
        let now = match &*self.backend {
            Backend::Here(handle) => Identity::of(handle.directory()).ok(),
            Backend::Elsewhere(_) | Backend::Spread(_) => self.session.identity(&self.name()).ok(),
        };
        now == Some(identity)
    }

    /// The same open array, or a clone of it.
    pub(crate) fn is_same(&self, other: &Array) -> bool {
        Arc::ptr_eq(&self.backend, &other.backend)
    }

    pub fn session(&self) -> &Session {
        &self.session
    }
    /// The type and all else that was said when it was made; the shape is that of the opening.
    pub fn spec(&self) -> &ArraySpec {
        match &*self.backend {
            Backend::Here(handle) => handle.spec(),
            Backend::Elsewhere(array) => &array.spec,
            Backend::Spread(array) => array.spec(),
        }
    }
    /// As it is now: unlimited dimensions grow with what anybody puts.
    pub fn shape(&self) -> Result<Vec<u64>> {
        match &*self.backend {
            Backend::Here(handle) => handle.shape(),
            Backend::Elsewhere(array) => array.shape(),
            Backend::Spread(array) => array.shape(),
        }
    }
    /// Whether it is still the array of its name.
    pub fn is_there(&self) -> bool {
        match &*self.backend {
            Backend::Spread(array) => array.is_there(),
            Backend::Here(_) | Backend::Elsewhere(_) => self.shape().is_ok(),
        }
    }
    pub fn is_writable(&self) -> bool {
        match &*self.backend {
            Backend::Here(handle) => handle.is_writable(),
            Backend::Elsewhere(array) => array.writable,
            Backend::Spread(array) => array.is_writable(),
        }
    }

    /// Puts a region's cells, packed in C order. When this returns every reader sees them, and they survive a kill of any
    /// process. Overlapping puts take effect in one order, whole regions at a time.
    pub fn put(&self, region: &Region, cells: &[u8]) -> Result<()> {
        match self.hooked(region, cells)? {
            Some(cells) => self.put_plain(region, &cells),
            None => self.put_plain(region, cells),
        }
    }

    fn put_plain(&self, region: &Region, cells: &[u8]) -> Result<()> {
        match &*self.backend {
            Backend::Here(handle) => handle.put(region, cells),
            Backend::Elsewhere(array) => array.put(region, cells),
            Backend::Spread(array) => array.put(region, cells),
        }
    }

    /// The array of one agent elsewhere.
    pub(crate) fn elsewhere(&self) -> Option<&RemoteArray> {
        match &*self.backend {
            // Those that functions are applied to take the way of all puts.
            Backend::Elsewhere(array) if !self.hooks.has(When::Put) => Some(array),
            Backend::Elsewhere(_) | Backend::Here(_) | Backend::Spread(_) => None,
        }
    }

    /// This node's part of the array: for the agent, which moves cells between it and other nodes.
    #[doc(hidden)]
    pub fn handle(&self) -> Option<&ArrayHandle> {
        match &*self.backend {
            Backend::Here(handle) => Some(handle),
            Backend::Elsewhere(_) | Backend::Spread(_) => None,
        }
    }

    /// Gets a region's cells, packed in C order; cells that were never put are the fill value.
    pub fn get(&self, region: &Region, cells: &mut [u8]) -> Result<()> {
        self.get_plain(region, cells)?;
        self.hooks.apply(When::Get, region, self.spec(), cells)
    }

    /// As they lie there.
    pub(crate) fn get_plain(&self, region: &Region, cells: &mut [u8]) -> Result<()> {
        match &*self.backend {
            Backend::Here(handle) => handle.get(region, cells),
            Backend::Elsewhere(array) => array.get(region, cells),
            Backend::Spread(array) => array.get(region, cells),
        }
    }

    /// # Safety
    /// `cells` has `bytes` readable bytes.
    pub unsafe fn put_raw(&self, region: &Region, cells: *const u8, bytes: usize) -> Result<()> {
        if self.hooks.has(When::Put) {
            // SAFETY: as the caller promises.
            return self.put(region, unsafe { std::slice::from_raw_parts(cells, bytes) });
        }
        // SAFETY: as the caller promises.
        unsafe {
            match &*self.backend {
                Backend::Here(handle) => handle.put_from(region, cells, bytes, 0),
                Backend::Elsewhere(array) => array.put(region, std::slice::from_raw_parts(cells, bytes)),
                Backend::Spread(array) => array.put(region, std::slice::from_raw_parts(cells, bytes)),
            }
        }
    }

    /// # Safety
    /// `cells` has `bytes` writable bytes that nobody else uses.
    pub unsafe fn get_raw(&self, region: &Region, cells: *mut u8, bytes: usize) -> Result<()> {
        if self.hooks.has(When::Get) {
            // SAFETY: as the caller promises.
            return self.get(region, unsafe { std::slice::from_raw_parts_mut(cells, bytes) });
        }
        // SAFETY: as the caller promises.
        unsafe {
            match &*self.backend {
                Backend::Here(handle) => handle.get_into(region, cells, bytes),
                Backend::Elsewhere(array) => array.get(region, std::slice::from_raw_parts_mut(cells, bytes)),
                Backend::Spread(array) => array.get(region, std::slice::from_raw_parts_mut(cells, bytes)),
            }
        }
    }

    fn check_type<T: Element>(&self) -> Result<()> {
        match T::TYPE == self.spec().data_type {
            true => Ok(()),
            false => Err(ObjectError::invalid(format!(
                "{} has cells of type {}, not {}",
                self.name(),
                self.spec().data_type,
                T::TYPE
            ))),
        }
    }

    pub fn put_values<T: Element>(&self, region: &Region, values: &[T]) -> Result<()> {
        self.check_type::<T>()?;
        // SAFETY: an element has no padding, and may be looked at as bytes.
        unsafe { self.put_raw(region, values.as_ptr().cast(), size_of_val(values)) }
    }

    pub fn get_values<T: Element>(&self, region: &Region) -> Result<Vec<T>> {
        self.check_type::<T>()?;
        region.check_within(&self.shape()?)?;
        let mut values = vec![T::default(); region.cells() as usize];
        // SAFETY: any bytes are valid elements.
        unsafe { self.get_raw(region, values.as_mut_ptr().cast(), size_of_val(values.as_slice()))? };
        Ok(values)
    }

    /// Makes unlimited dimensions larger without putting anything.
    pub fn grow(&self, shape: &[u64]) -> Result<()> {
        match &*self.backend {
            Backend::Here(handle) => handle.grow(shape),
            Backend::Elsewhere(array) => array.grow(shape),
            Backend::Spread(array) => array.grow(shape),
        }
    }

    /// Any shape of the same rank, also a smaller one, and also where dimensions are not unlimited: for all who have it open. What is cut off
    /// is gone: where the array grows again it has the fill value. The array is made durable for it, and dropped from the tiers.
    pub fn resize(&self, shape: &[u64]) -> Result<()> {
        if !self.is_writable() {
            return Err(ObjectError::new(Kind::WrongKind, format!("{} was opened for reading only", self.name())));
        }
        if matches!(&*self.backend, Backend::Spread(_)) {
            return Err(ObjectError::invalid(format!(
                "`{}` is kept by several agents: it can't be resized",
                self.name()
            ))
            .hint("make another array, or serve the root by one agent"));
        }
        let path = self.session.name_of(&self.name())?;
        self.session.agent().done(&Request::Reshape { path, shape: shape.into() })
    }

    /// Locks a region against overlapping locks of all clients: `Read` is shared, `Write` is alone. Waits so long (`None`: as
    /// long as it takes; zero: does not wait, `Kind::Busy`). Released when it is dropped, or when this process ends.
    pub fn lock(&self, region: &Region, mode: LockMode, patience: Option<Duration>) -> Result<RegionLock> {
        let held = match &*self.backend {
            Backend::Here(handle) => Held::Here(handle.lock(region, mode, patience)?),
            Backend::Elsewhere(array) => Held::Elsewhere(array.lock(region, mode, patience)?),
            Backend::Spread(array) => array.lock(region, mode, patience)?,
        };
        Ok(RegionLock { region: *region, mode, _held: held })
    }

    /// Ties application memory to a region: see [`Mapped`].
    pub fn map<'a>(&self, region: &Region, buffer: &'a mut [u8]) -> Result<Mapped<'a>> {
        region.check_rank(self.spec().rank())?;
        if region.cells() * self.spec().data_type.size() as u64 != buffer.len() as u64 {
            return Err(ObjectError::invalid(format!("{region} does not have the buffer's {} bytes", buffer.len())));
        }
        Ok(Mapped { array: self.clone(), region: *region, buffer, lock: None })
    }

    /// Starts a put; the cells come back from `Transfer::wait`.
    pub fn start_put(&self, region: &Region, cells: Vec<u8>) -> Transfer {
        Transfer::start_put(self, region, cells)
    }

    /// Starts a get; the cells come from `Transfer::wait`.
    pub fn start_get(&self, region: &Region) -> Transfer {
        Transfer::start_get(self, region)
    }

    /// The array at this moment: see [`ArrayView`].
    pub fn view(&self) -> Result<ArrayView> {
        let is_here = matches!(&*self.backend, Backend::Here(_));
        // Before the cells are looked at: what is whole now is seen whole.
        let grows = self.spec().grows_along().filter(|_| !is_here);
        let whole_steps = grows.map(|dimension| self.complete_steps(dimension, 0)).transpose()?;
        Ok(ArrayView { whole_steps, ..self.view_of_cells()? })
    }

    /// The same, where nobody asks for its steps.
    pub fn view_of_cells(&self) -> Result<ArrayView> {
        let view = match &*self.backend {
            Backend::Here(handle) => handle.view()?,
            Backend::Elsewhere(_) => View::of_base(self.shape()?),
            Backend::Spread(array) => array.view()?,
        };
        Ok(ArrayView { array: self.clone(), view, whole_steps: None })
    }

    /// The agent that has the cell, where several share the array.
    pub fn keeper(&self, cell: &[u64]) -> Option<u32> {
        match &*self.backend {
            Backend::Spread(array) => Some(array.keeper_of_cell(cell)),
            Backend::Here(_) | Backend::Elsewhere(_) => None,
        }
    }

    /// What says which agent keeps which chunk, where several share the array.
    pub fn spreading(&self) -> Option<Spreading> {
        match &*self.backend {
            Backend::Spread(array) => Some(array.spreading()),
            Backend::Here(_) | Backend::Elsewhere(_) => None,
        }
    }

    /// The array's name below the root, and what stays the same for as long as it is there, where several agents share it.
    pub fn shared_name(&self) -> Option<(&str, u64)> {
        match &*self.backend {
            Backend::Spread(array) => Some((array.path(), array.identity())),
            Backend::Here(_) | Backend::Elsewhere(_) => None,
        }
    }

    /// Makes the array durable in the root.
    pub fn flush(&self) -> Result<()> {
        if let Backend::Here(handle) = &*self.backend
            && !handle.directory().exists()
        {
            let gone = format!("the array {} was renamed or removed", self.name());
            return Err(ObjectError::new(Kind::NotFound, gone).hint("open it by its new name"));
        }
        self.session.flush(&self.name())
    }

    /// Sees to it that the least and greatest values of staged regions are known to queries. A flush does the same.
    pub fn say_ranges(&self) -> Result<()> {
        match &*self.backend {
            Backend::Here(handle) => handle.say_ranges(),
            Backend::Elsewhere(_) | Backend::Spread(_) => Ok(()), // the agents there do
        }
    }

    /// Ranges of so many cells each, of the staged extents on this node that have more and are wanted; the ranges of all are said.
    pub fn zones(&self, cells_each: u64, is_wanted: &dyn Fn(&ExtentId) -> bool) -> Result<Vec<Zones>> {
        match &*self.backend {
            Backend::Here(handle) => handle.zones(cells_each, is_wanted),
            Backend::Spread(array) => array.zones(cells_each, is_wanted),
            Backend::Elsewhere(_) => Ok(vec![]),
        }
    }

    /// Regions that are staged, oldest first, and the bytes of each; the durable form lies below them.
    pub fn staged_regions(&self) -> Result<Vec<(Region, u64)>> {
        match &*self.backend {
            Backend::Here(handle) => handle.staged_regions(),
            Backend::Elsewhere(_) | Backend::Spread(_) => Err(ObjectError::invalid(format!(
                "`{}` is on other nodes: its staged regions are not to be seen from here",
                self.name()
            ))),
        }
    }
}

/// An array at one moment, where it lies: for queries. While it lives, its cells don't change, and owners of the array don't
/// use the room of what they have put anew; so it should not live longer than a query.
pub struct ArrayView {
    array: Array,
    view: View,
    whole_steps: Option<u64>,
}

impl std::ops::Deref for ArrayView {
    type Target = View;
    fn deref(&self) -> &View {
        &self.view
    }
}

impl ArrayView {
    pub fn array(&self) -> &Array {
        &self.array
    }

    /// Steps that have all of their cells, where the layers alone don't tell: the array has cells on other nodes.
    pub fn whole_steps(&self) -> Option<u64> {
        self.whole_steps
    }

    /// A region's cells as they lie below all layers. Of what is on other nodes: as they are now.
    pub fn read_base(&self, region: &Region, cells: &mut [u8]) -> Result<()> {
        match &*self.array.backend {
            Backend::Here(handle) => handle.read_base(region, cells),
            Backend::Elsewhere(array) => array.get(region, cells),
            Backend::Spread(array) => array.read_base(region, cells),
        }
    }
}

/// Application memory that is tied to a region: `lock` brings the region's cells into it, `release` publishes it (after a
/// write lock) and lets others have the region. Dropping it without `release` discards what was written into it.
pub struct Mapped<'a> {
    array: Array,
    region: Region,
    buffer: &'a mut [u8],
    lock: Option<RegionLock>,
}

impl Mapped<'_> {
    pub fn buffer(&mut self) -> &mut [u8] {
        self.buffer
    }

    pub fn lock(&mut self, mode: LockMode, patience: Option<Duration>) -> Result<()> {
        if self.lock.is_some() {
            return Err(ObjectError::invalid(format!("{} is locked by this mapping already", self.region)));
        }
        let lock = self.array.lock(&self.region, mode, patience)?;
        let shape = self.array.shape()?;
        // A region beyond what an unlimited dimension has yet is about to be written.
        if mode == LockMode::Read || self.region.check_within(&shape).is_ok() {
            self.array.get(&self.region, self.buffer)?;
        }
        self.lock = Some(lock);
        Ok(())
    }

    pub fn release(&mut self) -> Result<()> {
        let Some(lock) = self.lock.take() else {
            return Err(ObjectError::invalid(format!("{} is not locked by this mapping", self.region)));
        };
        match lock.mode() {
            LockMode::Write => self.array.put(&self.region, self.buffer),
            LockMode::Read => Ok(()),
        }
    }
}
