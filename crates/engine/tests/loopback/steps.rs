//! Tests that are HTTP steps.

use crate::greeter::greeter;

#[tokio::test]
async fn steps_save_and_expect() {
    let tested = greeter(
        r#"tests:
  - name: two steps
    steps:
      - { get: "http://back:8081/word", expect: { body: "^world$" } }
      - { get: "http://front:8080/hello", save: { said: said } }
      - { get: "http://front:8080/hello", expect: { status: 200, json: { said: "${said}" } } }
  - { name: no such path, http: { get: "http://front:8080/nowhere" } }
  - { name: such a path, http: { get: "http://front:8080/nowhere", expect: { status: 404 } } }
  - { name: nothing to save, http: { get: "http://front:8080/hello", save: { x: a.b } } }
  - { name: another word, http: { get: "http://front:8080/hello", expect: { json: { said: bye } } } }
"#,
    )
    .test(&[])
    .await;
    assert_eq!(
        tested.results(),
        [
            ("two steps", ""),
            ("no such path", "GET http://front:8080/nowhere: status 404"),
            ("such a path", ""),
            ("nothing to save", "GET http://front:8080/hello: the answer has no `a.b` to save"),
            ("another word", "GET http://front:8080/hello: said: `hello world` does not match `bye`"),
        ]
    );
    assert_eq!(tested.signature(), "no such path: step 1: GET http://front:8080/nowhere: status 404");
    let outputs: Vec<&str> = tested.run.evidence.tests.iter().map(|test| test.output.as_str()).collect();
    assert_eq!(outputs[1], "there is no /nowhere", "the answer that was not expected is kept");
    assert_eq!(outputs[0], r#"{"said":"hello world"}"#, "and the last one of a test that passes");
    assert_eq!(tested.run.evidence.spans, 11, "{:#?}", tested.calls());
}

#[tokio::test]
async fn a_step_that_is_never_answered_times_out_and_the_next_test_goes_on() {
    let tested = greeter(
        r#"tests:
  - { name: waits, http: { get: "http://front:8080/hang" }, within: 100ms }
  - { name: after it, http: { get: "http://front:8080/hello" } }
"#,
    )
    .test(&[])
    .await;
    assert_eq!(tested.signature(), "waits: timed out");
    assert_eq!(tested.results()[1], ("after it", ""));
}

#[tokio::test]
async fn a_failing_circumstance_shows_in_the_answer() {
    let bed = greeter(
        r#"tests: [ { name: hello, http: { get: "http://front:8080/hello", expect: { status: 200 } } } ]
failing: { config: { back: { env.BROKEN: "yes", env.OTHER: "1" } } }
"#,
    );
    let tested = bed.test(&["config back.env.OTHER"]).await;
    assert_eq!(tested.outcome(), "pass");
    let tested = bed.test(&["config back.env.BROKEN"]).await;
    assert_eq!(tested.signature(), "hello: step 1: GET http://front:8080/hello: status 502 != 200");
    assert_eq!(
        tested.calls(),
        ["test-1 -> front-1 GET /hello 502 root", "front-1 -> back-1 GET /word 503 propagated"]
    );
}

#[tokio::test]
async fn steps_say_what_an_answer_must_not_be() {
    let tested = greeter(
        r#"tests:
  - { name: nothing of it, http: { get: "http://front:8080/hello", expect: { status: 2xx, absent: [error, said.0], not: { body: bye, json: { error: ".+" } } } } }
  - { name: not 404, http: { get: "http://front:8080/nowhere", expect: { not: { status: [5xx, 404] } } } }
  - { name: said, http: { get: "http://front:8080/hello", expect: { not: { json: { said: "hello .*" } } } } }
  - { name: too much, http: { get: "http://front:8080/hello", expect: { absent: [said] } } }
"#,
    )
    .test(&[])
    .await;
    assert_eq!(
        tested.results(),
        [
            ("nothing of it", ""),
            ("not 404", "GET http://front:8080/nowhere: status 404 is excluded by `not`"),
            (
                "said",
                "GET http://front:8080/hello: said: `hello world` matches `hello .*`, which `not` excludes"
            ),
            (
                "too much",
                "GET http://front:8080/hello: the answer has `said`, which must be absent: `hello world`"
            ),
        ]
    );
}

#[tokio::test]
async fn saved_values_are_shown_but_are_not_part_of_the_signature() {
    let tested = greeter(
        r#"tests:
  - name: another
    steps:
      - { get: "http://front:8080/hello", save: { greeting: said } }
      - { get: "http://front:8080/hello?as=${slot}", expect: { json: { said: "not ${greeting}" } } }
"#,
    )
    .test(&[])
    .await;
    let shown = "GET http://front:8080/hello?as=0: said: `hello world` does not match `not hello world`";
    assert_eq!(tested.results(), [("another", shown)]);
    let signature = "another: step 2: GET http://front:8080/hello?as=${slot}: said: `hello world` does not match \
                     `not ${greeting}`";
    assert_eq!(tested.signature(), signature);
}
