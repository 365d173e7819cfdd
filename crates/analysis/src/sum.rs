//! `sum` of 64-bit integers, exact or an error: the engine's own goes round without a word. And of complex numbers, which the engine
//! does not know. Sums of other types are the engine's.
//!
//! They are kept, and go from one thread to another, as 128-bit integers, which hold the sum of all cells that there can be.

use crate::complex::{self, Width};
use crate::error::Error;
use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Decimal128Array, PrimitiveArray};
use arrow::datatypes::{
    ArrowNativeTypeOp, ArrowPrimitiveType, DECIMAL128_MAX_PRECISION, DataType, Decimal128Type, Field, FieldRef,
    Int64Type, UInt64Type,
};
use datafusion::common::ScalarValue;
use datafusion::common::cast::as_decimal128_array;
use datafusion::error::Result;
use datafusion::functions_aggregate::sum::sum_udaf;
use datafusion::logical_expr::expr::AggregateFunction;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::{AggregateOrderSensitivity, format_state_name};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, EmitTo, Expr, GroupsAccumulator, ReversedUDAF, SetMonotonicity,
    Signature,
};
use std::marker::PhantomData;
use std::mem::{size_of, size_of_val};
use std::sync::Arc;

/// In the place of the engine's `sum`.
pub fn exact_sum() -> AggregateUDF {
    let engines = sum_udaf();
    AggregateUDF::new_from_impl(ExactSum { signature: complex::or_complex(&engines), engines })
}

/// A call of it.
pub fn sum(of: Expr) -> Expr {
    Expr::AggregateFunction(AggregateFunction::new_udf(Arc::new(exact_sum()), vec![of], false, None, vec![], None))
}

/// The sum as a 64-bit integer.
pub fn fitting<T: TryFrom<i128>>(sum: i128) -> Result<T> {
    T::try_from(sum).map_err(|_| {
        Error::invalid(format!("the sum {sum} does not fit in 64-bit integers"))
            .hint("sum doubles (CAST(… AS DOUBLE), in SAVIME's language e * 1.0), or decimals (CAST(… AS DECIMAL(38, 0)))")
            .into()
    })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct ExactSum {
    engines: Arc<AggregateUDF>,
    signature: Signature,
}

impl AggregateUDFImpl for ExactSum {
    fn name(&self) -> &str {
        self.engines.name()
    }
    fn signature(&self) -> &Signature {
        &self.signature
    }
    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        complex::only_complex(self.name(), types)
    }
    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match types.first().and_then(Width::of) {
            Some(_) => Ok(Width::Complex128.data_type()),
            None => self.engines.return_type(types),
        }
    }

    fn accumulator(&self, told: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        Ok(match told.return_field.data_type() {
            DataType::Int64 if !told.is_distinct => Box::<One<Int64Type>>::default(),
            DataType::UInt64 if !told.is_distinct => Box::<One<UInt64Type>>::default(),
            DataType::FixedSizeList(..) => return complex::sum_of_complex(&told),
            _ => return self.engines.accumulator(told),
        })
    }

    /// Of a window that moves: what leaves it is taken away again.
    fn create_sliding_accumulator(&self, told: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        match told.return_field.data_type() {
            DataType::Int64 | DataType::UInt64 if !told.is_distinct => self.accumulator(told),
            DataType::FixedSizeList(..) => self.accumulator(told),
            _ => self.engines.create_sliding_accumulator(told),
        }
    }

    fn state_fields(&self, told: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        match told.return_type() {
            DataType::Int64 | DataType::UInt64 if !told.is_distinct => {
                Ok(vec![Arc::new(Field::new(format_state_name(told.name, "sum"), STATE, true))])
            }
            DataType::FixedSizeList(..) => Ok(complex::state_fields(told.name)),
            _ => self.engines.state_fields(told),
        }
    }

    fn groups_accumulator_supported(&self, told: AccumulatorArgs) -> bool {
        Width::of(told.return_field.data_type()).is_none() && self.engines.groups_accumulator_supported(told)
    }

    fn create_groups_accumulator(&self, told: AccumulatorArgs) -> Result<Box<dyn GroupsAccumulator>> {
        Ok(match told.return_field.data_type() {
            DataType::Int64 => Box::<Many<Int64Type>>::default(),
            DataType::UInt64 => Box::<Many<UInt64Type>>::default(),
            _ => return self.engines.create_groups_accumulator(told),
        })
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        ReversedUDAF::Identical
    }
    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        AggregateOrderSensitivity::Insensitive
    }
    fn set_monotonicity(&self, data_type: &DataType) -> SetMonotonicity {
        self.engines.inner().set_monotonicity(data_type)
    }
}

const STATE: DataType = DataType::Decimal128(DECIMAL128_MAX_PRECISION, 0);

/// A 64-bit integer's type.
trait Long: ArrowPrimitiveType<Native: ArrowNativeTypeOp + TryFrom<i128> + Into<i128>> + std::fmt::Debug {}
impl Long for Int64Type {}
impl Long for UInt64Type {}

/// One sum; `None`: of nothing.
#[derive(Debug)]
struct One<T> {
    sum: i128,
    count: u64,
    of: PhantomData<fn() -> T>,
}

impl<T> Default for One<T> {
    fn default() -> One<T> {
        One { sum: 0, count: 0, of: PhantomData }
    }
}

fn present<T: ArrowPrimitiveType<Native: Into<i128>>>(values: &PrimitiveArray<T>) -> impl Iterator<Item = i128> + '_ {
    values.iter().flatten().map(Into::into)
}

impl<T: Long> Accumulator for One<T> {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let values = values[0].as_primitive::<T>();
        self.sum += present(values).sum::<i128>();
        self.count += (values.len() - values.null_count()) as u64;
        Ok(())
    }
    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let values = values[0].as_primitive::<T>();
        self.sum -= present(values).sum::<i128>();
        self.count -= (values.len() - values.null_count()) as u64;
        Ok(())
    }
    fn supports_retract_batch(&self) -> bool {
        true
    }
    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let sums = as_decimal128_array(&states[0])?;
        self.sum += present(sums).sum::<i128>();
        self.count += (sums.len() - sums.null_count()) as u64;
        Ok(())
    }
    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let sum = (self.count > 0).then_some(self.sum);
        Ok(vec![ScalarValue::Decimal128(sum, DECIMAL128_MAX_PRECISION, 0)])
    }
    fn evaluate(&mut self) -> Result<ScalarValue> {
        let sum = (self.count > 0).then(|| fitting(self.sum)).transpose()?;
        ScalarValue::new_primitive::<T>(sum, &T::DATA_TYPE)
    }
    fn size(&self) -> usize {
        size_of_val(self)
    }
}

/// The sums of groups; those without rows are not seen.
#[derive(Debug)]
struct Many<T> {
    sums: Vec<i128>,
    seen: Vec<bool>,
    of: PhantomData<fn() -> T>,
}

impl<T> Default for Many<T> {
    fn default() -> Many<T> {
        Many { sums: vec![], seen: vec![], of: PhantomData }
    }
}

impl<T> Many<T> {
    fn add<V: ArrowPrimitiveType<Native: Into<i128>>>(
        &mut self,
        values: &PrimitiveArray<V>,
        filter: Option<&BooleanArray>,
        groups: &[usize],
        count: usize,
    ) {
        self.sums.resize(count, 0);
        self.seen.resize(count, false);
        for (row, &group) in groups.iter().enumerate() {
            if values.is_valid(row) && is_taken(filter, row) {
                self.sums[group] += values.value(row).into();
                self.seen[group] = true;
            }
        }
    }

    fn take(&mut self, which: EmitTo) -> impl Iterator<Item = Option<i128>> + use<T> {
        let (sums, seen) = (which.take_needed(&mut self.sums), which.take_needed(&mut self.seen));
        sums.into_iter().zip(seen).map(|(sum, seen)| seen.then_some(sum))
    }
}

fn is_taken(filter: Option<&BooleanArray>, row: usize) -> bool {
    filter.is_none_or(|filter| filter.is_valid(row) && filter.value(row))
}

fn states(sums: impl Iterator<Item = Option<i128>>) -> Result<Vec<ArrayRef>> {
    let sums: Decimal128Array = sums.collect();
    Ok(vec![Arc::new(sums.with_data_type(STATE))])
}

impl<T: Long> GroupsAccumulator for Many<T> {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        groups: &[usize],
        filter: Option<&BooleanArray>,
        count: usize,
    ) -> Result<()> {
        self.add(values[0].as_primitive::<T>(), filter, groups, count);
        Ok(())
    }
    fn merge_batch(&mut self, states: &[ArrayRef], groups: &[usize], count: usize) -> Result<()> {
        self.add(states[0].as_primitive::<Decimal128Type>(), None, groups, count);
        Ok(())
    }
    fn evaluate(&mut self, which: EmitTo) -> Result<ArrayRef> {
        let sums: PrimitiveArray<T> =
            self.take(which).map(|sum| sum.map(fitting).transpose()).collect::<Result<_>>()?;
        Ok(Arc::new(sums))
    }
    fn state(&mut self, which: EmitTo) -> Result<Vec<ArrayRef>> {
        states(self.take(which))
    }
    fn convert_to_state(&self, values: &[ArrayRef], filter: Option<&BooleanArray>) -> Result<Vec<ArrayRef>> {
        let values = values[0].as_primitive::<T>();
        let row = |row: usize| (values.is_valid(row) && is_taken(filter, row)).then(|| values.value(row).into());
        states((0..values.len()).map(row))
    }
    fn size(&self) -> usize {
        self.sums.capacity() * size_of::<i128>() + self.seen.capacity()
    }
}
