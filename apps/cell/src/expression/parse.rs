//! Recursive descent with precedence climbing, straight from characters to nodes.

use serde_json::Value;

use super::function::Function;
use super::{MAXIMUM_DEPTH, MAXIMUM_SOURCE, Node, Operator, Segment, evaluate};
use crate::units;

/// Why a text is not an expression.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message} at character {at}")]
pub struct ParseError {
    /// Byte position in the expression.
    pub at: usize,
    /// What is wrong there.
    pub message: String,
}

pub(super) fn parse(source: &str) -> Result<Node, ParseError> {
    let mut parser = Parser { source, at: 0, depth: 0 };
    if source.len() > MAXIMUM_SOURCE {
        return Err(parser.error(format!("an expression has more than {MAXIMUM_SOURCE} bytes")));
    }
    let node = parser.binary(0)?;
    parser.skip_space();
    if parser.at < source.len() {
        return Err(parser.error("expected an operator or the end"));
    }
    Ok(node)
}

struct Parser<'source> {
    source: &'source str,
    at: usize,
    depth: usize,
}

/// Symbols and words by binding strength; longer symbols come first so that `<=` is not read as `<`.
const OPERATORS: [(&str, Operator, u8); 14] = [
    ("or", Operator::Or, 1),
    ("and", Operator::And, 2),
    ("==", Operator::Equal, 4),
    ("!=", Operator::Unequal, 4),
    ("<=", Operator::LessOrEqual, 4),
    (">=", Operator::GreaterOrEqual, 4),
    ("<", Operator::Less, 4),
    (">", Operator::Greater, 4),
    ("in", Operator::In, 4),
    ("+", Operator::Add, 5),
    ("-", Operator::Subtract, 5),
    ("*", Operator::Multiply, 6),
    ("/", Operator::Divide, 6),
    ("%", Operator::Remainder, 6),
];
/// `not` binds weaker than a comparison, so `not a == b` means what it reads like.
const NOT_STRENGTH: u8 = 3;

impl<'source> Parser<'source> {
    fn binary(&mut self, weakest: u8) -> Result<Node, ParseError> {
        self.depth += 1;
        if self.depth > MAXIMUM_DEPTH {
            return Err(self.error(format!("nested deeper than {MAXIMUM_DEPTH}")));
        }
        let mut left = self.unary()?;
        let mut length = 0;
        while let Some((operator, strength, end)) = self.peek_operator() {
            if strength < weakest {
                break;
            }
            // A chain is left-leaning, so its length is the depth of the tree that is evaluated.
            length += 1;
            if length > MAXIMUM_DEPTH {
                return Err(self.error(format!("more than {MAXIMUM_DEPTH} operators in a row")));
            }
            self.at = end;
            let right = self.binary(strength + 1)?;
            left = Node::Binary(operator, Box::new(left), Box::new(right));
        }
        self.depth -= 1;
        Ok(left)
    }

    fn unary(&mut self) -> Result<Node, ParseError> {
        self.skip_space();
        if self.peek_word() == "not" {
            self.at += 3;
            return Ok(Node::Not(Box::new(self.binary(NOT_STRENGTH)?)));
        }
        if self.take("-") {
            // Stronger than any operator: the recursion only bounds the depth of `- - - x`.
            return Ok(match self.binary(7)? {
                Node::Literal(Value::Number(number)) => {
                    Node::Literal(evaluate::number_value(-number.as_f64().unwrap_or_default()))
                }
                inner => Node::Negate(Box::new(inner)),
            });
        }
        self.primary()
    }

    fn primary(&mut self) -> Result<Node, ParseError> {
        self.skip_space();
        match self.rest().chars().next() {
            None => Err(self.error("expected a value")),
            Some('(') => {
                self.at += 1;
                let inner = self.binary(0)?;
                self.expect(")")?;
                Ok(inner)
            }
            Some('[') => {
                self.at += 1;
                Ok(Node::List(self.arguments("]")?))
            }
            Some(quote @ ('\'' | '"')) => self.text(quote),
            Some(digit) if digit.is_ascii_digit() => self.number(),
            Some(letter) if letter.is_ascii_alphabetic() || letter == '_' => self.name(),
            Some(other) => Err(self.error(format!("unexpected `{other}`"))),
        }
    }

    fn name(&mut self) -> Result<Node, ParseError> {
        let start = self.at;
        let word = self.take_word();
        match word {
            "true" => return Ok(Node::Literal(Value::Bool(true))),
            "false" => return Ok(Node::Literal(Value::Bool(false))),
            "null" => return Ok(Node::Literal(Value::Null)),
            "and" | "or" | "in" | "not" => {
                self.at = start;
                return Err(self.error(format!("unexpected `{word}`")));
            }
            _ => {}
        }
        if self.take("(") {
            let Some(function) = Function::named(word) else {
                self.at = start;
                return Err(self.error(format!("there is no function `{word}`")));
            };
            let arguments = self.arguments(")")?;
            if !function.arity().contains(&arguments.len()) {
                self.at = start;
                return Err(self.error(format!("`{word}` does not take {} arguments", arguments.len())));
            }
            return Ok(Node::Apply(function, arguments));
        }
        let mut segments = Vec::new();
        loop {
            if segments.len() > MAXIMUM_DEPTH {
                return Err(self.error(format!("more than {MAXIMUM_DEPTH} fields in a row")));
            }
            if self.rest().starts_with('.') {
                self.at += 1;
                let field = self.take_word();
                if field.is_empty() {
                    return Err(self.error("expected a field"));
                }
                segments.push(Segment::Field(field.to_owned()));
            } else if self.rest().starts_with('[') {
                self.at += 1;
                segments.push(Segment::Index(self.binary(0)?));
                self.expect("]")?;
            } else {
                return Ok(Node::Path { root: word.to_owned(), segments });
            }
        }
    }

    fn number(&mut self) -> Result<Node, ParseError> {
        let digits = self.take_while(|character| character.is_ascii_digit() || character == '.');
        let unit = self.take_while(|character| character.is_ascii_alphabetic());
        let number: f64 = digits.parse().map_err(|_| self.error(format!("`{digits}` is not a number")))?;
        if unit.is_empty() {
            // Whole numbers stay exact beyond 2^53.
            let exact = digits.parse::<i64>().map(Value::from);
            return Ok(Node::Literal(exact.unwrap_or_else(|_| Value::from(number))));
        }
        let factor = units::factor(unit).ok_or_else(|| self.error(format!("`{unit}` is not a unit")))?;
        Ok(Node::Literal(evaluate::number_value(number * factor)))
    }

    fn text(&mut self, quote: char) -> Result<Node, ParseError> {
        self.at += 1;
        let rest = self.rest();
        let Some(end) = rest.find(quote) else {
            return Err(self.error("the text has no end"));
        };
        self.at += end + 1;
        Ok(Node::Literal(Value::from(&rest[..end])))
    }

    fn arguments(&mut self, end: &str) -> Result<Vec<Node>, ParseError> {
        let mut arguments = Vec::new();
        if self.take(end) {
            return Ok(arguments);
        }
        loop {
            arguments.push(self.binary(0)?);
            if !self.take(",") {
                self.expect(end)?;
                return Ok(arguments);
            }
        }
    }

    fn peek_operator(&mut self) -> Option<(Operator, u8, usize)> {
        self.skip_space();
        let word = self.peek_word();
        let rest = self.rest();
        OPERATORS.iter().find_map(|(symbol, operator, strength)| {
            let is_word = symbol.as_bytes()[0].is_ascii_alphabetic();
            let found = if is_word { word == *symbol } else { rest.starts_with(symbol) };
            found.then(|| (*operator, *strength, self.at + symbol.len()))
        })
    }

    fn peek_word(&self) -> &'source str {
        let rest = self.rest();
        let end = rest.find(|character: char| !(character.is_ascii_alphanumeric() || character == '_'));
        &rest[..end.unwrap_or(rest.len())]
    }

    fn take_word(&mut self) -> &'source str {
        let word = self.peek_word();
        self.at += word.len();
        word
    }

    fn take_while(&mut self, belongs: impl Fn(char) -> bool) -> &'source str {
        let rest = self.rest();
        let end = rest.find(|character| !belongs(character)).unwrap_or(rest.len());
        self.at += end;
        &rest[..end]
    }

    fn take(&mut self, symbol: &str) -> bool {
        self.skip_space();
        let found = self.rest().starts_with(symbol);
        if found {
            self.at += symbol.len();
        }
        found
    }

    fn expect(&mut self, symbol: &str) -> Result<(), ParseError> {
        if self.take(symbol) { Ok(()) } else { Err(self.error(format!("expected `{symbol}`"))) }
    }

    fn skip_space(&mut self) {
        let rest = self.rest();
        self.at += rest.len() - rest.trim_start().len();
    }

    fn rest(&self) -> &'source str {
        &self.source[self.at..]
    }

    fn error(&self, message: impl Into<String>) -> ParseError {
        ParseError { at: self.at, message: message.into() }
    }
}
