//! Two services: `front` asks `back` for a word and greets with it.

use std::io;

use faultscope_platform::loopback::{Call, Loopback, Reply, Test};

use crate::bed::{Bed, text};

const SERVICES: &str = "name: greeter
services:
  front: { command: [front], ports: [8080], ready: { http: /health } }
  back: { command: [back], ports: [8081], ready: { http: /health } }
";

/// What `/heap` takes.
const HEAP: u64 = 64 << 20;

/// The greeter with tests and whatever else belongs into its file.
pub(crate) fn greeter(rest: &str) -> Bed {
    Bed::new(&format!("{SERVICES}{rest}"), platform())
}

pub(crate) fn platform() -> Loopback {
    Loopback::new().service("front", front).service("back", back).program("get", get)
}

async fn front(call: Call) -> io::Result<Reply> {
    let greeting = call.instance.env("GREETING").unwrap_or("hello").to_owned();
    let word = |answer: http::Response<bytes::Bytes>| match answer.status().as_u16() {
        200 => Reply::from(format!(r#"{{"said":"{greeting} {}"}}"#, text(&answer))),
        status => Reply::from((502, format!("back says {status}: {}", text(&answer)))),
    };
    Ok(match call.path() {
        "/health" => "up".into(),
        "/hello" => word(call.client().get("http://back:8081/word").await?),
        // As a service does that knows nothing of trace context.
        "/alone" => word(call.instance.client().get("http://back:8081/word").await?),
        path @ ("/back-end" | "/heap") => word(call.client().get(&format!("http://back:8081{path}")).await?),
        "/hang" => std::future::pending().await,
        "/end" => {
            call.instance.print("I am done");
            call.instance.exit(7).await
        }
        path => (404, format!("there is no {path}")).into(),
    })
}

async fn back(call: Call) -> Reply {
    let env = |name: &str| call.instance.env(name).map(str::to_owned);
    match call.path() {
        "/health" => "up".into(),
        "/word" if env("BROKEN").is_some() => (503, "no words today").into(),
        "/word" => env("WORD").unwrap_or_else(|| "world".into()).into(),
        "/heap" => {
            call.instance.allocate(HEAP).await;
            "fine".into()
        }
        "/back-end" => call.instance.exit(3).await,
        path => (404, format!("there is no {path}")).into(),
    }
}

/// A test's command: gets a URL and prints the answer.
async fn get(test: Test) -> Result<(), String> {
    let answer = test.client().get(&test.args()[0]).await.map_err(|error| error.to_string())?;
    test.print(text(&answer));
    if answer.status().is_success() { Ok(()) } else { Err(format!("status {}", answer.status().as_u16())) }
}
