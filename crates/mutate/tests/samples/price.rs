//! Prices of a shop.

use axum::Json;
use axum::extract::{Path, State};
use serde::Serialize;
use serde_json::{Value, json};

/// What all handlers share.
#[derive(Clone)]
pub struct Shop {
    client: reqwest::Client,
    factor: u64,
}

#[derive(Serialize)]
pub struct Price {
    item: String,
    /// In cents.
    cents: u64,
}

pub async fn show(State(shop): State<Shop>, Path(item): Path<String>) -> Json<Value> {
    let cents = shop.base(&item).await * shop.factor;
    if cents == 0 {
        return Json(json!({ "error": "unknown item", "item": item }));
    }
    tokio::spawn(report(item.clone()));
    Json(json!({
        "item": item,
        "cents": cents,
        "rebate": { "percent": 5, "until": null },
    }))
}

pub async fn list(State(shop): State<Shop>) -> Json<Vec<Price>> {
    let task = tokio::spawn(report("all".to_owned()));
    let cents = shop.base("apple").await;
    let _ = task.await;
    report("list".to_owned()).await;
    Json(vec![Price { item: "apple".to_owned(), cents }])
}

impl Shop {
    async fn base(&self, item: &str) -> u64 {
        let answer = self.client.get(&format!("http://base:8084/{item}")).await;
        if let Some(cents) = answer { cents } else { 0 }
    }
}

async fn report(item: String) {
    let length = add(item.len() as u64, 1);
    std::hint::black_box(length);
}

const fn add(a: u64, b: u64) -> u64 {
    a + b
}

#[cfg(test)]
mod tests {
    #[test]
    fn adds() {
        assert_eq!(super::add(1, 2), 3);
    }
}
