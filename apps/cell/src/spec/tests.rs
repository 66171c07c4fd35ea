use proptest::prelude::*;

use super::Spec;

fn with_steps(steps: &str) -> String {
    let steps = steps.trim().replace('\n', "\n          ");
    format!(
        "version: 1\nservices:\n  station: {{ port: 8081 }}\n  order:\n    port: 8080\n    \
         settings: {{ heap: 1MiB }}\n    pools: {{ db: {{ threads: 2 }} }}\n    variables: {{ locked: '' }}\n    \
         operations:\n      \"GET /orders/{{id}}\":\n        steps:\n          {steps}\n"
    )
}

fn error(steps: &str) -> String {
    Spec::parse(&with_steps(steps)).expect_err(steps).to_string()
}

#[test]
fn the_reference_is_right() {
    let reference = include_str!("../../SPEC.md");
    let mut examples = reference.split("```yaml\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    let spec = Spec::parse(examples.next().unwrap()).unwrap();
    assert_eq!(spec.services.len(), 2);
    let recipes = examples.next().unwrap();
    let indented = recipes.lines().map(|line| format!("          {line}\n")).collect::<String>();
    let text = format!(
        "version: 1\nservices:\n  price: {{ port: 1 }}\n  payment: {{ port: 2 }}\n  food: {{ port: 3 }}\n  order:\n    \
         port: 4\n    settings: {{ cache_ttl: 300, heap: 1MiB }}\n    pools: {{ db: {{ threads: 1 }} }}\n    \
         operations:\n      \"POST /x/{{id}}\":\n        steps:\n{indented}"
    );
    Spec::parse(&text).unwrap();
}

#[test]
fn every_step_is_read() {
    let steps = r#"
- sleep: 5ms
- sleep: { mean: 5ms, jitter: 2ms }
- sleep: { uniform: [1ms, 9ms] }
- sleep: { lognormal: { median: 5ms, sigma: 0.5 } }
- sleep: { exponential: 5ms }
- cpu: 1ms
- memory: { allocate: "{setting.heap}", hold: forever, touch: true }
- disk: { write: 4KiB, path: data/tmp }
- get: { from: orders, key: "{path.id}", as: order, missing: 404 }
- find: { from: orders, where: { status: paid }, limit: 3, as: orders }
- put: { into: orders, key: a, value: { a: [1, "{order.price}"] } }
- update: { into: orders, key: a, set: { a: 1 } }
- increment: { into: orders, key: a, field: n, by: -1, as: n }
- delete: { from: orders, key: a }
- cache: { get: k, as: v }
- cache: { put: k, value: "{v}", ttl: 300ms }
- cache: { delete: k }
- set: { variable: locked, to: "{body.station}" }
- let: { a: "{n + 1}" }
- count: hits
- count: { name: hits, by: 2 }
- lock: { name: "order-{path.id}", wait: 1s, steps: [ { count: hits } ] }
- call: { service: station, path: /x, on_error: ignore }
- call: { service: station, path: /x, on_error: { default: { a: 1 } } }
- call: { service: station, path: /x, on_error: { status: 500 } }
- concurrently: [ [ { count: a } ], [ { count: b } ] ]
- concurrently: { branches: [ [ { count: a } ] ], join: none }
- when: { if: "order.status == 'paid'", then: [ { count: a } ], else: [ { count: b } ] }
- repeat: { times: 3, as: i, steps: [ { log: "{i}" } ] }
- each: { in: orders, as: o, concurrently: true, steps: [ { log: "{o._key}" } ] }
- in: { pool: db, steps: [ { count: a } ] }
- try: { steps: [ { fail: {} } ], catch: [ { log: "{e.message}" } ], as: e }
- fail: { if: false, status: 500, message: "x {path.id}" }
- crash: { if: counter.hits > 3, code: 2 }
- log: "text {instance}"
- respond: { status: 200, body: { id: "{path.id}" }, headers: { x-a: b } }
"#;
    let spec = Spec::parse(&with_steps(steps)).unwrap();
    assert_eq!(spec.services["order"].operations["GET /orders/{id}"].steps.len(), 36);
}

#[test]
fn errors_name_service_operation_and_step() {
    let place = "service `order`, operation `GET /orders/{id}`, step";
    for (steps, expected) in [
        ("- in: { pool: cpu, steps: [] }", format!("{place} 1: there is no pool `cpu`")),
        (
            "- count: a\n- call: { service: nobody, path: / }",
            format!("{place} 2: there is no service `nobody`"),
        ),
        ("- log: \"{setting.haep}\"", format!("{place} 1: nothing is called `setting.haep`")),
        ("- log: \"{order.status}\"", format!("{place} 1: nothing is called `order.status`")),
        ("- log: \"{path.ident}\"", format!("{place} 1: nothing is called `path.ident`")),
        ("- set: { variable: x, to: 1 }", format!("{place} 1: nothing is called `variable.x`")),
        ("- let: { body: 1 }", format!("{place} 1: `body` is taken and cannot be bound")),
        (
            "- when: { if: true, then: [ { log: \"{nope}\" } ] }",
            format!("{place} 1, step 1: nothing is called `nope`"),
        ),
        (
            "- cache: { get: k }",
            format!("{place} 1: a cache step is `get` with `as`, `put` with `value`, or `delete`"),
        ),
    ] {
        assert_eq!(error(steps), expected);
    }
}

#[test]
fn syntax_errors_name_the_place_too() {
    for (steps, parts) in [
        ("- sleeep: 5ms", &["service `order`", "operation `GET /orders/{id}`", "step 1", "sleeep"][..]),
        ("- count: a\n- sleep: soon", &["step 2", "\"soon\" is not a duration"]),
        ("- log: \"{1 +}\"", &["step 1", "`{1 +}`", "expected a value"]),
        ("- get: { from: a, key: b, as: c, mising: 404 }", &["step 1", "mising"]),
        ("- concurrently: [ [ { slep: 1ms } ] ]", &["step 1", "slep"]),
    ] {
        let error = error(steps);
        for part in parts {
            assert!(error.contains(part), "{error} should name {part}");
        }
    }
    let expected = "service `order`: operation `GET /orders/{id}`: step 1: \"soon\" is not a duration \
                    at line 12, column 20";
    assert_eq!(error("- sleep: soon"), expected);
    assert!(Spec::parse("version: 2\nservices: {}").is_err());
    assert!(Spec::parse("version: 1\nservices: { a: { port: 1, settings: { path: x } } }").is_err());
}

#[test]
fn an_excerpt_knows_one_service_and_the_ports_of_the_others() {
    let text = with_steps("- call: { service: station, path: / }");
    let spec = Spec::parse_for(&text, "order").unwrap();
    assert_eq!((spec.services["station"].port, spec.services["order"].operations.len()), (8081, 1));
    let spec = Spec::parse_for(&text, "station").unwrap();
    assert_eq!((spec.services["order"].port, spec.services["order"].operations.len()), (8080, 0));
    let wrong = with_steps("- in: { pool: cpu, steps: [] }");
    assert_eq!(
        Spec::parse_for(&wrong, "order").unwrap_err().to_string(),
        error("- in: { pool: cpu, steps: [] }")
    );
    assert!(Spec::parse_for("version: 1\nservice: {}", "order").is_err());
}

#[test]
fn deep_nesting_is_refused() {
    let mut steps = "{ count: a }".to_owned();
    for _ in 0..20 {
        steps = format!("{{ lock: {{ name: a, steps: [ {steps} ] }} }}");
    }
    assert!(error(&format!("- {steps}")).contains("nested deeper"));
    for open in ["[", "{ a: ", "- "] {
        assert!(Spec::parse(&format!("version: 1\ncommon: {}", open.repeat(10_000))).is_err());
    }
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused(text in ".{0,200}") {
        let _ = Spec::parse(&text);
    }
}
