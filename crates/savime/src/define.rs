//! Definitions: types with their roles, TARs; and what there is.

use crate::dataset::{self, Dataset};
use crate::elements::{ElementType, Number, check_name, components, listed, name_of as type_name_of};
use crate::syntax::{Node, name_of};
use crate::tar::{Attribute, Coordinates, DATASETS, Definition, Dimension, TYPE, Tar, check_tar_name};
use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use std::sync::Arc;
use terrace_analysis::front_end::subtars::{self, PRESENT, RESERVED, SUBTARS};
use terrace_analysis::front_end::walk;
use terrace_analysis::{Axis, Error, Result};
use terrace_client::{DataType, Kind, ObjectKind, Session, TagMatch, TagQuery, TagValue};

/// Tags of the root: `terrace.type.NAME` = "role,*optional role".
const TYPES: &str = "terrace.type.";

#[derive(Clone, Debug, PartialEq)]
pub struct Role {
    pub name: String,
    pub is_optional: bool,
}

/// Types that are there without a definition: those that `catalyze` draws.
const KNOWN_TYPES: [(&str, &str); 7] = [
    ("CartesianFieldData2d", "*simulation,*time,x,y"),
    ("CartesianFieldData3d", "*simulation,*time,x,y,z"),
    ("UnstructuredFieldData", "*simulation,*time,index"),
    ("CartesianGeometry", "*simulation,*time,index,coords"),
    ("CartesianGeometry2d", "*simulation,*time,index,x,y"),
    ("CartesianGeometry3d", "*simulation,*time,index,x,y,z"),
    ("IncidenceTopology", "incidentee,incident,*index,*celltype"),
];

fn roles(text: &str) -> Result<Vec<Role>> {
    let mut roles: Vec<Role> = vec![];
    for part in text.split(',').map(str::trim) {
        let (name, is_optional) = match part.strip_prefix('*') {
            Some(name) => (name.trim(), true),
            None => (part, false),
        };
        let name = check_name("a role", name)?.to_owned();
        if roles.iter().any(|role| role.name == name) {
            return Err(Error::invalid(format!("the role `{name}` is there twice")));
        }
        roles.push(Role { name, is_optional });
    }
    Ok(roles)
}

/// Types that were created, with their roles.
pub fn defined_types(session: &Session) -> Result<Vec<(String, String)>> {
    let mut found: Vec<(String, String)> = vec![];
    for (key, value) in session.tags("")? {
        if let (Some(name), TagValue::Text(roles)) = (key.strip_prefix(TYPES), value) {
            found.push((name.to_owned(), roles));
        }
    }
    Ok(found)
}

pub fn roles_of(session: &Session, name: &str) -> Result<Vec<Role>> {
    if let Some((_, text)) = defined_types(session)?.into_iter().find(|(known, _)| known == name) {
        return roles(&text);
    }
    match KNOWN_TYPES.iter().find(|(known, _)| *known == name) {
        Some((_, text)) => roles(text),
        None => Err(Error::new(Kind::NotFound, format!("there is no type `{name}`"))
            .hint("create_type(\"name(role, *optional role)\"), or \"*\" for no type")),
    }
}

/// `create_type("T(r1,*optional)")`
pub fn create_type(session: &Session, arguments: &[Node]) -> Result<String> {
    const USAGE: &str = "create_type(\"name(role, *optional role)\")";
    let [text] = arguments else { return Err(Error::invalid("`create_type` takes one text").hint(USAGE)) };
    let text = name_of(text)?;
    let inside = text.trim().strip_suffix(')').and_then(|text| text.split_once('('));
    let (name, listed) = inside.ok_or_else(|| Error::invalid(format!("`{text}` defines no type")).hint(USAGE))?;
    let name = check_name("a type", name.trim())?;
    let found = roles(listed)?;
    if defined_types(session)?.iter().any(|(known, _)| known == name) {
        return Err(Error::new(Kind::Exists, format!("there is a type `{name}` already"))
            .hint(format!("drop_type(\"{name}\")")));
    }
    session.put_tag("", &format!("{TYPES}{name}"), TagValue::Text(types_text(&found)))?;
    Ok(format!("type {name}"))
}

fn types_text(roles: &[Role]) -> String {
    let said = roles.iter().map(|role| format!("{}{}", if role.is_optional { "*" } else { "" }, role.name));
    said.collect::<Vec<_>>().join(",")
}

pub fn drop_type(session: &Session, name: &str) -> Result<String> {
    if !defined_types(session)?.iter().any(|(known, _)| known == name) {
        return Err(Error::new(Kind::NotFound, format!("no type `{name}` was created")));
    }
    let query =
        TagQuery { key: TYPE.into(), matches: TagMatch::Exact(TagValue::Text(name.into())), below: String::new() };
    if let Some(user) = session.query(&query)?.first() {
        return Err(Error::new(Kind::Busy, format!("the TAR `{user}` is of type `{name}`")).hint("drop it first"));
    }
    session.delete_tag("", &format!("{TYPES}{name}"))?;
    Ok(format!("type {name} dropped"))
}

/// `create_tar("name","type"|"*",dimensions,attributes[,"element,role,…"])`
pub fn create_tar(session: &Session, arguments: &[Node]) -> Result<String> {
    let texts = arguments.iter().map(name_or_star).collect::<Result<Vec<_>>>()?;
    let (name, type_name, dimensions, attributes, roles) = match texts[..] {
        [name, type_name, dimensions, attributes] => (name, type_name, dimensions, attributes, ""),
        [name, type_name, dimensions, attributes, roles] => (name, type_name, dimensions, attributes, roles),
        _ => {
            return Err(Error::invalid(format!("`create_tar` with {} arguments", texts.len())).hint(
                "create_tar(\"name\", \"type\" or \"*\", \"implicit,x,int,0,99,1 | explicit,y,dataset\", \"v,double\", \"x,role …\")",
            ));
        }
    };
    let name = name.trim();
    check_tar_name(name)?;
    let definition = Definition {
        name: name.into(),
        type_name: (type_name.trim() != "*").then(|| type_name.trim().to_owned()),
        dimensions: listed(dimensions).iter().map(|part| dimension(session, part)).collect::<Result<_>>()?,
        attributes: listed(attributes).iter().map(|part| attribute(part)).collect::<Result<_>>()?,
        roles: bound_roles(roles)?,
    };
    check_roles(session, &definition)?;
    definition.create(session)?;
    Ok(format!("TAR {name}"))
}

fn name_or_star(node: &Node) -> Result<&str> {
    name_of(node).map_err(|_| Error::invalid("`create_tar` takes texts"))
}

fn dimension(session: &Session, parts: &[&str]) -> Result<Dimension> {
    let usage = "implicit,name,type,low,high or *,spacing; or explicit,name,dataset";
    match parts {
        [kind, name, type_name, low, high, step] if kind.eq_ignore_ascii_case("implicit") => {
            let name = check_name("a dimension", name)?.to_owned();
            let element = ElementType::parse(type_name)?;
            let coordinates = implicit(&name, element, low, high, step)?;
            Ok(Dimension { name, coordinates })
        }
        [kind, name, dataset] if kind.eq_ignore_ascii_case("explicit") => {
            let name = check_name("a dimension", name)?.to_owned();
            let dataset = Dataset::open(session, dataset)?;
            if dataset.element.components != 1 || dataset.element.cell.is_text() {
                return Err(Error::invalid(format!("`{}` has no numbers to be coordinates", dataset.name)));
            }
            let values = dataset.with_cells(dataset.length, |cells| Ok(cells.to_vec()))?;
            Ok(Dimension { name, coordinates: Coordinates::Explicit { cell: dataset.element.cell, values } })
        }
        _ => Err(Error::invalid(format!("`{}` is not a dimension", parts.join(","))).hint(usage)),
    }
}

/// How much of a step a range of floats may lack to have its last coordinate.
const STEP_SLACK: f64 = 1e-9;

fn implicit(name: &str, element: ElementType, low: &str, high: &str, step: &str) -> Result<Coordinates> {
    let wrong = |why: &str| Error::invalid(format!("the dimension `{name}` from {low} to {high} by {step}: {why}"));
    if element.components != 1 || element.cell.is_text() {
        return Err(wrong("its type has no numbers"));
    }
    let is_unbounded = high == "*";
    if matches!(element.cell, DataType::Float32 | DataType::Float64) {
        if is_unbounded {
            return Err(wrong("only a dimension of whole numbers can be without an end"));
        }
        let (low, high, step) = (Number::parse(low)?.real(), Number::parse(high)?.real(), Number::parse(step)?.real());
        let count = ((high - low) / step + STEP_SLACK).floor() + 1.0;
        return match step > 0.0 && count >= 1.0 && count < (1u64 << 53) as f64 {
            true => Ok(Coordinates::Implicit {
                low: Number::Real(low),
                step: Number::Real(step),
                count: Some(count as u64),
            }),
            false => Err(wrong("it has no coordinates")),
        };
    }
    let whole = |text: &str| match Number::parse(text)? {
        Number::Int(whole) => Ok(whole),
        Number::Real(_) => Err(wrong("its type has whole numbers only")),
    };
    let (low, step) = (whole(low)?, whole(step)?);
    if step <= 0 {
        return Err(wrong("the spacing is not above 0"));
    }
    let count = match is_unbounded {
        true => None,
        false => {
            let high = whole(high)?;
            let distance = high
                .checked_sub(low)
                .filter(|distance| *distance >= 0)
                .ok_or_else(|| wrong("it has no coordinates"))?;
            Some((distance / step) as u64 + 1)
        }
    };
    Ok(Coordinates::Implicit { low: Number::Int(low), step: Number::Int(step), count })
}

fn attribute(parts: &[&str]) -> Result<Attribute> {
    let [name, type_name] = parts else {
        return Err(Error::invalid(format!("`{}` is not an attribute", parts.join(",")))
            .hint("name,type | name,type:components"));
    };
    let element = ElementType::parse(type_name)?;
    Ok(Attribute { name: check_name("an attribute", name)?.into(), cell: element.cell, components: element.components })
}

/// `"element,role,element,role"`, also with `|` between the pairs.
fn bound_roles(text: &str) -> Result<Vec<(String, String)>> {
    let words: Vec<&str> = text.split([',', '|']).map(str::trim).filter(|word| !word.is_empty()).collect();
    match words.len() % 2 {
        0 => Ok(words.chunks_exact(2).map(|pair| (pair[0].to_owned(), pair[1].to_owned())).collect()),
        _ => Err(Error::invalid(format!("`{text}` does not say an element and a role, again and again"))),
    }
}

fn check_roles(session: &Session, definition: &Definition) -> Result<()> {
    let is_element = |name: &str| {
        definition.dimensions.iter().any(|dimension| dimension.name == name)
            || definition.attributes.iter().any(|attribute| {
                attribute.name == name
                    || components(&attribute.name, attribute.components).iter().any(|part| part == name)
            })
    };
    if let Some((element, _)) = definition.roles.iter().find(|(element, _)| !is_element(element)) {
        return Err(Error::new(
            Kind::NotFound,
            format!("`{}` has no element `{element}` to give a role", definition.name),
        ));
    }
    let Some(type_name) = &definition.type_name else {
        return match definition.roles.first() {
            None => Ok(()),
            Some((_, role)) => {
                Err(Error::invalid(format!("the role `{role}` is of no type")).hint("give the TAR a type"))
            }
        };
    };
    let roles = roles_of(session, type_name)?;
    for (number, (_, role)) in definition.roles.iter().enumerate() {
        if !roles.iter().any(|known| known.name == *role) {
            let known = types_text(&roles);
            return Err(Error::new(Kind::NotFound, format!("the type `{type_name}` has no role `{role}`"))
                .hint(format!("it has {known}")));
        }
        if definition.roles[..number].iter().any(|(_, other)| other == role) {
            return Err(Error::invalid(format!("the role `{role}` is bound twice")));
        }
    }
    let unbound =
        roles.iter().find(|role| !role.is_optional && !definition.roles.iter().any(|(_, bound)| *bound == role.name));
    match unbound {
        None => Ok(()),
        Some(role) => Err(Error::invalid(format!("no element of `{}` has the role `{}`", definition.name, role.name))
            .hint(format!("the type `{type_name}` needs it: add \"element,{}\"", role.name))),
    }
}

/// The TAR's arrays; the container itself stays if something else is in it.
pub fn drop_tar(session: &Session, name: &str) -> Result<String> {
    let tar = Tar::open(session, name, false)?;
    // What makes it a TAR goes last, so that a drop that was interrupted can be done again.
    let mut names: Vec<String> = vec![];
    for entry in session.list(name)? {
        if entry.kind == ObjectKind::Array && !entry.name.starts_with(RESERVED) {
            names.push(entry.name);
        }
    }
    names.extend([PRESENT.to_owned(), SUBTARS.to_owned()]);
    for array in names {
        match session.remove(&format!("{name}/{array}"), false) {
            Err(error) if error.kind != Kind::NotFound => return Err(error.into()),
            _ => {}
        }
    }
    if session.list(name)?.is_empty() {
        session.remove(name, false)?;
    } else {
        for key in tar.tags.keys().filter(|key| key.starts_with(RESERVED)) {
            session.delete_tag(name, key)?;
        }
    }
    Ok(format!("TAR {name} dropped"))
}

/// Names of all TARs: containers with arrays, datasets aside.
pub fn tar_names(session: &Session) -> Result<Vec<String>> {
    let mut names: Vec<String> = vec![];
    for found in walk(session, "")?.iter().filter(|found| found.kind == ObjectKind::Array) {
        if let Some((container, _)) = found.path.rsplit_once('/')
            && container != DATASETS
            && names.last().is_none_or(|last| last != container)
        {
            names.push(container.into());
        }
    }
    names.sort_unstable();
    names.dedup();
    Ok(names)
}

/// The last argument of `create_tar` and those before it, as they would be written.
pub struct Said {
    pub type_name: String,
    /// Of each dimension; of explicit ones without the dataset.
    pub dimensions: Vec<String>,
    pub attributes: Vec<String>,
    pub roles: Vec<String>,
}

pub fn said(session: &Session, tar: &Tar) -> Result<Said> {
    let mut dimensions = vec![];
    for (d, name) in tar.dimensions.iter().enumerate() {
        let extent = tar.extent(d)?;
        dimensions.push(match (tar.axis(session, d)?, extent) {
            (Axis::Integer { low, step }, Some(extent)) => {
                format!("implicit,{name},long,{low},{},{step}", low + (extent as i64 - 1).max(0) * step)
            }
            (Axis::Integer { low, step }, None) => format!("implicit,{name},long,{low},*,{step}"),
            (Axis::Real { low, step }, extent) => {
                let last = low + step * extent.unwrap_or(1).saturating_sub(1) as f64;
                format!("implicit,{name},double,{low:?},{last:?},{step:?}")
            }
            (Axis::Explicit(_), _) => format!("explicit,{name}"),
        });
    }
    let mut attributes: Vec<String> = vec![];
    let mut vectors: Vec<(String, u32, DataType)> = vec![];
    for (name, array) in &tar.arrays {
        let cell = array.spec().data_type;
        let vector = name.rsplit_once(':').filter(|(_, number)| number.parse::<u32>().is_ok());
        match (vector, vectors.last_mut()) {
            (Some((vector, _)), Some(last)) if last.0 == vector => last.1 += 1,
            (Some((vector, _)), _) => vectors.push((vector.into(), 1, cell)),
            (None, _) => attributes.push(format!("{name},{}", type_name_of(cell))),
        }
    }
    attributes.extend(vectors.into_iter().map(|(name, count, cell)| format!("{name},{}:{count}", type_name_of(cell))));
    let roles = tar.tags.iter().filter_map(|(key, value)| match (key.strip_prefix(crate::tar::ROLE), value) {
        (Some(element), TagValue::Text(role)) => Some(format!("{element},{role}")),
        _ => None,
    });
    Ok(Said { type_name: tar.type_name().unwrap_or("*".into()), dimensions, attributes, roles: roles.collect() })
}

/// Types, datasets and TARs as rows.
pub fn show(session: &Session) -> Result<RecordBatch> {
    let mut rows: Vec<[String; 4]> = vec![];
    let mut counts: Vec<Option<i64>> = vec![];
    for (name, roles) in defined_types(session)? {
        rows.push(["type".into(), name, String::new(), roles]);
        counts.push(None);
    }
    for name in dataset::names(session)? {
        match Dataset::open(session, &name) {
            Ok(dataset) => {
                rows.push(["dataset".into(), name, dataset.element.text(), format!("{} elements", dataset.length)]);
            }
            // Dropped meanwhile, or its file was removed.
            Err(error) if error.kind == Kind::NotFound => {
                rows.push(["dataset".into(), name, String::new(), "its file is gone".into()]);
            }
            Err(error) => return Err(error),
        }
        counts.push(None);
    }
    for name in tar_names(session)? {
        let tar = match Tar::open(session, &name, false) {
            Err(error) if error.kind == Kind::NotFound => continue,
            tar => tar?,
        };
        let said = said(session, &tar)?;
        let text = format!("{} || {}", said.dimensions.join(" | "), said.attributes.join(" | "));
        rows.push(["TAR".into(), name.clone(), said.type_name, text]);
        counts.push(match subtars::open(session, &name, false)? {
            Some(list) => Some(subtars::read(&list, tar.rank())?.len() as i64),
            None => None,
        });
    }
    let texts = |column: usize| {
        Arc::new(StringArray::from_iter_values(rows.iter().map(|row| row[column].as_str()))) as ArrayRef
    };
    let mut columns = vec![("kind", texts(0)), ("name", texts(1)), ("type", texts(2)), ("elements", texts(3))];
    columns.push(("subtars", Arc::new(Int64Array::from(counts))));
    Ok(RecordBatch::try_from_iter_with_nullable(
        columns.into_iter().map(|(name, column)| (name, column, name == "subtars")),
    )?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn implicit_dimensions_have_the_coordinates_that_they_say() {
        let count = |type_name: &str, low: &str, high: &str, step: &str| match implicit(
            "x",
            ElementType::parse(type_name).unwrap(),
            low,
            high,
            step,
        ) {
            Ok(Coordinates::Implicit { count, .. }) => Ok(count),
            Ok(_) => unreachable!("it is implicit"),
            Err(error) => Err(error.message),
        };
        assert_eq!(count("int", "1", "100", "1"), Ok(Some(100)));
        assert_eq!(count("int", "0", "9", "2"), Ok(Some(5)));
        assert_eq!(count("long", "0", "*", "1"), Ok(None));
        assert_eq!(count("double", "0", "1", "0.1"), Ok(Some(11)));
        for (type_name, low, high, step) in [
            ("int", "5", "4", "1"),
            ("int", "0", "9", "0"),
            ("int", "0.5", "9", "1"),
            ("double", "0", "*", "1"),
            ("int:2", "0", "1", "1"),
        ] {
            assert!(count(type_name, low, high, step).is_err(), "{type_name} {low} {high} {step}");
        }
    }

    #[test]
    fn roles_are_read_with_the_optional_ones() {
        let found = roles("time, *x,y").unwrap();
        assert_eq!(types_text(&found), "time,*x,y");
        assert!(roles("a,a").is_err() && roles("").is_err() && roles("a b").is_err());
        assert_eq!(bound_roles("x,X | y,Y,z,Z").unwrap().len(), 3);
        assert!(bound_roles("x,X,y").is_err());
    }
}
