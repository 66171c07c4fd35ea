//! The protocol's edges: bodies, headers, unknown operations, HTTP/2.

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Empty};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::json;
use tokio::net::TcpStream;

use crate::support::Application;

const ECHO: &str = r#"
version: 1
services:
  front:
    port: 1
    body_limit: 1KiB
    variables: { last: "" }
    operations:
      "POST /echo": { steps: [ { respond: { body: { body: "{body}", q: "{query.q}", user: "{header.x_user}" } } } ] }
      "GET /trace":
        steps:
          - call: { service: back, path: "/seen/a b", query: { q: "x&y", none: null }, headers: { x-user: ann }, as: seen }
          - respond: { body: "{seen}" }
      "GET /used":
        steps:
          - set: { variable: last, to: "{variable.last}" }
          - cache: { put: "k", value: 1 }
          - find: { from: orders, as: orders }
      "GET /things/special": { steps: [ { respond: { body: special } } ] }
      "GET /things/{id}": { steps: [ { respond: { body: "{path.id}" } } ] }
      "GET /large": { steps: [ { call: { service: back, path: /large } } ] }
  quiet:
    port: 2
    propagate: false
    operations:
      "GET /trace": { steps: [ { call: { service: back, path: /seen/x, as: seen } }, { respond: { body: "{seen}" } } ] }
  back:
    port: 3
    operations:
      "GET /large": { steps: [ { respond: { body: "{text(2KiB)}" } } ] }
      "GET /seen/{id}":
        steps:
          - respond:
              body:
                id: "{path.id}"
                q: "{query.q}"
                none: "{query.none}"
                user: "{header.x_user}"
                traceparent: "{header.traceparent}"
                b3: "{header.x_b3_traceid}"
                request: "{header.x_request_id}"
                secret: "{header.authorization}"
"#;

fn traced() -> Request<Bytes> {
    Request::get("/trace")
        .header("traceparent", "00-a-b-01")
        .header("X-B3-TraceId", "b")
        .header("x-request-id", "r")
        .header("authorization", "secret")
        .body(Bytes::new())
        .unwrap()
}

#[tokio::test]
async fn trace_headers_are_passed_on() {
    let echo = Application::start(ECHO).await;
    let expected = json!({
        "id": "a b", "q": "x&y", "none": null, "user": "ann",
        "traceparent": "00-a-b-01", "b3": "b", "request": "r", "secret": null,
    });
    assert_eq!(echo.send("front", traced()).await.body, expected);
    let quiet = echo.send("quiet", traced()).await.body;
    assert_eq!((&quiet["traceparent"], &quiet["b3"]), (&json!(null), &json!(null)));
}

#[tokio::test]
async fn bodies_are_bounded_and_json() {
    let echo = Application::start(ECHO).await;
    let request =
        Request::post("/echo?q=1+2").header("x-user", "ann").body(Bytes::from("{\"a\":[1]}")).unwrap();
    let expected = json!({"body": {"a": [1]}, "q": "1 2", "user": "ann"});
    assert_eq!(echo.send("front", request).await.body, expected);
    let post = |body: &str| Request::post("/echo").body(Bytes::from(body.to_owned())).unwrap();
    assert_eq!(echo.send("front", post("{")).await.status, 400);
    assert_eq!(echo.send("front", post(&format!("\"{}\"", "x".repeat(2000)))).await.status, 413);
    let reply = echo.get("front", "/large").await;
    assert_eq!((reply.status, &reply.body["kind"]), (502, &json!("call")));
}

#[tokio::test]
async fn operations_are_found_by_method_and_path() {
    let echo = Application::start(ECHO).await;
    assert_eq!(echo.get("front", "/things/special").await.body, json!("special"));
    assert_eq!(echo.get("front", "/things/7").await.body, json!("7"));
    let unknown = echo.get("front", "/nowhere").await;
    assert_eq!((unknown.status, &unknown.body["error"]), (404, &json!("there is no operation GET /nowhere")));
    assert_eq!(echo.get("front", "/health").await.status, 200);
}

#[tokio::test]
async fn accesses_are_reported_on_request() {
    let echo = Application::start(ECHO).await;
    let used = |report: &str| {
        Request::get("/used").header("x-faultscope-report", report).body(Bytes::new()).unwrap()
    };
    assert_eq!(echo.send("front", used("1")).await.headers["x-cell-access"], "v:last,c:k,d:orders");
    assert!(!echo.send("front", used("0")).await.headers.contains_key("x-cell-access"));
}

#[tokio::test]
async fn http2_with_prior_knowledge_works() {
    let echo = Application::start(ECHO).await;
    let stream = TcpStream::connect(echo.address("front")).await.unwrap();
    let handshake = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await;
    let (mut sender, connection) = handshake.unwrap();
    tokio::spawn(connection);
    let uri = format!("http://{}/things/2", echo.address("front"));
    let request = Request::get(uri).body(Empty::<Bytes>::new()).unwrap();
    let body = sender.send_request(request).await.unwrap().into_body();
    assert_eq!(body.collect().await.unwrap().to_bytes(), "\"2\"");
}
