//! A shop that takes from a stock and writes into a ledger. As it is, the stock counts twice what arrives twice,
//! and the ledger forgets when it is restarted; its environment makes it better or worse.

use std::io;

use bytes::Bytes;
use faultscope_platform::loopback::{Call, Loopback, Reply};
use http::{Method, Request, Response};

use crate::bed::{Bed, text};

const FILE: &str = r#"name: shop
services:
  shop: { command: [shop], ports: [80], env: { SHOP: "" } }
  stock:
    command: [stock]
    ports: [80]
    env: { STOCK: "" }
    durable: [data/]
    delivery: { "POST /take": at-least-once }
  ledger: { command: [ledger], ports: [80], env: { LEDGER: "" }, durable: true }
tests:
  - name: buy
    steps:
      - { post: "http://shop/buy", json: { id: order-a } }
      - { get: "http://shop/state", expect: { json: { left: "9", sum: "7" } } }
resilience: { outage: { for: 50ms } }
invariants:
  - { name: nothing is lost, http: { get: "http://stock/left", expect: { body: "10|9" } } }
"#;

/// The shop, changed by words for each of its services: `asks-again` and `ignores-ledger` for the shop, `careful` for
/// the stock, `keeps` for the ledger.
pub(crate) fn shop(changes: &[(&str, &str)]) -> Bed {
    shop_with(changes, platform())
}

pub(crate) fn shop_with(changes: &[(&str, &str)], platform: Loopback) -> Bed {
    let mut file = FILE.to_owned();
    for (from, to) in changes {
        assert!(file.contains(from), "`{from}` is not in the file");
        file = file.replace(from, to);
    }
    Bed::new(&file, platform)
}

/// Nothing is wrong with this one.
pub(crate) const REPAIRED: [(&str, &str); 2] =
    [("STOCK: \"\"", "STOCK: careful"), ("LEDGER: \"\"", "LEDGER: keeps")];

pub(crate) fn platform() -> Loopback {
    Loopback::new().service("shop", sell).service("stock", count).service("ledger", keep_books)
}

fn is(call: &Call, variable: &str, word: &str) -> bool {
    call.instance.env(variable).is_some_and(|words| words.split(' ').any(|own| own == word))
}

/// Sends a request, and again where there was no good answer and attempts are left.
async fn ask(call: &Call, method: Method, url: &str, bodies: &[&str]) -> io::Result<Response<Bytes>> {
    let mut last = Err(io::Error::other("nothing was sent"));
    for body in bodies {
        let request = Request::builder().method(&method).uri(url).header("content-length", body.len());
        last = call.client().send(request.body(Bytes::from((*body).to_owned())).unwrap()).await;
        if last.as_ref().is_ok_and(|answer| answer.status().is_success()) {
            break;
        }
    }
    match last {
        Ok(answer) if !answer.status().is_success() => {
            Err(io::Error::other(format!("status {}: {}", answer.status().as_u16(), text(&answer))))
        }
        other => other,
    }
}

async fn sell(call: Call) -> io::Result<String> {
    if call.path() == "/state" {
        let left = ask(&call, Method::GET, "http://stock/left", &[""]).await?;
        let sum = ask(&call, Method::GET, "http://ledger/sum", &[""]).await?;
        return Ok(format!(r#"{{"left":{},"sum":{}}}"#, text(&left), text(&sum)));
    }
    let asked: serde_json::Value = serde_json::from_slice(call.request.body())?;
    let id = asked["id"].as_str().unwrap_or_default();
    let attempts = if is(&call, "SHOP", "asks-again") { vec![id; 2] } else { vec![id] };
    let took = ask(&call, Method::POST, "http://stock/take", &attempts).await?;
    let entry = format!("http://ledger/entries/{id}");
    // Who books something else the second time has a defect that only a retry shows.
    let again = if is(&call, "SHOP", "books-more-the-second-time") { "8" } else { "7" };
    let booked = ask(&call, Method::PUT, &entry, &["7", again]).await;
    if !is(&call, "SHOP", "ignores-ledger") {
        booked?;
    }
    Ok(text(&took))
}

async fn count(call: Call) -> Reply {
    let data = call.instance.durable();
    if call.path() == "/take" {
        let id = String::from_utf8_lossy(call.request.body()).into_owned();
        if !(is(&call, "STOCK", "careful") && data.get(&id).is_some()) {
            data.add("taken", 1);
        }
        data.set(&id, "seen");
    }
    (10 - data.add("taken", 0)).to_string().into()
}

async fn keep_books(call: Call) -> Reply {
    let keeps = is(&call, "LEDGER", "keeps");
    let data = if keeps { call.instance.durable() } else { call.instance.memory() };
    if call.request.method() == Method::PUT {
        data.set("amount", String::from_utf8_lossy(call.request.body()));
    }
    data.get("amount").unwrap_or_else(|| "0".into()).into()
}
