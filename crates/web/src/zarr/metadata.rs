//! `zarr.json` as it is at this moment. A group's has that of all that lies below it (consolidated), because HTTP has no lists.

use crate::refusal::Answer;
use crate::store::{Node, Steps, Store, below};
use axum::http::StatusCode;
use serde_json::{Map, Value, json};
use terrace_client::{Array, ObjectKind, TagValue};
use terrace_objects::array::Metadata;

/// A group with more below it has no consolidated metadata: its arrays are opened by their names.
const NODES_MAX: usize = 4096;
/// What Terrace writes among an array's attributes for itself.
const OWN: &str = "terrace_";

/// `None`: there is no such group or array.
pub fn document(store: &Store, name: &str) -> Answer<Option<Value>> {
    let Some(node) = store.node(name)? else { return Ok(None) };
    let is_group = matches!(node, Node::Group(_));
    let steps = match &node {
        Node::Array(..) => store.steps(crate::store::parent(name).0)?,
        _ => Steps::new(),
    };
    let mut document = described(store, name, node, &steps)?;
    if is_group {
        let mut found = Map::new();
        if add_below(store, name, "", &mut found)? {
            document["consolidated_metadata"] = json!({"kind": "inline", "must_understand": false, "metadata": found});
        }
    }
    Ok(Some(document))
}

/// False: there is too much.
fn add_below(store: &Store, name: &str, key: &str, found: &mut Map<String, Value>) -> Answer<bool> {
    let entries = match store.session().list(name) {
        Ok(entries) => entries,
        Err(error) if !key.is_empty() && error.kind == terrace_client::Kind::NotFound => return Ok(true),
        Err(error) => return Err(error.into()),
    };
    // One look for all arrays of the container: they show the same steps.
    let steps = match entries.iter().any(|entry| entry.kind == ObjectKind::Array) {
        true => store.steps(name)?,
        false => Steps::new(),
    };
    for entry in entries {
        // Directories that programs hide from people (.git) are no groups of a study.
        if entry.kind == ObjectKind::Bytes || entry.name.starts_with('.') {
            continue;
        }
        let (path, key) = (below(name, &entry.name), below(key, &entry.name));
        let described = match store.node(&path) {
            Ok(Some(node)) => {
                let is_group = matches!(node, Node::Group(_));
                described(store, &path, node, &steps).map(|document| (document, is_group))
            }
            Ok(None) => continue,
            Err(refusal) => Err(refusal),
        };
        let (document, is_group) = match described {
            // Removed meanwhile.
            Err(refusal) if refusal.status == StatusCode::NOT_FOUND => continue,
            described => described?,
        };
        found.insert(key.clone(), document);
        if found.len() > NODES_MAX || (is_group && !add_below(store, &path, &key, found)?) {
            return Ok(false);
        }
    }
    Ok(true)
}

fn described(store: &Store, name: &str, node: Node, steps: &Steps) -> Answer<Value> {
    let tags = store.session().tags(name)?;
    Ok(match node {
        Node::Group(metadata) => with_tags(&metadata.unwrap_or_else(|| Box::new(Metadata::of_group())), tags),
        Node::Array(metadata, array) => array_document(store, &metadata, &array, tags, steps)?,
        Node::Encoded(mut document) => {
            let attributes = document["attributes"].as_object().cloned().unwrap_or_default();
            document["attributes"] = attributes_of(&attributes, tags);
            document
        }
    })
}

fn array_document(
    store: &Store,
    metadata: &Metadata,
    array: &Array,
    tags: Vec<(String, TagValue)>,
    steps: &Steps,
) -> Answer<Value> {
    let mut metadata = metadata.clone();
    metadata.set_shape(&store.shape(array, steps)?);
    let mut document = with_tags(&metadata, tags);
    // However its files are named: chunks are read as regions.
    document["chunk_key_encoding"] = json!({"name": "default", "configuration": {"separator": "/"}});
    Ok(document)
}

fn with_tags(metadata: &Metadata, tags: Vec<(String, TagValue)>) -> Value {
    let mut document: Value = serde_json::from_slice(&metadata.text()).unwrap_or_default();
    if let Some(document) = document.as_object_mut() {
        // It would tell how things were when it was written.
        document.remove("consolidated_metadata");
    }
    document["attributes"] = attributes_of(&metadata.attributes, tags);
    document
}

/// Tags as they are now, and of the attributes those that can't be tags.
fn attributes_of(written: &Map<String, Value>, tags: Vec<(String, TagValue)>) -> Value {
    let kept = written.iter().filter(|(key, value)| !is_tag(value) && !key.starts_with(OWN));
    let mut attributes: Map<String, Value> = kept.map(|(key, value)| (key.clone(), value.clone())).collect();
    attributes.extend(tags.into_iter().filter(|(key, _)| !key.starts_with(OWN)).map(|(key, value)| (key, tag(&value))));
    Value::Object(attributes)
}

fn is_tag(value: &Value) -> bool {
    match value {
        Value::Bool(_) | Value::String(_) => true,
        Value::Number(number) => number.is_i64() || number.is_f64(),
        Value::Array(values) => values.iter().all(|value| value.is_i64() || value.is_f64()),
        Value::Null | Value::Object(_) => false,
    }
}

pub fn tag(value: &TagValue) -> Value {
    match value {
        TagValue::Bool(value) => json!(value),
        TagValue::Int(value) => json!(value),
        TagValue::Float(value) => float(*value),
        TagValue::Text(value) => json!(value),
        TagValue::Ints(values) => json!(values),
        TagValue::Floats(values) => values.iter().map(|value| float(*value)).collect(),
    }
}

/// JSON has no word for what is not finite: Zarr's texts.
pub fn float(value: f64) -> Value {
    match value {
        value if value.is_nan() => json!("NaN"),
        f64::INFINITY => json!("Infinity"),
        f64::NEG_INFINITY => json!("-Infinity"),
        value => json!(value),
    }
}
