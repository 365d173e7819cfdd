//! An array of a root with several agents. Each agent has the array's own staged form of the chunks that it keeps; all of them
//! flush into the one Zarr array of the root, where their chunks are files of their own.
//!
//!   put: the region in parts, one for each chunk ─▶ each part to the agent that keeps the chunk
//!   growth: all agents, the home last: whoever sees a shape may read all of it
//!
//! Invariant: a chunk has one agent, so that puts into it have one order, and only that agent writes its file.

use crate::array::Held;
use crate::cluster::{Cluster, lost};
use crate::remote::{RemoteArray, StagedRegions, regions_at};
use crate::session::Session;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;
use terrace_core::objects::{
    ArraySpec, Kind, ObjectError, Overlap, Placement, Region, Result, Spreading, choose, for_each_part,
};
use terrace_objects::array::{ArrayHandle, ExtentId, LockMode, View, Zones, copy_overlap};

/// From so many bytes on, agents are talked to at the same time.
const TOGETHER_MIN: usize = 256 << 10;

pub struct SpreadArray {
    session: Session,
    cluster: Arc<Cluster>,
    path: String,
    spec: ArraySpec,
    /// The same for as long as the array is there, whatever it is called.
    identity: u64,
    spreading: Spreading,
    writable: bool,
    keepers: Vec<OnceLock<Keeper>>,
    /// All agents know that the array reaches so far.
    reach: Mutex<Vec<u64>>,
}

enum Keeper {
    Here(Box<ArrayHandle>),
    Elsewhere(RemoteArray),
}

/// Part of a region that one agent has.
struct Piece {
    region: Region,
    cells: Vec<u8>,
}

impl SpreadArray {
    /// `spec` may have the shape that some agent knows: the one in force is its home's.
    pub fn open(
        session: Session,
        cluster: Arc<Cluster>,
        path: String,
        spec: ArraySpec,
        identity: u64,
        writable: bool,
    ) -> Result<SpreadArray> {
        let spreading = Spreading::of(identity, &spec);
        let keepers = cluster.numbers().map(|_| OnceLock::new()).collect();
        let reach = Mutex::new(vec![0; spec.rank()]);
        let mut array = SpreadArray { session, cluster, path, spec, identity, spreading, writable, keepers, reach };
        array.spec.shape = array.shape()?;
        Ok(array)
    }

    pub fn path(&self) -> &str {
        &self.path
    }
    pub fn identity(&self) -> u64 {
        self.identity
    }
    pub fn spreading(&self) -> Spreading {
        self.spreading
    }
    pub fn spec(&self) -> &ArraySpec {
        &self.spec
    }
    pub fn is_writable(&self) -> bool {
        self.writable
    }

    /// The agent that has all of the array, if one has.
    fn only(&self) -> Option<u32> {
        match self.spec.placement {
            Placement::Spread => None,
            Placement::At(number) if number < self.cluster.count() => Some(number),
            Placement::One | Placement::Local | Placement::At(_) => Some(choose(self.identity, self.cluster.count())),
        }
    }

    fn home(&self) -> u32 {
        self.only().unwrap_or_else(|| choose(self.identity, self.cluster.count()))
    }

    /// The agent that has the cell.
    pub fn keeper_of_cell(&self, cell: &[u64]) -> u32 {
        let chunk: Vec<u64> = cell.iter().zip(&self.spec.chunks).map(|(index, extent)| index / extent).collect();
        self.keeper_of(&chunk)
    }

    fn keeper_of(&self, chunk: &[u64]) -> u32 {
        self.only().unwrap_or_else(|| self.spreading.keeper(chunk, self.cluster.count()))
    }

    fn keeper(&self, number: u32) -> Result<&Keeper> {
        let place = &self.keepers[number as usize];
        if let Some(keeper) = place.get() {
            return Ok(keeper);
        }
        let keeper = match self.cluster.here == Some(number) {
            true => Keeper::Here(Box::new(self.session.open_handle(&self.path, self.writable)?)),
            false => {
                let agent = self.cluster.agent(self.session.root(), number);
                let (path, spec) = (self.path.clone(), self.spec.clone());
                Keeper::Elsewhere(RemoteArray { agent, path, spec, writable: self.writable })
            }
        };
        Ok(place.get_or_init(|| keeper))
    }

    /// Of what this node's agent has staged.
    pub fn zones(&self, cells_each: u64, is_wanted: &dyn Fn(&ExtentId) -> bool) -> Result<Vec<Zones>> {
        match self.cluster.here.map(|here| self.keeper(here)).transpose()? {
            Some(Keeper::Here(handle)) => handle.zones(cells_each, is_wanted),
            Some(Keeper::Elsewhere(_)) | None => Ok(vec![]),
        }
    }

    /// What each agent has staged.
    pub fn regions(&self, dimension: usize, from: u64) -> Result<Vec<StagedRegions>> {
        let mut parts = vec![];
        for number in self.cluster.numbers() {
            parts.push(match self.keeper(number)? {
                Keeper::Here(handle) => {
                    let part = handle.staged_part(dimension, from)?;
                    (part.shape, part.base, part.regions)
                }
                Keeper::Elsewhere(array) => regions_at(&array.agent, &array.path, dimension, from)?,
            });
        }
        Ok(parts)
    }

    pub fn shape(&self) -> Result<Vec<u64>> {
        let shape = self.keeper(self.home())?.shape()?;
        let mut reach = self.reach.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        reach.iter_mut().zip(&shape).for_each(|(known, now)| *known = (*known).max(*now));
        Ok(shape)
    }

    /// Whether what this node has open of it is still the array of its name: another one may have been made since.
    pub fn is_there(&self) -> bool {
        let is_there = |keeper: &OnceLock<Keeper>| match keeper.get() {
            Some(Keeper::Here(handle)) => handle.is_in_force(),
            Some(Keeper::Elsewhere(_)) | None => true,
        };
        self.keepers.iter().all(is_there) && self.shape().is_ok()
    }

    fn is_within_reach(&self, region: &Region) -> bool {
        let reach = self.reach.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        region.check_within(&reach).is_ok()
    }

    fn check_bytes(&self, region: &Region, bytes: usize) -> Result<()> {
        region.check_rank(self.spec.rank())?;
        match region.cells().checked_mul(self.spec.data_type.size() as u64) == Some(bytes as u64) {
            true => Ok(()),
            false => Err(ObjectError::invalid(format!(
                "{region} has {} cells of {} bytes, the buffer has {bytes} bytes",
                region.cells(),
                self.spec.data_type.size()
            ))),
        }
    }

    pub fn put(&self, region: &Region, cells: &[u8]) -> Result<()> {
        if !self.writable {
            return Err(ObjectError::new(Kind::WrongKind, format!("`{}` was opened for reading only", self.path)));
        }
        self.check_bytes(region, cells.len())?;
        if let Some(only) = self.only() {
            return self.keeper(only)?.put(region, cells);
        }
        if !self.is_within_reach(region) {
            self.reach_for(region)?;
        }
        let mut pieces = self.pieces();
        for_each_part(region, &self.spec.chunks, |chunk, part| {
            let mut piece = vec![0; part.cells() as usize * self.spec.data_type.size()];
            if let Some(overlap) = Overlap::of(region, &part) {
                // SAFETY: both buffers have all cells of their regions.
                unsafe { copy_overlap(&overlap, self.spec.data_type.size(), cells.as_ptr(), piece.as_mut_ptr()) };
            }
            pieces[self.keeper_of(chunk) as usize].push(Piece { region: part, cells: piece });
            Ok(())
        })?;
        self.each(pieces, cells.len(), |keeper, piece| keeper.put(&piece.region, &piece.cells)).map(|_| ())
    }

    pub fn get(&self, region: &Region, cells: &mut [u8]) -> Result<()> {
        self.get_by(region, cells, Keeper::get)
    }

    /// What this node has staged, over all that lies elsewhere.
    pub fn view(&self) -> Result<View> {
        let shape = self.shape()?;
        let Some(here) = self.cluster.here else { return Ok(View::of_base(shape)) };
        match self.keeper(here)? {
            Keeper::Here(handle) => Ok(handle.view()?.over(shape)),
            Keeper::Elsewhere(_) => Ok(View::of_base(shape)),
        }
    }

    /// A region's cells, those that this node has staged as they lie below.
    pub fn read_base(&self, region: &Region, cells: &mut [u8]) -> Result<()> {
        self.get_by(region, cells, |keeper, region, cells| match keeper {
            Keeper::Here(handle) => handle.read_base(region, cells),
            Keeper::Elsewhere(array) => array.get(region, cells),
        })
    }

    fn get_by(
        &self,
        region: &Region,
        cells: &mut [u8],
        get: impl Fn(&Keeper, &Region, &mut [u8]) -> Result<()> + Sync,
    ) -> Result<()> {
        self.check_bytes(region, cells.len())?;
        if let Some(only) = self.only() {
            return get(self.keeper(only)?, region, cells);
        }
        if !self.is_within_reach(region) {
            region.check_within(&self.shape()?)?;
        }
        let size = self.spec.data_type.size();
        let mut pieces = self.pieces();
        for_each_part(region, &self.spec.chunks, |chunk, part| {
            let piece = vec![0; part.cells() as usize * size];
            pieces[self.keeper_of(chunk) as usize].push(Piece { region: part, cells: piece });
            Ok(())
        })?;
        let got = self.each(pieces, cells.len(), |keeper, piece| get(keeper, &piece.region, &mut piece.cells))?;
        for piece in got.into_iter().flatten() {
            if let Some(overlap) = Overlap::of(&piece.region, region) {
                // SAFETY: both buffers have all cells of their regions.
                unsafe { copy_overlap(&overlap, size, piece.cells.as_ptr(), cells.as_mut_ptr()) };
            }
        }
        Ok(())
    }

    fn pieces(&self) -> Vec<Vec<Piece>> {
        self.cluster.numbers().map(|_| vec![]).collect()
    }

    /// Each agent's pieces in turn; agents at the same time where that is worth a thread.
    fn each(
        &self,
        pieces: Vec<Vec<Piece>>,
        bytes: usize,
        act: impl Fn(&Keeper, &mut Piece) -> Result<()> + Sync,
    ) -> Result<Vec<Vec<Piece>>> {
        let one = |number: usize, mut own: Vec<Piece>| -> Result<Vec<Piece>> {
            if !own.is_empty() {
                let keeper = self.keeper(number as u32)?;
                own.iter_mut().try_for_each(|piece| act(keeper, piece))?;
            }
            Ok(own)
        };
        let busy = pieces.iter().filter(|own| !own.is_empty()).count();
        if busy < 2 || bytes < TOGETHER_MIN {
            return pieces.into_iter().enumerate().map(|(number, own)| one(number, own)).collect();
        }
        let one = &one;
        std::thread::scope(|scope| {
            let started: Vec<_> =
                pieces.into_iter().enumerate().map(|(number, own)| scope.spawn(move || one(number, own))).collect();
            // All are waited for before the first failure is told.
            let results: Vec<_> = started.into_iter().map(|started| started.join()).collect();
            results.into_iter().map(|result| result.unwrap_or_else(|_| Err(lost()))).collect()
        })
    }

    /// Makes the array reach as far as the region does, in dimensions that grow.
    fn reach_for(&self, region: &Region) -> Result<()> {
        let now = self.shape()?;
        let end = region.end();
        let wanted: Vec<u64> =
            (0..now.len()).map(|d| if self.spec.unlimited[d] { now[d].max(end[d]) } else { now[d] }).collect();
        region.check_within(&wanted)?;
        if wanted != now { self.grow(&wanted) } else { Ok(()) }
    }

    pub fn grow(&self, shape: &[u64]) -> Result<()> {
        if let Some(only) = self.only() {
            return self.keeper(only)?.grow(shape);
        }
        let now = self.shape()?;
        if shape.len() != now.len() || shape.iter().zip(&now).any(|(wanted, now)| wanted < now) {
            return Err(ObjectError::invalid(format!("an array of shape {now:?} can't be made {shape:?}")));
        }
        let home = self.home();
        for number in self.cluster.numbers().filter(|&number| number != home).chain([home]) {
            self.keeper(number)?.reach(shape)?;
        }
        let mut reach = self.reach.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        reach.iter_mut().zip(shape).for_each(|(known, now)| *known = (*known).max(*now));
        Ok(())
    }

    pub fn lock(&self, region: &Region, mode: LockMode, patience: Option<Duration>) -> Result<Held> {
        Ok(match self.keeper(self.home())? {
            Keeper::Here(handle) => Held::Here(handle.lock(region, mode, patience)?),
            Keeper::Elsewhere(array) => Held::Elsewhere(array.lock(region, mode, patience)?),
        })
    }
}

impl Keeper {
    fn shape(&self) -> Result<Vec<u64>> {
        match self {
            Keeper::Here(handle) => handle.shape(),
            Keeper::Elsewhere(array) => array.shape(),
        }
    }

    fn put(&self, region: &Region, cells: &[u8]) -> Result<()> {
        match self {
            Keeper::Here(handle) => handle.put(region, cells),
            Keeper::Elsewhere(array) => array.put(region, cells),
        }
    }

    fn get(&self, region: &Region, cells: &mut [u8]) -> Result<()> {
        match self {
            Keeper::Here(handle) => handle.get(region, cells),
            Keeper::Elsewhere(array) => array.get(region, cells),
        }
    }

    fn grow(&self, shape: &[u64]) -> Result<()> {
        match self {
            Keeper::Here(handle) => handle.grow(shape),
            Keeper::Elsewhere(array) => array.grow(shape),
        }
    }

    /// At least this shape: somebody else may have made it larger meanwhile.
    fn reach(&self, shape: &[u64]) -> Result<()> {
        loop {
            let now = self.shape()?;
            let wanted: Vec<u64> = now.iter().zip(shape).map(|(now, wanted)| *now.max(wanted)).collect();
            if wanted == now {
                return Ok(());
            }
            match self.grow(&wanted) {
                Err(error) if error.kind == Kind::Invalid && self.shape()? != now => {}
                grown => return grown,
            }
        }
    }
}
