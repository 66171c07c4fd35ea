//! A scripted Redis: enough of the server to see what cells say to it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use serde_json::json;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

use crate::support::Application;

type Hashes = Arc<Mutex<BTreeMap<(String, String), String>>>;

/// Serves hashes and strings; a transaction always succeeds.
async fn fake_redis() -> (String, Hashes) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let hashes = Hashes::default();
    let shared = Arc::clone(&hashes);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream, Arc::clone(&shared)));
        }
    });
    (address, hashes)
}

async fn serve(stream: TcpStream, hashes: Hashes) {
    let mut stream = BufReader::new(stream);
    while let Some(words) = read(&mut stream).await {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let bulk = |value: Option<&String>| match value {
            Some(value) => format!("${}\r\n{value}\r\n", value.len()),
            None => "$-1\r\n".to_owned(),
        };
        let key = |hash: &str, field: &str| (hash.to_owned(), field.to_owned());
        let reply = {
            let mut hashes = hashes.lock().unwrap();
            match words[..] {
                ["HGET", hash, field] => bulk(hashes.get(&key(hash, field))),
                ["HSET", hash, field, value] => {
                    hashes.insert(key(hash, field), value.to_owned());
                    ":1\r\n".to_owned()
                }
                ["HSETNX", hash, field, value] => {
                    hashes.entry(key(hash, field)).or_insert_with(|| value.to_owned());
                    ":1\r\n".to_owned()
                }
                ["HGETALL", hash] => {
                    let found: Vec<_> = hashes.iter().filter(|((name, _), _)| name == hash).collect();
                    let mut reply = format!("*{}\r\n", 2 * found.len());
                    for ((_, field), value) in found {
                        reply += &(bulk(Some(field)) + &bulk(Some(value)));
                    }
                    reply
                }
                ["GET", name] => bulk(hashes.get(&key(name, ""))),
                ["SET", name, value, "PX", "300"] => {
                    hashes.insert(key(name, ""), value.to_owned());
                    "+OK\r\n".to_owned()
                }
                ["EXEC"] => "*1\r\n:1\r\n".to_owned(),
                ["WATCH", _] | ["UNWATCH"] | ["MULTI"] => "+OK\r\n".to_owned(),
                _ => format!("-ERR unexpected {words:?}\r\n"),
            }
        };
        stream.write_all(reply.as_bytes()).await.unwrap();
    }
}

async fn read(stream: &mut BufReader<TcpStream>) -> Option<Vec<String>> {
    let mut line = String::new();
    stream.read_line(&mut line).await.ok()?;
    let n_words: usize = line.trim().strip_prefix('*')?.parse().ok()?;
    let mut words = Vec::new();
    for _ in 0..n_words {
        line.clear();
        stream.read_line(&mut line).await.ok()?;
        let length: usize = line.trim().strip_prefix('$')?.parse().ok()?;
        let mut word = vec![0; length + 2];
        stream.read_exact(&mut word).await.ok()?;
        words.push(String::from_utf8_lossy(&word[..length]).into_owned());
    }
    Some(words)
}

#[tokio::test]
async fn documents_and_cached_values_live_in_redis() {
    let (address, hashes) = fake_redis().await;
    let spec = r#"
version: 1
services:
  order:
    port: 1
    store: { kind: redis, url: "redis://elsewhere" }
    cache: { kind: redis, url: "redis://elsewhere", prefix: shared }
    data: { orders: { a: { n: 1 } } }
    operations:
      "POST /":
        steps:
          - increment: { into: orders, key: a, field: n, as: n }
          - update: { into: orders, key: a, set: { status: paid } }
          - find: { from: orders, where: { status: paid }, as: orders }
          - cache: { put: k, value: "{n}", ttl: 300ms }
          - cache: { get: k, as: cached }
          - respond: { body: { orders: "{orders}", cached: "{cached}" } }
      "DELETE /": { steps: [ { delete: { from: orders, key: a } } ] }
"#;
    let url = format!("redis://{address}");
    let application = Application::with_environment(
        spec,
        &[("STORE_REDIS_URL", url.as_str()), ("CACHE_REDIS_URL", url.as_str())],
    )
    .await;
    let reply = application.post("order", "/", json!({})).await;
    assert_eq!(reply.body, json!({"orders": [{"_key": "a", "n": 2, "status": "paid"}], "cached": 2}));
    let stored = hashes.lock().unwrap()[&("order:orders".to_owned(), "a".to_owned())].clone();
    assert_eq!(stored, r#"{"n":2,"status":"paid"}"#);
    assert!(hashes.lock().unwrap().contains_key(&("shared:cache:k".to_owned(), String::new())));
    let request = http::Request::delete("/").body(bytes::Bytes::new()).unwrap();
    let refused = application.send("order", request).await;
    assert_eq!((refused.status, &refused.body["kind"]), (500, &json!("store")));
}
