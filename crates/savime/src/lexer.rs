//! Words of SAVIME's language, each with the place where it begins.

use terrace_analysis::{Error, Result};
use winnow::Parser;
use winnow::combinator::{alt, delimited, opt, preceded};
use winnow::error::ContextError;
use winnow::token::{literal, one_of, take_till, take_while};

#[derive(Clone, PartialEq, Debug)]
pub enum Token {
    /// A name, with the component of a vector (`v:2`) where there is one.
    Name(String),
    Text(String),
    Int(i64),
    Real(f64),
    /// One of `( ) , = <> < > <= >= + - * / % ^`.
    Sign(&'static str),
}

#[derive(Clone, PartialEq, Debug)]
pub struct Placed {
    pub token: Token,
    pub at: usize,
}

type Lexed<T> = std::result::Result<T, ContextError>;

fn name(input: &mut &str) -> Lexed<String> {
    (
        one_of(|letter: char| letter.is_ascii_alphabetic() || letter == '_'),
        take_while(0.., |letter: char| letter.is_ascii_alphanumeric() || letter == '_'),
        opt(preceded(':', take_while(1.., '0'..='9'))),
    )
        .take()
        .map(String::from)
        .parse_next(input)
}

fn text(input: &mut &str) -> Lexed<String> {
    alt((delimited('\'', take_till(0.., '\''), '\''), delimited('"', take_till(0.., '"'), '"')))
        .map(String::from)
        .parse_next(input)
}

fn digits<'a>(input: &mut &'a str) -> Lexed<&'a str> {
    take_while(1.., '0'..='9').parse_next(input)
}

/// `12`, `1.5`, `.5`, `1e-3`.
fn number<'a>(input: &mut &'a str) -> Lexed<&'a str> {
    (
        alt(((digits, opt(('.', take_while(0.., '0'..='9')))).take(), ('.', digits).take())),
        opt((one_of(['e', 'E']), opt(one_of(['+', '-'])), digits)),
    )
        .take()
        .parse_next(input)
}

fn sign(input: &mut &str) -> Lexed<&'static str> {
    let two = alt((literal("<>").value("<>"), literal("<=").value("<="), literal(">=").value(">=")));
    let one = one_of(['(', ')', ',', '=', '<', '>', '+', '-', '*', '/', '%', '^']).map(|found| match found {
        '(' => "(",
        ')' => ")",
        ',' => ",",
        '=' => "=",
        '<' => "<",
        '>' => ">",
        '+' => "+",
        '-' => "-",
        '*' => "*",
        '/' => "/",
        '%' => "%",
        _ => "^",
    });
    alt((two, one)).parse_next(input)
}

/// The words of one command, which ends before the text's end or a semicolon; and where it ends.
pub fn words(text_of: &str) -> Result<Vec<Placed>> {
    let mut left = text_of;
    let mut found = vec![];
    loop {
        left = left.trim_start();
        let at = text_of.len() - left.len();
        let Some(first) = left.chars().next() else { return Ok(found) };
        let token = match first {
            'a'..='z' | 'A'..='Z' | '_' => name(&mut left).map(Token::Name),
            '\'' | '"' => text(&mut left).map(Token::Text),
            '0'..='9' => number(&mut left).map(numeral),
            '.' if left[1..].starts_with(|letter: char| letter.is_ascii_digit()) => number(&mut left).map(numeral),
            '!' => {
                return Err(Error::invalid(format!("`!` at character {} is not of the language", at + 1))
                    .hint("different is written `<>`"));
            }
            _ => sign(&mut left).map(Token::Sign),
        };
        let Ok(token) = token else {
            return Err(match first {
                '\'' | '"' => Error::invalid(format!("the text that begins at character {} does not end", at + 1)),
                other => {
                    Error::invalid(format!("`{}` at character {} is not of the language", other.escape_debug(), at + 1))
                }
            });
        };
        found.push(Placed { token, at });
    }
}

/// A whole number where it reads as one and fits in 64 bits.
fn numeral(text: &str) -> Token {
    match (text.parse::<i64>(), text.parse::<f64>()) {
        (Ok(whole), _) => Token::Int(whole),
        (_, Ok(real)) => Token::Real(real),
        _ => Token::Real(f64::NAN),
    }
}

/// Commands of a text, which semicolons end where they are not in a string.
pub fn split(text: &str) -> Vec<&str> {
    let (mut found, mut start, mut quote) = (vec![], 0, None);
    for (at, letter) in text.char_indices() {
        match (quote, letter) {
            (None, '\'' | '"') => quote = Some(letter),
            (Some(open), letter) if open == letter => quote = None,
            (None, ';') => {
                found.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    found.push(&text[start..]);
    found.retain(|command| !command.trim().is_empty());
    found
}

/// Whether the text ends a command, so that a prompt need not ask for more.
pub fn is_complete(text: &str) -> bool {
    let mut quote = None;
    let mut last = ' ';
    for letter in text.chars() {
        match (quote, letter) {
            (None, '\'' | '"') => quote = Some(letter),
            (Some(open), letter) if open == letter => quote = None,
            _ => {}
        }
        last = if letter.is_whitespace() { last } else { letter };
    }
    quote.is_none() && last == ';'
}
