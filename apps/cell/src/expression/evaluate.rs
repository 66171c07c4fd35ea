//! Evaluates expressions; missing values are null, invalid operations are errors.

use std::borrow::Cow;
use std::cmp::Ordering;

use serde_json::{Number, Value};

use super::{MAXIMUM_TEXT, Node, Operator, Segment};

/// Why an expression has no value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct EvaluationError(pub String);

/// Resolves names while an operation runs.
pub trait Names {
    /// The value of a root, or directly of its field if the root has no value of its own (`setting.x`).
    fn find(&self, root: &str, field: Option<&str>) -> Found<'_>;
    /// The next number of the seeded sequence.
    fn random(&self) -> u64;
}

/// The result of [`Names::find`].
pub enum Found<'names> {
    /// The root itself.
    Root(Cow<'names, Value>),
    /// The requested field.
    Field(Cow<'names, Value>),
}

pub(super) fn evaluate(node: &Node, names: &dyn Names) -> Result<Value, EvaluationError> {
    match node {
        Node::Literal(value) => Ok(value.clone()),
        Node::Path { root, segments } => path(root, segments, names),
        Node::List(nodes) => nodes.iter().map(|node| evaluate(node, names)).collect(),
        Node::Not(inner) => Ok(Value::Bool(!truthy(&evaluate(inner, names)?))),
        Node::Negate(inner) => Ok(number_value(-number(&evaluate(inner, names)?)?)),
        Node::Binary(operator, left, right) => binary(*operator, left, right, names),
        Node::Apply(function, arguments) => function.apply(arguments, names),
    }
}

fn path(root: &str, segments: &[Segment], names: &dyn Names) -> Result<Value, EvaluationError> {
    let mut keys = Vec::with_capacity(segments.len());
    for segment in segments {
        keys.push(match segment {
            Segment::Field(name) => Value::from(name.as_str()),
            Segment::Index(node) => evaluate(node, names)?,
        });
    }
    let (mut value, keys) = match names.find(root, keys.first().and_then(Value::as_str)) {
        Found::Root(value) => (value, &keys[..]),
        Found::Field(value) => (value, keys.get(1..).unwrap_or_default()),
    };
    for key in keys {
        value = match value {
            Cow::Borrowed(value) => Cow::Borrowed(child(value, key).unwrap_or(&Value::Null)),
            Cow::Owned(value) => Cow::Owned(child(&value, key).cloned().unwrap_or_default()),
        };
    }
    Ok(value.into_owned())
}

fn child<'value>(value: &'value Value, key: &Value) -> Option<&'value Value> {
    match key {
        Value::String(name) => value.get(name),
        Value::Number(number) if value.is_object() => value.get(number.to_string()),
        Value::Number(number) => value.get(usize::try_from(number.as_i64()?).ok()?),
        _ => None,
    }
}

fn binary(
    operator: Operator,
    left: &Node,
    right: &Node,
    names: &dyn Names,
) -> Result<Value, EvaluationError> {
    let left = evaluate(left, names)?;
    match operator {
        Operator::Or if truthy(&left) => return Ok(left),
        Operator::And if !truthy(&left) => return Ok(left),
        Operator::Or | Operator::And => return evaluate(right, names),
        _ => {}
    }
    let right = evaluate(right, names)?;
    let ordered = |wanted: fn(Ordering) -> bool| Value::Bool(order(&left, &right).is_some_and(wanted));
    Ok(match operator {
        Operator::Equal => Value::Bool(equal(&left, &right)),
        Operator::Unequal => Value::Bool(!equal(&left, &right)),
        Operator::Less => ordered(Ordering::is_lt),
        Operator::LessOrEqual => ordered(Ordering::is_le),
        Operator::Greater => ordered(Ordering::is_gt),
        Operator::GreaterOrEqual => ordered(Ordering::is_ge),
        Operator::In => Value::Bool(contains(&right, &left)),
        Operator::Add if left.is_string() || right.is_string() => {
            Value::from(join_text([display(&left), display(&right)])?)
        }
        _ => arithmetic(operator, &left, &right)?,
    })
}

fn arithmetic(operator: Operator, left: &Value, right: &Value) -> Result<Value, EvaluationError> {
    if let (Some(left), Some(right)) = (left.as_i64(), right.as_i64()) {
        let exact = match operator {
            Operator::Add => left.checked_add(right),
            Operator::Subtract => left.checked_sub(right),
            Operator::Multiply => left.checked_mul(right),
            Operator::Remainder => left.checked_rem(right),
            _ => None,
        };
        if let Some(exact) = exact {
            return Ok(Value::from(exact));
        }
    }
    let (left, right) = (number(left)?, number(right)?);
    let result = match operator {
        Operator::Add => left + right,
        Operator::Subtract => left - right,
        Operator::Multiply => left * right,
        Operator::Divide => left / right,
        _ => left % right,
    };
    if result.is_finite() {
        Ok(number_value(result))
    } else {
        Err(EvaluationError(format!("{left} and {right} have no such result")))
    }
}

/// Whether a value counts as true.
pub(crate) fn truthy(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(value) => *value,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::String(text) => !text.is_empty(),
        Value::Array(_) | Value::Object(_) => true,
    }
}

/// A number as JSON, an integer if it is one; null if it is not finite.
pub(crate) fn number_value(number: f64) -> Value {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    if number.fract() == 0.0 && number.abs() < EXACT {
        Value::from(number as i64)
    } else {
        Number::from_f64(number).map_or(Value::Null, Value::Number)
    }
}

/// A value inside a text: strings bare, null empty, the rest as JSON.
pub(crate) fn display(value: &Value) -> Cow<'_, str> {
    match value {
        Value::String(text) => Cow::Borrowed(text),
        Value::Null => Cow::Borrowed(""),
        other => Cow::Owned(other.to_string()),
    }
}

pub(super) fn number(value: &Value) -> Result<f64, EvaluationError> {
    value.as_f64().ok_or_else(|| EvaluationError(format!("{} is not a number", shorten(value))))
}

/// Whether two values are the same; 1 and 1.0 are.
pub(crate) fn equal(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Number(left), Value::Number(right)) => left == right || left.as_f64() == right.as_f64(),
        _ => left == right,
    }
}

pub(super) fn order(left: &Value, right: &Value) -> Option<Ordering> {
    match (left, right) {
        (Value::Number(left), Value::Number(right)) => left.as_f64()?.partial_cmp(&right.as_f64()?),
        (Value::String(left), Value::String(right)) => Some(left.cmp(right)),
        _ => None,
    }
}

pub(super) fn contains(whole: &Value, part: &Value) -> bool {
    match whole {
        Value::Array(elements) => elements.iter().any(|element| equal(element, part)),
        Value::String(text) => text.contains(&*display(part)),
        Value::Object(map) => map.contains_key(&*display(part)),
        _ => false,
    }
}

pub(super) fn join_text<'text>(
    parts: impl IntoIterator<Item = Cow<'text, str>>,
) -> Result<String, EvaluationError> {
    let mut joined = String::new();
    for part in parts {
        if joined.len() + part.len() > MAXIMUM_TEXT {
            return Err(EvaluationError(format!("a text has more than {MAXIMUM_TEXT} bytes")));
        }
        joined.push_str(&part);
    }
    Ok(joined)
}

pub(super) fn shorten(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(60) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text,
    }
}
