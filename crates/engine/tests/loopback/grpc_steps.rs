//! Tests whose steps are calls of gRPC. The service describes itself by reflection.

use bytes::Bytes;
use faultscope_engine::resilience::{self, ResilienceOptions};
use faultscope_model::CampaignKind;
use faultscope_model::grpc::{Descriptors, ProtoSource, frame_message, split_frames};
use faultscope_model::perturbation::Kind;
use faultscope_platform::loopback::{Call, Loopback, Reply};
use http::Response;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::bed::{Bed, close, defects};

const PROTO: &str = r#"
syntax = "proto3";
package shop;
message Item { string name = 1; int32 pieces = 2; }
message Left { int32 left = 1; }
message Basket { repeated Item items = 1; }
service Stock {
  rpc Take(Item) returns (Left);
  rpc List(Item) returns (stream Item);
  rpc Put(stream Item) returns (Left);
  rpc Look(Item) returns (Left) { option idempotency_level = NO_SIDE_EFFECTS; }
  rpc Hang(Item) returns (Left);
}
"#;

const SERVICES: &str = "name: shop
services:
  stock: { command: [stock], ports: [{ port: 50051, protocol: grpc }], ready: { grpc: true } }
";

fn descriptors() -> Descriptors {
    let open = |name: &str| {
        let source = ProtoSource { place: name.to_owned(), text: PROTO.to_owned() };
        Ok((name == "shop.proto").then_some(source))
    };
    Descriptors::from_sources(&["shop.proto".to_owned()], &open).unwrap()
}

fn bed(rest: &str) -> Bed {
    Bed::new(&format!("{SERVICES}{rest}"), Loopback::new().service("stock", stock))
}

fn answer(code: u16, message: &str, messages: &[Vec<u8>]) -> Reply {
    let body: Vec<u8> = messages.iter().flat_map(|message| frame_message(message)).collect();
    let answer = Response::builder()
        .header("content-type", "application/grpc")
        .header("grpc-status", code)
        .header("grpc-message", message)
        .header("x-kind", "blue")
        .body(Bytes::from(body));
    answer.unwrap().into()
}

async fn stock(call: Call) -> Reply {
    let path = call.path().to_owned();
    // Only the older version, as many servers have it.
    if path == "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo" {
        // Files in an answer are encoded as in a set; the length of the field has two bytes.
        let set = descriptors().to_descriptor_sets().remove(0);
        assert!((128..16384).contains(&set.len()));
        let length = [(set.len() & 0x7f) as u8 | 0x80, (set.len() >> 7) as u8];
        return answer(0, "", &[[&[0x22][..], &length, &set].concat()]);
    }
    let descriptors = descriptors();
    let Some(method) = descriptors.method(&path) else { return answer(12, "no such method", &[]) };
    let frames = split_frames(call.request.body(), None).unwrap().frames;
    let items: Vec<Value> =
        frames.iter().map(|frame| method.input.decode_with_defaults(&frame.message).unwrap()).collect();
    let output = |value: Value| method.output.encode_from_json(&value).unwrap();
    let pieces = |item: &Value| item["pieces"].as_i64().unwrap();
    let header =
        |name: &str| call.request.headers().get(name).map(|value| value.to_str().unwrap().to_owned());
    match method.name.as_str() {
        "Take" if items[0]["name"] == "plum" => answer(5, "no%20plums", &[]),
        "Take" => {
            let taken = call.instance.durable().add("taken", pieces(&items[0]));
            answer(0, "", &[output(json!({ "left": 10 - taken }))])
        }
        "Look" => {
            let looks = call.instance.durable().add("looks", 1);
            answer(0, "", &[output(json!({ "left": looks }))])
        }
        "List" => {
            let tenant = header("x-tenant").unwrap_or_default();
            let items = [("fig", 1), (tenant.as_str(), 0)];
            answer(0, "", &items.map(|(name, pieces)| output(json!({ "name": name, "pieces": pieces }))))
        }
        "Put" => answer(0, "", &[output(json!({ "left": items.iter().map(pieces).sum::<i64>() }))]),
        _ if header("grpc-timeout").as_deref() == Some("50m") => std::future::pending().await,
        _ => answer(3, "there is no deadline", &[]),
    }
}

#[tokio::test]
async fn steps_call_methods_and_look_at_answers() {
    let tested = bed(
        r#"tests:
  - name: takes and saves
    steps:
      - { grpc: "stock:50051/shop.Stock/Take", json: { name: fig, pieces: 3 }, expect: { json: { left: 7 } }, save: { left: left } }
      - { grpc: "stock:50051/shop.Stock/Take", json: { name: fig, pieces: "${left}" }, expect: { code: OK, json: { left: 0 }, absent: [error], metadata: { x-kind: blue } } }
  - name: streams
    steps:
      - { grpc: "stock:50051/shop.Stock/List", metadata: { x-tenant: kiwi }, expect: { json: { 0.name: fig, 1.name: kiwi, 1.pieces: 0 }, absent: ["2"] } }
      - { grpc: "stock:50051/shop.Stock/Put", json: [{ pieces: 2 }, { pieces: 3 }], expect: { json: { left: 5 } } }
  - name: is refused
    steps: [{ grpc: "stock:50051/shop.Stock/Take", json: { name: plum }, expect: { code: NOT_FOUND, message: "^no plums$" } }]
  - name: is not expected
    steps: [{ grpc: "stock:50051/shop.Stock/Take", json: { name: plum } }]
  - name: another value
    steps:
      - { grpc: "stock:50051/shop.Stock/List", save: { name: 0.name } }
      - { grpc: "stock:50051/shop.Stock/List", expect: { json: { 1.name: "${name}!" } } }
  - name: no such field
    steps: [{ grpc: "stock:50051/shop.Stock/Take", json: { nam: plum } }]
  - name: no such method
    steps: [{ grpc: "stock:50051/shop.Stock/Steal" }]
  - name: late
    steps: [{ grpc: "stock:50051/shop.Stock/Hang", within: 50ms, expect: { code: OK } }]
"#,
    )
    .test(&[])
    .await;
    assert_eq!(
        tested.results(),
        [
            ("takes and saves", ""),
            ("streams", ""),
            ("is refused", ""),
            ("is not expected", "grpc stock:50051/shop.Stock/Take: code NOT_FOUND: no plums"),
            ("another value", "grpc stock:50051/shop.Stock/List: 1.name: `` does not match `fig!`"),
            (
                "no such field",
                "grpc stock:50051/shop.Stock/Take: not a message of type `shop.Item`: unrecognized field name 'nam'"
            ),
            ("no such method", "grpc stock:50051/shop.Stock/Steal: stock has no method `shop.Stock/Steal`"),
            ("late", "grpc stock:50051/shop.Stock/Hang: code DEADLINE_EXCEEDED != OK: no answer within 50ms"),
        ]
    );
    assert_eq!(
        tested.signature(),
        "is not expected: step 1: grpc stock:50051/shop.Stock/Take: code NOT_FOUND: no plums"
    );
    let failure = |number: usize| tested.run.evidence.tests[number].failure.clone().unwrap();
    assert_eq!(failure(3).grpc_status, Some(5));
    let unfilled = "grpc stock:50051/shop.Stock/List: 1.name: `` does not match `${name}!`";
    assert_eq!(failure(4).unfilled.as_deref(), Some(unfilled));
    let calls = tested.calls();
    assert_eq!(calls.len(), 9, "neither health nor reflection are calls of a test: {calls:#?}");
    assert!(calls[0].starts_with("test-1 -> stock-1 POST /shop.Stock/Take 200"), "{calls:?}");
}

#[tokio::test]
async fn a_service_that_does_not_describe_itself() {
    let silent = |_: Call| async { answer(12, "unknown service", &[]) };
    let platform = Loopback::new().service("stock", silent);
    let test = "tests: [{ name: takes, steps: [{ grpc: \"stock:50051/shop.Stock/Take\" }] }]\n";
    let tested = Bed::new(&format!("{SERVICES}{test}"), platform).test(&[]).await;
    let wanted = "grpc stock:50051/shop.Stock/Take: the messages of `shop.Stock/Take` are unknown: name its .proto \
                  file under `protos`, or have stock serve gRPC reflection (it offers no reflection)";
    assert_eq!(tested.results(), [("takes", wanted)]);
}

#[tokio::test]
async fn what_only_reads_may_arrive_twice() {
    let tests = r#"tests:
  - name: looks and takes
    steps:
      - { grpc: "stock:50051/shop.Stock/Look", json: { name: fig } }
      - { grpc: "stock:50051/shop.Stock/Take", json: { name: fig, pieces: 1 }, expect: { json: { left: 9 } } }
      - { grpc: "stock:50051/shop.Stock/Look", json: { name: fig }, expect: { json: { left: 2 } } }
"#;
    let mut application = bed(tests).application();
    let options = ResilienceOptions { kinds: vec![Kind::Duplicate], ..ResilienceOptions::default() };
    application.descriptors = descriptors();
    let bed_with_protos = bed(tests);
    let session = bed_with_protos.open_for(application, CampaignKind::Resilience, None).await;
    let report = resilience::resilience(&session, &options, &CancellationToken::new()).await.unwrap();
    close(session).await;
    assert_eq!(defects(&report), ["duplicate stock POST /shop.Stock/Look"], "and Take was never repeated");
    let by_reflection = bed(tests).resilience(options).await;
    assert_eq!(defects(&by_reflection), defects(&report), "the service says it as well as a file");
}
