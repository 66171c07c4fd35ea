//! The expression language of specs: small, total, bounded.
//!
//! Parsing happens once, at load. Evaluation never loops, never panics and never builds more than
//! [`MAXIMUM_TEXT`] bytes of text, whatever the spec and the request say.

mod evaluate;
mod function;
mod parse;

use serde::Deserialize;
use serde_json::Value;

pub use evaluate::{EvaluationError, Found, Names};
pub(crate) use evaluate::{display, equal, number_value, truthy};
pub(crate) use function::{fraction, hash_text};
pub use parse::ParseError;

use function::Function;

/// Longest source of one expression.
pub(crate) const MAXIMUM_SOURCE: usize = 4096;
/// Deepest nesting inside one expression.
pub(crate) const MAXIMUM_DEPTH: usize = 32;
/// Longest text an expression may produce.
pub(crate) const MAXIMUM_TEXT: usize = 1 << 20;

/// A parsed expression.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(try_from = "Value")]
pub struct Expression(Node);

#[derive(Debug, Clone, PartialEq)]
enum Node {
    Literal(Value),
    Path { root: String, segments: Vec<Segment> },
    List(Vec<Self>),
    Not(Box<Self>),
    Negate(Box<Self>),
    Binary(Operator, Box<Self>, Box<Self>),
    Apply(Function, Vec<Self>),
}

#[derive(Debug, Clone, PartialEq)]
enum Segment {
    Field(String),
    Index(Node),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operator {
    Or,
    And,
    Equal,
    Unequal,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    In,
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
}

impl Expression {
    /// Parses an expression; braces around the whole of it are allowed.
    pub fn parse(source: &str) -> Result<Self, ParseError> {
        let trimmed = source.trim();
        let inner = trimmed.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')).unwrap_or(trimmed);
        parse::parse(inner).map(Self)
    }

    /// Computes its value.
    pub fn evaluate(&self, names: &dyn Names) -> Result<Value, EvaluationError> {
        evaluate::evaluate(&self.0, names)
    }

    /// Calls `visit` with every name it reads: the root, and the first field if that is fixed.
    pub fn visit_names(&self, visit: &mut dyn FnMut(&str, Option<&str>)) {
        visit_names(&self.0, visit);
    }

    /// The value, if it is constant.
    pub(crate) fn literal(&self) -> Option<&Value> {
        match &self.0 {
            Node::Literal(value) => Some(value),
            _ => None,
        }
    }
}

impl TryFrom<Value> for Expression {
    type Error = String;

    fn try_from(value: Value) -> Result<Self, String> {
        match value {
            Value::String(source) => Self::parse(&source).map_err(|error| format!("`{source}`: {error}")),
            Value::Array(_) | Value::Object(_) => {
                Err("an expression is a text, a number or a boolean".to_owned())
            }
            literal => Ok(Self(Node::Literal(literal))),
        }
    }
}

fn visit_names(node: &Node, visit: &mut dyn FnMut(&str, Option<&str>)) {
    match node {
        Node::Literal(_) => {}
        Node::Path { root, segments } => {
            let first = segments.first().and_then(|segment| match segment {
                Segment::Field(name) => Some(name.as_str()),
                Segment::Index(Node::Literal(Value::String(name))) => Some(name.as_str()),
                Segment::Index(_) => None,
            });
            visit(root, first);
            for segment in segments {
                if let Segment::Index(index) = segment {
                    visit_names(index, visit);
                }
            }
        }
        Node::List(nodes) | Node::Apply(_, nodes) => nodes.iter().for_each(|node| visit_names(node, visit)),
        Node::Not(inner) | Node::Negate(inner) => visit_names(inner, visit),
        Node::Binary(_, left, right) => {
            visit_names(left, visit);
            visit_names(right, visit);
        }
    }
}

#[cfg(test)]
mod tests;
