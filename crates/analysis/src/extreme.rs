//! `max` and `min` of floats: a NaN, of either sign, is greater than every number, wherever it comes, and is told as one without a sign. The
//! engine's own forget what a group had before a NaN, and one whose sign is set is less than all numbers to them.

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, PrimitiveArray};
use arrow::datatypes::{ArrowPrimitiveType, DataType, Float16Type, Float32Type, Float64Type};
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::functions_aggregate::min_max::{max_udaf, min_udaf};
use datafusion::logical_expr::function::AccumulatorArgs;
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Documentation, EmitTo, GroupsAccumulator, ReversedUDAF,
    SetMonotonicity, Signature, StatisticsArgs,
};
use std::marker::PhantomData;
use std::mem::{size_of, size_of_val};
use std::sync::Arc;

/// In the places of the engine's `max` and `min`.
pub fn extremes() -> [AggregateUDF; 2] {
    [(max_udaf(), Direction::Greatest), (min_udaf(), Direction::Least)]
        .map(|(engines, direction)| AggregateUDF::new_from_impl(Extreme { engines, direction }))
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Direction {
    Greatest,
    Least,
}

impl Direction {
    #[allow(clippy::eq_op)] // false for NaN alone
    fn takes<T: PartialOrd + Copy>(self, new: T, old: T) -> bool {
        match self {
            Direction::Greatest => new > old || new != new,
            Direction::Least => new < old || old != old,
        }
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Extreme {
    engines: Arc<AggregateUDF>,
    direction: Direction,
}

impl AggregateUDFImpl for Extreme {
    fn name(&self) -> &str {
        self.engines.name()
    }
    fn signature(&self) -> &Signature {
        self.engines.signature()
    }
    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        self.engines.coerce_types(types)
    }
    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        self.engines.return_type(types)
    }
    fn accumulator(&self, told: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        Ok(match told.return_field.data_type() {
            DataType::Float16 => Box::new(One::<Float16Type>::new(self.direction)),
            DataType::Float32 => Box::new(One::<Float32Type>::new(self.direction)),
            DataType::Float64 => Box::new(One::<Float64Type>::new(self.direction)),
            _ => return self.engines.accumulator(told),
        })
    }
    fn create_sliding_accumulator(&self, told: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        Ok(Box::new(Sliding(self.engines.create_sliding_accumulator(told)?)))
    }
    fn groups_accumulator_supported(&self, told: AccumulatorArgs) -> bool {
        self.engines.groups_accumulator_supported(told)
    }
    fn create_groups_accumulator(&self, told: AccumulatorArgs) -> Result<Box<dyn GroupsAccumulator>> {
        Ok(match told.return_field.data_type() {
            DataType::Float16 => Box::new(Many::<Float16Type>::new(self.direction)),
            DataType::Float32 => Box::new(Many::<Float32Type>::new(self.direction)),
            DataType::Float64 => Box::new(Many::<Float64Type>::new(self.direction)),
            _ => return self.engines.create_groups_accumulator(told),
        })
    }
    /// Not said: the engine's heap of the groups with the greatest ones has another order for a NaN whose sign is set.
    fn is_descending(&self) -> Option<bool> {
        None
    }
    fn reverse_expr(&self) -> ReversedUDAF {
        ReversedUDAF::Identical
    }
    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        AggregateOrderSensitivity::Insensitive
    }
    fn value_from_stats(&self, told: &StatisticsArgs) -> Option<ScalarValue> {
        self.engines.value_from_stats(told)
    }
    fn documentation(&self) -> Option<&Documentation> {
        self.engines.documentation()
    }
    fn set_monotonicity(&self, data_type: &DataType) -> SetMonotonicity {
        self.engines.inner().set_monotonicity(data_type)
    }
}

/// The same values, but for NaNs, which have no sign.
fn without_signs(values: &ArrayRef) -> ArrayRef {
    fn of<T: ArrowPrimitiveType>(values: &ArrayRef, nan: T::Native) -> ArrayRef
    where
        T::Native: PartialOrd,
    {
        #[allow(clippy::eq_op)] // false for NaN alone
        let is_nan = |value: T::Native| value != value;
        let values = values.as_primitive::<T>();
        match values.values().iter().any(|&value| is_nan(value)) {
            true => Arc::new(values.unary::<_, T>(|value| if is_nan(value) { nan } else { value })),
            false => Arc::new(values.clone()),
        }
    }
    match values.data_type() {
        DataType::Float16 => of::<Float16Type>(values, <Float16Type as ArrowPrimitiveType>::Native::NAN),
        DataType::Float32 => of::<Float32Type>(values, f32::NAN),
        DataType::Float64 => of::<Float64Type>(values, f64::NAN),
        _ => values.clone(),
    }
}

/// The engine's, of a window that moves.
#[derive(Debug)]
struct Sliding(Box<dyn Accumulator>);

impl Accumulator for Sliding {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.0.update_batch(&[without_signs(&values[0])])
    }
    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.0.retract_batch(&[without_signs(&values[0])])
    }
    fn supports_retract_batch(&self) -> bool {
        self.0.supports_retract_batch()
    }
    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.0.merge_batch(states)
    }
    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        self.0.state()
    }
    fn evaluate(&mut self) -> Result<ScalarValue> {
        self.0.evaluate()
    }
    fn size(&self) -> usize {
        self.0.size()
    }
}

#[derive(Debug)]
struct One<T: ArrowPrimitiveType> {
    direction: Direction,
    best: Option<T::Native>,
}

impl<T: ArrowPrimitiveType> One<T> {
    fn new(direction: Direction) -> One<T> {
        One { direction, best: None }
    }
}

impl<T: ArrowPrimitiveType + std::fmt::Debug> Accumulator for One<T> {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        for value in without_signs(&values[0]).as_primitive::<T>().iter().flatten() {
            if self.best.is_none_or(|best| self.direction.takes(value, best)) {
                self.best = Some(value);
            }
        }
        Ok(())
    }
    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.update_batch(states)
    }
    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(vec![self.evaluate()?])
    }
    fn evaluate(&mut self) -> Result<ScalarValue> {
        ScalarValue::new_primitive::<T>(self.best, &T::DATA_TYPE)
    }
    fn size(&self) -> usize {
        size_of_val(self)
    }
}

/// Of groups; those without rows are not seen.
#[derive(Debug)]
struct Many<T: ArrowPrimitiveType> {
    direction: Direction,
    bests: Vec<T::Native>,
    seen: Vec<bool>,
    of: PhantomData<fn() -> T>,
}

impl<T: ArrowPrimitiveType> Many<T> {
    fn new(direction: Direction) -> Many<T> {
        Many { direction, bests: vec![], seen: vec![], of: PhantomData }
    }

    fn take(&mut self, which: EmitTo) -> ArrayRef {
        let (bests, seen) = (which.take_needed(&mut self.bests), which.take_needed(&mut self.seen));
        Arc::new(bests.into_iter().zip(seen).map(|(best, seen)| seen.then_some(best)).collect::<PrimitiveArray<T>>())
    }
}

impl<T: ArrowPrimitiveType> GroupsAccumulator for Many<T> {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        groups: &[usize],
        filter: Option<&BooleanArray>,
        count: usize,
    ) -> Result<()> {
        let values = without_signs(&values[0]);
        let values = values.as_primitive::<T>();
        self.bests.resize(count, T::default_value());
        self.seen.resize(count, false);
        for (row, &group) in groups.iter().enumerate() {
            let is_taken = filter.is_none_or(|filter| filter.is_valid(row) && filter.value(row));
            if is_taken && values.is_valid(row) {
                let value = values.value(row);
                if !self.seen[group] || self.direction.takes(value, self.bests[group]) {
                    self.bests[group] = value;
                    self.seen[group] = true;
                }
            }
        }
        Ok(())
    }
    fn merge_batch(&mut self, states: &[ArrayRef], groups: &[usize], count: usize) -> Result<()> {
        self.update_batch(states, groups, None, count)
    }
    fn evaluate(&mut self, which: EmitTo) -> Result<ArrayRef> {
        Ok(self.take(which))
    }
    fn state(&mut self, which: EmitTo) -> Result<Vec<ArrayRef>> {
        Ok(vec![self.take(which)])
    }
    fn convert_to_state(&self, values: &[ArrayRef], filter: Option<&BooleanArray>) -> Result<Vec<ArrayRef>> {
        let values = without_signs(&values[0]);
        let values = values.as_primitive::<T>();
        let is_taken = |row| filter.is_none_or(|filter: &BooleanArray| filter.is_valid(row) && filter.value(row));
        let row = |row: usize| (values.is_valid(row) && is_taken(row)).then(|| values.value(row));
        Ok(vec![Arc::new((0..values.len()).map(row).collect::<PrimitiveArray<T>>())])
    }
    fn size(&self) -> usize {
        self.bests.capacity() * size_of::<T::Native>() + self.seen.capacity()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::Float64Array;

    #[test]
    fn a_nan_is_the_greatest_of_its_group_wherever_it_comes() {
        let orders = [[5.0, f64::NAN, 3.0], [f64::NAN, 5.0, 3.0], [5.0, 3.0, -f64::NAN]];
        for (direction, wanted) in [(Direction::Greatest, f64::NAN), (Direction::Least, 3.0)] {
            for values in orders {
                let is_same = |found: f64| found == wanted || found.is_nan() && wanted.is_nan();
                let values: Vec<ArrayRef> = vec![Arc::new(Float64Array::from(values.to_vec()))];
                let (mut one, mut many) = (One::<Float64Type>::new(direction), Many::<Float64Type>::new(direction));
                one.update_batch(&values).unwrap();
                let ScalarValue::Float64(Some(found)) = one.evaluate().unwrap() else { panic!("it is of values") };
                assert!(is_same(found), "{direction:?} of {values:?}: {found}");
                many.update_batch(&values, &[1, 1, 1], None, 3).unwrap();
                let found = many.evaluate(EmitTo::All).unwrap();
                let found = found.as_primitive::<Float64Type>();
                assert!(is_same(found.value(1)) && found.is_null(0) && found.is_null(2), "{direction:?}: {found:?}");
            }
        }
    }
}
