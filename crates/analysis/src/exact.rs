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
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
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
            let changed = expr.transform_up(|expr| rewritten(expr, &schema))?;
            Ok(changed.update_data(|expr| name.restore(expr)))
        })?;
        match changed.transformed {
            true => changed.map_data(|plan| plan.recompute_schema()),
            false => Ok(changed),
        }
    })
    .data()
}

fn rewritten(expr: Expr, schema: &DFSchema) -> DataFusionResult<Transformed<Expr>> {
    let is_single = |expr: &Expr| !is_literal(expr) && matches!(expr.get_type(schema), Ok(DataType::Float32));
    Ok(match expr {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) if is_comparison(op) => {
            let same = |left: Expr, right: Expr| Expr::BinaryExpr(BinaryExpr::new(Box::new(left), op, Box::new(right)));
            match (is_single(&left), is_single(&right)) {
                (true, false) => Transformed::yes(same(*left, as_single(*right))),
                (false, true) => Transformed::yes(same(as_single(*left), *right)),
                _ => Transformed::no(same(*left, *right)),
            }
        }
        Expr::BinaryExpr(BinaryExpr { left, op, right })
            if matches!(op, Operator::Plus | Operator::Minus | Operator::Multiply) =>
        {
            arithmetic(*left, op, *right, schema)
        }
        Expr::InList(InList { expr, list, negated }) if is_single(&expr) => {
            let list = list.into_iter().map(as_single).collect();
            Transformed::yes(Expr::InList(InList { expr, list, negated }))
        }
        Expr::Between(Between { expr, negated, low, high }) if is_single(&expr) => {
            let (low, high) = (Box::new(as_single(*low)), Box::new(as_single(*high)));
            Transformed::yes(Expr::Between(Between { expr, negated, low, high }))
        }
        Expr::Case(Case { expr: Some(expr), when_then_expr, else_expr }) if is_single(&expr) => {
            let when_then_expr =
                when_then_expr.into_iter().map(|(when, then)| (Box::new(as_single(*when)), then)).collect();
            Transformed::yes(Expr::Case(Case { expr: Some(expr), when_then_expr, else_expr }))
        }
        other => Transformed::no(other),
    })
}

fn is_comparison(op: Operator) -> bool {
    use Operator::*;
    matches!(op, Eq | NotEq | Lt | LtEq | Gt | GtEq | IsDistinctFrom | IsNotDistinctFrom)
}

fn is_literal(expr: &Expr) -> bool {
    match expr {
        Expr::Literal(..) => true,
        Expr::Negative(inner) => is_literal(inner),
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

impl Bounds {
    fn of(expr: &Expr, schema: &DFSchema) -> Option<Bounds> {
        let whole = |expr: &Expr| of_type(&expr.get_type(schema).ok()?);
        match expr {
            Expr::Alias(alias) => Bounds::of(&alias.expr, schema),
            Expr::Literal(value, _) => {
                whole(expr)?;
                let value: i128 = match value.cast_to(&DataType::Decimal128(38, 0)).ok()? {
                    ScalarValue::Decimal128(Some(value), ..) => value,
                    _ => return None,
                };
                Some(Bounds(value, value))
            }
            Expr::Cast(inner) => {
                let own = whole(expr)?;
                // A cast that does not fit is an error.
                Some(
                    Bounds::of(&inner.expr, schema).map_or(own, |inner| Bounds(inner.0.max(own.0), inner.1.min(own.1))),
                )
            }
            Expr::BinaryExpr(BinaryExpr { left, op, right }) => {
                let own = whole(expr)?;
                let inner = Bounds::of(left, schema).zip(Bounds::of(right, schema));
                Some(inner.and_then(|(left, right)| left.with(*op, right)).map_or(own, |found| found.within(own)))
            }
            other => whole(other),
        }
    }

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

    fn within(self, own: Bounds) -> Bounds {
        if self.fits(own) { self } else { own }
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

fn arithmetic(left: Expr, op: Operator, right: Expr, schema: &DFSchema) -> Transformed<Expr> {
    let same = |left, right| Transformed::no(Expr::BinaryExpr(BinaryExpr::new(Box::new(left), op, Box::new(right))));
    let bounds = Bounds::of(&left, schema).zip(Bounds::of(&right, schema));
    let types = left.get_type(schema).ok().zip(right.get_type(schema).ok());
    let (Some((of_left, of_right)), Some((left_type, right_type))) = (bounds, types) else { return same(left, right) };
    let is_unsigned = |data_type: &DataType| *data_type == DataType::UInt64;
    let wanted = match (is_unsigned(&left_type), is_unsigned(&right_type)) {
        (false, false) => DataType::Int64,
        (true, true) => DataType::UInt64,
        // DataFusion makes decimals of 20 digits of both, where a literal does not fit the column's type.
        (true, false) if of_right.0 >= 0 => DataType::UInt64,
        (false, true) if of_left.0 >= 0 => DataType::UInt64,
        _ => return same(left, right),
    };
    let as_wanted = |expr: Expr, data_type: &DataType| match *data_type == wanted {
        true => expr,
        false => cast(expr, wanted.clone()),
    };
    let (left, right) = (as_wanted(left, &left_type), as_wanted(right, &right_type));
    let room = of_type(&wanted).expect("a type of whole numbers");
    match of_left.with(op, of_right) {
        Some(found) if found.fits(room) => {
            Transformed::yes(Expr::BinaryExpr(BinaryExpr::new(Box::new(left), op, Box::new(right))))
        }
        _ => Transformed::yes(checked(op).call(vec![left, right])),
    }
}

/// The function in an operator's place.
fn checked(op: Operator) -> &'static ScalarUDF {
    static FUNCTIONS: LazyLock<[ScalarUDF; 3]> = LazyLock::new(|| {
        [
            ("checked_add", Operator::Plus),
            ("checked_subtract", Operator::Minus),
            ("checked_multiply", Operator::Multiply),
        ]
        .map(|(name, op)| {
            let types = vec![DataType::Int64, DataType::UInt64];
            ScalarUDF::new_from_impl(Checked {
                name,
                op,
                signature: Signature::uniform(2, types, Volatility::Immutable),
            })
        })
    });
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
