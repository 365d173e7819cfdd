//! Functions of complex numbers, and how operators become them.

use super::{Numbers, Width, complex_of};
use crate::error::Error;
use arrow::array::{Array, ArrayRef, PrimitiveArray};
use arrow::buffer::NullBuffer;
use arrow::compute::cast as cast_array;
use arrow::datatypes::{DataType, Float64Type};
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::error::Result;
use datafusion::functions::math;
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr};
use datafusion::logical_expr::sort_properties::{ExprProperties, SortProperties};
use datafusion::logical_expr::{
    BinaryExpr, ColumnarValue, Expr, ExprSchemable, Operator, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    TypeSignature, Volatility,
};
use datafusion::sql::sqlparser::ast::BinaryOperator;
use std::sync::Arc;

/// All that have a name in SQL. `abs` takes the place of the engine's, which it calls for other numbers.
pub fn functions() -> Vec<ScalarUDF> {
    use Part::*;
    let parts = [Real, Imaginary, Argument, Conjugate].map(|part| ScalarUDF::new_from_impl(OfOne::new(part)));
    let abs = ScalarUDF::new_from_impl(Magnitude::new(math::abs()));
    let made = ScalarUDF::new_from_impl(Made { signature: Signature::user_defined(Volatility::Immutable) });
    parts.into_iter().chain([abs, made]).collect()
}

fn is_number(data_type: &DataType) -> bool {
    data_type.is_numeric() || *data_type == DataType::Null
}

/// A list of numbers is shown as it is in SQL; its parts' own names are nobody's.
fn shown(data_type: &DataType) -> String {
    match Width::of(data_type) {
        Some(Width::Complex64) => "complex64".into(),
        Some(Width::Complex128) => "complex128".into(),
        None => data_type.to_string(),
    }
}

/// Of arrays, and of a constant where all arguments are constants.
fn computed(
    called: &ScalarFunctionArgs,
    compute: impl FnOnce(&[ArrayRef]) -> Result<ArrayRef>,
) -> Result<ColumnarValue> {
    let is_constant = called.args.iter().all(|argument| matches!(argument, ColumnarValue::Scalar(_)));
    let rows = if is_constant { 1 } else { called.number_rows };
    let arrays = called.args.iter().map(|argument| argument.to_array(rows)).collect::<Result<Vec<_>>>()?;
    let result = compute(&arrays)?;
    Ok(match is_constant {
        true => ColumnarValue::Scalar(ScalarValue::try_from_array(&result, 0)?),
        false => ColumnarValue::Array(result),
    })
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
enum Part {
    Real,
    Imaginary,
    Argument,
    Conjugate,
}

/// real, imag, arg and conj.
#[derive(Debug, PartialEq, Eq, Hash)]
struct OfOne {
    part: Part,
    signature: Signature,
}

impl OfOne {
    fn new(part: Part) -> OfOne {
        OfOne { part, signature: Signature::user_defined(Volatility::Immutable) }
    }
}

/// Floats as the parts of this width.
fn parts_of(width: Width, values: Vec<f64>, nulls: Option<NullBuffer>) -> Result<ArrayRef> {
    let values: ArrayRef = Arc::new(PrimitiveArray::<Float64Type>::new(values.into(), nulls));
    Ok(cast_array(&values, &width.part())?)
}

impl ScalarUDFImpl for OfOne {
    fn name(&self) -> &str {
        match self.part {
            Part::Real => "real",
            Part::Imaginary => "imag",
            Part::Argument => "arg",
            Part::Conjugate => "conj",
        }
    }
    fn signature(&self) -> &Signature {
        &self.signature
    }
    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        match types {
            [one] if Width::of(one).is_some() => Ok(types.to_vec()),
            [other] => Err(Error::invalid(format!("{}() is of complex numbers, not of {other}", self.name())).into()),
            _ => Err(Error::invalid(format!("{}() takes one complex number", self.name())).into()),
        }
    }
    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        let width = types.first().and_then(Width::of).unwrap_or(Width::Complex128);
        Ok(if self.part == Part::Conjugate { width.data_type() } else { width.part() })
    }
    fn is_strict(&self) -> bool {
        true
    }
    fn invoke_with_args(&self, called: ScalarFunctionArgs) -> Result<ColumnarValue> {
        computed(&called, |arrays| {
            let width = Width::of(arrays[0].data_type()).unwrap_or(Width::Complex128);
            let numbers = Numbers::of(&arrays[0])?;
            let pairs = (0..arrays[0].len()).map(|row| numbers.at(row));
            let nulls = numbers.nulls.clone();
            match self.part {
                Part::Real => parts_of(width, pairs.map(|[re, _]| re).collect(), nulls),
                Part::Imaginary => parts_of(width, pairs.map(|[_, im]| im).collect(), nulls),
                Part::Argument => parts_of(width, pairs.map(|[re, im]| im.atan2(re)).collect(), nulls),
                Part::Conjugate => complex_of(width, pairs.flat_map(|[re, im]| [re, -im]).collect(), nulls),
            }
        })
    }
}

/// `abs`: of a complex number its distance from 0, of others the engine's.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Magnitude {
    engines: Arc<ScalarUDF>,
    signature: Signature,
}

impl Magnitude {
    fn new(engines: Arc<ScalarUDF>) -> Magnitude {
        let either = vec![TypeSignature::UserDefined, engines.signature().type_signature.clone()];
        Magnitude { engines, signature: Signature::one_of(either, Volatility::Immutable) }
    }
}

/// For a signature of the engine's beside which complex numbers are taken.
pub fn only_complex(name: &str, types: &[DataType]) -> Result<Vec<DataType>> {
    match types {
        [one] if Width::of(one).is_some() => Ok(types.to_vec()),
        _ => Err(Error::invalid(format!("{name}() takes one number")).into()),
    }
}

impl ScalarUDFImpl for Magnitude {
    fn name(&self) -> &str {
        self.engines.name()
    }
    fn signature(&self) -> &Signature {
        &self.signature
    }
    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        only_complex(self.name(), types)
    }
    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match types.first().and_then(Width::of) {
            Some(width) => Ok(width.part()),
            None => self.engines.return_type(types),
        }
    }
    fn is_strict(&self) -> bool {
        true
    }
    fn output_ordering(&self, inputs: &[ExprProperties]) -> Result<SortProperties> {
        match inputs.first().is_some_and(|input| Width::of(&input.range.data_type()).is_some()) {
            true => Ok(SortProperties::Unordered),
            false => self.engines.output_ordering(inputs),
        }
    }
    fn invoke_with_args(&self, called: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let Some(width) = called.args.first().and_then(|argument| Width::of(&argument.data_type())) else {
            return self.engines.invoke_with_args(called);
        };
        computed(&called, |arrays| {
            let numbers = Numbers::of(&arrays[0])?;
            let values = (0..arrays[0].len()).map(|row| numbers.at(row)).map(|[re, im]| re.hypot(im)).collect();
            parts_of(width, values, numbers.nulls)
        })
    }
}

/// `complex(re, im)`.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Made {
    signature: Signature,
}

impl ScalarUDFImpl for Made {
    fn name(&self) -> &str {
        "complex"
    }
    fn signature(&self) -> &Signature {
        &self.signature
    }
    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        match types {
            [DataType::Float32, DataType::Float32] => Ok(types.to_vec()),
            [re, im] if is_number(re) && is_number(im) => Ok(vec![DataType::Float64; 2]),
            _ => Err(Error::invalid("complex() takes two real numbers: the real and the imaginary part").into()),
        }
    }
    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        let is_single = types.iter().all(|part| *part == DataType::Float32);
        Ok(if is_single { Width::Complex64 } else { Width::Complex128 }.data_type())
    }
    fn invoke_with_args(&self, called: ScalarFunctionArgs) -> Result<ColumnarValue> {
        computed(&called, |arrays| {
            let is_single = arrays.iter().all(|part| *part.data_type() == DataType::Float32);
            let width = if is_single { Width::Complex64 } else { Width::Complex128 };
            let (re, im) = (Numbers::of(&arrays[0])?, Numbers::of(&arrays[1])?);
            let pairs = (0..arrays[0].len()).flat_map(|row| [re.parts[row], im.parts[row]]).collect();
            complex_of(width, pairs, NullBuffer::union(re.nulls.as_ref(), im.nulls.as_ref()))
        })
    }
}

/// Operators of which a side is complex, while SQL is read: later their types would be refused.
#[derive(Debug)]
pub struct Operators;

impl ExprPlanner for Operators {
    fn plan_binary_op(&self, said: RawBinaryExpr, schema: &DFSchema) -> Result<PlannerResult<RawBinaryExpr>> {
        let (left, right) = (width_of(&said.left, schema), width_of(&said.right, schema));
        if left.is_none() && right.is_none() {
            return Ok(PlannerResult::Original(said));
        }
        use BinaryOperator::*;
        let arithmetic = match said.op {
            Plus => Some(Arithmetic::Add),
            Minus => Some(Arithmetic::Subtract),
            Multiply => Some(Arithmetic::Multiply),
            Divide => Some(Arithmetic::Divide),
            _ => None,
        };
        let equality = match said.op {
            Eq => Some(Operator::Eq),
            NotEq => Some(Operator::NotEq),
            _ => None,
        };
        if arithmetic.is_none() && equality.is_none() {
            let error = Error::invalid(format!("complex numbers have no `{}`", said.op));
            return Err(error.hint("abs(c), arg(c), real(c) and imag(c) are real numbers").into());
        }
        let side = |expr: &Expr, width: Option<Width>| match width {
            Some(width) => Ok(width),
            None => {
                let data_type = expr.get_type(schema)?;
                Width::of_number(&data_type).ok_or_else(|| {
                    Error::invalid(format!("`{}` of a complex number and {data_type}", said.op))
                        .hint("complex(re, im) makes a complex number of two real ones")
                })
            }
        };
        let width = match (is_constant(&said.left), is_constant(&said.right)) {
            (false, true) => side(&said.right, right).and(side(&said.left, left)),
            (true, false) => side(&said.left, left).and(side(&said.right, right)),
            _ => side(&said.left, left).and_then(|left| Ok(left.max(side(&said.right, right)?))),
        }?;
        let planned = match (arithmetic, equality) {
            (Some(arithmetic), _) => operator(arithmetic, width).call(vec![said.left, said.right]),
            (None, equality) => {
                let compared = |expr: Expr| operator(Arithmetic::Compared, width).call(vec![expr]);
                let (left, right) = (compared(said.left), compared(said.right));
                let op = equality.expect("it is one or the other");
                Expr::BinaryExpr(BinaryExpr::new(Box::new(left), op, Box::new(right)))
            }
        };
        Ok(PlannerResult::Planned(planned))
    }
}

/// Whether an expression is complex, without a look at all of a long chain of operators: those of complex numbers are functions by now,
/// which know what they give.
fn width_of(expr: &Expr, schema: &DFSchema) -> Option<Width> {
    match expr {
        Expr::BinaryExpr(_) | Expr::Literal(..) | Expr::Like(_) | Expr::Not(_) | Expr::InList(_) => None,
        Expr::Cast(cast) => Width::of(cast.field.data_type()),
        Expr::ScalarFunction(function) => match function.func.inner().downcast_ref::<Operation>() {
            Some(operation) => Some(operation.width),
            None => Width::of(&expr.get_type(schema).ok()?),
        },
        other => Width::of(&other.get_type(schema).ok()?),
    }
}

/// A number that was said, and is no column's: `2`, `-0.5`, `complex(1, 2)`.
fn is_constant(expr: &Expr) -> bool {
    match expr {
        Expr::Literal(..) => true,
        Expr::Negative(inner) => is_constant(inner),
        Expr::ScalarFunction(function) if function.func.inner().downcast_ref::<Made>().is_some() => {
            function.args.iter().all(is_constant)
        }
        _ => false,
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
enum Arithmetic {
    Add,
    Subtract,
    Multiply,
    Divide,
    /// The number itself; without zeroes that have a sign, for lists of floats to be equal where numbers are: `c = conj(c)`.
    Compared,
}

/// The function in an operator's place; it knows what it gives.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Operation {
    which: Arithmetic,
    width: Width,
    signature: Signature,
}

fn operator(which: Arithmetic, width: Width) -> ScalarUDF {
    let arguments = if which == Arithmetic::Compared { 1 } else { 2 };
    ScalarUDF::new_from_impl(Operation { which, width, signature: Signature::any(arguments, Volatility::Immutable) })
}

impl Arithmetic {
    fn of(self, [a, b]: [f64; 2], [c, d]: [f64; 2]) -> [f64; 2] {
        match self {
            Arithmetic::Add => [a + c, b + d],
            Arithmetic::Subtract => [a - c, b - d],
            Arithmetic::Multiply => [a * c - b * d, a * d + b * c],
            Arithmetic::Divide => quotient([a, b], [c, d]),
            Arithmetic::Compared => [a + 0.0, b + 0.0],
        }
    }

    fn sign(self) -> &'static str {
        match self {
            Arithmetic::Add => " + ",
            Arithmetic::Subtract => " - ",
            Arithmetic::Multiply => " * ",
            Arithmetic::Divide => " / ",
            Arithmetic::Compared => "",
        }
    }
}

/// Smith's way, as NumPy has it: no square of a part is too great or too small.
fn quotient([a, b]: [f64; 2], [c, d]: [f64; 2]) -> [f64; 2] {
    if c.abs() >= d.abs() {
        if c == 0.0 && d == 0.0 {
            return [a / c.abs(), b / d.abs()];
        }
        let ratio = d / c;
        let scale = 1.0 / (c + d * ratio);
        return [(a + b * ratio) * scale, (b - a * ratio) * scale];
    }
    let ratio = c / d;
    let scale = 1.0 / (d + c * ratio);
    [(a * ratio + b) * scale, (b * ratio - a) * scale]
}

impl ScalarUDFImpl for Operation {
    fn name(&self) -> &str {
        use Arithmetic::*;
        use Width::*;
        match (self.which, self.width) {
            (Add, Complex64) => "complex64_add",
            (Add, Complex128) => "complex128_add",
            (Subtract, Complex64) => "complex64_subtract",
            (Subtract, Complex128) => "complex128_subtract",
            (Multiply, Complex64) => "complex64_multiply",
            (Multiply, Complex128) => "complex128_multiply",
            (Divide, Complex64) => "complex64_divide",
            (Divide, Complex128) => "complex128_divide",
            (Compared, Complex64) => "as_complex64",
            (Compared, Complex128) => "as_complex128",
        }
    }
    /// Columns are called as what was said.
    fn schema_name(&self, args: &[Expr]) -> Result<String> {
        let names: Vec<String> = args.iter().map(|arg| arg.schema_name().to_string()).collect();
        Ok(match self.which {
            // Not the column's own name: a join has both in one projection.
            Arithmetic::Compared => format!("{}({})", self.name(), names.join(", ")),
            _ => names.join(self.which.sign()),
        })
    }
    fn signature(&self) -> &Signature {
        &self.signature
    }
    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(self.width.data_type())
    }
    fn is_strict(&self) -> bool {
        true
    }
    fn invoke_with_args(&self, called: ScalarFunctionArgs) -> Result<ColumnarValue> {
        for argument in &called.args {
            let data_type = argument.data_type();
            if Width::of(&data_type).is_none() && Width::of_number(&data_type).is_none() {
                return Err(Error::invalid(format!("{} of {}", self.name(), shown(&data_type))).into());
            }
        }
        computed(&called, |arrays| {
            let left = Numbers::of(&arrays[0])?;
            let rows = arrays[0].len();
            let Some(right) = arrays.get(1).map(Numbers::of).transpose()? else {
                let pairs = (0..rows).flat_map(|row| self.which.of(left.at(row), [0.0; 2])).collect();
                return complex_of(self.width, pairs, left.nulls);
            };
            let pairs = (0..rows).flat_map(|row| self.which.of(left.at(row), right.at(row))).collect();
            complex_of(self.width, pairs, NullBuffer::union(left.nulls.as_ref(), right.nulls.as_ref()))
        })
    }
}
