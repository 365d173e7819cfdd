//! `load_subtar`: cells of datasets become cells of a TAR.
//!
//! ```text
//!   specification ─▶ for each dimension: the index of each position ─▶ where all are whole ranges in the TAR's order, a put
//!                 ─▶ else: cells scattered into the box, and a put of that
//!   all attributes ─▶ presence ─▶ the record: now it is there
//! ```

use crate::dataset::Dataset;
use crate::elements::{Number, components, listed};
use crate::relation::Numbers;
use crate::syntax::{Node, name_of};
use crate::tar::Tar;
use std::ops::Range;
use terrace_analysis::front_end::subtars::{self, PRESENT, SUBTARS, Specification, SubTar};
use terrace_analysis::{Axis, Error, Result};
use terrace_client::{Array, ArraySpec, Create, DataType, Kind, LockMode, Region, Session};

/// Bytes of a box that cells are scattered into.
const BOX_BYTES_MAX: u64 = 8 << 30;

/// One dimension of a specification.
struct Side {
    /// Of the TAR.
    dimension: usize,
    specification: Specification,
    bounds: Range<u64>,
    /// Of each position, where it is not a whole range; of `total`: of each cell.
    indexes: Option<Vec<u64>>,
}

impl Side {
    fn positions(&self) -> u64 {
        self.indexes.as_ref().map_or(self.bounds.end - self.bounds.start, |indexes| indexes.len() as u64)
    }
}

pub fn load(session: &Session, arguments: &[Node]) -> Result<String> {
    let [name, specification, attributes] = arguments else {
        return Err(Error::invalid("`load_subtar` takes a TAR's name, where the cells lie, and their datasets")
            .hint("load_subtar(\"tar\", \"ordered,x,0,99 | ordered,y,0,9\", \"v,dataset\")"));
    };
    let (name, specification, attributes) = (name_of(name)?, name_of(specification)?, name_of(attributes)?);
    let tar = Tar::open(session, name, true)?;
    let list = subtars::open(session, name, true)?.ok_or_else(|| {
        Error::invalid(format!("`{name}` was not made by create_tar: its arrays are put to as objects"))
    })?;
    let sides = sides(session, &tar, specification)?;
    let cells = match sides[0].specification {
        Specification::Total => sides[0].positions(),
        _ => sides.iter().try_fold(1u64, |cells, side| cells.checked_mul(side.positions())).unwrap_or(u64::MAX),
    };
    let mut bounds = vec![0..0; tar.rank()];
    sides.iter().for_each(|side| bounds[side.dimension] = side.bounds.clone());
    let worst = |worst, side: &Side| match (worst, side.specification) {
        (Specification::Total, _) | (_, Specification::Total) => Specification::Total,
        (Specification::Partial, _) | (_, Specification::Partial) => Specification::Partial,
        _ => Specification::Ordered,
    };
    let subtar = SubTar { specification: sides.iter().fold(Specification::Ordered, worst), bounds };
    let sources = sources(session, &tar, attributes)?;

    // Whoever loads into this TAR does it alone, from the look for overlaps on.
    let _alone = list.lock(&Region::block(&[0], &[1])?, LockMode::Write, None)?;
    let known = subtars::read(&list, tar.rank())?;
    if let Some(other) = known.iter().find(|other| other.overlaps(&subtar)) {
        return Err(Error::new(
            Kind::Exists,
            format!("the subTAR overlaps one that `{name}` has: {}", shown(&tar, other)),
        ));
    }
    for (attribute, dataset) in &sources {
        load_attribute(&tar, attribute, dataset, &sides, &subtar, cells)?;
    }
    let is_whole = known.iter().chain([&subtar]).all(|subtar| subtar.specification == Specification::Ordered);
    if !is_whole {
        say_present(session, &tar, &known, &sides, &subtar, cells)?;
    }
    subtars::append(&list, tar.rank(), known.len(), &subtar)?;
    Ok(format!("{cells} cells loaded into {name}: {}", shown(&tar, &subtar)))
}

fn shown(tar: &Tar, subtar: &SubTar) -> String {
    let sides = tar.dimensions.iter().zip(&subtar.bounds);
    sides.map(|(name, range)| format!("{name} {} to {}", range.start, range.end - 1)).collect::<Vec<_>>().join(", ")
}

fn sides(session: &Session, tar: &Tar, text: &str) -> Result<Vec<Side>> {
    let usage =
        "KIND,dimension,first,last[,dataset] for each dimension, with `|` between; KIND: ordered, partial or total";
    let mut sides: Vec<Side> = vec![];
    for part in listed(text) {
        let (kind, name, first, last, dataset) = match part[..] {
            [kind, name, first, last] => (kind, name, first, last, None),
            [kind, name, first, last, dataset] => (kind, name, first, last, Some(dataset)),
            _ => return Err(Error::invalid(format!("`{}` does not say where cells lie", part.join(","))).hint(usage)),
        };
        let specification = match kind.to_ascii_lowercase().as_str() {
            "ordered" => Specification::Ordered,
            "partial" => Specification::Partial,
            "total" => Specification::Total,
            _ => return Err(Error::invalid(format!("`{kind}` is no way for cells to lie")).hint(usage)),
        };
        let dimension = tar.dimensions.iter().position(|known| known == name).ok_or_else(|| {
            Error::new(Kind::NotFound, format!("`{}` has no dimension `{name}`", tar.name))
                .hint(format!("it has {}", tar.dimensions.join(", ")))
        })?;
        if sides.iter().any(|side| side.dimension == dimension) {
            return Err(Error::invalid(format!("the dimension `{name}` is there twice")));
        }
        let axis = tar.axis(session, dimension)?;
        let extent = tar.extent(dimension)?;
        let (first, last) = (index(&axis, extent, name, first)?, index(&axis, extent, name, last)?);
        if first > last {
            return Err(Error::invalid(format!("`{name}` would go from {first} to {last}")));
        }
        let indexes = match (specification, dataset) {
            (Specification::Ordered, None) => None,
            (Specification::Ordered, Some(_)) => {
                return Err(Error::invalid(format!(
                    "`ordered,{name}` takes no dataset: its coordinates are all there"
                )));
            }
            (_, None) => {
                return Err(Error::invalid(format!("`{kind},{name}` needs the dataset of its coordinates")).hint(usage));
            }
            (_, Some(dataset)) => Some(indexes(session, &axis, extent, name, dataset, first..last + 1)?),
        };
        sides.push(Side { dimension, specification, bounds: first..last + 1, indexes });
    }
    if let Some(missing) = (0..tar.rank()).find(|d| !sides.iter().any(|side| side.dimension == *d)) {
        return Err(
            Error::invalid(format!("nothing is said about the dimension `{}`", tar.dimensions[missing])).hint(usage)
        );
    }
    let totals = sides.iter().filter(|side| side.specification == Specification::Total).count();
    if totals > 0 && totals < sides.len() {
        return Err(Error::invalid("one dimension is `total`: then all are, with a coordinate for each cell"));
    }
    if totals > 0 && sides.iter().any(|side| side.positions() != sides[0].positions()) {
        return Err(Error::invalid("the dimensions' datasets of a `total` subTAR have different lengths"));
    }
    if let Some(side) = sides.iter().find(|side| side.specification == Specification::Partial) {
        let mut seen = side.indexes.clone().unwrap_or_default();
        seen.sort_unstable();
        if seen.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err(Error::invalid(format!("a coordinate of `{}` is there twice", tar.dimensions[side.dimension])));
        }
    }
    Ok(sides)
}

fn outside(name: &str, shown: &str, extent: Option<u64>) -> Error {
    let ends = extent.map_or("without an end".to_owned(), |extent| format!("with {extent} coordinates"));
    Error::new(Kind::OutOfBounds, format!("{shown} is not in the dimension `{name}`, {ends}"))
}

/// An index, or `#` and a coordinate.
fn index(axis: &Axis, extent: Option<u64>, name: &str, text: &str) -> Result<u64> {
    if let Some(logical) = text.strip_prefix('#') {
        let found = indexes_of(axis, extent, &[Number::parse(logical)?])?;
        return found[0].ok_or_else(|| outside(name, &format!("the coordinate {logical}"), extent));
    }
    let index = text.parse::<u64>().map_err(|_| {
        Error::invalid(format!("`{text}` is not an index of `{name}`")).hint("an index from 0 on, or #coordinate")
    })?;
    match extent.is_none_or(|extent| index < extent) && index < 1 << 62 {
        true => Ok(index),
        false => Err(outside(name, &format!("the index {index}"), extent)),
    }
}

/// Indexes that a dataset says: by coordinates where the dimension is implicit, else by themselves.
fn indexes(
    session: &Session,
    axis: &Axis,
    extent: Option<u64>,
    name: &str,
    dataset: &str,
    bounds: Range<u64>,
) -> Result<Vec<u64>> {
    let dataset = Dataset::open(session, dataset)?;
    let numbers = dataset.numbers(dataset.length)?;
    let found = match axis {
        Axis::Explicit(_) => numbers
            .iter()
            .map(|number| match number {
                Number::Int(index) => Ok(u64::try_from(*index).ok()),
                Number::Real(_) => {
                    Err(Error::invalid(format!("`{}` has no whole numbers, and `{name}` is explicit", dataset.name))
                        .hint("coordinates of explicit dimensions are given by their indexes, as long"))
                }
            })
            .collect::<Result<Vec<_>>>()?,
        axis => indexes_of(axis, extent, &numbers)?,
    };
    found
        .into_iter()
        .zip(&numbers)
        .map(|(index, number)| match index.filter(|index| bounds.contains(index)) {
            Some(index) => Ok(index),
            None => Err(Error::new(
                Kind::OutOfBounds,
                format!("{number} of `{}` is no coordinate of `{name}` within its bounds", dataset.name),
            )),
        })
        .collect()
}

/// Which index each coordinate has.
pub fn indexes_of(axis: &Axis, extent: Option<u64>, numbers: &[Number]) -> Result<Vec<Option<u64>>> {
    let within = |index: i128| u64::try_from(index).ok().filter(|&index| extent.is_none_or(|extent| index < extent));
    Ok(match axis {
        Axis::Integer { low, step } => numbers
            .iter()
            .map(|number| {
                let value = match number {
                    Number::Int(whole) => *whole as i128,
                    Number::Real(real) if real.fract() == 0.0 && real.abs() < 9e18 => *real as i128,
                    Number::Real(_) => return None,
                };
                let distance = value - *low as i128;
                if *step == 0 {
                    return (distance == 0).then_some(0);
                }
                (distance % *step as i128 == 0).then(|| within(distance / *step as i128)).flatten()
            })
            .collect(),
        Axis::Real { low, step } => numbers
            .iter()
            .map(|number| {
                let value = number.real();
                let near = ((value - low) / step).round();
                // The nearest coordinate, as far as it was computed by another way.
                let is_it = near >= 0.0 && ((low + step * near) - value).abs() <= step.abs() * 1e-6;
                if is_it { within(near as i128) } else { None }
            })
            .collect(),
        Axis::Explicit(values) => match Numbers::of(values)? {
            Numbers::Ints(values) => {
                let known: std::collections::HashMap<i64, u64> =
                    values.values().iter().enumerate().rev().map(|(index, value)| (*value, index as u64)).collect();
                let of = |number: &Number| match number {
                    Number::Int(whole) => known.get(whole).copied(),
                    Number::Real(real) if real.fract() == 0.0 => known.get(&(*real as i64)).copied(),
                    Number::Real(_) => None,
                };
                numbers.iter().map(of).collect()
            }
            Numbers::Reals(values) => {
                let known: std::collections::HashMap<u64, u64> = values
                    .values()
                    .iter()
                    .enumerate()
                    .rev()
                    .map(|(index, value)| (value.to_bits(), index as u64))
                    .collect();
                // A decimal is of the type that the coordinates have.
                let is_single = axis.data_type() == arrow::datatypes::DataType::Float32;
                let of = |number: &Number| if is_single { number.real() as f32 as f64 } else { number.real() };
                numbers.iter().map(|number| known.get(&of(number).to_bits()).copied()).collect()
            }
        },
    })
}

/// The dataset of each attribute.
fn sources(session: &Session, tar: &Tar, text: &str) -> Result<Vec<(String, Dataset)>> {
    let mut sources: Vec<(String, Dataset)> = vec![];
    let mut served = vec![];
    for part in listed(text) {
        let [attribute, dataset] = part[..] else {
            return Err(Error::invalid(format!("`{}` is not an attribute and its dataset", part.join(",")))
                .hint("v,dataset | w,dataset"));
        };
        let dataset = Dataset::open(session, dataset)?;
        for name in components(attribute, dataset.element.components) {
            let (_, array) = tar.arrays.iter().find(|(known, _)| *known == name).ok_or_else(|| {
                let names: Vec<&str> = tar.arrays.iter().map(|(name, _)| name.as_str()).collect();
                Error::new(Kind::NotFound, format!("`{}` has no attribute `{name}`", tar.name)).hint(format!(
                    "it has {}; the dataset `{}` is of {}",
                    names.join(", "),
                    dataset.name,
                    dataset.element.text()
                ))
            })?;
            if array.spec().data_type != dataset.element.cell {
                return Err(Error::invalid(format!(
                    "the attribute `{name}` is of type {}, the dataset `{}` of {}",
                    crate::elements::name_of(array.spec().data_type),
                    dataset.name,
                    crate::elements::name_of(dataset.element.cell)
                )));
            }
            served.push(name);
        }
        sources.push((attribute.into(), dataset));
    }
    match tar.arrays.iter().find(|(name, _)| served.iter().filter(|served| *served == name).count() != 1) {
        None => Ok(sources),
        Some((name, _)) => Err(Error::invalid(format!("the attribute `{name}` has not one dataset"))
            .hint("each attribute of a subTAR is loaded once, so that its cells are whole")),
    }
}

/// Calls `act(place in the box)` for each cell of the subTAR, in the order of the datasets.
fn for_each_place(tar: &Tar, sides: &[Side], subtar: &SubTar, cells: u64, mut act: impl FnMut(usize)) {
    let mut strides = vec![0u64; tar.rank()];
    let mut stride = 1;
    for d in (0..tar.rank()).rev() {
        strides[d] = stride;
        stride *= subtar.bounds[d].end - subtar.bounds[d].start;
    }
    let place = |side: &Side, position: u64| {
        let index = side.indexes.as_ref().map_or(side.bounds.start + position, |indexes| indexes[position as usize]);
        (index - side.bounds.start) * strides[side.dimension]
    };
    if subtar.specification == Specification::Total {
        for cell in 0..cells {
            act(sides.iter().map(|side| place(side, cell)).sum::<u64>() as usize);
        }
        return;
    }
    // The first listed dimension is the slowest.
    let mut positions = vec![0u64; sides.len()];
    let mut at: Vec<u64> = sides.iter().map(|side| place(side, 0)).collect();
    for _ in 0..cells {
        act(at.iter().sum::<u64>() as usize);
        for side in (0..sides.len()).rev() {
            positions[side] += 1;
            if positions[side] < sides[side].positions() {
                at[side] = place(&sides[side], positions[side]);
                break;
            }
            positions[side] = 0;
            at[side] = place(&sides[side], 0);
        }
    }
}

fn load_attribute(
    tar: &Tar,
    attribute: &str,
    dataset: &Dataset,
    sides: &[Side],
    subtar: &SubTar,
    cells: u64,
) -> Result<()> {
    let region = subtar.region()?;
    let size = dataset.element.cell.size();
    let count = dataset.element.components;
    let is_in_order = subtar.specification == Specification::Ordered
        && sides.iter().enumerate().all(|(number, side)| number == side.dimension);
    let array = |name: &str| -> &Array {
        &tar.arrays.iter().find(|(known, _)| known == name).expect("looked up when the datasets were").1
    };
    if !is_in_order || count > 1 {
        let bytes = subtar.cells().saturating_mul(size as u64);
        if bytes > BOX_BYTES_MAX {
            return Err(Error::new(
                Kind::NoSpace,
                format!("the box around the cells of `{attribute}` has {bytes} bytes: at most {BOX_BYTES_MAX}"),
            )
            .hint("load it in several subTARs"));
        }
    }
    dataset.with_cells(cells, |values| {
        if is_in_order && count == 1 {
            return Ok(array(attribute).put(&region, values)?);
        }
        for (component, name) in components(attribute, count).iter().enumerate() {
            let mut cells_of_box = vec![0u8; subtar.cells() as usize * size];
            let mut number = component;
            for_each_place(tar, sides, subtar, cells, |place| {
                cells_of_box[place * size..(place + 1) * size]
                    .copy_from_slice(&values[number * size..(number + 1) * size]);
                number += count as usize;
            });
            array(name).put(&region, &cells_of_box)?;
        }
        Ok(())
    })
}

/// Which cells there are, where the boxes of subTARs don't say it.
fn say_present(
    session: &Session,
    tar: &Tar,
    known: &[SubTar],
    sides: &[Side],
    subtar: &SubTar,
    cells: u64,
) -> Result<()> {
    let mut shape = vec![];
    for d in 0..tar.rank() {
        shape.push(tar.extent(d)?);
    }
    let names: Vec<&str> = tar.dimensions.iter().map(String::as_str).collect();
    let extents: Vec<u64> = shape.iter().map(|extent| extent.unwrap_or(0)).collect();
    let mut spec = ArraySpec::new(DataType::UInt8, &extents).dimensions(&names);
    for (d, _) in shape.iter().enumerate().filter(|(_, extent)| extent.is_none()) {
        spec = spec.unlimited(d);
    }
    let array = session.create_array(&format!("{}/{PRESENT}", tar.name), &spec, Create::IfMissing)?;
    if known.iter().all(|known| known.specification == Specification::Ordered) {
        for known in known {
            array.put(&known.region()?, &vec![1; known.cells() as usize])?;
        }
    }
    let mut present = vec![0u8; subtar.cells() as usize];
    let mut is_twice = false;
    for_each_place(tar, sides, subtar, cells, |place| {
        is_twice |= present[place] == 1;
        present[place] = 1;
    });
    match is_twice {
        true => Err(Error::invalid(format!(
            "a cell of the subTAR is there twice, so nothing of it was loaded into `{}` ({SUBTARS})",
            tar.name
        ))),
        false => Ok(array.put(&subtar.region()?, &present)?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn a_decimal_names_the_coordinate_that_was_put_as_it() {
        let single = Axis::Explicit(Arc::new(arrow::array::Float32Array::from(vec![1.5f32, 4.7, 0.1])));
        let double = Axis::Explicit(Arc::new(arrow::array::Float64Array::from(vec![1.5, 4.7, 0.1])));
        let named = |axis: &Axis, text: &str| indexes_of(axis, Some(3), &[Number::parse(text).unwrap()]).unwrap()[0];
        for axis in [single, double] {
            assert_eq!([named(&axis, "1.5"), named(&axis, "4.7"), named(&axis, "0.1")], [Some(0), Some(1), Some(2)]);
            assert_eq!([named(&axis, "4.6"), named(&axis, "4.70001")], [None, None]);
        }
    }
}
