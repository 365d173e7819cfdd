//! A dimension's coordinates: computed where they are a range, looked up where they are an array.

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Datum, Float64Array, Int64Array, Scalar};
use arrow::compute::kernels::cmp::{gt, lt};
use arrow::datatypes::{DataType, Float64Type};
use arrow::error::ArrowError;
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

    /// Whether each coordinate is greater than the one before it, or less; `None`: neither.
    pub fn rises(&self, extent: u64) -> Option<bool> {
        if !self.is_distinct(extent) {
            return None;
        }
        match self {
            _ if extent < 2 => Some(true),
            Axis::Integer { step, .. } => Some(*step > 0),
            Axis::Real { step, .. } => Some(*step > 0.0),
            Axis::Explicit(values) if is_in_order(values, false) => Some(true),
            Axis::Explicit(values) => is_in_order(values, true).then_some(false),
        }
    }

    /// The coordinates of these indices, as a dimension's own.
    pub fn part(&self, indices: Range<u64>) -> Axis {
        match self {
            Axis::Integer { low, step } => {
                Axis::Integer { low: Axis::integer(*low, *step, indices.start), step: *step }
            }
            Axis::Real { .. } if indices.start == 0 => self.clone(),
            // Computed from another beginning they would be rounded in another way.
            _ => Axis::Explicit(self.values(indices)),
        }
    }

    /// By how much an index of `other` is greater than the index of `self` with the same coordinate, for all indices that both have at
    /// that shift and for no others; `None`: their coordinates are not the same ones at a shift.
    pub fn shift_to(&self, extent: u64, other: &Axis, other_extent: u64) -> Option<i64> {
        if !self.is_distinct(extent) || !other.is_distinct(other_extent) {
            return None;
        }
        match (self, other) {
            (Axis::Integer { low, step }, Axis::Integer { low: other_low, step: other_step }) => {
                let distance = low.checked_sub(*other_low)?;
                // A step may be 0, where there is one index.
                let is_whole = distance == 0 || distance.checked_rem(*step)? == 0;
                (step == other_step && is_whole).then(|| if distance == 0 { 0 } else { distance / step })
            }
            (Axis::Real { low, step }, Axis::Real { low: other_low, step: other_step })
                if low.to_bits() == other_low.to_bits() && step.to_bits() == other_step.to_bits() =>
            {
                Some(0)
            }
            (Axis::Explicit(values), Axis::Explicit(other))
                if extent == other_extent && values.to_data() == other.to_data() =>
            {
                Some(0)
            }
            // Floating-point sums from different beginnings need not meet: all are looked at.
            _ if extent.max(other_extent) <= LOOKED_AT_MAX => {
                shift_of(&self.values(0..extent), &other.values(0..other_extent))
            }
            _ => None,
        }
    }
}

/// Coordinates that are compared one by one at most.
pub const LOOKED_AT_MAX: u64 = 1 << 22;

/// As `Axis::shift_to`, of distinct values.
fn shift_of(values: &ArrayRef, other: &ArrayRef) -> Option<i64> {
    if values.data_type() != other.data_type() || values.is_empty() || other.is_empty() {
        return None;
    }
    let place = |of: &ArrayRef, within: &ArrayRef| {
        let first = Scalar::new(of.slice(0, 1));
        let is_it = arrow::compute::kernels::cmp::eq(within, &first).ok()?;
        is_it.values().set_indices().next()
    };
    // The first of one of them is among the other's.
    let (shift, first, other_first) = match (place(values, other), place(other, values)) {
        (Some(at), _) => (at as i64, 0, at),
        (_, Some(at)) => (-(at as i64), at, 0),
        _ => return None,
    };
    let count = (values.len() - first).min(other.len() - other_first);
    let is_same = values.slice(first, count).to_data() == other.slice(other_first, count).to_data();
    let are_left = values.len() > count && other.len() > count;
    // What is left of both does not meet where both go the same way.
    let is_apart =
        !are_left || is_ordered(values, lt) && is_ordered(other, lt) || is_ordered(values, gt) && is_ordered(other, gt);
    (is_same && is_apart).then_some(shift)
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

pub fn is_strictly_monotone(values: &ArrayRef) -> bool {
    is_ordered(values, lt) || is_ordered(values, gt)
}

/// Each is greater, or less, than the one before it.
pub fn is_in_order(values: &ArrayRef, descending: bool) -> bool {
    is_ordered(values, if descending { gt } else { lt })
}

/// It holds for all neighbours.
fn is_ordered(values: &ArrayRef, holds: impl Fn(&dyn Datum, &dyn Datum) -> Result<BooleanArray, ArrowError>) -> bool {
    if values.len() < 2 {
        return true;
    }
    let (left, right) = (values.slice(0, values.len() - 1), values.slice(1, values.len() - 1));
    holds(&left, &right).is_ok_and(|found| found.true_count() == found.len())
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
        assert_eq!(axis(10, 0).shift_to(1, &axis(10, 0), 1), Some(0));
        assert_eq!(axis(10, 0).shift_to(1, &axis(11, 0), 1), None);
        assert_eq!(axis(0, -1).shift_to(2, &axis(i64::MIN, -1), 1), None);
        let real = |low, step| Axis::Real { low, step };
        assert_eq!(real(1e17, 100.0).shift_to(9, &real(1e17, 100.0), 9), Some(0));
        assert_eq!(real(1e17, 1.0).shift_to(9, &real(1e17, 1.0), 9), None);
        let explicit = |values: &[f64]| Axis::Explicit(Arc::new(Float64Array::from(values.to_vec())));
        assert_eq!(explicit(&[1.0, 4.0]).shift_to(2, &explicit(&[1.0, 4.0]), 2), Some(0));
        assert_eq!(explicit(&[1.0, 1.0]).shift_to(2, &explicit(&[1.0, 1.0]), 2), None);
        assert_eq!(explicit(&[1.0, 4.0]).shift_to(2, &explicit(&[1.0, 5.0]), 2), None);
        assert_eq!(explicit(&[4.0, 9.0]).shift_to(2, &explicit(&[1.0, 4.0, 9.0, 16.0]), 4), Some(1));
        assert_eq!(explicit(&[1.0, 4.0, 9.0]).shift_to(3, &explicit(&[4.0, 9.0, 16.0]), 3), Some(-1));
        // The same ones, but not all at one shift.
        assert_eq!(explicit(&[3.0, 1.0, 2.0]).shift_to(3, &explicit(&[2.0, 3.0, 1.0]), 3), None);
        assert_eq!(explicit(&[1.0, 4.0, 9.0]).shift_to(3, &explicit(&[1.0, 9.0]), 2), None);
    }
}
