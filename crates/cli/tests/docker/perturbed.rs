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

const TARGET: &str = "shop PUT /orders/a > stock PUT /taken/a";
