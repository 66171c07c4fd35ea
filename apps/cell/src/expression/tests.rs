use std::borrow::Cow;
use std::cell::Cell;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{Expression, Found, Names};

struct Fixture {
    value: Value,
    seed: Cell<u64>,
}

impl Names for Fixture {
    fn find(&self, root: &str, field: Option<&str>) -> Found<'_> {
        match (root, field) {
            ("setting", Some("heap")) => Found::Field(Cow::Owned(json!(64))),
            _ => Found::Root(self.value.get(root).map_or(Cow::Owned(Value::Null), Cow::Borrowed)),
        }
    }

    fn random(&self) -> u64 {
        self.seed.set(self.seed.get().wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407));
        self.seed.get()
    }
}

fn fixture() -> Fixture {
    let value = json!({
        "order": { "status": "paid", "price": 100, "tags": ["a", "b"], "lines": [{"n": 2}, {"n": 3}] },
        "key": "price",
    });
    Fixture { value, seed: Cell::new(1) }
}

fn check(source: &str, expected: Value) {
    let expression = Expression::parse(source).unwrap_or_else(|error| panic!("{source}: {error}"));
    assert_eq!(expression.evaluate(&fixture()), Ok(expected), "{source}");
}

#[test]
fn values_are_computed() {
    check("1 + 2 * 3", json!(7));
    check("(1 + 2) * 3", json!(9));
    check("7 / 2", json!(3.5));
    check("8 / 2", json!(4));
    check("-3 + 1", json!(-2));
    check("10 - 3 - 2", json!(5));
    check("2s + 5ms", json!(2005));
    check("4KiB", json!(4096));
    check("order.price * 2", json!(200));
    check("order[key]", json!(100));
    check("order.lines[1].n", json!(3));
    check("order.lines[9].n", json!(null));
    check("nothing.at.all", json!(null));
    check("setting.heap + 1", json!(65));
    check("setting['heap']", json!(64));
    check("order.status == 'paid' and not false", json!(true));
    check("not order.price == 100", json!(false));
    check("1 == 1.0", json!(true));
    check("'a' < 'b' and 'a' < 1", json!(false));
    check("'b' in order.tags", json!(true));
    check("'ai' in order.status", json!(true));
    check("'status' in order", json!(true));
    check("'n' + 1", json!("n1"));
    check("{ 1 + 1 }", json!(2));
    check("[1, 'x', null]", json!([1, "x", null]));
    check("9007199254740993", json!(9_007_199_254_740_993_i64));
}

#[test]
fn functions_are_computed() {
    check("len(order.tags) + len('né')", json!(4));
    check("if(order.price > 50, 'dear', 1 / 0)", json!("dear"));
    check("concat('a', 1, null, true)", json!("a1true"));
    check("max(1, 3, 2)", json!(3));
    check("min(list(order.lines, 'n'))", json!(2));
    check("sum(order.lines, 'n')", json!(5));
    check("number('12') + number('1.5') + number('2s')", json!(2013.5));
    check("default(order.missing, 4)", json!(4));
    check("merge(order.lines[0], order.lines[1])", json!({"n": 3}));
    check("exists(order.price) and not exists(order.x)", json!(true));
    check("starts_with('order', 'or')", json!(true));
    check("hash('a') == hash('a') and hash('a') != hash('b')", json!(true));
    check("text(3)", json!("mmm"));
    check("len(uuid())", json!(36));
    check("random(3, 3)", json!(3));
    check("pick([7])", json!(7));
    check("round(2.5) + floor(2.5)", json!(5));
}

#[test]
fn nonsense_is_refused_at_its_place() {
    for (source, message) in [
        ("", "expected a value at character 0"),
        ("1 +", "expected a value at character 3"),
        ("1 2", "expected an operator or the end at character 2"),
        ("foo(1)", "there is no function `foo` at character 0"),
        ("len()", "`len` does not take 0 arguments at character 0"),
        ("'open", "the text has no end at character 1"),
        ("5parsecs", "`parsecs` is not a unit at character 8"),
        ("a..b", "expected a field at character 2"),
        ("a and and b", "unexpected `and` at character 6"),
        ("(1", "expected `)` at character 2"),
    ] {
        assert_eq!(Expression::parse(source).unwrap_err().to_string(), message, "{source}");
    }
    let deep = "(".repeat(5000);
    assert!(Expression::parse(&deep).is_err());
    assert!(Expression::parse(&"- ".repeat(500)).is_err());
    assert!(Expression::parse(&vec!["1"; 500].join("+")).is_err());
}

#[test]
fn senseless_arithmetic_is_an_error() {
    for source in ["1 / 0", "null + 1", "order * 2", "text(1MiB + 1)", "-order"] {
        assert!(Expression::parse(source).unwrap().evaluate(&fixture()).is_err(), "{source}");
    }
}

proptest! {
    #[test]
    fn any_text_is_parsed_or_refused(source in ".{0,200}") {
        if let Ok(expression) = Expression::parse(&source) {
            let _ = expression.evaluate(&fixture());
        }
    }

    #[test]
    fn any_sequence_of_tokens_is_handled(
        tokens in prop::collection::vec(prop::sample::select(vec![
            "1", "0", "2.5", "5ms", "'t'", "order", ".price", ".tags", "[", "]", "(", ")", ",", "+", "-", "*", "/",
            "%", "==", "<", "in", "and", "or", "not", "len", "max", "sum", "if", "random", "pick", "text", "null",
            "9223372036854775807",
        ]), 0..40)
    ) {
        if let Ok(expression) = Expression::parse(&tokens.join(" ")) {
            let _ = expression.evaluate(&fixture());
            expression.visit_names(&mut |_, _| {});
        }
    }

    #[test]
    fn whole_numbers_add_like_whole_numbers(a in -1_000_000_i64..1_000_000, b in -1_000_000_i64..1_000_000) {
        check(&format!("{a} + {b}"), json!(a + b));
        check(&format!("({a}) * ({b})"), json!(a * b));
        check(&format!("({a}) < ({b})"), json!(a < b));
    }
}
