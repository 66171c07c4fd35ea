//! ConfigMaps and Secrets, and the environment that containers get from them.

use std::collections::BTreeMap;

use base64::Engine;

use super::objects::Object;
use crate::import::node::{Map, Node};

/// The longest value that references to other variables may make.
const MAX_VALUE: usize = 128 << 10;

/// The data of all ConfigMaps and Secrets, by kind, namespace and name.
#[derive(Debug, Default)]
pub(super) struct Configs {
    data: BTreeMap<(&'static str, String, String), Data>,
}

/// The data of one ConfigMap or Secret.
#[derive(Debug, Default)]
pub(super) struct Data {
    pub(super) texts: BTreeMap<String, String>,
    /// Keys whose values are no text.
    pub(super) binary: Vec<String>,
}

impl Configs {
    /// Keeps the data of the object if it has some.
    pub(super) fn add(&mut self, object: &Object) {
        let kind = match object.kind.as_str() {
            "ConfigMap" => "ConfigMap",
            "Secret" => "Secret",
            _ => return,
        };
        let mut data = Data::default();
        let entries = |key: &str| object.node.get(key).and_then(Node::as_map).into_iter().flat_map(Map::iter);
        let plain = if kind == "Secret" { "stringData" } else { "data" };
        let encoded = if kind == "Secret" { "data" } else { "binaryData" };
        for (key, value) in entries(encoded) {
            match value.as_text().and_then(decode) {
                Some(text) => {
                    data.texts.insert(key.clone(), text);
                }
                None => data.binary.push(key.clone()),
            }
        }
        for (key, value) in entries(plain) {
            data.texts.extend(value.as_text().map(|text| (key.clone(), text.to_owned())));
        }
        self.data.insert((kind, object.namespace.clone(), object.name.clone()), data);
    }

    /// The data of one ConfigMap or Secret.
    pub(super) fn get(&self, kind: &'static str, namespace: &str, name: &str) -> Option<&Data> {
        self.data.get(&(kind, namespace.to_owned(), name.to_owned()))
    }
}

/// The environment of a container, and the variables whose values are not in the files.
pub(super) fn read_environment(
    container: &Node,
    pod: &Object,
    service: &str,
    configs: &Configs,
) -> (BTreeMap<String, String>, Vec<String>) {
    let mut env = BTreeMap::new();
    let mut missing = Vec::new();
    for source in container.get("envFrom").and_then(Node::as_list).unwrap_or_default() {
        let prefix = source.get_text("prefix").unwrap_or_default();
        for (key, kind) in [("configMapRef", "ConfigMap"), ("secretRef", "Secret")] {
            let Some(reference) = source.get(key) else { continue };
            let name = reference.get_text("name").unwrap_or_default();
            match configs.get(kind, &pod.namespace, name) {
                Some(data) => {
                    env.extend(data.texts.iter().map(|(key, text)| (format!("{prefix}{key}"), text.clone())));
                }
                None if reference.get_text("optional") == Some("true") => {}
                None => missing.push(format!("all of {kind} {name}")),
            }
        }
    }
    for entry in container.get("env").and_then(Node::as_list).unwrap_or_default() {
        let Some(name) = entry.get_text("name") else { continue };
        match read_value(entry, pod, service, configs) {
            Value::Text(text) => {
                let text = expand(&text, &env);
                env.insert(name.to_owned(), text);
            }
            Value::Optional => {}
            Value::Missing => missing.push(name.to_owned()),
        }
    }
    (env, missing)
}

/// Replaces `$(NAME)` by variables of the container; `$$(NAME)` stays `$(NAME)`, and so does what is unknown.
pub(super) fn expand(text: &str, env: &BTreeMap<String, String>) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(dollar) = rest.find('$') {
        out.push_str(&rest[..dollar]);
        rest = &rest[dollar..];
        if let Some(after) = rest.strip_prefix("$$") {
            out.push('$');
            rest = after;
            continue;
        }
        let inner = rest.strip_prefix("$(").and_then(|inner| inner.split_once(')'));
        match inner.and_then(|(name, after)| Some((env.get(name)?, after))) {
            Some((value, after)) if out.len() + value.len() <= MAX_VALUE => {
                out.push_str(value);
                rest = after;
            }
            _ => {
                out.push('$');
                rest = &rest[1..];
            }
        }
    }
    out.push_str(rest);
    out
}

enum Value {
    Text(String),
    Optional,
    Missing,
}

fn read_value(entry: &Node, pod: &Object, service: &str, configs: &Configs) -> Value {
    if let Some(text) = entry.get_text("value") {
        return Value::Text(text.to_owned());
    }
    let Some(from) = entry.get("valueFrom") else {
        return Value::Text(String::new());
    };
    for (key, kind) in [("configMapKeyRef", "ConfigMap"), ("secretKeyRef", "Secret")] {
        let Some(reference) = from.get(key) else { continue };
        let (name, key) = (reference.get_text("name"), reference.get_text("key"));
        let data = name.and_then(|name| configs.get(kind, &pod.namespace, name));
        let value = data.zip(key).and_then(|(data, key)| data.texts.get(key));
        return match value {
            Some(value) => Value::Text(value.clone()),
            None if reference.get_text("optional") == Some("true") => Value::Optional,
            None => Value::Missing,
        };
    }
    match from.get("fieldRef").and_then(|field| read_field(field, pod, service)) {
        Some(text) => Value::Text(text),
        None => Value::Missing,
    }
}

/// What a field of a pod is here.
pub(super) fn read_field(field: &Node, pod: &Object, service: &str) -> Option<String> {
    match field.get_text("fieldPath")? {
        "metadata.name" => Some(format!("{service}-1")),
        "metadata.namespace" => Some(pod.namespace.clone()),
        "spec.nodeName" => Some("node-1".to_owned()),
        _ => None,
    }
}

fn decode(text: &str) -> Option<String> {
    let packed: String = text.split_whitespace().collect();
    let bytes = base64::engine::general_purpose::STANDARD.decode(packed).ok()?;
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_to_variables() {
        let env = BTreeMap::from([("A".to_owned(), "1".to_owned())]);
        for (text, expected) in
            [("$(A)-$(A)", "1-1"), ("$$(A)", "$(A)"), ("$(B)", "$(B)"), ("$(A", "$(A"), ("$A $", "$A $")]
        {
            assert_eq!(expand(text, &env), expected, "{text}");
        }
    }
}
