use std::io::Write as _;
use std::sync::LazyLock;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::wire::{WireReader, WireValue, write_bytes, write_field, write_varint};
use super::*;
use crate::span::{Payload, Span};

const SHOP: &str = r#"
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
import "google/protobuf/any.proto";

enum State { UNKNOWN = 0; PAID = 1; }

message Item { string sku = 1; int32 pieces = 2; repeated sint64 offsets = 3; }

message Order {
  string id = 1;
  int64 cents = 2;
  State state = 3;
  repeated Item items = 4;
  map<string, string> labels = 5;
  google.protobuf.Timestamp at = 6;
  bytes blob = 7;
  double share = 8;
  oneof how { string card = 9; uint32 cash = 10; }
  string access_token = 11;
  string note = 12 [debug_redact = true];
  map<string, Item> parts = 13;
  google.protobuf.Any extra = 14;
  Credentials login_secret = 15;
  fixed64 pin = 16;
  optional int32 rank = 17;
}

message Credentials { string user = 1; }

service Orders {
  rpc Get(Order) returns (Order) { option idempotency_level = NO_SIDE_EFFECTS; }
  rpc Put(Order) returns (Order) { option idempotency_level = IDEMPOTENT; }
  rpc Watch(Order) returns (stream Item);
  rpc Chat(stream Order) returns (stream Item);
}
"#;

fn compile(text: &str) -> Result<Descriptors, DescriptorError> {
    let open = |name: &str| {
        let source = ProtoSource { place: format!("api/{name}"), text: text.to_owned() };
        Ok((name == "shop.proto").then_some(source))
    };
    Descriptors::from_sources(&["shop.proto".to_owned()], &open)
}

pub(super) fn shop() -> Descriptors {
    // Compiled once: properties ask for it many hundred times.
    static COMPILED: LazyLock<Descriptors> = LazyLock::new(|| compile(SHOP).unwrap());
    COMPILED.clone()
}

fn order() -> MessageType {
    shop().message("shop.Order").unwrap()
}

fn sample() -> Value {
    json!({
        "id": "a7", "cents": "9007199254740993", "state": "PAID",
        "items": [{ "sku": "x", "pieces": 2, "offsets": ["-1", "300"] }, { "sku": "y" }],
        "labels": { "a": "1", "b": "2" }, "at": "2026-01-02T03:04:05Z", "blob": "AAEC", "share": 0.5,
        "cash": 3, "parts": { "k": { "sku": "z" } }, "rank": 0,
    })
}

#[test]
fn methods_are_found_by_name() {
    let descriptors = shop();
    let method = descriptors.method("shop.Orders/Get").unwrap();
    assert_eq!((method.input.name(), method.output.name()), ("shop.Order", "shop.Order"));
    assert_eq!(method.path(), "/shop.Orders/Get");
    assert_eq!(method.idempotency, Idempotency::NoSideEffects);
    let of = |name: &str| {
        let method = descriptors.method(name).unwrap();
        (method.client_streaming, method.server_streaming, method.idempotency)
    };
    assert_eq!(of("/shop.Orders/Put"), (false, false, Idempotency::Idempotent));
    assert_eq!(of("shop.Orders/Watch"), (false, true, Idempotency::Unknown));
    assert_eq!(of("shop.Orders/Chat"), (true, true, Idempotency::Unknown));
    for unknown in ["", "/", "shop.Orders", "shop.Orders/get", "Orders/Get", "shop.Orders/Get/x"] {
        assert_eq!(descriptors.method(unknown), None, "{unknown}");
    }
    assert!(descriptors.has_service("shop.Orders") && !descriptors.has_service("shop.Order"));
}

#[test]
fn mistakes_have_a_place() {
    let error = compile("syntax = \"proto3\";\nmessage A { B b = 1; }\n").unwrap_err();
    assert_eq!(error.to_string(), "api/shop.proto:2:13: name 'B' is not defined");
    let error = compile("syntax = \"proto3\";\nimport \"gone.proto\";\n").unwrap_err();
    assert_eq!(error.to_string(), "api/shop.proto:2:1: import 'gone.proto' not found");
    // A file that imports itself must not be read forever.
    let error = compile("import \"shop.proto\";").unwrap_err();
    assert!(error.to_string().contains("cycle"), "{error}");
}

#[test]
fn sets_are_read_as_they_are_written() {
    let shop = shop();
    let sets = shop.to_descriptor_sets();
    let again = Descriptors::from_descriptor_set(&sets[0]).unwrap();
    assert_eq!(again, shop);
    let bytes = order().encode_from_json(&sample()).unwrap();
    assert_eq!(again.message("shop.Order").unwrap().decode_to_json(&bytes).unwrap(), sample());
    assert_eq!(Descriptors::from_bytes(&shop.to_bytes()).unwrap(), shop);
    // The source that was there first counts.
    let mut merged =
        compile("syntax = \"proto3\"; package shop; message Order { string other = 1; }").unwrap();
    merged.merge(again);
    assert_eq!(merged.message("shop.Order").unwrap().fields(), ["other"]);
    assert!(merged.method("shop.Orders/Get").is_some());
    assert_eq!(Descriptors::from_bytes(&merged.to_bytes()).unwrap(), merged);
    assert!(Descriptors::from_bytes(&[8, 2]).unwrap_err().to_string().contains("newer version"));
    for bad in [&b"text"[..], b"\x0a\x7f", b"\x0a\x03abc"] {
        assert!(Descriptors::from_descriptor_set(bad).is_err());
    }
}

#[test]
fn editions_are_read_as_proto3() {
    let mut file = Vec::new();
    write_bytes(1, b"a.proto", 0, &mut file);
    write_bytes(2, b"a", 0, &mut file);
    write_bytes(4, b"\x0a\x01M", 0, &mut file);
    write_bytes(12, b"editions", 0, &mut file);
    write_varint(14 << 3, &mut file);
    write_varint(1000, &mut file);
    assert!(Descriptors::from_files(&[file]).unwrap().message("a.M").is_some());
}

#[test]
fn messages_go_to_json_and_back() {
    let bytes = order().encode_from_json(&sample()).unwrap();
    assert_eq!(order().decode_to_json(&bytes).unwrap(), sample());
    // Names of the file are as good as those of JSON, and so are numbers.
    let one = order().encode_from_json(&json!({ "access_token": "t", "cents": 5, "state": 1 })).unwrap();
    let other =
        order().encode_from_json(&json!({ "accessToken": "t", "cents": "5", "state": "PAID" })).unwrap();
    assert_eq!(one, other);
    let error = order().encode_from_json(&json!({ "idd": "a" })).unwrap_err();
    assert!(error.to_string().contains("idd") && error.to_string().contains("shop.Order"), "{error}");
    assert!(order().encode_from_json(&json!({ "cents": "many" })).is_err());
    let item = shop().message("shop.Item").unwrap();
    assert_eq!(item.decode_to_json(&[]).unwrap(), json!({}));
    assert_eq!(item.decode_with_defaults(&[]).unwrap(), json!({ "sku": "", "pieces": 0, "offsets": [] }));
}

#[test]
fn what_a_descriptor_does_not_know_is_shown_by_number() {
    let mut bytes = order().encode_from_json(&json!({ "id": "a", "state": 1 })).unwrap();
    write_bytes(99, b"new", 0, &mut bytes);
    write_varint(3 << 3, &mut bytes);
    write_varint(77, &mut bytes);
    assert_eq!(order().decode_to_json(&bytes).unwrap(), json!({ "id": "a", "state": 77, "99": "new" }));
    // A time out of range has no text, and a type that is not known has no fields.
    let mut bytes = Vec::new();
    write_bytes(6, b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\x7f", 0, &mut bytes);
    write_bytes(14, b"\x0a\x03x/y\x12\x01z", 0, &mut bytes);
    assert_eq!(
        order().decode_to_json(&bytes).unwrap(),
        json!({ "at": { "seconds": "9223372036854775807" }, "extra": { "typeUrl": "x/y", "value": "eg==" } })
    );
}

#[test]
fn without_a_descriptor_only_what_the_bytes_say_is_shown() {
    let raw = |build: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = Vec::new();
        build(&mut bytes);
        decode_raw(&bytes, false)
    };
    let text =
        |text: &'static str| raw(&move |out| write_bytes(1, text.as_bytes(), 0, out)).unwrap()["1"].clone();
    // Two letters are a valid message, and so is this text; neither is taken for one.
    for plain in ["hi", "x1", "", "grüße", "\"$0123456789012345678901234567890123456", "two\nlines\tof text"]
    {
        assert_eq!(text(plain), json!(plain), "{plain:?}");
    }
    // A message of one id begins with a line feed and its length.
    assert_eq!(
        text("\n$00000000-0000-0000-0000-000000000000"),
        json!({ "1": "00000000-0000-0000-0000-000000000000" })
    );
    let all = raw(&|out| {
        write_varint(1 << 3, out);
        write_varint(7, out);
        write_varint(1 << 3, out);
        write_varint(u64::MAX, out);
        write_bytes(2, &[0xff, 0xfe], 0, out);
        write_bytes(3, &[8, 1], 0, out);
        write_field(wire::WireField { number: 4, value: WireValue::Fixed32(1) }, out);
        write_field(wire::WireField { number: 5, value: WireValue::Fixed64(1) }, out);
        out.extend([0x33, 8, 1, 0x34]);
    });
    assert_eq!(
        all.unwrap(),
        json!({
            "1": [7, u64::MAX], "2": { "base64": "//4=" }, "3": { "1": 1 }, "4": "0x00000001",
            "5": "0x0000000000000001", "6": { "1": 1 }
        })
    );
    for damaged in [&[0u8, 1][..], &[8], &[0x0a, 5, b'a'], &[0x33, 8, 1], &[0x34], &[0x0f]] {
        assert_eq!(decode_raw(damaged, false), None, "{damaged:?}");
    }
    assert_eq!(decode_raw(&[0x0a, 5, b'a', 0xc3], true), Some(json!({ "1": "a" })));
    assert_eq!(decode_raw(&[8, 1, 16], true), Some(json!({ "1": 1 })));
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn compressed(bytes: &[u8]) -> Vec<u8> {
    let mut frame = frame_message(&gzip(bytes));
    frame[0] = 1;
    frame
}

fn call(path: &str, response_body: Vec<u8>, encoding: Option<&str>) -> Span {
    let json = json!({
        "trace": "1", "id": "1", "caller": "web-1", "callee": "orders", "port": 80, "wire": "http2",
        "method": "POST", "path": path, "start_us": 0, "duration_us": 1, "request_bytes": 0, "response_bytes": 0,
        "status": 200, "grpc_status": 0,
    });
    let mut span: Span = serde_json::from_value(json).unwrap();
    let response_headers =
        encoding.map(|value| ("grpc-encoding".to_owned(), value.to_owned())).into_iter().collect();
    span.payload = Some(Box::new(Payload { response_headers, response_body, ..Payload::default() }));
    span
}

#[test]
fn bodies_have_several_messages() {
    let item = shop().message("shop.Item").unwrap();
    let encode = |sku: &str| item.encode_from_json(&json!({ "sku": sku })).unwrap();
    let body =
        [frame_message(&encode("a")), compressed(&encode("b")), frame_message(&encode("long"))].concat();
    let show = |body: &[u8], path: &str, encoding: Option<&str>| {
        decode_body(&call(path, body.to_vec(), encoding), BodySide::Response, &shop())
            .map(|body| body.to_string())
    };
    let watch = "/shop.Orders/Watch";
    // Fields that are not there have their default value, unless the message is cut.
    let first = "{\"offsets\":[],\"pieces\":0,\"sku\":\"a\"}\n{\"offsets\":[],\"pieces\":0,\"sku\":\"b\"}";
    let all = format!("{first}\n{{\"offsets\":[],\"pieces\":0,\"sku\":\"long\"}}");
    assert_eq!(show(&body, watch, Some("gzip")).unwrap(), all);
    assert_eq!(show(&body, watch, None).unwrap(), all);
    assert_eq!(show(&body[..body.len() - 2], watch, None).unwrap(), format!("{first}\n{{\"sku\":\"lo\"}}…"));
    assert_eq!(
        show(&body, "/shop.Other/Watch", None).unwrap(),
        "{\"1\":\"a\"}\n{\"1\":\"b\"}\n{\"1\":\"long\"}"
    );
    // What is compressed otherwise is not guessed at.
    let zstd = show(&body, watch, Some("zstd")).unwrap();
    assert!(zstd.contains("{\"compressed\":"), "{zstd}");
    assert_eq!(show(b"", watch, None).unwrap(), "");
    assert_eq!(show(&[0, 0], watch, None).unwrap(), "…");
    assert_eq!(show(b"{\"json\": 1}", watch, None), None);
    let one = decode_body(&call(watch, frame_message(&encode("a")), None), BodySide::Response, &shop());
    assert_eq!(one.unwrap().to_json(), json!({ "sku": "a", "pieces": 0, "offsets": [] }));
    // A body of something else is left alone.
    let mut other = call(watch, body, None);
    other.grpc_status = None;
    assert_eq!(decode_body(&other, BodySide::Response, &shop()), None);
}

#[derive(Default)]
struct HideTokens(Vec<String>);

impl Hide for HideTokens {
    fn is_secret(&mut self, path: &[String]) -> bool {
        path.last()
            .is_some_and(|name| matches!(name.as_str(), "accessToken" | "loginSecret" | "pin" | "password"))
    }

    fn on_secret(&mut self, value: &[u8]) {
        self.0.push(String::from_utf8_lossy(value).into_owned());
    }

    fn replace_text(&mut self, text: &[u8]) -> Option<Vec<u8>> {
        (text == b"hunter2").then(|| b"[redacted]".to_vec())
    }
}

#[test]
fn hidden_values_leave_a_message_that_can_be_read() {
    let order_with = json!({
        "id": "a", "accessToken": "t0p", "note": "private", "card": "hunter2", "pin": "4711",
        "loginSecret": { "user": "ann" }, "labels": { "password": "pw", "x": "hunter2" },
        "parts": { "k": { "sku": "hunter2" } }, "items": [{ "sku": "hunter2", "pieces": 1 }],
    });
    let bytes = order().encode_from_json(&order_with).unwrap();
    let mut hide = HideTokens::default();
    let span = call("/shop.Orders/Get", compressed(&bytes), Some("gzip"));
    let hidden = redact_body(&span, BodySide::Response, &shop(), &mut hide).unwrap();
    let Frames { frames, .. } = split_frames(&hidden, Some("gzip")).unwrap();
    assert_eq!(
        order().decode_to_json(&frames[0].message).unwrap(),
        json!({
            "id": "a", "accessToken": "[redacted]", "note": "[redacted]", "card": "[redacted]",
            "loginSecret": { "user": "[redacted]" }, "labels": { "password": "[redacted]", "x": "[redacted]" },
            "parts": { "k": { "sku": "[redacted]" } }, "items": [{ "sku": "[redacted]", "pieces": 1 }],
        })
    );
    hide.0.sort();
    assert_eq!(hide.0, ["ann", "private", "pw", "t0p"]);
    // Once is enough.
    let span = call("/shop.Orders/Get", hidden, Some("gzip"));
    assert_eq!(redact_body(&span, BodySide::Response, &shop(), &mut HideTokens::default()), None);
    // Without a descriptor only values are known.
    let span = call("/other.Orders/Get", frame_message(&bytes), None);
    let hidden = redact_body(&span, BodySide::Response, &shop(), &mut HideTokens::default()).unwrap();
    let shown = decode_frames(&hidden, None, Some(&order())).unwrap().to_string();
    assert!(!shown.contains("hunter2") && shown.contains("t0p"), "{shown}");
}

/// What a service would answer; `all` sends what a file imports along with it.
fn answer(request: &[u8], files: &[Vec<u8>], all: bool) -> Vec<u8> {
    let mut reader = WireReader::new(request);
    let field = reader.next_field().unwrap().unwrap();
    let WireValue::Bytes { content, .. } = field.value else { panic!("{field:?}") };
    let mut inner = Vec::new();
    let mut out = Vec::new();
    match (field.number, content) {
        (7, _) => {
            for name in ["shop.Orders", "grpc.reflection.v1.ServerReflection", "gone.Service"] {
                let mut service = Vec::new();
                write_bytes(1, name.as_bytes(), 0, &mut service);
                write_bytes(1, &service, 0, &mut inner);
            }
            write_bytes(6, &inner, 0, &mut out);
        }
        (4, b"shop.Orders") => {
            let sent = if all { files.len() } else { 1 };
            files.iter().take(sent).for_each(|file| write_bytes(1, file, 0, &mut inner));
            write_bytes(4, &inner, 0, &mut out);
        }
        (3, b"other.proto") => {
            write_bytes(1, &files[1], 0, &mut inner);
            write_bytes(4, &inner, 0, &mut out);
        }
        _ => write_bytes(7, b"\x08\x05\x12\x04gone", 0, &mut out),
    }
    out
}

#[test]
fn a_service_describes_itself() {
    let files = |name: &str, import: &str, text: &str| {
        let mut file = Vec::new();
        write_bytes(1, name.as_bytes(), 0, &mut file);
        write_bytes(2, b"shop", 0, &mut file);
        for import in [import, "google/protobuf/timestamp.proto"].iter().filter(|import| !import.is_empty()) {
            write_bytes(3, import.as_bytes(), 0, &mut file);
        }
        file.extend(text.as_bytes());
        write_bytes(12, b"proto3", 0, &mut file);
        file
    };
    // A service Orders with Get(Id) returns (Id), and the message in another file.
    let method = "\x0a\x03Get\x12\x08.shop.Id\x1a\x08.shop.Id";
    let service = format!("\x32\x23\x0a\x06Orders\x12\x19{method}");
    let files =
        [files("orders.proto", "other.proto", &service), files("other.proto", "", "\x22\x04\x0a\x02Id")];
    for (mut reflection, all) in [
        (Reflection::of_service("shop.Orders"), false),
        (Reflection::of_service("shop.Orders"), true),
        (Reflection::of_all_services(), false),
    ] {
        let mut asked = 0;
        while let Some(request) = reflection.next_request() {
            reflection.read_answer(&answer(&request, &files, all));
            asked += 1;
            assert!(asked < 10);
        }
        let descriptors = reflection.finish().unwrap();
        assert_eq!(descriptors.method_names(), ["shop.Orders/Get"]);
    }
    let mut unknown = Reflection::of_service("gone.Service");
    let request = unknown.next_request().unwrap();
    unknown.read_answer(&answer(&request, &files, false));
    assert_eq!(unknown.next_request(), None);
    assert!(unknown.finish().unwrap().is_empty());
}

proptest! {
    #[test]
    fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..300), is_cut: bool) {
        let _ = decode_raw(&bytes, is_cut);
        let _ = order().decode_to_json(&bytes);
        let _ = order().decode_beginning(&bytes);
        let span = call("/shop.Orders/Get", bytes.clone(), None);
        let _ = decode_body(&span, BodySide::Response, &shop());
        let _ = redact_body(&span, BodySide::Response, &shop(), &mut HideTokens::default());
        let framed = call("/shop.Orders/Get", frame_message(&bytes), None);
        prop_assert_eq!(
            decode_body(&framed, BodySide::Response, &shop()).is_some(),
            order().decode_to_json(&bytes).is_ok() || decode_raw(&bytes, false).is_some()
        );
        let _ = redact_body(&framed, BodySide::Response, &shop(), &mut HideTokens::default());
        let _ = Descriptors::from_descriptor_set(&bytes);
        let mut reflection = Reflection::of_all_services();
        reflection.read_answer(&bytes);
        let _ = reflection.finish();
    }

    #[test]
    fn a_message_can_be_cut_anywhere(cut in 0usize..200) {
        let bytes = order().encode_from_json(&sample()).unwrap();
        let cut = cut.min(bytes.len());
        let value = order().decode_beginning(&bytes[..cut]);
        prop_assert!(value.is_ok(), "{:?}", value);
        prop_assert!(decode_raw(&bytes[..cut], true).is_some());
        let mut body = frame_message(&bytes);
        body.truncate(5 + cut);
        let shown = decode_frames(&body, None, Some(&order())).unwrap();
        prop_assert_eq!(shown.is_cut, cut < bytes.len());
        // Hiding something changes lengths, not what is there.
        let span = call("/shop.Orders/Get", body, None);
        let mut hide = HideTokens::default();
        let _ = redact_body(&span, BodySide::Response, &shop(), &mut hide);
    }

    #[test]
    fn damaged_sets_are_refused_or_read(place in 0usize..2000, byte: u8) {
        let mut set = shop().to_descriptor_sets().remove(0);
        let place = place % set.len();
        set[place] = byte;
        if let Ok(descriptors) = Descriptors::from_descriptor_set(&set) {
            for name in descriptors.method_names() {
                let _ = descriptors.method(&name).map(|method| method.input.decode_to_json(b"\x0a\x01a"));
            }
        }
    }

    #[test]
    fn fields_are_written_as_they_were_read(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let mut reader = WireReader::new(&bytes);
        let mut fields = Vec::new();
        while let Ok(Some(field)) = reader.next_field() {
            fields.push(field);
        }
        let mut out = Vec::new();
        fields.iter().for_each(|field| write_field(*field, &mut out));
        let mut reader = WireReader::new(&out);
        for field in &fields {
            prop_assert_eq!(reader.next_field(), Ok(Some(*field)));
        }
    }

    #[test]
    fn texts_and_numbers_survive_the_way_through_json(id in ".{0,20}", cents: i64, share in -1e9..1e9f64) {
        let value = json!({ "id": id, "cents": cents.to_string(), "share": share });
        let bytes = order().encode_from_json(&value).unwrap();
        let back = order().decode_with_defaults(&bytes).unwrap();
        prop_assert_eq!(&back["id"], &value["id"]);
        prop_assert_eq!(&back["cents"], &value["cents"]);
        prop_assert_eq!(&back["share"], &value["share"]);
    }
}
