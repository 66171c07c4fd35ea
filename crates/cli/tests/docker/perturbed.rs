//! Tests perturbed where services run in containers: a container that takes another's place has forgotten.

use faultscope_model::perturbation::Perturbation;
use faultscope_testkit::cells;

use crate::tool_with;

const CELLS: &str = r#"
version: 1
services:
  shop:
    port: 8080
    operations:
      "PUT /orders/{id}":
        steps:
          - call: { service: stock, method: PUT, path: "/taken/{path.id}", body: { amount: 1 } }
          - respond: { body: { ok: true } }
  stock:
    port: 8081
    operations:
      "PUT /taken/{id}":
        steps:
          - put: { into: taken, key: "{path.id}", value: { amount: "{body.amount}" } }
          - respond: { body: { ok: true } }
      "GET /sum":
        steps:
          - find: { from: taken, as: all }
          - respond: { body: { sum: "{sum(all, 'amount')}" } }
"#;

const SHOP: &str = r#"
name: shop
services:
  shop: { command: ["${faultscope}", cell, --spec, cells.yaml, --service, shop], ports: [8080], ready: { http: /health } }
  stock: { command: ["${faultscope}", cell, --spec, cells.yaml, --service, stock], ports: [8081], ready: { http: /health }, durable: true }
tests:
  - name: order
    steps:
      - { put: "http://shop:8080/orders/a", json: {} }
      - { get: "http://stock:8081/sum", expect: { json: { sum: "1" } } }
"#;

#[test]
#[ignore = "needs a Docker engine: ./test.sh docker"]
fn defects_are_found_in_containers() {
    let tool = tool_with(&cells().file("cells.yaml", CELLS).application(SHOP));
    let report = tool.json(["resilience", "--platform", "docker", "--kinds", "duplicate,restart"], 1);
    let test = &report["tests"][0];
    let defects = test["defects"].as_array().unwrap();
    assert_eq!(defects.len(), 1, "{report:#}");
    let found: Perturbation = serde_json::from_value(defects[0]["perturbations"][0].clone()).unwrap();
    let found = found.to_string();
    assert_eq!(found, format!("restart {TARGET}"), "{report:#}");
    tool.run(["resilience", "--platform", "docker", "--reproduce", &found]).expect(1);
}

#[test]
#[ignore = "needs a Docker engine: ./test.sh docker"]
fn outages_and_restarts_reach_containers() {
    let file = format!("{SHOP}resilience: {{ outage: {{ for: 300ms, recovery: 10s }} }}\n");
    let tool = tool_with(&cells().file("cells.yaml", CELLS).application(&file));
    let report = tool.json(["resilience", "--platform", "docker", "--kinds", "outage"], 0);
    let outages = report["tests"][0]["outages"].as_array().unwrap();
    // The shop says that its stock is gone, and works again when that is back.
    assert_eq!(outages.len(), 1, "{report:#}");
    assert_eq!((&outages[0]["how"], &outages[0]["accepted"]), (&"refuse".into(), &serde_json::Value::Null));
    assert_eq!(outages[0]["shown"], "degraded", "{report:#}");
    assert!(!outages[0]["recovered_after"].is_null(), "{report:#}");
    tool.run(["resilience", "--platform", "docker", "--reproduce", "restart shop"]).expect(0);
}

const TARGET: &str = "shop PUT /orders/a > stock PUT /taken/a";
