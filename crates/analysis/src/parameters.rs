//! Parameters of a statement: `?` in turn, or `$1`, `$2`… A value takes the place of each before the statement is planned any further,
//! so that it means what it would mean if it stood there: a decimal beside a column of 32-bit floats is that column's.

use crate::error::{Error, Result};
use arrow::datatypes::{DataType, Field};
use datafusion::common::ParamValues;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::LogicalPlan;
use datafusion::prelude::{DataFrame, Expr};
use datafusion::scalar::ScalarValue;
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::tokenizer::{Token, Tokenizer};
use std::collections::HashMap;

/// Where `?` stands for a parameter, `$1`, `$2`… stand in its place: the engine knows only names.
pub fn numbered(text: &str) -> String {
    if !text.contains('?') {
        return text.to_owned();
    }
    // What is no text of tokens is refused when it is planned.
    let Ok(tokens) = Tokenizer::new(&GenericDialect {}, text).tokenize_with_location() else { return text.to_owned() };
    let marks = tokens.iter().filter(|token| token.token == Token::Placeholder("?".into()));
    let mut places: Vec<(u64, u64)> = marks.map(|mark| (mark.span.start.line, mark.span.start.column)).collect();
    places.reverse();
    let (mut line, mut column, mut number) = (1, 1, 0);
    let mut found = String::with_capacity(text.len() + places.len());
    for letter in text.chars() {
        match places.pop_if(|place| *place == (line, column)) {
            Some(_) => {
                number += 1;
                found.push_str(&format!("${number}"));
            }
            None => found.push(letter),
        }
        (line, column) = if letter == '\n' { (line + 1, 1) } else { (line, column + 1) };
    }
    found
}

/// The parameters of a planned statement, in turn. One whose type the statement does not tell is a text.
pub fn parameters(frame: &DataFrame) -> Result<Vec<Field>> {
    let mut found = vec![];
    for (name, data_type) in types(frame.logical_plan())? {
        let number =
            name.strip_prefix('$').and_then(|number| number.parse::<usize>().ok()).filter(|number| *number > 0);
        let Some(number) = number else {
            return Err(
                Error::invalid(format!("the parameter {name} has no number")).hint("parameters are ?, or $1, $2…")
            );
        };
        found.push((number, Field::new(name, data_type.unwrap_or(DataType::Utf8), true)));
    }
    found.sort_by_key(|(number, _)| *number);
    match found.iter().enumerate().find(|(at, (number, _))| at + 1 != *number) {
        Some((at, _)) => Err(Error::invalid(format!("the statement has no parameter ${}, but later ones", at + 1))),
        None => Ok(found.into_iter().map(|(_, field)| field).collect()),
    }
}

/// What the engine infers; and numbers of rows, which it leaves open.
fn types(plan: &LogicalPlan) -> Result<HashMap<String, Option<DataType>>> {
    let mut types = plan.get_parameter_types()?;
    plan.apply_with_subqueries(|node| {
        let LogicalPlan::Limit(limit) = node else { return Ok(TreeNodeRecursion::Continue) };
        for number in [&limit.skip, &limit.fetch].into_iter().flatten() {
            number.apply(|part| {
                if let Expr::Placeholder(parameter) = part {
                    types.insert(parameter.id.clone(), Some(DataType::Int64));
                }
                Ok(TreeNodeRecursion::Continue)
            })?;
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(types)
}

/// Values for the parameters of a statement, in turn.
#[derive(Clone, Debug, Default)]
pub struct Values(pub Vec<ScalarValue>);

impl Values {
    pub(crate) fn of_plan(self) -> ParamValues {
        ParamValues::from(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::numbered;

    #[test]
    fn marks_are_numbered_in_turn_and_others_stay() {
        for (text, wanted) in [
            ("SELECT 1", "SELECT 1"),
            ("SELECT ? + ?", "SELECT $1 + $2"),
            ("SELECT '?', \"a?\", ? -- ?\n, ? /* ? */", "SELECT '?', \"a?\", $1 -- ?\n, $2 /* ? */"),
            ("SELECT 'é?'\n  , ?, '\n', ?", "SELECT 'é?'\n  , $1, '\n', $2"),
            ("SELECT $2, $1", "SELECT $2, $1"),
            ("SELECT '?", "SELECT '?"),
        ] {
            assert_eq!(numbered(text), wanted);
        }
    }
}
