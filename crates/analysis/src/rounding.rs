//! `floor` and `ceil` of floats by the processor's own instruction, where it has one (SSE4.1): the engine is built for processors without,
//! and calls a function for each number.

use arrow::array::{Array, ArrayRef, AsArray, PrimitiveArray};
use arrow::datatypes::{ArrowPrimitiveType, DataType, Float32Type, Float64Type};
use datafusion::error::Result;
use datafusion::functions::math::{ceil, floor};
use datafusion::logical_expr::interval_arithmetic::Interval;
use datafusion::logical_expr::preimage::PreimageResult;
use datafusion::logical_expr::simplify::SimplifyContext;
use datafusion::logical_expr::sort_properties::{ExprProperties, SortProperties};
use datafusion::logical_expr::{
    ColumnarValue, Documentation, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
};
use std::sync::Arc;

/// In the places of the engine's.
pub fn rounding() -> [ScalarUDF; 2] {
    [(floor(), Direction::Down), (ceil(), Direction::Up)]
        .map(|(engines, direction)| ScalarUDF::new_from_impl(Rounded { engines, direction }))
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Direction {
    Down,
    Up,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Rounded {
    engines: Arc<ScalarUDF>,
    direction: Direction,
}

impl ScalarUDFImpl for Rounded {
    fn name(&self) -> &str {
        self.engines.name()
    }
    fn signature(&self) -> &Signature {
        self.engines.signature()
    }
    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        self.engines.return_type(types)
    }
    fn is_strict(&self) -> bool {
        true
    }
    fn invoke_with_args(&self, called: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [ColumnarValue::Array(values)] = called.args.as_slice() else {
            return self.engines.invoke_with_args(called);
        };
        let rounded: ArrayRef = match values.data_type() {
            DataType::Float64 => self.rounded::<Float64Type>(values, f64::floor, f64::ceil),
            DataType::Float32 => self.rounded::<Float32Type>(values, f32::floor, f32::ceil),
            _ => return self.engines.invoke_with_args(called),
        };
        Ok(ColumnarValue::Array(rounded))
    }
    fn output_ordering(&self, inputs: &[ExprProperties]) -> Result<SortProperties> {
        self.engines.output_ordering(inputs)
    }
    fn evaluate_bounds(&self, inputs: &[&Interval]) -> Result<Interval> {
        self.engines.evaluate_bounds(inputs)
    }
    fn preimage(&self, arguments: &[Expr], value: &Expr, told: &SimplifyContext) -> Result<PreimageResult> {
        self.engines.preimage(arguments, value, told)
    }
    fn documentation(&self) -> Option<&Documentation> {
        self.engines.documentation()
    }
}

impl Rounded {
    fn rounded<T: ArrowPrimitiveType>(
        &self,
        values: &ArrayRef,
        down: impl Fn(T::Native) -> T::Native,
        up: impl Fn(T::Native) -> T::Native,
    ) -> ArrayRef {
        let values = values.as_primitive::<T>();
        Arc::new(match self.direction {
            Direction::Down => each(values, down),
            Direction::Up => each(values, up),
        })
    }
}

fn each<T: ArrowPrimitiveType>(
    values: &PrimitiveArray<T>,
    round: impl Fn(T::Native) -> T::Native,
) -> PrimitiveArray<T> {
    let mut rounded = vec![T::default_value(); values.len()];
    #[cfg(target_arch = "x86_64")]
    {
        #[target_feature(enable = "sse4.1")]
        fn by_instruction<V: Copy>(values: &[V], rounded: &mut [V], round: impl Fn(V) -> V) {
            all(values, rounded, round);
        }
        match std::arch::is_x86_feature_detected!("sse4.1") {
            // SAFETY: the processor has it.
            true => unsafe { by_instruction(values.values(), &mut rounded, round) },
            false => all(values.values(), &mut rounded, round),
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    all(values.values(), &mut rounded, round);
    PrimitiveArray::new(rounded.into(), values.nulls().cloned())
}

/// A part of whoever calls it, with that one's instructions.
#[inline(always)]
fn all<V: Copy>(values: &[V], rounded: &mut [V], round: impl Fn(V) -> V) {
    rounded.iter_mut().zip(values).for_each(|(rounded, &value)| *rounded = round(value));
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::Float64Array;
    use arrow::datatypes::Field;
    use datafusion::config::ConfigOptions;

    #[test]
    fn floats_are_rounded_as_they_are_one_by_one() {
        let values = [
            0.0,
            -0.0,
            0.3,
            -0.3,
            2.5,
            -2.5,
            1e300,
            -1e300,
            4503599627370497.5,
            f64::INFINITY,
            f64::NEG_INFINITY,
            f64::NAN,
        ];
        let array: ArrayRef = Arc::new(Float64Array::from(values.to_vec()));
        for (function, round) in rounding().into_iter().zip([f64::floor, f64::ceil]) {
            let field = Arc::new(Field::new("v", DataType::Float64, true));
            let found = function
                .invoke_with_args(ScalarFunctionArgs {
                    args: vec![ColumnarValue::Array(array.clone())],
                    arg_fields: vec![field.clone()],
                    number_rows: values.len(),
                    return_field: field,
                    config_options: Arc::new(ConfigOptions::default()),
                })
                .unwrap();
            let found = found.into_array(values.len()).unwrap();
            let found: Vec<u64> =
                found.as_primitive::<Float64Type>().values().iter().map(|value| value.to_bits()).collect();
            let wanted: Vec<u64> = values.map(|value| round(value).to_bits()).into();
            assert_eq!(found, wanted, "{}", function.name());
        }
    }
}
