//! Datasets: flat buffers of one type, which `load_subtar` makes cells of. One is an array or a file below `datasets`, or a name
//! for a file that lies elsewhere below the root.
//!
//! Invariant: a dataset is one when its tag `terrace.dataset` says its type, which is set when all of it is there.

use crate::elements::{ElementType, Number, check_name};
use crate::files::below_root;
use crate::syntax::{Node, name_of, number_of};
use crate::tar::{DATASETS, exists};
use std::io::Read;
use std::path::Path;
use terrace_analysis::{Error, Result};
use terrace_client::{Array, ArraySpec, Bytes, Create, DataType, Kind, ObjectKind, Region, Session, TagValue};

pub const TAG: &str = "terrace.dataset";
const FILE: &str = "terrace.dataset.file";

/// Bytes that a file is read in.
const CHUNK_BYTES: usize = 16 << 20;
/// Elements that a range of numbers may make.
const RANGE_MAX: u64 = 1 << 33;

pub fn path_of(name: &str) -> String {
    format!("{DATASETS}/{name}")
}

/// A dataset that is there.
pub struct Dataset {
    pub name: String,
    pub element: ElementType,
    /// Elements: vectors count once.
    pub length: u64,
    source: Source,
}

enum Source {
    Array(Array),
    File(Box<Bytes>),
}

impl Dataset {
    pub fn open(session: &Session, name: &str) -> Result<Dataset> {
        check_name("a dataset", name)?;
        let missing = || Error::new(Kind::NotFound, format!("there is no dataset `{name}`")).hint("show() lists them");
        let path = path_of(name);
        let kind = match session.stat(&path) {
            Ok(found) => found.kind,
            Err(error) if error.kind == Kind::NotFound => return Err(missing()),
            Err(error) => return Err(error.into()),
        };
        let tags = session.tags(&path)?;
        let tag = |key: &str| match tags.iter().find(|(found, _)| found == key) {
            Some((_, TagValue::Text(text))) => Some(text.clone()),
            _ => None,
        };
        let element = ElementType::parse(&tag(TAG).ok_or_else(missing)?)?;
        let size = element.cell.size() as u64 * element.components as u64;
        let own = (kind == ObjectKind::Bytes).then_some(path.clone());
        let (source, length) = match tag(FILE).or(own) {
            Some(file) => {
                let bytes = session.open_bytes(&file, false)?;
                let length = bytes.len()? / size;
                (Source::File(Box::new(bytes)), length)
            }
            None => {
                let array = session.open_array(&path, false)?;
                let length = array.shape()?[0];
                (Source::Array(array), length)
            }
        };
        Ok(Dataset { name: name.into(), element, length, source })
    }

    /// Numbers of one element, as they lie one after the other.
    fn region(&self, count: u64) -> Result<Region> {
        Ok(match self.element.components {
            1 => Region::block(&[0], &[count])?,
            components => Region::block(&[0, 0], &[count, components as u64])?,
        })
    }

    /// Gives the first `count` elements to `act`: where they lie, if they lie in one piece here; else as they are read.
    pub fn with_cells<T>(&self, count: u64, act: impl FnOnce(&[u8]) -> Result<T>) -> Result<T> {
        if count > self.length {
            return Err(Error::new(
                Kind::OutOfBounds,
                format!("the dataset `{}` has {} elements: {count} are needed", self.name, self.length),
            ));
        }
        let bytes = count as usize * self.element.components as usize * self.element.cell.size();
        match &self.source {
            Source::Array(array) => {
                let region = self.region(count)?;
                let view = array.view()?;
                if let [layer] = view.layers.as_slice()
                    && layer.region.is_block()
                    && layer.region.offset().iter().all(|&offset| offset == 0)
                    && layer.region.cells() >= region.cells()
                {
                    // SAFETY: the layer has all cells of its region, which the view keeps.
                    return act(unsafe { std::slice::from_raw_parts(layer.cells(), bytes) });
                }
                std::mem::drop(view);
                let mut cells = vec![0; bytes];
                array.get(&region, &mut cells)?;
                act(&cells)
            }
            Source::File(file) => {
                let mut cells = vec![0; bytes];
                file.read_exact_at(0, &mut cells)?;
                act(&cells)
            }
        }
    }

    /// The first `count` elements as whole numbers or floats.
    pub fn numbers(&self, count: u64) -> Result<Vec<Number>> {
        if self.element.components != 1 {
            return Err(Error::invalid(format!("the dataset `{}` has vectors where numbers are needed", self.name)));
        }
        use crate::relation::Numbers;
        self.with_cells(count, |cells| {
            Ok(match Numbers::of(&crate::tar::array_of_cells(self.element.cell, cells)?)? {
                Numbers::Ints(values) => values.values().iter().map(|&value| Number::Int(value)).collect(),
                Numbers::Reals(values) => values.values().iter().map(|&value| Number::Real(value)).collect(),
            })
        })
    }
}

/// `create_dataset("d:type[:n]", F)`
pub fn create(session: &Session, arguments: &[Node]) -> Result<String> {
    let [declared, content] = arguments else {
        return Err(Error::invalid("`create_dataset` takes a name with a type, and what is in it")
            .hint("create_dataset(\"d:double\", literal(1, 2)); or \"first:step:last:times\", \"@file of the client\", \"file below the root\""));
    };
    let declared = name_of(declared)?;
    let (name, element) = declared
        .split_once(':')
        .ok_or_else(|| Error::invalid(format!("`{declared}` says no type")).hint("create_dataset(\"d:double\", …)"))?;
    let name = check_name("a dataset", name.trim())?;
    let element = ElementType::parse(element)?;
    let length = match content {
        Node::Call(call, values) if call == "literal" => {
            let mut cells = vec![];
            for value in values {
                push(&mut cells, element.cell, value)?;
            }
            store(session, name, element, &cells)?
        }
        Node::Text(text) if text.starts_with('@') => from_client(session, name, element, Path::new(&text[1..]))?,
        Node::Text(text) => match range(text)? {
            Some(range) => store(session, name, element, &range_cells(range, element.cell)?)?,
            None => in_storage(session, name, element, text)?,
        },
        _ => return Err(Error::invalid("a dataset's content is literal(…) or a text")),
    };
    Ok(format!("dataset {name}: {length} elements of {}", element.text()))
}

/// One number or text as a cell; one that the type does not hold is an error.
fn push(cells: &mut Vec<u8>, cell: DataType, value: &Node) -> Result<()> {
    let wrong =
        |shown: String| Error::invalid(format!("{shown} is not a value of type {}", crate::elements::name_of(cell)));
    macro_rules! whole {
        ($type:ty, $number:expr) => {
            cells.extend(<$type>::try_from($number).map_err(|_| wrong($number.to_string()))?.to_le_bytes())
        };
    }
    match (cell, value) {
        (DataType::Bytes(length), Node::Text(text)) => {
            if text.len() > length as usize {
                return Err(wrong(format!("'{text}'")));
            }
            cells.extend(text.as_bytes());
            cells.resize(cells.len() + length as usize - text.len(), 0);
        }
        (DataType::Float32, Node::Int(_) | Node::Real(_)) => {
            let number = number_of(value)?.real();
            cells.extend((number as f32).to_le_bytes());
        }
        (DataType::Float64, Node::Int(_) | Node::Real(_)) => {
            cells.extend(number_of(value)?.real().to_le_bytes());
        }
        (DataType::Int8, Node::Int(number)) => whole!(i8, *number),
        (DataType::Int16, Node::Int(number)) => whole!(i16, *number),
        (DataType::Int32, Node::Int(number)) => whole!(i32, *number),
        (DataType::Int64, Node::Int(number)) => whole!(i64, *number),
        (DataType::UInt8, Node::Int(number)) => whole!(u8, *number),
        (DataType::UInt16, Node::Int(number)) => whole!(u16, *number),
        (DataType::UInt32, Node::Int(number)) => whole!(u32, *number),
        (DataType::UInt64, Node::Int(number)) => whole!(u64, *number),
        (_, Node::Int(number)) => return Err(wrong(number.to_string())),
        (_, Node::Real(number)) => return Err(wrong(format!("{number:?}"))),
        (_, Node::Text(text)) => return Err(wrong(format!("'{text}'"))),
        _ => return Err(Error::invalid("literal(…) has numbers or texts")),
    }
    Ok(())
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Range {
    first: u64,
    step: u64,
    last: u64,
    times: u64,
}

/// `init:step:final:rep`, all of them whole and not negative; `None`: the text is no range.
fn range(text: &str) -> Result<Option<Range>> {
    let parts: Vec<&str> = text.split(':').map(str::trim).collect();
    let [first, step, last, times] = parts.as_slice() else { return Ok(None) };
    let whole = |part: &str| {
        part.parse::<u64>().ok().filter(|&number| number <= i64::MAX as u64).ok_or_else(|| {
            Error::invalid(format!("`{part}` in the range `{text}` is not a whole number from 0 on"))
                .hint("first:step:last:times, as in \"1:1:100:1\"")
        })
    };
    let range = Range { first: whole(first)?, step: whole(step)?, last: whole(last)?, times: whole(times)? };
    let is_good = range.step > 0 && range.times > 0 && range.first <= range.last;
    let length = if is_good { ((range.last - range.first) / range.step + 1).saturating_mul(range.times) } else { 0 };
    match (1..=RANGE_MAX).contains(&length) {
        true => Ok(Some(range)),
        false => Err(Error::invalid(format!("the range `{text}` has no or too many numbers"))
            .hint("first:step:last:times, the step and the times from 1 on, the last not less than the first")),
    }
}

/// Each number as often as `times` says, then the next.
fn range_cells(range: Range, cell: DataType) -> Result<Vec<u8>> {
    let mut cells = vec![];
    let mut number = range.first;
    while number <= range.last {
        let mut one = vec![];
        push(&mut one, cell, &Node::Int(number as i64))?;
        for _ in 0..range.times {
            cells.extend_from_slice(&one);
        }
        number += range.step;
    }
    Ok(cells)
}

fn check_new(session: &Session, name: &str) -> Result<()> {
    session.create_container(DATASETS, Create::IfMissing)?;
    if exists(session, &path_of(name))? {
        return Err(Error::new(Kind::Exists, format!("there is a dataset `{name}` already"))
            .hint(format!("drop_dataset(\"{name}\"), or another name")));
    }
    Ok(())
}

/// An array for so many elements, which is no dataset before it is tagged.
fn array_for(session: &Session, name: &str, element: ElementType, bytes: u64) -> Result<(Array, u64)> {
    check_new(session, name)?;
    let size = element.cell.size() as u64 * element.components as u64;
    let length = bytes / size;
    if bytes == 0 || !bytes.is_multiple_of(size) {
        return Err(Error::invalid(format!(
            "{bytes} bytes are no elements of type {}, of {size} bytes each",
            element.text()
        )));
    }
    let spec = match element.components {
        1 => ArraySpec::new(element.cell, &[length]).dimensions(&["element"]),
        count => ArraySpec::new(element.cell, &[length, count as u64]).dimensions(&["element", "component"]),
    };
    Ok((session.create_array(&path_of(name), &spec, Create::New)?, length))
}

fn tag(session: &Session, name: &str, element: ElementType) -> Result<()> {
    Ok(session.put_tag(&path_of(name), TAG, TagValue::Text(element.text()))?)
}

/// What `act` does to a new dataset, or nothing of it.
fn or_nothing<T>(session: &Session, name: &str, act: impl FnOnce() -> Result<T>) -> Result<T> {
    act().inspect_err(|_| {
        let _ = session.remove(&path_of(name), false);
    })
}

pub fn store(session: &Session, name: &str, element: ElementType, cells: &[u8]) -> Result<u64> {
    let (array, length) = array_for(session, name, element, cells.len() as u64)?;
    or_nothing(session, name, || {
        array.put(&Region::whole(&array.shape()?)?, cells)?;
        tag(session, name, element)
    })?;
    Ok(length)
}

/// A file of the program that asks.
fn from_client(session: &Session, name: &str, element: ElementType, path: &Path) -> Result<u64> {
    let failed = |error: std::io::Error| {
        let kind = if error.kind() == std::io::ErrorKind::NotFound { Kind::NotFound } else { Kind::System };
        Error::new(kind, format!("can't read {}: {error}", path.display()))
    };
    let mut file = std::fs::File::open(path).map_err(failed)?;
    let bytes = file.metadata().map_err(failed)?.len();
    let (array, length) = array_for(session, name, element, bytes)?;
    or_nothing(session, name, || {
        let size = element.cell.size() * element.components as usize;
        let chunk = (CHUNK_BYTES / size).max(1);
        let mut cells = vec![0; chunk.min(length as usize) * size];
        let mut first = 0;
        while first < length {
            let count = (chunk as u64).min(length - first);
            let cells = &mut cells[..count as usize * size];
            file.read_exact(cells).map_err(failed)?;
            let region = match element.components {
                1 => Region::block(&[first], &[count])?,
                components => Region::block(&[first, 0], &[count, components as u64])?,
            };
            array.put(&region, cells)?;
            first += count;
        }
        tag(session, name, element)
    })?;
    Ok(length)
}

/// A file below the root, taken where it lies.
fn in_storage(session: &Session, name: &str, element: ElementType, text: &str) -> Result<u64> {
    let file = below_root(session, text)?;
    let found = session.stat(&file)?;
    if found.kind != ObjectKind::Bytes {
        return Err(Error::new(Kind::WrongKind, format!("`{file}` is not a file of bytes")));
    }
    let size = element.cell.size() as u64 * element.components as u64;
    if found.bytes == 0 || found.bytes % size != 0 {
        return Err(Error::invalid(format!(
            "{} bytes of `{file}` are no elements of type {}, of {size} bytes each",
            found.bytes,
            element.text()
        )));
    }
    check_new(session, name)?;
    session.create_bytes(&path_of(name), Create::New)?.close()?;
    or_nothing(session, name, || {
        let tags = vec![(FILE.into(), TagValue::Text(file)), (TAG.into(), TagValue::Text(element.text()))];
        Ok(session.put_tags(&path_of(name), tags)?)
    })?;
    Ok(found.bytes / size)
}

/// `drop_dataset("d")`
pub fn drop(session: &Session, name: &str) -> Result<String> {
    let found = Dataset::open(session, name);
    match found {
        Err(error) if error.kind == Kind::NotFound && !error.message.contains("there is no dataset") => {} // its file is gone
        found => std::mem::drop(found?),
    }
    session.remove(&path_of(name), false)?;
    Ok(format!("dataset {name} dropped"))
}

/// Names of all datasets.
pub fn names(session: &Session) -> Result<Vec<String>> {
    let entries = match session.list(DATASETS) {
        Ok(entries) => entries,
        Err(error) if error.kind == Kind::NotFound => return Ok(vec![]),
        Err(error) => return Err(error.into()),
    };
    let mut names = vec![];
    for entry in entries {
        if session.get_tag(&path_of(&entry.name), TAG)?.is_some() {
            names.push(entry.name);
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_repeats_each_number() {
        let found = range("0:2:4:2").unwrap().unwrap();
        let cells = range_cells(found, DataType::Int16).unwrap();
        let numbers: Vec<i16> = cells.chunks_exact(2).map(|cell| i16::from_le_bytes([cell[0], cell[1]])).collect();
        assert_eq!(numbers, [0, 0, 2, 2, 4, 4]);
        assert_eq!(range("/a/file").unwrap(), None);
        for wrong in ["1:0:3:1", "3:1:1:1", "1:1:3:0", "-1:1:3:1", "0:1:9223372036854775807:9"] {
            assert!(range(wrong).is_err(), "{wrong}");
        }
        assert!(range_cells(range("0:1:300:1").unwrap().unwrap(), DataType::Int8).is_err());
    }
}
