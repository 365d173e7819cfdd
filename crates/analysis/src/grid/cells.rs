//! Cells as Arrow arrays: the same memory where they lie in a row, else gathered.

use super::source::{Keep, Picture};
use crate::complex::{self, Width};
use crate::error::{Error, Result};
use arrow::array::{
    ArrayData, ArrayRef, BooleanArray, FixedSizeListArray, Float32Array, PrimitiveArray, StringArray, make_array,
};
use arrow::buffer::{Buffer, NullBuffer, ScalarBuffer};
use arrow::datatypes as types;
use arrow::datatypes::ArrowPrimitiveType;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::ptr::NonNull;
use std::sync::Arc;
use terrace_client::{DataType, NAT, TimeUnit, halves, unicode_text};

/// A type of cells that kernels compute with where they lie.
pub trait CellType: Copy + PartialOrd + Send + Sync + 'static {
    type Arrow: ArrowPrimitiveType<Native = Self>;
    fn to_f64(self) -> f64;
    /// Of integers; wraps.
    fn to_i64(self) -> i64;
}

macro_rules! cell_types {
    ($($native:ty => $arrow:ident),*) => {
        $(impl CellType for $native {
            type Arrow = types::$arrow;
            #[inline(always)]
            fn to_f64(self) -> f64 { self as f64 }
            #[inline(always)]
            fn to_i64(self) -> i64 { self as i64 }
        })*
    };
}
cell_types!(i8 => Int8Type, i16 => Int16Type, i32 => Int32Type, i64 => Int64Type, u8 => UInt8Type, u16 => UInt16Type,
            u32 => UInt32Type, u64 => UInt64Type, f32 => Float32Type, f64 => Float64Type);

/// Calls a generic function with the Rust type of numbers; the last argument is for all other types.
macro_rules! with_cell_type {
    ($data_type:expr, $type:ident => $then:expr, $otherwise:expr) => {{
        use terrace_client::DataType as D;
        match $data_type {
            D::Int8 => {
                type $type = i8;
                $then
            }
            D::Int16 => {
                type $type = i16;
                $then
            }
            D::Int32 => {
                type $type = i32;
                $then
            }
            D::Int64 => {
                type $type = i64;
                $then
            }
            D::UInt8 => {
                type $type = u8;
                $then
            }
            D::UInt16 => {
                type $type = u16;
                $then
            }
            D::UInt32 => {
                type $type = u32;
                $then
            }
            D::UInt64 => {
                type $type = u64;
                $then
            }
            D::Float32 => {
                type $type = f32;
                $then
            }
            D::Float64 => {
                type $type = f64;
                $then
            }
            _ => $otherwise,
        }
    }};
}

pub(crate) use with_cell_type;

/// Cells that say of themselves that they are no value.
pub fn may_be_null(data_type: DataType) -> bool {
    matches!(data_type, DataType::DateTime(_) | DataType::TimeDelta(_))
}

/// Arrow's unit of such times, and how many of them one is.
fn counted_in(unit: TimeUnit) -> (types::TimeUnit, i64) {
    match unit {
        TimeUnit::Day => (types::TimeUnit::Second, 86_400),
        TimeUnit::Hour => (types::TimeUnit::Second, 3_600),
        TimeUnit::Minute => (types::TimeUnit::Second, 60),
        TimeUnit::Second => (types::TimeUnit::Second, 1),
        TimeUnit::Millisecond => (types::TimeUnit::Millisecond, 1),
        TimeUnit::Microsecond => (types::TimeUnit::Microsecond, 1),
        TimeUnit::Nanosecond => (types::TimeUnit::Nanosecond, 1),
    }
}

/// Cells as Arrow has them: NaT is NULL, and days, hours and minutes are seconds. Err: more of them than seconds can be counted.
fn times(data_type: DataType, unit: TimeUnit, buffer: Buffer, count: usize) -> Result<ArrayRef> {
    let (_, factor) = counted_in(unit);
    let cells = ScalarBuffer::<i64>::new(buffer, 0, count);
    let is_time = NullBuffer::from_iter(cells.iter().map(|&cell| cell != NAT));
    let nulls = (is_time.null_count() > 0).then_some(is_time);
    let cells = match factor {
        1 => cells,
        factor => {
            let seconds = cells.iter().map(|&cell| match cell {
                NAT => Ok(0),
                cell => cell.checked_mul(factor).ok_or_else(|| {
                    Error::invalid(format!("{cell} {} are more seconds than 64 bits can count", unit.name()))
                }),
            });
            seconds.collect::<Result<Vec<i64>>>()?.into()
        }
    };
    let data = ArrayData::builder(arrow_type(data_type)).len(count).add_buffer(cells.into_inner()).nulls(nulls);
    // SAFETY: the buffer has so many aligned values, and any bytes are values.
    Ok(make_array(unsafe { data.build_unchecked() }))
}

/// Complex numbers are lists of two; strings are texts without the zeroes at their end; 16-bit floats are 32-bit ones, with which the
/// engine computes.
pub fn arrow_type(data_type: DataType) -> types::DataType {
    match data_type {
        DataType::Bool => types::DataType::Boolean,
        DataType::Complex64 => Width::Complex64.data_type(),
        DataType::Complex128 => Width::Complex128.data_type(),
        DataType::Bytes(_) | DataType::Unicode(_) => types::DataType::Utf8,
        DataType::Float16 => types::DataType::Float32,
        DataType::DateTime(unit) => types::DataType::Timestamp(counted_in(unit).0, None),
        DataType::TimeDelta(unit) => types::DataType::Duration(counted_in(unit).0),
        number => {
            with_cell_type!(number, T => <<T as CellType>::Arrow as ArrowPrimitiveType>::DATA_TYPE, unreachable!("all others are numbers"))
        }
    }
}

struct Kept(#[allow(dead_code)] Keep); // held, and let go
impl RefUnwindSafe for Kept {}
impl UnwindSafe for Kept {}

/// Cells in a row, not copied.
///
/// # Safety
/// `cells` are readable for as long as `keep` is kept.
pub unsafe fn shared_buffer(cells: *const u8, bytes: usize, keep: Keep) -> Buffer {
    match NonNull::new(cells.cast_mut()) {
        // SAFETY: as the caller promises.
        Some(cells) => unsafe { Buffer::from_custom_allocation(cells, bytes, Arc::new(Kept(keep))) },
        None => Buffer::from(&[] as &[u8]),
    }
}

/// Cells in a row as an array.
pub fn whole(data_type: DataType, buffer: Buffer, count: usize) -> Result<ArrayRef> {
    fn primitive<T: ArrowPrimitiveType>(buffer: Buffer, count: usize) -> ArrayRef {
        let data = ArrayData::builder(T::DATA_TYPE).len(count).add_buffer(buffer);
        // SAFETY: the buffer has so many aligned values, and any bytes are values.
        Arc::new(PrimitiveArray::<T>::from(unsafe { data.build_unchecked() }))
    }
    fn pairs<T: ArrowPrimitiveType>(buffer: Buffer, count: usize) -> Result<ArrayRef> {
        let values = primitive::<T>(buffer, count * 2);
        Ok(Arc::new(FixedSizeListArray::try_new(complex::item(T::DATA_TYPE), 2, values, None)?))
    }
    Ok(match data_type {
        DataType::Bool => Arc::new(BooleanArray::from_iter(buffer[..count].iter().map(|&cell| Some(cell != 0)))),
        DataType::Complex64 => pairs::<types::Float32Type>(buffer, count)?,
        DataType::Complex128 => pairs::<types::Float64Type>(buffer, count)?,
        DataType::Float16 => {
            Arc::new(Float32Array::from_iter_values(halves(&buffer[..2 * count]).map(|value| value.to_f32())))
        }
        DataType::DateTime(unit) | DataType::TimeDelta(unit) => times(data_type, unit, buffer, count)?,
        DataType::Unicode(length) => {
            let size = 4 * length as usize;
            Arc::new(StringArray::from_iter_values(buffer[..count * size].chunks_exact(size).map(unicode_text)))
        }
        DataType::Bytes(length) => Arc::new(StringArray::from_iter_values(
            buffer[..count * length as usize].chunks_exact(length as usize).map(|cell| {
                let end = cell.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
                String::from_utf8_lossy(&cell[..end]).into_owned()
            }),
        )),
        number => {
            with_cell_type!(number, T => primitive::<<T as CellType>::Arrow>(buffer, count), unreachable!("all others are numbers"))
        }
    })
}

/// Whether cells `first .. first + count` of a box, in C order, lie in a row; and where they begin, in cells.
pub fn is_contiguous(picture: &Picture, extents: &[u64], first: u64, count: u64) -> Option<usize> {
    let rank = extents.len();
    // The trailing dimensions that lie in a row.
    let mut run = 1u64;
    let mut inner = rank;
    while inner > 0 && (extents[inner - 1] == 1 || picture.strides[inner - 1] as u64 == run) {
        run *= extents[inner - 1];
        inner -= 1;
    }
    if first % run + count > run && count > 0 {
        return None;
    }
    let mut rest = first;
    let mut position = 0;
    for d in (0..rank).rev() {
        position += (rest % extents[d]) as usize * picture.strides[d];
        rest /= extents[d];
    }
    Some(position)
}

/// Cells of a box at the given places in C order, as a packed buffer.
pub fn gather(picture: &Picture, extents: &[u64], size: usize, places: &[u32]) -> Buffer {
    match size {
        1 => gather_as::<u8>(picture, extents, places),
        2 => gather_as::<u16>(picture, extents, places),
        4 => gather_as::<u32>(picture, extents, places),
        8 => gather_as::<u64>(picture, extents, places),
        16 => gather_as::<[u64; 2]>(picture, extents, places),
        size => {
            let mut bytes = Vec::with_capacity(places.len() * size);
            for_each_position(picture, extents, places, |position| {
                // SAFETY: the place is inside the box, whose cells are readable.
                bytes.extend_from_slice(unsafe {
                    std::slice::from_raw_parts(picture.base().add(position * size), size)
                });
            });
            Buffer::from_vec(bytes)
        }
    }
}

fn gather_as<T: Copy>(picture: &Picture, extents: &[u64], places: &[u32]) -> Buffer {
    let base = picture.base().cast::<T>();
    let mut cells: Vec<T> = Vec::with_capacity(places.len());
    // SAFETY: as above; the layer's cells may lie unaligned in a file that another program wrote.
    for_each_position(picture, extents, places, |position| cells.push(unsafe { base.add(position).read_unaligned() }));
    let bytes = std::mem::size_of_val(cells.as_slice());
    // SAFETY: numbers without padding, as bytes.
    let view = unsafe { std::slice::from_raw_parts(cells.as_ptr().cast::<u8>(), bytes) };
    let mut aligned = arrow::buffer::MutableBuffer::new(bytes);
    aligned.extend_from_slice(view);
    aligned.into()
}

fn for_each_position(picture: &Picture, extents: &[u64], places: &[u32], mut act: impl FnMut(usize)) {
    let rank = extents.len();
    if is_contiguous(picture, extents, 0, extents.iter().product()).is_some() {
        return places.iter().for_each(|&place| act(place as usize));
    }
    let inner = extents[rank - 1].max(1) as u32;
    let inner_stride = picture.strides[rank - 1];
    // Neighbours mostly share their row: its beginning is computed once.
    let (mut row, mut row_position) = (u32::MAX, 0);
    for &place in places {
        let own = place / inner;
        if own != row {
            row = own;
            row_position = 0;
            let mut rest = own as u64;
            for d in (0..rank - 1).rev() {
                row_position += (rest % extents[d]) as usize * picture.strides[d];
                rest /= extents[d];
            }
        }
        act(row_position + (place % inner) as usize * inner_stride);
    }
}

/// Cells `first .. first + count` of a box in C order: shared where they lie in a row, else copied.
pub fn packed_buffer(picture: &Picture, extents: &[u64], size: usize, first: u64, count: u64) -> Buffer {
    if let Some(position) = is_contiguous(picture, extents, first, count) {
        // SAFETY: the box's cells are kept by the picture.
        return unsafe { shared_buffer(picture.base().add(position * size), count as usize * size, picture.keep()) };
    }
    let rank = extents.len();
    let inner = extents[rank - 1];
    let mut bytes = arrow::buffer::MutableBuffer::new(count as usize * size);
    let mut at = first;
    while at < first + count {
        let column = at % inner;
        let cells = (inner - column).min(first + count - at) as usize;
        let mut rest = at / inner;
        let mut position = column as usize * picture.strides[rank - 1];
        for d in (0..rank - 1).rev() {
            position += (rest % extents[d]) as usize * picture.strides[d];
            rest /= extents[d];
        }
        // SAFETY: inside the box.
        unsafe {
            let row = picture.base().add(position * size);
            match picture.strides[rank - 1] {
                1 => bytes.extend_from_slice(std::slice::from_raw_parts(row, cells * size)),
                0 => bytes.extend_from_slice(&std::slice::from_raw_parts(row, size).repeat(cells)),
                stride => {
                    for i in 0..cells {
                        bytes.extend_from_slice(std::slice::from_raw_parts(row.add(i * stride * size), size));
                    }
                }
            }
        }
        at += cells as u64;
    }
    bytes.into()
}
