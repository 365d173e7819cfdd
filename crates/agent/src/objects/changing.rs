//! Objects that get another name or another shape.
//!
//!   rename:  renamed by the client ─▶ told here: tags, logs and files of tiers get the new name
//!   reshape: flush, drop from the tiers ─▶ cut the durable form ─▶ staged meanwhile? then once more
//!
//! Invariant: what a smaller shape cuts off is gone when it is answered: an array that grows again has the fill value there.

use super::Objects;
use super::server::not_written;
use crate::shared::request::{Outcome, Scope};
use std::path::Path;
use terrace_core::objects::{Kind, ObjectError, Result};
use terrace_objects::array::{self, Log};
use terrace_objects::placed;

/// How often an array is cut that others put to all the while.
const TRIES: usize = 100;

impl Objects {
    pub fn object_was_renamed(&self, from: &str, to: &str) -> Result<()> {
        let (old, new) = (self.object_path_of(from), self.object_path_of(to));
        // Said by a client: believed where it is so.
        if old.symlink_metadata().is_ok() || new.symlink_metadata().is_err() {
            return Ok(());
        }
        placed::say_renamed(&self.place, &old, &new);
        let _turn = self.turn.lock().unwrap();
        for stage in array::stages(&self.place) {
            let Ok(log) = Log::open(&stage.log(&self.place)) else { continue };
            let Some(path) = log.array_path() else { continue };
            if let Ok(below) = Path::new(&path).strip_prefix(from)
                && let Some(path) = Path::new(to).join(below).components().as_path().to_str()
            {
                log.set_array_path(path);
            }
        }
        self.tags.lock().unwrap().rename(from, to).map_err(|error| not_written(&error))
    }

    pub fn reshape_array(&self, directory: &Path, shape: &[u64]) -> Result<()> {
        let place = &self.place;
        array::check_reshape(directory, shape)?;
        for _ in 0..TRIES {
            let mut outcome = Outcome::default();
            self.evict_arrays(&Scope(vec![directory.to_owned()]), &mut outcome);
            if let Some(failed) = outcome.failures.into_iter().next() {
                let message = format!("{} could not be made durable: {}", failed.path.display(), failed.reason);
                return Err(ObjectError::new(Kind::System, message));
            }
            let _turn = self.turn.lock().unwrap();
            if let Some(stage) = array::stage_of(place, directory) {
                if array::is_locked(place, &stage) {
                    let message = format!("somebody has locked {}", directory.display());
                    return Err(ObjectError::new(Kind::Busy, message).hint("give it another shape when it is released"));
                }
                continue;
            }
            array::reshape(place, directory, shape, self.settings.mover.fsync)?;
            // Whoever staged it meanwhile did so by the shape that it had.
            if array::stage_of(place, directory).is_none() {
                return Ok(());
            }
        }
        let message = format!("others put to {} all the while", directory.display());
        Err(ObjectError::new(Kind::Busy, message).hint("give it another shape when nobody puts to it"))
    }
}
