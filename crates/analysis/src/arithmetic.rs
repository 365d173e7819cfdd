//! Arithmetic of floats with a number, and floats as whole numbers, without a branch for each value: the engine's own kernels for these take
//! one at a time. What they can't do as the engine does is left to it.

use arrow::array::{Array, ArrayRef, AsArray, Float64Array, Int64Array, RecordBatch};
use arrow::datatypes::{DataType, FieldRef, Float64Type, Schema};
use datafusion::common::ScalarValue;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::error::Result;
use datafusion::logical_expr::{ColumnarValue, Operator};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{BinaryExpr, CastExpr, Literal};
use std::fmt::{Display, Formatter};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// From here on there are floats that are no 64-bit integers, of both signs.
const WHOLE_END: f64 = 9_223_372_036_854_775_808.0;

/// The same values, computed faster.
pub fn faster(expression: Arc<dyn PhysicalExpr>) -> Result<Arc<dyn PhysicalExpr>> {
    let replaced = |part: Arc<dyn PhysicalExpr>| {
        let (operation, operand) = if let Some(binary) = part.downcast_ref::<BinaryExpr>() {
            let number = binary.right().downcast_ref::<Literal>().map(Literal::value);
            let Some(&ScalarValue::Float64(Some(number))) = number else { return Ok(Transformed::no(part)) };
            let operation = match binary.op() {
                Operator::Plus => Operation::Plus(number),
                Operator::Minus => Operation::Minus(number),
                Operator::Multiply => Operation::Times(number),
                Operator::Divide => Operation::Over(number),
                _ => return Ok(Transformed::no(part)),
            };
            (operation, binary.left())
        } else if let Some(cast) = part.downcast_ref::<CastExpr>().filter(|cast| *cast.cast_type() == DataType::Int64) {
            (Operation::Whole, cast.expr())
        } else {
            return Ok(Transformed::no(part));
        };
        let operand = operand.clone();
        Ok(Transformed::yes(Arc::new(Faster { operation, operand, engines: part }) as Arc<dyn PhysicalExpr>))
    };
    expression.transform_up(replaced).data()
}

#[derive(Clone, Copy, Debug)]
enum Operation {
    Plus(f64),
    Minus(f64),
    Times(f64),
    Over(f64),
    Whole,
}

impl Operation {
    /// `None`: of such values the engine says what they are, or what is wrong.
    fn of(self, values: &ArrayRef) -> Option<ArrayRef> {
        let values = values.as_primitive_opt::<Float64Type>()?;
        match self {
            Operation::Plus(number) => each(values, move |value| value + number),
            Operation::Minus(number) => each(values, move |value| value - number),
            Operation::Times(number) => each(values, move |value| value * number),
            Operation::Over(number) => each(values, move |value| value / number),
            Operation::Whole => {
                let are_whole = values.values().iter().fold(true, |so_far, value| so_far & (value.abs() < WHOLE_END));
                // SAFETY: they all are, but for their fractions.
                let whole = |value: &f64| unsafe { value.to_int_unchecked::<i64>() };
                are_whole.then(|| {
                    let found: Vec<i64> = values.values().iter().map(whole).collect();
                    Arc::new(Int64Array::new(found.into(), values.nulls().cloned())) as ArrayRef
                })
            }
        }
    }
}

fn each(values: &Float64Array, of: impl Fn(f64) -> f64) -> Option<ArrayRef> {
    let found: Vec<f64> = values.values().iter().map(|&value| of(value)).collect();
    Some(Arc::new(Float64Array::new(found.into(), values.nulls().cloned())))
}

#[derive(Debug)]
struct Faster {
    operation: Operation,
    operand: Arc<dyn PhysicalExpr>,
    /// The whole, which the others follow from.
    engines: Arc<dyn PhysicalExpr>,
}

impl PartialEq for Faster {
    fn eq(&self, other: &Faster) -> bool {
        self.engines.eq(&other.engines)
    }
}
impl Eq for Faster {}
impl Hash for Faster {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.engines.hash(state);
    }
}

impl Display for Faster {
    fn fmt(&self, out: &mut Formatter<'_>) -> std::fmt::Result {
        write!(out, "{}", self.engines)
    }
}

impl PhysicalExpr for Faster {
    fn data_type(&self, schema: &Schema) -> Result<DataType> {
        self.engines.data_type(schema)
    }
    fn nullable(&self, schema: &Schema) -> Result<bool> {
        self.engines.nullable(schema)
    }
    fn return_field(&self, schema: &Schema) -> Result<FieldRef> {
        self.engines.return_field(schema)
    }
    fn evaluate(&self, batch: &RecordBatch) -> Result<ColumnarValue> {
        match self.operand.evaluate(batch)? {
            ColumnarValue::Array(values) => match self.operation.of(&values) {
                Some(found) => Ok(ColumnarValue::Array(found)),
                None => self.engines.evaluate(batch),
            },
            ColumnarValue::Scalar(_) => self.engines.evaluate(batch),
        }
    }
    fn children(&self) -> Vec<&Arc<dyn PhysicalExpr>> {
        vec![&self.operand]
    }
    fn with_new_children(self: Arc<Self>, mut children: Vec<Arc<dyn PhysicalExpr>>) -> Result<Arc<dyn PhysicalExpr>> {
        let operand = children.pop().expect("it has one child");
        let others = self.engines.children().into_iter().skip(1).cloned();
        let engines =
            self.engines.clone().with_new_children(std::iter::once(operand.clone()).chain(others).collect())?;
        Ok(Arc::new(Faster { operation: self.operation, operand, engines }))
    }
    fn fmt_sql(&self, out: &mut Formatter<'_>) -> std::fmt::Result {
        self.engines.fmt_sql(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::datatypes::Field;
    use datafusion::common::DFSchema;
    use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
    use datafusion::logical_expr::{Expr, cast, col, lit};
    use datafusion::physical_expr::create_physical_expr;
    use datafusion::physical_expr::execution_props::ExecutionProps;
    use proptest::prelude::*;

    fn expressions(number: f64) -> Vec<Expr> {
        let whole = |expr| cast(expr, DataType::Int64);
        vec![
            col("v") + lit(number),
            col("v") - lit(number),
            col("v") * lit(number),
            col("v") / lit(number),
            whole(col("v")),
            whole(col("v") / lit(number) + lit(1.0)),
            whole(col("i")) + lit(7i64),
            cast(col("i"), DataType::Float64) * lit(number),
        ]
    }

    proptest! {
        #[test]
        fn values_are_those_of_the_engine(
            values in prop::collection::vec(
                prop::option::of(prop_oneof![
                    any::<f64>(),
                    -1e3f64..1e3,
                    prop::sample::select(vec![0.0, -0.0, WHOLE_END, -WHOLE_END, 9.2e18, f64::NAN, f64::INFINITY]),
                ]),
                1..20,
            ),
            number in prop_oneof![any::<f64>(), prop::sample::select(vec![0.0, -0.0, 50.0, f64::NAN])],
        ) {
            let fields = vec![Field::new("v", DataType::Float64, true), Field::new("i", DataType::Int32, true)];
            let schema = Arc::new(Schema::new(fields));
            let whole = values.iter().map(|value| value.map(|value| value as i32)).collect::<arrow::array::Int32Array>();
            let columns: Vec<ArrayRef> = vec![Arc::new(Float64Array::from(values)), Arc::new(whole)];
            let batch = RecordBatch::try_new(schema.clone(), columns).unwrap();
            let named = DFSchema::try_from(schema.as_ref().clone()).unwrap();
            for expression in expressions(number) {
                let engines = create_physical_expr(&expression, &named, &ExecutionProps::new(), &PhysicalPlanningContext::default());
                let engines = engines.unwrap();
                let own = faster(engines.clone()).unwrap();
                let told = |of: &Arc<dyn PhysicalExpr>| of.evaluate(&batch).and_then(|found| found.into_array(batch.num_rows()));
                match (told(&own), told(&engines)) {
                    (Ok(own), Ok(engines)) => prop_assert_eq!(format!("{own:?}"), format!("{engines:?}"), "{}", expression),
                    (Err(own), Err(engines)) => prop_assert_eq!(own.to_string(), engines.to_string()),
                    (own, engines) => prop_assert!(false, "{expression}: {own:?} and {engines:?}"),
                }
            }
        }
    }
}
