//! Configuration: defaults from the spec, overridden by the environment.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::Value;

use crate::CellError;
use crate::expression::{Found, Names, number_value};
use crate::units;

/// Settings by name.
pub(crate) type Settings = BTreeMap<String, Value>;

/// Names for limits that are computed before any request.
pub(crate) struct SettingNames<'settings>(pub(crate) &'settings Settings);

impl Names for SettingNames<'_> {
    fn find(&self, root: &str, field: Option<&str>) -> Found<'_> {
        match (root, field.and_then(|field| self.0.get(field))) {
            ("setting", Some(value)) => Found::Field(Cow::Borrowed(value)),
            _ => Found::Root(Cow::Owned(Value::Null)),
        }
    }

    fn random(&self) -> u64 {
        0
    }
}

/// The name of the environment variable for a setting or service.
pub(crate) fn variable_name(name: &str) -> String {
    name.to_uppercase().replace(['-', '.'], "_")
}

/// The settings with what the environment says.
pub(crate) fn read(
    defaults: &BTreeMap<String, Value>,
    environment: &BTreeMap<String, String>,
) -> Result<Settings, CellError> {
    let mut settings = Settings::new();
    for (name, default) in defaults {
        let default = match default {
            Value::String(text) => units::amount(text).map_or_else(|| default.clone(), number_value),
            other => other.clone(),
        };
        let variable = variable_name(name);
        let value = match environment.get(&variable) {
            Some(text) => like(&default, text).ok_or_else(|| CellError::Environment {
                variable,
                message: format!("`{text}` cannot stand for {default}"),
            })?,
            None => default,
        };
        settings.insert(name.clone(), value);
    }
    Ok(settings)
}

/// The instance's name: from Faultscope, else the host's.
pub(crate) fn instance(environment: &BTreeMap<String, String>) -> String {
    environment
        .get("FAULTSCOPE_INSTANCE")
        .or_else(|| environment.get("HOSTNAME"))
        .cloned()
        .unwrap_or_else(|| rustix::system::uname().nodename().to_string_lossy().into_owned())
}

/// The port from the environment.
pub(crate) fn port(environment: &BTreeMap<String, String>) -> Result<Option<u16>, CellError> {
    let Some(text) = environment.get("PORT") else {
        return Ok(None);
    };
    text.parse().map(Some).map_err(|_| CellError::Environment {
        variable: "PORT".to_owned(),
        message: format!("`{text}` is not a port"),
    })
}

/// A text read as the type of the default.
fn like(default: &Value, text: &str) -> Option<Value> {
    match default {
        Value::Bool(_) => match text.to_lowercase().as_str() {
            "true" | "1" | "yes" | "on" => Some(Value::Bool(true)),
            "false" | "0" | "no" | "off" | "" => Some(Value::Bool(false)),
            _ => None,
        },
        Value::Number(_) => {
            let number = text.parse().ok().or_else(|| units::amount(text))?;
            Some(number_value(number))
        }
        Value::String(_) => Some(Value::from(text)),
        Value::Null => Some(Value::from(text)),
        Value::Array(_) | Value::Object(_) => serde_json::from_str(text).ok(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::read;

    #[test]
    fn the_environment_overrides_by_type() {
        let defaults = BTreeMap::from([
            ("heap".to_owned(), json!("64MiB")),
            ("cache_ttl".to_owned(), json!(300)),
            ("recheck".to_owned(), json!(false)),
            ("kind".to_owned(), json!("fast")),
        ]);
        let environment = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
        };
        let settings = read(&defaults, &environment(&[])).unwrap();
        assert_eq!(
            json!(settings),
            json!({"heap": 67108864, "cache_ttl": 300, "recheck": false, "kind": "fast"})
        );
        let given = [("HEAP", "1KiB"), ("CACHE_TTL", "2s"), ("RECHECK", "on"), ("KIND", "7")];
        let settings = read(&defaults, &environment(&given)).unwrap();
        assert_eq!(json!(settings), json!({"heap": 1024, "cache_ttl": 2000, "recheck": true, "kind": "7"}));
        let error = read(&defaults, &environment(&[("RECHECK", "maybe")])).unwrap_err();
        assert_eq!(error.to_string(), "environment variable RECHECK: `maybe` cannot stand for false");
    }
}
