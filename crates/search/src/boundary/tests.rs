use faultscope_model::outcome::{Ending, Signature};
use proptest::prelude::*;

use super::*;

fn fail() -> Outcome {
    Outcome::Fail {
        signature: Signature { test: "t".into(), ending: Ending::Code(1), message: String::new() },
    }
}

/// Runs a search on some slots, all trials of a plan ending before the next plan; says how many plans.
fn solve(search: &mut Boundary, slots: usize, fails: impl Fn(i64) -> Option<bool>) -> u32 {
    let mut rounds = 0;
    while !search.is_done() {
        let steps = search.plan(slots);
        assert!(!steps.start.is_empty(), "a search that is not done asks something");
        rounds += 1;
        for (trial, place) in steps.start {
            let outcome = match fails(place) {
                Some(true) => fail(),
                Some(false) => Outcome::Pass,
                None => Outcome::Unresolved { reason: "?".into() },
            };
            search.record(trial, &outcome);
        }
    }
    rounds
}

fn line(failing: i64, passing: i64) -> Line {
    Line { failing, other: Side::Passing(passing), relative: false }
}

#[test]
fn bisects_downwards_and_upwards() {
    let mut search = Boundary::new(line(64, 1024), 1);
    solve(&mut search, 1, |place| Some(place < 96));
    let found = search.found();
    assert_eq!((found.fails, found.passes, found.sharp), (95, Some(96), true));
    assert!(search.trials() <= 12, "{}", search.trials());
    let mut search = Boundary::new(line(300, 30), 1);
    solve(&mut search, 1, |place| Some(place >= 121));
    assert_eq!((search.found().fails, search.found().passes), (121, Some(120)));
}

#[test]
fn more_slots_need_fewer_rounds() {
    let rounds = |slots| solve(&mut Boundary::new(line(0, 1 << 20), 1), slots, |place| Some(place < 777_777));
    assert_eq!((rounds(1), rounds(3)), (22, 11), "the last trials look at both sides");
}

#[test]
fn gallops_where_the_passing_end_is_unknown() {
    let unknown = Line { failing: 64, other: Side::Towards(1 << 20), relative: false };
    let mut search = Boundary::new(unknown, 1);
    solve(&mut search, 1, |place| Some(place < 300));
    assert_eq!((search.found().fails, search.found().passes), (299, Some(300)));
    let mut search = Boundary::new(Line { other: Side::Towards(0), ..unknown }, 1);
    solve(&mut search, 2, |place| Some(place > 3));
    assert_eq!((search.found().fails, search.found().passes), (4, Some(3)));
}

#[test]
fn what_fails_everywhere_has_no_boundary() {
    let mut search = Boundary::new(Line { failing: 64, other: Side::Towards(500), relative: false }, 1);
    solve(&mut search, 4, |_| Some(true));
    let found = search.found();
    assert_eq!((found.fails, found.passes, found.sharp), (500, None, false));
}

#[test]
fn other_boundaries_are_noticed() {
    // Fails below 96 and again from 500 to 900.
    let mut search = Boundary::new(line(64, 1024), 1);
    solve(&mut search, 1, |place| Some(place < 96 || (500..900).contains(&place)));
    let found = search.found();
    assert!(found.sharp);
    assert!(!found.odd_fails.is_empty() || !found.odd_passes.is_empty(), "{found:?}");
}

#[test]
fn unresolved_places_lie_between() {
    let mut search = Boundary::new(line(0, 100), 1);
    solve(&mut search, 1, |place| if (40..60).contains(&place) { None } else { Some(place < 40) });
    let found = search.found();
    assert_eq!((found.fails, found.passes), (39, Some(60)));
    assert!(!found.unresolved.is_empty());
}

#[test]
fn flaky_places_pass_only_after_repeats() {
    let mut search = Boundary::new(line(0, 100), 4);
    // The third trial of a failing place fails.
    let mut counts: BTreeMap<i64, u32> = BTreeMap::new();
    while !search.is_done() {
        for (trial, place) in search.plan(2).start {
            let count = counts.entry(place).or_default();
            *count += 1;
            let outcome = if place < 30 && *count == 3 { fail() } else { Outcome::Pass };
            search.record(trial, &outcome);
        }
    }
    assert_eq!((search.found().fails, search.found().passes), (29, Some(30)));
}

#[test]
fn a_relative_scale_stops_at_two_percent() {
    let mut search = Boundary::new(Line { failing: 10, other: Side::Passing(10_000_000), relative: true }, 1);
    solve(&mut search, 1, |place| Some(place < 123_456));
    let found = search.found();
    let passes = found.passes.unwrap();
    assert!(found.fails < 123_456 && passes >= 123_456 && passes - found.fails <= 2500, "{found:?}");
    assert!(search.trials() <= 16, "{}", search.trials());
}

proptest! {
    #[test]
    fn the_boundary_is_found_at_any_number_of_slots(
        failing in 0_i64..5000, passing in 0_i64..5000, share in 0.0_f64..1.0, slots in 1_usize..8, cancel: bool,
    ) {
        prop_assume!(failing != passing);
        let (low, high) = (failing.min(passing), failing.max(passing));
        // The first place on the failing end's side of the cut fails.
        let cut = low + 1 + ((high - low - 1) as f64 * share) as i64;
        let fails = |place: i64| if failing < passing { place < cut } else { place >= cut };
        let mut search = Boundary::new(line(failing, passing), 1);
        let mut waiting: Vec<(Ticket, i64)> = Vec::new();
        while !search.is_done() {
            let steps = search.plan(slots - waiting.len());
            waiting.retain(|(trial, _)| !steps.cancel.contains(trial));
            waiting.extend(steps.start);
            if waiting.is_empty() {
                // All that ran was needless, and nothing else is to be tried.
                prop_assert!(search.is_done());
                break;
            }
            // One ends at a time, the oldest or the newest.
            let (trial, place) = if cancel { waiting.remove(0) } else { waiting.pop().unwrap() };
            search.record(trial, &if fails(place) { fail() } else { Outcome::Pass });
        }
        let found = search.found();
        let wanted = if failing < passing { (cut - 1, cut) } else { (cut, cut - 1) };
        prop_assert_eq!((found.fails, found.passes), (wanted.0, Some(wanted.1)));
        prop_assert!(found.odd_fails.is_empty() && found.odd_passes.is_empty());
        prop_assert!(search.trials() <= 5 + 16 * slots as u32);
    }
}

#[test]
fn a_place_where_chance_decides_is_not_named_as_passing() {
    // From 60 on everything passes; between 50 and 59 every other trial does.
    let mut search = Boundary::new(line(10, 100), 1).confirmed_by(5);
    let mut tries = BTreeMap::<i64, u32>::new();
    while !search.is_done() {
        for (trial, place) in search.plan(2).start {
            let count = tries.entry(place).or_default();
            *count += 1;
            let passes = place >= 60 || (place >= 50 && *count % 2 == 1);
            search.record(trial, &if passes { Outcome::Pass } else { fail() });
        }
    }
    let found = search.found();
    assert_eq!((found.passes, found.sharp), (Some(60), true), "{found:?}");
    assert!(search.passes_at(60) >= 5);
}
