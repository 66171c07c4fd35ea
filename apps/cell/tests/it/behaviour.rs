//! What steps do, seen from outside.

use serde_json::json;

use crate::support::{Application, Gate, send};

const SHOP: &str = r#"
version: 1
services:
  order:
    port: 8080
    settings: { recheck: false }
    variables: { locked: "" }
    data: { orders: { o1: { status: paid, price: 100, from: s1 } } }
    operations:
      "GET /orders/{id}":
        steps:
          - get: { from: orders, key: "{path.id}", as: order, missing: 404 }
          - call: { service: station, path: "/stations/{order.from}", as: station, timeout: 2s }
          - respond: { body: { id: "{path.id}", price: "{order.price}", from: "{station.name}" } }
      "POST /orders":
        steps:
          - let: { id: "{uuid()}" }
          - put: { into: orders, key: "{id}", value: "{merge(body, [])}" }
          - count: created
          - respond: { status: 201, body: { id: "{id}", n: "{counter.created}" } }
      "POST /lock/{station}":
        steps:
          - fail: { if: "variable.locked != ''", status: 409, message: "{variable.locked} is locked" }
          - set: { variable: locked, to: "{path.station}" }
      "GET /all":
        steps:
          - find: { from: orders, where: { status: paid }, as: orders }
          - let: { names: [] }
          - each:
              in: orders
              as: order
              concurrently: true
              steps: [ { call: { service: station, path: "/stations/{order.from}", as: station } } ]
          - respond: { body: { n: "{len(orders)}", last: "{station.name}" } }
      "GET /both":
        steps:
          - concurrently:
              - [ { call: { service: station, path: /stations/s1, as: first } } ]
              - [ { call: { service: station, path: /stations/s2, as: second, on_error: { default: { name: none } } } } ]
          - respond: { body: [ "{first.name}", "{second.name}" ] }
      "GET /broken":
        steps: [ { call: { service: station, path: /stations/s9 } } ]
      "GET /caught":
        steps:
          - try:
              steps: [ { call: { service: station, path: /stations/s9 } } ]
              catch: [ { respond: { status: 203, body: "{error}" } } ]
              as: error
      "GET /accepted":
        steps:
          - call: { service: station, path: /stations/s9, accept: [404], status_as: status }
          - respond: { body: "{status}" }
      "GET /retried":
        steps:
          - call: { service: station, path: /flaky, retries: 2, as: answer }
          - respond: { body: "{answer}" }
      "POST /crash": { steps: [ { crash: { code: 3 } } ] }
      "GET /nonsense": { steps: [ { respond: { body: "{1 / 0}" } } ] }
      "GET /loop":
        steps:
          - let: { total: 0 }
          - repeat: { times: 3, as: i, steps: [ { let: { total: "{total + i}" } } ] }
          - respond: { body: "{total}", headers: { x-total: "{total}" } }
  station:
    port: 8081
    data: { stations: { s1: { name: Shanghai } } }
    operations:
      "GET /stations/{id}":
        steps:
          - get: { from: stations, key: "{path.id}", as: station, missing: 404 }
          - respond: { body: "{station}" }
      "GET /flaky":
        steps:
          - count: tries
          - fail: { if: "counter.tries < 3", status: 503, message: not yet }
          - respond: { body: "{counter.tries}" }
"#;

#[tokio::test]
async fn a_request_crosses_services() {
    let shop = Application::start(SHOP).await;
    let reply = shop.get("order", "/orders/o1").await;
    assert_eq!((reply.status, reply.body), (200, json!({"id": "o1", "price": 100, "from": "Shanghai"})));
    assert_eq!(reply.headers["x-instance"], "order-1");
    let reply = shop.get("order", "/orders/nope").await;
    assert_eq!((reply.status, &reply.body["kind"]), (404, &json!("missing")));
    assert_eq!(shop.get("order", "/both").await.body, json!(["Shanghai", "none"]));
    assert_eq!(shop.get("order", "/all").await.body, json!({"n": 1, "last": "Shanghai"}));
    shop.stop().await;
}

#[tokio::test]
async fn failures_are_reported_with_their_cause() {
    let shop = Application::start(SHOP).await;
    let reply = shop.get("order", "/broken").await;
    let message = "station GET /stations/s9: 404 there is no `s9` in stations";
    assert_eq!(reply.status, 502);
    let expected = json!({"error": message, "kind": "call", "service": "order", "operation": "GET /broken"});
    assert_eq!(reply.body, expected);
    let caught = shop.get("order", "/caught").await;
    assert_eq!(caught.body, json!({"kind": "call", "status": 502, "message": message}));
    assert_eq!(shop.get("order", "/accepted").await.body, json!(404));
    assert_eq!(shop.get("order", "/retried").await.body, json!(3));
    assert_eq!(shop.get("order", "/nonsense").await.body["kind"], "expression");
}

#[tokio::test]
async fn state_lives_in_the_instance() {
    let shop = Application::start(SHOP).await;
    let first = shop.post("order", "/orders", json!({"status": "paid", "from": "s1"})).await;
    let second = shop.post("order", "/orders", json!({"status": "paid", "from": "s1"})).await;
    assert_eq!((first.status, &second.body["n"]), (201, &json!(2)));
    assert_ne!(first.body["id"], second.body["id"]);
    assert_eq!(shop.get("order", "/all").await.body["n"], 3);
    assert_eq!(shop.post("order", "/lock/s1", json!({})).await.status, 200);
    let refused = shop.post("order", "/lock/s2", json!({})).await;
    assert_eq!((refused.status, &refused.body["error"]), (409, &json!("s1 is locked")));
    let shown = shop.get("order", "/_cell").await.body;
    assert_eq!((&shown["variables"], &shown["counters"]), (&json!({"locked": "s1"}), &json!({"created": 2})));
    assert!(shown["resident_memory"].as_u64().unwrap() > 0);
    let looped = shop.get("order", "/loop").await;
    assert_eq!((looped.body, &looped.headers["x-total"]), (json!(3), &"3".parse().unwrap()));
}

#[tokio::test]
async fn a_crash_ends_the_process() {
    let shop = Application::start(SHOP).await;
    assert_eq!(shop.crashed(), None);
    shop.post("order", "/crash", json!({})).await;
    assert_eq!(shop.crashed(), Some(3));
}

#[tokio::test]
async fn the_same_seed_gives_the_same_answers() {
    let (first, second) = (Application::start(SHOP).await, Application::start(SHOP).await);
    let other = Application::with_environment(SHOP, &[("FAULTSCOPE_SEED", "8")]).await;
    let id = async |shop: &Application| shop.post("order", "/orders", json!({})).await.body["id"].clone();
    let expected = id(&first).await;
    assert_eq!(id(&second).await, expected);
    assert_ne!(id(&other).await, expected);
}

const RACE: &str = r#"
version: 1
services:
  account:
    port: 8080
    pools: { one: { threads: 1, queue: 0 } }
    data: { accounts: { a: { balance: 100 } } }
    operations:
      "POST /unsafe":
        steps: &steps
          - get: { from: accounts, key: a, as: account }
          - call: { service: gate, path: /meet }
          - update: { into: accounts, key: a, set: { balance: "{account.balance - 10}" } }
      "POST /safe": { steps: [ { lock: { name: a, steps: *steps } } ] }
      "POST /atomic": { steps: [ { increment: { into: accounts, key: a, field: balance, by: -10 } } ] }
      "POST /pooled": { steps: [ { in: { pool: one, steps: [ { call: { service: gate, path: /meet } } ] } } ] }
      "GET /": { steps: [ { get: { from: accounts, key: a, as: a } }, { respond: { body: "{a.balance}" } } ] }
  gate: { port: 8081 }
"#;

#[tokio::test]
async fn updates_are_lost_without_a_lock() {
    for (operation, n_meeting, left) in [("/unsafe", 2, 90), ("/safe", 1, 80), ("/atomic", 0, 80)] {
        let gate = Gate::start().await;
        let race = Application::with_environment(RACE, &[("GATE_URL", &gate.url)]).await;
        let withdraw = || race.post("account", operation, json!({}));
        let open = async {
            gate.arrived(n_meeting).await;
            gate.open();
        };
        tokio::join!(withdraw(), withdraw(), open);
        assert_eq!(race.get("account", "/").await.body, json!(left), "{operation}");
    }
}

#[tokio::test]
async fn a_full_pool_rejects() {
    let gate = Gate::start().await;
    let race = Application::with_environment(RACE, &[("GATE_URL", &gate.url)]).await;
    let late = async {
        gate.arrived(1).await;
        let rejected = race.post("account", "/pooled", json!({})).await;
        gate.open();
        rejected
    };
    let (first, second) = tokio::join!(race.post("account", "/pooled", json!({})), late);
    assert_eq!((first.status, second.status, &second.body["kind"]), (200, 503, &json!("rejected")));
}

#[tokio::test]
async fn a_store_can_be_shared_and_survive() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("db.json");
    let spec = format!(
        r#"
version: 1
services:
  db: {{ port: 1, store: {{ kind: file, path: "{}" }}, data: {{ orders: {{ a: {{ n: 1 }} }} }} }}
  one: &one
    port: 2
    store: {{ kind: service, service: db }}
    operations:
      "POST /": {{ steps: [ {{ increment: {{ into: orders, key: a, field: n, as: n }} }}, {{ respond: {{ body: "{{n}}" }} }} ] }}
  two: *one
"#,
        path.display()
    );
    for expected in [2, 4] {
        let application = Application::start(&spec).await;
        assert_eq!(application.post("one", "/", json!({})).await.body, json!(expected));
        assert_eq!(application.post("two", "/", json!({})).await.body, json!(expected + 1));
        application.stop().await;
    }
}

#[tokio::test]
async fn memory_is_kept_and_released() {
    let spec = r#"
version: 1
services:
  heap:
    port: 1
    settings: { heap: 1KiB }
    startup: { memory: 4KiB }
    operations:
      "POST /keep": { steps: [ { memory: { allocate: "{setting.heap}", hold: forever } }, { cpu: 1ms } ] }
      "POST /lend": { steps: [ { memory: { allocate: "{setting.heap}" } } ] }
"#;
    let application = Application::with_environment(spec, &[("HEAP", "2MiB")]).await;
    application.post("heap", "/keep", json!({})).await;
    application.post("heap", "/lend", json!({})).await;
    assert_eq!(application.get("heap", "/_cell").await.body["kept_memory"], (2 << 20) + 4096);
}

#[tokio::test]
async fn a_slow_callee_times_out_yet_goes_on() {
    let spec = r#"
version: 1
services:
  caller:
    port: 1
    operations:
      "GET /": { steps: [ { call: { service: slow, path: /, timeout: 100ms } } ] }
      "GET /forget":
        steps: [ { concurrently: { branches: [ [ { call: { service: slow, path: / } } ] ], join: none } } ]
  slow: { port: 2, operations: { "GET /": { steps: [ { call: { service: gate, path: / } }, { count: done } ] } } }
  gate: { port: 3 }
"#;
    let gate = Gate::start().await;
    let application = Application::with_environment(spec, &[("GATE_URL", &gate.url)]).await;
    let reply = application.get("caller", "/").await;
    assert_eq!((reply.status, &reply.body["kind"]), (504, &json!("timeout")));
    assert_eq!(application.get("caller", "/forget").await.status, 200);
    gate.arrived(2).await;
    gate.open();
    while application.get("slow", "/_cell").await.body["counters"]["done"] != 2 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_graceful_end_waits_for_what_still_runs() {
    let gate = Gate::start().await;
    let race = Application::with_environment(RACE, &[("GATE_URL", &gate.url)]).await;
    let address = race.address("account").to_owned();
    let request = http::Request::post("/pooled").body(bytes::Bytes::new()).unwrap();
    let last = tokio::spawn(async move { send(&address, request).await });
    gate.arrived(1).await;
    let address = race.address("account").to_owned();
    let stopping = tokio::spawn(race.stop());
    while tokio::net::TcpStream::connect(&address).await.is_ok() {
        tokio::task::yield_now().await;
    }
    gate.open();
    assert_eq!(last.await.unwrap().status, 200);
    stopping.await.unwrap();
}

#[tokio::test]
async fn a_mubench_work_model_runs() {
    let model = json!({
        "s0": {
            "external_services": [{ "seq_len": 100, "services": ["s1"] }, { "seq_len": 1, "services": ["sdb1"] }],
            "internal_service": { "loader": {
                "cpu_stress": { "run": true, "range_complexity": [5, 10], "thread_pool_size": 2, "trials": 1 },
                "memory_stress": { "run": true, "memory_size": 10 },
                "sleep_stress": { "run": false },
                "mean_response_size": 1,
            } },
            "workers": 1, "threads": 2,
        },
        "s1": { "external_services": [], "internal_service": { "colosseum": {} } },
        "sdb1": { "internal_service": { "compute_pi": { "range_complexity": [1, 2] } } },
    });
    let application = Application::start(&model.to_string()).await;
    let reply = application.get("s0", "/api/v1").await;
    assert_eq!(reply.status, 200, "{reply:?}");
    assert!(reply.body.as_str().unwrap().starts_with('m'));
}
