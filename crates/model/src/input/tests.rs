use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::Application;
use crate::application::TestBody;

fn set(units: impl IntoIterator<Item = usize>) -> DeltaSet {
    units.into_iter().collect()
}

fn read(format: InputFormat, text: &str) -> Input {
    Input::read(format, text).unwrap()
}

/// Reduces as the engine does, one unit at a time, with a plain predicate.
fn reduce(input: &Input, fails: impl Fn(&str) -> bool) -> String {
    let mut input = input.clone();
    assert!(fails(&input.render()));
    loop {
        let before = input.render();
        for stage in input.stages() {
            loop {
                let units = input.units(stage);
                let all: DeltaSet = set(0..units.count);
                let smaller = (0..units.count)
                    .map(|unit| {
                        let mut kept = all.clone();
                        kept.remove(unit);
                        // What needs the unit goes with it.
                        for (dependent, _) in units.needs.iter().filter(|(_, needed)| *needed == unit) {
                            kept.remove(*dependent);
                        }
                        input.keep(stage, &kept)
                    })
                    .find(|smaller| fails(&smaller.render()));
                match smaller {
                    Some(smaller) => input = smaller,
                    None => break,
                }
            }
        }
        if input.render() == before {
            return before;
        }
    }
}

#[test]
fn json_is_reduced_from_the_outside_in() {
    let orders: Vec<Value> =
        (0..20).map(|n| json!({"id": n, "lines": [{"sku": "a-b", "count": n}]})).collect();
    let text = json!({"user": {"name": "Ann", "vip": true}, "orders": orders}).to_string();
    let input = read(InputFormat::Json, &text);
    assert_eq!(input.units(Stage::Depth(1)).count, 2);
    assert_eq!(input.units(Stage::Depth(2)).count, 22);
    let small = reduce(&input, |text| {
        let json: Value = serde_json::from_str(text).unwrap();
        json["orders"].as_array().is_some_and(|o| o.iter().any(|o| o["lines"][0]["count"] == 17))
    });
    assert_eq!(small, r#"{"orders":[{"lines":[{"count":17}]}]}"#);
}

#[test]
fn strings_lose_characters_and_values_become_simple() {
    let input = read(InputFormat::Json, r#"{"a": "some; drop table", "b": 12, "c": true, "d": ""}"#);
    let small = reduce(&input, |text| text.contains(';') && text.contains("\"b\"") && text.contains("\"c\""));
    assert_eq!(small, r#"{"a":";","b":0,"c":false}"#);
}

#[test]
fn text_is_reduced_by_lines_words_and_characters() {
    let text: String = (0..500).map(|n| format!("line {n} of the log\n")).collect();
    let input = read(InputFormat::Text, &text);
    let small = reduce(&input, |text| text.lines().any(|l| l.starts_with("li") && l.contains("317")));
    assert_eq!(small, "li317");
}

#[test]
fn requests_of_a_file() {
    let text = "# first\nGET http://order:8080/orders?page=1&size=2 HTTP/1.1\nAccept: x\n\n###\n\
                POST http://order:8080/orders\nContent-Type: application/json\nX-A: b\n\n{ \"a\": [1, 2] }\n";
    let input = read(InputFormat::Http, text);
    assert_eq!(
        input.render(),
        "GET http://order:8080/orders?page=1&size=2 HTTP/1.1\nAccept: x\n\n###\n\
         POST http://order:8080/orders\nContent-Type: application/json\nX-A: b\n\n{\"a\":[1,2]}\n"
    );
    assert_eq!((input.units(Stage::Requests).count, input.units(Stage::Parts).count), (2, 6));
    let small = reduce(&input, |text| text.contains("POST") && text.contains('2') && text.contains("X-A"));
    assert_eq!(small, "POST http://order:8080/orders\nX-A: b\n\n{\"a\":[2]}\n");
}

const STEPS: &str = r#"
services: { order: { command: [a], ports: [8080] } }
tests:
  - name: book
    steps:
      - { get: "http://order:8080/warm?x=1&y=2" }
      - { post: "http://order:8080/orders", headers: { X-A: b }, json: { item: 7, note: hi }, save: { id: order.id } }
      - { get: "http://order:8080/orders/${id}", expect: { status: 200 } }
"#;

fn steps() -> Vec<Step> {
    let application = Application::read_alone(STEPS, "shop.yaml").unwrap();
    let TestBody::Steps(steps) = &application.tests[0].body else { panic!("steps") };
    steps.clone()
}

#[test]
fn steps_keep_what_later_ones_need() {
    let input = Input::from_steps(&steps()).unwrap();
    let units = input.units(Stage::Requests);
    assert_eq!(units.needs, [(2, 1)]);
    assert_eq!(units.close(&set([2])), set([1, 2]));
    let small = reduce(&input, |text| text.contains("orders/${id}") && text.contains("item"));
    assert_eq!(
        small,
        "- {\"json\":{\"item\":0},\"post\":\"http://order:8080/orders\",\"save\":{\"id\":\"order.id\"}}\n\
         - {\"expect\":{\"status\":200},\"get\":\"http://order:8080/orders/${id}\"}\n"
    );
    let kept = input.keep(Stage::Requests, &set([2]));
    let (number, name) = (kept.steps().unwrap()[0].number, &kept.steps().unwrap()[0].name);
    assert_eq!((number, name.as_str()), (3, "GET http://order:8080/orders/${id}"), "told as in the file");
}

#[test]
fn many_units_go_in_groups() {
    let text: String = (0..5000).map(|n| format!("{n}\n")).collect();
    let input = read(InputFormat::Text, &text);
    let units = input.units(Stage::Lines);
    assert_eq!((units.count, units.group), (1667, 3));
    assert_eq!(input.keep(Stage::Lines, &set([1])).render(), "3\n4\n5\n");
}

#[test]
fn hostile_inputs_are_refused() {
    let deep = format!("{}{}", "[".repeat(100), "]".repeat(100));
    assert!(Input::read(InputFormat::Json, &deep).is_err());
    let deeper = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    assert!(Input::read(InputFormat::Json, &deeper).is_err());
    assert!(Input::read(InputFormat::Text, &"x".repeat(MAX_BYTES + 1)).is_err());
    assert!(Input::read(InputFormat::Http, "nothing").is_err());
    assert!(Input::read(InputFormat::Json, "{").is_err());
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        ".{0,6}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 40, 5, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            proptest::collection::btree_map("[a-d]{1,2}", inner, 0..5)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn keeping_all_changes_nothing_and_keeping_none_leaves_none(json in any_json()) {
        let input = read(InputFormat::Json, &json.to_string());
        for stage in input.stages() {
            let units = input.units(stage);
            let same = input.keep(stage, &set(0..units.count));
            prop_assert_eq!(&same, &input);
            let none = input.keep(stage, &DeltaSet::new());
            prop_assert_eq!(none.units(stage).count, 0);
            // `false` is simpler than `true`, and longer.
            prop_assert!(stage == Stage::Values || none.render().len() <= input.render().len());
        }
    }

    #[test]
    fn each_unit_is_its_own(json in any_json(), pick in any::<prop::sample::Index>()) {
        let input = read(InputFormat::Json, &json.to_string());
        for stage in input.stages() {
            let units = input.units(stage);
            if units.count > 0 {
                let one = pick.index(units.count);
                let kept = input.keep(stage, &set([one]));
                prop_assert_eq!(kept.units(stage).count, 1, "{} {}", stage, kept.render());
            }
        }
    }

    #[test]
    fn arbitrary_text_never_panics(text in "(?s).{0,200}", format in 0_u8..3) {
        let format = [InputFormat::Json, InputFormat::Text, InputFormat::Http][usize::from(format)];
        if let Ok(input) = Input::read(format, &text) {
            for stage in input.stages() {
                let units = input.units(stage);
                let kept = input.keep(stage, &set((0..units.count).step_by(2)));
                prop_assert!(stage == Stage::Values || kept.render().len() <= input.render().len());
            }
        }
    }
}
