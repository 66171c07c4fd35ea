//! The searches on simulated slots: each answers with the cause, whatever the number of slots.

use faultscope_search::simulate::{Durations, Oracle, read, simulate};
use faultscope_search::{Bayes, BayesOptions, Ddmin, DdminPar, Problem, Search};

const INSTANCES: &str = r#"
{"id":"one","n":36,"k":1,"family":"mono","failing":[17]}
{"id":"pair","n":20,"k":2,"family":"mono","failing":[3,14]}
{"id":"four","n":43,"k":4,"family":"mono","failing":[2,9,30,41]}
{"id":"half","n":20,"k":2,"family":"unres","failing":[5,6]}
"#;

fn check(make: impl Fn(Problem) -> Box<dyn Search>) {
    for instance in read(INSTANCES.trim()).unwrap() {
        for slots in [1, 4, 12] {
            let mut search = make(Problem::new(instance.n));
            let oracle = Oracle::new(&instance);
            let run = simulate(&mut *search, &oracle, Durations::Unit, slots, 1000);
            assert!(search.is_done(), "{} with {slots} slots", instance.id);
            assert_eq!(run.answer(), &instance.critical(), "{} with {slots} slots", instance.id);
            assert!(oracle.is_one_minimal(run.answer()));
        }
    }
}

#[test]
fn ddmin_finds_the_cause() {
    check(|problem| Box::new(Ddmin::new(problem)));
}

#[test]
fn ddmin_par_finds_the_cause() {
    check(|problem| Box::new(DdminPar::new(problem)));
}

#[test]
fn the_default_finds_the_cause() {
    check(|problem| Box::new(Bayes::new(problem, BayesOptions::default())));
}
