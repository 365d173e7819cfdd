//! NumPy's `.npy` files: a header of Python's own words, then the cells.

use std::io::{Read, Write};
use terrace_client::{DataType, ObjectError, Result};

const MAGIC: &[u8; 6] = b"\x93NUMPY";
/// A header is a line of text.
const HEADER_MAX: usize = 1 << 20;

fn bad(what: impl std::fmt::Display) -> ObjectError {
    ObjectError::invalid(format!("it is not a .npy file that can be used here: {what}"))
}

fn descr(data_type: DataType) -> String {
    match data_type {
        DataType::Bool => "|b1".into(),
        DataType::Int8 => "|i1".into(),
        DataType::UInt8 => "|u1".into(),
        DataType::Int16 => "<i2".into(),
        DataType::Int32 => "<i4".into(),
        DataType::Int64 => "<i8".into(),
        DataType::UInt16 => "<u2".into(),
        DataType::UInt32 => "<u4".into(),
        DataType::UInt64 => "<u8".into(),
        DataType::Float32 => "<f4".into(),
        DataType::Float64 => "<f8".into(),
        DataType::Complex64 => "<c8".into(),
        DataType::Complex128 => "<c16".into(),
        DataType::Float16 => "<f2".into(),
        DataType::Bytes(length) => format!("|S{length}"),
        DataType::Unicode(length) => format!("<U{length}"),
        DataType::DateTime(unit) => format!("<M8[{}]", unit.name()),
        DataType::TimeDelta(unit) => format!("<m8[{}]", unit.name()),
    }
}

fn parse_descr(text: &str) -> Result<DataType> {
    const NUMBERS: [DataType; 14] = [
        DataType::Bool,
        DataType::Int8,
        DataType::UInt8,
        DataType::Int16,
        DataType::Int32,
        DataType::Int64,
        DataType::UInt16,
        DataType::UInt32,
        DataType::UInt64,
        DataType::Float16,
        DataType::Float32,
        DataType::Float64,
        DataType::Complex64,
        DataType::Complex128,
    ];
    if let Some(found) = NUMBERS.into_iter().find(|&data_type| descr(data_type) == text) {
        return Ok(found);
    }
    // NumPy's other names of them differ by what stands in front.
    let named = [("|S", "S"), ("<U", "U"), ("<M8", "datetime64"), ("<m8", "timedelta64")].into_iter();
    let mut found = named.filter_map(|(short, name)| text.strip_prefix(short).map(|rest| format!("{name}{rest}")));
    found.next().and_then(|name| DataType::parse(&name).ok()).ok_or_else(|| bad(format!("its type is `{text}`")))
}

/// What a file's header says; the cells follow in C order.
pub fn read_header(file: &mut impl Read) -> Result<(DataType, Vec<u64>)> {
    let mut head = [0; 8];
    file.read_exact(&mut head).map_err(bad)?;
    if &head[..6] != MAGIC {
        return Err(bad("it does not begin as one"));
    }
    let mut length = [0; 4];
    let bytes = if head[6] == 1 { 2 } else { 4 };
    file.read_exact(&mut length[..bytes]).map_err(bad)?;
    let length = u32::from_le_bytes(length) as usize;
    if length > HEADER_MAX {
        return Err(bad("its header is too long"));
    }
    let mut text = vec![0; length];
    file.read_exact(&mut text).map_err(bad)?;
    let text = String::from_utf8_lossy(&text);
    let after = |key: &str| text.split_once(&format!("'{key}':")).map(|(_, rest)| rest.trim_start());
    let data_type = after("descr")
        .and_then(|rest| rest.strip_prefix('\'')?.split('\'').next())
        .ok_or_else(|| bad("its type is not a plain one"))
        .and_then(parse_descr)?;
    if after("fortran_order").is_none_or(|rest| !rest.starts_with("False")) {
        return Err(bad("its cells are in Fortran's order").hint("numpy.save(FILE, numpy.ascontiguousarray(a))"));
    }
    let shape =
        after("shape").and_then(|rest| rest.strip_prefix('(')?.split(')').next()).ok_or_else(|| bad("shape"))?;
    let shape = shape.split(',').map(str::trim).filter(|part| !part.is_empty()).map(str::parse::<u64>);
    let shape: Vec<u64> = shape.collect::<std::result::Result<_, _>>().map_err(bad)?;
    Ok((data_type, shape))
}

pub fn write_header(file: &mut impl Write, data_type: DataType, shape: &[u64]) -> std::io::Result<()> {
    let shape: String = shape.iter().map(|extent| format!("{extent}, ")).collect();
    let mut text = format!("{{'descr': '{}', 'fortran_order': False, 'shape': ({shape}), }}", descr(data_type));
    // The cells begin at a multiple of 64.
    while (10 + text.len() + 1) % 64 != 0 {
        text.push(' ');
    }
    text.push('\n');
    file.write_all(MAGIC)?;
    file.write_all(&[1, 0])?;
    file.write_all(&(text.len() as u16).to_le_bytes())?;
    file.write_all(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_client::TimeUnit;

    #[test]
    fn a_header_reads_back_as_it_was_written() {
        for (data_type, shape) in [
            (DataType::Float64, vec![3, 4]),
            (DataType::Bool, vec![7]),
            (DataType::Bytes(5), vec![0, 2, 1]),
            (DataType::Unicode(3), vec![2]),
            (DataType::Float16, vec![7]),
            (DataType::DateTime(TimeUnit::Day), vec![1]),
            (DataType::TimeDelta(TimeUnit::Nanosecond), vec![1, 2]),
            (DataType::Complex64, vec![1]),
            (DataType::Int32, vec![]),
        ] {
            let mut bytes = vec![];
            write_header(&mut bytes, data_type, &shape).unwrap();
            assert_eq!(bytes.len() % 64, 0);
            assert_eq!(read_header(&mut bytes.as_slice()).unwrap(), (data_type, shape));
        }
    }

    #[test]
    fn what_numpy_itself_writes_is_read_and_what_is_not_understood_is_refused() {
        let file =
            |text: &str| [MAGIC.as_slice(), &[1, 0], &(text.len() as u16).to_le_bytes(), text.as_bytes()].concat();
        let read = |text: &str| read_header(&mut file(text).as_slice());
        assert_eq!(read("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }\n").unwrap().1, [2, 3]);
        assert_eq!(read("{'descr': '<f4', 'fortran_order': False, 'shape': (), }\n").unwrap().1, [0u64; 0]);
        assert!(read("{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3), }\n").is_err());
        assert!(read("{'descr': '>f4', 'fortran_order': False, 'shape': (2, 3), }\n").is_err());
        assert!(read("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2,), }\n").is_err());
        assert!(read_header(&mut b"PK".as_slice()).is_err());
    }
}
