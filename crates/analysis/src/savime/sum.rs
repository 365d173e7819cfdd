//! Sums of 64-bit integers that are exact, or an error: the engine's own go round without a word.

use crate::error::Error;
use arrow::array::{Array, AsArray};
use arrow::datatypes::{DataType, Float64Type, Int64Type, UInt64Type};
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TypeSignature, Volatility,
};

/// How far a sum that went round 64 bits is from the mean times the count, at least.
const ROUND: f64 = (1u64 << 62) as f64;

/// `total` as it is, unless `mean` times `rows` says that it went round.
pub fn exact_sum(total: Expr, mean: Expr, rows: Expr) -> Expr {
    let types = [DataType::Int64, DataType::UInt64]
        .map(|total| TypeSignature::Exact(vec![total, DataType::Float64, DataType::Int64]));
    let signature = Signature::one_of(types.into(), Volatility::Immutable);
    ScalarUDF::new_from_impl(ExactSum { signature }).call(vec![total, mean, rows])
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct ExactSum {
    signature: Signature,
}

impl ScalarUDFImpl for ExactSum {
    fn name(&self) -> &str {
        "exact_sum"
    }
    fn signature(&self) -> &Signature {
        &self.signature
    }
    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        Ok(types.first().cloned().unwrap_or(DataType::Int64))
    }
    fn invoke_with_args(&self, told: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let arrays = ColumnarValue::values_to_arrays(&told.args)?;
        let [total, mean, rows] = arrays.as_slice() else {
            return Err(Error::invalid("a sum is checked by its mean and its count").into());
        };
        let (means, rows) = (mean.as_primitive::<Float64Type>(), rows.as_primitive::<Int64Type>());
        for row in (0..total.len()).filter(|&row| total.is_valid(row) && means.is_valid(row)) {
            let sum = match total.data_type() {
                DataType::UInt64 => total.as_primitive::<UInt64Type>().value(row) as f64,
                _ => total.as_primitive::<Int64Type>().value(row) as f64,
            };
            if (means.value(row) * rows.value(row) as f64 - sum).abs() > ROUND {
                return Err(Error::invalid("a sum does not fit in 64-bit integers")
                    .hint("sum e * 1.0 instead, as doubles, if a loss is no matter")
                    .into());
            }
        }
        Ok(ColumnarValue::Array(total.clone()))
    }
}
