//! The durable form, read: chunks of the Zarr array in the root.
//!
//! Chunks that are cells as they are, are read from here; for any other codec the agent decodes (`ChunkSource`), and one
//! chunk is kept, because neighbours are read next.

use super::copying::{copy_overlap, fill};
use super::metadata::{ArrayMetadata, CHUNKS, ChunkKey};
use crate::calls;
use crate::failure::{Context, system};
use crate::place::Place;
use crate::placed;
use rustix::io::Errno;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use terrace_core::objects::{Kind, ObjectError, Overlap, RANK_MAX, Region, Result, cells};

/// Gives a chunk's cells, decoded; `None`: there is no such chunk.
pub trait ChunkSource: Send + Sync {
    fn chunk(&self, directory: &Path, chunk: &[u64]) -> Result<Option<Vec<u8>>>;
}

/// A chunk's coordinates and its bytes.
type KeptChunk = (Vec<u64>, Arc<Vec<u8>>);

pub struct Base {
    directory: PathBuf,
    chunks: Vec<u64>,
    fill: Vec<u8>,
    size: usize,
    key: ChunkKey,
    is_raw: bool,
    source: Option<Arc<dyn ChunkSource>>,
    kept: Mutex<Option<KeptChunk>>,
}

impl Base {
    pub fn new(directory: &Path, array: &ArrayMetadata, source: Option<Arc<dyn ChunkSource>>) -> Base {
        Base {
            directory: directory.into(),
            chunks: array.spec.chunks.clone(),
            fill: array.spec.fill.clone(),
            size: array.spec.data_type.size(),
            key: array.key,
            is_raw: array.is_raw,
            source,
            kept: Mutex::new(None),
        }
    }

    pub fn chunk_path(&self, chunk: &[u64]) -> PathBuf {
        self.directory.join(self.key.name(chunk))
    }

    pub fn chunk_region(&self, chunk: &[u64]) -> Region {
        let offset: Vec<u64> = chunk.iter().zip(&self.chunks).map(|(index, extent)| index * extent).collect();
        Region::block(&offset, &self.chunks).expect("a chunk of an array that was checked")
    }

    /// How many chunks an array of this shape has in each dimension.
    pub fn grid(&self, shape: &[u64]) -> Vec<u64> {
        shape.iter().zip(&self.chunks).map(|(extent, chunk)| extent.div_ceil(*chunk)).collect()
    }

    /// Calls `act` with each chunk that the region meets. One whose strides leap over chunks takes no longer for that.
    pub fn for_each_chunk(&self, region: &Region, mut act: impl FnMut(&[u64]) -> Result<()>) -> Result<()> {
        if region.is_empty() {
            return Ok(());
        }
        let rank = region.rank();
        let (offset, stride, end) = (region.offset(), region.stride(), region.end());
        let leaps = |d: usize| stride[d] > self.chunks[d];
        let mut last = [0; RANK_MAX];
        for d in 0..rank {
            last[d] = match leaps(d) {
                true => region.count()[d] - 1,
                false => (end[d] - 1) / self.chunks[d] - offset[d] / self.chunks[d],
            };
        }
        let chunk_at = |d: usize, step: u64| match leaps(d) {
            true => (offset[d] + step * stride[d]) / self.chunks[d],
            false => offset[d] / self.chunks[d] + step,
        };
        let (mut step, mut chunk) = ([0; RANK_MAX], [0; RANK_MAX]);
        for (d, index) in chunk.iter_mut().enumerate().take(rank) {
            *index = chunk_at(d, 0);
        }
        'all: loop {
            act(&chunk[..rank])?;
            for d in (0..rank).rev() {
                if step[d] < last[d] {
                    step[d] += 1;
                    chunk[d] = chunk_at(d, step[d]);
                    continue 'all;
                }
                (step[d], chunk[d]) = (0, chunk_at(d, 0));
            }
            return Ok(());
        }
    }

    /// The chunks that are there, as many as they are: of an array with large bounds that is nearly empty these are few.
    pub fn chunks_there(&self) -> Result<Vec<Vec<u64>>> {
        let mut found = vec![];
        match self.key {
            ChunkKey::Default('/') => {
                self.chunks_below(&self.directory.join(CHUNKS), &format!("{CHUNKS}/"), self.chunks.len(), &mut found)?
            }
            ChunkKey::V2('/') => self.chunks_below(&self.directory, "", self.chunks.len(), &mut found)?,
            _ => self.chunks_below(&self.directory, "", 1, &mut found)?,
        }
        Ok(found)
    }

    fn chunks_below(&self, directory: &Path, name: &str, levels: usize, found: &mut Vec<Vec<u64>>) -> Result<()> {
        let entries = match std::fs::read_dir(directory) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            entries => entries.context("list", directory)?,
        };
        for entry in entries {
            let entry = entry.context("list", directory)?.file_name();
            let Some(entry) = entry.to_str() else { continue };
            let name = format!("{name}{entry}");
            match levels {
                0 | 1 => found.extend(self.key.chunk(&name, self.chunks.len())),
                _ if entry.parse::<u64>().is_ok() => {
                    self.chunks_below(&directory.join(entry), &format!("{name}/"), levels - 1, found)?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// The region's cells, packed; the fill value where there is no chunk.
    pub fn read(&self, place: &Place, region: &Region, buffer: &mut [u8]) -> Result<()> {
        self.for_each_chunk(region, |chunk| {
            let chunk_region = self.chunk_region(chunk);
            // A strided region may pass a chunk by.
            let Some(overlap) = Overlap::of(&chunk_region, region) else { return Ok(()) };
            match self.chunk(place, chunk)? {
                // SAFETY: a chunk has all its cells, and `buffer` all of the region's.
                Some(cells) => unsafe { copy_overlap(&overlap, self.size, cells.as_ptr(), buffer.as_mut_ptr()) },
                None => overlap.for_each_run(|run| {
                    for i in 0..run.cells {
                        let at = (run.to + i * run.to_step) as usize * self.size;
                        fill(&mut buffer[at..at + self.size], &self.fill);
                    }
                }),
            }
            Ok(())
        })
    }

    /// All cells of one chunk, also those beyond the array's bounds.
    pub fn chunk(&self, place: &Place, chunk: &[u64]) -> Result<Option<Arc<Vec<u8>>>> {
        if let Some((kept, cells)) = self.kept.lock().unwrap().as_ref()
            && kept == chunk
            && !self.is_raw
        {
            return Ok(Some(cells.clone()));
        }
        let wanted = cells(&self.chunks).unwrap_or(0) as usize * self.size;
        let found = match (self.is_raw, &self.source) {
            (true, _) => self.read_raw(place, chunk)?,
            (false, Some(source)) => source.chunk(&self.directory, chunk)?,
            (false, None) => {
                return Err(ObjectError::new(
                    Kind::WrongKind,
                    format!("the chunks of {} are encoded, and nothing here decodes them", self.directory.display()),
                ));
            }
        };
        let Some(found) = found else { return Ok(None) };
        if found.len() != wanted {
            let path = self.chunk_path(chunk);
            return Err(ObjectError::new(
                Kind::Damaged,
                format!("the chunk {} has {} bytes, not {wanted}", path.display(), found.len()),
            ));
        }
        let found = Arc::new(found);
        if !self.is_raw {
            *self.kept.lock().unwrap() = Some((chunk.into(), found.clone()));
        }
        Ok(Some(found))
    }

    fn read_raw(&self, place: &Place, chunk: &[u64]) -> Result<Option<Vec<u8>>> {
        let path = self.chunk_path(chunk);
        let mut file = match placed::open(place, &path, false) {
            Ok(file) => file,
            Err(error) if error.kind == Kind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let length = file.len(place)? as usize;
        let mut bytes = vec![0; length];
        let got = file.read_at(place, 0, &mut bytes)?;
        bytes.truncate(got);
        Ok(Some(bytes))
    }

    /// Forgets a chunk that was kept: it may have been written anew.
    pub fn forget(&self) {
        *self.kept.lock().unwrap() = None;
    }

    /// A chunk that was written beside its place gets its name.
    pub fn commit_chunk(&self, chunk: &[u64], temporary: &Path) -> Result<()> {
        let path = self.chunk_path(chunk);
        calls::rename(temporary, &path).context("replace", &path)
    }

    pub fn remove_chunk(&self, chunk: &[u64]) -> Result<()> {
        let path = self.chunk_path(chunk);
        match calls::unlink(&path) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(system("remove", &path, errno)),
        }
    }
}
