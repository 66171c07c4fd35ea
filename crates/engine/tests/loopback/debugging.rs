//! Delta debugging of services that really fail: the cause, the evidence, where it starts, the smallest input.

use std::sync::atomic::{AtomicU32, Ordering};

use faultscope_engine::debug::{DebugOptions, InputEnding, Strategy, ValueBoundary, Verdict};
use faultscope_model::compare::compare;
use faultscope_model::{Application, CampaignKind};
use faultscope_platform::loopback::{Call, Ending, Instance, Loopback, Reply, Test};
use tokio_util::sync::CancellationToken;

use crate::bed::{Bed, causes, close};
use crate::greeter::{greeter, platform};

fn usual() -> DebugOptions {
    DebugOptions::default()
}

/// A cart that each instance keeps for itself: one more of them loses what is put into it.
fn cart() -> Bed {
    let platform = Loopback::new()
        .service("shop", |call: Call| async move {
            let url = "http://cart/item";
            match *call.request.method() {
                http::Method::PUT => {
                    let request = http::Request::put(url).header("content-length", 4);
                    call.client().send(request.body("ball".into()).unwrap()).await
                }
                _ => call.client().get(url).await,
            }
        })
        .service("cart", |call: Call| async move {
            let memory = call.instance.memory();
            if call.request.method() == http::Method::PUT {
                memory.set("item", String::from_utf8_lossy(call.request.body()));
            }
            memory.get("item").unwrap_or_else(|| "nothing".into())
        });
    let file = "name: cart
services:
  shop: { command: [shop], ports: [80] }
  cart: { command: [cart], ports: [80] }
tests:
  - { name: fill, steps: [ { put: \"http://shop/item\" }, { get: \"http://shop/item\", expect: { body: ball } } ] }
failing:
  nodes: 2
  instances: { cart: 2, shop: 2 }
  config: { cart: { env.A: \"1\", memory: 64MiB }, shop: { env.B: \"1\", env.C: \"1\" } }
";
    Bed::new(file, platform)
}

#[tokio::test]
async fn one_instance_too_many_is_the_cause_and_the_call_is_the_evidence() {
    let bed = cart().with(|options| options.slots = 2);
    for strategy in [Strategy::Bayes, Strategy::Ddmin, Strategy::DdminPar] {
        let report = bed.debug(DebugOptions { strategy, ..usual() }).await;
        assert_eq!(
            (report.verdict.clone(), causes(&report)),
            (Verdict::Reduced, vec![vec!["instance cart"]])
        );
        assert!(report.causes[0].minimal && report.causes[0].run.is_some(), "{strategy:?}");
        let signature = report.signature.as_ref().unwrap().to_string();
        assert!(
            signature.starts_with("fill: step 2: GET http://shop/item: the body does not match"),
            "{signature}"
        );
        let difference = report.difference.expect("evidence");
        let (failing, passing) = difference.calls();
        // The put goes to one instance and the get to the other, or both are seen at the first.
        assert!(failing.contains("-> cart-2 ") && passing.contains("-> cart-1 "), "{failing} / {passing}");
        assert_eq!(difference.without, ["instance cart"]);
        assert!(difference.failing_tree.iter().any(|call| call.differs), "{difference:#?}");
    }
}

/// The same cause makes another step fail at every other time: this failure shows in half of the runs, and nobody may
/// be told that it always does.
#[tokio::test]
async fn a_cause_that_fails_in_two_ways_is_flaky() {
    let runs = std::sync::Arc::new(AtomicU32::new(0));
    let platform = Loopback::new().service("shop", move |call: Call| {
        let runs = std::sync::Arc::clone(&runs);
        async move {
            if call.instance.env("MODE").is_none() {
                return Reply::from("fine");
            }
            let is_first = call.path() == "/one";
            let number = if is_first {
                runs.fetch_add(1, Ordering::Relaxed)
            } else {
                runs.load(Ordering::Relaxed) - 1
            };
            // Two runs with the failure that is met first, then one with the other.
            let is_broken = if number % 3 == 2 { is_first } else { !is_first };
            if is_broken { (500, "broken").into() } else { "fine".into() }
        }
    });
    let file = "name: ways
services: { shop: { command: [shop], ports: [80] } }
tests: [ { name: both, steps: [ { get: \"http://shop/one\" }, { get: \"http://shop/two\" } ] } ]
failing: { config: { shop: { env.MODE: other, env.A: \"1\", env.B: \"1\" } } }
";
    let report = Bed::new(file, platform).debug(usual()).await;
    assert_eq!(causes(&report), [["config shop.env.MODE"]], "{report:#?}");
    let calibration = report.calibration.expect("it was measured");
    assert!(calibration.rate < 0.9 && calibration.failed < calibration.tried, "{calibration:?}");
    let said = report.causes[0].confirmation.describe();
    assert!(said.contains("at the measured rate") && !said.contains("rate of 0.7"), "{said}");
}

/// `front` asks `back`, which prints what it does, a number that is never the same, and why it fails.
#[tokio::test]
async fn what_services_print_when_it_fails_is_evidence() {
    let platform = Loopback::new()
        .service("front", |call: Call| async move {
            call.instance.print(format!("{} was asked for", call.path()));
            call.client().get("http://back/word").await
        })
        .service("back", |call: Call| async move {
            call.instance.print("looking for a word");
            if call.instance.env("MODE").is_none() {
                return Reply::from("word");
            }
            // Never the same, as lines of a garbage collector are.
            static PAUSES: AtomicU32 = AtomicU32::new(0);
            let pauses = PAUSES.fetch_add(1, Ordering::Relaxed);
            call.instance.print(format!("pause of {pauses} objects"));
            call.instance.print("no column price, password=hunter2-and-more");
            let page = "<!DOCTYPE html><html><head><style>p {}</style></head><body><p>no column price</p></body></html>";
            (500, page).into()
        });
    let file = "name: printed
services:
  front: { command: [front], ports: [80] }
  back: { command: [back], ports: [80] }
tests: [ { name: word, http: { get: \"http://front/word\", expect: { status: 200 } } } ]
failing: { config: { back: { env.MODE: other, env.A: \"1\" }, front: { env.B: \"1\" } } }
";
    let report = Bed::new(file, platform).debug(usual()).await;
    assert_eq!(causes(&report), [["config back.env.MODE"]]);
    let difference = report.difference.expect("evidence");
    let [line] = &difference.printed.shown()[..] else { panic!("{:#?}", difference.printed) };
    assert!(line.starts_with("back-1 | no column price") && !line.contains("hunter2"), "{line}");
    assert!(difference.calls().0.ends_with(": 500 no column price"), "{}", difference.calls().0);
}

#[tokio::test]
async fn two_settings_together_are_the_cause() {
    let bed = Bed::new(
        "name: pair
services:
  front: { command: [pair], ports: [8080] }
  back: { command: [pair], ports: [8081] }
tests: [ { name: scheme, http: { get: \"http://front:8080/\", expect: { status: 200 } } } ]
failing:
  config:
    front: { env.SCHEME: new, env.A: \"1\", env.B: \"1\" }
    back: { env.SCHEME: new, env.C: \"1\", env.D: \"1\" }
",
        Loopback::new().service("pair", |call: Call| async move {
            let own = call.instance.env("SCHEME").unwrap_or("old").to_owned();
            if call.instance.id().service.as_str() == "back" {
                return Ok(Reply::from(own));
            }
            let other = call.client().get("http://back:8081/").await?;
            let both_new = own == "new" && other.body() == "new";
            std::io::Result::Ok(if both_new { (401, "no such scheme").into() } else { "fine".into() })
        }),
    );
    let report = bed.debug(usual()).await;
    assert_eq!(causes(&report), [["config back.env.SCHEME", "config front.env.SCHEME"]], "{report:#?}");
    let difference = report.difference.expect("evidence");
    assert_eq!(difference.without.len(), 1, "the nearest passing run lacks one of both");
}

/// `desk` debits and credits at once, the credit a whole call later; what comes first decides.
#[tokio::test]
async fn the_order_of_concurrent_calls_is_the_cause() {
    let platform = Loopback::new()
        .service("desk", |call: Call| async move {
            let client = call.client();
            let credit = async {
                client.get("http://clock/").await?;
                client.post("http://ledger/credit", "c").await
            };
            let (_, credited) = tokio::try_join!(client.post("http://ledger/debit", "d"), credit)?;
            std::io::Result::Ok(credited)
        })
        .service("clock", |_| async { "now" })
        .service("ledger", |call: Call| async move {
            let memory = call.instance.memory();
            match call.path() {
                "/debit" => memory.set("debited", "yes"),
                _ if memory.get("debited").is_none() => return Reply::from((409, "nothing was debited yet")),
                _ => {}
            }
            "done".into()
        });
    let file = "name: orders
services:
  desk: { command: [desk], ports: [80] }
  ledger: { command: [ledger], ports: [80] }
  clock: { command: [clock], ports: [80] }
tests: [ { name: book, http: { post: \"http://desk/book\", expect: { status: 200 } } } ]
failing:
  sequence: [ { from: desk, in: POST /book, order: [ledger POST /credit, ledger POST /debit] } ]
  config: { desk: { env.A: \"1\" }, ledger: { env.B: \"1\", env.C: \"1\" } }
";
    let report = Bed::new(file, platform).debug(usual()).await;
    let [cause] = &causes(&report)[..] else { panic!("{report:#?}") };
    assert_eq!(cause[..], ["sequence desk POST /book: ledger POST /credit / ledger POST /debit"]);
    let orders: Vec<String> = report.orders.iter().map(ToString::to_string).collect();
    assert_eq!(
        orders,
        ["desk POST /book: ledger POST /debit, ledger POST /credit"],
        "what the simplest run showed"
    );
    let (failing, passing) = report.difference.as_ref().expect("evidence").calls();
    assert!(failing.contains("409") && !passing.contains("409"), "{failing} / {passing}");
}

#[tokio::test]
async fn all_causes_are_found_and_none_is_left() {
    let bed = greeter(
        "tests: [ { name: hello, failure: does not match, http: { get: \"http://front:8080/hello\", expect: { body: hello world } } } ]
failing: { instances: { front: 2 }, config: { back: { env.WORD: moon, env.A: \"1\" }, front: { env.GREETING: bye } } }
",
    );
    let report = bed.debug(DebugOptions { all: true, ..usual() }).await;
    assert_eq!(causes(&report), [["config back.env.WORD"], ["config front.env.GREETING"]], "{report:#?}");
    assert!(report.none_left);
}

#[tokio::test]
async fn what_keeps_a_service_from_coming_up_is_reduced() {
    let platform = platform().on_start("back", |instance: Instance| async move {
        if instance.env("MODE") == Some("strict") && instance.env("CACHE") == Some("0") {
            instance.print("no cache, but strict");
            return Err(Ending::Exit(3));
        }
        Ok(())
    });
    let file = "name: strict
services: { front: { command: [front], ports: [8080] }, back: { command: [back], ports: [8081] } }
tests: [ { name: hello, http: { get: \"http://front:8080/hello\" } } ]
failing: { config: { back: { env.MODE: strict, env.CACHE: \"0\", env.A: \"1\" }, front: { env.B: \"1\" } } }
";
    let report = Bed::new(file, platform).debug(DebugOptions { boundary: true, ..usual() }).await;
    assert_eq!(causes(&report), [["config back.env.CACHE", "config back.env.MODE"]], "{report:#?}");
    assert_eq!(report.signature.unwrap().to_string(), "service back does not come up: exited with 3");
    let start = report.start.unwrap();
    assert_eq!(
        (start.instance.to_string(), start.last_lines.join("\n")),
        ("back-1".into(), "no cache, but strict".into())
    );
    let described: Vec<String> = report.boundaries.iter().map(ValueBoundary::describe).collect();
    assert_eq!(described, ["back.env.CACHE: fails at 0 and below, passes from 1"]);
}

/// A till whose number the test does not like from 121 on, and that takes no unlucky order from 100 on.
fn till(tests: &str, rest: &str) -> Bed {
    let platform = Loopback::new()
        .service("till", |call: Call| async move {
            let limit: u32 = call.instance.env("LIMIT").and_then(|text| text.parse().ok()).unwrap_or(30);
            match call.path() {
                "/limit" if limit >= 121 => Reply::from((500, "too much")),
                "/orders" => {
                    let body: serde_json::Value =
                        serde_json::from_slice(call.request.body()).unwrap_or_default();
                    let items = body["items"].as_array().cloned().unwrap_or_default();
                    let is_unlucky = limit >= 100 && items.contains(&13.into());
                    if is_unlucky { (500, "unlucky").into() } else { (201, "{\"id\": 7}").into() }
                }
                _ => "fine".into(),
            }
        })
        .program("import", |test: Test| async move {
            let text = std::fs::read_to_string(&test.args()[0]).map_err(|error| error.to_string())?;
            if text.contains("\"code\":\"E17") { Err("bad order".to_owned()) } else { Ok(()) }
        });
    let file = format!(
        "name: till\nservices: {{ till: {{ command: [till], ports: [8080] }} }}\ntests:\n{tests}\n{rest}\n"
    );
    Bed::new(&file, platform)
}

const LIMIT: &str = "  - { name: limit, http: { get: \"http://till:8080/limit\", expect: { status: 200 } } }";
const FAILING: &str =
    "failing: { instances: { till: 2 }, config: { till: { env.LIMIT: 300, env.OTHER: x } } }";

#[tokio::test]
async fn a_number_has_a_boundary_on_either_side_of_what_is_known() {
    let simplest = "simplest: { config: { till: { env.LIMIT: 30 } } }\n";
    for rest in [format!("{simplest}{FAILING}"), FAILING.to_owned()] {
        let bed = till(LIMIT, &rest).with(|options| options.slots = 2);
        let report = bed.debug(DebugOptions { boundary: true, ..usual() }).await;
        assert_eq!(causes(&report), [["config till.env.LIMIT"]]);
        let described: Vec<String> = report.boundaries.iter().map(ValueBoundary::describe).collect();
        assert_eq!(described, ["till.env.LIMIT: fails from 121, passes at 120 and below"]);
        assert!(report.boundaries[0].sharp);
    }
}

#[tokio::test]
async fn the_steps_of_a_test_are_reduced() {
    let order = r#"  - name: order
    steps:
      - { get: "http://till:8080/warm?a=1&b=2" }
      - { post: "http://till:8080/orders?c=3", headers: { X-A: b, X-C: d },
          json: { customer: { name: Ann, tags: [x, y] }, items: [1, 2, 3, 13, 4, 5], note: "please hurry" }, expect: { status: 201 } }
      - { get: "http://till:8080/warm" }"#;
    let bed = till(order, FAILING).with(|options| options.slots = 2);
    let report = bed.debug(DebugOptions { input: true, ..usual() }).await;
    assert_eq!(causes(&report), [["config till.env.LIMIT"]]);
    let input = report.input.expect("an input");
    assert_eq!(input.ending, InputEnding::Minimal);
    assert_eq!(
        input.text,
        "- {\"expect\":{\"status\":201},\"json\":{\"items\":[13]},\"post\":\"http://till:8080/orders\"}\n"
    );
    assert!(input.trials < 40, "{} trials", input.trials);
    let campaigns = bed.store().campaigns().unwrap();
    let kept = campaigns[0].attachment(&input.kept.expect("it is kept")).unwrap();
    assert_eq!(kept.as_deref(), Some(input.text.as_bytes()));
}

#[tokio::test]
async fn the_input_file_is_reduced_even_without_deltas() {
    let test = "  - { name: import, run: [import, \"{input}\"], input: orders.json, failure: bad order }";
    let bed = till(test, "").with(|options| options.slots = 2);
    let order =
        |n| serde_json::json!({"id": n, "code": format!("E{n}x"), "lines": [{"sku": "a", "count": n}]});
    let orders: Vec<_> = (0..40).map(order).collect();
    let path = bed.folder.path().join("orders.json");
    let text = serde_json::json!({"version": 3, "orders": orders}).to_string();
    std::fs::write(&path, &text).unwrap();
    let report = bed.debug(DebugOptions { input: true, ..usual() }).await;
    assert_eq!(report.verdict, Verdict::FailsAlready);
    let input = report.input.expect("an input");
    assert_eq!(input.text, r#"{"orders":[{"code":"E17"}]}"#);
    assert!(input.trials < 90, "{} trials", input.trials);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), text, "the file itself stays");

    // What is not of its format cannot be reduced.
    std::fs::write(&path, "{ \"code\":\"E17 not json").unwrap();
    let report = bed.debug(DebugOptions { input: true, ..usual() }).await;
    let input = report.input.expect("an input");
    assert!(
        input.describe().contains("(orders.json) cannot be reduced: it is not JSON"),
        "{}",
        input.describe()
    );
}

#[tokio::test]
async fn a_service_that_one_of_two_deployments_lacks_is_a_delta() {
    let good = "name: greeter
services: { front: { command: [front], ports: [8080] }, back: { command: [back], ports: [8081] } }
tests: [ { name: hello, http: { get: \"http://front:8080/hello\", expect: { status: 200 } } } ]
record: { tracing: off, metrics: off, secrets: drop }
";
    let bad = good.replace(", back: { command: [back], ports: [8081] }", "");
    let read = |text: &str| Application::read_alone(text, "faultscope.yaml").unwrap();
    let compared = compare(&read(good), &read(&bad)).unwrap().application;
    let bed = Bed::new(good, platform());
    let session = bed.open_for(compared, CampaignKind::Debug, None).await;
    let report =
        faultscope_engine::debug::debug(&session, &usual(), &CancellationToken::new()).await.unwrap();
    close(session).await;
    assert_eq!(causes(&report), [["service back"]]);
    let delta = &report.causes[0].deltas[0];
    assert_eq!((delta.from.as_str(), delta.to.as_str()), ("present", "absent"));
}

#[tokio::test]
async fn ends_that_are_not_as_they_should_be() {
    let of = |tests: &str, failing: &str| greeter(&format!("tests: [ {tests} ]\nfailing: {failing}\n"));
    let hello = "{ name: hello, http: { get: \"http://front:8080/hello\", expect: { body: world } } }";
    let again = "{ name: again, http: { get: \"http://front:8080/hello\" } }";
    let decoys = "{ instances: { back: 2 }, config: { back: { env.A: \"1\" } } }";
    let broken = "{ instances: { back: 2 }, config: { back: { env.BROKEN: \"1\" } } }";
    let verdict = async |bed: Bed| bed.debug(usual()).await.verdict;
    assert_eq!(verdict(of(hello, decoys)).await, Verdict::NotReproduced);
    let Verdict::OtherTestsFail { failing, .. } = verdict(of(&format!("{hello}, {again}"), broken)).await
    else {
        panic!("two tests fail")
    };
    assert_eq!(failing, ["hello", "again"]);
    assert_eq!(verdict(of(&hello.replace("body: world", "body: moon"), decoys)).await, Verdict::FailsAlready);
}
