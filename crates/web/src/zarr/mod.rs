//! Keys of a Zarr v3 store: containers are groups, arrays are arrays, and each chunk is read as a region, staged or durable.
//!
//!   PATH/zarr.json ─▶ metadata: shape (whole steps), dimension names, tags as attributes; of a group all that lies below
//!   PATH/c/0/1     ─▶ the region's cells, filled up at the array's end; of an array with codecs the chunk's file as it is

pub mod metadata;

use crate::refusal::{Answer, Refusal};
use crate::reply::Reply;
use crate::store::{Node, Store};
use axum::body::Bytes;
use terrace_client::{Array, Region};
use terrace_core::objects::Overlap;
use terrace_objects::array::{METADATA_FILE, fill};

const CELLS: &str = "application/octet-stream";

pub fn key(store: &Store, parts: &[String]) -> Answer<Reply> {
    let absent = || Refusal::not_found(format!("there is no key `{}`", parts.join("/")));
    match parts.split_last() {
        Some((last, node)) if last == METADATA_FILE => {
            let document = metadata::document(store, &node.join("/"))?.ok_or_else(absent)?;
            Ok(Reply::entity("application/json", document.to_string()))
        }
        _ => match chunk(store, parts)? {
            Some(bytes) => Ok(Reply::entity(CELLS, bytes)),
            None => Err(absent()),
        },
    }
}

fn chunk(store: &Store, parts: &[String]) -> Answer<Option<Bytes>> {
    if let Some((node, index)) = place(parts) {
        let name = node.join("/");
        if let Some(array) = store.array(&name)? {
            return region_of_chunk(store, &name, &array, &index);
        }
    }
    // Whatever an encoded array has below it.
    for depth in (1..parts.len()).rev() {
        if let Some(Node::Encoded(_)) = store.node(&parts[..depth].join("/"))? {
            return store.chunk_file(&parts.join("/"));
        }
    }
    Ok(None)
}

/// `study/v/c/1/2` is chunk [1, 2] of `study/v`; `study/v/c` is the only one of an array without dimensions.
fn place(parts: &[String]) -> Option<(&[String], Vec<u64>)> {
    let index: Vec<u64> = parts.iter().rev().map_while(|part| number(part)).collect();
    let at = parts.len() - index.len();
    let is_chunk = at >= 2 && parts[at - 1] == "c";
    is_chunk.then(|| (&parts[..at - 1], index.into_iter().rev().collect()))
}

/// As a store writes it: no sign, no leading zero.
fn number(text: &str) -> Option<u64> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    if is_plain { text.parse().ok() } else { None }
}

fn region_of_chunk(store: &Store, name: &str, array: &Array, index: &[u64]) -> Answer<Option<Bytes>> {
    let spec = array.spec();
    if index.len() != spec.rank() {
        return Ok(None);
    }
    let Some(start) =
        index.iter().zip(&spec.chunks).map(|(at, size)| at.checked_mul(*size)).collect::<Option<Vec<u64>>>()
    else {
        return Ok(None);
    };
    let end = |d: usize| start[d].saturating_add(spec.chunks[d]);
    let grows = |d: usize| spec.unlimited[d];
    let shape = store.shape_for(name, array, |shape| (0..shape.len()).all(|d| !grows(d) || end(d) <= shape[d]))?;
    if (0..shape.len()).any(|d| start[d] >= shape[d]) {
        return Ok(None);
    }
    let count: Vec<u64> = (0..shape.len()).map(|d| spec.chunks[d].min(shape[d] - start[d])).collect();
    let region = Region::block(&start, &count)?;
    let whole = Region::block(&start, &spec.chunks)?;
    let size = spec.data_type.size();
    let bytes = whole.cells() * size as u64;
    let room = store.room(if count == spec.chunks { bytes } else { 2 * bytes })?;
    let mut cells = vec![0; region.cells() as usize * size];
    array.get(&region, &mut cells)?;
    if count == spec.chunks {
        return Ok(Some(room.holds(cells)));
    }
    // At the array's end a chunk is filled up.
    let mut filled = vec![0; bytes as usize];
    fill(&mut filled, &spec.fill);
    if let Some(overlap) = Overlap::of(&region, &whole) {
        overlap.for_each_run(|run| {
            let (from, to, count) = (run.from as usize * size, run.to as usize * size, run.cells as usize * size);
            filled[to..to + count].copy_from_slice(&cells[from..from + count]);
        });
    }
    Ok(Some(room.holds(filled)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_is_told_from_a_name() {
        let read = |path: &str| {
            let parts: Vec<String> = path.split('/').map(String::from).collect();
            place(&parts).map(|(node, index)| (node.join("/"), index))
        };
        assert_eq!(read("study/v/c/1/20"), Some(("study/v".into(), vec![1, 20])));
        assert_eq!(read("c/3/c/0"), Some(("c/3".into(), vec![0])));
        assert_eq!(read("study/v/c"), Some(("study/v".into(), vec![])));
        for other in ["v", "c", "c/0", "v/c/01", "v/c/-1", "v/c/+1", "v/c/1/x", "v/d/1", "v/c/99999999999999999999"] {
            assert_eq!(read(other), None, "{other}");
        }
    }
}
