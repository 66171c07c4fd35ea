//! Messages for mistakes in an application file: each names file, line, key and what would be valid.

use insta::assert_snapshot;

use super::Application;

/// The message for a file, as a terminal shows it.
#[track_caller]
fn complaint(text: &str) -> String {
    let error = Application::read_alone(text, "faultscope.yaml").unwrap_err();
    let hint = error.hint.as_ref().map(|hint| format!("\n\nhint: {hint}")).unwrap_or_default();
    format!("error: {error}{hint}")
}

#[test]
fn not_yaml() {
    assert_snapshot!(complaint("services:\n  one: { command: [\n"), @"error: faultscope.yaml:2: unclosed bracket '['");
}

#[test]
fn an_unknown_key_of_a_service() {
    assert_snapshot!(complaint("services:\n  one:\n    command: [a]\n    porst: [80]\n"), @"
    error: faultscope.yaml:4: porst: unknown key

    hint: did you mean `ports`?
    ");
}

#[test]
fn an_unknown_key_far_from_all() {
    assert_snapshot!(complaint("services:\n  one: { command: [a] }\ntests:\n  - { name: x, zzzzzzzz: 1 }\n"), @"
    error: faultscope.yaml:4: zzzzzzzz: unknown key

    hint: valid here: `name`, `run`, `http`, `steps`, `discover`, `list`, `each`, `failure`, `degraded`, `input`, `directory`, `env`, `within`
    ");
}

#[test]
fn an_unknown_protocol() {
    assert_snapshot!(complaint("services:\n  one: { command: [a], ports: [1], protocol: htpp }\n"), @"
    error: faultscope.yaml:2: htpp: unknown value

    hint: did you mean `http`?
    ");
}

#[test]
fn no_services() {
    assert_snapshot!(complaint("name: x\n"), @"error: faultscope.yaml: services: an application has at least one service");
}

#[test]
fn a_service_without_a_command() {
    assert_snapshot!(complaint("services:\n  one: { ports: [80] }\n"), @r#"
    error: faultscope.yaml:2: services.one: a service has a `command`, an `image` or a `build`

    hint: command: ["python3", "order.py"]
    "#);
}

#[test]
fn a_port_out_of_range() {
    assert_snapshot!(complaint("services:\n  one:\n    command: [a]\n    ports: [80000]\n"), @"error: faultscope.yaml:4: services.one.ports: a port lies between 1 and 65535");
}

#[test]
fn a_key_that_is_there_twice() {
    assert_snapshot!(complaint("services: { a: { command: [a] } }\ntests: []\ntests: []\n"), @"error: faultscope.yaml:3: duplicate mapping key: tests");
}

#[test]
fn a_map_where_a_list_belongs() {
    assert_snapshot!(complaint("services:\n  a:\n    command: { python3: a.py }\n"), @"error: faultscope.yaml:3: services.a.command: invalid type: map, expected a command, as a list of words or as one line");
    assert_snapshot!(complaint("services:\n  a:\n    command: python3 'a.py\n"), @"error: faultscope.yaml:3: services.a.command: a single quote is not closed");
}

#[test]
fn a_limit_without_a_unit() {
    assert_snapshot!(
        complaint("services:\n  a: { command: a }\nfailing: { config: { a: { memory: 64 } } }\n"), @"
    error: faultscope.yaml:3: failing.config.a.memory: no process runs in 64 bytes

    hint: memory: 64MiB
    ");
}

#[test]
fn a_service_that_is_not_there() {
    assert_snapshot!(
        complaint("services:\n  order: { command: [a] }\nfailing:\n  instances:\n    oder: 3\n"), @"
    error: faultscope.yaml:5: failing.instances.oder: there is no service `oder`

    hint: did you mean `order`?
    ");
}

#[test]
fn services_that_wait_for_one_another() {
    assert_snapshot!(
        complaint("services:\n  a: { command: [a], after: [b] }\n  b: { command: [b], after: [a] }\n"), @"error: faultscope.yaml:2: services.a.after: these wait for one another to start: a, b");
}

#[test]
fn a_duration_without_sense() {
    assert_snapshot!(
        complaint("services:\n  a:\n    command: [a]\n    ports: [80]\n    ready: { within: soon }\n"), @"error: faultscope.yaml:5: services.a.ready.within: `soon` is not a duration; write it like `250ms` or `10s`");
}

#[test]
fn two_tests_with_one_name() {
    assert_snapshot!(
        complaint("services: { a: { command: [a] } }\ntests:\n  - { name: x, run: [a] }\n  - { name: x, run: [b] }\n"), @"error: faultscope.yaml:4: tests.1.name: two tests are called `x`");
}

#[test]
fn a_test_with_nothing_to_do() {
    assert_snapshot!(complaint("services: { a: { command: [a] } }\ntests:\n  - name: x\n"), @"error: faultscope.yaml:3: tests.0: a test has just one of `run`, `http`, `steps`, or `discover`");
}

#[test]
fn an_invalid_failure_pattern() {
    assert_snapshot!(
        complaint("services: { a: { command: [a] } }\ntests:\n  - name: x\n    run: [a]\n    failure: \"(\"\n"), @"error: faultscope.yaml:5: tests.0.failure: not a regular expression: error: unclosed group");
}

#[test]
fn junit_without_a_place_for_the_report() {
    assert_snapshot!(complaint("services: { a: { command: [a] } }\ntests:\n  - { discover: junit, run: [a] }\n"), @"error: faultscope.yaml:3: tests.0: `discover: junit` needs `{out}` in `run`, the file of the report");
    assert_snapshot!(complaint("services: { a: { command: [a] } }\ntests:\n  - { discover: lines, list: [a] }\n"), @"error: faultscope.yaml:3: tests.0: it needs `list`, which prints the cases, and `each`, which runs one of them");
    assert_snapshot!(complaint("services: { a: { command: [a] } }\ntests:\n  - { discover: cargo, each: [a] }\n"), @"error: faultscope.yaml:3: tests.0: `each` needs `{case}`, or `{class}` and `{name}`, to run just one");
    assert_snapshot!(complaint("services: { a: { command: [a] } }\ntests:\n  - { discover: nose }\n"), @"error: faultscope.yaml:3: tests.0: `discover` is one of `junit`, `cargo`, `pytest`, `lines`");
}

#[test]
fn an_invalid_memory_limit() {
    assert_snapshot!(
        complaint("services:\n  a: { command: [a] }\nfailing:\n  config:\n    a:\n      memory: lots\n"), @"
    error: faultscope.yaml:6: failing.config.a.memory: `lots` is not a size

    hint: memory: 64MiB
    ");
}

#[test]
fn a_configuration_item_nobody_knows() {
    assert_snapshot!(complaint("services:\n  a: { command: [a] }\nfailing:\n  config:\n    a: { memroy: 1MiB }\n"), @"
    error: faultscope.yaml:5: failing.config.a.memroy: unknown configuration item

    hint: did you mean `memory`?
    ");
}

#[test]
fn an_order_of_one_call() {
    assert_snapshot!(
        complaint("services:\n  a: { command: [a] }\nfailing:\n  sequence:\n    - { from: a, in: GET /x, order: [a GET /y] }\n"), @"error: faultscope.yaml:5: failing.sequence.0: an order has at least two calls");
}

#[test]
fn a_constraint_on_a_delta_that_is_not_there() {
    assert_snapshot!(
        complaint(
            "services:\n  a: { command: [a] }\nfailing: { instances: { a: 2 } }\nconstraints:\n  - { if: instance a, then: instance b }\n"
        ), @"
    error: faultscope.yaml:5: constraints.0: there is no delta `instance b`

    hint: did you mean `instance a`?
    ");
}

#[test]
fn an_input_that_has_no_place() {
    let of = |test: &str| complaint(&format!("services: {{ a: {{ command: [a] }} }}\ntests:\n  - {test}\n"));
    assert_snapshot!(of(r#"{ name: x, run: [sh, x], input: { file: orders.json, format: json } }"#), @"error: faultscope.yaml:3: tests.0.input: `{input}` in `run` or `env` says where the path of the file goes");
    assert_snapshot!(of(r#"{ name: x, input: a.json, http: { get: "http://a/" } }"#), @"error: faultscope.yaml:3: tests.0.input: only a test with `run` has an `input`; steps are their own");
}

#[test]
fn an_expectation_that_no_answer_meets() {
    let of = |step: &str| {
        complaint(&format!(
            "services: {{ a: {{ command: [a], ports: [80] }} }}\ntests:\n  - name: x\n    steps:\n      - get: http://a/\n{step}\n"
        ))
    };
    assert_snapshot!(of("        expect:\n          status: 200\n          not: { status: 200 }"), @"error: faultscope.yaml:8: tests.0.steps.0.expect.not.status: `status: 200` and this exclude each other");
    assert_snapshot!(of("        expect:\n          status: 2x"), @"error: faultscope.yaml:7: tests.0.steps.0.expect.status: `2x` is not a status; write `200`, `2xx`, or a list of them");
    assert_snapshot!(of("        expect:\n          absent: [order]\n        save: { id: order.id }"), @"error: faultscope.yaml:7: tests.0.steps.0.expect.absent: `order` is absent, but `save` takes a value from `order.id`");
    assert_snapshot!(of("        expect:\n          not: { json: { e: '(' } }"), @"error: faultscope.yaml:6: tests.0.steps.0.expect: not a regular expression: error: unclosed group");
    assert_snapshot!(of("        expect:\n          not: { sttaus: 500 }"), @"
    error: faultscope.yaml:7: sttaus: unknown key

    hint: did you mean `status`?
    ");
}

#[test]
fn a_name_in_a_key_that_no_step_saves() {
    for step in [
        "json: { \"${x}\": 1 }",
        "headers: { \"X-${x}\": a }",
        "expect: { json: { \"items.${x}\": a } }",
        "expect: { headers: { \"x-${x}\": a } }",
        "expect: { absent: [\"${x}\"] }",
        "expect: { not: { json: { a: \"${x}\" } } }",
        "save: { y: \"items.${x}\" }",
    ] {
        let text = format!(
            "services: {{ a: {{ command: [a], ports: [80] }} }}\ntests:\n  - {{ name: x, http: {{ post: http://a/, {step} }} }}\n"
        );
        let wanted = "faultscope.yaml:3: tests.0.steps.0: no earlier step saves `x`; write `$${x}` to send it as it is";
        assert_eq!(
            Application::read_alone(&text, "faultscope.yaml").unwrap_err().to_string(),
            wanted,
            "{step}"
        );
    }
}
