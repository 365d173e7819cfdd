//! What the page asks for: the agent's status, objects, one array, a slice, the list of queries.

use crate::path::parameter;
use crate::refusal::{Answer, Refusal};
use crate::reply::{Reply, json};
use crate::store::{Store, below, parent};
use crate::{agent, queries, slice, zarr};
use serde_json::{Map, Value, json};
use terrace_client::{Entry, Kind, ObjectKind};

/// Objects of one container that are listed.
const LISTED_MAX: usize = 2000;

pub fn answer(store: &Store, what: &str, name: &str, query: Option<&str>) -> Answer<Reply> {
    match what {
        "status" if name.is_empty() => Ok(json(&status(store)?)),
        "queries" if name.is_empty() => Ok(json(&queries::listed(store)?)),
        "objects" => Ok(json(&objects(store, name)?)),
        "array" => Ok(json(&array(store, name)?)),
        "slice" => {
            let at = parameter(query, "at").ok_or_else(|| Refusal::bad("say which plane: ?at=last,*,*"))?;
            slice::slice(store, name, &at)
        }
        _ => Err(Refusal::not_found(format!("there is no /api/{what}"))),
    }
}

pub fn status(store: &Store) -> Answer<Value> {
    let status = agent::status(store.session())?;
    serde_json::to_value(status).map_err(|error| Refusal::bad(format!("the status can't be told: {error}")))
}

fn objects(store: &Store, container: &str) -> Answer<Value> {
    let entries = store.session().list(container)?;
    let count = entries.len();
    let mut found = vec![];
    for entry in entries.into_iter().take(LISTED_MAX) {
        found.extend(object(store, container, entry)?);
    }
    Ok(json!({"container": container, "objects": found, "count": count}))
}

/// `None`: it was removed meanwhile.
fn object(store: &Store, container: &str, entry: Entry) -> Answer<Option<Value>> {
    let mut told = json!({"name": entry.name});
    match store.session().stat(&below(container, &entry.name)) {
        Ok(status) => {
            told["kind"] = kind(status.kind).into();
            told["bytes"] = status.bytes.into();
            told["tier"] = status.tier.into();
            told["durable"] = status.is_durable.into();
            if let Some(spec) = status.spec {
                told["type"] = spec.data_type.name().into();
                told["shape"] = spec.shape.into();
                told["dimensions"] = spec.dimensions.into();
            }
        }
        Err(error) if error.kind == Kind::NotFound => return Ok(None),
        // An array of a type that Terrace does not know; it is listed all the same.
        Err(error) => {
            told["kind"] = kind(entry.kind).into();
            told["error"] = error.message.into();
        }
    }
    Ok(Some(told))
}

fn kind(kind: ObjectKind) -> &'static str {
    match kind {
        ObjectKind::Container => "container",
        ObjectKind::Bytes => "bytes",
        ObjectKind::Array => "array",
    }
}

fn array(store: &Store, name: &str) -> Answer<Value> {
    let array =
        store.array(name)?.ok_or_else(|| Refusal::not_found(format!("`{name}` is no array that can be read")))?;
    let shape = store.shape(&array, &store.steps(parent(name).0)?)?;
    let tags: Map<String, Value> =
        store.session().tags(name)?.iter().map(|(key, value)| (key.clone(), zarr::metadata::tag(value))).collect();
    let spec = array.spec();
    let coordinates = spec.dimensions.iter().map(|dimension| coordinate(store, name, dimension));
    let coordinates = coordinates.collect::<Answer<Vec<Option<String>>>>()?;
    Ok(json!({
        "name": name, "type": spec.data_type.name(), "shape": shape, "begun": array.shape()?, "identity": store.identity(name)?, "unlimited": spec.unlimited,
        "dimensions": spec.dimensions, "coordinates": coordinates, "chunks": spec.chunks, "tags": tags,
    }))
}

/// The array beside this one that has the values of a dimension: it has the dimension's name, and no other dimension.
fn coordinate(store: &Store, name: &str, dimension: &str) -> Answer<Option<String>> {
    let path = below(parent(name).0, dimension);
    if dimension.is_empty() || dimension.contains('/') || path == name {
        return Ok(None);
    }
    let found = store.array(&path)?.filter(|array| array.spec().rank() == 1 && !array.spec().data_type.is_text());
    Ok(found.map(|_| path))
}
