//! Looking things up by the names that people give them.

use faultscope_model::CampaignKind;
use faultscope_model::event::Event;
use serde_json::json;

use super::{Shelf, put_run, served};
use crate::views::{
    Archive, Subject, ViewError, find_campaign, find_campaign_of_run, find_last_run_of, find_run, find_trace,
};

fn run_named(shelf: &Shelf, wanted: &str) -> Result<String, ViewError> {
    find_run(&shelf.store(), wanted).map(|found| found.run.id.to_string())
}

#[tokio::test]
async fn a_run_by_its_id_its_campaign_or_last() {
    let shelf = Shelf::new();
    let (older, newer) =
        (shelf.campaign("aa11-1", CampaignKind::Test, 1), shelf.campaign("bb22-1", CampaignKind::Test, 2));
    let other = shelf.campaign_of("till", "cc33-1", CampaignKind::Test, 3);
    for number in [1, 2] {
        put_run(&older, number, &[]).await;
    }
    put_run(&newer, 1, &[]).await;
    put_run(&other, 1, &[]).await;
    for (wanted, found) in [
        ("aa11.1", "aa11.1"),
        ("a.1", "aa11.1"),
        ("aa", "aa11.2"),
        ("aa11-1", "aa11.2"),
        ("bb", "bb22.1"),
        ("last", "cc33.1"),
    ] {
        assert_eq!(run_named(&shelf, wanted).unwrap(), found, "{wanted}");
    }
    let of_shop = find_last_run_of(&shelf.store(), "last", "shop").unwrap();
    assert_eq!(of_shop.run.id.as_str(), "bb22.1");
    for (wanted, id) in [("bb22.1", "bb22-1"), ("b", "bb22-1")] {
        assert_eq!(find_campaign_of_run(&shelf.store(), wanted).unwrap().meta.id.as_str(), id);
    }
}

#[tokio::test]
async fn missing_subjects_have_typed_errors() {
    let shelf = Shelf::new();
    assert!(matches!(run_named(&shelf, "last"), Err(ViewError::Empty(Subject::Run))));
    let first = shelf.campaign("aa11-1", CampaignKind::Test, 1);
    put_run(&first, 1, &[]).await;
    drop(shelf.campaign("aa22-1", CampaignKind::Test, 2));
    // A campaign without a run is passed over by `last`, and has none to show by itself.
    assert_eq!(run_named(&shelf, "last").unwrap(), "aa11.1");
    for wanted in ["zz", "aa11.9", "aa22", "../x", ""] {
        let error = run_named(&shelf, wanted).unwrap_err();
        assert_eq!(error.to_string(), format!("there is no run `{wanted}`"));
    }
    let error = run_named(&shelf, "aa.1").unwrap_err();
    assert_eq!(error.to_string(), "`aa` begins 2 campaigns: aa11-1, aa22-1");
    let ViewError::Ambiguous { candidates, .. } = find_campaign(&shelf.store(), "a").unwrap_err() else {
        panic!("both begin with it");
    };
    assert_eq!(candidates, ["aa11-1", "aa22-1"]);
    let elsewhere = shelf.folder.path().join("elsewhere");
    let error = Archive::open(&elsewhere, Subject::Metric).unwrap_err();
    assert_eq!(error.to_string(), format!("there are no metrics at {}", elsewhere.display()));
}

#[tokio::test]
async fn damage_keeps_its_kind() {
    let shelf = Shelf::new();
    put_run(&shelf.campaign("aa11-1", CampaignKind::Test, 1), 1, &[]).await;
    std::fs::write(shelf.state().join("campaigns/aa11-1/store.sqlite"), "not a database ".repeat(100))
        .unwrap();
    let Err(ViewError::Unreadable(error)) = run_named(&shelf, "aa") else { panic!("it is damaged") };
    assert_eq!(error.kind, faultscope_store::StoreErrorKind::Damaged);
}

#[tokio::test]
async fn a_debug_campaign_is_shown_by_the_run_with_its_cause() {
    let shelf = Shelf::new();
    let campaign = shelf.campaign("dd11-1", CampaignKind::Debug, 1);
    for number in 1..=3 {
        put_run(&campaign, number, &[]).await;
    }
    campaign.put_report(&json!({ "causes": [{ "run": "dd11.2" }] })).unwrap();
    let finished = Event::CampaignFinished { summary: "reduced 9 deltas to 1".into() };
    campaign.events().append(1, finished).unwrap();
    let found = find_run(&shelf.store(), "last").unwrap();
    assert_eq!(found.run.id.as_str(), "dd11.2");
    assert_eq!(found.summary.as_deref(), Some("reduced 9 deltas to 1"));
    assert_eq!(
        find_run(&shelf.store(), "dd11.3").unwrap().summary,
        None,
        "a run that was named is just itself"
    );
}

#[tokio::test]
async fn a_trace_by_its_id_its_beginning_or_last() {
    let shelf = Shelf::new();
    let archive = shelf.archive();
    assert!(matches!(find_trace(&archive, "last"), Err(ViewError::Empty(Subject::Trace))));
    let later = faultscope_model::trace::ReportedSpan {
        start_us: Some(super::T + 5),
        ..served(0xabee, 1, None, "pay")
    };
    shelf.ingest(vec![served(0xabcd, 1, None, "order"), later], Vec::new()).await;
    let archive = shelf.archive();
    let found =
        |wanted: &str| find_trace(&archive, wanted).map(|spans| spans[0].local.service.clone().unwrap());
    for (wanted, service) in [("abcd", "order"), ("000000000000ABE", "pay"), ("last", "pay")] {
        assert_eq!(found(wanted).unwrap(), service, "{wanted}");
    }
    for (wanted, said) in [
        (
            "000000000000ab",
            "the trace id `000000000000ab` begins 2 traces: 000000000000abee, 000000000000abcd",
        ),
        ("beef", "there is no trace `beef`"),
    ] {
        assert_eq!(found(wanted).unwrap_err().to_string(), said);
    }
    assert!(matches!(found("no id"), Err(ViewError::BadName { .. })));
}
