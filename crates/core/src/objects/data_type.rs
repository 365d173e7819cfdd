//! Types of an array's cells, and their names, which are NumPy's.

use super::error::{ObjectError, Result};
use half::f16;
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
    /// A string of so many characters, filled up with zeroes: each a code point in 32 bits (NumPy's `U`).
    Unicode(u32),
    /// Units since 1970-01-01 00:00, without leap seconds, in 64 bits; [`NAT`] is no time (NumPy's `datetime64`).
    DateTime(TimeUnit),
    /// Units between two times, in 64 bits; [`NAT`] is none (NumPy's `timedelta64`).
    TimeDelta(TimeUnit),
    /// IEEE 754's binary16.
    Float16,
}

/// Not a time, and no difference of times.
pub const NAT: i64 = i64::MIN;

/// What times are counted in. Months and years, which are of no one length, are not among them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, Serialize, Deserialize)]
pub enum TimeUnit {
    Day,
    Hour,
    Minute,
    Second,
    Millisecond,
    Microsecond,
    Nanosecond,
}

impl TimeUnit {
    pub const ALL: [TimeUnit; 7] = {
        use TimeUnit::*;
        [Day, Hour, Minute, Second, Millisecond, Microsecond, Nanosecond]
    };

    /// As NumPy writes it.
    pub fn name(self) -> &'static str {
        match self {
            TimeUnit::Day => "D",
            TimeUnit::Hour => "h",
            TimeUnit::Minute => "m",
            TimeUnit::Second => "s",
            TimeUnit::Millisecond => "ms",
            TimeUnit::Microsecond => "us",
            TimeUnit::Nanosecond => "ns",
        }
    }

    pub fn parse(name: &str) -> Option<TimeUnit> {
        TimeUnit::ALL.into_iter().find(|unit| unit.name() == name)
    }
}

use DataType::*;

/// Longest fixed string.
pub const STRING_MAX: u32 = 1 << 20;

const NAMED: [(DataType, &str, u32); 14] = [
    (Bool, "bool", 1),
    (Int8, "int8", 1),
    (Int16, "int16", 2),
    (Int32, "int32", 4),
    (Int64, "int64", 8),
    (UInt8, "uint8", 1),
    (UInt16, "uint16", 2),
    (UInt32, "uint32", 4),
    (UInt64, "uint64", 8),
    (Float16, "float16", 2),
    (Float32, "float32", 4),
    (Float64, "float64", 8),
    (Complex64, "complex64", 8),
    (Complex128, "complex128", 16),
];

impl DataType {
    /// Bytes of one cell.
    pub fn size(self) -> usize {
        match self {
            Bytes(length) => length as usize,
            Unicode(length) => 4 * length as usize,
            DateTime(_) | TimeDelta(_) => 8,
            other => NAMED.iter().find(|(named, ..)| *named == other).expect("all others are named").2 as usize,
        }
    }

    /// NumPy's name; a string of 12 bytes is `S12`, one of 12 characters `U12`, and times are `datetime64[ns]`.
    pub fn name(self) -> String {
        match self {
            Bytes(length) => format!("S{length}"),
            Unicode(length) => format!("U{length}"),
            DateTime(unit) => format!("datetime64[{}]", unit.name()),
            TimeDelta(unit) => format!("timedelta64[{}]", unit.name()),
            other => NAMED.iter().find(|(named, ..)| *named == other).expect("all others are named").1.into(),
        }
    }

    /// Strings, which are no numbers.
    pub fn is_text(self) -> bool {
        matches!(self, Bytes(_) | Unicode(_))
    }

    pub fn parse(name: &str) -> Result<DataType> {
        if let Some((found, ..)) = NAMED.iter().find(|(_, known, _)| *known == name) {
            return Ok(*found);
        }
        let length = |letter: char| name.strip_prefix(letter).and_then(|digits| digits.parse::<u32>().ok());
        let unit = |kind: &str| name.strip_prefix(kind)?.strip_prefix('[')?.strip_suffix(']').and_then(TimeUnit::parse);
        if let Some(length) = length('S') {
            return DataType::string(length);
        }
        if let Some(length) = length('U') {
            return DataType::unicode(length);
        }
        if let Some(time) = unit("datetime64").map(DateTime).or_else(|| unit("timedelta64").map(TimeDelta)) {
            return Ok(time);
        }
        Err(ObjectError::invalid(format!("`{name}` is not a data type")).hint(DataType::HINT))
    }

    /// All there are, for who asked for another.
    pub const HINT: &str = "bool, int8 to int64, uint8 to uint64, float16 to float64, complex64, complex128, S12 for strings of 12 bytes, \
        U12 for strings of 12 characters, datetime64[s] and timedelta64[s] (D, h, m, s, ms, us, ns)";

    pub fn string(length: u32) -> Result<DataType> {
        match length {
            1..=STRING_MAX => Ok(Bytes(length)),
            _ => Err(ObjectError::invalid(format!("strings of {length} bytes: at least 1, at most {STRING_MAX}"))),
        }
    }

    pub fn unicode(length: u32) -> Result<DataType> {
        const LENGTH_MAX: u32 = STRING_MAX / 4;
        match length {
            1..=LENGTH_MAX => Ok(Unicode(length)),
            _ => Err(ObjectError::invalid(format!("strings of {length} characters: at least 1, at most {LENGTH_MAX}"))),
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
            Float16 => halves(cells).map(f16::to_f64).collect(),
            Float32 => floats!(f32),
            Float64 => floats!(f64),
            Complex64 | Complex128 | Bytes(_) | Unicode(_) | DateTime(_) | TimeDelta(_) => return None,
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
            Float16 => {
                let wide: Vec<u8> = halves(cells).flat_map(|half| half.to_f32().to_le_bytes()).collect();
                Float32.range(&wide)
            }
            Float32 => narrow!(f32),
            Float64 => narrow!(f64),
            Complex64 | Complex128 | Bytes(_) | Unicode(_) | DateTime(_) | TimeDelta(_) => None,
        }
    }
}

/// Packed cells of 16 bits.
pub fn halves(cells: &[u8]) -> impl Iterator<Item = f16> + '_ {
    cells.chunks_exact(2).map(|cell| f16::from_le_bytes(cell.try_into().expect("exact chunks")))
}

/// The text of a cell of code points in 32 bits; what is none is U+FFFD.
pub fn unicode_text(cell: &[u8]) -> String {
    let points = cell.chunks_exact(4).map(|point| u32::from_le_bytes(point.try_into().expect("exact chunks")));
    let text: String = points.map(|point| char::from_u32(point).unwrap_or(char::REPLACEMENT_CHARACTER)).collect();
    text.trim_end_matches('\0').to_owned()
}

/// A text as such a cell of so many characters; `None`: it is longer.
pub fn unicode_cell(text: &str, length: u32) -> Option<Vec<u8>> {
    let mut cell: Vec<u8> = text.chars().flat_map(|character| u32::from(character).to_le_bytes()).collect();
    let size = 4 * length as usize;
    (cell.len() <= size).then(|| {
        cell.resize(size, 0);
        cell
    })
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
        let others = [("S12", Bytes(12), 12), ("U12", Unicode(12), 48)];
        let times = TimeUnit::ALL.map(|unit| (format!("datetime64[{}]", unit.name()), DateTime(unit)));
        let spans = TimeUnit::ALL.map(|unit| (format!("timedelta64[{}]", unit.name()), TimeDelta(unit)));
        let times = times.iter().chain(&spans).map(|(name, data_type)| (name.as_str(), *data_type, 8));
        for (name, data_type, size) in others.into_iter().chain(times) {
            assert_eq!(DataType::parse(name).unwrap(), data_type);
            assert_eq!((data_type.name().as_str(), data_type.size()), (name, size));
        }
        let long = format!("U{}", STRING_MAX / 4 + 1);
        for wrong in [
            "S0",
            "S",
            "S-1",
            "U0",
            &long,
            "float128",
            "",
            "S99999999999",
            "datetime64",
            "datetime64[Y]",
            "timedelta64[s",
        ] {
            assert!(DataType::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_text_reads_back_from_its_code_points_or_is_too_long() {
        for text in ["", "a", "日本語", "\u{10ffff}x"] {
            assert_eq!(unicode_text(&unicode_cell(text, 4).unwrap()), text);
        }
        assert_eq!(unicode_cell("abcde", 4), None);
        assert_eq!(unicode_text(&[0xff, 0xff, 0xff, 0xff, b'a', 0, 0, 0]), "\u{fffd}a");
    }

    #[test]
    fn a_range_has_all_values_in_it_or_there_is_none() {
        let floats = |values: &[f64]| values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>();
        assert_eq!(Float64.range(&floats(&[3.0, f64::INFINITY, -1.0])), Some((-1.0, f64::INFINITY)));
        // A query may ask for NaN, or sort it somewhere: cells with one are to be looked at.
        assert_eq!(Float64.range(&floats(&[3.0, f64::NAN, -1.0])), None);
        assert_eq!(Float64.range(&floats(&[f64::NAN, 3.0])), None);
        assert_eq!(Bytes(4).range(b"abcd"), None);
        let halves =
            |values: &[f32]| values.iter().flat_map(|&value| f16::from_f32(value).to_le_bytes()).collect::<Vec<u8>>();
        assert_eq!(Float16.range(&halves(&[0.5, -65504.0, 2.0])), Some((-65504.0, 2.0)));
        assert_eq!(Float16.range(&halves(&[0.5, f32::NAN])), None);
        assert_eq!(Int8.range(&[0x80, 0x7f]), Some((-128.0, 127.0)));
        assert_eq!(Int8.range(&[]), None);
        let (low, high) = UInt64.range(&(u64::MAX - 1).to_le_bytes()).unwrap();
        assert!((low as u128) < u64::MAX as u128 && high as u128 >= u64::MAX as u128 - 1, "{low} to {high}");
        let (low, high) = Int64.range(&((1i64 << 60) + 1).to_le_bytes()).unwrap();
        assert!((low as i64) < (1 << 60) + 1 && high as i64 > (1 << 60) + 1, "{low} to {high}");
    }
}
