//! The functions of the language.

use std::ops::RangeInclusive;

use serde_json::Value;

use super::evaluate::{
    self, EvaluationError, Names, contains, display, evaluate, join_text, number, number_value, order, truthy,
};
use super::{MAXIMUM_TEXT, Node};
use crate::units;

macro_rules! functions {
    ($($name:literal => $variant:ident $arity:expr),* $(,)?) => {
        /// A function of the language.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(super) enum Function { $($variant),* }

        impl Function {
            pub(super) fn named(name: &str) -> Option<Self> {
                Some(match name { $($name => Self::$variant,)* _ => return None })
            }

            pub(super) fn arity(self) -> RangeInclusive<usize> {
                match self { $(Self::$variant => $arity),* }
            }
        }
    };
}

functions! {
    "if" => If 3..=3,
    "len" => Len 1..=1,
    "lower" => Lower 1..=1,
    "upper" => Upper 1..=1,
    "concat" => Concat 1..=32,
    "min" => Min 1..=32,
    "max" => Max 1..=32,
    "round" => Round 1..=1,
    "floor" => Floor 1..=1,
    "number" => Number 1..=1,
    "string" => String 1..=1,
    "exists" => Exists 1..=1,
    "default" => Default 2..=2,
    "hash" => Hash 1..=1,
    "starts_with" => StartsWith 2..=2,
    "contains" => Contains 2..=2,
    "sum" => Sum 1..=2,
    "list" => List 2..=2,
    "merge" => Merge 2..=2,
    "uuid" => Uuid 0..=0,
    "random" => Random 2..=2,
    "exponential" => Exponential 1..=1,
    "pick" => Pick 1..=1,
    "sample" => Sample 2..=2,
    "text" => Text 1..=1,
}

impl Function {
    pub(super) fn apply(self, arguments: &[Node], names: &dyn Names) -> Result<Value, EvaluationError> {
        if self == Self::If {
            let chosen = if truthy(&evaluate(&arguments[0], names)?) { &arguments[1] } else { &arguments[2] };
            return evaluate(chosen, names);
        }
        let mut values = Vec::with_capacity(arguments.len());
        for argument in arguments {
            values.push(evaluate(argument, names)?);
        }
        self.compute(values, names)
    }

    /// The arity was checked when the expression was parsed, so indexing is safe.
    fn compute(self, mut values: Vec<Value>, names: &dyn Names) -> Result<Value, EvaluationError> {
        Ok(match self {
            Self::If => Value::Null,
            Self::Len => Value::from(length(&values[0])),
            Self::Lower => Value::from(display(&values[0]).to_lowercase()),
            Self::Upper => Value::from(display(&values[0]).to_uppercase()),
            Self::Concat => Value::from(join_text(values.iter().map(display))?),
            Self::Min => extreme(values, std::cmp::Ordering::is_lt),
            Self::Max => extreme(values, std::cmp::Ordering::is_gt),
            Self::Round => number_value(number(&values[0])?.round()),
            Self::Floor => number_value(number(&values[0])?.floor()),
            Self::Number => to_number(&values[0]),
            Self::String => Value::from(display(&values[0])),
            Self::Exists => Value::Bool(!values[0].is_null()),
            Self::Default => {
                let chosen = usize::from(values[0].is_null());
                values.swap_remove(chosen)
            }
            Self::Hash => Value::from(hash_text(&display(&values[0])) >> 32),
            Self::StartsWith => Value::Bool(display(&values[0]).starts_with(&*display(&values[1]))),
            Self::Contains => Value::Bool(contains(&values[0], &values[1])),
            Self::Sum => sum(&values[0], values.get(1))?,
            Self::List => elements(&values[0])
                .iter()
                .map(|element| element.get(&*display(&values[1])).cloned().unwrap_or_default())
                .collect(),
            Self::Merge => merge(&values[0], &values[1]),
            Self::Uuid => Value::from(uuid(names.random(), names.random())),
            Self::Random => {
                let (low, high) = (number(&values[0])?, number(&values[1])?);
                let span = (high - low).max(0.0) + 1.0;
                number_value((low + (fraction(names.random()) * span).floor()).min(high.max(low)))
            }
            Self::Exponential => number_value(-(1.0 - fraction(names.random())).ln() * number(&values[0])?),
            Self::Sample => sample(elements(&values[0]).to_vec(), number(&values[1])?, names),
            Self::Pick => {
                let elements = elements(&values[0]);
                let at = (fraction(names.random()) * elements.len() as f64) as usize;
                elements.get(at).cloned().unwrap_or_default()
            }
            Self::Text => {
                let length = number(&values[0])?;
                if length > MAXIMUM_TEXT as f64 {
                    return Err(EvaluationError(format!("a text has more than {MAXIMUM_TEXT} bytes")));
                }
                Value::from("m".repeat(length.max(0.0) as usize))
            }
        })
    }
}

/// FNV-1a: the same in every process and release, unlike the standard library's hash.
pub(crate) fn hash_text(text: &str) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for byte in text.bytes() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    // The upper half of FNV is poor for short texts; one round of mixing spreads it.
    hash ^= hash >> 33;
    hash.wrapping_mul(0xff51_afd7_ed55_8ccd)
}

/// A random number as a fraction of one.
pub(crate) fn fraction(random: u64) -> f64 {
    (random >> 11) as f64 / (1_u64 << 53) as f64
}

fn uuid(high: u64, low: u64) -> String {
    let high = (high & 0xffff_ffff_ffff_0fff) | 0x4000;
    let low = (low & 0x3fff_ffff_ffff_ffff) | 0x8000_0000_0000_0000;
    format!(
        "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
        high >> 32,
        (high >> 16) & 0xffff,
        high & 0xffff,
        low >> 48,
        low & 0xffff_ffff_ffff
    )
}

fn length(value: &Value) -> usize {
    match value {
        Value::Array(elements) => elements.len(),
        Value::Object(map) => map.len(),
        Value::Null => 0,
        other => display(other).chars().count(),
    }
}

fn elements(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

/// Some elements in random order, each at most once.
fn sample(mut elements: Vec<Value>, wanted: f64, names: &dyn Names) -> Value {
    let wanted = elements.len().min(wanted.max(0.0) as usize);
    for at in 0..wanted {
        let left = elements.len() - at;
        elements.swap(at, at + (fraction(names.random()) * left as f64) as usize);
    }
    elements.truncate(wanted);
    Value::Array(elements)
}

/// One list stands for its elements, so `max(list(orders, 'price'))` works.
fn extreme(mut values: Vec<Value>, better: fn(std::cmp::Ordering) -> bool) -> Value {
    if let [Value::Array(elements)] = &mut values[..] {
        values = std::mem::take(elements);
    }
    let mut best = Value::Null;
    for value in values {
        if best.is_null() || order(&value, &best).is_some_and(better) {
            best = value;
        }
    }
    best
}

fn to_number(value: &Value) -> Value {
    match value {
        Value::Number(_) => value.clone(),
        Value::Bool(value) => Value::from(u8::from(*value)),
        Value::String(text) => match text.trim().parse::<i64>() {
            Ok(whole) => Value::from(whole),
            Err(_) => {
                let number = text.trim().parse().ok().or_else(|| units::amount(text.trim()));
                number.map_or(Value::Null, number_value)
            }
        },
        _ => Value::Null,
    }
}

fn sum(list: &Value, field: Option<&Value>) -> Result<Value, EvaluationError> {
    let mut total = 0.0;
    for element in elements(list) {
        let summand = match field {
            Some(field) => element.get(&*display(field)).unwrap_or(&Value::Null),
            None => element,
        };
        total += evaluate::number(summand)?;
    }
    Ok(number_value(total))
}

fn merge(left: &Value, right: &Value) -> Value {
    let mut merged = left.as_object().cloned().unwrap_or_default();
    if let Value::Object(right) = right {
        merged.extend(right.clone());
    }
    Value::Object(merged)
}
