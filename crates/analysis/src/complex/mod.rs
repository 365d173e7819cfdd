//! Complex numbers in SQL: arrays of complex64 and complex128 are columns of lists of two floats, the real part first.
//!
//! ```text
//!   c + d, c = 2 ──Operators, while SQL is read──▶ complex_add(c, d), c = as_complex64(2)      (DataFusion has no `+` of lists)
//!   real, imag, abs, arg, conj, complex ──▶ functions            sum, avg ──▶ sums
//! ```
//!
//! - As in NumPy, two columns meet in the type that holds both, and a number that is no column takes that of the column.
//! - Parts are computed with as 64-bit floats; a complex64 result is rounded once.
//! - They have no order: `<` is refused. Equal are two whose parts are: zeroes of either sign, and, as of floats here, NaNs.

mod functions;
mod sums;
#[cfg(test)]
mod tests;

pub use functions::{Operators, functions, only_complex};
pub use sums::{average, or_complex, state_fields, sum_of_complex};

use arrow::array::{Array, ArrayRef, AsArray, FixedSizeListArray, PrimitiveArray};
use arrow::buffer::{NullBuffer, ScalarBuffer};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, FieldRef, Float32Type, Float64Type};
use datafusion::error::Result;
use std::sync::Arc;

/// Which floats the parts are.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub enum Width {
    Complex64,
    Complex128,
}

impl Width {
    pub fn of(data_type: &DataType) -> Option<Width> {
        match data_type {
            DataType::FixedSizeList(item, 2) if item.name() == ITEM && !item.is_nullable() => match item.data_type() {
                DataType::Float32 => Some(Width::Complex64),
                DataType::Float64 => Some(Width::Complex128),
                _ => None,
            },
            _ => None,
        }
    }

    /// The type that holds numbers of this one, as NumPy has it.
    fn of_number(data_type: &DataType) -> Option<Width> {
        use DataType::*;
        match data_type {
            Boolean | Int8 | Int16 | UInt8 | UInt16 | Float16 | Float32 | Null => Some(Width::Complex64),
            number if number.is_numeric() => Some(Width::Complex128),
            _ => None,
        }
    }

    pub fn part(self) -> DataType {
        match self {
            Width::Complex64 => DataType::Float32,
            Width::Complex128 => DataType::Float64,
        }
    }

    pub fn data_type(self) -> DataType {
        DataType::FixedSizeList(item(self.part()), 2)
    }
}

const ITEM: &str = "item";

/// The part of a complex number, as a field.
pub fn item(part: DataType) -> FieldRef {
    Arc::new(Field::new(ITEM, part, false))
}

/// Complex numbers of either width, or real ones, as pairs of 64-bit floats.
struct Numbers {
    /// Two for each number if it is complex, else one.
    parts: ScalarBuffer<f64>,
    is_complex: bool,
    nulls: Option<NullBuffer>,
}

impl Numbers {
    fn of(array: &ArrayRef) -> Result<Numbers> {
        let is_complex = Width::of(array.data_type()).is_some();
        let parts = match array.as_fixed_size_list_opt() {
            Some(pairs) if is_complex => pairs.values().slice(pairs.value_offset(0) as usize, pairs.len() * 2),
            _ => array.clone(),
        };
        let parts = cast(&parts, &DataType::Float64)?;
        let nulls = if is_complex { array.nulls().cloned() } else { parts.nulls().cloned() };
        Ok(Numbers { parts: parts.as_primitive::<Float64Type>().values().clone(), is_complex, nulls })
    }

    fn at(&self, row: usize) -> [f64; 2] {
        match self.is_complex {
            true => [self.parts[2 * row], self.parts[2 * row + 1]],
            false => [self.parts[row], 0.0],
        }
    }
}

/// Pairs as complex numbers of a width.
fn complex_of(width: Width, pairs: Vec<f64>, nulls: Option<NullBuffer>) -> Result<ArrayRef> {
    let values: ArrayRef = match width {
        Width::Complex128 => Arc::new(PrimitiveArray::<Float64Type>::new(pairs.into(), None)),
        Width::Complex64 => {
            Arc::new(PrimitiveArray::<Float32Type>::from_iter_values(pairs.into_iter().map(|part| part as f32)))
        }
    };
    Ok(Arc::new(FixedSizeListArray::try_new(item(width.part()), 2, values, nulls)?))
}
