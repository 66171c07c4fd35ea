//! The store of spans without HTTP: what is written is found again, whatever slice it lies in.

use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use faultscope_model::metrics::{Kind, Point, TimeSeries};
use faultscope_model::trace::{Endpoint, ReportedSpan, SpanKind, TraceQuery, group_by_trace, trace_start_us};
use faultscope_model::{SpanId, TraceId};
use faultscope_store::StoreErrorKind;
use faultscope_store::interop::query::matches;
use faultscope_store::spans::*;

use crate::{HOUR, Random, TODAY, span};

fn open(folder: &Path, slice_spans: u64) -> SpanStore {
    SpanStore::open(folder, SpanStoreOptions { slice_spans, ..SpanStoreOptions::default() }).unwrap()
}

fn put(store: &SpanStore, spans: Vec<ReportedSpan>) {
    store.put(spans).unwrap().committed_blocking().unwrap();
}

fn query(end_us: u64) -> TraceQuery {
    TraceQuery { end_us, lookback_us: 24 * HOUR, limit: 10, ..TraceQuery::default() }
}

fn found(reader: &SpanReader, query: &TraceQuery) -> Vec<u128> {
    reader.search(query, matches).unwrap().iter().map(|trace| trace[0].trace.0).collect()
}

#[test]
fn every_field_comes_back() {
    let folder = tempfile::tempdir().unwrap();
    let mut full = span(7, 8, TODAY);
    full.trace = TraceId(u128::MAX - 5);
    full.parent = Some(SpanId(u64::MAX));
    full.kind = Some(SpanKind::Consumer);
    full.name = "x".repeat(300);
    full.duration_us = Some(u64::MAX >> 1);
    (full.shared, full.debug, full.failed) = (true, true, true);
    full.local = Endpoint {
        service: Some("größe".into()),
        ipv4: Some("1.2.3.4".parse::<IpAddr>().unwrap()),
        ipv6: Some("2001:db8::c001".parse::<IpAddr>().unwrap()),
        port: Some(0),
    };
    full.remote = Endpoint { port: Some(65_535), ..Endpoint::default() };
    full.tags =
        vec![("k".into(), "v".into()), (String::new(), String::new()), ("long".into(), "é".repeat(9000))];
    full.annotations = vec![(0, "before".into()), (TODAY + 5, "after".into()), (u64::MAX, String::new())];
    let bare = ReportedSpan::new(TraceId(9), SpanId(1));
    let mut all: Vec<_> = (0..20).map(|n| ReportedSpan { id: SpanId(n + 1), ..full.clone() }).collect();
    all.push(bare.clone());
    let store = open(folder.path(), 1000);
    put(&store, all.clone());
    let reader = SpanReader::open(folder.path(), true);
    assert_eq!(reader.trace(full.trace).unwrap(), all[..20]);
    assert_eq!(reader.trace(bare.trace).unwrap(), [bare]);
    assert!(reader.trace(TraceId(10)).unwrap().is_empty());
    assert_eq!(reader.services().unwrap(), ["größe"]);
}

/// Whatever is searched for, in segments, behind them and over slices, is what a look at all spans gives.
#[test]
fn searches_find_what_a_look_at_everything_finds() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path(), 4000);
    let mut random = Random(1);
    let mut all = Vec::new();
    for n in 0..9000u64 {
        let trace = 1 + random.below(900);
        let mut one = span(trace, n + 1, TODAY + trace * 1_000_000 + random.below(2_000_000));
        one.trace = TraceId(u128::from(trace) | u128::from(trace % 3) << 64);
        // Without a root the earliest span begins the trace, as it does wherever clocks agree.
        one.parent = Some(SpanId(1 << 40));
        one.name = format!("Op{}", random.below(7));
        one.local.service = Some(format!("svc{}", random.below(9)));
        one.remote.service = random.chance(50).then(|| format!("svc{}", random.below(9)));
        one.duration_us = random.chance(90).then(|| random.duration());
        one.failed = random.chance(1);
        one.tags.push(("http.method".into(), ["GET", "POST"][random.below(2) as usize].into()));
        if random.chance(1) {
            one.tags.push(("rare".into(), random.below(9).to_string()));
        }
        if random.chance(5) {
            one.annotations.push((TODAY, "cache miss".into()));
        }
        if random.chance(2) {
            one.start_us = None;
        }
        all.push(one);
    }
    for chunk in all.chunks(250) {
        put(&store, chunk.to_vec());
    }
    let reader = SpanReader::open(folder.path(), true);
    assert!(reader.slices().unwrap().len() > 2);
    let traces = group_by_trace(all, true);
    for n in 0..150 {
        let mut asked = query(TODAY + random.below(1_000) * 1_000_000);
        asked.lookback_us = random.below(900) * 1_000_000;
        asked.limit = 1 + random.below(30) as usize;
        asked.service = random.chance(70).then(|| format!("svc{}", random.below(10)));
        asked.name = random.chance(30).then(|| format!("op{}", random.below(8)));
        asked.remote_service = random.chance(20).then(|| format!("svc{}", random.below(9)));
        asked.least_us = random.chance(40).then(|| random.duration());
        asked.most_us = asked.least_us.filter(|_| random.chance(50)).map(|least| least * 3);
        for (percent, key, value) in [
            (10, "http.method", Some("GET")),
            (10, "rare", Some("3")),
            (5, "rare", None),
            (10, "cache miss", None),
            (5, "error", None),
        ] {
            if random.chance(percent) {
                asked.terms.push((key.into(), value.map(str::to_owned)));
            }
        }
        let fits = |trace: &&Vec<ReportedSpan>| matches(&asked, trace);
        let mut wanted: Vec<_> = traces.iter().filter(fits).collect();
        let got = reader.search(&asked, matches).unwrap();
        assert!(got.iter().all(|trace| matches(&asked, trace)), "{n}: {asked:?}");
        assert!(got.is_sorted_by_key(|trace| std::cmp::Reverse(trace_start_us(trace))), "{n}: {asked:?}");
        wanted.sort_by_key(|trace| std::cmp::Reverse((trace_start_us(trace), trace[0].trace)));
        let got: Vec<_> = got.iter().map(|trace| trace[0].trace).collect();
        for trace in wanted.into_iter().take(asked.limit).filter(|trace| trace_start_us(trace).is_some()) {
            assert!(got.contains(&trace[0].trace), "{n}: {asked:?} misses {}", trace[0].trace);
        }
    }
}

#[test]
fn late_and_wrongly_dated_spans_are_found() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path(), 3);
    put(&store, vec![span(1, 1, TODAY), span(2, 1, TODAY + 1), span(3, 1, TODAY + 2)]);
    put(&store, vec![span(4, 1, TODAY + 3), span(5, 1, 1), span(6, 1, TODAY + 1_000_000 * HOUR)]);
    // Hours later, in another slice, comes the rest of the first trace.
    put(&store, vec![span(1, 2, TODAY + HOUR), span(7, 1, TODAY - HOUR)]);
    let reader = SpanReader::open(folder.path(), true);
    assert_eq!(reader.slices().unwrap().len(), 3);
    assert_eq!(reader.trace(TraceId(1)).unwrap().len(), 2);
    assert_eq!(reader.trace(TraceId(5)).unwrap().len(), 1);
    assert_eq!(reader.trace(TraceId(6)).unwrap().len(), 1);
    assert_eq!(found(&reader, &query(TODAY + 2 * HOUR)), [4, 3, 2, 1, 7]);
    assert_eq!(found(&reader, &query(TODAY + 1_000_000 * HOUR + 1)), [6]);
    assert_eq!(found(&reader, &query(1000)), [5]);
    let all = reader.slices().unwrap();
    assert_eq!((all[1].first_us, all[1].last_us), (1, TODAY + 1_000_000 * HOUR));
}

#[test]
fn the_next_writer_goes_on_where_the_last_one_ended() {
    let folder = tempfile::tempdir().unwrap();
    for round in 0..3 {
        let store = open(folder.path(), 100_000);
        for n in 0..7 {
            put(&store, (0..100).map(|id| span(round * 7 + n + 1, id + 1, TODAY + n)).collect());
        }
    }
    let reader = SpanReader::open(folder.path(), true);
    assert_eq!((reader.count().unwrap(), reader.slices().unwrap().len()), (2100, 1));
    for trace in 1..=21 {
        assert_eq!(reader.trace(TraceId(trace)).unwrap().len(), 100, "{trace}");
    }
    assert_eq!(reader.span_names("front").unwrap(), ["get"]);
}

#[test]
fn a_lost_catalogue_loses_no_span() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path(), 2);
    for n in 1..=5 {
        put(&store, vec![span(n, 1, TODAY), span(n, 2, TODAY)]);
    }
    drop(store);
    std::fs::remove_file(folder.path().join("spans/catalogue.json")).unwrap();
    let store = open(folder.path(), 2);
    put(&store, vec![span(6, 1, TODAY)]);
    let reader = SpanReader::open(folder.path(), true);
    assert!((1..=6).all(|n| !reader.trace(TraceId(n)).unwrap().is_empty()));
    assert_eq!(found(&reader, &query(TODAY)).len(), 6);
}

#[test]
fn retention_removes_the_oldest_files() {
    let folder = tempfile::tempdir().unwrap();
    let retention = SpanRetention { most_bytes: Some(1), most_age: None };
    let options = SpanStoreOptions { slice_spans: 1, retention, ..SpanStoreOptions::default() };
    let store = SpanStore::open(folder.path(), options).unwrap();
    let reader = SpanReader::open(folder.path(), true);
    for n in 1..=4 {
        put(&store, vec![span(n, 1, TODAY)]);
        reader.trace(TraceId(n.into())).unwrap();
    }
    drop(store);
    let files = std::fs::read_dir(folder.path().join("spans")).unwrap();
    let databases = files.filter(|f| f.as_ref().unwrap().path().extension().is_some_and(|e| e == "sqlite"));
    assert_eq!(databases.count(), 1);
    assert!(reader.trace(TraceId(1)).unwrap().is_empty());
}

#[test]
fn a_second_writer_is_rejected_with_the_owner() {
    let folder = tempfile::tempdir().unwrap();
    let _first = open(folder.path(), 10);
    let error = SpanStore::open(folder.path(), SpanStoreOptions::default()).unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::InUse);
    assert!(error.source.to_string().contains(&std::process::id().to_string()), "{}", error.source);
}

#[test]
fn a_full_queue_refuses_and_counts() {
    let folder = tempfile::tempdir().unwrap();
    let options = SpanStoreOptions { queued_spans: 100, ..SpanStoreOptions::default() };
    let store = SpanStore::open(folder.path(), options).unwrap();
    let batch = || (0..60).map(|n| span(n + 1, 1, TODAY)).collect::<Vec<_>>();
    let (mut taken, mut refused) = (Vec::new(), 0);
    for _ in 0..2000 {
        match store.put(batch()) {
            Ok(ack) => taken.push(ack),
            Err(error) => {
                assert_eq!(error, Refused::Busy);
                refused += 1;
            }
        }
    }
    let kept = taken.len() as u64 * 60;
    taken.into_iter().for_each(|ack| ack.committed_blocking().unwrap());
    let counts = store.counts();
    assert!(refused > 0);
    assert_eq!((counts.stored, counts.refused, counts.lost, counts.waiting), (kept, refused * 60, 0, 0));
    // What is larger than all the room is taken when there is nothing else.
    put(&store, (0..500).map(|n| span(n + 1, 2, TODAY)).collect());
    assert_eq!(SpanReader::open(folder.path(), true).count().unwrap(), kept + 500);
}

#[test]
fn short_ids_find_long_ones_unless_strict() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path(), 10);
    let mut long = span(5, 1, TODAY);
    long.trace = TraceId(7 << 64 | 5);
    put(&store, vec![long.clone(), span(5, 2, TODAY)]);
    let strict = SpanReader::open(folder.path(), true);
    assert_eq!(strict.trace(TraceId(5)).unwrap().len(), 1);
    assert_eq!(strict.trace(long.trace).unwrap().len(), 1);
    assert_eq!(found(&strict, &query(TODAY)).len(), 2);
    let loose = SpanReader::open(folder.path(), false);
    assert_eq!(loose.trace(TraceId(5)).unwrap().len(), 2);
    assert_eq!(loose.trace(TraceId(9 << 64 | 5)).unwrap().len(), 2);
    assert_eq!(found(&loose, &query(TODAY)).len(), 1);
}

#[test]
fn slices_close_by_age() {
    let folder = tempfile::tempdir().unwrap();
    let options = SpanStoreOptions { slice_age: Duration::ZERO, ..SpanStoreOptions::default() };
    let store = SpanStore::open(folder.path(), options).unwrap();
    put(&store, vec![span(1, 1, TODAY)]);
    put(&store, vec![span(2, 1, TODAY)]);
    drop(store);
    assert_eq!(SpanReader::open(folder.path(), true).count().unwrap(), 2);
}

#[test]
fn points_alone_fill_slices_that_close_and_go_by_age() {
    let folder = tempfile::tempdir().unwrap();
    let retention = SpanRetention { most_bytes: None, most_age: Some(Duration::ZERO) };
    let options = SpanStoreOptions { slice_age: Duration::ZERO, retention, ..SpanStoreOptions::default() };
    let store = SpanStore::open(folder.path(), options).unwrap();
    let series = TimeSeries { name: "cpu".into(), service: "a".into(), ..TimeSeries::default() };
    for at_us in [1, 2, 3] {
        let point = Point { series: series.clone(), at_us, value: 0.5 };
        store.put_points(vec![point]).unwrap().committed_blocking().unwrap();
    }
    drop(store);
    let reader = SpanReader::open(folder.path(), true);
    assert!(reader.points("cpu", None, (0, 1)).unwrap().is_empty(), "the oldest is gone");
    assert!(reader.slices().unwrap().len() <= 2);
}

#[test]
fn points_of_metrics_are_kept_by_series() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path(), 10);
    let point = |service: &str, at_us, value| Point {
        series: TimeSeries {
            name: "cpu".into(),
            service: service.into(),
            unit: "1".into(),
            kind: Kind::Gauge,
            about: vec![("cpu".into(), "0".into())],
        },
        at_us,
        value,
    };
    let points = vec![point("a", 5, 1.0), point("b", 6, 2.0), point("a", 7, 3.0), point("a", 7, f64::NAN)];
    store.put_points(points).unwrap().committed_blocking().unwrap();
    let reader = SpanReader::open(folder.path(), true);
    let found = reader.points("cpu", Some("a"), (0, u64::MAX)).unwrap();
    assert_eq!(found.values().next().unwrap(), &[(5, 1.0), (7, 3.0)]);
    assert_eq!(reader.points("cpu", None, (6, 6)).unwrap().len(), 1);
    assert!(reader.points("memory", None, (0, 9)).unwrap().is_empty());
    let listed = reader.series().unwrap();
    let told: Vec<_> =
        listed.iter().map(|e| (e.series.service.as_str(), e.points, e.first_us, e.last_us, e.last)).collect();
    assert_eq!(told, [("a", 2, 5, 7, 3.0), ("b", 1, 6, 6, 2.0)]);
}
