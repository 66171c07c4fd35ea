use proptest::prelude::*;

use super::*;

const FILE: &str = r#"
name: shop
services:
  order: { command: [order], ports: [8080], versions: { v2: { command: [order2] } } }
  stock: { command: [stock], ports: [8081] }
  price: { command: [price], ports: [8082] }
  note: { command: [note], ports: [8083] }
simplest:
  sequence: [ { from: order, in: "POST /pay", order: [ "price GET /p", "stock PUT /s", "note POST /n", "stock PUT /s#2" ] } ]
failing:
  nodes: 3
  instances: { order: 4, stock: 2 }
  config: { order: { memory: 64MiB, env.CACHE_TTL: "300" }, stock: { memory: 128MiB } }
  versions: { order: v2 }
  sequence: [ { from: order, in: "POST /pay", order: [ "stock PUT /s#2", "note POST /n", "stock PUT /s", "price GET /p" ] } ]
constraints:
  - { if: "instance stock", then: "config order.memory" }
"#;

fn space() -> Space {
    Application::read_alone(FILE, "shop.yaml").unwrap().space().unwrap()
}

#[test]
fn secret_settings_are_not_shown() {
    let file = r#"
name: shop
services: { order: { command: [order], env: { API_TOKEN: "4711" } } }
simplest: { config: { order: { env.DB_PASSWORD: "100", env.CACHE_KEY: a } } }
failing: { config: { order: { env.DB_PASSWORD: "200", env.CACHE_KEY: b, env.API_TOKEN: "4712", env.DSN: "pg://u:pw@db/x", env.TTL: "5" } } }
"#;
    let space = Application::read_alone(file, "shop.yaml").unwrap().space().unwrap();
    let shown: Vec<_> = space.deltas.iter().map(|d| format!("{}: {} -> {}", d.name, d.from, d.to)).collect();
    assert_eq!(
        shown,
        [
            "config order.env.API_TOKEN: [redacted] -> [redacted]",
            "config order.env.CACHE_KEY: a -> b",
            "config order.env.DB_PASSWORD: [redacted] -> [redacted]",
            "config order.env.DSN: unset -> pg://[redacted]@db/x",
            "config order.env.TTL: unset -> 5",
        ]
    );
    let has_axis = |name: &str| {
        let place = space.deltas.iter().position(|delta| delta.name.ends_with(name)).unwrap();
        space.axis(place).is_some()
    };
    assert!(has_axis("TTL") && !has_axis("DB_PASSWORD") && !has_axis("API_TOKEN"));
    let failing = space.circumstance(&space.full()).unwrap();
    assert_eq!(
        failing.config.values().next().unwrap()["env.DB_PASSWORD"],
        "200",
        "trials get the value itself"
    );
}

#[test]
fn lists_every_delta() {
    let listed: Vec<_> = space().deltas.iter().map(|d| (d.rank, d.name.clone())).collect();
    insta::assert_debug_snapshot!(listed.iter().map(|(r, n)| format!("{r} {n}")).collect::<Vec<_>>(), @r#"
    [
        "1 node",
        "2 instance order",
        "3 instance stock",
        "7 sequence order POST /pay: price GET /p / stock PUT /s",
        "5 sequence order POST /pay: note POST /n / price GET /p",
        "4 sequence order POST /pay: price GET /p / stock PUT /s#2",
        "8 sequence order POST /pay: note POST /n / stock PUT /s",
        "6 sequence order POST /pay: stock PUT /s / stock PUT /s#2",
        "9 sequence order POST /pay: note POST /n / stock PUT /s#2",
        "12 config order.env.CACHE_TTL",
        "10 config order.memory",
        "11 config stock.memory",
        "13 version order",
    ]
    "#);
}

#[test]
fn ends_are_simplest_and_failing() {
    let application = Application::read_alone(FILE, "shop.yaml").unwrap();
    let space = application.space().unwrap();
    assert_eq!(space.circumstance(&DeltaSet::new()).unwrap(), application.simplest);
    assert_eq!(space.circumstance(&space.full()).unwrap(), application.failing);
}

/// A captured order is rarely the reverse of the order in which calls are made.
fn partly_reversed() -> Application {
    let text = FILE.replace(
        "\"stock PUT /s#2\", \"note POST /n\", \"stock PUT /s\", \"price GET /p\"",
        "\"stock PUT /s#2\", \"price GET /p\", \"note POST /n\", \"stock PUT /s\"",
    );
    Application::read_alone(&text, "shop.yaml").unwrap()
}

#[test]
fn an_order_that_is_partly_reversed_is_the_failing_one() {
    let application = partly_reversed();
    let space = application.space().unwrap();
    assert_eq!(space.circumstance(&space.full()).unwrap(), application.failing);
    assert_eq!((space.deltas.len(), space.full().len()), (13, 11), "two pairs keep their order");
}

#[test]
fn the_failing_order_stays_when_the_request_order_becomes_known() {
    let is_simplest =
        |line: &&str| line.starts_with("simplest:") || line.contains("/p\", \"stock PUT /s\", \"note");
    let text: String =
        FILE.lines().filter(|line| !is_simplest(line)).map(|line| format!("{line}\n")).collect();
    let application = Application::read_alone(&text, "shop.yaml").unwrap();
    let space = application.space().unwrap();
    let failing = application.failing.sequence[0].order.clone();
    for turn in 0..failing.len() {
        let mut seen = failing.clone();
        seen.rotate_left(turn);
        let learnt = space.clone().with_request_order(0, &seen);
        assert_eq!(learnt.circumstance(&learnt.full()).unwrap(), application.failing);
        assert_eq!(learnt.circumstance(&DeltaSet::new()).unwrap().sequence[0].order, seen);
    }
}

#[test]
fn sets_are_named_outside_of_their_space() {
    let space = space();
    let full = space.full();
    let treatment = space.treatment(&full);
    assert_eq!(treatment.size(), full.len());
    assert_eq!(space.set_of(&treatment), Some(full.clone()));
    assert_eq!(space.set_of(&space.treatment(&DeltaSet::new())), Some(DeltaSet::new()));
    let other = Treatment::of_deltas(["instance nobody".to_owned()].into());
    assert_eq!(space.set_of(&other), None, "it is of another space");
    let numbered = |numbers: &DeltaSet| Treatment::Numbered { numbers: numbers.clone() };
    assert_eq!(space.set_of(&numbered(&full)), Some(full));
    assert_eq!(space.set_of(&numbered(&[999].into_iter().collect())), None);
}

#[test]
fn needs_are_closed() {
    let space = space();
    let at = |name: &str| space.deltas.iter().position(|d| d.name == name).unwrap();
    let closed = space.close(&[at("instance stock")].into_iter().collect()).unwrap();
    assert!(closed.contains(at("config order.memory")));
}

#[test]
fn exclusion_is_refused() {
    let text = format!("{FILE}  - {{ not: [\"instance order\", \"instance stock\"] }}\n");
    let error = Application::read_alone(&text, "shop.yaml").unwrap_err();
    assert!(error.to_string().contains("the failing circumstance itself breaks it"), "{error}");
}

#[test]
fn unknown_constraint_names_the_nearest_delta() {
    let text = FILE.replace("if: \"instance stock\"", "if: \"instance stok\"");
    let error = Application::read_alone(&text, "shop.yaml").unwrap_err();
    assert_eq!(error.hint.as_deref(), Some("did you mean `instance stock`?"));
    assert_eq!(error.line, Some(17));
}

proptest! {
    /// What is between simplest and failing stays between them.
    #[test]
    fn closing_leads_no_further_than_the_failing_order(bits in proptest::collection::vec(any::<bool>(), 13)) {
        let space = partly_reversed().space().unwrap();
        let full = space.full();
        let asked: DeltaSet = full.iter().zip(&bits).filter(|(_, on)| **on).map(|(d, _)| d).collect();
        let closed = space.close(&asked).unwrap();
        prop_assert!(closed.is_subset(&full), "{} of {}", closed, full);
    }

    /// Every set of pairs closes to the inversions of exactly one order, which holds the asked ones.
    #[test]
    fn every_set_of_pairs_is_an_order(bits in proptest::collection::vec(any::<bool>(), 6)) {
        let space = space();
        let pairs: Vec<usize> = (0..space.deltas.len())
            .filter(|&d| space.deltas[d].dimension == Dimension::Sequence)
            .collect();
        let asked: DeltaSet = pairs.iter().zip(&bits).filter(|(_, on)| **on).map(|(d, _)| *d).collect();
        let closed = space.close(&asked).unwrap();
        prop_assert!(asked.is_subset(&closed));
        prop_assert_eq!(space.close(&closed).unwrap(), closed.clone());
        let order = &space.circumstance(&asked).unwrap().sequence[0].order;
        let base = &space.series[0].calls;
        let place = |call: &CallName| order.iter().position(|c| c == call).unwrap();
        for i in 0..base.len() {
            for j in i + 1..base.len() {
                let inverted = place(&base[i]) > place(&base[j]);
                prop_assert_eq!(inverted, closed.contains(space.pair(0, i, j).unwrap()));
            }
        }
    }
}
