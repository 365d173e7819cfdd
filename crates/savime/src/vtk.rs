//! `catalyze`: fields as VTK files, which ParaView and others read. Roles say what is an axis of space and what is time.
//!
//! ```text
//!   x, y, z ranges ─▶ image data (.vti)     x, y, z with coordinates of their own ─▶ rectilinear grid (.vtr)
//!   index, a geometry and a topology ─▶ unstructured grid (.vtu)
//!   one file for each simulation and time; `NAME.pvd` lists them with their times
//! ```
//!
//! Written by hand: VTK's XML form is a header and raw little-endian arrays behind it, and no kept crate writes it.

use crate::elements::Number;
use crate::files::Place;
use crate::query::relation;
use crate::rows::{Cells, Side, Values, in_box};
use crate::syntax::{Node, name_of};
use std::collections::BTreeMap;
use std::fmt::Write;
use terrace_analysis::{Axis, Error, Queries, Result};
use terrace_client::DataType;

const USAGE: &str = "catalyze(field, \"directory\"), catalyze(field, geometry, topology, \"directory\")";
const SPACE: [&str; 3] = ["x", "y", "z"];

pub async fn catalyze(queries: &Queries, arguments: &[Node]) -> Result<String> {
    let is_path = |node: &&Node| matches!(node, Node::Text(_));
    let (inputs, texts): (Vec<&Node>, Vec<&Node>) = match arguments.iter().rposition(|node| !is_path(&node)) {
        Some(last) => (arguments[..=last].iter().collect(), arguments[last + 1..].iter().collect()),
        // All are texts: the first is the field's name.
        None if arguments.len() >= 2 => (arguments[..1].iter().collect(), arguments[1..].iter().collect()),
        None => return Err(Error::invalid("`catalyze` takes a field and a directory").hint(USAGE)),
    };
    let directory = match texts[..] {
        [directory] => name_of(directory)?,
        [_, _] => {
            return Err(Error::invalid("`catalyze` runs no Catalyst script: it writes files")
                .hint("leave the script out, and run it on the files that are written"));
        }
        _ => return Err(Error::invalid("`catalyze` takes a field and a directory").hint(USAGE)),
    };
    let session = &queries.objects().session;
    let directory = Place::of(session, directory)?;
    let name = field_name(inputs[0]);
    let field = Cells::of(&relation(queries, inputs[0])?).await?;
    let mesh = match inputs[1..] {
        [] => None,
        [geometry, topology] => Some(Mesh::of(
            &Cells::of(&relation(queries, geometry)?).await?,
            &Cells::of(&relation(queries, topology)?).await?,
        )?),
        _ => return Err(Error::invalid("an unstructured field needs a geometry and a topology").hint(USAGE)),
    };
    directory.create_directory()?;
    let pieces = Pieces::of(&field, mesh.is_some())?;
    let places = field.places()?;
    let boxes: Vec<Vec<u8>> =
        field.attributes.iter().map(|values| in_box(values, &places, field.box_cells())).collect();
    let mut there = vec![0u8; field.box_cells() as usize];
    places.iter().for_each(|&place| there[place] = 1);
    let mut collection = String::from(
        "<?xml version=\"1.0\"?>\n<VTKFile type=\"Collection\" version=\"1.0\" byte_order=\"LittleEndian\">\n<Collection>\n",
    );
    let frames = pieces.frames(&field);
    for frame in &frames {
        let file = match &mesh {
            Some(mesh) => unstructured(&field, &pieces, frame, &boxes, &there, mesh)?,
            None => structured(&field, &pieces, frame, &boxes, &there)?,
        };
        let file_name = format!("{name}{}.{}", frame.suffix, file.extension);
        directory.inside(&file_name).write(&[&file.bytes])?;
        // Writing to a string does not fail.
        let _ = writeln!(
            collection,
            "<DataSet timestep=\"{}\" group=\"{}\" part=\"0\" file=\"{file_name}\"/>",
            frame.time, frame.simulation
        );
    }
    collection += "</Collection>\n</VTKFile>\n";
    directory.inside(&format!("{name}.pvd")).write(&[collection.as_bytes()])?;
    Ok(format!("{} files and {name}.pvd written into {}", frames.len(), directory.text()))
}

/// The last part of a TAR's name; of a query, `field`.
fn field_name(node: &Node) -> String {
    match node {
        Node::Name(name) | Node::Text(name) => name.rsplit('/').next().unwrap_or(name).to_owned(),
        _ => "field".to_owned(),
    }
}

/// What the type says, or else an element that is called as a role is.
fn role<'a>(name: &'a str, role: &'a Option<String>) -> &'a str {
    role.as_deref().unwrap_or(name)
}

/// Which dimension of the field is what.
struct Pieces {
    time: Option<usize>,
    simulation: Option<usize>,
    /// x, y and z; or the index of an unstructured field.
    space: Vec<usize>,
}

/// One file's part of the field.
struct Frame {
    /// Index in the box of the dimensions that are not of space.
    at: Vec<(usize, u64)>,
    suffix: String,
    time: String,
    simulation: String,
}

impl Pieces {
    fn of(field: &Cells, is_unstructured: bool) -> Result<Pieces> {
        let find = |wanted: &str| field.dimensions.iter().position(|side| role(&side.name, &side.role) == wanted);
        let (time, simulation) = (find("time"), find("simulation"));
        let space: Vec<usize> = match is_unstructured {
            true => find("index").into_iter().collect(),
            false => SPACE.iter().filter_map(|name| find(name)).collect(),
        };
        if space.is_empty() {
            let wanted = if is_unstructured { "index" } else { "x, y or z" };
            return Err(Error::invalid(format!("no dimension of the field has the role {wanted}"))
                .hint("give the TAR a type and roles, as CartesianFieldData3d, or call its dimensions so"));
        }
        let other =
            (0..field.dimensions.len()).find(|d| !space.contains(d) && time != Some(*d) && simulation != Some(*d));
        if let Some(other) = other {
            return Err(Error::invalid(format!(
                "the dimension `{}` has no role in a picture",
                field.dimensions[other].name
            ))
            .hint("slice(t, dimension, coordinate) takes it away, aggregate does too"));
        }
        Ok(Pieces { time, simulation, space })
    }

    fn frames(&self, field: &Cells) -> Vec<Frame> {
        let extent =
            |d: Option<usize>| d.map_or(1, |d| field.dimensions[d].range.end - field.dimensions[d].range.start);
        let mut frames = vec![];
        for simulation in 0..extent(self.simulation) {
            for time in 0..extent(self.time) {
                let (mut at, mut suffix) = (vec![], String::new());
                let mut shown = |d: Option<usize>, index: u64, letter: &str| match d {
                    None => "0".to_owned(),
                    Some(d) => {
                        at.push((d, index));
                        suffix += &format!("_{letter}{index:06}");
                        coordinate(&field.dimensions[d], index)
                    }
                };
                let simulation = shown(self.simulation, simulation, "s");
                let time = shown(self.time, time, "t");
                frames.push(Frame { at, suffix, time, simulation });
            }
        }
        frames
    }

    /// Calls `act(place in the box)` for each point of a frame, x fastest.
    fn for_each_point(&self, field: &Cells, frame: &Frame, mut act: impl FnMut(usize)) {
        let mut strides = vec![1usize; field.dimensions.len()];
        for d in (1..field.dimensions.len()).rev() {
            strides[d - 1] = strides[d] * extent_of(&field.dimensions[d]);
        }
        let first: usize = frame.at.iter().map(|&(d, index)| index as usize * strides[d]).sum();
        let side =
            |number: usize| self.space.get(number).map_or((1, 0), |&d| (extent_of(&field.dimensions[d]), strides[d]));
        let ((nx, sx), (ny, sy), (nz, sz)) = (side(0), side(1), side(2));
        for z in 0..nz {
            for y in 0..ny {
                for x in 0..nx {
                    act(first + x * sx + y * sy + z * sz);
                }
            }
        }
    }
}

fn extent_of(side: &Side) -> usize {
    (side.range.end - side.range.start) as usize
}

fn real_coordinates(side: &Side) -> Result<Vec<f64>> {
    use crate::relation::Numbers;
    let start = side.domain.range.start;
    let values = side.domain.axis.values(start + side.range.start..start + side.range.end);
    Ok(match Numbers::of(&values)? {
        Numbers::Ints(values) => values.values().iter().map(|&value| value as f64).collect(),
        Numbers::Reals(values) => values.values().to_vec(),
    })
}

fn coordinate(side: &Side, index: u64) -> String {
    let at = side.domain.range.start + side.range.start + index;
    match side.domain.axis {
        Axis::Integer { low, step } => Number::Int(low.wrapping_add(step.wrapping_mul(at as i64))).to_string(),
        Axis::Real { low, step } => Number::Real(low + step * at as f64).to_string(),
        Axis::Explicit(_) => real_coordinates(side)
            .ok()
            .and_then(|values| values.get(index as usize).map(|value| format!("{value:?}")))
            .unwrap_or_default(),
    }
}

struct File {
    extension: &'static str,
    bytes: Vec<u8>,
}

/// A VTK file: arrays are told of in the header, by where they begin in what follows it.
struct Writer {
    header: String,
    data: Vec<u8>,
}

impl Writer {
    fn new(kind: &str) -> Writer {
        let header = format!(
            "<?xml version=\"1.0\"?>\n<VTKFile type=\"{kind}\" version=\"1.0\" byte_order=\"LittleEndian\" header_type=\"UInt64\">\n"
        );
        Writer { header, data: vec![] }
    }

    fn line(&mut self, text: &str) {
        self.header += text;
        self.header.push('\n');
    }

    fn array(&mut self, name: &str, type_name: &str, components: usize, cells: &[u8]) {
        let name = name.replace('&', "&amp;").replace('<', "&lt;").replace('"', "&quot;");
        let offset = self.data.len();
        self.line(&format!(
            "<DataArray type=\"{type_name}\" Name=\"{name}\" NumberOfComponents=\"{components}\" format=\"appended\" offset=\"{offset}\"/>"
        ));
        self.data.extend((cells.len() as u64).to_le_bytes());
        self.data.extend(cells);
    }

    fn reals(&mut self, name: &str, components: usize, values: impl IntoIterator<Item = f64>) {
        let cells: Vec<u8> = values.into_iter().flat_map(f64::to_le_bytes).collect();
        self.array(name, "Float64", components, &cells);
    }

    fn end(mut self, extension: &'static str) -> File {
        self.header += "<AppendedData encoding=\"raw\">\n_";
        let mut bytes = self.header.into_bytes();
        bytes.append(&mut self.data);
        bytes.extend(b"\n</AppendedData>\n</VTKFile>\n");
        File { extension, bytes }
    }
}

fn vtk_type(cell: DataType) -> Result<&'static str> {
    Ok(match cell {
        DataType::Int8 => "Int8",
        DataType::Int16 => "Int16",
        DataType::Int32 => "Int32",
        DataType::Int64 => "Int64",
        DataType::UInt8 | DataType::Bool => "UInt8",
        DataType::UInt16 => "UInt16",
        DataType::UInt32 => "UInt32",
        DataType::UInt64 => "UInt64",
        DataType::Float32 => "Float32",
        DataType::Float64 => "Float64",
        other => return Err(Error::invalid(format!("VTK has no arrays of type {}", crate::elements::name_of(other)))),
    })
}

/// What a point without a row has: not a number, or zero where the type has no such thing.
fn nothing(cell: DataType) -> Vec<u8> {
    match cell {
        DataType::Float32 => f32::NAN.to_le_bytes().into(),
        DataType::Float64 => f64::NAN.to_le_bytes().into(),
        other => vec![0; other.size()],
    }
}

/// The attributes at each point, vectors together, and which points there are where some are missing.
fn point_data(writer: &mut Writer, attributes: &[Values], points: &[Option<usize>], boxes: &[Vec<u8>]) -> Result<()> {
    writer.line("<PointData>");
    let mut number = 0;
    while number < attributes.len() {
        let first = &attributes[number];
        let vector = first.name.strip_suffix(":0");
        let is_next = |count: usize| {
            let name = vector.map(|vector| format!("{vector}:{count}"));
            attributes
                .get(number + count)
                .is_some_and(|next| Some(&next.name) == name.as_ref() && next.cell == first.cell)
        };
        let count = (1..).find(|&count| !is_next(count)).unwrap_or(1);
        let (size, nothing) = (first.cell.size(), nothing(first.cell));
        let mut cells = Vec::with_capacity(points.len() * count * size);
        for point in points {
            for values in &boxes[number..number + count] {
                cells.extend(point.map_or(nothing.as_slice(), |place| &values[place * size..(place + 1) * size]));
            }
        }
        let name = if count > 1 { vector.unwrap_or(&first.name) } else { &first.name };
        writer.array(name, vtk_type(first.cell)?, count, &cells);
        number += count;
    }
    if points.iter().any(Option::is_none) {
        let mask: Vec<u8> = points.iter().map(|point| point.is_some() as u8).collect();
        writer.array("vtkValidPointMask", "UInt8", 1, &mask);
    }
    writer.line("</PointData>");
    Ok(())
}

fn structured(field: &Cells, pieces: &Pieces, frame: &Frame, boxes: &[Vec<u8>], there: &[u8]) -> Result<File> {
    let side = |number: usize| pieces.space.get(number).map(|&d| &field.dimensions[d]);
    let extents: Vec<String> =
        (0..3).map(|n| format!("0 {}", side(n).map_or(0, |side| extent_of(side).max(1) - 1))).collect();
    let extents = extents.join(" ");
    let is_even = (0..3).all(|number| !matches!(side(number).map(|side| &side.domain.axis), Some(Axis::Explicit(_))));
    let mut points = vec![];
    pieces.for_each_point(field, frame, |place| points.push((there[place] == 1).then_some(place)));
    let mut coordinates = vec![];
    for number in 0..3 {
        coordinates.push(side(number).map_or(Ok(vec![0.0]), real_coordinates)?);
    }
    if is_even {
        let origin: Vec<String> =
            coordinates.iter().map(|values| format!("{:?}", values.first().unwrap_or(&0.0))).collect();
        let spacing = |number: usize| match side(number).map(|side| &side.domain.axis) {
            Some(Axis::Integer { step, .. }) => *step as f64,
            Some(Axis::Real { step, .. }) => *step,
            _ => 1.0,
        };
        let spacing: Vec<String> = (0..3).map(|number| format!("{:?}", spacing(number))).collect();
        let mut writer = Writer::new("ImageData");
        let (origin, spacing) = (origin.join(" "), spacing.join(" "));
        writer.line(&format!("<ImageData WholeExtent=\"{extents}\" Origin=\"{origin}\" Spacing=\"{spacing}\">\n<Piece Extent=\"{extents}\">"));
        point_data(&mut writer, &field.attributes, &points, boxes)?;
        writer.line("</Piece>\n</ImageData>");
        return Ok(writer.end("vti"));
    }
    let mut writer = Writer::new("RectilinearGrid");
    writer.line(&format!("<RectilinearGrid WholeExtent=\"{extents}\">\n<Piece Extent=\"{extents}\">"));
    point_data(&mut writer, &field.attributes, &points, boxes)?;
    writer.line("<Coordinates>");
    for (number, values) in coordinates.into_iter().enumerate() {
        writer.reals(SPACE[number], 1, values);
    }
    writer.line("</Coordinates>\n</Piece>\n</RectilinearGrid>");
    Ok(writer.end("vtr"))
}

/// Points, and cells of points.
struct Mesh {
    /// What the index of each point is, and where it lies.
    points: Vec<(i64, [f64; 3])>,
    /// Numbers of points.
    connectivity: Vec<i64>,
    offsets: Vec<i64>,
    types: Vec<u8>,
}

/// VTK's numbers of linear cells, and how many points each has.
const CELL_TYPES: [(u8, usize); 8] = [(1, 1), (3, 2), (5, 3), (9, 4), (10, 4), (14, 5), (13, 6), (12, 8)];

fn whole(values: &Values, row: usize) -> Result<i64> {
    let size = values.cell.size();
    let array = crate::tar::array_of_cells(values.cell, &values.cells[row * size..(row + 1) * size])?;
    match crate::relation::Numbers::of(&array)? {
        crate::relation::Numbers::Ints(values) => Ok(values.value(0)),
        crate::relation::Numbers::Reals(_) => Err(Error::invalid(format!("`{}` is not of whole numbers", values.name))),
    }
}

fn real(values: &Values) -> Result<Vec<f64>> {
    let array = crate::tar::array_of_cells(values.cell, &values.cells)?;
    Ok(match crate::relation::Numbers::of(&array)? {
        crate::relation::Numbers::Ints(values) => values.values().iter().map(|&value| value as f64).collect(),
        crate::relation::Numbers::Reals(values) => values.values().to_vec(),
    })
}

impl Mesh {
    fn of(geometry: &Cells, topology: &Cells) -> Result<Mesh> {
        let points = points_of(geometry)?;
        let number_of: std::collections::HashMap<i64, i64> =
            points.iter().enumerate().map(|(number, (index, _))| (*index, number as i64)).collect();
        let is_flat = points.iter().all(|(_, place)| place[2] == 0.0);
        let mut mesh = Mesh { points, connectivity: vec![], offsets: vec![], types: vec![] };
        for (type_of_cell, mut indexes) in cells_of(topology)? {
            let told = type_of_cell.and_then(|told| CELL_TYPES.iter().find(|(number, _)| *number as i64 == told));
            // As in VTK's older form, the number of points may come first.
            if let Some((_, count)) = told
                && indexes.len() == count + 1
                && indexes[0] == *count as i64
            {
                indexes.remove(0);
            }
            let (number, count) = match (told, indexes.len()) {
                (Some(known), given) if given >= known.1 => *known,
                (Some(known), given) => {
                    return Err(Error::invalid(format!(
                        "a cell of VTK's type {} has {given} points, not {}",
                        known.0, known.1
                    )));
                }
                (None, 4) => {
                    if is_flat {
                        (9, 4)
                    } else {
                        (10, 4)
                    }
                }
                (None, given) => *CELL_TYPES.iter().find(|(_, count)| *count == given).ok_or_else(|| {
                    Error::invalid(format!("a cell of {given} points is of no type"))
                        .hint("give the topology an attribute with the role celltype")
                })?,
            };
            for index in &indexes[..count] {
                let number = number_of.get(index).ok_or_else(|| {
                    Error::invalid(format!("a cell has the point {index}, which the geometry has not"))
                })?;
                mesh.connectivity.push(*number);
            }
            mesh.offsets.push(mesh.connectivity.len() as i64);
            mesh.types.push(number);
        }
        Ok(mesh)
    }
}

fn points_of(geometry: &Cells) -> Result<Vec<(i64, [f64; 3])>> {
    let index = geometry.dimensions.iter().position(|side| role(&side.name, &side.role) == "index");
    let index = index.ok_or_else(|| Error::invalid("no dimension of the geometry has the role index"))?;
    if geometry.dimensions.len() > 1 {
        return Err(Error::invalid("the geometry has other dimensions than its index").hint("slice(geometry, time, 0)"));
    }
    let by_role = |wanted: &str| geometry.attributes.iter().find(|values| role(&values.name, &values.role) == wanted);
    let component = |number: usize| {
        let of_coordinates =
            |values: &&Values| values.name.rsplit_once(':').is_some_and(|(_, last)| last == number.to_string());
        by_role(SPACE[number]).or_else(|| geometry.attributes.iter().find(of_coordinates))
    };
    let mut axes = vec![];
    for (number, role) in SPACE.iter().enumerate() {
        axes.push(match component(number) {
            Some(values) => real(values)?,
            None if number == 2 => vec![0.0; geometry.rows],
            None => {
                return Err(Error::invalid(format!("no attribute of the geometry has the role {role}"))
                    .hint("roles x, y and z, or coords with a vector"));
            }
        });
    }
    let coordinates = geometry.coordinates_of(index)?;
    Ok((0..geometry.rows).map(|row| (coordinates[row], [axes[0][row], axes[1][row], axes[2][row]])).collect())
}

/// The type, where it is told, and the points' indexes of each cell, in order.
fn cells_of(topology: &Cells) -> Result<Vec<(Option<i64>, Vec<i64>)>> {
    let dimension = |wanted: &str| topology.dimensions.iter().position(|side| role(&side.name, &side.role) == wanted);
    let cell = dimension("incidentee")
        .ok_or_else(|| Error::invalid("no dimension of the topology has the role incidentee"))?;
    let type_of_cell = topology.attributes.iter().find(|values| role(&values.name, &values.role) == "celltype");
    let points: Vec<&Values> = topology
        .attributes
        .iter()
        .filter(|values| type_of_cell.is_none_or(|other| other.name != values.name))
        .collect();
    let order = match (dimension("incident"), topology.dimensions.len()) {
        (None, 1) => None,
        (Some(incident), 2) if points.len() == 1 => Some(topology.coordinates_of(incident)?),
        _ => return Err(Error::invalid("the topology's dimensions are not incidentee, or incidentee and incident")),
    };
    let numbers = topology.coordinates_of(cell)?;
    /// What kind of cell it is, where that is told, and the places and numbers of its points.
    type Known = (Option<i64>, Vec<(i64, i64)>);
    let mut cells: BTreeMap<i64, Known> = BTreeMap::new();
    for row in 0..topology.rows {
        let known = cells.entry(numbers[row]).or_default();
        if let Some(type_of_cell) = type_of_cell {
            known.0 = Some(whole(type_of_cell, row)?);
        }
        for (number, values) in points.iter().enumerate() {
            let place = order.as_ref().map_or(number as i64, |order| order[row]);
            known.1.push((place, whole(values, row)?));
        }
    }
    Ok(cells
        .into_values()
        .map(|(told, mut points)| {
            points.sort_unstable();
            (told, points.into_iter().map(|(_, index)| index).collect())
        })
        .collect())
}

fn unstructured(
    field: &Cells,
    pieces: &Pieces,
    frame: &Frame,
    boxes: &[Vec<u8>],
    there: &[u8],
    mesh: &Mesh,
) -> Result<File> {
    let index = &field.dimensions[pieces.space[0]];
    let mut places = vec![];
    pieces.for_each_point(field, frame, |place| places.push(place));
    let known: std::collections::HashMap<i64, usize> = real_coordinates(index)?
        .iter()
        .map(|&value| value as i64)
        .zip(places)
        .filter(|(_, place)| there[*place] == 1)
        .collect();
    let points: Vec<Option<usize>> = mesh.points.iter().map(|(index, _)| known.get(index).copied()).collect();
    let mut writer = Writer::new("UnstructuredGrid");
    let (count, cells) = (points.len(), mesh.types.len());
    writer.line(&format!("<UnstructuredGrid>\n<Piece NumberOfPoints=\"{count}\" NumberOfCells=\"{cells}\">"));
    point_data(&mut writer, &field.attributes, &points, boxes)?;
    writer.line("<Points>");
    writer.reals("points", 3, mesh.points.iter().flat_map(|(_, place)| *place));
    writer.line("</Points>\n<Cells>");
    let bytes = |values: &[i64]| values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>();
    writer.array("connectivity", "Int64", 1, &bytes(&mesh.connectivity));
    writer.array("offsets", "Int64", 1, &bytes(&mesh.offsets));
    writer.array("types", "UInt8", 1, &mesh.types);
    writer.line("</Cells>\n</Piece>\n</UnstructuredGrid>");
    Ok(writer.end("vtu"))
}
