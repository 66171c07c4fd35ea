//! Stored reports, and what displays work out of them.

use faultscope_model::CampaignKind;
use std::time::Duration;

use faultscope_model::outcome::{Ending, Signature};
use faultscope_search::Proof;
use serde_json::json;

use super::Shelf;
use crate::debug::{
    Calibration, Confirmation, DebugReport, FoundCause, NamedDelta, Rest, Strategy, Trials, Verdict,
};
use crate::resilience::{Defect, ResilienceReport, TraceStep};
use crate::views::{
    CampaignReport, CauseTarget, DebugView, DefectTarget, FolderOption, ResilienceView, ViewError,
    find_report, reproduce_cause, reproduce_defect, trace_length_us,
};

fn delta(name: &str) -> NamedDelta {
    let dimension = faultscope_model::space::Dimension::Node;
    NamedDelta { name: name.into(), dimension, from: "1".into(), to: "2".into() }
}

fn cause(deltas: &[&str], witness: &[&str]) -> FoundCause {
    FoundCause {
        deltas: deltas.iter().map(|name| delta(name)).collect(),
        witness: witness.iter().map(|name| delta(name)).collect(),
        minimal: true,
        not_reduced: false,
        tied: Vec::new(),
        confirmation: Confirmation::default(),
        run: Some("dd11.7".parse().unwrap()),
        otherwise: Vec::new(),
        reproduce: None,
    }
}

fn debug_report(verdict: Verdict) -> DebugReport {
    DebugReport {
        campaign: "dd11-1".into(),
        application: "shop".into(),
        strategy: Strategy::Ddmin,
        deltas: 9,
        orders: Vec::new(),
        signature: None,
        verdict,
        calibration: None,
        searched: false,
        causes: Vec::new(),
        best: vec![delta("a"), delta("b")],
        proof: Proof::default(),
        unproven: 2,
        belief: 0.98,
        none_left: false,
        rest: None,
        difference: None,
        start: None,
        rounds: Vec::new(),
        boundaries: Vec::new(),
        input: None,
        trials: Trials::default(),
        took: Duration::ZERO,
    }
}

fn resilience_report() -> ResilienceReport {
    let test = |defects: usize| {
        json!({ "test": "pay", "verdict": { "kind": "clean" }, "seen": 3, "candidates": {}, "took": "1s",
            "defects": vec![json!({ "perturbations": [], "minimal": true, "signature": null }); defects],
            "trials": { "baseline": 2, "neutral": 3, "changing": 0, "unresolved": 2 },
            "missed": [{ "perturbation": { "kind": "error", "target": "stock GET /a" }, "why": "no_such_call" }],
            "unresolved": [
                { "reason": { "kind": "not_applied", "perturbation": { "kind": "error", "target": "stock GET /a" },
                              "why": "no_such_call" }, "trials": 1 },
                { "reason": { "kind": "described", "text": "the deployment broke" }, "trials": 1 },
            ] })
    };
    let report = json!({ "campaign": "ee22-1", "application": "shop", "strategy": "screen", "seed": 1,
        "verdict": { "kind": "clean" }, "tests": [test(2), test(1)], "took": "2s" });
    serde_json::from_value(report).unwrap()
}

#[tokio::test]
async fn the_newest_report_of_either_kind_or_the_one_that_is_named() {
    let shelf = Shelf::new();
    let error = find_report(&shelf.store(), "last").unwrap_err();
    assert_eq!(error.to_string(), "there is no finished debug campaign yet");
    let debug = shelf.campaign("dd11-1", CampaignKind::Debug, 1);
    debug.put_report(&debug_report(Verdict::Stopped)).unwrap();
    let resilience = shelf.campaign("ee22-1", CampaignKind::Resilience, 2);
    resilience.put_report(&resilience_report()).unwrap();
    drop(shelf.campaign("ff33-1", CampaignKind::Debug, 3));
    drop(shelf.campaign("ab44-1", CampaignKind::Test, 4));

    let last = find_report(&shelf.store(), "last").unwrap();
    assert!(matches!(last, CampaignReport::Resilience(_)), "a campaign that still runs is passed over");
    assert_eq!(serde_json::to_value(&last).unwrap()["campaign"], "ee22-1");
    let CampaignReport::Debug(document) = find_report(&shelf.store(), "dd").unwrap() else {
        panic!("of debug")
    };
    assert_eq!((document.report.campaign.as_str(), document.started_us), ("dd11-1", 1));
    for running in ["ff", "ab"] {
        assert!(matches!(find_report(&shelf.store(), running), Err(ViewError::NoReport(_))), "{running}");
    }
    assert!(matches!(find_report(&shelf.store(), "zz"), Err(ViewError::NotFound { .. })));
}

#[test]
fn a_stopped_search_shows_its_smallest_set_and_one_with_a_cause_does_not() {
    let here = FolderOption::default();
    for verdict in [Verdict::Stopped, Verdict::OutOfBudget] {
        let mut report = debug_report(verdict);
        let smallest = DebugView::new(&report, &here).smallest.unwrap();
        assert_eq!((smallest.deltas.len(), smallest.unproven), (2, 2));
        report.causes.push(cause(&["a"], &["a"]));
        assert_eq!(DebugView::new(&report, &here).smallest, None);
    }
    assert_eq!(DebugView::new(&debug_report(Verdict::NotReproduced), &here).smallest, None);
}

#[test]
fn only_causes_of_several_deltas_of_a_flaky_test_are_believed() {
    let mut report = debug_report(Verdict::Reduced);
    report.causes = vec![cause(&["a"], &["a"]), cause(&["b", "c"], &["b", "c", "d"])];
    let beliefs = |report: &DebugReport| -> Vec<_> {
        DebugView::new(report, &FolderOption::default()).causes.iter().map(|shown| shown.belief).collect()
    };
    assert_eq!(beliefs(&report), [None, None]);
    report.calibration = Some(Calibration { failed: 3, tried: 9, rate: 0.3 });
    assert_eq!(beliefs(&report), [None, Some(0.98)]);
}

#[test]
fn commands_lead_to_the_runs_where_they_are_stored() {
    let mut report = debug_report(Verdict::Reduced);
    report.causes = vec![cause(&["b", "c"], &["b", "c", "d"])];
    report.rest = Some(Rest::Unresolved { reason: "it hangs".into(), run: "dd11.9".parse().unwrap() });
    let view = DebugView::new(&report, &FolderOption(Some("my shop".into())));
    assert_eq!(view.causes[0].implied, 1);
    let shown = view.causes[0].show_run.as_ref().unwrap().to_string();
    assert_eq!(shown, "faultscope runs show dd11.7 --folder 'my shop'");
    let json = serde_json::to_value(&view).unwrap();
    assert_eq!(json["show_rest"], "faultscope runs show dd11.9 --folder 'my shop'");
}

#[test]
fn a_cause_is_shown_again_with_every_delta_of_its_trial() {
    let cause = cause(&["b"], &["b", "-odd name"]);
    let application = ["my shop.yaml".to_owned(), "--platform".to_owned(), "docker".to_owned()];
    let target = CauseTarget {
        verb: "test",
        application: &application,
        orders: &[],
        test: Some("it's paid"),
        tries: 1,
    };
    let stable = "faultscope test 'my shop.yaml' --platform docker --delta b '--delta=-odd name' --test 'it'\\''s paid'";
    assert_eq!(reproduce_cause(&cause, &target).to_string(), stable);
    let flaky = CauseTarget { tries: 7, ..target };
    assert_eq!(reproduce_cause(&cause, &flaky).to_string(), format!("{stable} --repeat 7 --fail-fast"));
    // A service that does not come up has no test, and `up` cannot be repeated.
    let start = CauseTarget { verb: "up", test: None, application: &[], orders: &[], tries: 7 };
    assert_eq!(reproduce_cause(&cause, &start).to_string(), "faultscope up --delta b '--delta=-odd name'");
}

#[test]
fn a_defect_is_shown_again_with_its_perturbations() {
    let mut defect =
        Defect { perturbations: vec!["error stock GET /a".parse().unwrap()], ..Defect::default() };
    let within = Some(Duration::from_secs(3));
    let target = DefectTarget {
        command: None,
        application: &["shop.yaml".into()],
        test: "pay",
        settings: &["nodes=2".into()],
        within,
    };
    let shown = "faultscope resilience shop.yaml --test pay --reproduce 'error stock GET /a' --set nodes=2";
    assert_eq!(reproduce_defect(&defect, &target).to_string(), shown);
    defect.signature =
        Some(Signature { test: "pay".into(), ending: Ending::TimedOut, message: String::new() });
    assert_eq!(reproduce_defect(&defect, &target).to_string(), format!("{shown} --within 3.0s"));
    let adapter = DefectTarget { command: Some("cargo test"), settings: &[], within: None, ..target };
    let shown = "faultscope resilience --command 'cargo test' --reproduce 'error stock GET /a'";
    assert_eq!(reproduce_defect(&defect, &adapter).to_string(), shown);
}

#[test]
fn a_resilience_report_counts_and_says_nothing_twice() {
    let report = resilience_report();
    let view = ResilienceView::new(&report);
    assert_eq!((view.defects, view.trials), (3, 10));
    let [unresolved] = view.tests[0].unresolved.as_slice() else {
        panic!("what was not applied is listed by itself: {:?}", view.tests[0].unresolved)
    };
    assert_eq!((unresolved.reason.to_string().as_str(), unresolved.trials), ("the deployment broke", 1));
    let step = |start_us, took_us| TraceStep {
        depth: 0,
        receiver: "stock".into(),
        operation: "GET /a".into(),
        ending: "200".into(),
        start_us,
        took_us,
        marks: Vec::new(),
    };
    assert_eq!(trace_length_us(&[step(0, 9), step(3, 4)]), 9);
    assert_eq!(trace_length_us(&[]), 0);
}
