//! `terrace stat`, `get`, `put`, `tag`, `rm`: objects from the command line.

use crate::args::{GetArgs, ObjectsArgs, PutArgs, RemoveArgs, TagArgs};
use crate::npy;
use crate::reach::reach;
use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Write};
use std::path::Path;
use terrace_client::{Array, ArraySpec, Create, ObjectKind, Region, Session, Status, TagMatch, TagQuery, TagValue};
use terrace_core::size::show_bytes;
use terrace_tool::failure::{Failure, Result};
use terrace_tool::outln;
use terrace_tool::setting_args::SettingArgs;
use terrace_tool::table::json;

/// Bytes that are moved at a time.
const PIECE: usize = 16 << 20;

fn session(args: &SettingArgs) -> Result<Session> {
    reach(None, args)?.session()
}

pub fn stat(args: &ObjectsArgs) -> Result<i32> {
    let session = session(&args.settings)?;
    let found: Vec<(&String, Status)> =
        args.names.iter().map(|name| Ok((name, session.stat(name)?))).collect::<Result<_>>()?;
    if args.json {
        outln!("{}", json(&found));
        return Ok(0);
    }
    for (name, status) in found {
        let what = match (status.kind, &status.spec) {
            (ObjectKind::Array, Some(spec)) => {
                let extents = spec.shape.iter().zip(&spec.unlimited);
                let extents: Vec<String> =
                    extents.map(|(extent, grows)| format!("{extent}{}", if *grows { "+" } else { "" })).collect();
                format!("array of {} [{}], chunks {:?}", spec.data_type, extents.join(", "), spec.chunks)
            }
            (ObjectKind::Container, _) => "container".into(),
            _ => "bytes".into(),
        };
        let durable = if status.is_durable { "durable" } else { "not yet durable" };
        outln!("{name}: {what}, {}, {} ({durable})", show_bytes(status.bytes), status.tier);
        for (key, value) in session.tags(name)? {
            outln!("  {key} = {value}");
        }
    }
    Ok(0)
}

pub fn remove(args: &RemoveArgs) -> Result<i32> {
    let session = session(&args.settings)?;
    for name in &args.names {
        session.remove(name, args.recursive)?;
    }
    Ok(0)
}

pub fn tag(args: &TagArgs) -> Result<i32> {
    let session = session(&args.settings)?;
    if let Some(key) = &args.find {
        let matches = match (&args.value, &args.prefix, &args.suffix, &args.infix) {
            (Some(value), ..) => TagMatch::Exact(TagValue::parse(value)),
            (_, Some(part), ..) => TagMatch::Prefix(part.clone()),
            (_, _, Some(part), _) => TagMatch::Suffix(part.clone()),
            (_, _, _, Some(part)) => TagMatch::Infix(part.clone()),
            _ if args.like.is_some() => TagMatch::Wild(args.like.clone().unwrap_or_default()),
            _ if args.from.is_some() || args.to.is_some() => {
                let bound = |text: &Option<String>| text.as_deref().map(TagValue::parse);
                TagMatch::Range { low: bound(&args.from), high: bound(&args.to) }
            }
            _ => TagMatch::Any,
        };
        let query = TagQuery { key: key.clone(), matches, below: args.name.clone().unwrap_or_default() };
        session.query(&query)?.iter().for_each(|name| outln!("{name}"));
        return Ok(0);
    }
    let Some(name) = &args.name else {
        return Err(Failure::bad_input("no object was named", "terrace tag NAME KEY=VALUE, or terrace tag --find KEY"));
    };
    for change in &args.changes {
        match change.split_once('=') {
            Some((key, value)) => session.put_tag(name, key, TagValue::parse(value))?,
            None if args.delete => session.delete_tag(name, change)?,
            None => match session.get_tag(name, change)? {
                Some(value) => outln!("{value}"),
                None => return Err(Failure::new(format!("`{name}` has no tag `{change}`"))),
            },
        }
    }
    if args.changes.is_empty() {
        session.tags(name)?.iter().for_each(|(key, value)| outln!("{key}={value}"));
    }
    Ok(0)
}

/// Rows of an array that are moved at a time, one after the other.
fn for_each_piece(shape: &[u64], size: usize, mut act: impl FnMut(&Region, usize) -> Result<()>) -> Result<()> {
    if shape.is_empty() {
        return act(&Region::whole(shape)?, size);
    }
    let row_cells: u64 = shape[1..].iter().product();
    let row_bytes = (row_cells as usize * size).max(1);
    let rows = (PIECE / row_bytes).max(1) as u64;
    let mut first = 0;
    while first < shape[0] {
        let count = rows.min(shape[0] - first);
        let offset: Vec<u64> = std::iter::once(first).chain(shape[1..].iter().map(|_| 0)).collect();
        let counts: Vec<u64> = std::iter::once(count).chain(shape[1..].iter().copied()).collect();
        act(&Region::block(&offset, &counts)?, count as usize * row_bytes)?;
        first += count;
    }
    Ok(())
}

pub fn get(args: &GetArgs) -> Result<i32> {
    let session = session(&args.settings)?;
    let failed = |error: std::io::Error| Failure::io("write", &args.file, error);
    let is_array = match session.stat(&args.name)?.kind {
        ObjectKind::Array => true,
        ObjectKind::Bytes => false,
        ObjectKind::Container => {
            return Err(Failure::bad_input(
                format!("`{}` is a container", args.name),
                "name an array or a bytes object",
            ));
        }
    };
    let mut file = BufWriter::new(File::create(&args.file).map_err(failed)?);
    if is_array {
        let array = session.open_array(&args.name, false)?;
        let shape = array.shape()?;
        if is_npy(&args.file) {
            npy::write_header(&mut file, array.spec().data_type, &shape).map_err(failed)?;
        }
        for_each_piece(&shape, array.spec().data_type.size(), |region, bytes| {
            let mut cells = vec![0; bytes];
            array.get(region, &mut cells)?;
            file.write_all(&cells).map_err(failed)
        })?;
    } else {
        let object = session.open_bytes(&args.name, false)?;
        let (mut position, mut piece) = (0, vec![0; PIECE]);
        loop {
            let got = object.read_at(position, &mut piece)?;
            if got == 0 {
                break;
            }
            file.write_all(&piece[..got]).map_err(failed)?;
            position += got as u64;
        }
    }
    file.flush().map_err(failed)?;
    Ok(0)
}

fn is_npy(file: &Path) -> bool {
    file.extension().is_some_and(|extension| extension == "npy")
}

pub fn put(args: &PutArgs) -> Result<i32> {
    let session = session(&args.settings)?;
    let create = if args.replace { Create::Replace } else { Create::New };
    let failed = |error: std::io::Error| Failure::io("read", &args.file, error);
    let mut file = BufReader::new(File::open(&args.file).map_err(failed)?);
    if let Some((container, _)) = args.name.rsplit_once('/') {
        session.create_container(container, Create::IfMissing)?;
    }
    if is_npy(&args.file) {
        let (data_type, shape) = npy::read_header(&mut file)?;
        let array: Array = session.create_array(&args.name, &ArraySpec::new(data_type, &shape), create)?;
        for_each_piece(&shape, data_type.size(), |region, bytes| {
            let mut cells = vec![0; bytes];
            file.read_exact(&mut cells).map_err(failed)?;
            Ok(array.put(region, &cells)?)
        })?;
        return Ok(0);
    }
    let object = session.create_bytes(&args.name, create)?;
    let mut piece = vec![0; PIECE];
    loop {
        let got = file.read(&mut piece).map_err(failed)?;
        if got == 0 {
            break;
        }
        object.append(&piece[..got])?;
    }
    object.close()?;
    Ok(0)
}
