//! Reading steps as they become whole: a step is an index of the dimension that grows, and it is whole when all arrays of the
//! container that grow have all of its cells.
//!
//! Where cells alone can't tell (parts of a step were evicted before the others came, or a step is sparse) a writer says it: the
//! container's tag `terrace.steps` is the number of steps that are whole ("all": every step that was begun).

use crate::array::{Array, Backend};
use crate::remote::{StagedRegions, regions_at};
use crate::session::{Create, Session};
use std::time::{Duration, Instant};
use terrace_core::objects::wire::ObjectKind;
use terrace_core::objects::{Kind, Result, TagValue, complete_steps};

/// The tag of a container by which a writer says how many steps are whole.
pub const STEPS_TAG: &str = "terrace.steps";
/// How often a step that is not there yet is looked for, at first and later.
const LOOK_MIN: Duration = Duration::from_millis(1);
const LOOK_MAX: Duration = Duration::from_millis(20);

/// Where a reader of a container is. What it has returned is whole and stays so; a reader that starts again goes on behind it.
pub struct StepCursor {
    session: Session,
    container: String,
    /// Only these arrays; empty: all of the container that grow.
    arrays: Vec<String>,
    next: u64,
    /// Steps that were seen to be whole.
    whole: u64,
    opened: Vec<(String, Array, usize)>,
}

impl Session {
    /// The steps of a container from `from` on. `arrays`: those that a step has to have, by their names in the container; empty:
    /// all that are there and grow.
    pub fn steps(&self, container: &str, from: u64, arrays: &[&str]) -> Result<StepCursor> {
        Ok(StepCursor {
            session: self.clone(),
            container: self.name_of(container)?,
            arrays: arrays.iter().map(|name| name.to_string()).collect(),
            next: from,
            whole: 0,
            opened: vec![],
        })
    }

    /// Says that the first `steps` steps of a container are whole, for readers that can't tell by its cells.
    pub fn publish_steps(&self, container: &str, steps: u64) -> Result<()> {
        self.create_container(container, Create::IfMissing)?;
        self.put_tag(container, STEPS_TAG, TagValue::Int(steps.min(i64::MAX as u64) as i64))
    }
}

impl StepCursor {
    /// The step that comes next.
    pub fn position(&self) -> u64 {
        self.next
    }

    /// Waits for the next whole step. `None`: it did not come in the time given.
    pub fn next(&mut self, patience: Option<Duration>) -> Result<Option<u64>> {
        let begun = Instant::now();
        let mut rest = LOOK_MIN;
        while self.next >= self.whole {
            self.whole = self.count()?;
            if self.next < self.whole {
                break;
            }
            if patience.is_some_and(|patience| begun.elapsed() >= patience) {
                return Ok(None);
            }
            std::thread::sleep(rest);
            rest = (rest * 2).min(LOOK_MAX);
        }
        self.next += 1;
        Ok(Some(self.next - 1))
    }

    /// Steps of the container that are whole now.
    pub fn count(&mut self) -> Result<u64> {
        let said = match self.session.get_tag(&self.container, STEPS_TAG) {
            Err(error) if error.kind == Kind::NotFound => return Ok(0),
            tag => tag?,
        };
        match &said {
            Some(TagValue::Int(steps)) => return Ok((*steps).max(0) as u64),
            Some(TagValue::Text(word)) if word == "all" => return self.begun(),
            _ => {}
        }
        self.open()?;
        let mut least: Option<u64> = None;
        for (_, array, dimension) in &self.opened {
            let whole = array.complete_steps(*dimension, self.next)?;
            least = Some(least.map_or(whole, |least| least.min(whole)));
            if least <= Some(self.next) {
                break;
            }
        }
        Ok(least.unwrap_or(0))
    }

    fn begun(&mut self) -> Result<u64> {
        self.open()?;
        let mut most = 0;
        for (_, array, dimension) in &self.opened {
            most = most.max(array.shape()?[*dimension]);
        }
        Ok(most)
    }

    /// Arrays that were made since are found until the first step is whole; all of them, if they are named.
    fn open(&mut self) -> Result<()> {
        let names = match self.arrays.is_empty() {
            false => self.arrays.clone(),
            true if self.whole > 0 && !self.opened.is_empty() => return Ok(()),
            true => match self.session.list(&self.container) {
                Err(error) if error.kind == Kind::NotFound => return Ok(()),
                entries => {
                    let arrays = entries?.into_iter().filter(|entry| entry.kind == ObjectKind::Array);
                    arrays.map(|entry| entry.name).collect()
                }
            },
        };
        let mut opened = vec![];
        for name in &names {
            if let Some(at) = self.opened.iter().position(|(known, ..)| known == name) {
                opened.push(self.opened.swap_remove(at));
                continue;
            }
            let path = if self.container.is_empty() { name.clone() } else { format!("{}/{name}", self.container) };
            let array = match self.session.open_array(&path, false) {
                Err(error) if error.kind == Kind::NotFound => {
                    // A step without it is not whole.
                    self.opened = if self.arrays.is_empty() { opened } else { vec![] };
                    return Ok(());
                }
                array => array?,
            };
            if let Some(dimension) = array.spec().grows_along() {
                opened.push((name.clone(), array, dimension));
            }
        }
        self.opened = opened;
        Ok(())
    }
}

impl Array {
    /// Steps, from the first on, that have all of their cells. `from`: so many are known to be whole.
    pub fn complete_steps(&self, dimension: usize, from: u64) -> Result<u64> {
        let mut parts: Vec<StagedRegions> = vec![];
        match &*self.backend {
            Backend::Here(handle) => {
                let part = handle.staged_part(dimension, from)?;
                parts.push((part.shape, part.base, part.regions));
            }
            Backend::Elsewhere(array) => parts.push(regions_at(&array.agent, &array.path, dimension, from)?),
            Backend::Spread(array) => parts = array.regions(dimension, from)?,
        }
        let mut shape = vec![0; self.spec().rank()];
        let mut regions = vec![];
        // Several agents flush into one durable form: what one of them knows of it is there for all.
        let mut start = from;
        for (part, base, staged) in parts {
            shape.iter_mut().zip(&part).for_each(|(extent, part)| *extent = (*extent).max(*part));
            start = start.max(base.map_or(0, |base| base[dimension]));
            regions.extend(staged);
        }
        Ok(complete_steps(start, &shape, &regions, dimension))
    }
}
