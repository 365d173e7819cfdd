//! `zarr.json`: what the root's own storage says an array or a container is. Written here in the plainest form of Zarr v3
//! (regular chunks, little-endian bytes); read in that form, and as far as a spec needs it in any other.

use crate::calls;
use crate::failure::Context;
use crate::place::{Place, random};
use half::f16;
use rustix::fs::{Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use serde_json::{Map, Value, json};
use std::path::Path;
use terrace_core::objects::{
    ArraySpec, DataType, Kind, NAT, ObjectError, Placement, Result, TimeUnit, unicode_cell, unicode_text,
};

/// Below it are the chunks, as we name them.
pub const CHUNKS: &str = "c";
pub const METADATA_FILE: &str = "zarr.json";
/// Attribute that tells which dimensions grow; Zarr itself lets any dimension be resized.
const UNLIMITED: &str = "terrace_unlimited";
/// Attribute that tells which agent keeps the array, where not all do.
const PLACEMENT: &str = "terrace_placement";
/// A `zarr.json` is small; what is larger is something else.
const METADATA_BYTES_MAX: u64 = 64 << 20;

#[derive(Clone, Debug)]
pub struct Metadata {
    /// `None`: a group.
    pub array: Option<ArrayMetadata>,
    pub attributes: Map<String, Value>,
    /// As it was read, for what we don't know of.
    document: Map<String, Value>,
}

#[derive(Clone, Debug)]
pub struct ArrayMetadata {
    pub spec: ArraySpec,
    /// Chunks are cells as they are, little-endian: read and written without a codec.
    pub is_raw: bool,
    pub key: ChunkKey,
}

/// How a chunk's name is made of its place in the grid.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ChunkKey {
    /// `c/1/2` with this separator.
    Default(char),
    /// `1.2` with this separator.
    V2(char),
}

impl ChunkKey {
    pub fn name(self, chunk: &[u64]) -> String {
        let join = |separator: char| chunk.iter().map(u64::to_string).collect::<Vec<_>>().join(&separator.to_string());
        match self {
            // An array without dimensions has one chunk.
            ChunkKey::Default(_) if chunk.is_empty() => CHUNKS.into(),
            ChunkKey::V2(_) if chunk.is_empty() => "0".into(),
            ChunkKey::Default(separator) => format!("{CHUNKS}{separator}{}", join(separator)),
            ChunkKey::V2(separator) => join(separator),
        }
    }

    /// The place of the chunk that has this name, in a grid of so many dimensions; `None`: no chunk has it.
    pub fn chunk(self, name: &str, rank: usize) -> Option<Vec<u64>> {
        let (indexes, separator) = match self {
            ChunkKey::Default(separator) => (name.strip_prefix(CHUNKS)?.strip_prefix(separator)?, separator),
            ChunkKey::V2(separator) => (name, separator),
        };
        let chunk: Vec<u64> = indexes.split(separator).map(str::parse).collect::<std::result::Result<_, _>>().ok()?;
        (chunk.len() == rank && self.name(&chunk) == name).then_some(chunk)
    }
}

/// `None`: the directory has no `zarr.json`, it is a plain container.
pub fn read_metadata(directory: &Path) -> Result<Option<Metadata>> {
    let path = directory.join(METADATA_FILE);
    let fd = match calls::open(&path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()) {
        Ok(fd) => fd,
        Err(Errno::NOENT | Errno::NOTDIR) => return Ok(None),
        Err(errno) => return Err(crate::failure::system("open", &path, errno)),
    };
    let size = calls::fstat(&fd).context("look at", &path)?.st_size as u64;
    if size > METADATA_BYTES_MAX {
        return Err(damaged(&path, "it is too large"));
    }
    let mut text = vec![];
    std::io::Read::read_to_end(&mut std::fs::File::from(fd), &mut text).context("read", &path)?;
    Metadata::parse(&text).map(Some).map_err(|error| damaged(&path, &error.message))
}

fn damaged(path: &Path, reason: &str) -> ObjectError {
    ObjectError::new(Kind::Damaged, format!("{} can't be used: {reason}", path.display()))
}

impl Metadata {
    pub fn of_array(spec: &ArraySpec) -> Metadata {
        let codec = match spec.data_type.size() {
            1 => json!({"name": "bytes"}),
            _ => json!({"name": "bytes", "configuration": {"endian": "little"}}),
        };
        let codec = if matches!(spec.data_type, DataType::Bytes(_)) { json!({"name": "bytes"}) } else { codec };
        let mut document = json!({
            "zarr_format": 3,
            "node_type": "array",
            "shape": spec.shape,
            "data_type": type_name(spec.data_type),
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": spec.chunks}},
            "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
            "fill_value": fill_value(spec.data_type, &spec.fill),
            "codecs": [codec],
            "attributes": {},
        });
        if !spec.dimensions.is_empty() {
            document["dimension_names"] = json!(spec.dimensions);
        }
        let Value::Object(document) = document else { unreachable!("an object was written") };
        let array = ArrayMetadata { spec: spec.clone(), is_raw: true, key: ChunkKey::Default('/') };
        let mut metadata = Metadata { array: Some(array), attributes: Map::new(), document };
        if spec.unlimited.contains(&true) {
            metadata.attributes.insert(UNLIMITED.into(), json!(spec.unlimited));
        }
        let placement = match spec.placement {
            Placement::Spread => None,
            Placement::Local => Some(json!("local")),
            Placement::One => Some(json!("one")),
            Placement::At(agent) => Some(json!(agent)),
        };
        metadata.attributes.extend(placement.map(|placement| (PLACEMENT.to_owned(), placement)));
        metadata
    }

    pub fn of_group() -> Metadata {
        let Value::Object(document) = json!({"zarr_format": 3, "node_type": "group", "attributes": {}}) else {
            unreachable!("an object was written")
        };
        Metadata { array: None, attributes: Map::new(), document }
    }

    pub fn set_shape(&mut self, shape: &[u64]) {
        self.document.insert("shape".into(), json!(shape));
        if let Some(array) = &mut self.array {
            array.spec.shape = shape.into();
        }
    }

    pub fn text(&self) -> Vec<u8> {
        let mut document = self.document.clone();
        document.insert("attributes".into(), Value::Object(self.attributes.clone()));
        serde_json::to_vec_pretty(&document).expect("a JSON value is text")
    }

    pub fn parse(text: &[u8]) -> Result<Metadata> {
        let bad = |what: &str| ObjectError::new(Kind::Damaged, format!("it is not Zarr v3 metadata: {what}"));
        let document: Map<String, Value> = serde_json::from_slice(text).map_err(|error| bad(&error.to_string()))?;
        if document.get("zarr_format") != Some(&json!(3)) {
            return Err(bad("`zarr_format` is not 3"));
        }
        let attributes = match document.get("attributes") {
            Some(Value::Object(attributes)) => attributes.clone(),
            _ => Map::new(),
        };
        let array = match document.get("node_type").and_then(Value::as_str) {
            Some("group") => None,
            Some("array") => Some(parse_array(&document, &attributes).map_err(|what| bad(&what))?),
            _ => return Err(bad("`node_type` is neither array nor group")),
        };
        Ok(Metadata { array, attributes, document })
    }
}

fn numbers(value: Option<&Value>) -> Option<Vec<u64>> {
    value?.as_array()?.iter().map(Value::as_u64).collect()
}

/// The name of an extension: a plain text, or the `name` of an object.
fn name(value: &Value) -> Option<&str> {
    value.as_str().or_else(|| value.get("name")?.as_str())
}

fn parse_array(
    document: &Map<String, Value>,
    attributes: &Map<String, Value>,
) -> std::result::Result<ArrayMetadata, String> {
    let shape = numbers(document.get("shape")).ok_or("`shape`")?;
    let data_type =
        document.get("data_type").and_then(parse_type).ok_or("`data_type` is not one that is known here")?;
    let grid = document.get("chunk_grid").ok_or("`chunk_grid`")?;
    let chunks = numbers(grid.pointer("/configuration/chunk_shape"))
        .filter(|_| name(grid) == Some("regular"))
        .ok_or("`chunk_grid` is not regular")?;
    let fill = document.get("fill_value").and_then(|value| parse_fill(data_type, value)).ok_or("`fill_value`")?;
    let key = document.get("chunk_key_encoding").ok_or("`chunk_key_encoding`")?;
    let separator =
        key.pointer("/configuration/separator").and_then(Value::as_str).and_then(|text| text.chars().next());
    let key = match name(key) {
        Some("default") => ChunkKey::Default(separator.unwrap_or('/')),
        Some("v2") => ChunkKey::V2(separator.unwrap_or('.')),
        _ => return Err("`chunk_key_encoding`".into()),
    };
    let codecs = document.get("codecs").and_then(Value::as_array).ok_or("`codecs`")?;
    let is_raw = match codecs.as_slice() {
        [only] if name(only) == Some("bytes") => {
            only.pointer("/configuration/endian").is_none_or(|endian| endian == "little")
        }
        _ => false,
    };
    let mut spec = ArraySpec::new(data_type, &shape).chunks(&chunks).fill(&fill);
    if let Some(flags) = attributes.get(UNLIMITED).and_then(Value::as_array)
        && flags.len() == shape.len()
    {
        spec.unlimited = flags.iter().map(|flag| flag == &json!(true)).collect();
    }
    spec.placement = match attributes.get(PLACEMENT) {
        Some(Value::String(how)) if how == "local" => Placement::Local,
        Some(Value::String(how)) if how == "one" => Placement::One,
        Some(Value::Number(agent)) => {
            agent.as_u64().and_then(|agent| u32::try_from(agent).ok()).map_or(Placement::One, Placement::At)
        }
        _ => Placement::Spread,
    };
    if let Some(names) = document.get("dimension_names").and_then(Value::as_array) {
        spec.dimensions = names.iter().map(|name| name.as_str().unwrap_or_default().to_owned()).collect();
    }
    let spec = spec.checked().map_err(|error| error.message)?;
    Ok(ArrayMetadata { spec, is_raw, key })
}

/// Zarr's names of NumPy's times (zarr-extensions, data-types).
const DATE_TIME: &str = "numpy.datetime64";
const TIME_DELTA: &str = "numpy.timedelta64";

fn type_name(data_type: DataType) -> Value {
    match data_type {
        DataType::Bytes(length) => {
            json!({"name": "null_terminated_bytes", "configuration": {"length_bytes": length}})
        }
        DataType::Unicode(length) => {
            json!({"name": "fixed_length_utf32", "configuration": {"length_bytes": 4 * length}})
        }
        DataType::DateTime(unit) => {
            json!({"name": DATE_TIME, "configuration": {"unit": unit.name(), "scale_factor": 1}})
        }
        DataType::TimeDelta(unit) => {
            json!({"name": TIME_DELTA, "configuration": {"unit": unit.name(), "scale_factor": 1}})
        }
        other => json!(other.name()),
    }
}

fn parse_type(value: &Value) -> Option<DataType> {
    let found = name(value)?;
    if found == "null_terminated_bytes" {
        let length = value.pointer("/configuration/length_bytes")?.as_u64()?;
        return DataType::string(u32::try_from(length).ok()?).ok();
    }
    if found == "fixed_length_utf32" {
        let bytes = value.pointer("/configuration/length_bytes")?.as_u64()?;
        return (bytes % 4 == 0).then(|| DataType::unicode(u32::try_from(bytes / 4).ok()?).ok())?;
    }
    if matches!(found, DATE_TIME | TIME_DELTA) {
        let unit = TimeUnit::parse(value.pointer("/configuration/unit")?.as_str()?)?;
        let is_single = value.pointer("/configuration/scale_factor").is_none_or(|factor| factor == &json!(1));
        let data_type = if found == DATE_TIME { DataType::DateTime(unit) } else { DataType::TimeDelta(unit) };
        return is_single.then_some(data_type);
    }
    if let Some(bits) = found.strip_prefix('r').and_then(|digits| digits.parse::<u32>().ok()) {
        return (bits % 8 == 0).then(|| DataType::string(bits / 8).ok())?;
    }
    // Those that are named by an object have been looked for.
    DataType::parse(found).ok().filter(|data_type| data_type.name() == found && type_name(*data_type).is_string())
}

fn float_value(value: f64, bits: u64, is_usual_nan: bool) -> Value {
    match value {
        value if value.is_nan() && !is_usual_nan => json!(format!("0x{bits:x}")),
        value if value.is_nan() => json!("NaN"),
        f64::INFINITY => json!("Infinity"),
        f64::NEG_INFINITY => json!("-Infinity"),
        value => json!(value),
    }
}

fn fill_value(data_type: DataType, cell: &[u8]) -> Value {
    use DataType::*;
    macro_rules! number {
        ($type:ty) => {
            <$type>::from_le_bytes(cell.try_into().expect("a fill value has its type's size"))
        };
    }
    let half = cell.len() / 2;
    match data_type {
        Bool => json!(cell[0] != 0),
        Int8 => json!(number!(i8)),
        Int16 => json!(number!(i16)),
        Int32 => json!(number!(i32)),
        Int64 => json!(number!(i64)),
        UInt8 => json!(number!(u8)),
        UInt16 => json!(number!(u16)),
        UInt32 => json!(number!(u32)),
        UInt64 => json!(number!(u64)),
        Float16 => {
            let (bits, value) = (number!(u16), number!(f16));
            float_value(value.to_f64(), bits as u64, bits == f16::NAN.to_bits())
        }
        Float32 => {
            let bits = number!(u32);
            float_value(number!(f32) as f64, bits as u64, bits == f32::NAN.to_bits())
        }
        Float64 => float_value(number!(f64), number!(u64), number!(u64) == f64::NAN.to_bits()),
        Complex64 => json!([fill_value(Float32, &cell[..half]), fill_value(Float32, &cell[half..])]),
        Complex128 => json!([fill_value(Float64, &cell[..half]), fill_value(Float64, &cell[half..])]),
        Bytes(_) => {
            let end = cell.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
            json!(base64(&cell[..end]))
        }
        Unicode(_) => json!(unicode_text(cell)),
        DateTime(_) | TimeDelta(_) => match number!(i64) {
            NAT => json!("NaT"),
            count => json!(count),
        },
    }
}

fn parse_fill(data_type: DataType, value: &Value) -> Option<Vec<u8>> {
    use DataType::*;
    macro_rules! number {
        ($type:ty, $read:ident) => {
            <$type>::try_from(value.$read()?).ok()?.to_le_bytes().to_vec()
        };
    }
    let float = |value: &Value| match value.as_str() {
        Some("NaN") => Some(f64::NAN),
        Some("Infinity") => Some(f64::INFINITY),
        Some("-Infinity") => Some(f64::NEG_INFINITY),
        Some(_) => None,
        None => value.as_f64(),
    };
    let part = |data_type, index: usize| parse_fill(data_type, value.as_array()?.get(index)?);
    Some(match data_type {
        Bool => vec![value.as_bool()? as u8],
        Int8 => number!(i8, as_i64),
        Int16 => number!(i16, as_i64),
        Int32 => number!(i32, as_i64),
        Int64 => number!(i64, as_i64),
        UInt8 => number!(u8, as_u64),
        UInt16 => number!(u16, as_u64),
        UInt32 => number!(u32, as_u64),
        UInt64 => number!(u64, as_u64),
        Float16 | Float32 | Float64 if value.as_str().is_some_and(|text| text.starts_with("0x")) => {
            let digits = value.as_str()?.strip_prefix("0x")?;
            let bits = u64::from_str_radix(digits, 16).ok()?;
            bits.to_le_bytes()[..data_type.size()].to_vec()
        }
        Float16 => f16::from_f64(float(value)?).to_le_bytes().to_vec(),
        Float32 => (float(value)? as f32).to_le_bytes().to_vec(),
        Float64 => float(value)?.to_le_bytes().to_vec(),
        Complex64 => [part(Float32, 0)?, part(Float32, 1)?].concat(),
        Complex128 => [part(Float64, 0)?, part(Float64, 1)?].concat(),
        Bytes(length) => {
            let mut bytes = match value {
                Value::String(text) => unbase64(text)?,
                Value::Array(bytes) => {
                    bytes.iter().map(|byte| u8::try_from(byte.as_u64()?).ok()).collect::<Option<Vec<u8>>>()?
                }
                _ => return None,
            };
            (bytes.len() <= length as usize).then_some(())?;
            bytes.resize(length as usize, 0);
            bytes
        }
        Unicode(length) => unicode_cell(value.as_str()?, length)?,
        DateTime(_) | TimeDelta(_) if value.as_str() == Some("NaT") => NAT.to_le_bytes().to_vec(),
        DateTime(_) | TimeDelta(_) => value.as_i64()?.to_le_bytes().to_vec(),
    })
}

const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

fn base64(bytes: &[u8]) -> String {
    let mut text = String::new();
    for group in bytes.chunks(3) {
        let word = group.iter().fold(0u32, |word, &byte| word << 8 | byte as u32) << (8 * (3 - group.len()));
        for i in 0..4 {
            let symbol = BASE64[(word >> (18 - 6 * i)) as usize & 63] as char;
            text.push(if i <= group.len() { symbol } else { '=' });
        }
    }
    text
}

fn unbase64(text: &str) -> Option<Vec<u8>> {
    let mut bytes = vec![];
    let (mut word, mut bits) = (0u32, 0);
    for symbol in text.trim_end_matches('=').bytes() {
        word = word << 6 | BASE64.iter().position(|&known| known == symbol)? as u32;
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            bytes.push((word >> bits) as u8);
            word &= (1 << bits) - 1;
        }
    }
    Some(bytes)
}

/// Replaces a directory's `zarr.json` in one step. `durable`: it is on the storage when this returns.
pub fn write_metadata(directory: &Path, metadata: &Metadata, durable: bool) -> Result<()> {
    let temporary = directory.join(format!(".{METADATA_FILE}.{:016x}", random()));
    let written = write_file(&temporary, &metadata.text(), durable)
        .and_then(|()| calls::rename(&temporary, directory.join(METADATA_FILE)).context("replace", directory));
    if written.is_err() {
        let _ = calls::unlink(&temporary);
    }
    written
}

pub fn write_file(path: &Path, bytes: &[u8], durable: bool) -> Result<()> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let fd = calls::open(path, flags, Mode::from_raw_mode(0o666)).context("create", path)?;
    let mut file = std::fs::File::from(fd);
    std::io::Write::write_all(&mut file, bytes).context("write", path)?;
    if durable {
        rustix::fs::fdatasync(&file).context("sync", path)?;
    }
    Ok(())
}

/// A new directory with its `zarr.json`: it appears whole, or not at all.
pub fn create_array(place: &Place, directory: &Path, metadata: &Metadata) -> Result<()> {
    let workplace = place.private().join("tmp");
    let temporary = workplace.join(format!("array-{:016x}", random()));
    let made = (|| {
        rustix::fs::mkdir(&temporary, Mode::from_raw_mode(0o777)).context("create", &temporary)?;
        write_file(&temporary.join(METADATA_FILE), &metadata.text(), false)?;
        match calls::rename_with(&temporary, directory, RenameFlags::NOREPLACE) {
            // A file system that can't: a plain rename replaces an empty directory at most.
            Err(Errno::INVAL | Errno::NOSYS) => calls::rename(&temporary, directory),
            result => result,
        }
        .map_err(|errno| match errno {
            Errno::NOTEMPTY | Errno::NOTDIR => Errno::EXIST,
            errno => errno,
        })
        .context("create", directory)
    })();
    if made.is_err() {
        let _ = calls::unlink(temporary.join(METADATA_FILE));
        let _ = calls::rmdir(&temporary);
    }
    made
}

/// Makes a Zarr group of a directory that has no metadata yet.
pub fn create_group(directory: &Path) -> Result<()> {
    match read_metadata(directory)? {
        Some(_) => Ok(()),
        None => write_metadata(directory, &Metadata::of_group(), false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use DataType::*;

    fn spec(data_type: DataType, fill: &[u8]) -> ArraySpec {
        ArraySpec::new(data_type, &[0, 20])
            .unlimited(0)
            .chunks(&[5, 20])
            .fill(fill)
            .dimensions(&["t", "x"])
            .checked()
            .unwrap()
    }

    #[test]
    fn an_arrays_metadata_reads_back_as_it_was_written() {
        let cells: [(DataType, Vec<u8>); 19] = [
            (Bool, vec![1]),
            (Int8, vec![0x80]),
            (UInt16, 40000u16.to_le_bytes().into()),
            (Int64, i64::MIN.to_le_bytes().into()),
            (UInt64, u64::MAX.to_le_bytes().into()),
            (Float32, f32::NEG_INFINITY.to_le_bytes().into()),
            (Float64, 0.1f64.to_le_bytes().into()),
            (Float64, f64::from_bits(3).to_le_bytes().into()),
            (Float32, f32::from_bits(0x7fc1_2345).to_le_bytes().into()),
            (Float64, f64::NAN.to_le_bytes().into()),
            (Complex64, [1.5f32.to_le_bytes(), (-2.0f32).to_le_bytes()].concat()),
            (Bytes(5), b"ab\0\0\0".to_vec()),
            (Bytes(4), vec![0xff; 4]),
            (Float16, f16::from_f32(-1.5).to_le_bytes().into()),
            (Float16, f16::NAN.to_le_bytes().into()),
            (Unicode(3), unicode_cell("日本", 3).unwrap()),
            (DateTime(TimeUnit::Nanosecond), NAT.to_le_bytes().into()),
            (DateTime(TimeUnit::Day), (-7i64).to_le_bytes().into()),
            (TimeDelta(TimeUnit::Second), i64::MAX.to_le_bytes().into()),
        ];
        for (data_type, fill) in cells {
            let wanted = spec(data_type, &fill);
            let read = Metadata::parse(&Metadata::of_array(&wanted).text()).unwrap();
            let array = read.array.unwrap();
            assert_eq!(array.spec, wanted);
            assert!(array.is_raw);
            assert_eq!(array.key.name(&[1, 2]), "c/1/2");
        }
    }

    #[test]
    fn the_chunk_of_an_array_without_dimensions_has_zarrs_name() {
        let wanted = ArraySpec::new(Float32, &[]).checked().unwrap();
        let array = Metadata::parse(&Metadata::of_array(&wanted).text()).unwrap().array.unwrap();
        assert_eq!(array.spec, wanted);
        assert_eq!((array.key.name(&[]), ChunkKey::V2('.').name(&[])), ("c".into(), "0".into()));
    }

    #[test]
    fn what_is_not_zarr_is_refused_with_the_reason() {
        let good = Metadata::of_array(&spec(Int8, &[0])).text();
        let change = |pointer: &str, value: Value| {
            let mut document: Value = serde_json::from_slice(&good).unwrap();
            *document.pointer_mut(pointer).unwrap() = value;
            Metadata::parse(document.to_string().as_bytes()).map(|_| ()).unwrap_err().message
        };
        assert!(change("/zarr_format", json!(2)).contains("zarr_format"));
        assert!(change("/data_type", json!("float8")).contains("data_type"));
        assert!(change("/fill_value", json!(300)).contains("fill_value"));
        assert!(change("/shape", json!([-1, 2])).contains("shape"));
        assert!(change("/chunk_grid/configuration/chunk_shape", json!([0, 0])).contains("chunks"));
        assert!(Metadata::parse(b"{").is_err());
        assert!(Metadata::parse(b"[]").is_err());
    }
}
