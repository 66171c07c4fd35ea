//! Every mutant of every sample, as a diff.

use std::collections::BTreeSet;
use std::fmt::Write;

use faultscope_mutate::{Operator, Target};

use crate::samples::SAMPLES;

/// One mutant for each operator and form is shown whole; all others by their heading, so that a new or lost place
/// shows up, too.
#[test]
fn mutants_of_samples() {
    for sample in &SAMPLES {
        let mut shown = BTreeSet::new();
        let mut text = String::new();
        for mutant in sample.mutants() {
            let form = mutant.variant.map_or_else(String::new, |form| format!(" {form}"));
            let (id, operator, line) = (&mutant.id, mutant.operator, mutant.line);
            let _ =
                writeln!(text, "{id} {operator}{form} line {line} in {} ({:?})", mutant.within, mutant.scope);
            if shown.insert((operator, mutant.variant)) {
                text.push_str(&mutant.patch.to_string());
            }
        }
        insta::assert_snapshot!(sample.path.replace('.', "_"), text);
    }
}

/// What each language must offer. MEPFL's operators are not made for Rust.
#[test]
fn every_operator_has_a_place_in_every_language() {
    for sample in SAMPLES.iter().filter(|sample| sample.path != "orders.py") {
        let mut operators: BTreeSet<Operator> =
            sample.mutants().iter().map(|mutant| mutant.operator).collect();
        if sample.path == "catalog.py" {
            operators.extend(SAMPLES[1].mutants().iter().map(|mutant| mutant.operator));
        }
        let is_code = sample.path != "faultscope.yaml";
        let target = if is_code { Target::Code } else { Target::ApplicationFile };
        let missing =
            Operator::all().filter(|operator| operator.target() == target && !operators.contains(operator));
        let missing: Vec<&str> = missing.map(Operator::id).collect();
        let wanted: &[&str] = if sample.path == "price.rs" { &["MI", "AI"] } else { &[] };
        assert_eq!(missing, wanted, "{}", sample.path);
    }
}
