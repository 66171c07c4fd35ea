//! Steps that call gRPC, held against the descriptors of `protos`.

use super::read::{SpecError, nearest_hint};
use super::{Application, GrpcCall, Step, StepBody, TestBody};
use crate::grpc::{Method, UnknownField};

impl Application {
    /// Refuses gRPC steps that do not fit the descriptors. What these do not know may still be known to the service
    /// itself, which is asked when the test runs.
    pub fn check_grpc_steps(&self) -> Result<(), SpecError> {
        for test in self.tests.iter().chain(&self.invariants) {
            let TestBody::Steps(steps) = &test.body else { continue };
            for step in steps {
                let Some(GrpcCall { method, place }) = &step.grpc else { continue };
                let Some(service) = method.rsplit_once('/').map(|(service, _)| service) else { continue };
                if !self.descriptors.has_service(service) {
                    continue;
                }
                let Some(known) = self.descriptors.method(method) else {
                    let names = self.descriptors.method_names();
                    let of_service =
                        names.iter().map(String::as_str).filter(|name| name.starts_with(service));
                    let hint = nearest_hint(method, of_service);
                    let problem = format!("`protos` has no method `{method}`");
                    return Err(SpecError { hint, ..place.error(problem) });
                };
                // Only with its values is it known what a request is.
                if step.placeholders().is_empty() {
                    let encoded = encode_messages(&known, step.body.as_ref(), |json| json.clone());
                    encoded.map_err(|problem| place.error(problem))?;
                }
                let unknown = step.answer_paths().find_map(|path| find_unknown_field(&known, path));
                if let Some(UnknownField { holder, part, known }) = unknown {
                    let hint = nearest_hint(&part, known.iter().map(String::as_str));
                    let problem = format!("no answer of `{method}` has this: `{holder}` has no `{part}`");
                    return Err(SpecError { hint, ..place.error(problem) });
                }
            }
        }
        Ok(())
    }
}

/// The part of a path that no answer of a method has. That of a stream begins with the number of a message.
fn find_unknown_field(method: &Method, path: &str) -> Option<UnknownField> {
    let path = if method.server_streaming { path.split_once('.')?.1 } else { path };
    method.output.find_unknown_field(path)
}

/// The messages that a gRPC step sends: one, or as many as a list has if the method takes a stream.
pub fn encode_messages(
    method: &Method,
    body: Option<&StepBody>,
    fill: impl Fn(&serde_json::Value) -> serde_json::Value,
) -> Result<Vec<Vec<u8>>, String> {
    let json = match body {
        Some(StepBody::Json(json)) => fill(json),
        Some(StepBody::Text(_)) => return Err("a gRPC call has `json` and no `body`".to_owned()),
        None => serde_json::json!({}),
    };
    let messages = match json {
        serde_json::Value::Array(list) if method.client_streaming => list,
        one => vec![one],
    };
    let encode =
        |message: &serde_json::Value| method.input.encode_from_json(message).map_err(|e| e.to_string());
    messages.iter().map(encode).collect()
}

impl Step {
    /// The dotted paths into its answer.
    fn answer_paths(&self) -> impl Iterator<Item = &str> {
        let refused = self.expect.not.iter().flat_map(|not| not.json.keys());
        let paths =
            self.expect.json.keys().chain(&self.expect.absent).chain(refused).chain(self.save.values());
        paths.map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grpc::{Descriptors, ProtoSource};

    const PROTO: &str = "syntax = \"proto3\"; package shop;
message Id { string id = 1; }
message Item { string sku = 1; }
message Cart { repeated Item items = 1; }
service Carts { rpc Get(Id) returns (Cart); rpc Watch(Id) returns (stream Item); }";

    fn checked(step: &str) -> String {
        let file = format!(
            "services: {{ carts: {{ command: [carts], ports: [50051] }} }}\ntests:\n  - name: t\n    steps:\n      - {step}\n"
        );
        let mut application = Application::read_alone(&file, "f").unwrap();
        let open = |_: &str| Ok(Some(ProtoSource { place: "a.proto".into(), text: PROTO.into() }));
        application.descriptors = Descriptors::from_sources(&["a.proto".to_owned()], &open).unwrap();
        match application.check_grpc_steps() {
            Ok(()) => String::new(),
            Err(error) => format!("{error} {}", error.hint.clone().unwrap_or_default()),
        }
    }

    #[test]
    fn what_no_answer_has_is_refused() {
        let get = |rest: &str| checked(&format!("{{ grpc: carts:50051/shop.Carts/Get, {rest} }}"));
        assert_eq!(
            get("expect: { json: { items.0.sku: a }, absent: [items.1] }, save: { x: items.0.sku }"),
            ""
        );
        for rest in [
            "expect: { absent: [itmes.0] }",
            "expect: { json: { itmes.0.sku: a } }",
            "expect: { not: { json: { itmes.0.sku: a } } }",
            "save: { x: itmes }",
        ] {
            let error = get(rest);
            assert!(
                error.ends_with(
                    "no answer of `shop.Carts/Get` has this: `shop.Cart` has no `itmes` did you mean `items`?"
                ),
                "{error}"
            );
        }
        let watch = |path: &str| {
            checked(&format!("{{ grpc: carts:50051/shop.Carts/Watch, expect: {{ json: {{ {path}: a }} }} }}"))
        };
        assert_eq!(watch("0.sku"), "");
        assert!(watch("0.price").contains("`shop.Item` has no `price`"));
    }
}
