//! Cells of a region that meet a condition: which they are, and how they travel when they are few.
//!
//!   payload = the cells' bytes, in C order │ for each of them, how many cells lie before it that don't count (LEB128)
//!
//! Invariant: reading checks every position before it writes anything there.

use super::error::{Kind, ObjectError, Result};
use super::{DataType, Region};

/// Comparisons with numbers that all must hold. NaN meets none.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Condition(Vec<Comparison>);

#[derive(Clone, Debug, PartialEq)]
struct Comparison {
    operator: Operator,
    float: f64,
    /// The number, if it has no fraction: 64-bit integers are compared with it exactly.
    integer: Option<i128>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Operator {
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    Equal,
    NotEqual,
}

/// The longer ones first.
const OPERATORS: [(&str, Operator); 8] = [
    ("<=", Operator::LessOrEqual),
    (">=", Operator::GreaterOrEqual),
    ("!=", Operator::NotEqual),
    ("<>", Operator::NotEqual),
    ("==", Operator::Equal),
    ("<", Operator::Less),
    (">", Operator::Greater),
    ("=", Operator::Equal),
];

impl Operator {
    fn holds<T: PartialOrd>(self, a: T, b: T) -> bool {
        match self {
            Operator::Less => a < b,
            Operator::LessOrEqual => a <= b,
            Operator::Greater => a > b,
            Operator::GreaterOrEqual => a >= b,
            Operator::Equal => a == b,
            #[allow(clippy::double_comparisons)] // NaN is neither
            Operator::NotEqual => a < b || a > b,
        }
    }
}

impl Condition {
    /// Texts such as `> 3.5`.
    pub fn parse(texts: &[String]) -> std::result::Result<Condition, String> {
        texts.iter().map(|text| comparison(text)).collect::<std::result::Result<_, _>>().map(Condition)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Which of packed cells meet it. `None`: cells of this type can't be compared.
    pub fn mask(&self, data_type: DataType, cells: &[u8]) -> Option<Vec<bool>> {
        let mut found = Vec::with_capacity(cells.len() / data_type.size());
        self.each(data_type, cells, |_, meets| {
            found.push(meets);
            true
        })?;
        Some(found)
    }

    /// What all cells answer whose least and greatest value are these. `None`: that can't be told by them.
    pub fn decide(&self, low: f64, high: f64) -> Option<bool> {
        let mut all = Some(true);
        for one in &self.0 {
            match one.decide(low, high) {
                Some(false) => return Some(false),
                Some(true) => {}
                None => all = None,
            }
        }
        all
    }

    /// What travels of packed cells of which those that don't meet it have the fill value. `None`: cells of this type can't be compared.
    pub fn gather(&self, data_type: DataType, fill: &[u8], cells: &[u8]) -> Option<Gathered> {
        let size = fill.len();
        let (mut found, mut gaps, mut count, mut next) = (vec![], vec![], 0u64, 0);
        let mut is_few = true;
        self.each(data_type, cells, |position, meets| {
            if meets {
                found.extend_from_slice(&cells[position * size..][..size]);
                put_leb128((position - next) as u64, &mut gaps);
                count += 1;
                next = position + 1;
                is_few = found.len() + gaps.len() < cells.len();
            }
            is_few
        })?;
        if is_few {
            found.append(&mut gaps);
            return Some(Gathered::Few { count, payload: found });
        }
        drop((found, gaps));
        let mut all = cells.to_vec();
        self.each(data_type, cells, |position, meets| {
            if !meets {
                all[position * size..][..size].copy_from_slice(fill);
            }
            true
        })?;
        Some(Gathered::Many(all))
    }

    /// Looks at packed cells in their order, as long as `visit` wants. `None`: cells of this type can't be compared.
    fn each(&self, data_type: DataType, cells: &[u8], mut visit: impl FnMut(usize, bool) -> bool) -> Option<()> {
        macro_rules! each {
            ($type:ty, $holds:expr) => {{
                let holds = $holds;
                for (position, cell) in cells.chunks_exact(size_of::<$type>()).enumerate() {
                    let value = <$type>::from_le_bytes(cell.try_into().expect("exact chunks"));
                    if !visit(position, self.0.iter().all(|one| holds(one, value))) {
                        break;
                    }
                }
            }};
        }
        macro_rules! floats {
            ($type:ty) => {
                each!($type, |one: &Comparison, value: $type| one.operator.holds(value as f64, one.float))
            };
        }
        macro_rules! wide {
            ($type:ty) => {
                each!($type, |one: &Comparison, value: $type| match one.integer {
                    Some(integer) => one.operator.holds(i128::from(value), integer),
                    None => one.operator.holds(value as f64, one.float),
                })
            };
        }
        match data_type {
            DataType::Int8 => floats!(i8),
            DataType::Int16 => floats!(i16),
            DataType::Int32 => floats!(i32),
            DataType::Int64 => wide!(i64),
            DataType::UInt8 | DataType::Bool => floats!(u8),
            DataType::UInt16 => floats!(u16),
            DataType::UInt32 => floats!(u32),
            DataType::UInt64 => wide!(u64),
            DataType::Float32 => floats!(f32),
            DataType::Float64 => floats!(f64),
            DataType::Float16 => {
                each!(half::f16, |one: &Comparison, value: half::f16| { one.operator.holds(value.to_f64(), one.float) })
            }
            DataType::Complex64
            | DataType::Complex128
            | DataType::Bytes(_)
            | DataType::Unicode(_)
            | DataType::DateTime(_)
            | DataType::TimeDelta(_) => return None,
        }
        Some(())
    }
}

impl Comparison {
    fn decide(&self, low: f64, high: f64) -> Option<bool> {
        // Beyond, a 64-bit float stands for several integers.
        const EXACT: i128 = 1 << 53;
        if self.integer.is_some_and(|integer| integer.abs() > EXACT) {
            return None;
        }
        let number = self.float;
        let (yes, no) = match self.operator {
            Operator::Less => (high < number, low >= number),
            Operator::LessOrEqual => (high <= number, low > number),
            Operator::Greater => (low > number, high <= number),
            Operator::GreaterOrEqual => (low >= number, high < number),
            Operator::Equal => (low == number && high == number, low > number || high < number),
            Operator::NotEqual => (low > number || high < number, low == number && high == number),
        };
        if yes { Some(true) } else { no.then_some(false) }
    }
}

/// The shorter of both.
#[derive(Debug, PartialEq)]
pub enum Gathered {
    /// The payload of those that meet the condition.
    Few { count: u64, payload: Vec<u8> },
    /// All cells.
    Many(Vec<u8>),
}

fn comparison(text: &str) -> std::result::Result<Comparison, String> {
    let text = text.trim();
    let found = OPERATORS.iter().find_map(|(sign, operator)| Some((operator, text.strip_prefix(sign)?)));
    let Some((&operator, number)) = found else {
        return Err(format!("`{text}` begins with none of < <= > >= = !="));
    };
    let number = number.trim();
    match number.parse::<f64>() {
        Ok(float) if float.is_finite() => {
            let is_whole = float.fract() == 0.0 && float.abs() < 1e38;
            let integer = number.parse().ok().or_else(|| is_whole.then_some(float as i128));
            Ok(Comparison { operator, float, integer })
        }
        _ => Err(format!("`{number}` in `{text}` is not a number")),
    }
}

fn put_leb128(mut value: u64, bytes: &mut Vec<u8>) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

/// Bytes of the whole region, into which so many cells of a payload go. Refused: more than one transfer has.
pub fn check(region: &Region, size: usize, count: u64, most: u64) -> Result<usize> {
    let bytes = region.cells().checked_mul(size as u64).filter(|bytes| *bytes <= most && count <= region.cells());
    bytes.map(|bytes| bytes as usize).ok_or_else(|| {
        ObjectError::invalid(format!("{count} of {} cells of {size} bytes are too many", region.cells()))
    })
}

/// Every cell of `place` becomes that of the payload, or `fill`.
pub fn scatter(payload: &[u8], count: u64, fill: &[u8], place: &mut [u8]) -> Result<()> {
    let size = fill.len();
    let broken = || ObjectError::new(Kind::Protocol, "cells whose positions can't be read");
    let split = usize::try_from(count).ok().and_then(|count| count.checked_mul(size));
    let split = split.filter(|split| *split <= payload.len()).ok_or_else(broken)?;
    let (cells, mut gaps) = payload.split_at(split);
    place.chunks_exact_mut(size).for_each(|cell| cell.copy_from_slice(fill));
    let mut next = 0u64;
    for cell in cells.chunks_exact(size) {
        let (gap, rest) = leb128(gaps).ok_or_else(broken)?;
        gaps = rest;
        let position = next.checked_add(gap).filter(|position| *position < (place.len() / size) as u64);
        let position = position.ok_or_else(broken)?;
        place[position as usize * size..][..size].copy_from_slice(cell);
        next = position + 1;
    }
    if gaps.is_empty() { Ok(()) } else { Err(broken()) }
}

fn leb128(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut value = 0u64;
    for (position, byte) in bytes.iter().enumerate().take(9) {
        value |= u64::from(byte & 0x7f) << (7 * position);
        if byte & 0x80 == 0 {
            return Some((value, &bytes[position + 1..]));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn condition(texts: &[&str]) -> Condition {
        Condition::parse(&texts.iter().map(|text| text.to_string()).collect::<Vec<_>>()).unwrap()
    }

    fn met(texts: &[&str], data_type: DataType, cells: &[u8]) -> Option<Vec<usize>> {
        let mut found = vec![];
        condition(texts).each(data_type, cells, |position, meets| {
            found.extend(meets.then_some(position));
            true
        })?;
        Some(found)
    }

    #[test]
    fn cells_are_found_by_all_comparisons_and_nan_by_none() {
        let values = [1.0f64, 3.5, f64::NAN, 4.0, -2.0, 9.0];
        let cells: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        for (texts, wanted) in [
            (&["> 3.5"][..], &[3, 5][..]),
            (&[">=3.5", "< 9"], &[1, 3]),
            (&["!= 4"], &[0, 1, 4, 5]),
            (&["= -2"], &[4]),
            (&["<=-2e0", "<0"], &[4]),
        ] {
            assert_eq!(met(texts, DataType::Float64, &cells).unwrap(), wanted, "{texts:?}");
        }
        let large: Vec<u8> = [i64::MAX, i64::MAX - 1].iter().flat_map(|value| value.to_le_bytes()).collect();
        assert_eq!(met(&["= 9223372036854775806"], DataType::Int64, &large).unwrap(), [1]);
        let near: Vec<u8> = [10i64.pow(18), 10i64.pow(18) - 1].iter().flat_map(|value| value.to_le_bytes()).collect();
        assert_eq!(met(&["< 1e18"], DataType::Int64, &near).unwrap(), [1]);
        assert_eq!(met(&["> 1"], DataType::Bytes(3), b"abc"), None);
    }

    #[test]
    fn what_is_no_comparison_is_named() {
        for (text, word) in [("3.5", "none of"), ("> x", "`x`"), ("", "none of"), ("<", "``"), ("> inf", "`inf`")] {
            let error = Condition::parse(&[text.into()]).unwrap_err();
            assert!(error.contains(word), "{text}: {error}");
        }
    }

    proptest! {
        #[test]
        fn what_is_gathered_is_scattered_again(cells in proptest::collection::vec(any::<i16>(), 0..2000), least in any::<i16>()) {
            let packed: Vec<u8> = cells.iter().flat_map(|cell| cell.to_le_bytes()).collect();
            let fill = 7i16.to_le_bytes();
            let place = match condition(&[&format!("> {least}")]).gather(DataType::Int16, &fill, &packed).unwrap() {
                Gathered::Few { count, payload } => {
                    prop_assert!(payload.len() < packed.len() || packed.is_empty());
                    let mut place = vec![0xee; packed.len()];
                    scatter(&payload, count, &fill, &mut place).unwrap();
                    place
                }
                Gathered::Many(all) => all,
            };
            let wanted: Vec<u8> =
                cells.iter().flat_map(|cell| if *cell > least { *cell } else { 7 }.to_le_bytes()).collect();
            prop_assert_eq!(place, wanted);
        }

        #[test]
        fn any_payload_is_scattered_or_refused(payload in proptest::collection::vec(any::<u8>(), 0..200), count in 0u64..40) {
            let _ = scatter(&payload, count, &[1, 2, 3, 4], &mut [0; 64]);
        }
    }
}
