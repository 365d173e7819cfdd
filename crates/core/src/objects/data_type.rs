//! Types of an array's cells, and their names in Zarr v3.

use super::error::{ObjectError, Result};
use serde::{Deserialize, Serialize};

/// Cells are stored little-endian, packed, in C order.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, Serialize, Deserialize)]
pub enum DataType {
    Bool,
    Int8,
    Int16,
    Int32,
    Int64,
    UInt8,
    UInt16,
    UInt32,
    UInt64,
    Float32,
    Float64,
    Complex64,
    Complex128,
    /// A string of so many bytes, filled up with zeroes (NumPy's `S`).
    Bytes(u32),
}

use DataType::*;

/// Longest fixed string.
pub const STRING_MAX: u32 = 1 << 20;

const NAMED: [(DataType, &str, u32); 13] = [
    (Bool, "bool", 1),
    (Int8, "int8", 1),
    (Int16, "int16", 2),
    (Int32, "int32", 4),
    (Int64, "int64", 8),
    (UInt8, "uint8", 1),
    (UInt16, "uint16", 2),
    (UInt32, "uint32", 4),
    (UInt64, "uint64", 8),
    (Float32, "float32", 4),
    (Float64, "float64", 8),
    (Complex64, "complex64", 8),
    (Complex128, "complex128", 16),
];

impl DataType {
    /// Bytes of one cell.
    pub fn size(self) -> usize {
        match self {
            Bytes(len) => len as usize,
            other => NAMED.iter().find(|(named, ..)| *named == other).expect("all but strings are named").2 as usize,
        }
    }

    /// The name in Zarr v3, which is NumPy's; a string of 12 bytes is `S12`.
    pub fn name(self) -> String {
        match self {
            Bytes(len) => format!("S{len}"),
            other => NAMED.iter().find(|(named, ..)| *named == other).expect("all but strings are named").1.into(),
        }
    }

    pub fn parse(name: &str) -> Result<DataType> {
        if let Some((found, ..)) = NAMED.iter().find(|(_, known, _)| *known == name) {
            return Ok(*found);
        }
        let length = name.strip_prefix('S').and_then(|digits| digits.parse::<u32>().ok());
        match length {
            Some(length) => DataType::string(length),
            None => Err(ObjectError::invalid(format!("`{name}` is not a data type"))
                .hint("bool, int8 to int64, uint8 to uint64, float32, float64, complex64, complex128, or S12 for strings of 12 bytes")),
        }
    }

    pub fn string(length: u32) -> Result<DataType> {
        match length {
            1..=STRING_MAX => Ok(Bytes(length)),
            _ => Err(ObjectError::invalid(format!("strings of {length} bytes: at least 1, at most {STRING_MAX}"))),
        }
    }

    /// Packed cells as 64-bit floats. `None`: they are no numbers of one part.
    pub fn floats(self, cells: &[u8]) -> Option<Vec<f64>> {
        macro_rules! floats {
            ($type:ty) => {
                cells
                    .chunks_exact(size_of::<$type>())
                    .map(|cell| <$type>::from_le_bytes(cell.try_into().expect("exact chunks")) as f64)
                    .collect()
            };
        }
        Some(match self {
            Int8 => floats!(i8),
            Int16 => floats!(i16),
            Int32 => floats!(i32),
            Int64 => floats!(i64),
            UInt8 | Bool => floats!(u8),
            UInt16 => floats!(u16),
            UInt32 => floats!(u32),
            UInt64 => floats!(u64),
            Float32 => floats!(f32),
            Float64 => floats!(f64),
            Complex64 | Complex128 | Bytes(_) => return None,
        })
    }

    /// Least and greatest of packed cells, as 64-bit floats (of 64-bit integers the next ones below and above, where they are none
    /// themselves). `None` for types without an order, where any cell is NaN, and where there are no cells.
    pub fn range(self, cells: &[u8]) -> Option<(f64, f64)> {
        macro_rules! range {
            ($type:ty) => {{
                const SIZE: usize = size_of::<$type>();
                let values =
                    cells.chunks_exact(SIZE).map(|cell| <$type>::from_le_bytes(cell.try_into().expect("exact chunks")));
                let mut all = values.clone();
                let first = all.next()?;
                let (mut low, mut high, mut is_ordered) = (first, first, true);
                for value in values {
                    low = if value < low { value } else { low };
                    high = if value > high { value } else { high };
                    #[allow(clippy::eq_op)] // false for NaN alone
                    {
                        is_ordered &= value == value;
                    }
                }
                is_ordered.then_some((low, high))
            }};
        }
        macro_rules! narrow {
            ($type:ty) => {
                range!($type).map(|(low, high)| (low as f64, high as f64))
            };
        }
        macro_rules! wide {
            ($type:ty) => {
                range!($type).map(|(low, high)| {
                    let (below, above) = (low as f64, high as f64);
                    let below = if below as i128 > low as i128 { below.next_down() } else { below };
                    let above = if (above as i128) < high as i128 { above.next_up() } else { above };
                    (below, above)
                })
            };
        }
        match self {
            Int8 => narrow!(i8),
            Int16 => narrow!(i16),
            Int32 => narrow!(i32),
            Int64 => wide!(i64),
            UInt8 | Bool => narrow!(u8),
            UInt16 => narrow!(u16),
            UInt32 => narrow!(u32),
            UInt64 => wide!(u64),
            Float32 => narrow!(f32),
            Float64 => narrow!(f64),
            Complex64 | Complex128 | Bytes(_) => None,
        }
    }
}

impl std::fmt::Display for DataType {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(&self.name())
    }
}

/// A Rust type that cells can be read as and written from where they lie.
///
/// # Safety
/// Any bytes must be a valid value, there must be no padding, and the layout must be that of `TYPE`.
pub unsafe trait Element: Copy + Default + Send + Sync + 'static {
    const TYPE: DataType;
}

macro_rules! elements {
    ($($rust:ty => $variant:ident),*) => {
        // SAFETY: plain numbers of the same width; Terrace runs on little-endian machines only (checked at compile time).
        $(unsafe impl Element for $rust { const TYPE: DataType = $variant; })*
    };
}
elements!(i8 => Int8, i16 => Int16, i32 => Int32, i64 => Int64, u8 => UInt8, u16 => UInt16, u32 => UInt32, u64 => UInt64,
          f32 => Float32, f64 => Float64, [f32; 2] => Complex64, [f64; 2] => Complex128);

const _: () = assert!(cfg!(target_endian = "little"), "cells are stored as they lie in memory, little-endian");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_reads_back_from_its_name() {
        for (data_type, name, size) in NAMED {
            assert_eq!(DataType::parse(name).unwrap(), data_type);
            assert_eq!((data_type.name().as_str(), data_type.size()), (name, size as usize));
        }
        assert_eq!(DataType::parse("S12").unwrap(), Bytes(12));
        for wrong in ["S0", "S", "S-1", "float16", "", "S99999999999"] {
            assert!(DataType::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_range_has_all_values_in_it_or_there_is_none() {
        let floats = |values: &[f64]| values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>();
        assert_eq!(Float64.range(&floats(&[3.0, f64::INFINITY, -1.0])), Some((-1.0, f64::INFINITY)));
        // A query may ask for NaN, or sort it somewhere: cells with one are to be looked at.
        assert_eq!(Float64.range(&floats(&[3.0, f64::NAN, -1.0])), None);
        assert_eq!(Float64.range(&floats(&[f64::NAN, 3.0])), None);
        assert_eq!(Bytes(4).range(b"abcd"), None);
        assert_eq!(Int8.range(&[0x80, 0x7f]), Some((-128.0, 127.0)));
        assert_eq!(Int8.range(&[]), None);
        let (low, high) = UInt64.range(&(u64::MAX - 1).to_le_bytes()).unwrap();
        assert!((low as u128) < u64::MAX as u128 && high as u128 >= u64::MAX as u128 - 1, "{low} to {high}");
        let (low, high) = Int64.range(&((1i64 << 60) + 1).to_le_bytes()).unwrap();
        assert!((low as i64) < (1 << 60) + 1 && high as i64 > (1 << 60) + 1, "{low} to {high}");
    }
}
