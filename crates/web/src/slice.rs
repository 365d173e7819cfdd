//! A plane of an array for the viewer: cells as 32-bit floats to draw, and the statistics of the plane.
//!
//! `at` has an index for each dimension and `*` for the two that are drawn (one, for an array of one dimension; nothing, for one without).

use crate::refusal::{Answer, Refusal};
use crate::reply::Reply;
use crate::store::{Store, parent};
use crate::zarr::metadata::float;
use axum::http::HeaderName;
use serde_json::json;
use terrace_client::{Array, DataType, NAT, Region};

/// Cells on a side that are drawn; of larger planes every second one, third one…
const SIDE_MAX: u64 = 1024;
/// Cells of which statistics are made.
const CELLS_MAX: u64 = 1 << 24;
const DRAWN: &str = "*";
/// The newest step that is shown.
const LAST: &str = "last";

pub fn slice(store: &Store, name: &str, at: &str) -> Answer<Reply> {
    let array =
        store.array(name)?.ok_or_else(|| Refusal::not_found(format!("`{name}` is no array that can be drawn")))?;
    let shape = store.shape(&array, &store.steps(parent(name).0)?)?;
    let plane = Plane::parse(at, &shape)?;
    let every = plane.drawn.iter().map(|&d| shape[d].div_ceil(SIDE_MAX)).max().unwrap_or(1).max(1);
    let is_sampled = plane.drawn.iter().map(|&d| shape[d]).product::<u64>() > CELLS_MAX;
    let region = plane.region(&shape, if is_sampled { every } else { 1 })?;
    let counts: Vec<u64> = plane.drawn.iter().map(|&d| region.count()[d]).collect();
    let (rows, columns) = match counts[..] {
        [] => (1, 1),
        [columns] => (1, columns),
        [rows, columns, ..] => (rows, columns),
    };
    let room = store.room(region.cells() * (array.spec().data_type.size() as u64 + 12))?;
    let values = values(&array, &region)?;
    let statistics = Statistics::of(&values);
    let step = if is_sampled { 1 } else { every as usize };
    let drawn: Vec<u8> = (0..rows as usize)
        .step_by(step)
        .flat_map(|row| values[row * columns as usize..][..columns as usize].iter().step_by(step))
        .flat_map(|value| (*value as f32).to_le_bytes())
        .collect();
    let head = json!({
        "rows": rows.div_ceil(step as u64), "columns": columns.div_ceil(step as u64), "every": every, "sampled": is_sampled,
        "at": plane.at, "drawn": plane.drawn, "shape": shape,
        "min": float(statistics.min), "max": float(statistics.max), "mean": float(statistics.mean()), "count": statistics.count,
    });
    let reply = Reply::entity("application/octet-stream", room.holds(drawn));
    Ok(reply.header(HeaderName::from_static("x-terrace-slice"), &head.to_string()))
}

struct Plane {
    /// 0 in dimensions that are drawn.
    at: Vec<u64>,
    drawn: Vec<usize>,
}

impl Plane {
    fn parse(text: &str, shape: &[u64]) -> Answer<Plane> {
        let words: Vec<&str> = match text.trim() {
            "" => vec![],
            text => text.split(',').map(str::trim).collect(),
        };
        if words.len() != shape.len() {
            return Err(Refusal::bad(format!("`at` has {} parts for {} dimensions", words.len(), shape.len())));
        }
        let drawn: Vec<usize> = (0..words.len()).filter(|&d| words[d] == DRAWN).collect();
        if drawn.len() != shape.len().min(2) {
            return Err(Refusal::bad(format!("`at` has {} times `*`: {} are drawn", drawn.len(), shape.len().min(2))));
        }
        let mut at = vec![0; shape.len()];
        for (d, word) in words.iter().enumerate().filter(|(d, _)| !drawn.contains(d)) {
            at[d] = match *word {
                LAST => shape[d].saturating_sub(1),
                word => word.parse().map_err(|_| Refusal::bad(format!("`{word}` is no index")))?,
            };
            if at[d] >= shape[d] {
                return Err(Refusal::not_found(format!("index {} of dimension {d}, which has {}", at[d], shape[d])));
            }
        }
        if let Some(d) = drawn.iter().find(|&&d| shape[d] == 0) {
            return Err(Refusal::not_found(format!("dimension {d} has no cells yet")));
        }
        Ok(Plane { at, drawn })
    }

    fn region(&self, shape: &[u64], every: u64) -> Answer<Region> {
        let is_drawn = |d: usize| self.drawn.contains(&d);
        let count: Vec<u64> =
            (0..shape.len()).map(|d| if is_drawn(d) { shape[d].div_ceil(every) } else { 1 }).collect();
        let stride: Vec<u64> = (0..shape.len()).map(|d| if is_drawn(d) { every } else { 1 }).collect();
        Ok(Region::strided(&self.at, &count, &stride)?)
    }
}

/// Numbers, packed; of complex ones the magnitude.
fn values(array: &Array, region: &Region) -> Answer<Vec<f64>> {
    let data_type = array.spec().data_type;
    if data_type.is_text() {
        return Err(Refusal::bad("strings are not drawn"));
    }
    let mut cells = vec![0; region.cells() as usize * data_type.size()];
    array.get(region, &mut cells)?;
    Ok(numbers(data_type, &cells))
}

fn numbers(data_type: DataType, cells: &[u8]) -> Vec<f64> {
    macro_rules! read {
        ($type:ty) => {
            read!($type, |value| value as f64)
        };
        ($type:ty, |$value:ident| $number:expr) => {{
            let exact = cells.chunks_exact(size_of::<$type>());
            exact
                .map(|cell| <$type>::from_le_bytes(cell.try_into().expect("exact chunks")))
                .map(|$value| $number)
                .collect()
        }};
    }
    let pairs = |parts: Vec<f64>| parts.chunks_exact(2).map(|pair| pair[0].hypot(pair[1])).collect();
    match data_type {
        DataType::Bool | DataType::UInt8 => read!(u8),
        DataType::Int8 => read!(i8),
        DataType::Int16 => read!(i16),
        DataType::Int32 => read!(i32),
        DataType::Int64 => read!(i64),
        DataType::UInt16 => read!(u16),
        DataType::UInt32 => read!(u32),
        DataType::UInt64 => read!(u64),
        DataType::Float32 => read!(f32),
        DataType::Float64 => read!(f64, |value| value),
        DataType::Complex64 => pairs(read!(f32)),
        DataType::Complex128 => pairs(read!(f64, |value| value)),
        DataType::Float16 => terrace_client::halves(cells).map(|value| value.to_f64()).collect(),
        DataType::DateTime(_) | DataType::TimeDelta(_) => counts(cells),
        DataType::Bytes(_) | DataType::Unicode(_) => vec![],
    }
}

/// Of times how many units; none of what is no time.
fn counts(cells: &[u8]) -> Vec<f64> {
    let counts = cells.chunks_exact(8).map(|cell| i64::from_le_bytes(cell.try_into().expect("exact chunks")));
    counts.map(|count| if count == NAT { f64::NAN } else { count as f64 }).collect()
}

/// Of the cells that are not NaN.
struct Statistics {
    min: f64,
    max: f64,
    sum: f64,
    count: u64,
}

impl Statistics {
    fn of(values: &[f64]) -> Statistics {
        let none = Statistics { min: f64::NAN, max: f64::NAN, sum: 0.0, count: 0 };
        values.iter().filter(|value| !value.is_nan()).fold(none, |all, &value| Statistics {
            min: all.min.min(value),
            max: all.max.max(value),
            sum: all.sum + value,
            count: all.count + 1,
        })
    }

    fn mean(&self) -> f64 {
        self.sum / self.count as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plane_is_two_dimensions_at_indices_of_the_others() {
        let plane = Plane::parse("last, *,2,*", &[5, 3, 4, 6]).unwrap();
        assert_eq!((plane.at.as_slice(), plane.drawn.as_slice()), ([4, 0, 2, 0].as_slice(), [1, 3].as_slice()));
        assert_eq!(plane.region(&[5, 3, 4, 6], 1).unwrap().count(), [1, 3, 1, 6]);
        assert_eq!(plane.region(&[5, 3, 4, 6], 4).unwrap().count(), [1, 1, 1, 2]);
        assert_eq!(Plane::parse("*", &[7]).unwrap().drawn, [0]);
        for wrong in ["", "*", "*,*,*", "1,*", "*,5", "*,x", "*,-1", "*,*,0", "9999999999999999999999,*"] {
            assert!(Plane::parse(wrong, &[4, 5]).is_err(), "{wrong}");
        }
        assert!(Plane::parse("last,*,*", &[0, 4, 5]).is_err() && Plane::parse("0,*,*", &[1, 0, 5]).is_err());
    }

    #[test]
    fn statistics_leave_out_what_is_no_number() {
        let found = Statistics::of(&[2.0, f64::NAN, -4.0]);
        assert_eq!((found.min, found.max, found.mean(), found.count), (-4.0, 2.0, -1.0, 2));
        assert!(Statistics::of(&[f64::NAN]).min.is_nan());
        assert_eq!(numbers(DataType::Complex64, &[3f32, 4.0].map(f32::to_le_bytes).concat()), [5.0]);
        assert_eq!(numbers(DataType::Int16, &(-3i16).to_le_bytes()), [-3.0]);
    }
}
