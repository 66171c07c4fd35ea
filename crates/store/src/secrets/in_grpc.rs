//! Secret fields of gRPC bodies. What is stored is still a body of gRPC: lengths are those of what replaces a secret.
//!
//! Fields are found by their names where the messages are known. Where they are not, a text is searched like any other:
//! for JSON with secret fields, for addresses with credentials, for values that were secret elsewhere.

use faultscope_model::Span;
use faultscope_model::grpc::{BodySide, Descriptors, Hide, redact_body};

use faultscope_model::secrets::{SecretNames, Suspicion};

use super::in_spans::{OnSecret, uncompressed};
use super::values::SecretValues;

/// A body without the secrets that are found by name; none if it has none.
pub(super) fn redact(
    span: &Span,
    side: BodySide,
    descriptors: &Descriptors,
    rules: &SecretNames,
    found: OnSecret<'_>,
) -> Option<Vec<u8>> {
    redact_body(span, side, descriptors, &mut ByName { rules, found })
}

/// A body without values that occurred in a secret place; none if it has none.
pub(super) fn sweep(
    span: &Span,
    side: BodySide,
    descriptors: &Descriptors,
    known: &mut SecretValues,
) -> Option<Vec<u8>> {
    redact_body(span, side, descriptors, &mut ByValue { known })
}

/// Replaces a body; returns the former one.
pub(super) fn replace_body(span: &mut Span, side: BodySide, body: Vec<u8>) -> Vec<u8> {
    let Some(payload) = span.payload.as_deref_mut() else { return Vec::new() };
    // It was decoded from what is replaced.
    payload.decoded = None;
    let place = match side {
        BodySide::Request => &mut payload.request_body,
        BodySide::Response => &mut payload.response_body,
    };
    std::mem::replace(place, body)
}

struct ByName<'r, 'f> {
    rules: &'r SecretNames,
    found: OnSecret<'f>,
}

impl Hide for ByName<'_, '_> {
    fn is_secret(&mut self, path: &[String]) -> bool {
        // What depends on the value is found in the text of the field.
        let is_certain = |name: &String| {
            matches!(self.rules.field_suspicion(name), Suspicion::Certain | Suspicion::UnlessNumber)
        };
        path.last().is_some_and(is_certain) || self.rules.has_paths() && self.rules.is_path(path)
    }

    fn on_secret(&mut self, value: &[u8]) {
        (self.found)(value);
    }

    fn replace_text(&mut self, text: &[u8]) -> Option<Vec<u8>> {
        uncompressed(self.rules, text, &mut *self.found)
    }
}

struct ByValue<'k> {
    known: &'k mut SecretValues,
}

impl Hide for ByValue<'_> {
    fn is_secret(&mut self, _path: &[String]) -> bool {
        false
    }

    fn on_secret(&mut self, value: &[u8]) {
        self.known.add(value);
    }

    fn replace_text(&mut self, text: &[u8]) -> Option<Vec<u8>> {
        self.known.replace(text)
    }
}

#[cfg(test)]
mod tests {
    use faultscope_model::SecretRules;
    use faultscope_model::grpc::{ProtoSource, decode_frames, frame_message};
    use faultscope_model::span::Payload;
    use serde_json::{Value, json};

    use super::super::Redactor;
    use super::*;

    const FILE: &str = "syntax = \"proto3\"; package shop;
        message Login { string user = 1; string password = 2; Card card = 3; string url = 4; repeated string notes = 5; }
        message Card { string number = 1; int32 cvv = 2; string holder = 3 [debug_redact = true]; }
        service Users { rpc Login(Login) returns (Login); }";

    fn descriptors() -> Descriptors {
        let open = |name: &str| {
            Ok((name == "a.proto").then(|| ProtoSource { place: name.into(), text: FILE.into() }))
        };
        Descriptors::from_sources(&["a.proto".to_owned()], &open).unwrap()
    }

    fn login() -> Value {
        json!({
            "user": "ann", "password": "QQQQ-1234", "card": { "number": "QQQQ-5678", "cvv": 777, "holder": "QQQQ" },
            "url": "https://u:QQQQ@host/?token=QQQQ&x=1", "notes": ["used QQQQ-1234 twice", "{\"secret\": \"QQQQ\"}"],
        })
    }

    fn call(body: Vec<u8>) -> Span {
        let mut span: Span = serde_json::from_value(json!({
            "trace": "1", "id": "1", "caller": "web-1", "callee": "users", "port": 80, "wire": "http2",
            "method": "POST", "path": "/shop.Users/Login", "start_us": 0, "duration_us": 1, "request_bytes": 0,
            "response_bytes": 0, "status": 200, "grpc_status": 0,
        }))
        .unwrap();
        span.payload = Some(Box::new(Payload { request_body: body, ..Payload::default() }));
        span
    }

    #[test]
    fn fields_are_hidden_by_name_and_values_wherever_they_are() {
        let known = descriptors();
        let message = known.message("shop.Login").unwrap();
        let original = call(frame_message(&message.encode_from_json(&login()).unwrap()));
        let rules = SecretRules { fields: vec!["$.card.number".into()], ..SecretRules::default() };
        let redactor = Redactor::new(&rules);
        redactor.describe_messages(known.clone());
        let mut span = original.clone();
        let originals = redactor.redact_calls(&mut [&mut span]).remove(0);
        let body = &span.payload.as_ref().unwrap().request_body;
        let shown = decode_frames(body, None, Some(&message)).unwrap();
        assert_eq!(
            shown.to_json(),
            json!({
                "user": "ann", "password": "[redacted]",
                "card": { "number": "[redacted]", "cvv": 0, "holder": "[redacted]" },
                "url": "https://[redacted]@host/?token=[redacted]&x=1",
                "notes": ["used [redacted] twice", "{\"secret\": \"[redacted]\"}"],
            })
        );
        super::super::restore(&mut span, originals);
        assert_eq!(span, original);
    }

    #[test]
    fn without_descriptors_only_texts_are_searched() {
        let message = descriptors().message("shop.Login").unwrap();
        let mut span = call(frame_message(&message.encode_from_json(&login()).unwrap()));
        Redactor::default().redact_calls(&mut [&mut span]);
        let body = &span.payload.as_ref().unwrap().request_body;
        let shown = decode_frames(body, None, Some(&message)).unwrap().to_json();
        // Nothing says that field 2 is a password. The message can still be read.
        assert_eq!(shown["password"], "QQQQ-1234");
        assert_eq!(shown["notes"][1], "{\"secret\": \"[redacted]\"}");
        assert_eq!(shown["url"], "https://[redacted]@host/?token=[redacted]&x=1");
    }
}
