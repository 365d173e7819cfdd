//! SQL that means what it says, where DataFusion's own way gives other rows without a word:
//!
//! - A number with a point is compared with a column of 32-bit floats as such a float: `v = 4.7` finds what was put as 4.7. As a
//!   64-bit float it equals no 32-bit one. `CAST(4.7 AS DOUBLE)` says that the 64-bit one is meant.
//! - `+`, `-` and `*` of integers are computed in 64 bits where they might not fit in fewer, and what might not fit in those is
//!   checked: it is an error, and does not go round.
//! - `TABLESAMPLE` is refused: it is read, and then left out of the plan.
//!
//! This is done to the plan as it was said, before types are coerced, so that its schema is the one that is told.

use crate::error::{Error, Result};
use arrow::compute::kernels::numeric::{add, mul, sub};
use arrow::datatypes::DataType;
use arrow::error::ArrowError;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRewriter};
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::error::{DataFusionError, Result as DataFusionResult};
use datafusion::logical_expr::expr::{Between, Case, InList};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{
    BinaryExpr, ColumnarValue, Expr, ExprSchemable, LogicalPlan, Operator, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature, Volatility, cast, lit,
};
use datafusion::physical_expr_common::datum::apply;
use datafusion::sql::sqlparser::ast::{TableFactor, Visit, Visitor};
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::parser::Parser;
use std::ops::ControlFlow;
use std::sync::LazyLock;

/// Refuses what would be left out.
pub fn check(text: &str) -> Result<()> {
    struct Samples;
    impl Visitor for Samples {
        type Break = ();
        fn pre_visit_table_factor(&mut self, table: &TableFactor) -> ControlFlow<()> {
            match table {
                TableFactor::Table { sample: Some(_), .. } | TableFactor::Derived { sample: Some(_), .. } => {
                    ControlFlow::Break(())
                }
                _ => ControlFlow::Continue(()),
            }
        }
    }
    if !text.to_ascii_lowercase().contains("sample") {
        return Ok(());
    }
    // What can't be read is refused by DataFusion, in its own words.
    let Ok(statements) = Parser::parse_sql(&GenericDialect {}, text) else { return Ok(()) };
    match statements.visit(&mut Samples) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(()) => {
            Err(Error::invalid("TABLESAMPLE is not supported")
                .hint("WHERE random() < 0.1 takes about a tenth of the rows"))
        }
    }
}

/// The same plan, exact.
pub fn exact(plan: LogicalPlan) -> DataFusionResult<LogicalPlan> {
    plan.transform_up_with_subqueries(|plan| {
        let mut schema = merge_schema(&plan.inputs());
        if let LogicalPlan::TableScan(scan) = &plan {
            schema.merge(&DFSchema::try_from_qualified_schema(scan.table_name.clone(), &scan.source.schema())?);
        }
        let names = NamePreserver::new(&plan);
        let changed = plan.map_expressions(|expr| {
            let name = names.save(&expr);
            let changed = expr.rewrite(&mut Rewriter { schema: &schema, operands: vec![] })?;
            Ok(changed.update_data(|expr| name.restore(expr)))
        })?;
        match changed.transformed {
            true => changed.map_data(|plan| plan.recompute_schema()),
            false => Ok(changed),
        }
    })
    .data()
}

/// From the leaves up. What is known of the operands of each level is kept, so that a chain of any length is looked at once.
struct Rewriter<'a> {
    schema: &'a DFSchema,
    operands: Vec<Vec<Option<Whole>>>,
}

impl TreeNodeRewriter for Rewriter<'_> {
    type Node = Expr;

    fn f_down(&mut self, expr: Expr) -> DataFusionResult<Transformed<Expr>> {
        self.operands.push(vec![]);
        Ok(Transformed::no(expr))
    }

    fn f_up(&mut self, expr: Expr) -> DataFusionResult<Transformed<Expr>> {
        let operands = self.operands.pop().unwrap_or_default();
        let (changed, known) = match expr {
            Expr::BinaryExpr(BinaryExpr { left, op, right })
                if matches!(op, Operator::Plus | Operator::Minus | Operator::Multiply) =>
            {
                let mut operands = operands.into_iter();
                let of = |known: Option<Whole>, expr: &Expr| known.or_else(|| Whole::of(expr, self.schema));
                let known = of(operands.next().flatten(), &left).zip(of(operands.next().flatten(), &right));
                arithmetic(*left, op, *right, known)
            }
            other => (self.compared(other), None),
        };
        if let Some(level) = self.operands.last_mut() {
            level.push(known);
        }
        Ok(changed)
    }
}

impl Rewriter<'_> {
    fn is_single(&self, expr: &Expr) -> bool {
        matches!(expr.get_type(self.schema), Ok(DataType::Float32))
    }

    fn compared(&self, expr: Expr) -> Transformed<Expr> {
        match expr {
            Expr::BinaryExpr(BinaryExpr { left, op, right }) if is_comparison(op) => {
                let same =
                    |left: Expr, right: Expr| Expr::BinaryExpr(BinaryExpr::new(Box::new(left), op, Box::new(right)));
                match (is_decimal(&left), is_decimal(&right)) {
                    (false, true) if self.is_single(&left) => Transformed::yes(same(*left, as_single(*right))),
                    (true, false) if self.is_single(&right) => Transformed::yes(same(as_single(*left), *right)),
                    _ => Transformed::no(same(*left, *right)),
                }
            }
            Expr::InList(InList { expr, list, negated }) if list.iter().any(is_decimal) && self.is_single(&expr) => {
                let list = list.into_iter().map(as_single).collect();
                Transformed::yes(Expr::InList(InList { expr, list, negated }))
            }
            Expr::Between(Between { expr, negated, low, high })
                if (is_decimal(&low) || is_decimal(&high)) && self.is_single(&expr) =>
            {
                let (low, high) = (Box::new(as_single(*low)), Box::new(as_single(*high)));
                Transformed::yes(Expr::Between(Between { expr, negated, low, high }))
            }
            Expr::Case(Case { expr: Some(expr), when_then_expr, else_expr })
                if when_then_expr.iter().any(|(when, _)| is_decimal(when)) && self.is_single(&expr) =>
            {
                let when_then_expr =
                    when_then_expr.into_iter().map(|(when, then)| (Box::new(as_single(*when)), then)).collect();
                Transformed::yes(Expr::Case(Case { expr: Some(expr), when_then_expr, else_expr }))
            }
            other => Transformed::no(other),
        }
    }
}

fn is_comparison(op: Operator) -> bool {
    use Operator::*;
    matches!(op, Eq | NotEq | Lt | LtEq | Gt | GtEq | IsDistinctFrom | IsNotDistinctFrom)
}

fn is_decimal(expr: &Expr) -> bool {
    match expr {
        Expr::Literal(ScalarValue::Float64(Some(_)), _) => true,
        Expr::Negative(inner) => is_decimal(inner),
        _ => false,
    }
}

/// A number with a point, as a 32-bit float; one that is too great for it stays what it is.
fn as_single(expr: Expr) -> Expr {
    match expr {
        Expr::Literal(ScalarValue::Float64(Some(value)), _) if value.is_nan() || (value as f32).is_finite() => {
            lit(value as f32)
        }
        Expr::Negative(inner) => Expr::Negative(Box::new(as_single(*inner))),
        other => other,
    }
}

/// Between what a whole number lies.
#[derive(Clone, Copy)]
struct Bounds(i128, i128);

/// What is known of an expression that is a whole number.
struct Whole {
    data_type: DataType,
    bounds: Bounds,
}

impl Whole {
    /// Of what is no arithmetic.
    fn of(expr: &Expr, schema: &DFSchema) -> Option<Whole> {
        let data_type = expr.get_type(schema).ok()?;
        let own = of_type(&data_type)?;
        let bounds = match expr {
            Expr::Literal(value, _) => match value.cast_to(&DataType::Decimal128(38, 0)).ok()? {
                ScalarValue::Decimal128(Some(value), ..) => Bounds(value, value),
                _ => own,
            },
            // A cast that does not fit is an error.
            Expr::Cast(inner) => match inner.expr.get_type(schema).ok().as_ref().and_then(of_type) {
                Some(inner) => Bounds(inner.0.max(own.0), inner.1.min(own.1)),
                None => own,
            },
            _ => own,
        };
        Some(Whole { data_type, bounds })
    }
}

impl Bounds {
    fn with(self, op: Operator, other: Bounds) -> Option<Bounds> {
        Some(match op {
            Operator::Plus => Bounds(self.0.checked_add(other.0)?, self.1.checked_add(other.1)?),
            Operator::Minus => Bounds(self.0.checked_sub(other.1)?, self.1.checked_sub(other.0)?),
            Operator::Multiply => {
                let corners = [(self.0, other.0), (self.0, other.1), (self.1, other.0), (self.1, other.1)];
                let products = corners.map(|(a, b)| a.checked_mul(b));
                let mut least = i128::MAX;
                let mut greatest = i128::MIN;
                for product in products {
                    (least, greatest) = (least.min(product?), greatest.max(product?));
                }
                Bounds(least, greatest)
            }
            _ => return None,
        })
    }

    fn fits(self, other: Bounds) -> bool {
        self.0 >= other.0 && self.1 <= other.1
    }
}

fn of_type(data_type: &DataType) -> Option<Bounds> {
    Some(match data_type {
        DataType::Int8 => Bounds(i8::MIN.into(), i8::MAX.into()),
        DataType::Int16 => Bounds(i16::MIN.into(), i16::MAX.into()),
        DataType::Int32 => Bounds(i32::MIN.into(), i32::MAX.into()),
        DataType::Int64 => Bounds(i64::MIN.into(), i64::MAX.into()),
        DataType::UInt8 => Bounds(0, u8::MAX.into()),
        DataType::UInt16 => Bounds(0, u16::MAX.into()),
        DataType::UInt32 => Bounds(0, u32::MAX.into()),
        DataType::UInt64 => Bounds(0, u64::MAX.into()),
        _ => return None,
    })
}

fn arithmetic(
    left: Expr,
    op: Operator,
    right: Expr,
    known: Option<(Whole, Whole)>,
) -> (Transformed<Expr>, Option<Whole>) {
    let binary = |left, right| Expr::BinaryExpr(BinaryExpr::new(Box::new(left), op, Box::new(right)));
    let Some((of_left, of_right)) = known else { return (Transformed::no(binary(left, right)), None) };
    let is_unsigned = |known: &Whole| known.data_type == DataType::UInt64;
    let wanted = match (is_unsigned(&of_left), is_unsigned(&of_right)) {
        (false, false) => DataType::Int64,
        (true, true) => DataType::UInt64,
        (true, false) if of_right.bounds.0 >= 0 => DataType::UInt64,
        (false, true) if of_left.bounds.0 >= 0 => DataType::UInt64,
        // DataFusion makes decimals of 20 digits of both.
        _ => return (Transformed::no(binary(left, right)), None),
    };
    let as_wanted = |expr: Expr, known: &Whole| match known.data_type == wanted {
        true => expr,
        false => cast(expr, wanted.clone()),
    };
    let (left, right) = (as_wanted(left, &of_left), as_wanted(right, &of_right));
    let room = of_type(&wanted).expect("a type of whole numbers");
    let (expr, bounds) = match of_left.bounds.with(op, of_right.bounds) {
        Some(found) if found.fits(room) => (binary(left, right), found),
        _ => (checked(op).call(vec![left, right]), room),
    };
    (Transformed::yes(expr), Some(Whole { data_type: wanted, bounds }))
}

static FUNCTIONS: LazyLock<[ScalarUDF; 3]> = LazyLock::new(|| {
    [("checked_add", Operator::Plus), ("checked_subtract", Operator::Minus), ("checked_multiply", Operator::Multiply)]
        .map(|(name, op)| {
            let types = vec![DataType::Int64, DataType::UInt64];
            ScalarUDF::new_from_impl(Checked {
                name,
                op,
                signature: Signature::uniform(2, types, Volatility::Immutable),
            })
        })
});

/// Those that stand in operators' places: who plans a query has put them there, and nobody calls them by their names.
pub fn functions() -> Vec<ScalarUDF> {
    FUNCTIONS.to_vec()
}

/// The function in an operator's place.
fn checked(op: Operator) -> &'static ScalarUDF {
    match op {
        Operator::Plus => &FUNCTIONS[0],
        Operator::Minus => &FUNCTIONS[1],
        _ => &FUNCTIONS[2],
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Checked {
    name: &'static str,
    op: Operator,
    signature: Signature,
}

impl ScalarUDFImpl for Checked {
    fn name(&self) -> &str {
        self.name
    }
    fn signature(&self) -> &Signature {
        &self.signature
    }
    fn return_type(&self, types: &[DataType]) -> DataFusionResult<DataType> {
        Ok(types[0].clone())
    }
    fn invoke_with_args(&self, called: ScalarFunctionArgs) -> DataFusionResult<ColumnarValue> {
        let [left, right] = &called.args[..] else {
            return Err(Error::invalid(format!("{} takes two numbers", self.name)).into());
        };
        let done = match self.op {
            Operator::Plus => apply(left, right, add),
            Operator::Minus => apply(left, right, sub),
            _ => apply(left, right, mul),
        };
        done.map_err(|error| match error.find_root() {
            DataFusionError::ArrowError(inner, _) if matches!(**inner, ArrowError::ArithmeticOverflow(_)) => {
                let ArrowError::ArithmeticOverflow(what) = &**inner else { unreachable!("looked at above") };
                let what = what.strip_prefix("Overflow happened on: ").unwrap_or(what);
                Error::invalid(format!("{what} does not fit in a 64-bit integer"))
                    .hint("CAST(… AS DOUBLE), or CAST(… AS DECIMAL(38, 0)) for exact numbers")
                    .into()
            }
            _ => error,
        })
    }
}
