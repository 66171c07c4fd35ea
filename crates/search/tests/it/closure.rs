//! Constraints between deltas and pairs of calls.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use faultscope_model::outcome::{Ending, Signature};
use faultscope_model::{DeltaSet, Outcome, SlotId};
use faultscope_search::{Bayes, BayesOptions, Ddmin, DdminPar, Problem, Search, SlotView};

fn set(deltas: &[usize]) -> DeltaSet {
    deltas.iter().copied().collect()
}

/// Three calls: 0 is the pair (1,2), 1 is (1,3), 2 is (2,3); 1 cannot be inverted alone.
fn close_pairs(asked: &DeltaSet) -> Option<DeltaSet> {
    let mut closed = asked.clone();
    if closed.contains(0) && closed.contains(2) {
        closed.insert(1);
    }
    if closed.contains(1) && !closed.contains(0) && !closed.contains(2) {
        closed.insert(0);
    }
    Some(closed)
}

fn run(search: &mut dyn Search, fails: impl Fn(&DeltaSet) -> bool) -> Vec<DeltaSet> {
    let slots = [SlotView { slot: SlotId(0), current: None, busy: None }];
    let mut tried = Vec::new();
    while !search.is_done() {
        let Some(start) = search.plan(&slots, &[]).start.pop() else {
            break;
        };
        let signature = Signature { test: "t".into(), ending: Ending::Code(1), message: String::new() };
        let outcome = if fails(&start.set) { Outcome::Fail { signature } } else { Outcome::Pass };
        search.record(start.trial, &outcome, std::time::Duration::ZERO);
        tried.push(start.set);
    }
    assert!(search.is_done());
    tried
}

#[test]
fn a_pair_is_pinned_by_the_other_smallest_order() {
    for cause in 0..3 {
        let mut search = Bayes::new(Problem::new(3).with_closure(close_pairs), BayesOptions::default());
        let tried = run(&mut search, |set| set.contains(cause));
        let standing = search.standing();
        assert_eq!(standing.causes[0].core, set(&[cause]), "{tried:?}");
        assert!(standing.causes[0].core.is_subset(&standing.causes[0].witness));
    }
}

#[test]
fn sets_that_differ_only_by_closure_are_tried_once() {
    let closed = Arc::new(Mutex::new(BTreeSet::new()));
    // Every even delta needs the odd one after it; 4 and 6 exclude one another except in the whole.
    let seen = Arc::clone(&closed);
    let problem = Problem::new(12).with_closure(move |asked| {
        let mut set = asked.clone();
        for delta in asked.iter().filter(|delta| delta % 2 == 0) {
            set.insert(delta + 1);
        }
        if set.contains(4) && set.contains(6) && set.len() < 12 {
            return None;
        }
        seen.lock().unwrap().insert(set.clone());
        Some(set)
    });
    let fails = |set: &DeltaSet| set.contains(2) && set.contains(9);
    let searches: [Box<dyn Search>; 3] = [
        Box::new(Ddmin::new(problem.clone())),
        Box::new(DdminPar::new(problem.clone())),
        Box::new(Bayes::new(problem, BayesOptions::default())),
    ];
    for mut search in searches {
        let tried = run(&mut *search, fails);
        let different: BTreeSet<_> = tried.iter().collect();
        assert_eq!(different.len(), tried.len());
        assert!(tried.iter().all(|set| closed.lock().unwrap().contains(set)));
        assert_eq!(search.standing().best, set(&[2, 3, 9]));
    }
}
