//! Sums and means of complex numbers: complex128, of either width, as those of floats are 64-bit floats.

use super::functions::only_complex;
use super::{Numbers, Width, complex_of};
use crate::error::Error;
use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::{DataType, Field, FieldRef, Float64Type, UInt64Type};
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::functions_aggregate::average::avg_udaf;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::{AggregateOrderSensitivity, format_state_name};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, GroupsAccumulator, ReversedUDAF, SetMonotonicity, Signature,
    TypeSignature, Volatility,
};
use std::mem::size_of_val;
use std::sync::Arc;

/// A signature of the engine's, and one complex number.
pub fn or_complex(engines: &AggregateUDF) -> Signature {
    let mut either = vec![TypeSignature::UserDefined];
    match &engines.signature().type_signature {
        TypeSignature::OneOf(all) => either.extend(all.iter().cloned()),
        one => either.push(one.clone()),
    }
    Signature::one_of(either, Volatility::Immutable)
}

/// What goes from one thread to another: both parts' sums, and how many numbers they are of.
pub fn state_fields(name: &str) -> Vec<FieldRef> {
    let field = |what, data_type| Arc::new(Field::new(format_state_name(name, what), data_type, true));
    vec![field("real", DataType::Float64), field("imag", DataType::Float64), field("count", DataType::UInt64)]
}

/// The accumulator of `sum`.
pub fn sum_of_complex(told: &AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
    total(told, false)
}

fn total(told: &AccumulatorArgs, is_mean: bool) -> Result<Box<dyn Accumulator>> {
    if told.is_distinct {
        return Err(Error::invalid("DISTINCT in a sum or mean of complex numbers is not supported")
            .hint("take them apart in a subquery: SELECT sum(c) FROM (SELECT DISTINCT c FROM …)")
            .into());
    }
    Ok(Box::new(Total { sum: [0.0; 2], count: 0, is_mean }))
}

#[derive(Debug)]
struct Total {
    sum: [f64; 2],
    count: u64,
    is_mean: bool,
}

impl Total {
    fn add(&mut self, numbers: &ArrayRef, sign: f64) -> Result<u64> {
        let read = Numbers::of(numbers)?;
        for row in (0..numbers.len()).filter(|&row| read.nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row))) {
            let [re, im] = read.at(row);
            self.sum = [self.sum[0] + sign * re, self.sum[1] + sign * im];
        }
        Ok((numbers.len() - numbers.null_count()) as u64)
    }
}

impl Accumulator for Total {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.count += self.add(&values[0], 1.0)?;
        Ok(())
    }
    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.count -= self.add(&values[0], -1.0)?;
        Ok(())
    }
    fn supports_retract_batch(&self) -> bool {
        true
    }
    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let [re, im] = [&states[0], &states[1]].map(|parts| parts.as_primitive::<Float64Type>());
        let counts = states[2].as_primitive::<UInt64Type>();
        for row in (0..counts.len()).filter(|&row| counts.is_valid(row)) {
            self.sum = [self.sum[0] + re.value(row), self.sum[1] + im.value(row)];
            self.count += counts.value(row);
        }
        Ok(())
    }
    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let [re, im] = self.sum.map(|part| ScalarValue::Float64(Some(part)));
        Ok(vec![re, im, ScalarValue::UInt64(Some(self.count))])
    }
    fn evaluate(&mut self) -> Result<ScalarValue> {
        if self.count == 0 {
            return ScalarValue::try_from(&Width::Complex128.data_type());
        }
        let over = if self.is_mean { self.count as f64 } else { 1.0 };
        let one = complex_of(Width::Complex128, self.sum.map(|part| part / over).to_vec(), None)?;
        ScalarValue::try_from_array(&one, 0)
    }
    fn size(&self) -> usize {
        size_of_val(self)
    }
}

/// In the place of the engine's `avg`, which it calls for other numbers.
pub fn average() -> AggregateUDF {
    let engines = avg_udaf();
    AggregateUDF::new_from_impl(Average { signature: or_complex(&engines), engines })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Average {
    engines: Arc<AggregateUDF>,
    signature: Signature,
}

fn is_complex(data_type: &DataType) -> bool {
    Width::of(data_type).is_some()
}

impl AggregateUDFImpl for Average {
    fn name(&self) -> &str {
        self.engines.name()
    }
    fn aliases(&self) -> &[String] {
        self.engines.aliases()
    }
    fn signature(&self) -> &Signature {
        &self.signature
    }
    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        only_complex(self.name(), types)
    }
    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match types.first().is_some_and(is_complex) {
            true => Ok(Width::Complex128.data_type()),
            false => self.engines.return_type(types),
        }
    }
    fn accumulator(&self, told: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        match is_complex(told.return_field.data_type()) {
            true => total(&told, true),
            false => self.engines.accumulator(told),
        }
    }
    fn create_sliding_accumulator(&self, told: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        match is_complex(told.return_field.data_type()) {
            true => total(&told, true),
            false => self.engines.create_sliding_accumulator(told),
        }
    }
    fn state_fields(&self, told: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        match is_complex(told.return_type()) {
            true => Ok(state_fields(told.name)),
            false => self.engines.state_fields(told),
        }
    }
    fn groups_accumulator_supported(&self, told: AccumulatorArgs) -> bool {
        !is_complex(told.return_field.data_type()) && self.engines.groups_accumulator_supported(told)
    }
    fn create_groups_accumulator(&self, told: AccumulatorArgs) -> Result<Box<dyn GroupsAccumulator>> {
        self.engines.create_groups_accumulator(told)
    }
    fn reverse_expr(&self) -> ReversedUDAF {
        ReversedUDAF::Identical
    }
    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        self.engines.order_sensitivity()
    }
    fn set_monotonicity(&self, data_type: &DataType) -> SetMonotonicity {
        self.engines.inner().set_monotonicity(data_type)
    }
}
