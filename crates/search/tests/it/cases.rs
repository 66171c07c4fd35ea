//! The paper's four fault cases, as `apps/ticketing` has them, answered from what is known about them.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use faultscope_model::outcome::{Ending, Signature};
use faultscope_model::{Application, DeltaSet, Outcome, SlotId, Space};
use faultscope_search::{Bayes, BayesOptions, Problem, Search, SlotView};

/// Token schemes that must change together, else another test fails.
const SCHEMES: [&str; 2] = ["config auth.env.TOKEN_SCHEME", "config dashboard.env.TOKEN_SCHEME"];

struct Case {
    file: &'static str,
    deltas: usize,
    /// The names of causes: any of them fails.
    causes: &'static [&'static [&'static str]],
    /// The most finished trials with one slot, in the mean over seeds.
    most: f64,
}

const CASES: [Case; 4] = [
    Case { file: "dd-f1.yaml", deltas: 36, causes: &[&["instance order-other"]], most: 7.0 },
    Case {
        file: "dd-f2.yaml",
        deltas: 63,
        causes: &[&["config basic.memory"], &["config order.memory"], &["config order-other.memory"]],
        most: 8.0,
    },
    Case {
        file: "dd-f3.yaml",
        deltas: 43,
        causes: &[&["sequence cancel POST /cancel: inside-payment POST /refund / \
            order-other PUT /orders/{id}/cancel"]],
        most: 12.0,
    },
    Case {
        file: "dd-f4.yaml",
        deltas: 43,
        causes: &[&[
            "instance cancel",
            "sequence cancel POST /cancel-rechecked: inside-payment POST /refund / \
             order-other PUT /orders/{id}/cancel",
        ]],
        most: 24.0,
    },
];

fn space(file: &str) -> Space {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../apps/ticketing");
    let text = std::fs::read_to_string(folder.join("cases").join(file)).unwrap();
    let base = std::fs::read_to_string(folder.join("faultscope.yaml")).unwrap();
    let load = |_: &str, _: &str| Ok((base.clone(), "faultscope.yaml".to_owned()));
    Application::read(&text, file, &load).unwrap().space().unwrap()
}

fn find(space: &Space, name: &str) -> Option<usize> {
    space.deltas.iter().position(|delta| delta.name == name)
}

/// Searches with one slot; gives the cores of the causes found and the number of trials.
fn search(space: &Arc<Space>, causes: &[DeltaSet], options: BayesOptions) -> (Vec<DeltaSet>, u32, bool) {
    let schemes: Vec<usize> = SCHEMES.iter().filter_map(|name| find(space, name)).collect();
    let mut search = Bayes::new(Problem::from_space(space), options);
    let slots = [SlotView { slot: SlotId(0), current: None, busy: None }];
    while !search.is_done() {
        let start = search.plan(&slots, &[]).start.pop().expect("a search that is not done asks");
        let half = schemes.iter().filter(|&&scheme| start.set.contains(scheme)).count() == 1;
        let outcome = if half {
            Outcome::Unresolved { reason: "another failure".into() }
        } else if causes.iter().any(|cause| cause.is_subset(&start.set)) {
            let signature = Signature { test: "t".into(), ending: Ending::Code(1), message: String::new() };
            Outcome::Fail { signature }
        } else {
            Outcome::Pass
        };
        search.record(start.trial, &outcome, Duration::ZERO);
    }
    let standing = search.standing();
    (standing.causes.into_iter().map(|cause| cause.core).collect(), standing.finished, standing.none_left)
}

#[test]
fn the_papers_cases_take_few_trials_and_are_exact() {
    for case in CASES {
        let space = Arc::new(space(case.file));
        assert_eq!(space.deltas.len(), case.deltas, "{}", case.file);
        let cause = |names: &&[&str]| -> DeltaSet {
            names.iter().map(|name| find(&space, name).unwrap_or_else(|| panic!("no {name}"))).collect()
        };
        let causes: Vec<DeltaSet> = case.causes.iter().map(cause).collect();
        let mut counts = Vec::new();
        for seed in 0..6 {
            let options = BayesOptions { seed, ..BayesOptions::default() };
            let (cores, trials, _) = search(&space, &causes, options);
            assert!(causes.contains(&cores[0]), "{} with seed {seed}: {}", case.file, cores[0]);
            counts.push(trials);
        }
        let mean = f64::from(counts.iter().sum::<u32>()) / counts.len() as f64;
        assert!(mean <= case.most, "{}: {counts:?}", case.file);
    }
}

#[test]
fn all_three_causes_of_the_second_case_are_found_and_none_is_left() {
    let space = Arc::new(space("dd-f2.yaml"));
    let mut wanted: Vec<DeltaSet> =
        CASES[1].causes.iter().map(|names| find(&space, names[0]).into_iter().collect()).collect();
    wanted.sort();
    let options = BayesOptions { all: true, ..BayesOptions::default() };
    let (mut cores, trials, none_left) = search(&space, &wanted, options);
    cores.sort();
    assert_eq!(cores, wanted);
    assert!(none_left);
    assert!(trials <= 36, "{trials} trials");
}

/// The same switches in many services: a setting that all of them share need not belong together.
#[test]
fn a_cause_across_services_that_share_all_their_settings() {
    let mut text = String::from("name: shared\nservices:\n");
    let services = 1..=8;
    for service in services.clone() {
        text += &format!("  s{service}: {{ command: [s], ports: [80] }}\n");
    }
    text += "tests: [ { name: t, run: [t] } ]\nfailing:\n  config:\n";
    for service in services {
        let items: Vec<String> = (1..=8).map(|item| format!("env.F{item}: \"on\"")).collect();
        text += &format!("    s{service}: {{ {} }}\n", items.join(", "));
    }
    let space = Arc::new(Application::read_alone(&text, "shared.yaml").unwrap().space().unwrap());
    let names = ["config s1.env.F3", "config s4.env.F7", "config s8.env.F1"];
    let cause: DeltaSet = names.iter().map(|name| find(&space, name).unwrap()).collect();
    let seeds = 10;
    let mut trials = 0;
    for seed in 1..=seeds {
        let options = BayesOptions { seed, ..BayesOptions::default() };
        let (found, took, _) = search(&space, std::slice::from_ref(&cause), options);
        assert_eq!(found, std::slice::from_ref(&cause), "seed {seed}");
        trials += took;
    }
    // log2 C(64, 3) is 15.3; 1.2 of that, three for the proof, one for the cause.
    let mean = f64::from(trials) / seeds as f64;
    assert!(mean <= 24.0, "{mean} trials");
}
