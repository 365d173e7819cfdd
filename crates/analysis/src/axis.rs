//! A dimension's coordinates: computed where they are a range, looked up where they are an array.

use arrow::array::{Array, ArrayRef, AsArray, Float64Array, Int64Array};
use arrow::datatypes::{DataType, Float64Type};
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

    /// No coordinate is there twice: then rows of equal coordinates are rows of equal indices. False where that is not plain.
    pub fn is_distinct(&self, extent: u64) -> bool {
        if extent < 2 {
            return true;
        }
        match self {
            // Without wrapping around.
            Axis::Integer { low, step } => {
                let last = i64::try_from(extent - 1).ok().and_then(|last| step.checked_mul(last));
                *step != 0 && last.and_then(|distance| low.checked_add(distance)).is_some()
            }
            // Neighbours lie further apart than product and sum are rounded.
            Axis::Real { low, step } => {
                let distance = step * (extent - 1) as f64;
                let greatest = low.abs().max((low + distance).abs());
                step.abs() > (greatest + distance.abs()) * 2.0 * f64::EPSILON
            }
            Axis::Explicit(values) => is_distinct(values),
        }
    }

    /// By how much an index of `other` is greater than the index of `self` with the same coordinate; `None`: their coordinates
    /// are not the same ones at a shift.
    pub fn shift_to(&self, extent: u64, other: &Axis, other_extent: u64) -> Option<i64> {
        if !self.is_distinct(extent) || !other.is_distinct(other_extent) {
            return None;
        }
        match (self, other) {
            (Axis::Integer { low, step }, Axis::Integer { low: other_low, step: other_step }) => {
                let distance = low.checked_sub(*other_low)?;
                (step == other_step && distance % step == 0).then(|| distance / step)
            }
            // Floating-point sums from different beginnings need not meet.
            (Axis::Real { low, step }, Axis::Real { low: other_low, step: other_step }) => {
                (low.to_bits() == other_low.to_bits() && step.to_bits() == other_step.to_bits()).then_some(0)
            }
            (Axis::Explicit(values), Axis::Explicit(other_values)) => {
                (extent == other_extent && values.to_data() == other_values.to_data()).then_some(0)
            }
            _ => None,
        }
    }
}

fn is_distinct(values: &ArrayRef) -> bool {
    if values.null_count() > 0 {
        return false;
    }
    if values.data_type().is_floating() {
        // NaNs, and zeroes of both signs, may be the same to some operators.
        let Ok(values) = arrow::compute::cast(values, &DataType::Float64) else { return false };
        let mut values = values.as_primitive::<Float64Type>().values().to_vec();
        values.sort_unstable_by(f64::total_cmp);
        return values.iter().all(|value| !value.is_nan()) && values.windows(2).all(|pair| pair[0] < pair[1]);
    }
    is_strictly_monotone(values) || arrow::compute::sort(values, None).is_ok_and(|sorted| is_strictly_monotone(&sorted))
}

fn is_strictly_monotone(values: &ArrayRef) -> bool {
    use arrow::compute::kernels::cmp::{gt, lt};
    if values.len() < 2 {
        return true;
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
        let real = |low, step| Axis::Real { low, step };
        assert_eq!(real(1e17, 100.0).shift_to(9, &real(1e17, 100.0), 9), Some(0));
        assert_eq!(real(1e17, 1.0).shift_to(9, &real(1e17, 1.0), 9), None);
        let explicit = |values: &[f64]| Axis::Explicit(Arc::new(Float64Array::from(values.to_vec())));
        assert_eq!(explicit(&[1.0, 4.0]).shift_to(2, &explicit(&[1.0, 4.0]), 2), Some(0));
        assert_eq!(explicit(&[1.0, 1.0]).shift_to(2, &explicit(&[1.0, 1.0]), 2), None);
        assert_eq!(explicit(&[1.0, 4.0]).shift_to(2, &explicit(&[1.0, 5.0]), 2), None);
    }
}
