//! The seeded defects of the booking sample, live: each is found, and nothing else; the sound one is clean.

use faultscope_model::perturbation::Perturbation;
use serde::Deserialize;
use serde_json::Value;

use crate::tool;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../apps/ticketing/cases/booking");

/// A case as `expected.yaml` has it.
#[derive(Debug, Deserialize)]
struct Case {
    case: String,
    file: String,
    quick: String,
    #[serde(default)]
    defects: Vec<Vec<String>>,
}

#[track_caller]
fn found(name: &str) -> Value {
    let text = std::fs::read_to_string(format!("{FOLDER}/expected.yaml")).unwrap();
    let cases: Vec<Case> = serde_saphyr::from_str(&text).unwrap();
    let case = cases.into_iter().find(|case| case.case == name).unwrap();
    let tool = tool();
    for file in ["cells.yaml", "faultscope.yaml", &case.file] {
        tool.write(file, &std::fs::read_to_string(format!("{FOLDER}/{file}")).unwrap());
    }
    // What needs a kind that is not tried here is not found here.
    let kinds: Vec<&str> = case.quick.split(',').collect();
    let is_tried =
        |p: &String| case.quick == "usual" || kinds.iter().any(|k| p.starts_with(&format!("{k} ")));
    let mut wanted: Vec<_> = case.defects.into_iter().filter(|defect| defect.iter().all(is_tried)).collect();
    let code = i32::from(!wanted.is_empty());
    let report = tool
        .json(["resilience", &case.file, "--slots", "2", "--together", "2", "--kinds", &case.quick], code);
    let test = &report["tests"][0];
    let shown = |p: &Value| serde_json::from_value::<Perturbation>(p.clone()).unwrap().to_string();
    let names = |set: &Value| {
        let mut names: Vec<_> = set.as_array().unwrap().iter().map(shown).collect();
        names.sort();
        names
    };
    let sets = |defect: &'_ Value| -> Vec<Vec<String>> {
        let also = defect["also"].as_array().into_iter().flatten().map(names);
        std::iter::once(names(&defect["perturbations"])).chain(also).collect()
    };
    let mut found: Vec<Vec<String>> = test["defects"].as_array().unwrap().iter().flat_map(sets).collect();
    found.sort();
    wanted.sort();
    assert_eq!(found, wanted, "{report:#}");
    assert!(test["missed"].is_null(), "{report:#}");
    report
}

#[test]
fn a_sound_booking_is_clean_in_less_than_half_of_all_sets() {
    let report = found("sound");
    assert_eq!(report["verdict"]["kind"], "clean");
    let test = &report["tests"][0];
    let number = |value: &Value| value.as_u64().unwrap();
    let trials = number(&test["trials"]["neutral"]) + number(&test["trials"]["changing"]);
    let single: u64 = test["candidates"].as_object().unwrap().values().map(number).sum();
    let all = single + number(&test["trials"]["changing"]) + number(&test["trials"]["pruned"]);
    assert!(2 * trials <= all, "{trials} of {all}");
}

#[test]
fn a_consumer_that_is_not_idempotent() {
    found("consumer that is not idempotent");
}

#[test]
fn state_lost_in_a_restart() {
    found("state lost in a restart");
}

#[test]
fn a_retry_without_a_key() {
    found("retry without a key");
}

#[test]
fn a_fallback_that_hides_a_loss() {
    found("fallback that hides a loss");
}

#[test]
fn two_failures_together() {
    found("pair");
}

#[test]
fn all_at_once() {
    found("all at once");
}
