//! The default search reaches its goals on a part of the instances, finds all causes and tolerates flakiness.

use faultscope_bench::debug::{Plan, Strategy, goals, rows};
use faultscope_bench::figure::Verdict;
use faultscope_bench::simulate::{Durations, Oracle, Slots, generate, read, simulate};
use faultscope_model::{DeltaSet, Outcome};
use faultscope_search::{Bayes, BayesOptions, Problem, Proof, Search, SlotView};

const INSTANCES: &str = include_str!("../data/instances.jsonl");

#[test]
fn reaches_its_goals() {
    // The whole is measured by `faultscope bench debug`; tests are not optimised.
    let cells = ["mono-15-2", "mono-36-4", "paper-F3", "multi-36-3x1"];
    let mut instances = read(INSTANCES).unwrap();
    instances.retain(|instance| cells.contains(&instance.cell()));
    let plan = Plan {
        strategies: vec![Strategy::DdminPar, Strategy::Bayes],
        slots: vec![1, 6],
        durations: vec![Durations::Unit],
        ..Plan::default()
    };
    let rows = rows(&instances, &plan, |_| ());
    for figure in goals(&rows) {
        assert!(!matches!(figure.verdict, Verdict::Missed { .. }), "{figure:?}");
    }
}

#[test]
fn answers_are_minimal_on_other_seeds() {
    for instance in generate(7, 1).into_iter().filter(|instance| instance.n <= 43) {
        let oracle = Oracle::new(&instance);
        let mut search = Bayes::new(Problem::new(instance.n), BayesOptions::default());
        let run = simulate(&mut search, &oracle, &Slots::new(4, Durations::Lognormal(instance.seed)), 2_000);
        assert!(oracle.is_one_minimal(run.answer()), "{}: {}", instance.id, run.answer());
        assert_eq!(run.misconduct, None, "{}", instance.id);
    }
}

#[test]
fn thousands_of_deltas_are_no_obstacle() {
    let line = r#"{"id":"big-0","n":10000,"k":5,"family":"mono","failing":[17,4096,5000,5001,9998]}"#;
    let instance = &read(line).unwrap()[0];
    let mut search = Bayes::new(Problem::new(instance.n), BayesOptions::default());
    let run = simulate(&mut search, &Oracle::new(instance), &Slots::new(4, Durations::Unit), 2_000);
    assert_eq!(run.answer(), &instance.critical());
    assert!(run.finished < 110, "{} trials", run.finished);
}

#[test]
fn a_pair_among_a_thousand_takes_few_trials_with_one_slot() {
    let mut trials = 0;
    for (seed, cause) in (1..).zip([[3, 700], [512, 513], [90, 991], [250, 600]]) {
        let line = format!(r#"{{"id":"pair-0","n":1000,"k":2,"family":"mono","failing":{cause:?}}}"#);
        let instance = &read(&line).unwrap()[0];
        let mut search = Bayes::new(Problem::new(1000), BayesOptions { seed, ..BayesOptions::default() });
        let run = simulate(&mut search, &Oracle::new(instance), &Slots::new(1, Durations::Unit), 2_000);
        assert_eq!(run.answer(), &instance.critical());
        trials += run.finished;
    }
    // 1.2 log2 C(1000, 2) + 3 is 25.7 in the mean; four draws scatter.
    assert!(trials <= 4 * 30, "{trials} trials");
}

#[test]
fn flaky_failures_are_told_with_confidence() {
    let instances = read(INSTANCES).unwrap();
    let mut right = 0;
    let cell: Vec<_> = instances.iter().filter(|i| i.cell() == "mono-63-2").collect();
    for (index, instance) in cell.iter().enumerate() {
        let rate = [0.8, 0.5, 0.3][index % 3];
        let options = BayesOptions { rate, seed: index as u64, ..BayesOptions::default() };
        let mut search = Bayes::new(Problem::new(instance.n), options);
        let oracle = Oracle::new(instance).flaky(rate);
        let run = simulate(&mut search, &oracle, &Slots::new(3, Durations::Unit), 1_000);
        assert!(search.is_done(), "{}", instance.id);
        right += usize::from(*run.answer() == instance.critical());
        let belief = run.standing.belief;
        assert!(
            (0.99..1.0).contains(&belief),
            "{}: {belief} for what chance could still refute",
            instance.id
        );
    }
    assert!(right + 1 >= cell.len(), "{right} of {}", cell.len());
}

#[test]
fn a_lost_trial_is_asked_for_again_and_a_resumed_search_repeats_nothing() {
    let line = r#"{"id":"a-0","n":20,"k":2,"family":"mono","failing":[3,11]}"#;
    let instance = &read(line).unwrap()[0];
    let oracle = Oracle::new(instance);
    let slots = [SlotView { slot: faultscope_model::SlotId(0), current: None, busy: None }];
    let mut first = Bayes::new(Problem::new(20), BayesOptions::default());
    let mut log: Vec<(DeltaSet, Outcome)> = Vec::new();
    let lost = first.plan(&slots, &[]).start.remove(0);
    first.lose(lost.trial);
    while log.len() < 6 {
        let start = first.plan(&slots, &[]).start.remove(0);
        let outcome = oracle.outcome(&start.set, start.trial);
        first.record(start.trial, &outcome, std::time::Duration::ZERO);
        log.push((start.set, outcome));
    }
    let mut second = Bayes::new(Problem::new(20), BayesOptions::default());
    for (set, outcome) in &log {
        second.recall(set, outcome);
    }
    while !second.is_done() {
        let start = second.plan(&slots, &[]).start.remove(0);
        assert!(!log.iter().any(|(set, _)| *set == start.set), "{} is tried again", start.set);
        second.record(start.trial, &oracle.outcome(&start.set, start.trial), std::time::Duration::ZERO);
    }
    assert_eq!(second.standing().best, instance.critical());
    assert_eq!(second.standing().proof, Proof::Minimal);
}

#[test]
fn all_independent_causes_are_found_and_none_is_left() {
    for (causes, most) in [("[[3],[30]]", 22), ("[[3],[30],[17]]", 32), ("[[3,8],[17,30],[5,22]]", 60)] {
        let line =
            format!(r#"{{"id":"all-0","n":36,"k":1,"family":"multi","failing":[3],"causes":{causes}}}"#);
        let instance = &read(&line).unwrap()[0];
        for slots in [1, 4] {
            let mut search =
                Bayes::new(Problem::new(36), BayesOptions { all: true, ..BayesOptions::default() });
            let run = simulate(&mut search, &Oracle::new(instance), &Slots::new(slots, Durations::Unit), 500);
            let mut found: Vec<Vec<usize>> =
                run.standing.causes.iter().map(|cause| cause.core.iter().collect()).collect();
            let mut wanted = instance.causes.clone();
            found.sort();
            wanted.sort();
            assert_eq!(found, wanted);
            assert!(run.standing.none_left, "the passing trial of the rest is the proof");
            assert!(slots > 1 || run.finished <= most, "{causes}: {} trials", run.finished);
        }
    }
}

#[test]
fn the_standing_says_how_far_it_is() {
    let line = r#"{"id":"a-0","n":63,"k":1,"family":"mono","failing":[40]}"#;
    let instance = &read(line).unwrap()[0];
    let oracle = Oracle::new(instance);
    let slots = [SlotView { slot: faultscope_model::SlotId(0), current: None, busy: None }];
    let mut search = Bayes::new(Problem::new(63), BayesOptions::default());
    let first = search.standing();
    assert_eq!((first.left, first.finished, first.proof), (63, 0, Proof::Given));
    let mut estimates = vec![first.remaining];
    while !search.is_done() {
        let start = search.plan(&slots, &[]).start.remove(0);
        search.record(start.trial, &oracle.outcome(&start.set, start.trial), std::time::Duration::ZERO);
        estimates.push(search.standing().remaining);
    }
    let trials = f64::from(search.standing().finished);
    // Before any trial nothing speaks against a larger cause.
    let near = trials / 2.0..=2.5 * trials;
    assert!(near.contains(&estimates[0]), "{estimates:?} for {trials} trials");
    assert_eq!(estimates.last(), Some(&0.0));
    assert_eq!(f64::from(search.standing().round), trials, "one slot, one trial in a round");
}
