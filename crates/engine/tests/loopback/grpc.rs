//! Calls of gRPC: bodies are shown by the names of their fields, secrets are hidden by name, and a failed call says why.

use std::convert::Infallible;
use std::io::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use faultscope_engine::debug::{DebugOptions, Verdict};
use faultscope_model::Span;
use faultscope_model::grpc::{Descriptors, ProtoSource, frame_message, split_frames};
use faultscope_model::trace::report_call;
use faultscope_platform::loopback::{Instance, Loopback, Test};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{HeaderMap, Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Value, json};
use tokio::net::TcpStream;

use crate::bed::{Bed, causes};

const PROTO: &str = "syntax = \"proto3\";
package shop;
message Item { string sku = 1; int32 pieces = 2; string access_token = 3; string trace = 4; }
service Stock { rpc Get(Item) returns (Item); rpc Take(Item) returns (Item); rpc Watch(Item) returns (stream Item); }
";

fn descriptors() -> Descriptors {
    let open = |name: &str| {
        let source = ProtoSource { place: name.to_owned(), text: PROTO.to_owned() };
        Ok((name == "shop.proto").then_some(source))
    };
    Descriptors::from_sources(&["shop.proto".to_owned()], &open).unwrap()
}

fn item(value: Value) -> Vec<u8> {
    descriptors().message("shop.Item").unwrap().encode_from_json(&value).unwrap()
}

/// A service of gRPC in the words of HTTP/2. `PIECES` is what it has, `REFLECTS` whether it describes itself.
async fn serve(instance: Instance, stream: TcpStream) {
    let handler = move |request: Request<Incoming>| {
        let instance = instance.clone();
        async move { Ok::<_, Infallible>(answer(&instance, request).await) }
    };
    let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
    let _ = server.serve_connection(TokioIo::new(stream), service_fn(handler)).await;
}

async fn answer(
    instance: &Instance,
    request: Request<Incoming>,
) -> Response<impl hyper::body::Body<Data = Bytes, Error = Infallible> + use<>> {
    let (parts, body) = request.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    let frames = split_frames(&body, None).unwrap();
    let asked = &frames.frames[0].message;
    let pieces: i32 = instance.env("PIECES").unwrap_or("7").parse().unwrap();
    // No two answers are the same.
    static ANSWERS: AtomicU64 = AtomicU64::new(0xa0);
    let trace = format!("{:x}", ANSWERS.fetch_add(1, Ordering::Relaxed));
    let own =
        || item(json!({ "sku": "ball", "pieces": pieces, "accessToken": "QSECRET-token", "trace": trace }));
    let (body, status, message) = match parts.uri.path() {
        "/shop.Stock/Get" => (frame_message(&own()), 0, ""),
        // A message may be compressed.
        "/shop.Stock/Watch" => {
            let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            gzip.write_all(&own()).unwrap();
            let mut second = frame_message(&gzip.finish().unwrap());
            second[0] = 1;
            ([frame_message(&item(json!({ "sku": "doll" }))), second].concat(), 0, "")
        }
        "/shop.Stock/Take" => (Vec::new(), 14, "no%20stock of %C3%BC"),
        "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
            if instance.env("REFLECTS").is_some() =>
        {
            // A list of services has the service; everything else is answered with the files.
            let set = descriptors().to_descriptor_sets().remove(0);
            let message = match asked.first() {
                Some(0x3a) => [&[0x32, 14, 0x0a, 12, 0x0a, 10][..], b"shop.Stock"].concat(),
                _ => {
                    let length = u16::try_from(set.len()).unwrap();
                    assert!((128..16384).contains(&length));
                    let length = [(length & 0x7f) as u8 | 0x80, (length >> 7) as u8];
                    [&[0x22][..], &length, &set].concat()
                }
            };
            (frame_message(&message), 0, "")
        }
        _ => (Vec::new(), 12, ""),
    };
    let status: http::HeaderValue = status.to_string().parse().unwrap();
    let trailers = |to: &mut HeaderMap| {
        to.insert("grpc-status", status.clone());
        if !message.is_empty() {
            to.insert("grpc-message", message.parse().unwrap());
        }
    };
    let mut response = Response::builder()
        .header("content-type", "application/grpc")
        .header("grpc-encoding", "gzip")
        .body(())
        .unwrap();
    if body.is_empty() {
        // Trailers only, as libraries answer when there is no message.
        trailers(response.headers_mut());
    }
    let mut behind = HeaderMap::new();
    trailers(&mut behind);
    let behind = (!body.is_empty()).then_some(Ok(behind));
    response.map(|()| Full::new(Bytes::from(body)).with_trailers(std::future::ready(behind)))
}

/// A test's command: calls methods one after the other; ends with the pieces that `Get` found being 0.
async fn call(test: Test) -> Result<(), String> {
    let stream = test.client().connect("stock", 50051).await.map_err(|error| error.to_string())?;
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
            .await
            .map_err(|error| error.to_string())?;
    let connection = tokio::spawn(connection);
    let mut pieces = Value::Null;
    for method in test.args() {
        let asked = frame_message(&item(json!({ "sku": "ball", "accessToken": "QSECRET-asked" })));
        let request = Request::post(format!("http://stock:50051/shop.Stock/{method}"))
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .body(Full::new(Bytes::from(asked)))
            .map_err(|error| error.to_string())?;
        let response = sender.send_request(request).await.map_err(|error| error.to_string())?;
        let body = response.into_body().collect().await.map_err(|error| error.to_string())?.to_bytes();
        if method == "Get" {
            let frames = split_frames(&body, None).ok_or("no frames")?;
            let kind = descriptors().message("shop.Item").unwrap();
            pieces = kind.decode_with_defaults(&frames.frames[0].message).unwrap()["pieces"].clone();
        }
    }
    drop(sender);
    connection.abort();
    if pieces == 0 { Err("nothing is left".to_owned()) } else { Ok(()) }
}

fn stock(rest: &str) -> Bed {
    let platform = Loopback::new().tcp_service("stock", serve).program("call", call);
    let bed = Bed::new(
        &format!(
            "name: stock
services:
  stock: {{ command: [stock], ports: [50051]{rest}
tests:
  - {{ name: stock, run: [call, Get, Take, Watch] }}
"
        ),
        platform,
    );
    std::fs::create_dir(bed.folder.path().join("proto")).unwrap();
    std::fs::write(bed.folder.path().join("proto/shop.proto"), PROTO).unwrap();
    bed
}

fn of<'s>(spans: &'s [Span], method: &str) -> &'s Span {
    spans.iter().find(|span| span.path.ends_with(method)).unwrap()
}

fn response(span: &Span) -> Value {
    let decoded = span.payload.as_ref().unwrap().decoded.as_ref().unwrap();
    decoded.response.as_ref().unwrap().to_json()
}

#[tokio::test]
async fn bodies_are_shown_by_the_names_of_their_fields() {
    let tested = stock(" }\nprotos: [proto]").test(&[]).await;
    assert_eq!(tested.outcome(), "pass");
    let get = of(&tested.spans, "/Get");
    let mut shown = response(get);
    assert!(shown["trace"].take().is_string());
    assert_eq!(shown, json!({ "sku": "ball", "pieces": 7, "accessToken": "[redacted]", "trace": null }));
    assert_eq!(
        get.request_text().unwrap(),
        r#"{"accessToken":"[redacted]","pieces":0,"sku":"ball","trace":""}"#
    );
    let watch = response(of(&tested.spans, "/Watch"));
    assert_eq!(watch[0]["sku"], "doll");
    assert_eq!(watch[1]["accessToken"], "[redacted]", "also where it was compressed");
    // Whoever reports spans to others says the same.
    let reported = report_call(get);
    assert_eq!(reported.name, "shop.Stock/Get");
    assert!(reported.tag("res").unwrap().contains("\"pieces\":7"), "{reported:?}");
    let has_secret = |body: &[u8]| body.windows(7).any(|part| part == b"QSECRET");
    let payloads = tested.spans.iter().filter_map(|span| span.payload.as_deref());
    for payload in payloads {
        assert!(!has_secret(&payload.request_body) && !has_secret(&payload.response_body), "{payload:?}");
    }
}

#[tokio::test]
async fn a_failed_call_says_why_and_is_no_200() {
    let tested = stock(" }\nprotos: [proto]").test(&[]).await;
    let take = of(&tested.spans, "/Take");
    assert_eq!((take.describe_ending().as_str(), take.failed()), ("UNAVAILABLE: no stock of ü", true));
    let reported = report_call(take);
    assert_eq!(reported.tag("error"), Some("UNAVAILABLE: no stock of ü"));
    assert_eq!(reported.tag("http.status_code"), None);
    assert_eq!(reported.tag("grpc.status_code"), Some("UNAVAILABLE"));
}

#[tokio::test]
async fn a_service_that_describes_itself_needs_no_files() {
    let tested = stock(", env: { REFLECTS: \"1\" } }").test(&[]).await;
    let shown = response(of(&tested.spans, "/Get"));
    assert_eq!((&shown["sku"], &shown["accessToken"]), (&json!("ball"), &json!("[redacted]")));
    assert_eq!(tested.spans.len(), 3, "the question is no call: {:?}", tested.calls());
    // Where the protocol is detected, it is asked after the first call.
    let detected = stock(", protocol: http, env: { REFLECTS: \"1\" } }").test(&[]).await;
    assert_eq!(response(of(&detected.spans, "/Get"))["pieces"], 7);
}

#[tokio::test]
async fn without_descriptors_fields_have_numbers() {
    let tested = stock(" }").test(&[]).await;
    let shown = response(of(&tested.spans, "/Get"));
    assert_eq!((&shown["1"], &shown["2"]), (&json!("ball"), &json!(7)));
    assert_eq!(response(of(&tested.spans, "/Watch"))[0], json!({ "1": "doll" }));
}

#[tokio::test]
async fn the_field_that_differs_is_the_evidence() {
    let failing = " }
protos: [proto]
failing: { config: { stock: { env.PIECES: \"0\", env.OTHER: \"1\" } } }";
    let report = stock(failing).debug(DebugOptions::default()).await;
    assert_eq!(
        (report.verdict.clone(), causes(&report)),
        (Verdict::Reduced, vec![vec!["config stock.env.PIECES"]])
    );
    let difference = report.difference.expect("evidence");
    let (failing, passing) = difference.calls();
    assert!(failing.contains("/shop.Stock/Get: OK {") && failing.contains("\"pieces\":0"), "{failing}");
    assert!(passing.contains("\"pieces\":7"), "{passing}");
    assert!(difference.failing_tree.iter().any(|call| call.ending == "OK"), "{difference:#?}");
}
