//! TARs as they lie in the root: a container, an array for each attribute, tags for the rest.
//!
//! | of a TAR | is |
//! | --- | --- |
//! | implicit dimension | the tag `terrace.dimension.NAME` = [low, high, step], without high where it is unbounded |
//! | explicit dimension | an array of the dimension's own name |
//! | attribute; component of a vector | an array along all dimensions; `NAME:0`, `NAME:1` … |
//! | type, roles | the tags `terrace.type` and `terrace.role.NAME` |
//! | subTARs | the arrays `terrace.subtars` and `terrace.present` (see `tables/subtars.rs`) |

use crate::elements::{Number, check_name, components};
use crate::relation::{Domain, Relation};
use arrow::array::ArrayRef;
use std::collections::BTreeMap;
use terrace_analysis::front_end::subtars;
use terrace_analysis::{Axis, Error, Queries, Result, dimension_names, tags};
use terrace_client::{Array, ArraySpec, Create, DataType, Kind, ObjectKind, Region, Session, TagValue};

pub const TYPE: &str = "terrace.type";
pub const ROLE: &str = "terrace.role.";
/// Where datasets lie: a container that is no TAR.
pub const DATASETS: &str = "datasets";

/// A dimension as it was defined.
#[derive(Clone, Debug)]
pub struct Dimension {
    pub name: String,
    pub coordinates: Coordinates,
}

#[derive(Clone, Debug)]
pub enum Coordinates {
    /// `low + i * step`, so many (`None`: without an end). All whole numbers, or all floats.
    Implicit {
        low: Number,
        step: Number,
        count: Option<u64>,
    },
    Explicit {
        cell: DataType,
        values: Vec<u8>,
    },
}

impl Dimension {
    /// So many coordinates; `None`: as many as come.
    pub fn extent(&self) -> Option<u64> {
        match &self.coordinates {
            Coordinates::Implicit { count, .. } => *count,
            Coordinates::Explicit { cell, values } => Some((values.len() / cell.size()) as u64),
        }
    }
}

/// The tag of an implicit dimension: with its last coordinate where it ends.
fn dimension_tag(low: Number, step: Number, count: Option<u64>) -> TagValue {
    match (low, step) {
        (Number::Int(low), Number::Int(step)) => match count {
            Some(count) => TagValue::Ints(vec![low, low + (count as i64 - 1) * step, step]),
            None => TagValue::Ints(vec![low, step]),
        },
        (low, step) => {
            let (low, step) = (low.real(), step.real());
            match count {
                Some(count) => TagValue::Floats(vec![low, low + (count - 1) as f64 * step, step]),
                None => TagValue::Floats(vec![low, step]),
            }
        }
    }
}

#[derive(Clone, Debug)]
pub struct Attribute {
    pub name: String,
    pub cell: DataType,
    pub components: u32,
}

/// A TAR that is to be.
pub struct Definition {
    pub name: String,
    pub type_name: Option<String>,
    pub dimensions: Vec<Dimension>,
    pub attributes: Vec<Attribute>,
    pub roles: Vec<(String, String)>,
}

impl Definition {
    /// All of it, or an error and nothing.
    pub fn create(&self, session: &Session) -> Result<()> {
        if self.dimensions.is_empty() || self.attributes.is_empty() {
            return Err(Error::invalid(format!("the TAR `{}` needs a dimension and an attribute at least", self.name)));
        }
        let mut names: Vec<&str> = self.dimensions.iter().map(|dimension| dimension.name.as_str()).collect();
        names.extend(self.attributes.iter().map(|attribute| attribute.name.as_str()));
        for (number, name) in names.iter().enumerate() {
            if names[..number].contains(name) {
                return Err(Error::invalid(format!("two elements of `{}` have the name `{name}`", self.name)));
            }
        }
        check_tar_name(&self.name)?;
        if exists(session, &self.name)? {
            return Err(Error::new(Kind::Exists, format!("there is a TAR or another object `{}` already", self.name))
                .hint(format!("drop_tar(\"{}\"), or another name", self.name)));
        }
        session.create_container(&self.name, Create::IfMissing)?;
        self.fill(session).inspect_err(|_| {
            // Nobody has seen it: what it lacks is the list of subTARs.
            let _ = session.remove(&self.name, true);
        })
    }

    fn fill(&self, session: &Session) -> Result<()> {
        let mut tags = vec![];
        let dimension_names: Vec<&str> = self.dimensions.iter().map(|dimension| dimension.name.as_str()).collect();
        for dimension in &self.dimensions {
            match &dimension.coordinates {
                Coordinates::Implicit { low, step, count } => {
                    tags.push((format!("{}{}", tags::DIMENSION, dimension.name), dimension_tag(*low, *step, *count)));
                }
                Coordinates::Explicit { cell, values } => {
                    let extent = (values.len() / cell.size()) as u64;
                    let spec = ArraySpec::new(*cell, &[extent]).dimensions(&[&dimension.name]);
                    let array = session.create_array(&self.path(&dimension.name), &spec, Create::New)?;
                    array.put(&Region::block(&[0], &[extent])?, values)?;
                }
            }
        }
        if let Some(type_name) = &self.type_name {
            tags.push((TYPE.into(), TagValue::Text(type_name.clone())));
        }
        for (element, role) in &self.roles {
            tags.push((format!("{ROLE}{element}"), TagValue::Text(role.clone())));
        }
        session.put_tags(&self.name, tags)?;
        for attribute in &self.attributes {
            for name in components(&attribute.name, attribute.components) {
                session.create_array(&self.path(&name), &self.spec(attribute.cell, &dimension_names), Create::New)?;
            }
        }
        subtars::create(session, &self.name)
    }

    fn spec(&self, cell: DataType, names: &[&str]) -> ArraySpec {
        let shape: Vec<u64> = self.dimensions.iter().map(|dimension| dimension.extent().unwrap_or(0)).collect();
        let mut spec = ArraySpec::new(cell, &shape).dimensions(names);
        for (number, dimension) in self.dimensions.iter().enumerate() {
            if dimension.extent().is_none() {
                spec = spec.unlimited(number);
            }
        }
        spec
    }

    fn path(&self, name: &str) -> String {
        format!("{}/{name}", self.name)
    }
}

pub fn exists(session: &Session, name: &str) -> Result<bool> {
    match session.stat(name) {
        Ok(_) => Ok(true),
        Err(error) if error.kind == Kind::NotFound => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// A TAR's name is a path below the root, of names.
pub fn check_tar_name(name: &str) -> Result<()> {
    if name == DATASETS || name.starts_with(&format!("{DATASETS}/")) {
        return Err(Error::invalid(format!("`{DATASETS}` is where datasets are")).hint("give the TAR another name"));
    }
    name.split('/').try_for_each(|part| check_name("a TAR", part).map(|_| ()))
}

/// A TAR as it is there.
pub struct Tar {
    pub name: String,
    pub dimensions: Vec<String>,
    /// Arrays along all dimensions, by name.
    pub arrays: Vec<(String, Array)>,
    pub tags: BTreeMap<String, TagValue>,
}

impl Tar {
    pub fn open(session: &Session, name: &str, writable: bool) -> Result<Tar> {
        let missing = || Error::new(Kind::NotFound, format!("there is no TAR `{name}`")).hint("show() lists them");
        let entries = match session.list(name) {
            Ok(entries) if name != DATASETS && !name.is_empty() => entries,
            Ok(_) => return Err(missing()),
            Err(error) if matches!(error.kind, Kind::NotFound | Kind::WrongKind | Kind::Invalid) => {
                return Err(missing());
            }
            Err(error) => return Err(error.into()),
        };
        let mut arrays = vec![];
        for entry in entries {
            if entry.kind == ObjectKind::Array && !entry.name.starts_with(subtars::RESERVED) {
                let array = session.open_array(&format!("{name}/{}", entry.name), writable)?;
                arrays.push((entry.name, array));
            }
        }
        let widest = arrays.iter().max_by_key(|(_, array)| array.spec().rank()).ok_or_else(missing)?;
        let dimensions = dimension_names(widest.1.spec());
        let is_coordinates =
            |name: &str, array: &Array| array.spec().rank() == 1 && dimensions.iter().any(|d| d == name);
        arrays.retain(|(name, array)| dimension_names(array.spec()) == dimensions && !is_coordinates(name, array));
        let tags = session.tags(name)?.into_iter().collect();
        Ok(Tar { name: name.into(), dimensions, arrays, tags })
    }

    pub fn rank(&self) -> usize {
        self.dimensions.len()
    }

    pub fn role(&self, element: &str) -> Option<String> {
        let of = |name: &str| match self.tags.get(&format!("{ROLE}{name}")) {
            Some(TagValue::Text(role)) => Some(role.clone()),
            _ => None,
        };
        // A vector's role is its components'.
        of(element).or_else(|| of(element.rsplit_once(':')?.0))
    }

    pub fn type_name(&self) -> Option<String> {
        match self.tags.get(TYPE) {
            Some(TagValue::Text(name)) => Some(name.clone()),
            _ => None,
        }
    }

    /// Where it is written at all: the extent that a dimension was defined with.
    pub fn extent(&self, d: usize) -> Result<Option<u64>> {
        let (_, array) =
            self.arrays.first().ok_or_else(|| Error::invalid(format!("`{}` has no attributes", self.name)))?;
        Ok(match array.spec().unlimited[d] {
            true => None,
            false => Some(array.shape()?[d]),
        })
    }

    /// All coordinates of a dimension, loaded or not; of an unbounded one the first `extent`.
    pub fn axis(&self, session: &Session, d: usize) -> Result<Axis> {
        let name = &self.dimensions[d];
        match self.tags.get(&format!("{}{name}", tags::DIMENSION)) {
            Some(TagValue::Ints(values)) if values.len() >= 2 => {
                return Ok(Axis::Integer { low: values[0], step: values[values.len() - 1] });
            }
            Some(TagValue::Floats(values)) if values.len() >= 2 => {
                return Ok(Axis::Real { low: values[0], step: values[values.len() - 1] });
            }
            _ => {}
        }
        match coordinate_array(session, &self.name, name)? {
            Some(values) => Ok(Axis::Explicit(values)),
            None => Ok(Axis::INDEX),
        }
    }
}

fn coordinate_array(session: &Session, container: &str, name: &str) -> Result<Option<ArrayRef>> {
    let array = match session.open_array(&format!("{container}/{name}"), false) {
        Ok(array) if array.spec().rank() == 1 => array,
        Ok(_) => return Ok(None),
        Err(error) if matches!(error.kind, Kind::NotFound | Kind::WrongKind) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let extent = array.shape()?[0];
    let mut cells = vec![0; extent as usize * array.spec().data_type.size()];
    array.get(&Region::block(&[0], &[extent])?, &mut cells)?;
    array_of_cells(array.spec().data_type, &cells).map(Some)
}

/// Packed cells as an Arrow array.
pub fn array_of_cells(cell: DataType, cells: &[u8]) -> Result<ArrayRef> {
    // Words, so that cells of every type are aligned.
    let mut words = vec![0u64; cells.len().div_ceil(8)];
    // SAFETY: the vector has at least so many bytes.
    unsafe { std::ptr::copy_nonoverlapping(cells.as_ptr(), words.as_mut_ptr().cast::<u8>(), cells.len()) };
    terrace_analysis::front_end::whole(cell, arrow::buffer::Buffer::from_vec(words), cells.len() / cell.size())
}

/// A TAR's rows, or those of any container whose arrays share dimensions.
pub fn relation(queries: &Queries, name: &str) -> Result<Relation> {
    let session = &queries.objects().session;
    let missing = || Error::new(Kind::NotFound, format!("there is no TAR `{name}`")).hint("show() lists them");
    if name == DATASETS || name.is_empty() {
        return Err(missing());
    }
    let grid = queries.objects().grid(name)?.ok_or_else(missing)?;
    let tar = match Tar::open(session, name, false) {
        Ok(tar) => Some(tar),
        // One array by itself.
        Err(error) if error.kind == Kind::NotFound => None,
        Err(error) => return Err(error),
    };
    let declared = |dimension: &str| -> Option<Domain> {
        let tar = tar.as_ref()?;
        let d = tar.dimensions.iter().position(|known| known == dimension)?;
        let extent = tar.extent(d).ok()??;
        Some(Domain { axis: tar.axis(session, d).ok()?, range: 0..extent })
    };
    Relation::of_grid(queries.context(), grid, |name| tar.as_ref()?.role(name), declared)
}
