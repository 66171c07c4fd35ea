//! Values with holes: any JSON whose strings may contain `{expression}`.

use std::time::Duration;

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::expression::{EvaluationError, Expression, MAXIMUM_TEXT, Names, display, number_value};
use crate::units;

/// Longest duration a spec can ask for; `tokio` refuses to sleep much longer.
const MAXIMUM_MILLISECONDS: f64 = 1e12;

/// A JSON value with expressions in its strings.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(try_from = "Value")]
pub enum Template {
    /// Nothing to compute.
    Literal(Value),
    /// A string that is one whole `{expression}`: keeps the type.
    Whole(Expression),
    /// A string with expressions in it.
    Text(Vec<Part>),
    /// A list of templates.
    List(Vec<Self>),
    /// A map of templates.
    Map(Vec<(String, Self)>),
}

/// A piece of a text.
#[derive(Debug, Clone, PartialEq)]
pub enum Part {
    /// As written.
    Literal(String),
    /// The value of an expression, as text.
    Expression(Expression),
}

/// A template for a duration; numbers are milliseconds.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(try_from = "Value")]
pub struct Time(Template);

/// A template for a whole number: bytes, or how many.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(try_from = "Value")]
pub struct Size(Template);

impl Template {
    /// Computes the value.
    pub fn evaluate(&self, names: &dyn Names) -> Result<Value, EvaluationError> {
        Ok(match self {
            Self::Literal(value) => value.clone(),
            Self::Whole(expression) => expression.evaluate(names)?,
            Self::Text(parts) => Value::from(text(parts, names)?),
            Self::List(elements) => {
                elements.iter().map(|element| element.evaluate(names)).collect::<Result<_, _>>()?
            }
            Self::Map(entries) => {
                let mut map = Map::new();
                for (key, value) in entries {
                    map.insert(key.clone(), value.evaluate(names)?);
                }
                Value::Object(map)
            }
        })
    }

    /// Computes the value as text.
    pub fn evaluate_text(&self, names: &dyn Names) -> Result<String, EvaluationError> {
        Ok(display(&self.evaluate(names)?).into_owned())
    }

    /// Shows every name it reads to `visit`.
    pub fn visit_names(&self, visit: &mut dyn FnMut(&str, Option<&str>)) {
        match self {
            Self::Literal(_) => {}
            Self::Whole(expression) => expression.visit_names(visit),
            Self::Text(parts) => {
                for part in parts {
                    if let Part::Expression(expression) = part {
                        expression.visit_names(visit);
                    }
                }
            }
            Self::List(elements) => elements.iter().for_each(|element| element.visit_names(visit)),
            Self::Map(entries) => entries.iter().for_each(|(_, value)| value.visit_names(visit)),
        }
    }
}

impl TryFrom<Value> for Template {
    type Error = String;

    fn try_from(value: Value) -> Result<Self, String> {
        match value {
            Value::String(text) => parse_text(&text).map_err(|error| format!("`{text}`: {error}")),
            Value::Array(elements) => {
                let elements = elements.into_iter().map(Self::try_from).collect::<Result<Vec<_>, _>>()?;
                Ok(match elements.iter().map(literal).collect::<Option<Vec<_>>>() {
                    Some(values) => Self::Literal(Value::Array(values)),
                    None => Self::List(elements),
                })
            }
            Value::Object(map) => {
                let mut entries = Vec::with_capacity(map.len());
                for (key, value) in map {
                    entries.push((key, Self::try_from(value)?));
                }
                let values: Option<Map<_, _>> =
                    entries.iter().map(|(key, value)| Some((key.clone(), literal(value)?))).collect();
                Ok(values.map_or(Self::Map(entries), |map| Self::Literal(Value::Object(map))))
            }
            other => Ok(Self::Literal(other)),
        }
    }
}

impl Time {
    /// Computes the duration; a negative one is zero.
    pub fn evaluate(&self, names: &dyn Names) -> Result<Duration, EvaluationError> {
        let milliseconds = amount(&self.0.evaluate(names)?, "duration")?;
        Ok(Duration::from_secs_f64(milliseconds.clamp(0.0, MAXIMUM_MILLISECONDS) / 1000.0))
    }

    /// The template behind it.
    pub fn template(&self) -> &Template {
        &self.0
    }
}

impl Size {
    /// A size that is known.
    pub(crate) fn fixed(size: u64) -> Self {
        Self(Template::Literal(Value::from(size)))
    }

    /// Computes the number; a negative one is zero.
    pub fn evaluate(&self, names: &dyn Names) -> Result<usize, EvaluationError> {
        Ok(amount(&self.0.evaluate(names)?, "number")? as usize)
    }

    /// The template behind it.
    pub fn template(&self) -> &Template {
        &self.0
    }
}

impl TryFrom<Value> for Time {
    type Error = String;

    fn try_from(value: Value) -> Result<Self, String> {
        amount_template(value, "duration").map(Self)
    }
}

impl TryFrom<Value> for Size {
    type Error = String;

    fn try_from(value: Value) -> Result<Self, String> {
        amount_template(value, "number").map(Self)
    }
}

fn literal(template: &Template) -> Option<Value> {
    match template {
        Template::Literal(value) => Some(value.clone()),
        _ => None,
    }
}

fn amount(value: &Value, what: &str) -> Result<f64, EvaluationError> {
    let found = match value {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => units::amount(text.trim()).or_else(|| text.trim().parse().ok()),
        _ => None,
    };
    found
        .filter(|number| number.is_finite())
        .ok_or_else(|| EvaluationError(format!("{value} is not a {what}")))
}

fn amount_template(value: Value, what: &str) -> Result<Template, String> {
    match Template::try_from(value)? {
        Template::Literal(value) => {
            let number = amount(&value, what).map_err(|error| error.to_string())?;
            Ok(Template::Literal(number_value(number)))
        }
        template => Ok(template),
    }
}

fn text(parts: &[Part], names: &dyn Names) -> Result<String, EvaluationError> {
    let mut joined = String::new();
    for part in parts {
        match part {
            Part::Literal(text) => joined.push_str(text),
            Part::Expression(expression) => joined.push_str(&display(&expression.evaluate(names)?)),
        }
        if joined.len() > MAXIMUM_TEXT {
            return Err(EvaluationError(format!("a text has more than {MAXIMUM_TEXT} bytes")));
        }
    }
    Ok(joined)
}

fn parse_text(source: &str) -> Result<Template, String> {
    let mut parts = Vec::new();
    let mut plain = String::new();
    let mut rest = source;
    while let Some(at) = rest.find(['{', '}']) {
        plain.push_str(&rest[..at]);
        let brace = &rest[at..=at];
        let after = &rest[at + 1..];
        if let Some(doubled) = after.strip_prefix(brace) {
            plain.push_str(brace);
            rest = doubled;
            continue;
        }
        if brace == "}" {
            return Err("`}` without `{`; a literal brace is written twice".to_owned());
        }
        let end = closing(after).ok_or("`{` without `}`; a literal brace is written twice")?;
        let expression = Expression::parse(&after[..end]).map_err(|error| error.to_string())?;
        if !plain.is_empty() {
            parts.push(Part::Literal(std::mem::take(&mut plain)));
        }
        parts.push(Part::Expression(expression));
        rest = &after[end + 1..];
    }
    plain.push_str(rest);
    if parts.is_empty() {
        return Ok(Template::Literal(Value::from(plain)));
    }
    if let ([Part::Expression(expression)], true) = (&parts[..], plain.is_empty()) {
        return Ok(match expression.literal() {
            Some(value) => Template::Literal(value.clone()),
            None => Template::Whole(expression.clone()),
        });
    }
    if !plain.is_empty() {
        parts.push(Part::Literal(plain));
    }
    Ok(Template::Text(parts))
}

/// Where the brace that ends an expression is; braces inside its texts do not count.
fn closing(source: &str) -> Option<usize> {
    let mut quote = None;
    for (at, character) in source.char_indices() {
        match (quote, character) {
            (None, '}') => return Some(at),
            (None, '\'' | '"') => quote = Some(character),
            (Some(open), _) if open == character => quote = None,
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::{Size, Template, Time};
    use crate::expression::{Found, Names};

    struct Order(Value);

    impl Names for Order {
        fn find(&self, _root: &str, _field: Option<&str>) -> Found<'_> {
            Found::Root(Cow::Borrowed(&self.0))
        }

        fn random(&self) -> u64 {
            0
        }
    }

    fn check(template: Value, expected: Value) {
        let names = Order(json!({ "id": 7, "status": "paid" }));
        assert_eq!(Template::try_from(template).unwrap().evaluate(&names), Ok(expected));
    }

    #[test]
    fn a_whole_expression_keeps_its_type() {
        check(json!("{order.id}"), json!(7));
        check(json!("{order.id} "), json!("7 "));
        check(json!("o{order.id} is {order.status}"), json!("o7 is paid"));
        check(json!({ "a": ["{order}", 1] }), json!({ "a": [{ "id": 7, "status": "paid" }, 1] }));
        check(json!("{{literal}} {'}'}"), json!("{literal} }"));
        check(json!("{order.missing}"), json!(null));
    }

    #[test]
    fn amounts_are_checked_at_load_and_at_run() {
        let names = Order(json!("2s"));
        assert_eq!(Time::try_from(json!("5ms")).unwrap().evaluate(&names).unwrap().as_millis(), 5);
        assert_eq!(Time::try_from(json!("{order}")).unwrap().evaluate(&names).unwrap().as_secs(), 2);
        assert_eq!(Size::try_from(json!("4KiB")).unwrap().evaluate(&names).unwrap(), 4096);
        assert!(Time::try_from(json!("soon")).is_err());
        assert!(Time::try_from(json!({ "mean": 3 })).is_err());
        assert!(Time::try_from(json!("{order}")).unwrap().evaluate(&Order(json!("soon"))).is_err());
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_or_refused(source in "[{}'a.+ ]{0,60}|.{0,100}") {
            let _ = Template::try_from(Value::from(source)).map(|template| template.evaluate(&Order(json!(1))));
        }

        #[test]
        fn text_without_braces_stays(source in "[^{}]{0,100}") {
            prop_assert_eq!(Template::try_from(json!(source)), Ok(Template::Literal(json!(source))));
        }
    }
}
