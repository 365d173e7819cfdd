//! Sizes and durations as an experiment writes them: a number (bytes, seconds) or text (`64K`, `1.5GiB`, `200ms`).

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};
use std::borrow::Cow;
use std::time::Duration;
use terrace_core::size::{Size, parse_duration};

/// A number of bytes; always written out as the plain number, so that equal experiments have equal text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bytes(pub u64);

/// A duration, written out as seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
pub struct Span(pub f64);

impl Span {
    pub fn duration(self) -> Duration {
        Duration::try_from_secs_f64(self.0).unwrap_or(Duration::ZERO)
    }
    pub fn nanoseconds(self) -> u64 {
        u64::try_from(self.duration().as_nanos()).unwrap_or(u64::MAX)
    }
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Written {
    Whole(u64),
    Fraction(f64),
    Text(String),
}

/// A key that is not there is the error; what was tried of one that is there is not.
fn told<E: Error>(error: E, expected: &str) -> E {
    if error.to_string().starts_with("missing field") { error } else { E::custom(expected) }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Bytes, D::Error> {
        let text =
            match Written::deserialize(deserializer).map_err(|error| told(error, "expected a size such as `64K`"))? {
                Written::Whole(bytes) => return Ok(Bytes(bytes)),
                Written::Fraction(value) => {
                    return Err(D::Error::custom(format!("{value} is not a whole number of bytes")));
                }
                Written::Text(text) => text,
            };
        match Size::parse(&text).map_err(D::Error::custom)? {
            Size::Bytes(bytes) => Ok(Bytes(bytes)),
            Size::Percent(_) => {
                Err(D::Error::custom(format!("`{text}`: a percentage has no meaning here; write a size such as `64K`")))
            }
        }
    }
}

impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(self.0)
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Span, D::Error> {
        let seconds = match Written::deserialize(deserializer)
            .map_err(|error| told(error, "expected a duration such as `200ms`"))?
        {
            Written::Whole(seconds) => seconds as f64,
            Written::Fraction(seconds) => seconds,
            Written::Text(text) => parse_duration(&text).map_err(D::Error::custom)?.as_secs_f64(),
        };
        if !(0.0..=1e9).contains(&seconds) {
            return Err(D::Error::custom(format!("{seconds} s is not a usable duration")));
        }
        Ok(Span(seconds))
    }
}

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(self.0)
    }
}

impl JsonSchema for Bytes {
    fn schema_name() -> Cow<'static, str> {
        "Bytes".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "Bytes: a whole number, or text with a unit, such as `64K`, `4MiB`, `1GB`. K, M, G and T are powers of 1024.",
            "anyOf": [{ "type": "integer", "minimum": 0 }, { "type": "string", "pattern": r"^\s*[0-9.]+\s*([kKmMgGtTpP]([iI]?[bB])?|[bB])?\s*$" }]
        })
    }
}

impl JsonSchema for Span {
    fn schema_name() -> Cow<'static, str> {
        "Duration".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A duration: seconds as a number, or text with a unit, such as `200ms`, `5s`, `1h30m`.",
            "anyOf": [{ "type": "number", "minimum": 0 }, { "type": "string" }]
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(json: &str) -> Result<Bytes, String> {
        serde_json::from_str(json).map_err(|error| error.to_string())
    }

    #[test]
    fn sizes_are_numbers_or_text_with_units() {
        assert_eq!(bytes("4096"), Ok(Bytes(4096)));
        assert_eq!(bytes("\"64K\""), Ok(Bytes(65536)));
        assert_eq!(bytes("\"5T\""), Ok(Bytes(5 << 40)));
        assert_eq!(bytes("\"32m\""), Ok(Bytes(32 << 20)));
        for wrong in ["\"10%\"", "\"many\"", "1.5", "-1", "[]"] {
            assert!(bytes(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn durations_are_seconds_or_text_with_units() {
        let span = |json: &str| serde_json::from_str::<Span>(json).map(|span| span.0).ok();
        assert_eq!(span("2"), Some(2.0));
        assert_eq!(span("0.25"), Some(0.25));
        assert_eq!(span("\"200ms\""), Some(0.2));
        assert_eq!(span("-1"), None);
        assert_eq!(span("\"soon\""), None);
    }
}
