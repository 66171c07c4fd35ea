//! M5 to M8, M10 and M12: changes of the application file. Everything else in it stays: comments, order, quotes.

mod values;
mod yaml;

use crate::edit::Edit;
use crate::mutant::{Draft, Scope};
use crate::operator::Operator;
use crate::source::Source;
use values::{edit_value, invert_flag, is_patience, shorten};
use yaml::{Scalar, Value, read_document};

/// The limits that a service gets which has none: about what an idle interpreter needs, and a twentieth of a core.
const ADDED_MEMORY: &str = "32MiB";
const ADDED_CPU: &str = "0.05";

/// Limits are reduced to a tenth, as in Table 3.5 (`50M` to `5M`, `0.25` to `0.025`).
const REDUCTION: f64 = 10.0;

/// The drafts of an application file.
pub(crate) fn drafts(source: &Source<'_>) -> Vec<Draft> {
    let root = read_document(source);
    let mut found = Found::default();
    let services = root.get("services").map(Value::entries).unwrap_or_default();
    for (name, service) in services {
        found.change_service(name, service);
    }
    for end in ["simplest", "failing"] {
        if let Some(circumstance) = root.get(end) {
            found.change_circumstance(end, circumstance);
        }
    }
    for (name, _) in services {
        for (operator, key, value) in
            [(Operator::LessMemory, "memory", ADDED_MEMORY), (Operator::LessCpu, "cpu", ADDED_CPU)]
        {
            let path = ["simplest", "config", name.as_str(), key];
            if root.find(&path).is_none()
                && let Some(edit) = yaml::insert_key(source, &root, &path, value)
            {
                let at = edit.range.start.min(source.text.len());
                found.push(operator, Some("added"), name, path.join("."), at, edit);
            }
        }
    }
    found.drafts
}

#[derive(Default)]
struct Found {
    drafts: Vec<Draft>,
}

impl Found {
    fn push(
        &mut self,
        operator: Operator,
        variant: Option<&'static str>,
        service: &str,
        within: String,
        at: usize,
        edit: Edit,
    ) {
        self.drafts.push(Draft {
            operator,
            variant,
            at,
            anchor: within.clone(),
            within,
            service: Some(service.to_owned()),
            scope: Scope::Responding,
            edits: vec![edit],
        });
    }

    fn replace(&mut self, operator: Operator, service: &str, within: &str, scalar: &Scalar, text: String) {
        if text != scalar.text {
            let edit = Edit::replace(scalar.inner.clone(), text);
            self.push(operator, None, service, within.to_owned(), scalar.inner.start, edit);
        }
    }

    fn change_service(&mut self, name: &str, service: &Value) {
        let path = format!("services.{name}");
        for (variable, value) in service.get("env").map(Value::entries).unwrap_or_default() {
            self.change_variable(name, &format!("{path}.env.{variable}"), variable, value);
        }
        for keys in [&["stop_within"][..], &["ready", "within"]] {
            if let Some(Value::Scalar(scalar)) = service.find(keys) {
                let within = format!("{path}.{}", keys.join("."));
                self.replace(Operator::RestartOrTimeout, name, &within, scalar, shorten(&scalar.text));
            }
        }
        if let Some(Value::Scalar(scalar)) = service.get("reset") {
            let other = if scalar.text == "keep" { "restart" } else { "keep" };
            self.replace(Operator::RestartOrTimeout, name, &format!("{path}.reset"), scalar, other.into());
        }
    }

    fn change_variable(&mut self, service: &str, within: &str, variable: &str, value: &Value) {
        // What a placeholder stands for is not in the file.
        let Value::Scalar(scalar) = value else { return };
        if scalar.text.contains("${") {
            return;
        }
        match invert_flag(&scalar.text) {
            Some(inverted) => self.replace(Operator::Flag, service, within, scalar, inverted),
            None => self.replace(Operator::Environment, service, within, scalar, edit_value(&scalar.text)),
        }
        if is_patience(variable) {
            self.replace(Operator::RestartOrTimeout, service, within, scalar, shorten(&scalar.text));
        }
    }

    fn change_circumstance(&mut self, end: &str, circumstance: &Value) {
        for (service, value) in circumstance.get("instances").map(Value::entries).unwrap_or_default() {
            if let Value::Scalar(scalar) = value
                && scalar.text.parse::<u32>().is_ok_and(|count| count > 1)
            {
                let within = format!("{end}.instances.{service}");
                self.replace(Operator::FewerReplicas, service, &within, scalar, "1".into());
            }
        }
        for (service, settings) in circumstance.get("config").map(Value::entries).unwrap_or_default() {
            for (key, value) in settings.entries() {
                let within = format!("{end}.config.{service}.{key}");
                let Value::Scalar(scalar) = value else { continue };
                match key.as_str() {
                    "memory" => self.reduce(Operator::LessMemory, service, &within, scalar),
                    "cpu" => self.reduce(Operator::LessCpu, service, &within, scalar),
                    _ => {
                        if let Some(variable) = key.strip_prefix("env.") {
                            self.change_variable(service, &within, variable, value);
                        }
                    }
                }
            }
        }
    }

    fn reduce(&mut self, operator: Operator, service: &str, within: &str, scalar: &Scalar) {
        let digits = scalar.text.trim_end_matches(|c: char| !c.is_ascii_digit()).len();
        let (number, unit) = scalar.text.split_at(digits);
        if let Ok(number) = number.parse::<f64>() {
            // Thousandths are enough for what people write, and keep 0.1 from becoming 0.010000000000000002.
            let reduced = (number / REDUCTION * 1000.0).round() / 1000.0;
            if reduced > 0.0 {
                self.replace(operator, service, within, scalar, format!("{reduced}{unit}"));
            }
        }
    }
}
