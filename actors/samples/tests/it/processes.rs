//! Perturbed runs as processes of their own, told and telling by files.

use std::path::Path;
use std::process::{Command, Output};

use faultscope_probe_format::{
    Configuration, Event, Kind, PERTURBATION_FILE, Perturbation, TRACE_FILE, read_trace,
};
use faultscope_search::resilience::{Scope, Targets};

fn start(arguments: &[&str], folder: &Path, perturbations: Vec<Perturbation>) -> (Output, Vec<Event>) {
    let (wanted, trace) = (folder.join("perturb.json"), folder.join("trace.jsonl"));
    std::fs::write(&wanted, serde_json::to_string(&Configuration::new(perturbations)).unwrap()).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_faultscope-actor-samples"))
        .args(arguments)
        .env(PERTURBATION_FILE, &wanted)
        .env(TRACE_FILE, &trace)
        .output()
        .unwrap();
    let (head, events) = read_trace(&std::fs::read_to_string(&trace).unwrap()).unwrap();
    assert_eq!(head.adapter, arguments[0]);
    (output, events)
}

#[test]
fn a_process_writes_its_trace_and_applies_perturbations() {
    for framework in ["ractor", "kameo"] {
        let folder = tempfile::tempdir().unwrap();
        let arguments = [framework, "counters", "0", "25"];
        let (output, events) = start(&arguments, folder.path(), Vec::new());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let targets = Targets::new(&events, &Scope { kinds: vec![Kind::Duplicate], from_test: false });
        let faulty = targets.actor("a25").unwrap();
        let at = |c: &&faultscope_search::resilience::Candidate| c.actor == faulty;
        let one = targets.candidates.iter().find(at).unwrap().perturbation.clone();
        let (output, events) = start(&arguments, folder.path(), vec![one.clone()]);
        assert_eq!(output.status.code(), Some(1));
        assert!(String::from_utf8_lossy(&output.stderr).contains("error@[a25]"));
        assert!(events.contains(&Event::Applied { perturbation: one }));
        assert!(events.iter().any(|event| matches!(event, Event::Blame { actor, .. } if actor == "a25")));
    }
}

#[test]
fn nonsense_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("perturb.json");
    std::fs::write(&file, "nonsense").unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_faultscope-actor-samples"))
        .args(["ractor", "accumulator"])
        .env(PERTURBATION_FILE, &file)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("is not a perturbation file"));
}
