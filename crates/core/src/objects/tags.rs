//! Tags: a key and a value on an object, and the questions that can be asked about them.

use super::error::{ObjectError, Result};
use serde::{Deserialize, Serialize};

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum TagValue {
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(String),
    /// Numbers of one kind, as a FITS or HDF5 attribute may have.
    Ints(Vec<i64>),
    Floats(Vec<f64>),
}

/// Which values are meant.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum TagMatch {
    /// The key is there, whatever its value.
    Any,
    /// A number equals a number of either kind.
    Exact(TagValue),
    /// Numbers (and texts, by their order) from `low` to `high`, both included; `None`: no bound.
    Range {
        low: Option<TagValue>,
        high: Option<TagValue>,
    },
    Prefix(String),
    Suffix(String),
    Infix(String),
    /// The value, as it is written, fits the pattern: `*` stands for any text, `?` for one character. The question's key is a pattern, too.
    Wild(String),
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct TagQuery {
    pub key: String,
    pub matches: TagMatch,
    /// Only objects below this path of the root (empty: all).
    pub below: String,
}

pub const KEY_MAX: usize = 255;

/// A container's tags for objects that were added to it begin so; the value is the object's name.
pub const MEMBER_KEY: &str = "terrace.member.";

/// The key for an object. Names are longer than keys may be, so it has their hash (FNV-1a, 64 bits).
pub fn member_key(object: &str) -> String {
    let step = |hash: u64, byte: u8| (hash ^ byte as u64).wrapping_mul(0x0100_0000_01b3);
    format!("{MEMBER_KEY}{:016x}", object.bytes().fold(0xcbf2_9ce4_8422_2325, step))
}

pub const VALUE_BYTES_MAX: usize = 1 << 20;

impl TagValue {
    /// Equal, or greater, or less, where the two can be compared: numbers with numbers, texts with texts.
    pub fn compare(&self, other: &TagValue) -> Option<std::cmp::Ordering> {
        use TagValue::*;
        match (self, other) {
            (Int(a), Int(b)) => Some(a.cmp(b)),
            (Text(a), Text(b)) => Some(a.cmp(b)),
            (Bool(a), Bool(b)) => Some(a.cmp(b)),
            (Ints(a), Ints(b)) => Some(a.cmp(b)),
            (Floats(a), Floats(b)) => a.partial_cmp(b),
            (Int(a), Float(b)) => (*a as f64).partial_cmp(b),
            (Float(a), Int(b)) => a.partial_cmp(&(*b as f64)),
            (Float(a), Float(b)) => a.partial_cmp(b),
            _ => None,
        }
    }

    /// As the command line gives it: a number if it reads as one, else text.
    pub fn parse(text: &str) -> TagValue {
        match (text, text.parse::<i64>(), text.parse::<f64>()) {
            ("true", ..) => TagValue::Bool(true),
            ("false", ..) => TagValue::Bool(false),
            (_, Ok(number), _) => TagValue::Int(number),
            (_, _, Ok(number)) if number.is_finite() => TagValue::Float(number),
            _ => TagValue::Text(text.into()),
        }
    }

    pub fn check(&self) -> Result<()> {
        let bytes = match self {
            TagValue::Text(text) => text.len(),
            TagValue::Ints(values) => values.len() * 8,
            TagValue::Floats(values) => values.len() * 8,
            _ => 8,
        };
        match bytes > VALUE_BYTES_MAX {
            true => Err(ObjectError::invalid(format!("a tag's value of {bytes} bytes: at most {VALUE_BYTES_MAX}"))),
            false => Ok(()),
        }
    }
}

impl std::fmt::Display for TagValue {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            TagValue::Bool(value) => write!(out, "{value}"),
            TagValue::Int(value) => write!(out, "{value}"),
            TagValue::Float(value) => write!(out, "{value:?}"),
            TagValue::Text(value) => write!(out, "{value}"),
            TagValue::Ints(values) => write!(out, "{values:?}"),
            TagValue::Floats(values) => write!(out, "{values:?}"),
        }
    }
}

/// A key is a short, printable text.
pub fn check_key(key: &str) -> Result<()> {
    match key.is_empty() || key.len() > KEY_MAX || key.chars().any(char::is_control) {
        true => Err(ObjectError::invalid(format!("`{}` is not a tag's key", key.escape_debug()))
            .hint(format!("1 to {KEY_MAX} bytes without control characters"))),
        false => Ok(()),
    }
}

impl TagMatch {
    pub fn accepts(&self, value: &TagValue) -> bool {
        use std::cmp::Ordering::*;
        let text = |wanted: fn(&str, &str) -> bool, part: &str| match value {
            TagValue::Text(text) => wanted(text, part),
            _ => false,
        };
        match self {
            TagMatch::Any => true,
            TagMatch::Exact(wanted) => value.compare(wanted) == Some(Equal),
            TagMatch::Range { low, high } => {
                low.as_ref().is_none_or(|low| matches!(value.compare(low), Some(Equal | Greater)))
                    && high.as_ref().is_none_or(|high| matches!(value.compare(high), Some(Equal | Less)))
            }
            TagMatch::Prefix(part) => text(|text, part| text.starts_with(part), part),
            TagMatch::Suffix(part) => text(|text, part| text.ends_with(part), part),
            TagMatch::Infix(part) => text(|text, part| text.contains(part), part),
            TagMatch::Wild(pattern) => match value {
                TagValue::Text(text) => fits(pattern, text),
                other => fits(pattern, &other.to_string()),
            },
        }
    }
}

/// `*` stands for any text, also an empty one, `?` for one character.
pub fn fits(pattern: &str, text: &str) -> bool {
    let (pattern, text): (Vec<char>, Vec<char>) = (pattern.chars().collect(), text.chars().collect());
    let (mut p, mut t) = (0, 0);
    // The last `*`, and how much of the text it stands for: one more is tried where what follows does not fit.
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        if p < pattern.len() && pattern[p] == '*' {
            star = Some((p, t));
            p += 1;
        } else if p < pattern.len() && (pattern[p] == '?' || pattern[p] == text[t]) {
            (p, t) = (p + 1, t + 1);
        } else if let Some((at, taken)) = star {
            star = Some((at, taken + 1));
            (p, t) = (at + 1, taken + 1);
        } else {
            return false;
        }
    }
    pattern[p..].iter().all(|symbol| *symbol == '*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_match_accepts_what_it_says() {
        let text = |text: &str| TagValue::Text(text.into());
        let range = |low, high| TagMatch::Range { low: Some(low), high: Some(high) };
        assert!(TagMatch::Exact(TagValue::Int(3)).accepts(&TagValue::Float(3.0)));
        assert!(!TagMatch::Exact(TagValue::Int(3)).accepts(&text("3")));
        assert!(range(TagValue::Int(1), TagValue::Float(2.5)).accepts(&TagValue::Float(2.5)));
        assert!(!range(TagValue::Int(1), TagValue::Float(2.5)).accepts(&TagValue::Int(3)));
        assert!(range(text("a"), text("c")).accepts(&text("bb")));
        assert!(TagMatch::Prefix("M".into()).accepts(&text("M31")));
        assert!(TagMatch::Suffix("31".into()).accepts(&text("M31")));
        assert!(TagMatch::Infix("3".into()).accepts(&text("M31")));
        assert!(!TagMatch::Infix("3".into()).accepts(&TagValue::Int(3)));
    }

    #[test]
    fn the_command_lines_values_are_numbers_where_they_read_as_numbers() {
        assert_eq!(TagValue::parse("7"), TagValue::Int(7));
        assert_eq!(TagValue::parse("7.5"), TagValue::Float(7.5));
        assert_eq!(TagValue::parse("true"), TagValue::Bool(true));
        assert_eq!(TagValue::parse("NaN"), TagValue::Text("NaN".into()));
    }

    #[test]
    fn a_pattern_fits_what_its_stars_and_question_marks_can_stand_for() {
        for (pattern, text, wanted) in [
            ("*", "", true),
            ("", "", true),
            ("", "a", false),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "a-b-b-cd", false),
            ("?", "é", true),
            ("?", "", false),
            ("**x", "xx", true),
            ("in*ment", "instrument", true),
        ] {
            assert_eq!(fits(pattern, text), wanted, "{pattern} {text}");
        }
    }
}
