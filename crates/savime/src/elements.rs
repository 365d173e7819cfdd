//! Types of elements, and what the parts of a definition mean: `"x,int | y,double"`.

use arrow::datatypes::DataType as ArrowType;
use terrace_analysis::{Error, Result};
use terrace_client::DataType;

/// `double`, `int:3` (a vector of three), `char:12` (a text of twelve bytes).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ElementType {
    pub cell: DataType,
    /// Components of a vector; 1: it is none.
    pub components: u32,
}

impl ElementType {
    pub fn parse(text: &str) -> Result<ElementType> {
        let (name, count) = match text.split_once(':') {
            None => (text.trim(), 1),
            Some((name, count)) => {
                let count = count.trim().parse::<u32>().ok().filter(|count| (1..=COMPONENTS_MAX).contains(count));
                let wrong = || {
                    Error::invalid(format!("the type `{text}` has no number of components"))
                        .hint(format!("double:3; from 1 to {COMPONENTS_MAX}"))
                };
                (name.trim(), count.ok_or_else(wrong)?)
            }
        };
        if name == "char" {
            return Ok(ElementType { cell: DataType::string(count)?, components: 1 });
        }
        let cell = match name {
            "int8" => DataType::Int8,
            "int16" => DataType::Int16,
            "int" | "int32" => DataType::Int32,
            "long" | "int64" => DataType::Int64,
            "uint8" => DataType::UInt8,
            "uint16" => DataType::UInt16,
            "uint32" => DataType::UInt32,
            "uint64" => DataType::UInt64,
            "float" | "float32" => DataType::Float32,
            "double" | "float64" => DataType::Float64,
            _ => {
                return Err(Error::invalid(format!("`{name}` is not a type of elements"))
                    .hint("char, int8 to int64, uint8 to uint64, int, long, float or double; with :n for vectors"));
            }
        };
        Ok(ElementType { cell, components: count })
    }

    pub fn text(self) -> String {
        match (self.cell, self.components) {
            (cell, 1) => name_of(cell),
            (cell, count) => format!("{}:{count}", name_of(cell)),
        }
    }
}

const COMPONENTS_MAX: u32 = 1024;

/// What the language calls the type of a cell.
pub fn name_of(cell: DataType) -> String {
    match cell {
        DataType::Float32 => "float".into(),
        DataType::Float64 => "double".into(),
        DataType::Bytes(length) => format!("char:{length}"),
        other => other.name(),
    }
}

/// What the language calls the type of a result's column.
pub fn name_of_arrow(data_type: &ArrowType) -> String {
    match data_type {
        ArrowType::Float32 => "float".into(),
        ArrowType::Float64 => "double".into(),
        ArrowType::Utf8 | ArrowType::Utf8View | ArrowType::LargeUtf8 => "char".into(),
        ArrowType::Boolean => "bool".into(),
        other => other.to_string().to_lowercase(),
    }
}

/// Names of arrays that a vector's components are.
pub fn components(name: &str, components: u32) -> Vec<String> {
    match components {
        1 => vec![name.to_owned()],
        count => (0..count).map(|number| format!("{name}:{number}")).collect(),
    }
}

/// The parts between `|`, and in each those between commas, without the spaces around them; empty parts are left out.
pub fn listed(text: &str) -> Vec<Vec<&str>> {
    let parts = text.split('|').map(str::trim).filter(|part| !part.is_empty());
    parts.map(|part| part.split(',').map(str::trim).collect()).collect()
}

/// A name of an element or a dataset: a letter, and letters and digits.
pub fn check_name<'a>(what: &str, name: &'a str) -> Result<&'a str> {
    let is_name = name.starts_with(|letter: char| letter.is_ascii_alphabetic() || letter == '_')
        && name.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_');
    match is_name && name.len() <= NAME_MAX {
        true => Ok(name),
        false => Err(Error::invalid(format!("`{}` is not a name for {what}", name.escape_debug()))
            .hint(format!("letters, digits and `_`, a letter first, at most {NAME_MAX}"))),
    }
}

const NAME_MAX: usize = 200;

/// A whole number or a float, as the language writes it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Number {
    Int(i64),
    Real(f64),
}

impl Number {
    pub fn parse(text: &str) -> Result<Number> {
        let text = text.trim();
        match (text.parse::<i64>(), text.parse::<f64>()) {
            (Ok(whole), _) => Ok(Number::Int(whole)),
            (_, Ok(real)) if real.is_finite() => Ok(Number::Real(real)),
            _ => Err(Error::invalid(format!("`{text}` is not a number"))),
        }
    }
    pub fn real(self) -> f64 {
        match self {
            Number::Int(whole) => whole as f64,
            Number::Real(real) => real,
        }
    }
}

impl std::fmt::Display for Number {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Number::Int(whole) => write!(out, "{whole}"),
            Number::Real(real) => write!(out, "{real:?}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_read_and_said_again() {
        for (text, said) in [("int", "int32"), ("long:2", "int64:2"), ("char:12", "char:12"), (" double ", "double")] {
            let read = ElementType::parse(text).unwrap();
            assert_eq!(read.text(), said);
            assert_eq!(ElementType::parse(said).unwrap(), read);
        }
        for wrong in ["", "integer", "int:", "int:0", "int:x", "double:99999"] {
            assert!(ElementType::parse(wrong).is_err(), "{wrong}");
        }
    }
}
