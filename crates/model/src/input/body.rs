//! A JSON value or text, and ways to make it smaller.

use serde_json::Value;

use super::{MAX_DEPTH, Stage};
use crate::application::StepBody;

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Body {
    Json(Value),
    Text(String),
}

impl Body {
    pub(super) fn json(text: &str) -> Result<Self, String> {
        // The parser has its own, larger limit, so this cannot overflow the stack.
        let json: Value = serde_json::from_str(text).map_err(|e| format!("it is not JSON: {e}"))?;
        if depth(&json) > MAX_DEPTH {
            return Err(format!("its JSON is deeper than {MAX_DEPTH}"));
        }
        Ok(Self::Json(json))
    }

    pub(super) fn from_step(body: &StepBody) -> Self {
        match body {
            StepBody::Text(text) => Self::Text(text.clone()),
            StepBody::Json(json) => Self::Json(json.clone()),
        }
    }

    pub(super) fn into_step(self) -> StepBody {
        match self {
            Self::Text(text) => StepBody::Text(text),
            Self::Json(json) => StepBody::Json(json),
        }
    }

    pub(super) fn depth(&self) -> usize {
        match self {
            Self::Json(json) => depth(json),
            Self::Text(_) => 0,
        }
    }

    pub(super) fn render(&self) -> String {
        match self {
            Self::Json(json) => json.to_string(),
            Self::Text(text) => text.clone(),
        }
    }

    /// The number of units of a stage in this body.
    pub(super) fn units(&self, stage: Stage) -> usize {
        let mut count = 0;
        // Keeping everything visits every unit once.
        let _ = self.keep(stage, &mut || {
            count += 1;
            true
        });
        count
    }

    /// Keeps only those units of a stage for which `keeps`, called once per unit in order, returns true.
    pub(super) fn keep(&self, stage: Stage, keeps: &mut dyn FnMut() -> bool) -> Self {
        match (self, stage) {
            (Self::Json(json), Stage::Depth(depth)) => {
                Self::Json(keep_depth(json, usize::from(depth), keeps))
            }
            (Self::Json(json), Stage::Values) => Self::Json(keep_values(json, keeps)),
            (Self::Json(json), Stage::Characters) => Self::Json(keep_characters(json, keeps)),
            (Self::Text(text), Stage::Lines) => {
                Self::Text(text.split_inclusive('\n').filter(|_| keeps()).collect())
            }
            (Self::Text(text), Stage::Words) => {
                Self::Text(words(text).into_iter().filter(|_| keeps()).collect())
            }
            (Self::Text(text), Stage::Characters) => Self::Text(text.chars().filter(|_| keeps()).collect()),
            _ => self.clone(),
        }
    }
}

/// The depth of a value: 0 without members.
pub(super) fn depth(json: &Value) -> usize {
    match json {
        Value::Array(items) => items.iter().map(depth).max().map_or(0, |deepest| deepest + 1),
        Value::Object(map) => map.values().map(depth).max().map_or(0, |deepest| deepest + 1),
        _ => 0,
    }
}

/// Removes members and elements at one depth; those of the value itself have depth 1.
fn keep_depth(json: &Value, depth: usize, keeps: &mut dyn FnMut() -> bool) -> Value {
    match json {
        Value::Array(items) if depth == 1 => items.iter().filter(|_| keeps()).cloned().collect(),
        Value::Array(items) => items.iter().map(|item| keep_depth(item, depth - 1, keeps)).collect(),
        Value::Object(map) if depth == 1 => {
            map.iter().filter(|_| keeps()).map(|(key, value)| (key.clone(), value.clone())).collect()
        }
        Value::Object(map) => {
            map.iter().map(|(key, value)| (key.clone(), keep_depth(value, depth - 1, keeps))).collect()
        }
        other => other.clone(),
    }
}

/// Replaces values that are not kept by simple ones; values that are simple already are no units.
fn keep_values(json: &Value, keeps: &mut dyn FnMut() -> bool) -> Value {
    match json {
        Value::Array(items) => items.iter().map(|item| keep_values(item, keeps)).collect(),
        Value::Object(map) => {
            map.iter().map(|(key, value)| (key.clone(), keep_values(value, keeps))).collect()
        }
        Value::String(text) if !text.is_empty() && !keeps() => Value::String(String::new()),
        Value::Number(number) if number.as_f64() != Some(0.0) && !keeps() => Value::from(0),
        Value::Bool(true) if !keeps() => Value::Bool(false),
        other => other.clone(),
    }
}

fn keep_characters(json: &Value, keeps: &mut dyn FnMut() -> bool) -> Value {
    match json {
        Value::Array(items) => items.iter().map(|item| keep_characters(item, keeps)).collect(),
        Value::Object(map) => {
            map.iter().map(|(key, value)| (key.clone(), keep_characters(value, keeps))).collect()
        }
        Value::String(text) => Value::String(text.chars().filter(|_| keeps()).collect()),
        other => other.clone(),
    }
}

/// Splits into words, each with the white space after it; leading white space is a word of its own.
fn words(text: &str) -> Vec<&str> {
    let mut words = Vec::new();
    let mut start = 0;
    let mut in_space = false;
    for (at, c) in text.char_indices() {
        if in_space && !c.is_whitespace() {
            words.push(&text[start..at]);
            start = at;
        }
        in_space = c.is_whitespace();
    }
    if start < text.len() {
        words.push(&text[start..]);
    }
    words
}
