//! Arithmetic and predicates, as DataFusion's expressions.
//!
//! Integers stay integers under `+ - * %`, of 64 bits whatever their elements have; `/`, `^` and the functions of analysis give doubles.

use crate::relation::{Relation, column};
use crate::syntax::{Node, Operator};
use arrow::datatypes::DataType;
use datafusion::functions::math::expr_fn as math;
use datafusion::logical_expr::Operator as Sql;
use datafusion::logical_expr::{Expr, ExprSchemable, binary_expr, cast, lit, when};
use terrace_analysis::{Error, Result};

/// What a row of the relation gives.
pub fn expression(relation: &Relation, node: &Node) -> Result<Expr> {
    Ok(match node {
        Node::Int(number) => lit(*number),
        Node::Real(number) => lit(*number),
        Node::Text(text) => lit(text.clone()),
        Node::Name(name) => match relation.expanded(name)?.as_slice() {
            [one] => column(one),
            _ => {
                return Err(
                    Error::invalid(format!("`{name}` is a vector")).hint(format!("choose a component: {name}:0"))
                );
            }
        },
        Node::Minus(inner) => long(relation, inner)? * lit(-1i64),
        Node::Not(inner) => Expr::Not(Box::new(predicate(relation, inner)?)),
        Node::Binary(operator, left, right) => binary(relation, *operator, left, right)?,
        Node::Call(name, arguments) => function(relation, name, arguments)?,
    })
}

/// An expression that is true or false.
pub fn predicate(relation: &Relation, node: &Node) -> Result<Expr> {
    let expr = expression(relation, node)?;
    match expr.get_type(relation.frame.schema())? {
        DataType::Boolean => Ok(expr),
        _ => {
            Err(Error::invalid("a condition is expected where there is a value")
                .hint("compare it with something: v > 0"))
        }
    }
}

/// An expression that is a number.
pub fn number(relation: &Relation, node: &Node) -> Result<Expr> {
    let expr = expression(relation, node)?;
    match expr.get_type(relation.frame.schema())? {
        data_type if data_type.is_numeric() => Ok(expr),
        _ => Err(Error::invalid("a number is expected where there is a condition or a text")),
    }
}

/// A number; an integer with room for what is made of it.
fn long(relation: &Relation, node: &Node) -> Result<Expr> {
    let expr = number(relation, node)?;
    Ok(match expr.get_type(relation.frame.schema())? {
        DataType::Int64 | DataType::UInt64 => expr,
        data_type if data_type.is_integer() => cast(expr, DataType::Int64),
        _ => expr,
    })
}

fn real(relation: &Relation, node: &Node) -> Result<Expr> {
    let expr = number(relation, node)?;
    Ok(match expr.get_type(relation.frame.schema())? {
        DataType::Float64 => expr,
        _ => cast(expr, DataType::Float64),
    })
}

fn binary(relation: &Relation, operator: Operator, left: &Node, right: &Node) -> Result<Expr> {
    use Operator::*;
    let sql = match operator {
        And => Sql::And,
        Or => Sql::Or,
        Equal => Sql::Eq,
        NotEqual => Sql::NotEq,
        Less => Sql::Lt,
        Greater => Sql::Gt,
        LessEqual => Sql::LtEq,
        GreaterEqual => Sql::GtEq,
        Like => return like(relation, left, right),
        Plus => Sql::Plus,
        Minus => Sql::Minus,
        Times => Sql::Multiply,
        Divide => return Ok(binary_expr(real(relation, left)?, Sql::Divide, real(relation, right)?)),
        Modulo => Sql::Modulo,
        Power => return Ok(math::power(real(relation, left)?, real(relation, right)?)),
    };
    match operator {
        And | Or => Ok(binary_expr(predicate(relation, left)?, sql, predicate(relation, right)?)),
        Plus | Minus | Times | Modulo => Ok(binary_expr(long(relation, left)?, sql, long(relation, right)?)),
        _ => {
            let (l, r) = (expression(relation, left)?, expression(relation, right)?);
            let schema = relation.frame.schema();
            let (of_left, of_right) = (l.get_type(schema)?, r.get_type(schema)?);
            match of_left.is_numeric() == of_right.is_numeric() && of_left != DataType::Boolean {
                true => Ok(binary_expr(l, sql, r)),
                false => Err(Error::invalid("a comparison is of two numbers or of two texts")),
            }
        }
    }
}

fn like(relation: &Relation, left: &Node, right: &Node) -> Result<Expr> {
    let (text, pattern) = (expression(relation, left)?, expression(relation, right)?);
    let schema = relation.frame.schema();
    match (text.get_type(schema)?, pattern.get_type(schema)?) {
        (DataType::Utf8 | DataType::Utf8View, DataType::Utf8) => Ok(text.like(pattern)),
        _ => Err(Error::invalid("LIKE compares texts").hint("attributes of type char:n are texts")),
    }
}

fn function(relation: &Relation, name: &str, arguments: &[Node]) -> Result<Expr> {
    let wanted = match name {
        "atan2" | "pow" => 2,
        _ => 1,
    };
    let one = || real(relation, &arguments[0]);
    let two = || real(relation, &arguments[1]);
    let is_known = FUNCTIONS.contains(&name);
    if is_known && arguments.len() != wanted {
        let given = arguments.len();
        return Err(Error::invalid(format!(
            "`{name}` takes {wanted} argument{}: {given} are given",
            if wanted == 1 { "" } else { "s" }
        )));
    }
    Ok(match name {
        "sin" => math::sin(one()?),
        "cos" => math::cos(one()?),
        "tan" => math::tan(one()?),
        "asin" => math::asin(one()?),
        "acos" => math::acos(one()?),
        "atan" => math::atan(one()?),
        "sinh" => math::sinh(one()?),
        "cosh" => math::cosh(one()?),
        "tanh" => math::tanh(one()?),
        "asinh" => math::asinh(one()?),
        "acosh" => math::acosh(one()?),
        "atanh" => math::atanh(one()?),
        "atan2" => math::atan2(one()?, two()?),
        "exp" => math::exp(one()?),
        "log" => math::ln(one()?),
        "log10" => math::log10(one()?),
        "pow" => math::power(one()?, two()?),
        // Of a negative number the engine's own fails, with the whole query.
        "sqrt" => when(one()?.lt(lit(0.0)), lit(f64::NAN)).otherwise(math::sqrt(one()?))?,
        "ceil" => math::ceil(one()?),
        "floor" => math::floor(one()?),
        "round" => math::round(vec![one()?]),
        // A whole number's is a whole number.
        "abs" => math::abs(long(relation, &arguments[0])?),
        _ => {
            return Err(Error::invalid(format!("`{name}` is not a function of numbers"))
                .hint(format!("there are {}", FUNCTIONS.join(", "))));
        }
    })
}

const FUNCTIONS: [&str; 22] = [
    "abs", "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "ceil", "cos", "cosh", "exp", "floor", "log",
    "log10", "pow", "round", "sin", "sinh", "sqrt", "tan", "tanh",
];
