//! Commands as trees. Precedence is SAVIME's own, low to high: {AND, OR, NOT} on one level; `= <> < > <= >= LIKE`; `+ -`;
//! `* / %`; `^`; all from the left.
//!
//! Invariant: any text gives a tree or an error that says where; a tree is never deeper than `DEPTH_MAX`, so nothing that walks
//! it needs much stack.

use crate::elements::Number;
use crate::lexer::{Placed, Token, words};
use terrace_analysis::{Error, Result};

#[derive(Clone, PartialEq, Debug)]
pub enum Node {
    Int(i64),
    Real(f64),
    Text(String),
    Name(String),
    /// The name in lower case.
    Call(String, Vec<Node>),
    Not(Box<Node>),
    Minus(Box<Node>),
    Binary(Operator, Box<Node>, Box<Node>),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operator {
    And,
    Or,
    Equal,
    NotEqual,
    Less,
    Greater,
    LessEqual,
    GreaterEqual,
    Like,
    Plus,
    Minus,
    Times,
    Divide,
    Modulo,
    Power,
}

impl Operator {
    fn level(self) -> usize {
        use Operator::*;
        match self {
            And | Or => 0,
            Equal | NotEqual | Less | Greater | LessEqual | GreaterEqual | Like => 1,
            Plus | Minus => 2,
            Times | Divide | Modulo => 3,
            Power => 4,
        }
    }
}

const LEVELS: usize = 5;
/// Calls, brackets and operators that lie in one another.
pub const DEPTH_MAX: usize = 100;
const NODES_MAX: usize = 1 << 20;

/// A command: a call.
pub fn parse(text: &str) -> Result<Node> {
    let words = words(text.trim_end().trim_end_matches(';'))?;
    if words.len() > NODES_MAX {
        return Err(Error::invalid(format!("a command of {} words: at most {NODES_MAX}", words.len())));
    }
    let mut parser = Parser { words: &words, next: 0, depth: 0 };
    let (node, _) = parser.level(0)?;
    if let Some(word) = parser.words.get(parser.next) {
        return Err(parser.unexpected(Some(word), "the end of the command"));
    }
    match node {
        Node::Call(..) => Ok(node),
        _ => Err(Error::invalid("a command is a name with arguments in brackets").hint("scan(name); show();")),
    }
}

struct Parser<'a> {
    words: &'a [Placed],
    next: usize,
    /// Levels that are open.
    depth: usize,
}

impl Parser<'_> {
    fn peek(&self) -> Option<&Token> {
        self.words.get(self.next).map(|word| &word.token)
    }

    fn takes(&mut self, sign: &str) -> bool {
        let is_it = matches!(self.peek(), Some(Token::Sign(found)) if *found == sign);
        self.next += is_it as usize;
        is_it
    }

    fn unexpected(&self, word: Option<&Placed>, wanted: &str) -> Error {
        let what = match word.map(|word| &word.token) {
            None => "the command ends".to_owned(),
            Some(Token::Name(name)) => format!("`{name}` is"),
            Some(Token::Text(text)) => format!("the text '{}' is", text.chars().take(40).collect::<String>()),
            Some(Token::Int(number)) => format!("{number} is"),
            Some(Token::Real(number)) => format!("{number} is"),
            Some(Token::Sign(sign)) => format!("`{sign}` is"),
        };
        let place = word.map_or(String::new(), |word| format!(" at character {}", word.at + 1));
        Error::invalid(format!("{what}{place} where {wanted} is expected"))
    }

    fn too_deep(&self, depth: usize) -> Result<()> {
        match depth > DEPTH_MAX {
            true => Err(Error::invalid(format!("the command is nested deeper than {DEPTH_MAX}"))
                .hint("store a part of it under a name and go on from that")),
            false => Ok(()),
        }
    }

    fn operator(&self) -> Option<Operator> {
        use Operator::*;
        Some(match self.peek()? {
            Token::Name(name) if name.eq_ignore_ascii_case("and") => And,
            Token::Name(name) if name.eq_ignore_ascii_case("or") => Or,
            Token::Name(name) if name.eq_ignore_ascii_case("like") => Like,
            Token::Sign(sign) => match *sign {
                "=" => Equal,
                "<>" => NotEqual,
                "<" => Less,
                ">" => Greater,
                "<=" => LessEqual,
                ">=" => GreaterEqual,
                "+" => Plus,
                "-" => Minus,
                "*" => Times,
                "/" => Divide,
                "%" => Modulo,
                "^" => Power,
                _ => return None,
            },
            _ => return None,
        })
    }

    /// Operators of this level and above, and how deep the tree is.
    fn level(&mut self, level: usize) -> Result<(Node, usize)> {
        if level == LEVELS {
            return self.operand();
        }
        let (mut left, mut depth) = self.side(level)?;
        while let Some(operator) = self.operator().filter(|operator| operator.level() == level) {
            self.next += 1;
            let (right, other) = self.side(level)?;
            depth = depth.max(other) + 1;
            self.too_deep(self.depth + depth)?;
            left = Node::Binary(operator, Box::new(left), Box::new(right));
        }
        Ok((left, depth))
    }

    fn side(&mut self, level: usize) -> Result<(Node, usize)> {
        let mut negations = 0;
        if level == 0 {
            while matches!(self.peek(), Some(Token::Name(name)) if name.eq_ignore_ascii_case("not")) {
                self.next += 1;
                negations += 1;
            }
        }
        let (mut node, depth) = self.level(level + 1)?;
        self.too_deep(self.depth + depth + negations)?;
        for _ in 0..negations {
            node = Node::Not(Box::new(node));
        }
        Ok((node, depth + negations))
    }

    fn operand(&mut self) -> Result<(Node, usize)> {
        let word = self.words.get(self.next).cloned();
        self.next += 1;
        let node = match word.as_ref().map(|word| &word.token) {
            Some(Token::Int(number)) => Node::Int(*number),
            Some(Token::Real(number)) => Node::Real(*number),
            Some(Token::Text(text)) => Node::Text(text.clone()),
            Some(Token::Sign("+" | "-")) => {
                let is_minus = matches!(word, Some(Placed { token: Token::Sign("-"), .. }));
                self.depth += 1;
                self.too_deep(self.depth)?;
                let (inner, depth) = self.operand()?;
                self.depth -= 1;
                let node = match (is_minus, inner) {
                    (false, inner) => inner,
                    (true, Node::Int(number)) => Node::Int(-number),
                    (true, Node::Real(number)) => Node::Real(-number),
                    (true, inner) => Node::Minus(Box::new(inner)),
                };
                return Ok((node, depth + 1));
            }
            Some(Token::Sign("(")) => {
                let inside = self.nested(0)?;
                return match self.takes(")") {
                    true => Ok(inside),
                    false => Err(self.unexpected(self.words.get(self.next), "`)`")),
                };
            }
            Some(Token::Name(name)) => {
                if !self.takes("(") {
                    return Ok((Node::Name(name.clone()), 1));
                }
                let (arguments, depth) = self.arguments()?;
                return Ok((Node::Call(name.to_ascii_lowercase(), arguments), depth + 1));
            }
            _ => return Err(self.unexpected(word.as_ref(), "a name, a number, a text or `(`")),
        };
        Ok((node, 1))
    }

    fn nested(&mut self, level: usize) -> Result<(Node, usize)> {
        self.depth += 1;
        self.too_deep(self.depth)?;
        let inside = self.level(level)?;
        self.depth -= 1;
        Ok(inside)
    }

    fn arguments(&mut self) -> Result<(Vec<Node>, usize)> {
        let (mut arguments, mut deepest) = (vec![], 0);
        if self.takes(")") {
            return Ok((arguments, deepest));
        }
        loop {
            let (argument, depth) = self.nested(0)?;
            deepest = deepest.max(depth);
            arguments.push(argument);
            if self.takes(")") {
                return Ok((arguments, deepest));
            }
            if !self.takes(",") {
                return Err(self.unexpected(self.words.get(self.next), "`,` or `)`"));
            }
        }
    }
}

/// A name of something that is there.
pub fn name_of(node: &Node) -> Result<&str> {
    match node {
        Node::Name(name) | Node::Text(name) => Ok(name),
        _ => Err(Error::invalid("a name is expected")),
    }
}

pub fn number_of(node: &Node) -> Result<Number> {
    match node {
        Node::Int(whole) => Ok(Number::Int(*whole)),
        Node::Real(real) => Ok(Number::Real(*real)),
        Node::Text(text) => Number::parse(text),
        _ => Err(Error::invalid("a number is expected")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lexer::{is_complete, split};

    fn shown(node: &Node) -> String {
        match node {
            Node::Int(number) => number.to_string(),
            Node::Real(number) => format!("{number:?}"),
            Node::Text(text) => format!("'{text}'"),
            Node::Name(name) => name.clone(),
            Node::Call(name, arguments) => {
                format!("{name}({})", arguments.iter().map(shown).collect::<Vec<_>>().join(","))
            }
            Node::Not(inner) => format!("!{}", shown(inner)),
            Node::Minus(inner) => format!("-{}", shown(inner)),
            Node::Binary(operator, left, right) => format!("[{} {operator:?} {}]", shown(left), shown(right)),
        }
    }

    #[track_caller]
    fn reads(text: &str, as_tree: &str) {
        assert_eq!(parse(text).map(|node| shown(&node)).map_err(|error| error.message), Ok(as_tree.to_owned()));
    }

    #[test]
    fn and_or_and_not_are_of_one_level_from_the_left() {
        reads("Where(t, a or b and c)", "where(t,[[a Or b] And c])");
        reads("where(t, a and not b OR c);", "where(t,[[a And !b] Or c])");
        reads("where(t, not a and b)", "where(t,[!a And b])");
        reads("where(t, not (a and b))", "where(t,![a And b])");
        reads("where(t, a=1 and b<>2 or c like 'x%')", "where(t,[[[a Equal 1] And [b NotEqual 2]] Or [c Like 'x%']])");
    }

    #[test]
    fn arithmetic_binds_as_in_savime() {
        reads("f(a+b*c-d)", "f([[a Plus [b Times c]] Minus d])");
        reads("f(a/b/c % d)", "f([[[a Divide b] Divide c] Modulo d])");
        reads("f(-a^2 + -3 + +4)", "f([[[-a Power 2] Plus -3] Plus 4])");
        reads("f(a^b^c)", "f([[a Power b] Power c])");
        reads("f(1-2, .5, 1e-3, 7., 99999999999999999999)", "f([1 Minus 2],0.5,0.001,7.0,1e20)");
        reads("f(a+1<=b*2)", "f([[a Plus 1] LessEqual [b Times 2]])");
    }

    #[test]
    fn names_texts_and_calls_are_read() {
        reads("AGGREGATE(scan(io), max, v:2, m, X)", "aggregate(scan(io),max,v:2,m,X)");
        reads("create_tar('a b;', \"it's\")", "create_tar('a b;','it's')");
        reads("show()", "show()");
        assert_eq!(split("a('x;y'); b(\";\") ;\n"), ["a('x;y')", " b(\";\") "]);
        assert!(is_complete("a();\n") && !is_complete("a('x;") && !is_complete("a()"));
    }

    #[test]
    fn what_is_wrong_is_told_with_its_place() {
        let wrong = |text: &str| parse(text).expect_err("it is wrong").message;
        assert!(wrong("where(t, a != b)").contains("`!` at character 12"));
        assert!(wrong("scan(t").contains("the command ends"));
        assert!(wrong("scan('t)").contains("does not end"));
        assert!(wrong("scan(t) x").contains("`x` is at character 9"));
        assert!(wrong("t").contains("a name with arguments"));
        assert!(wrong("").contains("the command ends"));
        assert!(wrong("f(a,)").contains("`)` is at character 5"));
        assert!(wrong("f(ä)").contains("`ä` at character 3"));
    }

    #[test]
    fn deep_nesting_is_refused_and_width_is_not() {
        let deep = |left: &str, right: &str| format!("f({}a{})", left.repeat(100_000), right.repeat(100_000));
        for text in
            [deep("(", ")"), deep("f(", ")"), deep("-", ""), deep("not ", ""), deep("", "+a"), deep("", " and a")]
        {
            assert!(parse(&text).unwrap_err().message.contains("nested deeper"), "{}", &text[..20]);
        }
        assert!(parse(&format!("literal({}1)", "1,".repeat(100_000))).is_ok());
        assert!(parse(&format!("f({}1{})", "(".repeat(DEPTH_MAX - 2), ")".repeat(DEPTH_MAX - 2))).is_ok());
    }
}
