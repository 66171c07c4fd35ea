//! Processes: one is killed while it writes, two want to write, others read meanwhile.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use faultscope_model::TraceId;
use faultscope_store::StoreErrorKind;
use faultscope_store::spans::{SpanReader, SpanStore, SpanStoreOptions};

use crate::{Random, TODAY, span};

const FOLDER: &str = "FAULTSCOPE_TEST_SPANS";
const ROUND: &str = "FAULTSCOPE_TEST_ROUND";

/// Spans of a batch; each batch is a trace.
const BATCH: u64 = 20;

/// Not a test: what the killed process runs. It writes traces from several threads and says which are
/// acknowledged.
#[test]
#[ignore = "run by other tests as a process of its own"]
fn child() {
    let folder = std::env::var_os(FOLDER).expect("another test starts this one and names a folder");
    let round: u64 = std::env::var(ROUND).unwrap().parse().unwrap();
    let options = SpanStoreOptions { slice_spans: 3000, ..SpanStoreOptions::default() };
    let store = SpanStore::open(Path::new(&folder), options).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let store = &store;
            scope.spawn(move || {
                for number in 0.. {
                    let trace = (round << 32 | thread << 24 | number) + 1;
                    let batch = (0..BATCH).map(|id| span(trace, id + 1, TODAY + number)).collect();
                    if let Ok(ack) = store.put(batch) {
                        ack.committed_blocking().unwrap();
                        let mut out = std::io::stdout().lock();
                        writeln!(out, "acknowledged {trace}").unwrap();
                        out.flush().unwrap();
                    }
                }
            });
        }
    });
}

fn start(folder: &Path, round: u64) -> std::process::Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "kill::child", "--nocapture", "--test-threads", "1"])
        .env(FOLDER, folder)
        .env(ROUND, round.to_string())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// More rounds with `FAULTSCOPE_TEST_KILLS=100`.
#[test]
fn what_was_acknowledged_survives_kills() {
    let rounds = std::env::var("FAULTSCOPE_TEST_KILLS").ok().and_then(|n| n.parse().ok()).unwrap_or(6);
    let folder = tempfile::tempdir().unwrap();
    let mut random = Random(7);
    let mut acknowledged = Vec::new();
    for round in 0..rounds {
        let mut child = start(folder.path(), round);
        let output = child.stdout.take().unwrap();
        let lines = BufReader::new(output).lines().map_while(Result::ok);
        let mut acks = lines.filter_map(|line| line.split_once("acknowledged ")?.1.parse::<u64>().ok());
        // It dies somewhere behind a drawn acknowledgement, in the midst of what comes next.
        let wanted = 20 + random.below(60) as usize;
        let before = acknowledged.len();
        acknowledged.extend(acks.by_ref().take(wanted));
        assert_eq!(acknowledged.len() - before, wanted, "the writer ended by itself");
        child.kill().unwrap();
        child.wait().unwrap();
        acknowledged.extend(acks);
        // A reader sees them before the next writer has mended anything.
        let reader = SpanReader::open(folder.path(), true);
        for trace in acknowledged.iter().rev().take(200) {
            assert_eq!(reader.trace(TraceId((*trace).into())).unwrap().len() as u64, BATCH, "{trace}");
        }
    }
    assert!(acknowledged.len() as u64 > rounds, "{}", acknowledged.len());
    drop(SpanStore::open(folder.path(), SpanStoreOptions::default()).unwrap());
    let reader = SpanReader::open(folder.path(), true);
    for trace in &acknowledged {
        assert_eq!(reader.trace(TraceId((*trace).into())).unwrap().len() as u64, BATCH, "{trace}");
    }
    assert!(reader.count().unwrap() >= acknowledged.len() as u64 * BATCH);
    assert!(reader.slices().unwrap().len() > 1);
}

#[test]
fn two_processes_one_writes_and_both_read() {
    let folder = tempfile::tempdir().unwrap();
    let mut child = start(folder.path(), 1);
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let first = lines.find_map(|line| line.split_once("acknowledged ")?.1.parse::<u64>().ok()).unwrap();
    let error = SpanStore::open(folder.path(), SpanStoreOptions::default()).unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::InUse);
    assert!(error.source.to_string().contains(&child.id().to_string()), "{}", error.source);
    let reader = SpanReader::open(folder.path(), true);
    assert_eq!(reader.trace(TraceId(first.into())).unwrap().len() as u64, BATCH);
    let later =
        lines.nth(50).and_then(|line| line.split_once("acknowledged ")?.1.parse::<u64>().ok()).unwrap();
    assert_eq!(reader.trace(TraceId(later.into())).unwrap().len() as u64, BATCH);
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(SpanStore::open(folder.path(), SpanStoreOptions::default()).is_ok());
}
