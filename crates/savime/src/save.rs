//! `save`: a text of commands that make what there is again, and beside it a file for each dataset and each subTAR's cells.
//!
//! Invariant: the text by itself refers to nothing that it has not made before; so it can be run on an empty root.

use crate::dataset::{self, Dataset};
use crate::define::{self, said};
use crate::elements::components;
use crate::files::Place;
use crate::rows::packed;
use crate::syntax::{Node, name_of};
use crate::tar::Tar;
use std::fmt::Write;
use terrace_analysis::front_end::subtars::{self, PRESENT, Specification, SubTar};
use terrace_analysis::{Axis, Error, Result};
use terrace_client::{Kind, Session};

struct Script<'a> {
    session: &'a Session,
    text: String,
    data: Place<'a>,
    /// Datasets that the text makes and drops again.
    made: usize,
}

pub fn save(session: &Session, arguments: &[Node]) -> Result<String> {
    let [path] = arguments else {
        return Err(Error::invalid("`save` takes a path").hint("save(\"path\"), below the root; or save(\"@path\")"));
    };
    let place = Place::of(session, name_of(path)?)?;
    let data = place.with_suffix(".data");
    data.create_directory()?;
    let mut script = Script { session, text: String::new(), data, made: 0 };
    for (name, roles) in define::defined_types(session)? {
        script.line(format_args!("create_type(\"{name}({roles})\");"));
    }
    let datasets = dataset::names(session)?;
    for name in &datasets {
        let dataset = Dataset::open(session, name)?;
        let file = script.data.inside(&format!("dataset.{name}"));
        dataset.with_cells(dataset.length, |cells| file.write(&[cells]))?;
        script.line(format_args!("create_dataset(\"{name}:{}\", \"{}\");", dataset.element.text(), file.text()));
    }
    let mut tars = 0;
    for name in define::tar_names(session)? {
        let tar = match Tar::open(session, &name, false) {
            Err(error) if error.kind == Kind::NotFound => continue,
            tar => tar?,
        };
        // Containers that others made are objects: they are kept as such.
        let Some(list) = subtars::open(session, &name, false)? else { continue };
        let known = subtars::read(&list, tar.rank())?;
        script.tar(&tar, &known)?;
        tars += 1;
    }
    place.write(&[script.text.as_bytes()])?;
    Ok(format!("{tars} TARs and {} datasets saved as {}", datasets.len(), place.text()))
}

impl Script<'_> {
    fn line(&mut self, text: std::fmt::Arguments<'_>) {
        // Writing to a string does not fail.
        let _ = writeln!(self.text, "{text}");
    }

    /// A dataset of these cells, by a name that nothing else has.
    fn dataset(&mut self, type_name: &str, cells: &[u8]) -> Result<String> {
        let name = loop {
            let name = format!("saved_{}", self.made);
            self.made += 1;
            match Dataset::open(self.session, &name) {
                Err(error) if error.kind == Kind::NotFound => break name,
                Err(error) => return Err(error),
                Ok(_) => {}
            }
        };
        let file = self.data.inside(&name);
        file.write(&[cells])?;
        self.line(format_args!("create_dataset(\"{name}:{type_name}\", \"{}\");", file.text()));
        Ok(name)
    }

    fn drop(&mut self, datasets: &[String]) {
        datasets.iter().for_each(|name| self.line(format_args!("drop_dataset(\"{name}\");")));
    }

    fn tar(&mut self, tar: &Tar, known: &[SubTar]) -> Result<()> {
        let mut said = said(self.session, tar)?;
        let mut used = vec![];
        for (d, text) in said.dimensions.iter_mut().enumerate() {
            if let Axis::Explicit(values) = tar.axis(self.session, d)? {
                let (cell, cells) = packed(&values)?;
                let dataset = self.dataset(&crate::elements::name_of(cell), &cells)?;
                *text += &format!(",{dataset}");
                used.push(dataset);
            }
        }
        let roles = if said.roles.is_empty() { String::new() } else { format!(", \"{}\"", said.roles.join(",")) };
        let (dimensions, attributes) = (said.dimensions.join(" | "), said.attributes.join(" | "));
        self.line(format_args!(
            "create_tar(\"{}\", \"{}\", \"{dimensions}\", \"{attributes}\"{roles});",
            tar.name, said.type_name
        ));
        self.drop(&used);
        for subtar in known {
            self.subtar(tar, &said.attributes, subtar)?;
        }
        Ok(())
    }

    fn subtar(&mut self, tar: &Tar, attributes: &[String], subtar: &SubTar) -> Result<()> {
        let region = subtar.region()?;
        let box_cells = subtar.cells() as usize;
        let present = match subtar.specification {
            Specification::Ordered => None,
            _ => {
                let mut present = vec![0u8; box_cells];
                self.session.open_array(&format!("{}/{PRESENT}", tar.name), false)?.get(&region, &mut present)?;
                Some(present)
            }
        };
        let places: Option<Vec<usize>> =
            present.map(|present| (0..box_cells).filter(|&place| present[place] != 0).collect());
        let mut used = vec![];
        let mut loaded = vec![];
        for attribute in attributes {
            let (name, type_name) = attribute.split_once(',').unwrap_or((attribute, ""));
            let element = crate::elements::ElementType::parse(type_name)?;
            let size = element.cell.size();
            let count = places.as_ref().map_or(box_cells, Vec::len);
            let mut cells = vec![0u8; count * size * element.components as usize];
            for (component, array) in components(name, element.components).iter().enumerate() {
                let found = tar.arrays.iter().find(|(known, _)| known == array);
                let array = &found.ok_or_else(|| Error::invalid(format!("`{name}` has no component {component}")))?.1;
                let mut of_box = vec![0u8; box_cells * size];
                array.get(&region, &mut of_box)?;
                for number in 0..count {
                    let from = places.as_ref().map_or(number, |places| places[number]) * size;
                    let to = (number * element.components as usize + component) * size;
                    cells[to..to + size].copy_from_slice(&of_box[from..from + size]);
                }
            }
            let dataset = self.dataset(&element.text(), &cells)?;
            loaded.push(format!("{name},{dataset}"));
            used.push(dataset);
        }
        let mut sides = vec![];
        let mut stride: usize = box_cells;
        for (d, range) in subtar.bounds.iter().enumerate() {
            let (name, extent) = (&tar.dimensions[d], (range.end - range.start) as usize);
            stride /= extent;
            let Some(places) = &places else {
                sides.push(format!("ordered,{name},{},{}", range.start, range.end - 1));
                continue;
            };
            let indexes: Vec<u64> = places.iter().map(|place| range.start + (place / stride % extent) as u64).collect();
            let (type_name, cells) = match tar.axis(self.session, d)? {
                Axis::Explicit(_) => {
                    ("long".to_owned(), indexes.iter().flat_map(|index| (*index as i64).to_le_bytes()).collect())
                }
                axis => {
                    let (cell, cells) = packed(&axis.take(&indexes))?;
                    (crate::elements::name_of(cell), cells)
                }
            };
            let dataset = self.dataset(&type_name, &cells)?;
            sides.push(format!("total,{name},{},{},{dataset}", range.start, range.end - 1));
            used.push(dataset);
        }
        let (sides, loaded) = (sides.join(" | "), loaded.join(" | "));
        self.line(format_args!("load_subtar(\"{}\", \"{sides}\", \"{loaded}\");", tar.name));
        self.drop(&used);
        Ok(())
    }
}
