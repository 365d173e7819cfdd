//! A dimension's coordinates: computed where they are a range, looked up where they are an array.

use arrow::array::{Array, ArrayRef, Float64Array, Int64Array};
use arrow::datatypes::DataType;
use std::ops::Range;
use std::sync::Arc;

#[derive(Clone, Debug)]
pub enum Axis {
    /// `low + i * step`.
    Integer { low: i64, step: i64 },
    /// `low + i * step`, as NumPy computes it.
    Real { low: f64, step: f64 },
    /// One value for each index.
    Explicit(ArrayRef),
}

impl Axis {
    /// Coordinates of a dimension of which nothing is said: 0, 1, 2 …
    pub const INDEX: Axis = Axis::Integer { low: 0, step: 1 };

    pub fn data_type(&self) -> DataType {
        match self {
            Axis::Integer { .. } => DataType::Int64,
            Axis::Real { .. } => DataType::Float64,
            Axis::Explicit(values) => values.data_type().clone(),
        }
    }

    fn integer(low: i64, step: i64, index: u64) -> i64 {
        low.wrapping_add(step.wrapping_mul(index as i64))
    }

    /// Coordinates of neighbouring indices.
    pub fn values(&self, indices: Range<u64>) -> ArrayRef {
        match self {
            Axis::Integer { low, step } => {
                Arc::new(Int64Array::from_iter_values(indices.map(|index| Axis::integer(*low, *step, index))))
            }
            Axis::Real { low, step } => {
                Arc::new(Float64Array::from_iter_values(indices.map(|index| low + step * index as f64)))
            }
            Axis::Explicit(values) => values.slice(indices.start as usize, (indices.end - indices.start) as usize),
        }
    }

    /// Coordinates of any indices.
    pub fn take(&self, indices: &[u64]) -> ArrayRef {
        match self {
            Axis::Integer { low, step } => {
                Arc::new(Int64Array::from_iter_values(indices.iter().map(|&index| Axis::integer(*low, *step, index))))
            }
            Axis::Real { low, step } => {
                Arc::new(Float64Array::from_iter_values(indices.iter().map(|&index| low + step * index as f64)))
            }
            Axis::Explicit(values) => {
                let indices = arrow::array::UInt64Array::from_iter_values(indices.iter().copied());
                arrow::compute::take(values, &indices, None).expect("indices are below the dimension's extent")
            }
        }
    }

    /// One coordinate, again and again.
    pub fn repeated(&self, index: u64, count: usize) -> ArrayRef {
        match self {
            Axis::Integer { low, step } => Arc::new(Int64Array::from_value(Axis::integer(*low, *step, index), count)),
            Axis::Real { low, step } => Arc::new(Float64Array::from_value(low + step * index as f64, count)),
            Axis::Explicit(_) => self.take(&vec![index; count]),
        }
    }

    /// By how much an index of `other` is greater than the index of `self` with the same coordinate; `None`: their coordinates
    /// are not the same ones at a shift.
    pub fn shift_to(&self, extent: u64, other: &Axis, other_extent: u64) -> Option<i64> {
        match (self, other) {
            (Axis::Integer { low, step }, Axis::Integer { low: other_low, step: other_step }) => {
                let distance = low.checked_sub(*other_low)?;
                (step == other_step && *step != 0 && distance % step == 0).then(|| distance / step)
            }
            // Floating-point sums from different beginnings need not meet.
            (Axis::Real { low, step }, Axis::Real { low: other_low, step: other_step }) => {
                (low.to_bits() == other_low.to_bits() && step.to_bits() == other_step.to_bits() && *step != 0.0)
                    .then_some(0)
            }
            (Axis::Explicit(values), Axis::Explicit(other_values)) => {
                let is_same = extent == other_extent && values.to_data() == other_values.to_data();
                (is_same && is_strictly_monotone(values)).then_some(0)
            }
            _ => None,
        }
    }
}

/// No coordinate is there twice: then rows of equal coordinates are rows of equal indices.
fn is_strictly_monotone(values: &ArrayRef) -> bool {
    use arrow::compute::kernels::cmp::{gt, lt};
    if values.len() < 2 {
        return values.null_count() == 0;
    }
    let (left, right) = (values.slice(0, values.len() - 1), values.slice(1, values.len() - 1));
    let holds = |result: Result<arrow::array::BooleanArray, _>| {
        result.is_ok_and(|found: arrow::array::BooleanArray| found.true_count() == found.len())
    };
    holds(lt(&left, &right)) || holds(gt(&left, &right))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_that_meet_are_aligned_at_a_shift() {
        let axis = |low, step| Axis::Integer { low, step };
        assert_eq!(axis(10, 2).shift_to(5, &axis(4, 2), 9), Some(3));
        assert_eq!(axis(10, 2).shift_to(5, &axis(5, 2), 9), None);
        assert_eq!(axis(10, 2).shift_to(5, &axis(10, 3), 9), None);
        let explicit = |values: &[f64]| Axis::Explicit(Arc::new(Float64Array::from(values.to_vec())));
        assert_eq!(explicit(&[1.0, 4.0]).shift_to(2, &explicit(&[1.0, 4.0]), 2), Some(0));
        assert_eq!(explicit(&[1.0, 1.0]).shift_to(2, &explicit(&[1.0, 1.0]), 2), None);
        assert_eq!(explicit(&[1.0, 4.0]).shift_to(2, &explicit(&[1.0, 5.0]), 2), None);
    }
}
