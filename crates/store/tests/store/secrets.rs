//! Secrets of calls and of reported spans: gone from every file, back with the right key.

use std::path::Path;

use faultscope_model::log::{InstanceLog, LogLine};
use faultscope_model::span::{Payload, Span};
use faultscope_model::trace::ReportedSpan;
use faultscope_model::{SecretRules, SlotId, SpanId, TraceId, TrialId};
use faultscope_store::secrets::{Key, KeyPlace, SecretOptions};
use faultscope_store::spans::{SpanReader, SpanStore, SpanStoreOptions};
use faultscope_store::{CampaignOptions, RunRecord, StoreErrorKind};

use crate::{meta, span, store};

/// All bytes of all files below a folder that hold a text.
fn files_with(folder: &Path, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
        if entry.path().is_dir() {
            found.extend(files_with(&entry.path(), text));
        } else if std::fs::read(entry.path()).unwrap().windows(text.len()).any(|w| w == text.as_bytes()) {
            found.push(entry.path().display().to_string());
        }
    }
    found
}

/// A call with the secret `QSECRET-n` in every place where one may stand.
fn telling(n: u64) -> Span {
    let mut span = span(n);
    span.path = "/pay?token=QSECRET-1&page=2".into();
    let header = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    span.payload = Some(Box::new(Payload {
        request_headers: vec![
            header("Authorization", "Bearer QSECRET-2-abcdef"),
            header("accept", "*/*"),
            header("X-Tenant", "QSECRET-3"),
        ],
        response_headers: vec![header("set-cookie", "sid=QSECRET-4-abcdef; Path=/")],
        request_body: br#"{"user":"ann","password":"QSECRET-5","card":{"number":"QSECRET-6"}}"#.to_vec(),
        response_body: b"you sent QSECRET-2-abcdef".to_vec(),
        decoded: None,
    }));
    span
}

fn options(key: &KeyPlace, drop: bool) -> CampaignOptions {
    let rules = SecretRules { drop, headers: vec!["x-tenant".into()], fields: vec!["$.card.number".into()] };
    CampaignOptions {
        secrets: SecretOptions { rules, plain: false, key: Some(key.clone()) },
        ..CampaignOptions::default()
    }
}

#[tokio::test]
async fn calls_are_written_without_their_secrets_and_restored_with_the_key() {
    let (folder, store) = store();
    let place = KeyPlace::at(folder.path().join("keys/secrets.key"));
    let mut about = meta("aa11-1", 1);
    about.command_line.push("--header=authorization: QSECRET-7".into());
    let campaign = store.campaign_with(about, options(&place, false)).unwrap();
    assert!(place.path().exists(), "what is recorded is sealed from the start");
    campaign.sink().record(TrialId::chosen(1), SlotId(0), telling(1));
    campaign.sink().record(TrialId::chosen(1), SlotId(0), span(2));
    let mut reported = ReportedSpan::new(telling(1).trace, SpanId(9));
    reported.tags.push(("http.request.header.authorization".into(), "Bearer QSECRET-8-abcdef".into()));
    assert!(campaign.sink().report(TrialId::chosen(1), SlotId(0), None, vec![reported.clone()], None).await);
    campaign
        .put_log(
            TrialId::chosen(1),
            InstanceLog {
                instance: "order-1".parse().unwrap(),
                lines: vec![LogLine { at_us: 1, text: "saw QSECRET-2-abcdef, password=QSECRET-9".into() }],
                dropped: 0,
            },
        )
        .unwrap();
    let json = r#"{"output":"Cookie: sid=QSECRET-a; and QSECRET-2-abcdef","n":1}"#;
    let run = RunRecord {
        trial: TrialId::chosen(1),
        id: &"aa11.1".parse().unwrap(),
        outcome: "pass",
        started_us: 1,
        duration_us: 1,
        json,
    };
    campaign.put_run(run).await.unwrap();
    campaign.events().append(1, serde_json::json!({"said": "Bearer QSECRET-2-abcdef"})).unwrap();
    campaign.put_report(&serde_json::json!({"found": ["QSECRET-2-abcdef"]})).unwrap();
    let reader = campaign.reader().unwrap();
    assert_eq!(files_with(&folder.path().join(".faultscope"), "QSECRET"), [""; 0]);

    let shown = &reader.spans_of(TrialId::chosen(1)).unwrap()[0];
    assert_eq!(shown.path, "/pay?token=[redacted]&page=2");
    let payload = shown.payload.as_deref().unwrap();
    assert_eq!(payload.request_headers[1].1, "*/*");
    assert_eq!(payload.request_headers[2].1, "[redacted]");
    assert_eq!(
        String::from_utf8_lossy(&payload.request_body),
        r#"{"user":"ann","password":"[redacted]","card":{"number":"[redacted]"}}"#
    );
    assert_eq!(payload.response_body, b"you sent [redacted]");
    assert_eq!(reader.reported_in(TrialId::chosen(1)).unwrap()[0].span.tags[0].1, "[redacted]");
    assert_eq!(reader.runs().unwrap()[0].json, r#"{"n":1,"output":"Cookie: [redacted]"}"#);

    let key = Key::load(&place).unwrap().unwrap();
    assert_eq!(reader.restored_spans_of(TrialId::chosen(1), &key).unwrap(), [telling(1), span(2)]);
    assert_eq!(reader.restored_spans_of_trace(telling(1).trace, &key).unwrap()[0], telling(1));
    let reports = reader.restored_reports_of_trace(reported.trace, &key).unwrap();
    assert_eq!(reports[0].span, reported);
    let other = Key::load_or_make(&KeyPlace::at(folder.path().join("other.key"))).unwrap();
    let refused = reader.restored_spans_of(TrialId::chosen(1), &other).unwrap_err();
    assert_eq!(refused.kind, StoreErrorKind::Sealed);
}

#[test]
fn dropped_secrets_are_forgotten() {
    let (folder, store) = store();
    let place = KeyPlace::at(folder.path().join("keys/secrets.key"));
    let campaign = store.campaign_with(meta("aa11-1", 1), options(&place, true)).unwrap();
    campaign.sink().record(TrialId::chosen(1), SlotId(0), telling(1));
    campaign.flush_blocking().unwrap();
    assert_eq!(files_with(&folder.path().join(".faultscope"), "QSECRET"), [""; 0]);
    let key = Key::load_or_make(&place).unwrap();
    let reader = campaign.reader().unwrap();
    assert_eq!(
        reader.restored_spans_of(TrialId::chosen(1), &key).unwrap(),
        reader.spans_of(TrialId::chosen(1)).unwrap()
    );
}

#[test]
fn a_key_that_cannot_be_used_is_an_error_at_once() {
    let (folder, store) = store();
    let place = KeyPlace::at(folder.path().join("secrets.key"));
    std::fs::write(place.path(), "x").unwrap();
    let error = store.campaign_with(meta("aa11-1", 1), options(&place, false)).unwrap_err();
    assert_eq!((error.kind, error.path.as_path()), (StoreErrorKind::NotPermitted, place.path()));
    assert!(store.campaign_with(meta("aa11-1", 1), options(&place, true)).is_err());
    let mut plain = options(&place, true);
    plain.secrets.plain = true;
    assert!(store.campaign_with(meta("aa11-1", 1), plain).is_ok());
}

#[test]
fn reported_spans_are_kept_without_their_secrets() {
    let folder = tempfile::tempdir().unwrap();
    let place = KeyPlace::at(folder.path().join("secrets.key"));
    let state = folder.path().join("state");
    let secrets = SecretOptions { key: Some(place.clone()), ..SecretOptions::default() };
    let store = SpanStore::open(&state, SpanStoreOptions { secrets, ..SpanStoreOptions::default() }).unwrap();
    let mut spans: Vec<ReportedSpan> = (1..=3).map(|n| ReportedSpan::new(TraceId(7), SpanId(n))).collect();
    for span in &mut spans {
        // The same value again and again would become a name of the slice.
        span.tags.push(("http.request.header.cookie".into(), "sid=QSECRET-1".into()));
        span.tags.push(("http.url".into(), "http://u:QSECRET-2@h/?api_key=QSECRET-3".into()));
        span.tags.push(("http.method".into(), "GET".into()));
    }
    store.put(spans.clone()).unwrap().committed_blocking().unwrap();
    assert_eq!(files_with(&state, "QSECRET"), [""; 0]);
    let reader = SpanReader::open(&state, true).with_key(place.clone());
    let shown = reader.trace(TraceId(7)).unwrap();
    assert_eq!(shown[0].tags[1].1, "http://[redacted]@h/?api_key=[redacted]");
    let key = Key::load(&place).unwrap().unwrap();
    assert_eq!(reader.restored_trace(TraceId(7), &key).unwrap(), spans);
    drop(store);
    let other = Key::load_or_make(&KeyPlace::at(folder.path().join("other.key"))).unwrap();
    assert!(reader.restored_trace(TraceId(7), &other).is_err());
}
