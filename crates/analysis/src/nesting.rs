//! How deep a statement may be nested, told from its words before it is parsed.
//!
//! Trees of statements are walked, and let go, by functions that call themselves: a tree that is too deep would end the process with
//! all of its queries. Lists are flat however long they are; `a + b + …`, `a OR b OR …`, joins and unions lie in one another.
//!
//! Invariant: the depth of the tree is at most a small multiple of what is told here, for any text.

use crate::error::{Error, Result};
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Token, Tokenizer};

/// Of operators and brackets; `exec::STACK_BYTES` are enough for it.
const DEPTH_MAX: usize = 2000;
/// A join, a subquery or a union is several plans, one above the other.
const PLAN: usize = 5;

pub fn check(text: &str) -> Result<()> {
    // What can't be cut into words is refused by the parser, in its own words.
    let Ok(words) = Tokenizer::new(&GenericDialect {}, text).tokenize() else { return Ok(()) };
    let depth = depth(&words);
    if depth > DEPTH_MAX {
        let hint = "ask it in parts; `x IN (…)` says many of `x = …`, and a list of values is a table";
        return Err(Error::invalid(format!("the query is nested {depth} deep: at most {DEPTH_MAX}")).hint(hint));
    }
    Ok(())
}

/// What lies between two brackets, or between CASE and END.
#[derive(Default)]
struct Level {
    is_case: bool,
    /// Between commas.
    operators: usize,
    plans: usize,
    deepest: usize,
    is_query: bool,
    /// Commas join.
    is_in_from: bool,
    /// What follows may read what lies before.
    is_in_with: bool,
}

impl Level {
    fn depth(&self) -> usize {
        self.deepest.max(self.operators + self.plans)
    }

    fn next_part(&mut self) {
        self.deepest = self.depth();
        self.operators = 0;
    }

    fn comma(&mut self) {
        match self.is_in_from || self.is_in_with {
            true => self.plans += PLAN,
            false => self.next_part(),
        }
    }

    fn has(&mut self, inner: &Level) {
        let depth = inner.depth() + 1;
        if inner.is_query {
            self.plans += PLAN;
        }
        match self.is_in_with {
            true => self.plans += depth,
            false => self.deepest = self.deepest.max(self.operators + self.plans + depth),
        }
    }
}

fn depth(words: &[Token]) -> usize {
    let mut levels: Vec<Level> = vec![];
    let mut level = Level::default();
    // What is behind an operand: an operator, or a word that goes on.
    let mut is_behind_operand = false;
    let mut last = Keyword::NoKeyword;
    for word in words {
        let mut keyword = Keyword::NoKeyword;
        match word {
            Token::Whitespace(_) => continue,
            Token::LParen | Token::LBracket | Token::LBrace => {
                levels.push(std::mem::take(&mut level));
                is_behind_operand = false;
            }
            Token::RParen | Token::RBracket | Token::RBrace => {
                level = closed(level, &mut levels);
                // `a[1][2]`: each is of what lies before.
                level.operators += (*word == Token::RBracket) as usize;
                is_behind_operand = true;
            }
            Token::Comma => {
                level.comma();
                is_behind_operand = false;
            }
            Token::Word(found) if found.quote_style.is_none() => {
                keyword = found.keyword;
                let goes_on = !matches!(keyword, Keyword::NoKeyword | Keyword::AS);
                level.operators += (is_behind_operand && goes_on) as usize;
                is_behind_operand = true;
                match keyword {
                    Keyword::CASE => {
                        levels.push(std::mem::replace(&mut level, Level { is_case: true, ..Level::default() }));
                        is_behind_operand = false;
                    }
                    Keyword::END if level.is_case => level = closed(level, &mut levels),
                    Keyword::WHEN | Keyword::THEN | Keyword::ELSE if level.is_case => level.next_part(),
                    Keyword::SELECT => {
                        level.next_part();
                        (level.is_query, level.is_in_from, level.is_in_with) = (true, false, false);
                    }
                    Keyword::WHERE | Keyword::HAVING => {
                        level.next_part();
                        level.is_in_from = false;
                    }
                    Keyword::GROUP | Keyword::ORDER | Keyword::LIMIT => level.is_in_from = false,
                    // Not that of `IS DISTINCT FROM`.
                    Keyword::FROM if last != Keyword::DISTINCT => level.is_in_from = true,
                    Keyword::WITH if !level.is_query => level.is_in_with = true,
                    Keyword::JOIN
                    | Keyword::UNION
                    | Keyword::EXCEPT
                    | Keyword::INTERSECT
                    | Keyword::MINUS
                    | Keyword::OVER
                    | Keyword::PIVOT
                    | Keyword::UNPIVOT
                    | Keyword::EXPLAIN => level.plans += PLAN,
                    _ => {}
                }
            }
            Token::Word(_) | Token::Number(..) | Token::SingleQuotedString(_) => is_behind_operand = true,
            Token::Period => {}
            _ => {
                level.operators += 1;
                is_behind_operand = false;
            }
        }
        last = keyword;
    }
    while !levels.is_empty() {
        level = closed(level, &mut levels);
    }
    level.depth()
}

/// The level that lies around it.
fn closed(level: Level, levels: &mut Vec<Level>) -> Level {
    let mut outer = levels.pop().unwrap_or_default();
    outer.has(&level);
    outer
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> usize {
        depth(&Tokenizer::new(&GenericDialect {}, text).tokenize().unwrap())
    }

    #[test]
    fn chains_are_deep_and_lists_are_flat() {
        let many = |part: &str, joint: &str| vec![part; 1000].join(joint);
        for deep in [
            format!("SELECT {}", many("1", "+")),
            format!("SELECT x FROM g WHERE {}", many("x = 1", " OR ")),
            format!("SELECT x FROM g WHERE {}", many("x IS NOT NULL", " AND ")),
            many("SELECT 1", " UNION ALL "),
            format!("SELECT 1 FROM {}", many("g", ", ")),
            format!("SELECT 1 FROM {}", many("g", " CROSS JOIN ")),
            format!("SELECT {}true", "NOT ".repeat(1001)),
            format!("SELECT {}1", "- ".repeat(1001)),
            format!("SELECT a{}", "[1]".repeat(1000)),
            format!("SELECT a{}", "::int".repeat(1000)),
            format!("SELECT {}1{}", "(".repeat(1000), ")".repeat(1000)),
            format!("SELECT {}1{}", "CASE WHEN a THEN ".repeat(1000), " END".repeat(1000)),
            format!("SELECT CAST(1 AS {}int{})", "ARRAY<".repeat(1000), ">".repeat(1000)),
            format!("WITH {} SELECT 1", many("a AS (SELECT 1)", ", ")),
            format!("SELECT {}", many("median(x) WITHIN GROUP (ORDER BY v)", " + ")),
        ] {
            assert!(of(&deep) > 900, "{} {deep:.100}", of(&deep));
        }
        for flat in [
            format!("SELECT {} FROM g", many("a + 1 AS b", ", ")),
            format!("SELECT x FROM g WHERE x IN ({})", many("-1", ", ")),
            format!("SELECT * FROM (VALUES {}) t(a, b)", many("(1, 2 + 3)", ", ")),
            format!("SELECT CASE {} ELSE 0 END FROM g", many("WHEN a = 1 AND b = 2 THEN c + 1", " ")),
            format!("SELECT f({}) FROM g", many("a.b = 1", ", ")),
            format!("SELECT '{}'", many("1", "+")),
        ] {
            assert!(of(&flat) < 20, "{} {flat:.100}", of(&flat));
        }
    }
}
