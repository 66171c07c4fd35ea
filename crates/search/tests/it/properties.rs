//! What holds for every search on every oracle.

use std::collections::BTreeSet;

use faultscope_bench::debug::Strategy;
use faultscope_bench::simulate::{Durations, Oracle, Slots, read, simulate};
use faultscope_model::outcome::{Ending, Signature};
use faultscope_model::{DeltaSet, Outcome, SlotId};
use faultscope_search::Ticket;
use faultscope_search::{BayesOptions, Problem, Search, SlotView};
use proptest::prelude::*;

fn instance(n: usize, family: &str, cause: &BTreeSet<usize>, blockers: &[(usize, usize)]) -> Oracle {
    let cause: Vec<usize> =
        cause.iter().map(|delta| delta % n).collect::<BTreeSet<_>>().into_iter().collect();
    let blockers: Vec<(usize, usize)> = blockers
        .iter()
        .map(|(b, u)| (b % n, u % n))
        .filter(|(b, u)| b != u && !cause.contains(b) && !cause.contains(u))
        .collect();
    let line = format!(
        r#"{{"id":"p-0","n":{n},"k":{},"family":"{family}","failing":{cause:?},"blockers":{}}}"#,
        cause.len(),
        serde_json::to_string(&blockers).unwrap(),
    );
    Oracle::new(&read(&line).unwrap()[0])
}

fn searches(n: usize, seed: u64) -> Vec<(Strategy, Box<dyn Search + Send>)> {
    let options = BayesOptions { seed, ..BayesOptions::default() };
    Strategy::ALL.into_iter().map(|s| (s, s.search(Problem::new(n), options.clone()))).collect()
}

/// Answers trials in any order, with outcomes that follow no rule but are the same for the same set.
fn wild(search: &mut dyn Search, slots: usize, mut next: impl FnMut() -> usize, stop: usize) -> usize {
    let mut views: Vec<SlotView> =
        (0..slots).map(|slot| SlotView { slot: SlotId(slot as u16), current: None, busy: None }).collect();
    let mut running: Vec<(Ticket, DeltaSet)> = Vec::new();
    let mut seen = BTreeSet::new();
    let mut finished = 0;
    while !search.is_done() && finished < stop {
        let in_flight: Vec<Ticket> = running.iter().map(|(trial, _)| *trial).collect();
        let moves = search.plan(&views, &in_flight);
        for trial in moves.cancel {
            running.retain(|(running, _)| *running != trial);
            views.iter_mut().filter(|v| v.busy == Some(trial)).for_each(|v| v.busy = None);
        }
        for start in moves.start {
            let view = &mut views[usize::from(start.slot.0)];
            assert!(view.busy.is_none(), "starts on a busy slot");
            view.busy = Some(start.trial);
            running.push((start.trial, start.set));
        }
        if running.is_empty() {
            break;
        }
        let (trial, set) = running.swap_remove(next() % running.len());
        views.iter_mut().filter(|v| v.busy == Some(trial)).for_each(|v| v.busy = None);
        assert!(seen.insert(set.clone()), "{set} is tried again");
        let signature = Signature { test: "t".into(), ending: Ending::Code(1), message: String::new() };
        let outcome = match next() % 4 {
            0 => Outcome::Fail { signature },
            1 => Outcome::Pass,
            _ => Outcome::Unresolved { reason: "odd".into() },
        };
        search.record(trial, &outcome, std::time::Duration::ZERO);
        finished += 1;
    }
    finished
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]

    /// With one cause every search finds exactly that, on any number of slots.
    #[test]
    fn one_cause_is_found_at_any_number_of_slots(
        n in 1usize..60,
        cause in proptest::collection::btree_set(0usize..1000, 1..6),
        unresolved: bool,
        seed: u64,
    ) {
        let oracle = instance(n, if unresolved { "unres" } else { "mono" }, &cause, &[]);
        let answer: DeltaSet = cause.iter().map(|delta| delta % n).collect();
        for slots in [1, 5, 12] {
            for (strategy, mut search) in searches(n, seed) {
                let run = simulate(&mut *search, &oracle, &Slots::new(slots, Durations::Lognormal(seed)), 5_000);
                prop_assert_eq!(run.misconduct, None);
                prop_assert_eq!(&run.standing.best, &answer, "{} on {} slots", strategy, slots);
                prop_assert!(search.is_done());
            }
        }
    }

    /// With masked failures the answer still fails, and no set with one delta less does.
    #[test]
    fn answers_fail_and_are_minimal_without_monotony(
        n in 4usize..40,
        cause in proptest::collection::btree_set(0usize..1000, 1..4),
        blockers in proptest::collection::vec((0usize..1000, 0usize..1000), 0..3),
        slots in 1usize..13,
        seed: u64,
    ) {
        let oracle = instance(n, "nonmono", &cause, &blockers);
        for (strategy, mut search) in searches(n, seed) {
            let run = simulate(&mut *search, &oracle, &Slots::new(slots, Durations::Unit), 5_000);
            prop_assert_eq!(run.misconduct, None);
            prop_assert!(oracle.is_one_minimal(&run.standing.best), "{}: {}", strategy, run.standing.best);
        }
    }

    /// Whatever the outcomes are, a search ends, tries no set twice and starts nothing on a busy slot.
    #[test]
    fn every_pattern_of_outcomes_ends(n in 1usize..16, slots in 1usize..6, seed: u64, picks: Vec<u16>) {
        for (_, mut search) in searches(n, seed) {
            let mut place = 0;
            let next = || {
                place += 1;
                usize::from(picks.get(place % picks.len().max(1)).copied().unwrap_or(2)) + place / 7
            };
            let finished = wild(&mut *search, slots, next, 3_000);
            prop_assert!(search.is_done(), "after {} trials", finished);
        }
    }

    /// A search that is stopped names a set that it has seen fail, or the whole.
    #[test]
    fn stopping_gives_the_best_so_far(
        n in 8usize..60,
        cause in proptest::collection::btree_set(0usize..1000, 1..4),
        stop in 0u32..30,
    ) {
        let oracle = instance(n, "mono", &cause, &[]);
        for (_, mut search) in searches(n, 1) {
            let run = simulate(&mut *search, &oracle, &Slots::new(3, Durations::Unit), stop);
            prop_assert!(oracle.fails(&run.standing.best));
        }
    }

    /// The same seed and the same answers make the same choices.
    #[test]
    fn the_same_seed_makes_the_same_choices(n in 8usize..60, a in 0usize..60, seed: u64) {
        let oracle = instance(n, "mono", &[a].into_iter().collect(), &[]);
        let once = || {
            let mut search = Strategy::Bayes.search(
                Problem::new(n),
                BayesOptions { seed, ..BayesOptions::default() },
            );
            let run = simulate(&mut *search, &oracle, &Slots::new(4, Durations::Lognormal(3)), 500);
            (run.finished, run.started, run.makespan.to_bits())
        };
        prop_assert_eq!(once(), once());
    }
}

#[test]
fn all_unresolved_ends() {
    for n in [1, 2, 15, 40] {
        for (strategy, mut search) in searches(n, 1) {
            wild(&mut *search, 3, || 2, 5_000);
            assert!(search.is_done(), "{strategy} of {n}");
            assert_eq!(search.standing().best.len(), n);
        }
    }
}
