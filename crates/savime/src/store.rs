//! `store`: a result as a TAR.

use crate::elements::Number;
use crate::query::relation;
use crate::relation::Domain;
use crate::rows::{Cells, Side, in_box, packed};
use crate::syntax::{Node, name_of};
use crate::tar::{Attribute, Coordinates, Definition, Dimension, array_of_cells};
use terrace_analysis::front_end::subtars::{self, PRESENT, Specification, SubTar};
use terrace_analysis::{Axis, Error, Queries, Result};
use terrace_client::{ArraySpec, Create, DataType};

pub async fn store(queries: &Queries, arguments: &[Node]) -> Result<String> {
    let [query, name] = arguments else {
        return Err(Error::invalid("`store` takes a query and a name").hint("store(q, \"name\")"));
    };
    let name = name_of(name)?;
    let cells = Cells::of(&relation(queries, query)?).await?;
    let session = &queries.objects().session;
    let definition = Definition {
        name: name.into(),
        type_name: None,
        dimensions: cells.dimensions.iter().map(dimension).collect::<Result<_>>()?,
        attributes: cells
            .attributes
            .iter()
            .map(|values| Attribute { name: values.name.clone(), cell: values.cell, components: 1 })
            .collect(),
        roles: vec![],
    };
    let places = cells.places()?;
    definition.create(session)?;
    let filled = || -> Result<()> {
        if cells.rows == 0 {
            return Ok(());
        }
        let bounds = cells.dimensions.iter().map(|side| side.range.clone()).collect();
        let specification = if cells.is_whole() { Specification::Ordered } else { Specification::Total };
        let subtar = SubTar { specification, bounds };
        let region = subtar.region()?;
        for values in &cells.attributes {
            let array = session.open_array(&format!("{name}/{}", values.name), true)?;
            array.put(&region, &in_box(values, &places, cells.box_cells()))?;
        }
        if specification == Specification::Total {
            let shape: Vec<u64> = cells.dimensions.iter().map(|side| side.domain.extent()).collect();
            let names: Vec<&str> = cells.dimensions.iter().map(|side| side.name.as_str()).collect();
            let spec = ArraySpec::new(DataType::UInt8, &shape).dimensions(&names);
            let present = session.create_array(&format!("{name}/{PRESENT}"), &spec, Create::New)?;
            let mut there = vec![0u8; cells.box_cells() as usize];
            places.iter().for_each(|&place| there[place] = 1);
            present.put(&region, &there)?;
        }
        let list = subtars::open(session, name, true)?
            .ok_or_else(|| Error::invalid(format!("`{name}` was dropped meanwhile")))?;
        subtars::append(&list, cells.dimensions.len(), 0, &subtar)
    };
    filled().inspect_err(|_| {
        let _ = session.remove(name, true);
    })?;
    Ok(format!("{} cells stored as {name}", cells.rows))
}

fn dimension(side: &Side) -> Result<Dimension> {
    let Domain { axis, range } = &side.domain;
    let count = Some(range.end - range.start);
    let coordinates = match axis {
        Axis::Integer { low, step } if *step > 0 && count > Some(0) => {
            let low = low.wrapping_add(step.wrapping_mul(range.start as i64));
            Coordinates::Implicit { low: Number::Int(low), step: Number::Int(*step), count }
        }
        // From another beginning the sums would not be the same floats.
        Axis::Real { low, step } if *step > 0.0 && range.start == 0 && count > Some(0) => {
            Coordinates::Implicit { low: Number::Real(*low), step: Number::Real(*step), count }
        }
        _ => {
            let (cell, values) = packed(&side.domain.coordinates()?)?;
            // Known to be numbers that can be read again.
            array_of_cells(cell, &values)?;
            Coordinates::Explicit { cell, values }
        }
    };
    Ok(Dimension { name: side.name.clone(), coordinates })
}
