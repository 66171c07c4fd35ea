//! One damaged part never takes the rest with it.

use std::fs;
use std::path::{Path, PathBuf};

use faultscope_model::trace::{ReportedSpan, TraceQuery};
use faultscope_model::{SlotId, SpanId, TraceId, TrialId};
use faultscope_store::interop::query::matches;
use faultscope_store::secrets::{KeyPlace, SecretOptions};
use faultscope_store::spans::{SpanReader, SpanStore, SpanStoreOptions};
use faultscope_store::{
    CampaignOptions, PartKind, PartState, RepairAction, RunRecord, Store, StorePart, check_store,
    repair_store,
};

use crate::{meta, span};

/// Spans of a slice.
const SLICE: u64 = 300;

/// A `.faultscope` folder with three campaigns and three slices.
struct Bed {
    folder: tempfile::TempDir,
}

impl Bed {
    fn new() -> Self {
        let bed = Self { folder: tempfile::tempdir().unwrap() };
        for id in ["aa11-1", "bb22-1", "cc33-1"] {
            let options = CampaignOptions { secrets: bed.secrets(), ..CampaignOptions::default() };
            let campaign = bed.store().campaign_with(meta(id, 1), options).unwrap();
            for n in 0..600 {
                let mut call = span(n);
                // Long enough for most pages to hold calls.
                call.path = format!("/items/{}", "x".repeat(900));
                campaign.sink().record(TrialId::chosen(1), SlotId(0), call);
            }
            let run = RunRecord {
                trial: TrialId::chosen(1),
                id: &format!("{}.1", &id[..4]).parse().unwrap(),
                outcome: "pass",
                started_us: 1,
                duration_us: 1,
                json: "{}",
            };
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            runtime.block_on(campaign.put_run(run)).unwrap();
            campaign.put_report(&vec![1]).unwrap();
        }
        bed.open_spans(|spans| {
            for slice in 0..3_u64 {
                let spans_of = (slice * SLICE..(slice + 1) * SLICE).map(sent).collect();
                spans.put(spans_of).unwrap().committed_blocking().unwrap();
            }
        });
        assert_eq!(bed.reader().slices().unwrap().iter().filter(|slice| slice.spans > 0).count(), 3);
        bed
    }

    fn state(&self) -> PathBuf {
        self.folder.path().join(".faultscope")
    }

    fn key(&self) -> KeyPlace {
        KeyPlace::at(self.folder.path().join("secrets.key"))
    }

    fn secrets(&self) -> SecretOptions {
        SecretOptions { key: Some(self.key()), ..SecretOptions::default() }
    }

    fn store(&self) -> Store {
        Store::open(self.state()).unwrap().with_key(self.key())
    }

    fn reader(&self) -> SpanReader {
        SpanReader::open(&self.state(), true).with_key(self.key())
    }

    fn open_spans(&self, write: impl FnOnce(&SpanStore)) {
        let options =
            SpanStoreOptions { slice_spans: SLICE, secrets: self.secrets(), ..SpanStoreOptions::default() };
        let store = SpanStore::open(self.state(), options).unwrap();
        write(&store);
    }

    fn check(&self) -> Vec<StorePart> {
        check_store(&self.state(), Some(self.key())).unwrap()
    }

    fn repair(&self) -> Vec<RepairAction> {
        repair_store(&self.state(), Some(self.key()))
            .unwrap()
            .into_iter()
            .map(|repair| repair.action)
            .collect()
    }

    /// The names of parts that are not as they should be.
    fn bad(&self) -> Vec<String> {
        self.check().into_iter().filter(|part| part.state != PartState::Ok).map(|part| part.name).collect()
    }

    /// How many traces of reported spans a search finds.
    fn found(&self) -> u64 {
        let query = TraceQuery {
            end_us: u64::MAX >> 1,
            lookback_us: u64::MAX >> 1,
            limit: 9999,
            service: Some("front".into()),
            ..TraceQuery::default()
        };
        self.reader().search(&query, matches).unwrap().len() as u64
    }
}

/// The `n`th of all spans, each a trace of its own.
fn sent(n: u64) -> ReportedSpan {
    let mut span = ReportedSpan::new(TraceId(u128::from(n) + (1 << 80)), SpanId(1));
    span.start_us = Some(1_700_000_000_000_000 + n);
    span.local.service = Some("front".into());
    // Long enough for most pages to hold spans.
    span.tags.push(("n".into(), format!("value {n} {}", "x".repeat(900))));
    span
}

/// Overwrites a page in the middle of a file.
fn damage(path: &Path) {
    let mut bytes = fs::read(path).unwrap();
    let middle = bytes.len() / 2 / 16_384 * 16_384;
    bytes[middle..middle + 16_384].fill(0xa5);
    fs::write(path, bytes).unwrap();
}

#[test]
fn everything_is_listed_and_nothing_is_wrong() {
    let bed = Bed::new();
    assert_eq!(bed.bad(), [""; 0]);
    let parts = bed.check();
    let count = |kind| parts.iter().filter(|part| part.kind == kind).count();
    assert_eq!((count(PartKind::Campaign), count(PartKind::Catalogue)), (3, 1));
    assert!(count(PartKind::Slice) >= 3);
    assert_eq!(bed.repair(), []);
}

#[test]
fn a_damaged_slice_is_left_out_and_then_salvaged() {
    let bed = Bed::new();
    let slice = bed.state().join("spans/000002.sqlite");
    damage(&slice);
    let before = bed.found();
    assert!(before >= 2 * SLICE, "the other slices are read: {before}");
    let [wrong] = &bed.check().into_iter().filter(|part| part.state != PartState::Ok).collect::<Vec<_>>()[..]
    else {
        panic!("one part is damaged")
    };
    assert_eq!((wrong.kind, wrong.name.as_str()), (PartKind::Slice, "000002.sqlite"));
    assert!(matches!(wrong.state, PartState::Damaged { .. }));
    let [RepairAction::Salvaged { rows, moved_to }] = &bed.repair()[..] else {
        panic!("some of it is readable")
    };
    assert!(*rows > 100, "{rows}");
    assert!(moved_to.starts_with(bed.state().join("damaged")) && moved_to.exists());
    assert_eq!(bed.bad(), [""; 0]);
    assert_eq!(bed.found(), 2 * SLICE + rows);
    // Writing goes on.
    bed.open_spans(|spans| spans.put(vec![sent(9000)]).unwrap().committed_blocking().unwrap());
    assert_eq!(bed.found(), 2 * SLICE + 1 + rows);
}

#[test]
fn slices_that_are_no_databases_or_newer_are_left_out() {
    let bed = Bed::new();
    fs::write(bed.state().join("spans/000001.sqlite"), "not a database ".repeat(100)).unwrap();
    let newer = rusqlite::Connection::open(bed.state().join("spans/000002.sqlite")).unwrap();
    newer.pragma_update(None, "user_version", 99).unwrap();
    drop(newer);
    assert_eq!(bed.found(), SLICE);
    assert_eq!(bed.bad(), ["000001.sqlite", "000002.sqlite"]);
    let repaired = bed.repair();
    assert!(
        matches!(&repaired[..], [RepairAction::SetAside { .. }, RepairAction::LeftAlone { .. }]),
        "{repaired:?}"
    );
    assert_eq!(bed.bad(), ["000002.sqlite"], "what a newer version wrote stays where it is");
    assert_eq!(bed.found(), SLICE);
}

/// A crash can leave a file that nothing was written to.
#[test]
fn an_empty_slice_is_set_aside() {
    let bed = Bed::new();
    fs::write(bed.state().join("spans/000900.sqlite"), "").unwrap();
    assert_eq!(bed.found(), 3 * SLICE);
    assert_eq!(bed.bad(), ["000900.sqlite"]);
    let repaired = bed.repair();
    assert!(matches!(&repaired[..], [RepairAction::SetAside { .. }]), "{repaired:?}");
    assert_eq!(bed.bad(), [""; 0]);
}

#[test]
fn a_writer_goes_on_beside_a_damaged_last_slice_and_catalogue() {
    let bed = Bed::new();
    fs::write(bed.state().join("spans/catalogue.json"), "{").unwrap();
    assert_eq!(bed.found(), 3 * SLICE, "slices are found by their names");
    let last = fs::read_dir(bed.state().join("spans")).unwrap().map(|entry| entry.unwrap().path());
    let last = last.filter(|path| path.extension().is_some_and(|end| end == "sqlite")).max().unwrap();
    fs::write(&last, "not a database ".repeat(100)).unwrap();
    bed.open_spans(|spans| spans.put(vec![sent(9000)]).unwrap().committed_blocking().unwrap());
    assert!(bed.reader().trace(sent(9000).trace).unwrap().len() == 1);
    assert!(bed.found() > 2 * SLICE);
    assert!(bed.state().join("damaged/spans-catalogue.json").exists());
}

#[test]
fn a_damaged_campaign_is_salvaged_and_one_without_a_name_set_aside() {
    let bed = Bed::new();
    let campaigns = bed.state().join("campaigns");
    damage(&campaigns.join("aa11-1/store.sqlite"));
    fs::write(campaigns.join("bb22-1/campaign.json"), "{").unwrap();
    fs::write(campaigns.join("cc33-1/report.json"), "{").unwrap();
    assert_eq!(bed.bad(), ["aa11-1", "bb22-1", "cc33-1"]);
    assert_eq!(bed.store().campaigns().unwrap().len(), 2);
    let repaired = bed.repair();
    let [
        RepairAction::Salvaged { rows, .. },
        RepairAction::SetAside { moved_to },
        RepairAction::Salvaged { moved_to: report, .. },
    ] = &repaired[..]
    else {
        panic!("{repaired:?}")
    };
    assert!(moved_to.join("store.sqlite").exists() && report.is_file());
    assert_eq!(bed.bad(), [""; 0]);
    let reader = bed.store().find_campaign("aa").unwrap().reader().unwrap();
    let calls = reader.spans_of(TrialId::chosen(1)).unwrap();
    assert!(calls.len() > 100 && calls.len() as u64 <= *rows, "{} of {rows}", calls.len());
    assert!(!reader.spans_of_trace(calls[50].trace).unwrap().is_empty());
    assert_eq!(bed.store().find_campaign("cc").unwrap().report::<Vec<u32>>().unwrap(), None);
}

#[test]
fn a_read_only_folder_is_read() {
    let bed = Bed::new();
    // Permissions do not stop root, for whom this only shows that reading works.
    let set = |mode: u32| {
        use std::os::unix::fs::PermissionsExt;
        let mut folders = vec![bed.state()];
        while let Some(folder) = folders.pop() {
            for path in fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()) {
                if path.is_dir() {
                    folders.push(path);
                } else {
                    fs::set_permissions(&path, fs::Permissions::from_mode(mode & 0o666)).unwrap();
                }
            }
            fs::set_permissions(&folder, fs::Permissions::from_mode(mode)).unwrap();
        }
    };
    set(0o555);
    let found = bed.found();
    let campaigns = bed.store().campaigns().unwrap();
    let calls = campaigns[0].reader().unwrap().spans_of(TrialId::chosen(1)).unwrap().len();
    set(0o777);
    assert_eq!((found, campaigns.len(), calls), (3 * SLICE, 3, 600));
}
