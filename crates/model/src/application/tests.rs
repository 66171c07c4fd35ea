use proptest::prelude::*;

use super::*;
use crate::SlotId;
use crate::plan::Probe;
use crate::record::OutcomeSampling;
use crate::wiring::RecordLevel;

const SHOP: &str = r#"
name: shop
services:
  order:
    command: ["${faultscope}", "cell", "--slot", "${slot}", "${instance}"]
    ports: [8080, { port: 50051, protocol: grpc }]
    env: { STOCK_URL: "http://stock:8081", RETRIES: 3, FAST: true }
    ready: { http: /health, within: 10s }
    after: [stock]
    calls: [stock, payments.example]
    durable: [data/]
  stock: { command: ["node", "stock.js"], ports: [8081] }
setup: ["python3", "seed.py"]
external: [ { host: payments.example, allow: false } ]
tests:
  - { name: pay twice, run: ["pytest", "-q"], failure: "balance .* != .*" }
  - { name: list, http: { get: "http://order:8080/orders", expect: { status: 200 } } }
  - { discover: junit, run: ["pytest", "--junitxml={out}"] }
  - name: follow
    steps:
      - { post: "http://order:8080/orders", json: { a: [1, "$${x}"] }, save: { id: order.id } }
      - { get: "http://order:8080/orders/${id}" }
failing:
  nodes: 2
  instances: { order: 3 }
  config: { order: { memory: 64MiB, env.CACHE_TTL: 300 } }
"#;

fn read(text: &str) -> Result<Application, SpecError> {
    Application::read_alone(text, "shop.yaml")
}

#[test]
fn reads_the_whole_file() {
    let shop = read(SHOP).unwrap();
    let order = &shop.services["order"];
    assert_eq!(order.env["RETRIES"], "3");
    assert_eq!(order.env["FAST"], "true");
    assert_eq!(order.ready.probe, Probe::Http { path: "/health".into(), port: 8080 });
    assert_eq!(shop.services["stock"].ready.probe, Probe::Tcp { port: 8081 });
    assert_eq!(shop.services["stock"].calls.len(), 3, "all services and hosts when the file does not say");
    assert_eq!(shop.tests.len(), 4);
    assert_eq!(shop.externals[0].ports, [80, 443]);
    assert_eq!(shop.failing.config["order"]["env.CACHE_TTL"], "300");
}

#[test]
fn metrics_have_a_port_of_the_service_and_a_path() {
    let with = |metrics: &str| {
        let text = format!("services: {{ a: {{ command: [a], ports: [80, 81], metrics: {metrics} }} }}");
        read(&text).map(|application| application.services["a"].metrics.clone().unwrap())
    };
    assert_eq!(with("{ }").unwrap(), MetricsEndpoint { port: 80, path: "/metrics".into() });
    assert_eq!(with("{ port: 81, path: /m }").unwrap(), MetricsEndpoint { port: 81, path: "/m".into() });
    for (bad, problem) in [
        ("{ port: 82 }", "82 is none of its ports"),
        ("{ path: m }", "the path `m` starts with `/` and has no spaces"),
    ] {
        let error = with(bad).unwrap_err();
        assert_eq!((error.key.as_str(), error.problem.as_str()), ("services.a.metrics", problem));
    }
}

#[test]
fn what_is_recorded() {
    let with = |record: &str| {
        let text = format!("services: {{ a: {{ command: [a] }} }}\nrecord: {record}");
        read(&text).map(|application| (application.record.level, application.record.metrics.every))
    };
    let second = Some(Duration::from_secs(1));
    assert_eq!(with("{ }").unwrap(), (RecordLevel::default(), second));
    assert_eq!(with("{ level: timing, metrics: off }").unwrap(), (RecordLevel::Timing, None));
    assert_eq!(with("{ most: 7, metrics: on }").unwrap(), (RecordLevel::Bodies { most: 7 }, second));
    for (every, millis) in [("100ms", 100), ("2", 2_000), ("0.5", 500), ("\"1m\"", 60_000)] {
        let every = with(&format!("{{ metrics: {every} }}")).unwrap().1;
        assert_eq!(every, Some(Duration::from_millis(millis)));
    }
    for bad in
        ["{ metrics: often }", "{ metrics: 1ms }", "{ metrics: 0 }", "{ metrics: [] }", "{ metric: 1s }"]
    {
        assert_eq!(with(bad).unwrap_err().line, Some(2), "{bad}");
    }
    assert!(with("{ level: timing, most: 5 }").unwrap_err().problem.contains("`level: bodies`"));
    assert_eq!(with("{ most: 1MiB }").unwrap().0, RecordLevel::Bodies { most: 1 << 20 });
    assert_eq!(with("{ level: whole }").unwrap().0, RecordLevel::Bodies { most: RecordLevel::WHOLE });
    assert_eq!(with("{ most: 17MiB }").unwrap_err().problem, "`most` is at most 16MiB");
}

#[test]
fn what_is_recorded_of_services_and_traces() {
    let with = |record: &str| {
        let services =
            "services: { a: { command: [a] }, b: { command: [b] } }\nexternal: [{ host: pay.example }]";
        read(&format!("{services}\nrecord: {record}")).map(|application| application.record)
    };
    let record = with(
        "{ services: { a: { level: headers, operations: { \"GET /x/{id}\": { level: timing } } }, pay.example: { most: 9 } } }",
    )
    .unwrap();
    let rules: Vec<_> = record
        .rules
        .iter()
        .map(|rule| (rule.service.as_str(), rule.operation.as_ref().map(ToString::to_string), rule.level))
        .collect();
    assert_eq!(
        rules,
        [
            ("a", Some("GET /x/{id}".to_owned()), RecordLevel::Timing),
            ("a", None, RecordLevel::Headers),
            ("pay.example", None, RecordLevel::Bodies { most: 9 }),
        ]
    );
    let sample = |text: &str| with(&format!("{{ sample: {text} }}")).map(|record| record.sample.unwrap());
    let tenth = OutcomeSampling { share_ppm: 100_000, slow: Some(Duration::from_millis(250)) };
    assert_eq!(sample("{ share: 10%, slow: 250ms }").unwrap(), tenth);
    assert_eq!(sample("{ share: 0.1, slow: 0.25 }").unwrap(), tenth);
    assert_eq!(sample("{ }").unwrap(), OutcomeSampling { share_ppm: 0, slow: None });
    for bad in ["{ share: 200% }", "{ share: x }", "{ shares: 1 }"] {
        assert!(sample(bad).is_err(), "{bad}");
    }
    assert!(with("{ services: { c: { level: timing } } }").unwrap_err().problem.contains("no service `c`"));
    assert!(with("{ services: { a: { operations: { \"GET /\": { } } } } }").is_err());
}

#[test]
fn plans_instances_over_nodes() {
    let shop = read(SHOP).unwrap();
    let expansion = Expansion { program: "/bin/fs".into(), slot: SlotId(7) };
    let plan = shop.plan(&shop.failing, &expansion).unwrap();
    let placed: Vec<_> = plan.instances.iter().map(|i| format!("{} {}", i.id, i.node)).collect();
    assert_eq!(placed, ["stock-1 node-0", "order-1 node-1", "order-2 node-0", "order-3 node-1"]);
    let order = &plan.instances[1];
    assert_eq!(order.command, ["/bin/fs", "cell", "--slot", "7", "order-1"]);
    assert_eq!(order.env["CACHE_TTL"], "300");
    assert_eq!(order.limits.memory.unwrap().0, 64 << 20);
    assert_eq!(plan.instances[0].limits.memory, None);
}

#[test]
fn extends_another_file() {
    let load = |base: &str, path: &str| {
        assert_eq!((base, path), ("cases/f1.yaml", "../shop.yaml"));
        // Without discovered tests every name is known.
        Ok((
            SHOP.replace("  - { discover: junit, run: [\"pytest\", \"--junitxml={out}\"] }\n", ""),
            "shop.yaml".to_owned(),
        ))
    };
    let text = "extends: ../shop.yaml\ntest: list\nfailing: { instances: { stock: 9 } }\n";
    let case = Application::read(text, "cases/f1.yaml", &load).unwrap();
    assert_eq!(case.failing.instances_of(&"stock".parse().unwrap()), 9);
    assert_eq!(case.failing.nodes, 1);
    let error = Application::read("extends: ../shop.yaml\ntest: lst\n", "cases/f1.yaml", &load).unwrap_err();
    assert_eq!(error.to_string(), "cases/f1.yaml:2: test: there is no test `lst`");
    let error =
        Application::read("extends: a\n", "b", &|_, _| Ok(("extends: a\n".into(), "a".into()))).unwrap_err();
    assert!(error.problem.contains("circle"), "{error}");
}

/// A changed line, the complaint, the hint.
#[test]
fn complaints_name_line_key_and_the_nearest_valid_one() {
    let cases = [
        (
            "    ports: [8080, {",
            "    prots: [8080, {",
            "shop.yaml:6: prots: unknown key",
            "did you mean `ports`?",
        ),
        ("protocol: grpc", "protocol: grcp", "shop.yaml:6: grcp: unknown value", "did you mean `grpc`?"),
        (
            "{ order: 3 }",
            "{ ordre: 3 }",
            "shop.yaml:25: failing.instances.ordre: there is no service `ordre`",
            "did you mean `order`?",
        ),
        (
            "{ order: 3 }",
            "{ order: 1001 }",
            "shop.yaml:25: failing.instances.order: a service has 1 to 1000 instances, or 0 when it is not there",
            "",
        ),
        (
            "after: [stock]",
            "after: [stok]",
            "shop.yaml:9: services.order.after: there is no service `stok`",
            "did you mean `stock`?",
        ),
        (
            "memory: 64MiB",
            "memory: lots",
            "shop.yaml:26: failing.config.order.memory: `lots` is not a size",
            "memory: 64MiB",
        ),
        (
            "memory: 64MiB",
            "memry: 64MiB",
            "shop.yaml:26: failing.config.order.memry: unknown configuration item",
            "did you mean `memory`?",
        ),
        (
            "within: 10s",
            "within: soon",
            "shop.yaml:8: services.order.ready.within: `soon` is not a duration; write it like `250ms` or `10s`",
            "",
        ),
        (
            "durable: [data/]",
            "durable: [../data]",
            "shop.yaml:4: services.order: `../data` must lie below the folder of the file",
            "",
        ),
        (
            "failure: \"balance",
            "failure: \"(balance",
            "shop.yaml:16: tests.0.failure: not a regular expression: error: unclosed group",
            "",
        ),
        (
            "name: list, http",
            "name: pay twice, http",
            "shop.yaml:17: tests.1.name: two tests are called `pay twice`",
            "",
        ),
        (
            "{out}",
            "out",
            "shop.yaml:18: tests.2: `discover: junit` needs `{out}` in `run`, the file of the report",
            "",
        ),
        (
            "orders/${id}",
            "orders/${ids}",
            "shop.yaml:22: tests.3.steps.1: no earlier step saves `ids`; write `$${ids}` to send it as it is",
            "did you mean `id`?",
        ),
        (
            "http://order:8080/orders/",
            "http://ordre:8080/orders/",
            "shop.yaml:22: tests.3.steps.1: there is no service `ordre`",
            "did you mean `order`?",
        ),
        (
            "http://order:8080/orders/",
            "http://order/orders/",
            "shop.yaml:22: tests.3.steps.1: `order` has no port 80, only 8080, 50051",
            "",
        ),
        (
            "http://order:8080/orders/",
            "http://localhost:9999/orders/",
            "shop.yaml:22: tests.3.steps.1: no service has or publishes port 9999",
            "",
        ),
        (
            "after: [stock]",
            "after: [order]",
            "shop.yaml:9: services.order.after: these wait for one another to start: order",
            "",
        ),
    ];
    for (old, new, complaint, hint) in cases {
        assert!(SHOP.contains(old), "{old}");
        let error = read(&SHOP.replacen(old, new, 1)).expect_err(new);
        assert!(error.to_string().starts_with(complaint), "{new}\n  wanted {complaint}\n  got    {error}");
        assert_eq!(error.hint.unwrap_or_default(), hint, "{new}");
    }
}

#[test]
fn empty_and_broken_files() {
    assert!(read("").unwrap_err().hint.unwrap().contains("faultscope init"));
    assert!(read("services: [").unwrap_err().line.is_some());
    assert!(read("name: x\n").unwrap_err().problem.contains("at least one service"));
    assert!(read("name: x\ntests: [{ discover: cargo }]\n").unwrap().services.is_empty());
    assert!(read(&"a".repeat(5 << 20)).unwrap_err().problem.contains("larger than"));
}

proptest! {
    #[test]
    fn arbitrary_text_never_panics(text in "(?s).{0,300}") {
        let _ = read(&text);
    }

    #[test]
    fn damaged_files_never_panic(at in 0usize..1200, cut in 0usize..40, with in "[\\[\\]{}:,\"'&*!|>%@` \n-]{0,4}") {
        let start = at.min(SHOP.len());
        let end = (start + cut).min(SHOP.len());
        if SHOP.is_char_boundary(start) && SHOP.is_char_boundary(end) {
            let _ = read(&format!("{}{with}{}", &SHOP[..start], &SHOP[end..]));
        }
    }
}

#[test]
fn resilience_options_are_read() {
    let text = r#"
services:
  a: { command: [a], ports: [80], durable: true, delivery: { "POST /pay": at-least-once, "GET /**": at-most-once } }
  b: { command: [b], durable: [data/] }
  c: { command: [c] }
tests: [ { name: t, http: { get: "http://a/x" }, degraded: "status 503" } ]
invariants: [ { name: i, http: { get: "http://a/sum" } } ]
resilience: { delay: 10ms, blame: "at <(.*)>", code: RESOURCE_EXHAUSTED }
"#;
    let application = read(text).unwrap();
    let persistent: Vec<bool> = application.services.values().map(|s| s.persistent).collect();
    assert_eq!(persistent, [true, true, false]);
    let a = &application.services["a"];
    assert_eq!(a.delivery_of("POST", "/pay?x"), Some(Delivery::AtLeastOnce));
    assert_eq!(a.delivery_of("GET", "/any/where"), Some(Delivery::AtMostOnce));
    assert_eq!(a.delivery_of("PUT", "/pay"), None);
    assert_eq!(application.invariants[0].name, "i");
    assert_eq!(application.resilience.delay, Duration::from_millis(10));
    assert_eq!(application.resilience.grpc_code.name(), Some("RESOURCE_EXHAUSTED"));
    for (from, to, key) in [
        ("status 503", "status (", "tests.0.degraded"),
        ("http://a/sum", "http://z/sum", "invariants.0.steps.0"),
        ("at <(.*)>", "at", "resilience.blame"),
        ("POST /pay", "pay", "services.a.delivery"),
        ("RESOURCE_EXHAUSTED", "OK", "resilience.code"),
        ("RESOURCE_EXHAUSTED", "GONE", "resilience.code"),
    ] {
        assert_eq!(read(&text.replace(from, to)).unwrap_err().key, key);
    }
    assert!(read("tests: [ { name: t, run: [\"true\"] } ]").unwrap().services.is_empty());
}

#[test]
fn a_service_may_write_its_memory_before_it_is_cloned() {
    let text = "services: { redis: { command: [redis], clone: { before: redis-cli SAVE, within: 2s } } }";
    let hook = |text: &str| read(text).unwrap().services["redis"].before_clone.clone();
    let command = ["redis-cli", "SAVE"].map(String::from).to_vec();
    assert_eq!(hook(text), Some(CloneHook { command: command.clone(), within: Duration::from_secs(2) }));
    let by_default = hook(&text.replace(", within: 2s", "")).unwrap();
    assert_eq!(by_default, CloneHook { command, within: Duration::from_secs(10) });
    for (from, to) in [("redis-cli SAVE", "[]"), ("2s", "0s"), ("2s", "2h"), ("before", "after")] {
        assert!(read(&text.replace(from, to)).is_err(), "{to}");
    }
}

#[test]
fn a_command_may_be_one_line() {
    let text = "name: a\nservices:\n  a: { command: python3 'my file.py' 80 }\n  b: { command: \"a | b\" }\ntests: [ { name: t, run: curl -f x } ]\n";
    let application = Application::read_alone(text, "f").unwrap();
    let command = |name: &str| application.services[&name.parse::<ServiceName>().unwrap()].command.clone();
    assert_eq!(command("a"), ["python3", "my file.py", "80"]);
    assert_eq!(command("b"), ["sh", "-c", "a | b"]);
    let TestBody::Command(run) = &application.tests[0].body else { panic!("no command") };
    assert_eq!(run.run, ["curl", "-f", "x"]);
}

#[test]
fn long_comments_and_many_aliases_are_usual() {
    let comments = "  # left out\n".repeat(100);
    let services: String =
        (0..150).map(|n| format!("  s{n}: {{ command: [run], env: *common }}\n")).collect();
    let text = format!(
        "services:\n{comments}  first: {{ command: [run], env: &common {{ A: 1 }} }}\n{services}tests: []\n"
    );
    let application = Application::read_alone(&text, "f").unwrap();
    assert_eq!(application.services["s149"].env["A"], "1");
}

#[test]
fn the_folder_is_that_of_the_outermost_file_or_the_directory_it_names() {
    let base = |base: &str, path: &str| {
        assert_eq!((base, path), ("cases/late.yaml", "../faultscope.yaml"));
        Ok((
            "directory: ../app\nservices: {a: {command: [a]}}".to_owned(),
            "cases/../faultscope.yaml".to_owned(),
        ))
    };
    let extended = Application::read("extends: ../faultscope.yaml", "cases/late.yaml", &base).unwrap();
    assert_eq!(extended.folder, "cases/../../app");
    for (file, directory, expected) in [
        ("faultscope.yaml", "", "."),
        ("faultscope.yaml", "directory: app", "./app"),
        ("x/faultscope.yaml", "directory: ../app", "x/../app"),
        ("/faultscope.yaml", "directory: app", "/app"),
        ("x/faultscope.yaml", "directory: /srv/app", "/srv/app"),
    ] {
        let text = format!("{directory}\nservices: {{a: {{command: [a]}}}}");
        assert_eq!(Application::read_alone(&text, file).unwrap().folder, expected, "{file} {directory}");
    }
}
