//! What is stored: no value of the system under test stands in any file, also after a kill.

use std::path::Path;
use std::process::{Command, Stdio};

use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use faultscope_model::log::{InstanceLog, LogLine};
use faultscope_model::metrics::{Point, TimeSeries};
use faultscope_model::span::Payload;
use faultscope_model::trace::{ReportedSpan, TraceQuery};
use faultscope_model::{SlotId, SpanId, TraceId, TrialId};
use faultscope_store::interop::query::matches;
use faultscope_store::secrets::{KeyPlace, SecretOptions};
use faultscope_store::spans::{SpanReader, SpanStore, SpanStoreOptions};
use faultscope_store::{CampaignOptions, RunRecord, Store, StoreErrorKind};

use crate::{meta, span};

/// Tells a child which folder it writes to, and what.
const FOLDER: &str = "FAULTSCOPE_TEST_AT_REST";
const PLAIN: &str = "FAULTSCOPE_TEST_PLAIN";

fn trial() -> TrialId {
    TrialId::chosen(1)
}

/// How many values are planted in each place.
const EACH: usize = 8;

/// Where values are planted.
const PLACES: [&str; 11] =
    ["path", "header", "body", "large", "tag", "note", "log", "run", "event", "label", "sent"];

/// The values of a place: as random as keys are, and the same in both processes.
fn values(place: &str) -> Vec<String> {
    let digest = |n: usize| {
        let mut state = 0xcbf2_9ce4_8422_2325_u64 ^ n as u64;
        for byte in place.bytes() {
            state = (state ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        let mut next = || {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = state;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ (z >> 31)
        };
        format!("{:016x}{:016x}", next(), next())
    };
    (0..EACH).map(digest).collect()
}

fn secrets(folder: &Path, plain: bool) -> SecretOptions {
    SecretOptions { plain, key: Some(key(folder)), ..SecretOptions::default() }
}

fn key(folder: &Path) -> KeyPlace {
    KeyPlace::at(folder.join("keys/secrets.key"))
}

/// Writes values to every place of a campaign and of a store of spans.
fn plant(folder: &Path, plain: bool) -> (faultscope_store::Campaign, SpanStore) {
    let state = folder.join(".faultscope");
    let mut about = meta("aa11-1", 1);
    about.command_line.extend(values("event"));
    let options = CampaignOptions { secrets: secrets(folder, plain), ..CampaignOptions::default() };
    let campaign = Store::open(&state).unwrap().campaign_with(about, options).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().build().unwrap();
    for n in 0..EACH {
        let mut call = span(n as u64);
        call.path = format!("/items/{}?page=1", values("path")[n]);
        call.payload = Some(Box::new(Payload {
            request_headers: vec![("X-Request".into(), values("header")[n].clone())],
            response_headers: vec![("X-Answer".into(), values("header")[n].clone())],
            request_body: format!("{{\"name\":\"{}\"}}", values("body")[n]).into_bytes(),
            response_body: format!("{}{}", "filler ".repeat(500), values("large")[n]).into_bytes(),
            decoded: None,
        }));
        campaign.sink().record(trial(), SlotId(0), call.clone());
        let mut reported = ReportedSpan::new(call.trace, SpanId(900 + n as u64));
        reported.tags.push(("customer".into(), values("tag")[n].clone()));
        reported.annotations.push((5, values("note")[n].clone()));
        assert!(runtime.block_on(campaign.sink().report(trial(), SlotId(0), None, vec![reported], None)));
        campaign.events().append(1, serde_json::json!({ "said": values("event")[n] })).unwrap();
    }
    let lines = values("log").into_iter().map(|text| LogLine { at_us: 1, text }).collect();
    campaign
        .put_log(trial(), InstanceLog { instance: "order-1".parse().unwrap(), lines, dropped: 0 })
        .unwrap();
    let circumstance = serde_json::json!({ "env": values("run") }).to_string();
    let run = RunRecord {
        trial: trial(),
        id: &"aa11.1".parse().unwrap(),
        outcome: "pass",
        started_us: 1,
        duration_us: 1,
        json: &circumstance,
    };
    runtime.block_on(campaign.put_run(run)).unwrap();
    campaign.put_report(&serde_json::json!({ "evidence": values("run") })).unwrap();
    let points =
        || values("label").into_iter().map(|label| Point { series: labelled(label), at_us: 5, value: 1.0 });
    campaign.samples().write(trial(), SlotId(0), &[], &points().collect::<Vec<_>>()).unwrap();

    let options = SpanStoreOptions {
        secrets: secrets(folder, plain),
        tag_values: vec!["customer".into()],
        ..SpanStoreOptions::default()
    };
    let spans = SpanStore::open(&state, options).unwrap();
    // Three of each, so that values are numbered.
    for round in 0..3 {
        let sent = (0..EACH).map(|n| sent_span(round, n)).collect();
        spans.put(sent).unwrap().committed_blocking().unwrap();
    }
    spans.put_points(points().collect()).unwrap().committed_blocking().unwrap();
    (campaign, spans)
}

fn labelled(label: String) -> TimeSeries {
    let about = vec![("tenant".into(), label)];
    TimeSeries { name: "requests".into(), service: "front".into(), about, ..TimeSeries::default() }
}

fn sent_span(round: u64, n: usize) -> ReportedSpan {
    let mut span = ReportedSpan::new(TraceId(1000 + n as u128), SpanId(1 + round));
    span.start_us = Some(1_700_000_000_000_000);
    span.name = "get".into();
    span.local.service = Some("front".into());
    span.tags.push(("customer".into(), values("sent")[n].clone()));
    span.annotations.push((1_700_000_000_000_000, values("note")[n].clone()));
    span
}

/// How many forms of each value are searched for.
const FORMS: usize = 4;

/// The forms in which a value would be readable: as it is, and in base64 wherever it begins.
fn forms(value: &str) -> [Vec<u8>; FORMS] {
    let encoded = [0, 1, 2].map(|before| {
        let text = format!("{}{value}", "x".repeat(before));
        let encoded = STANDARD_NO_PAD.encode(text);
        // Without the letters that also depend on what is around.
        encoded.as_bytes()[if before == 0 { 0 } else { before + 1 }..encoded.len() - 2].to_vec()
    });
    let [first, second, third] = encoded;
    [value.as_bytes().to_vec(), first, second, third]
}

/// The places whose values stand in some file, with how many of them.
fn leaks(folder: &Path) -> Vec<(&'static str, usize)> {
    let mut files = Vec::new();
    read_all(&folder.join(".faultscope"), &mut files);
    let planted: Vec<(&'static str, Vec<u8>)> = PLACES
        .into_iter()
        .flat_map(|place| values(place).into_iter().map(move |value| (place, value)))
        .flat_map(|(place, value)| forms(&value).into_iter().map(move |form| (place, form)))
        .collect();
    let finder = aho_corasick::AhoCorasick::new(planted.iter().map(|(_, form)| form)).unwrap();
    let mut found = std::collections::BTreeSet::new();
    for file in &files {
        found.extend(finder.find_iter(file).map(|at| at.pattern().as_usize() / FORMS));
    }
    let count = |place: &'static str| {
        let is_of = |value: &&usize| planted[**value * FORMS].0 == place;
        (place, found.iter().filter(is_of).count())
    };
    PLACES.into_iter().map(count).filter(|(_, found)| *found > 0).collect()
}

fn read_all(folder: &Path, out: &mut Vec<Vec<u8>>) {
    for path in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        if path.is_dir() {
            read_all(&path, out);
        } else {
            out.push(std::fs::read(path).unwrap());
        }
    }
}

/// Not a test by itself: it is killed with everything committed and nothing closed.
#[test]
#[ignore = "started by another test"]
fn child_that_plants_and_dies() {
    let folder = std::env::var_os(FOLDER).expect("another test starts this one and names a folder");
    let _open = plant(Path::new(&folder), std::env::var_os(PLAIN).is_some());
    std::process::abort();
}

fn plant_in_killed_process(folder: &Path, plain: bool) {
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "at_rest::child_that_plants_and_dies", "--ignored"]).env(FOLDER, folder);
    if plain {
        child.env(PLAIN, "1");
    }
    let ended = child.stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap();
    assert_eq!(ended.code(), None, "a signal ended it");
}

#[test]
fn no_value_is_readable_in_any_file_even_after_a_kill() {
    let folder = tempfile::tempdir().unwrap();
    plant_in_killed_process(folder.path(), false);
    let log = folder.path().join(".faultscope/spans/000001.sqlite-wal");
    assert!(std::fs::metadata(log).unwrap().len() > 0, "the log is still there");
    assert_eq!(leaks(folder.path()), []);

    // With the key everything comes back, and values are found by what they are.
    let state = folder.path().join(".faultscope");
    let store = Store::open(&state).unwrap().with_key(key(folder.path()));
    let campaign = store.find_campaign("aa").unwrap();
    assert_eq!(campaign.meta.command_line[2..], values("event"));
    let reader = campaign.reader().unwrap();
    let calls = reader.spans_of(trial()).unwrap();
    assert_eq!(calls[3].path, format!("/items/{}?page=1", values("path")[3]));
    let payload = calls[3].payload.as_deref().unwrap();
    assert_eq!(payload.request_headers[0].1, values("header")[3]);
    assert!(payload.response_body.ends_with(values("large")[3].as_bytes()));
    assert_eq!(reader.reported_in(trial()).unwrap()[3].span.tags[0].1, values("tag")[3]);
    assert_eq!(reader.logs_of(trial()).unwrap()[0].lines[3].text, values("log")[3]);
    assert!(reader.runs().unwrap()[0].json.contains(&values("run")[3]));
    let events = campaign.events::<serde_json::Value>(0).unwrap().events;
    assert_eq!(events[3].event["said"], values("event")[3]);
    let report: serde_json::Value = campaign.report().unwrap().unwrap();
    assert_eq!(report["evidence"][3], values("run")[3]);
    let series: Vec<TimeSeries> =
        reader.points_between(None, None, (0, u64::MAX)).unwrap().into_keys().collect();
    assert!(series.contains(&labelled(values("label")[3].clone())));

    let spans = SpanReader::open(&state, true).with_key(key(folder.path()));
    assert_eq!(
        spans.trace(TraceId(1003)).unwrap(),
        (0..3).map(|round| sent_span(round, 3)).collect::<Vec<_>>()
    );
    let mut suggested = values("sent");
    suggested.sort();
    assert_eq!(spans.tag_values("customer").unwrap(), suggested);
    assert_eq!(spans.series().unwrap().len(), EACH);
    let terms = vec![("customer".to_owned(), Some(values("sent")[3].clone()))];
    let query = TraceQuery {
        end_us: u64::MAX >> 1,
        lookback_us: u64::MAX >> 1,
        limit: 9,
        terms,
        ..TraceQuery::default()
    };
    let found = spans.search(&query, matches).unwrap();
    assert_eq!(found.iter().map(|trace| trace[0].trace).collect::<Vec<_>>(), [TraceId(1003)]);
    drop((spans, reader));
    assert_eq!(leaks(folder.path()), [], "also when the logs are written back");
}

#[test]
fn without_the_key_names_and_numbers_are_left() {
    let folder = tempfile::tempdir().unwrap();
    drop(plant(folder.path(), false));
    assert_eq!(leaks(folder.path()), []);
    let other = KeyPlace::at(folder.path().join("other.key"));
    faultscope_store::secrets::Key::load_or_make(&other).unwrap();
    let store = Store::open(folder.path().join(".faultscope")).unwrap().with_key(other.clone());
    let campaigns = store.campaigns().unwrap();
    assert_eq!((campaigns[0].meta.id.as_str(), campaigns[0].meta.command_line.len()), ("aa11-1", 0));
    let reader = campaigns[0].reader().unwrap();
    assert_eq!(reader.span_count().unwrap(), EACH as u64);
    assert_eq!(reader.edges(None).unwrap().len(), 1);
    let refused = reader.spans_of(trial()).unwrap_err();
    assert_eq!(refused.kind, StoreErrorKind::Sealed);
    assert!(refused.source.to_string().contains("sealed with another key"), "{}", refused.source);
    // A slice that cannot be opened is left out, and nothing else is.
    let spans = SpanReader::open(&folder.path().join(".faultscope"), true).with_key(other);
    assert_eq!(spans.trace(TraceId(1003)).unwrap(), []);
}

#[test]
fn plain_recording_is_a_choice_and_needs_no_key() {
    let folder = tempfile::tempdir().unwrap();
    plant_in_killed_process(folder.path(), true);
    let expected: Vec<(&str, usize)> = PLACES.iter().map(|place| (*place, EACH)).collect();
    assert_eq!(leaks(folder.path()), expected);
    assert!(!key(folder.path()).path().exists());
    let state = folder.path().join(".faultscope");
    let campaign = Store::open(&state).unwrap().find_campaign("aa").unwrap();
    assert_eq!(campaign.reader().unwrap().spans_of(trial()).unwrap().len(), EACH);
    // A writer that seals continues beside the plain slice.
    let options = SpanStoreOptions { secrets: secrets(folder.path(), false), ..SpanStoreOptions::default() };
    let spans = SpanStore::open(&state, options).unwrap();
    spans.put(vec![sent_span(9, 0)]).unwrap().committed_blocking().unwrap();
    let reader = SpanReader::open(&state, true).with_key(key(folder.path()));
    assert_eq!(reader.trace(TraceId(1000)).unwrap().len(), 4);
    assert_eq!(reader.slices().unwrap().len(), 2);
}

/// Bundles hold the user's files, whatever is in them.
#[test]
fn what_is_attached_to_a_campaign_is_sealed_unless_it_is_plain() {
    for plain in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path().join(".faultscope")).unwrap().with_key(key(folder.path()));
        let options =
            CampaignOptions { secrets: secrets(folder.path(), plain), ..CampaignOptions::default() };
        let words = values("body").join(" ");
        let running = store.campaign_with(meta("aa11-1", 1), options).unwrap();
        running.attach("input.json", words.as_bytes()).unwrap();
        drop(running);
        let campaign = store.find_campaign("aa11").unwrap();
        assert_eq!(campaign.attachment("input.json").unwrap().as_deref(), Some(words.as_bytes()));
        assert_eq!(campaign.folder().join("input.json").exists(), plain);
        assert_eq!(campaign.attachment("repro.tar.gz").unwrap(), None);
        campaign.attach("repro.tar.gz", words.as_bytes(), &secrets(folder.path(), plain)).unwrap();
        assert_eq!(campaign.attachment("repro.tar.gz").unwrap().as_deref(), Some(words.as_bytes()));
        assert_eq!(campaign.folder().join("repro.tar.gz").exists(), plain);
        let files = std::fs::read_dir(campaign.folder()).unwrap().map(|entry| entry.unwrap().path());
        let tells = |path: &std::path::PathBuf| {
            std::fs::read(path).unwrap().windows(words.len()).any(|part| part == words.as_bytes())
        };
        // Both of them, or none.
        assert_eq!(files.filter(|path| path.is_file()).filter(tells).count(), 2 * usize::from(plain));
    }
}
