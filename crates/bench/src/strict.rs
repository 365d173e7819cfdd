//! A document of JSON, YAML or TOML in which each key of an object stands once: of two, one would silently be lost.

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};
use std::fmt;

pub struct Strict(pub Value);

struct Reader;

impl<'de> Deserialize<'de> for Strict {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Strict, D::Error> {
        deserializer.deserialize_any(Reader).map(Strict)
    }
}

impl<'de> Visitor<'de> for Reader {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a value")
    }
    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }
    fn visit_none<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }
    fn visit_some<D: Deserializer<'de>>(self, inner: D) -> Result<Value, D::Error> {
        inner.deserialize_any(Reader)
    }
    fn visit_bool<E: Error>(self, truth: bool) -> Result<Value, E> {
        Ok(truth.into())
    }
    fn visit_i64<E: Error>(self, number: i64) -> Result<Value, E> {
        Ok(number.into())
    }
    fn visit_u64<E: Error>(self, number: u64) -> Result<Value, E> {
        Ok(number.into())
    }
    fn visit_f64<E: Error>(self, number: f64) -> Result<Value, E> {
        Ok(number.into())
    }
    fn visit_str<E: Error>(self, text: &str) -> Result<Value, E> {
        Ok(text.into())
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(Strict(value)) = from.next_element()? {
            list.push(value);
        }
        Ok(Value::Array(list))
    }
    fn visit_map<A: MapAccess<'de>>(self, mut from: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(key) = from.next_key::<String>()? {
            if object.contains_key(&key) {
                return Err(A::Error::custom(format!("the key `{key}` is there twice")));
            }
            let Strict(value) = from.next_value()?;
            object.insert(key, value);
        }
        Ok(Value::Object(object))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_once_is_read_as_ever_and_what_is_there_twice_is_named() {
        let text = r#"{"a": [1, -2, 0.5, "x", null, true, {"a": {}}], "b": 18446744073709551615}"#;
        let read: Strict = serde_json::from_str(text).unwrap();
        assert_eq!(read.0, serde_json::from_str::<Value>(text).unwrap());
        let error = serde_json::from_str::<Strict>(r#"{"a": {"b": 1, "c": 2, "b": 1}}"#).err().unwrap();
        assert!(error.to_string().contains("`b` is there twice"), "{error}");
    }
}
