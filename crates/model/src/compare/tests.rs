use super::*;
use crate::DeltaSet;
use crate::application::Expansion;
use crate::ids::SlotId;

const GOOD: &str = r#"
name: shop
services:
  order: { command: ["python3", "order.py"], ports: [8080], env: { TTL: "30", MODE: fast, OLD: "1" } }
  stock: { image: "shop/stock:1.0", ports: [8081] }
  mail: { command: ["mail"], ports: [8082], env: { FROM: a } }
tests: [ { name: list, http: { get: "http://order:8080/orders" } } ]
failing:
  instances: { stock: 2 }
  config: { order: { memory: 256MiB } }
"#;

const BAD: &str = r#"
name: shop
services:
  order: { command: ["python3", "order2.py"], ports: [8080, 8090], env: { TTL: "300", MODE: fast } }
  stock: { image: "shop/stock:1.1", ports: [8081], balance: { mode: random } }
  cache: { command: ["cache"], ports: [8083] }
tests: [ { name: list, http: { get: "http://order:8080/orders" } } ]
failing:
  nodes: 2
  instances: { stock: 4, cache: 2 }
  config: { order: { memory: 64MiB, cpu: 0.5 } }
"#;

fn read(text: &str) -> Application {
    Application::read_alone(text, "shop.yaml").unwrap()
}

fn describe(compared: &Compared) -> Vec<String> {
    let space = compared.application.space().unwrap();
    let mut told: Vec<_> =
        space.deltas.iter().map(|d| format!("{}: {} -> {}", d.name, d.from, d.to)).collect();
    told.sort();
    told
}

#[test]
fn every_difference_is_a_delta() {
    let compared = compare(&read(GOOD), &read(BAD)).unwrap();
    assert_eq!(
        describe(&compared),
        [
            "config order.cpu: unset -> 0.5",
            "config order.env.OLD: 1 -> unset",
            "config order.env.TTL: 30 -> 300",
            "config order.memory: 256MiB -> 64MiB",
            "instance stock: 2 -> 4",
            "node: 1 -> 2",
            "service cache: absent -> 2 instances",
            "service mail: present -> absent",
            "version order: python3 order.py -> python3 order2.py",
            "version stock: shop/stock:1.0 -> shop/stock:1.1",
        ]
    );
    assert_eq!(compared.notes, ["`balance` of `stock` differs; the bad file's is used"]);
}

#[test]
fn both_ends_are_the_two_deployments() {
    let (good, bad) = (read(GOOD), read(BAD));
    let merged = compare(&good, &bad).unwrap().application;
    let space = merged.space().unwrap();
    let expansion = Expansion { program: "tool".into(), slot: SlotId(0) };
    for (set, original) in [(DeltaSet::new(), &good), (space.full(), &bad)] {
        let got = merged.plan(&space.circumstance(&set).unwrap(), &expansion).unwrap();
        let wanted = original.plan(&original.failing, &expansion).unwrap();
        assert_eq!(got.instances.len(), wanted.instances.len());
        for instance in wanted.instances {
            let own = got.instances.iter().find(|i| i.id == instance.id).unwrap();
            assert_eq!(
                (&own.command, &own.image, &own.env, &own.limits, &own.ready),
                (&instance.command, &instance.image, &instance.env, &instance.limits, &instance.ready)
            );
        }
    }
}

#[test]
fn the_same_twice_has_no_delta() {
    let compared = compare(&read(BAD), &read(BAD)).unwrap();
    assert_eq!(describe(&compared), Vec::<String>::new());
    assert_eq!(compared.notes, Vec::<String>::new());
}

#[test]
fn what_cannot_be_laid_over() {
    let refuse = |good: &str, bad: &str| compare(&read(good), &read(bad)).unwrap_err().problem;
    let other = "services: { a: { command: [a], ports: [1] } }";
    assert_eq!(refuse(GOOD, other), "the two have no service in common");
    let grpc = BAD.replace("ports: [8081]", "ports: [{ port: 8081, protocol: grpc }]");
    assert_eq!(
        refuse(GOOD, &grpc),
        "port 8081 of `stock` speaks http in the good one and grpc in the bad one"
    );
    let alias =
        BAD.replace("cache: { command: [\"cache\"]", "cache: { aliases: [mail], command: [\"cache\"]");
    assert_eq!(refuse(GOOD, &alias), "the host name `mail` means `cache` in one and `mail` in the other");
}

#[test]
fn constraints_that_fit_are_kept() {
    let bad =
        format!("{BAD}constraints: [ {{ if: \"config order.cpu\", then: \"config order.memory\" }} ]\n");
    let good =
        format!("{GOOD}constraints: [ {{ if: \"instance stock\", then: \"config order.memory\" }} ]\n");
    let compared = compare(&read(&good), &read(&bad)).unwrap();
    assert_eq!(compared.application.constraints.len(), 2);
    let alone = bad
        .replace("cpu: 0.5", "cpu: 0.5, pids: 9")
        .replace("then: \"config order.memory\"", "then: \"config order.pids\"");
    let good = GOOD.replace("memory: 256MiB", "memory: 256MiB, pids: 9");
    let compared = compare(&read(&good), &read(&alone)).unwrap();
    assert_eq!(compared.application.constraints.len(), 0);
    assert!(
        compared.notes.iter().any(|n| n.contains("there is no delta `config order.pids`")),
        "{:?}",
        compared.notes
    );
}
