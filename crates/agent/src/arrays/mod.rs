//! Staged arrays as they lie on this node, and the tags of all objects: the ground of `forward` and `objects`.

pub mod tags;

use crate::shared::Shared;
use std::ops::Deref;
use std::path::Path;
use std::sync::{Arc, Mutex};
use tags::Tags;
use terrace_core::objects::{Kind, ObjectError, Result};
use terrace_objects::Place;
use terrace_objects::array::{self, ArrayHandle, ChunkSource, Log, Services};

/// What is in `Shared` is reached as if it were here.
pub struct Arrays {
    shared: Arc<Shared>,
    pub place: Arc<Place>,
    pub tags: Mutex<Tags>,
}

impl Deref for Arrays {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.shared
    }
}

/// What the agent's own handles need of an agent.
pub struct Own;

impl ChunkSource for Own {
    fn chunk(&self, directory: &Path, _chunk: &[u64]) -> Result<Option<Vec<u8>>> {
        Err(ObjectError::new(Kind::WrongKind, format!("the chunks of {} are encoded", directory.display())))
    }
}

impl Services for Own {
    fn compact(&self, _directory: &Path) -> Result<()> {
        Err(ObjectError::new(Kind::Busy, "a flush puts nothing"))
    }
    fn make_room(&self, _bytes: u64) -> Result<()> {
        Err(ObjectError::new(Kind::Busy, "a flush puts nothing"))
    }
}

impl Arrays {
    /// And what is wrong with the tags' journal.
    pub fn new(shared: Arc<Shared>) -> (Arrays, Option<String>) {
        let (tags, trouble) = Tags::open(&tags::journal_path(&shared.settings.state));
        let place = Arc::new(Place::of(shared.index, &shared.settings.index()));
        (Arrays { shared, place, tags: Mutex::new(tags) }, trouble)
    }

    /// An object's name as paths are known here: below the root, absolute, in bytes.
    pub fn object_path_of(&self, name: &str) -> std::path::PathBuf {
        if name.is_empty() { self.settings.root.clone() } else { self.settings.root.join(name) }
    }

    /// An array of this root, for reading. `None`: there is none.
    pub fn own_handle(&self, name: &str) -> Result<Option<ArrayHandle>> {
        let directory = self.object_path_of(name);
        let Some(array) = array::read_metadata(&directory)?.and_then(|metadata| metadata.array) else {
            return Ok(None);
        };
        ArrayHandle::open(self.place.clone(), &directory, &array, false, Arc::new(Own)).map(Some)
    }

    /// Staged arrays by their names, with their logs.
    pub fn staged_arrays(&self) -> Vec<(String, Log)> {
        let place = &self.place;
        let found = array::stages(place).into_iter().filter_map(|stage| {
            let log = Log::open(&stage.log(place)).ok()?;
            let directory = array::directory_of(place, &stage, &log)?;
            Some((array::relative(place, &directory)?, log))
        });
        found.collect()
    }
}
