//! Perturbed runs in this process.

use faultscope_actor_samples::{Faults, Framework, Sample, trial};
use faultscope_bench::resilience::simulate::{Asserted, Mutant, System, explore};
use faultscope_probe_format::Kind;
use faultscope_search::Search;
use faultscope_search::resilience::{RtDd, Scope, Screen, ScreenOptions, Targets};

const BOTH: [Framework; 2] = [Framework::Ractor, Framework::Kameo];

fn targets(framework: Framework, sample: &Sample, scope: &Scope) -> Targets {
    let baseline = trial(framework, sample, Vec::new()).unwrap();
    assert_eq!(baseline.wrong, [], "the unperturbed test passes");
    Targets::new(&baseline.events, scope)
}

#[test]
fn the_listing_does_not_tolerate_duplicates_but_its_repair_does() {
    for framework in BOTH {
        let sample = Sample::Accumulator { repaired: false };
        let found = targets(framework, &sample, &Scope::default());
        let duplicates = found.candidates.iter().filter(|c| c.perturbation.kind == Kind::Duplicate);
        assert_eq!(duplicates.count(), 10, "{framework:?}");
        let mut search = Screen::new(found.clone(), ScreenOptions::default());
        let explored = explore(&mut search, 1, 100, |set| {
            trial(framework, &sample, found.perturbations(set)).unwrap().judged(&found, Asserted::First)
        });
        let first = &explored.standing.causes[0].witness;
        let names: Vec<String> = found.perturbations(first).iter().map(ToString::to_string).collect();
        assert_eq!(first.len(), 1);
        assert!(
            names[0].starts_with("duplicate gda.Plus") && names[0].ends_with("accumulator.Count"),
            "{names:?}"
        );
        let repaired = Sample::Accumulator { repaired: true };
        let all = targets(framework, &repaired, &Scope::default());
        let clean = trial(framework, &repaired, all.perturbations(&all.full())).unwrap();
        assert_eq!((clean.wrong, clean.missed), (vec![], vec![]), "{framework:?}");
    }
}

#[test]
fn generated_systems_are_as_the_model_says() {
    for framework in BOTH {
        for number in [0, 3] {
            let system = System::ten(1).swap_remove(number);
            let sample = Sample::Counters(system.clone(), Faults::default());
            let scope = Scope { kinds: vec![system.kind], from_test: false };
            let real = targets(framework, &sample, &scope);
            let model = Mutant::new(system.clone()).targets;
            let mut names = [real.perturbations(&real.full()), model.perturbations(&model.full())];
            names.iter_mut().for_each(|names| names.sort());
            assert_eq!(names[0], names[1], "{framework:?} {number}");
            let all = trial(framework, &sample, names[0].clone()).unwrap();
            assert_eq!((all.wrong, all.missed), (vec![], vec![]), "a sound system bears everything");
        }
    }
}

#[test]
fn defects_are_found_on_real_actors() {
    for framework in BOTH {
        for (number, faulty) in [(0, 25), (3, 45)] {
            let system = System::ten(1).swap_remove(number);
            let sample = Sample::Counters(system.clone(), Faults::at([faulty]));
            let scope = Scope { kinds: vec![system.kind], from_test: false };
            let targets = targets(framework, &sample, &scope);
            let mut run = |set: &faultscope_model::DeltaSet| {
                trial(framework, &sample, targets.perturbations(set))
                    .unwrap()
                    .judged(&targets, Asserted::First)
            };
            let mut search = Screen::new(targets.clone(), ScreenOptions::default());
            let explored = explore(&mut search, 1, 100, &mut run);
            assert_eq!(explored.trials, 3, "screen, aim, and the clear rest");
            assert!(explored.standing.none_left);
            let cause = &explored.standing.causes[0].witness;
            let actor = cause.iter().next().map(|place| targets.candidates[place].actor);
            assert_eq!(actor, targets.actor(&format!("a{faulty}")));
            for _ in 0..20 {
                assert_eq!(run(cause).0.word(), "fail", "what was found fails again every time");
            }
            let mut pruned = RtDd::new(targets.clone(), true, 1);
            explore(&mut pruned, 1, 100, &mut run);
            assert!(pruned.is_done() && pruned.standing().causes.len() == 1);
        }
    }
}

#[test]
fn what_does_not_happen_is_missed() {
    let sample = Sample::Accumulator { repaired: true };
    for framework in BOTH {
        let nowhere =
            faultscope_probe_format::Perturbation { kind: Kind::Duplicate, target: "x.Nothing".into() };
        let missed = trial(framework, &sample, vec![nowhere.clone()]).unwrap();
        assert_eq!(missed.missed, [nowhere]);
        assert_eq!(missed.judged(&Targets::default(), Asserted::First).0.word(), "unresolved");
    }
}
