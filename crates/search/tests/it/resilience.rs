//! Resilience exploration on simulated actors and services: right answers in few trials.

use std::collections::BTreeSet;

use faultscope_bench::resilience::simulate::{Asserted, Defects, Mutant, System, Tree, explore};
use faultscope_bench::resilience::{Strategy, TABLE_1, Variant, cell};
use faultscope_model::perturbation::{Event, Kind};
use faultscope_model::{DeltaSet, Outcome};
use faultscope_search::Search;
use faultscope_search::resilience::{Clues, Grow, GrowOptions, Scope, Screen, ScreenOptions, Targets};
use proptest::prelude::*;

/// The paper's own systems; outside data that is not everywhere.
#[expect(clippy::print_stderr, reason = "what was left out must be said")]
fn papers() -> Option<Vec<System>> {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let path = folder.join("../../../shared/data/actor-topologies.json");
    let Ok(text) = std::fs::read_to_string(&path) else {
        eprintln!("LEFT OUT: the paper's systems are not here ({})", path.display());
        return None;
    };
    Some(System::read(&text).unwrap().into_iter().take(TABLE_1.len()).collect())
}

#[test]
fn every_strategy_needs_what_it_should() {
    // The paper's systems where they are, and drawn ones of the same sizes.
    for systems in papers().into_iter().chain([System::ten(1)]) {
        needs_what_it_should(&systems);
    }
}

fn needs_what_it_should(systems: &[System]) {
    let systems: Vec<(Kind, Mutant)> = systems.iter().map(|s| (s.kind, Mutant::new(s.clone()))).collect();
    for variant in Variant::ALL {
        let repeats = if variant == Variant::Pair { 1 } else { 2 };
        let mut means = Vec::new();
        for (number, (kind, sound)) in systems.iter().enumerate() {
            // A lost counter is seen nowhere else, so that sinks tell nothing of it.
            if variant == Variant::WeakOracle && *kind == Kind::Restart {
                continue;
            }
            let row = cell(number, sound, variant, Strategy::Default, repeats, 7);
            assert_eq!(row.right, 1.0, "{variant} in system {number}");
            means.push(row.mean);
        }
        // Single cells of few runs scatter; what is promised for every system holds for each.
        let mean = means.iter().sum::<f64>() / means.len() as f64;
        assert!(mean <= variant.goal(), "{variant}: {means:?}");
        if matches!(variant, Variant::Paper | Variant::Defects(_) | Variant::Clean) {
            assert!(means.iter().all(|&mean| mean <= variant.goal()), "{variant}: {means:?}");
        }
    }
}

#[test]
fn the_papers_strategies_need_what_it_reports() {
    for (number, system) in papers().into_iter().flatten().enumerate() {
        let sound = Mutant::new(system);
        let paper = TABLE_1[number];
        let dd = cell(number, &sound, Variant::Paper, Strategy::RtDd, 12, 1);
        assert!((dd.mean - f64::from(paper.rt_dd)).abs() <= 1.0, "rt-dd in {number}: {}", dd.mean);
        let pruned = cell(number, &sound, Variant::Paper, Strategy::RtDdO, 12, 1);
        assert!(
            (pruned.mean - f64::from(paper.rt_dd_o)).abs() <= 2.0,
            "rt-dd-o in {number}: {}",
            pruned.mean
        );
        assert_eq!((dd.right, pruned.right), (1.0, 1.0));
        let random = cell(number, &sound, Variant::Paper, Strategy::RtR, 3, 1);
        assert!(random.right == 1.0 && random.mean > dd.mean, "rt-r in {number}: {}", random.mean);
    }
}

fn chain(actors: usize) -> Targets {
    let name = |actor: usize| format!("a{actor}");
    let mut events = Vec::new();
    for actor in 0..actors {
        events.push(Event::Create { parent: None, child: name(actor), persistent: true });
    }
    for (actor, number) in (0..actors).zip(0u64..) {
        let from = if actor == 0 { String::new() } else { name(actor - 1) };
        let (to, message) = (name(actor), "Update".to_owned());
        let turn = number.checked_sub(1);
        events.push(Event::Send { from, to, message, send: number, turn, at_least_once: true, target: None });
        events.push(Event::Turn { to: name(actor), send: number, turn: number });
    }
    Targets::new(&events, &Scope::default())
}

fn failed() -> Outcome {
    use faultscope_model::outcome::{Ending, Signature};
    let signature = Signature { test: "t".into(), ending: Ending::Case, message: String::new() };
    Outcome::Fail { signature }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// Whatever minimal causes there are, every answer fails, is minimal, and the rest passes at the end.
    #[test]
    fn answers_fail_are_minimal_and_the_rest_passes(
        causes in proptest::collection::vec(proptest::collection::btree_set(0usize..38, 1..3), 0..4),
        slots in 1u16..6,
        seed: u64,
    ) {
        let targets = chain(20);
        prop_assert_eq!(targets.candidates.len(), 38);
        let causes: Vec<DeltaSet> = causes.iter().map(|cause| cause.iter().copied().collect()).collect();
        let fails = |set: &DeltaSet| causes.iter().any(|cause| cause.is_subset(set));
        let mut search = Screen::new(targets.clone(), ScreenOptions { seed, ..ScreenOptions::default() });
        let mut tried = BTreeSet::new();
        let explored = explore(&mut search, slots, 2_000, |set| {
            tried.insert(set.clone());
            (if fails(set) { failed() } else { Outcome::Pass }, Clues::default())
        });
        prop_assert!(search.is_done());
        prop_assert_eq!(tried.len() as u32, explored.trials, "nothing is tried twice");
        for cause in &explored.standing.causes {
            prop_assert!(fails(&cause.witness));
            for less in cause.witness.iter() {
                let mut smaller = cause.witness.clone();
                smaller.remove(less);
                prop_assert!(!fails(&smaller), "{} is not minimal", cause.witness);
            }
        }
        prop_assert_eq!(explored.standing.causes.is_empty(), causes.is_empty());
        prop_assert!(explored.standing.none_left);
    }

    /// A flaky defect is found, and a resumed search repeats nothing.
    #[test]
    fn resumed_searches_repeat_nothing(cause in 0usize..38, after in 1usize..6, seed: u64) {
        let targets = chain(20);
        let outcome = |set: &DeltaSet| if set.contains(cause) { failed() } else { Outcome::Pass };
        let options = ScreenOptions { seed, ..ScreenOptions::default() };
        let mut log: Vec<DeltaSet> = Vec::new();
        let mut first = Screen::new(targets.clone(), options.clone());
        explore(&mut first, 1, after as u32, |set| { log.push(set.clone()); (outcome(set), Clues::default()) });
        let mut second = Screen::new(targets, options);
        for set in &log {
            second.recall(set, &outcome(set));
        }
        let explored = explore(&mut second, 1, 500, |set| {
            assert!(!log.contains(set), "{set} is tried again");
            (outcome(set), Clues::default())
        });
        prop_assert_eq!(&explored.standing.causes[0].witness, &DeltaSet::from_iter([cause]));
    }
}

#[test]
fn growing_misses_nothing_in_half_the_trials() {
    let slots =
        [faultscope_search::SlotView { slot: faultscope_model::SlotId(0), current: None, busy: None }];
    let (mut trials, mut all) = (0, 0);
    for seed in 0..40 {
        let tree = Tree::generate(seed, 8 + seed as usize % 8, 1, 1);
        let options = GrowOptions { kinds: vec![Kind::Error, Kind::Timeout], ..GrowOptions::default() };
        let mut search = Grow::new(&tree.run(&[]).1.calls, options);
        while !search.is_done() {
            let start = search.plan(&slots, &[]).start.remove(0);
            let (outcome, clues) = tree.run(&search.perturbations(&start.set));
            search.hear(start.trial, &clues);
            search.record(start.trial, &outcome, std::time::Duration::ZERO);
            trials += 1;
        }
        all += tree.enumeration(2);
        let found: Vec<BTreeSet<_>> = search
            .standing()
            .causes
            .iter()
            .map(|cause| search.perturbations(&cause.witness).into_iter().map(|p| p.target).collect())
            .collect();
        for defect in tree.defects() {
            let defect: BTreeSet<_> = defect.into_iter().collect();
            assert!(found.contains(&defect), "seed {seed} misses {defect:?}: {found:?}");
        }
    }
    assert!(2 * trials <= all, "{trials} of {all}");
}

#[test]
fn what_could_not_be_carried_out_is_told_and_the_rest_is_still_judged() {
    let targets = chain(6);
    // The last message never comes in perturbed runs; the first one shows a defect.
    let gone = targets.candidates.len() - 1;
    let mut search = Screen::new(targets, ScreenOptions::default());
    let explored = explore(&mut search, 1, 100, |set| {
        let shown = if set.contains(0) { failed() } else { Outcome::Pass };
        if !set.contains(gone) {
            return (shown, Clues::default());
        }
        let clues = Clues { missed: [gone].into_iter().collect(), shown: Some(shown), ..Clues::default() };
        (Outcome::Unresolved { reason: "not applied".into() }, clues)
    });
    assert_eq!(explored.standing.causes[0].witness, DeltaSet::from_iter([0]));
    assert_eq!(search.unresolved(), &DeltaSet::from_iter([gone]));
    assert!(!explored.standing.none_left, "one was never carried out");
    assert!(explored.trials < 12, "{}", explored.trials);
}

#[test]
fn flaky_defects_are_found_and_sound_systems_stay_clean() {
    let system = Mutant::new(System::generate(3, 129, Kind::Duplicate));
    let mutant = system.with(Defects { actors: vec![25], ..Defects::default() }, Asserted::First);
    let mut right = 0;
    for seed in 0..20u64 {
        let options = ScreenOptions { rate: 0.3, seed, ..ScreenOptions::default() };
        let mut search = Screen::new(mutant.targets.clone(), options);
        let mut count = seed;
        let explored = explore(&mut search, 1, 1_000, |set| {
            count = count.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            // Three of ten failing runs show it.
            if (count >> 33) % 10 < 3 { mutant.run(set, count) } else { (Outcome::Pass, Clues::default()) }
        });
        let actors: Vec<usize> = explored
            .standing
            .causes
            .iter()
            .flat_map(|cause| cause.witness.iter().map(|p| mutant.targets.candidates[p].actor))
            .collect();
        right += usize::from(actors == [mutant.place(25).unwrap()]);
    }
    assert!(right >= 19, "{right} of 20");
}

#[test]
fn more_slots_need_fewer_rounds() {
    let system = Mutant::new(System::generate(4, 513, Kind::Duplicate));
    let mutant = system.with(Defects { actors: vec![25], ..Defects::default() }, Asserted::Verdict);
    let rounds = |slots: u16| {
        let mut search = Screen::new(mutant.targets.clone(), ScreenOptions::default());
        let explored = explore(&mut search, slots, 1_000, |set| mutant.run(set, 1));
        assert_eq!(explored.standing.causes.len(), 1);
        explored.rounds
    };
    assert!(rounds(6) < rounds(1), "{} and {}", rounds(6), rounds(1));
}
