//! Names as tables: a container whose arrays share dimensions, or one array.
//!
//! ```text
//!   name ─▶ arrays of the container, each at one moment ─▶ dimensions and their axes (reserved tags, coordinate arrays)
//!        ─▶ steps that are complete in all of them ─▶ grid
//! ```
//!
//! Invariant: a table that was made does not change: a query sees each array at one moment, and only whole steps.

mod schema;
mod steps;
pub mod subtars;

pub use schema::{CATALOG, Names, ROOT_SCHEMA};
pub use steps::complete_steps;

use crate::axis::Axis;
use crate::control::Register;
use crate::error::{Error, Result};
use crate::grid::{Column, Dimension, Grid, OneCell, Source};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};
use terrace_client::{Array, ArrayView, Kind, ObjectKind, Session, TagValue};

/// Reserved tags of a container.
pub mod tags {
    /// `terrace.dimension.x` = [low, step] or [low, high, step]: coordinates of dimension `x`.
    pub const DIMENSION: &str = "terrace.dimension.";
    /// "complete" (the default), "all", or the number of steps that are published.
    pub const STEPS: &str = "terrace.steps";
    /// true: cells whose arrays all have their fill value are no rows.
    pub const SPARSE: &str = "terrace.sparse";
}

/// The arrays of a session that were opened: their mappings are kept from query to query.
pub struct Objects {
    pub session: Session,
    /// Those that this process runs, and what is known of others.
    pub queries: Arc<Register>,
    arrays: Mutex<HashMap<String, Array>>,
}

struct Member {
    name: String,
    dimensions: Vec<String>,
    shape: Vec<u64>,
    unlimited: Vec<bool>,
    view: Arc<ArrayView>,
    source: Arc<dyn Source>,
}

impl Member {
    /// An array without dimensions is a row of its own table; a table of cells has no place for it.
    fn new(name: String, view: Arc<ArrayView>) -> Result<Member> {
        let spec = view.array().spec();
        if spec.rank() > 0 {
            let (dimensions, unlimited) = (dimension_names(spec), spec.unlimited.clone());
            return Ok(Member { name, dimensions, shape: view.shape.clone(), unlimited, source: view.clone(), view });
        }
        let source = Arc::new(OneCell::new(view.clone())?);
        Ok(Member { name, dimensions: vec!["dim_0".into()], shape: vec![1], unlimited: vec![false], source, view })
    }

    fn has_dimensions(&self) -> bool {
        !self.view.shape.is_empty()
    }
}

/// Names of an array's dimensions; those that have none are counted.
pub fn dimension_names(spec: &terrace_client::ArraySpec) -> Vec<String> {
    let mut names: Vec<String> = vec![];
    for d in 0..spec.rank() {
        let mut name = match spec.dimensions.get(d).filter(|name| !name.is_empty()) {
            Some(name) => name.clone(),
            None => format!("dim_{d}"),
        };
        while names.contains(&name) {
            name.push('\'');
        }
        names.push(name);
    }
    names
}

impl Objects {
    pub fn new(session: Session, queries: Arc<Register>) -> Objects {
        Objects { session, queries, arrays: Mutex::new(HashMap::new()) }
    }

    /// The array as it is there now; the one that is open already, if that is the same.
    pub fn array(&self, name: &str) -> Result<Array> {
        // Before it is opened: whatever is made in its place later is another one.
        let identity = self.session.identity(name)?;
        let mut arrays = self.arrays.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some(known) = arrays.get(name) {
            let found = self.session.stat(name)?;
            let is_its_name = known.is_its_name();
            let is_same = found.spec.is_some_and(|now| {
                let known = known.spec();
                is_its_name
                    && (now.data_type, &now.dimensions, &now.chunks, &now.unlimited, now.rank())
                        == (known.data_type, &known.dimensions, &known.chunks, &known.unlimited, known.rank())
            });
            if is_same && known.is_there() {
                return Ok(known.clone());
            }
        }
        let array = self.session.open_array(name, false)?.identified(identity);
        arrays.insert(name.into(), array.clone());
        Ok(array)
    }

    /// `None`: there is no such name, or it has no arrays.
    pub fn grid(&self, name: &str) -> Result<Option<Grid>> {
        let found = match self.session.stat(name) {
            Err(error) if matches!(error.kind, Kind::NotFound | Kind::Invalid) => return Ok(None),
            other => other?,
        };
        let mut loaded = None;
        let (container, mut members) = match found.kind {
            ObjectKind::Bytes => return Ok(None),
            ObjectKind::Array => {
                let (container, own) = name.rsplit_once('/').unwrap_or(("", name));
                (container.to_owned(), vec![self.member(name, own)?])
            }
            ObjectKind::Container => {
                let mut members = vec![];
                let entries = self.session.list(name)?;
                // The list of subTARs before the cells that it tells of.
                if entries.iter().any(|entry| entry.name == subtars::SUBTARS) {
                    let list = self.tar_rank(name, &entries)?;
                    loaded = subtars::Loaded::read(&self.session, name, list)?;
                }
                for entry in entries {
                    if entry.kind != ObjectKind::Array || entry.name.starts_with(subtars::RESERVED) {
                        continue;
                    }
                    let path = if name.is_empty() { entry.name.clone() } else { format!("{name}/{}", entry.name) };
                    match self.member(&path, &entry.name) {
                        Ok(member) => members.push(member),
                        // Removed since it was listed.
                        Err(error) if error.kind == Kind::NotFound => {}
                        Err(error) => return Err(error),
                    }
                }
                (name.to_owned(), members)
            }
        };
        if members.is_empty() {
            return Ok(None);
        }
        if members.iter().any(Member::has_dimensions) {
            members.retain(Member::has_dimensions);
        }
        let tags: BTreeMap<String, TagValue> = self.session.tags(&container)?.into_iter().collect();
        let is_one_array = found.kind == ObjectKind::Array;
        let grid = grid_of(name, members, &tags, is_one_array, loaded.is_some())?;
        match loaded {
            Some(loaded) => loaded.cut(grid).map(Some),
            None => Ok(Some(grid)),
        }
    }

    /// Dimensions of a container that was made as a TAR.
    fn tar_rank(&self, name: &str, entries: &[terrace_client::Entry]) -> Result<usize> {
        let arrays = entries.iter().filter(|e| e.kind == ObjectKind::Array && !e.name.starts_with(subtars::RESERVED));
        let mut rank = 0;
        for entry in arrays {
            rank = rank.max(self.array(&format!("{name}/{}", entry.name))?.spec().rank());
        }
        Ok(rank)
    }

    /// The dimension of a container's arrays that grows, if there is one.
    pub fn step_dimension(&self, container: &str) -> Result<Option<String>> {
        let is_column =
            |e: &terrace_client::Entry| e.kind == ObjectKind::Array && !e.name.starts_with(subtars::RESERVED);
        for entry in self.session.list(container)?.into_iter().filter(is_column) {
            let path = if container.is_empty() { entry.name } else { format!("{container}/{}", entry.name) };
            let array = self.array(&path)?;
            if let Some(d) = array.spec().grows_along() {
                return Ok(Some(dimension_names(array.spec()).swap_remove(d)));
            }
        }
        Ok(None)
    }

    /// An array's cells, for a grid that another node has told of.
    pub fn column(&self, path: &str) -> Result<Arc<dyn Source>> {
        Ok(Arc::new(self.array(path)?.view_of_cells()?))
    }

    fn member(&self, path: &str, name: &str) -> Result<Member> {
        Member::new(name.into(), Arc::new(self.array(path)?.view()?))
    }
}

/// The dimensions of the table: those of the arrays with the most; of several such lists, the one that most arrays have.
fn shared_dimensions(members: &[Member]) -> Vec<String> {
    let rank = members.iter().map(|member| member.dimensions.len()).max().unwrap_or(0);
    let mut lists: Vec<(&Vec<String>, usize)> = vec![];
    for member in members.iter().filter(|member| member.dimensions.len() == rank) {
        match lists.iter_mut().find(|(known, _)| **known == member.dimensions) {
            Some((_, count)) => *count += 1,
            None => lists.push((&member.dimensions, 1)),
        }
    }
    let most = lists.iter().map(|(_, count)| *count).max().unwrap_or(0);
    lists.iter().find(|(_, count)| *count == most).map(|(list, _)| (*list).clone()).unwrap_or_default()
}

fn grid_of(
    name: &str,
    members: Vec<Member>,
    tags: &BTreeMap<String, TagValue>,
    is_one_array: bool,
    is_tar: bool,
) -> Result<Grid> {
    let names = shared_dimensions(&members);
    let mut members: Vec<Member> = members
        .into_iter()
        .filter(|member| member.dimensions.iter().all(|dimension| names.contains(dimension)))
        .collect();
    let mut dimensions = vec![];
    for dimension in &names {
        let along: Vec<(&Member, usize)> = members
            .iter()
            .filter_map(|member| member.dimensions.iter().position(|name| name == dimension).map(|d| (member, d)))
            .collect();
        let grows = |&&(member, d): &&(&Member, usize)| member.unlimited[d];
        let extent = match along.iter().find(grows) {
            // SubTARs say what is there.
            Some(_) if is_tar => along.iter().map(|(member, d)| member.shape[*d]).min().unwrap_or(0),
            Some(_) => visible_steps(&along, tags)?,
            None => {
                // The arrays that have all dimensions decide.
                let full = along.iter().find(|(member, _)| member.dimensions == names).unwrap_or(&along[0]);
                full.0.shape[full.1]
            }
        };
        dimensions.push(Dimension { name: dimension.clone(), extent, axis: Axis::INDEX });
    }
    // An array that is shorter than the table is not of it.
    members.retain(|member| {
        member.dimensions.iter().enumerate().all(|(d, name)| {
            let dimension =
                dimensions.iter().find(|dimension| dimension.name == *name).expect("a dimension of the table");
            let extent = member.shape[d];
            extent == dimension.extent || extent > dimension.extent && member.unlimited[d]
        })
    });
    let mut columns = vec![];
    for member in members {
        let along: Vec<(usize, i64)> = member
            .dimensions
            .iter()
            .map(|name| (names.iter().position(|known| known == name).expect("filtered above"), 0))
            .collect();
        let source = member.source;
        if member.dimensions.len() == 1 && member.dimensions[0] == member.name && !is_one_array {
            let dimension = &mut dimensions[along[0].0];
            let values = all_values(source.clone(), dimension.extent)?;
            // Where a coordinate is no value (NaT), what is known of cells is their index.
            if values.null_count() == 0 {
                dimension.axis = Axis::Explicit(values);
                continue;
            }
        }
        let mut name = member.name;
        if names.contains(&name) {
            name.push('\'');
        }
        columns.push(Column::new(name, source, along));
    }
    for dimension in &mut dimensions {
        if let Some(tag) = tags.get(&format!("{}{}", tags::DIMENSION, dimension.name)) {
            dimension.axis = axis_of(&dimension.name, tag, dimension.extent)?;
        }
    }
    let is_sparse = tags.get(tags::SPARSE) == Some(&TagValue::Bool(true));
    Grid::new(name, dimensions, columns, is_sparse)
}

fn visible_steps(along: &[(&Member, usize)], tags: &BTreeMap<String, TagValue>) -> Result<u64> {
    let reach = || along.iter().map(|(member, d)| member.shape[*d]).min().unwrap_or(0);
    match tags.get(tags::STEPS) {
        None => {}
        Some(TagValue::Text(text)) if text == "complete" => {}
        Some(TagValue::Text(text)) if text == "all" => return Ok(reach()),
        Some(TagValue::Int(published)) if *published >= 0 => return Ok((*published as u64).min(reach())),
        Some(other) => {
            return Err(Error::invalid(format!("the tag `{}` is {other}", tags::STEPS))
                .hint("\"complete\", \"all\", or the number of steps that are published"));
        }
    }
    Ok(along.iter().map(|(member, d)| complete_steps(&member.view, *d)).min().unwrap_or(0))
}

fn all_values(source: Arc<dyn Source>, extent: u64) -> Result<arrow::array::ArrayRef> {
    let dimension = Dimension { name: "i".into(), extent, axis: Axis::INDEX };
    let grid = Grid::new("", vec![dimension], vec![Column::new("value", source, vec![(0, 0)])], false)?;
    let tile = crate::grid::Tile { bounds: vec![0..extent], position: [0; crate::grid::RANK_MAX] };
    let values = crate::grid::TileReader::new(&grid, &tile).array(1, 0, extent)?;
    // A copy: coordinates outlive the query in results.
    Ok(arrow::compute::concat(&[values.as_ref()])?)
}

fn axis_of(name: &str, tag: &TagValue, extent: u64) -> Result<Axis> {
    let wrong = |why: &str| {
        Error::invalid(format!("the tag `{}{name}` can't be used: {why}", tags::DIMENSION))
            .hint("[low, step] or [low, high, step], all whole numbers or all floats")
    };
    match tag {
        TagValue::Ints(values) => match values[..] {
            [low, step] => Ok(Axis::Integer { low, step }),
            [low, high, step] => {
                let last = (extent.saturating_sub(1) as i64).checked_mul(step).and_then(|way| way.checked_add(low));
                match last {
                    Some(last) if extent == 0 || (last <= high && step >= 0) || (last >= high && step < 0) => {
                        Ok(Axis::Integer { low, step })
                    }
                    _ => Err(wrong("the arrays reach beyond its upper bound")),
                }
            }
            _ => Err(wrong("it has neither two nor three numbers")),
        },
        TagValue::Floats(values) => match values[..] {
            [low, step] | [low, _, step] if low.is_finite() && step.is_finite() => Ok(Axis::Real { low, step }),
            _ => Err(wrong("it has neither two nor three finite numbers")),
        },
        _ => Err(wrong("it is not a list of numbers")),
    }
}
