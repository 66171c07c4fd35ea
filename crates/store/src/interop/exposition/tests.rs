//! The examples of both formats' own pages, and whatever else may come.

use proptest::prelude::*;

use super::*;

fn asked(open_metrics: bool) -> ScrapeSource<'static> {
    ScrapeSource { service: "shop", instance: "shop-1", at_us: 7, open_metrics }
}

fn read(text: &str) -> Batch<Point> {
    read_exposition(text.as_bytes(), &asked(false))
}

/// `name{labels} value kind @time`, without who was asked.
fn shown(batch: &Batch<Point>) -> Vec<String> {
    let one = |point: &Point| {
        let TimeSeries { name, kind, about, .. } = &point.series;
        let labels: Vec<_> =
            about.iter().filter(|(key, _)| key != INSTANCE).map(|(k, v)| format!("{k}={v}")).collect();
        format!("{name}{{{}}} {} {kind:?} @{}", labels.join(","), point.value, point.at_us)
    };
    batch.items.iter().map(one).collect()
}

#[test]
fn the_example_of_the_text_format() {
    let text = r#"
# HELP http_requests_total The total number of HTTP requests.
# TYPE http_requests_total counter
http_requests_total{method="post",code="200"} 1027 1395066363000
http_requests_total{method="post",code="400"}    3 1395066363000

# Escaping in label values:
msdos_file_access_time_seconds{path="C:\\DIR\\FILE.TXT",error="Cannot find file:\n\"FILE.TXT\""} 1.458255915e9

# Minimalistic line:
metric_without_timestamp_and_labels 12.47

# A weird metric from before the epoch:
something_weird{problem="division by zero"} +Inf -3982045

# TYPE http_request_duration_seconds histogram
http_request_duration_seconds_bucket{le="0.05"} 24054
http_request_duration_seconds_bucket{le="0.1"} 33444
http_request_duration_seconds_bucket{le="+Inf"} 144320
http_request_duration_seconds_sum 53423
http_request_duration_seconds_count 144320

# TYPE rpc_duration_seconds summary
rpc_duration_seconds{quantile="0.01"} 3102
rpc_duration_seconds{quantile="0.999"} 9001
rpc_duration_seconds_sum 1.7560473e+07
rpc_duration_seconds_count 2693
"#;
    let batch = read(text);
    assert_eq!(batch.n_rejected, 0);
    assert_eq!(
        shown(&batch),
        [
            "http_requests_total{code=200,method=post} 1027 Counter @1395066363000000",
            "http_requests_total{code=400,method=post} 3 Counter @1395066363000000",
            "msdos_file_access_time_seconds{error=Cannot find file:\n\"FILE.TXT\",path=C:\\DIR\\FILE.TXT} 1458255915 Gauge @7",
            "metric_without_timestamp_and_labels{} 12.47 Gauge @7",
            "something_weird{problem=division by zero} inf Gauge @7",
            "http_request_duration_seconds.bucket{le=0.05} 24054 Counter @7",
            "http_request_duration_seconds.bucket{le=0.1} 33444 Counter @7",
            "http_request_duration_seconds.sum{} 53423 Counter @7",
            "http_request_duration_seconds.count{} 144320 Counter @7",
            "rpc_duration_seconds.p1{} 3102 Gauge @7",
            "rpc_duration_seconds.p99.9{} 9001 Gauge @7",
            "rpc_duration_seconds.sum{} 17560473 Counter @7",
            "rpc_duration_seconds.count{} 2693 Counter @7",
        ]
    );
    let first = &batch.items[0].series;
    assert_eq!((first.service.as_str(), first.unit.as_str()), ("shop", ""));
    assert!(first.about.contains(&(INSTANCE.to_owned(), "shop-1".to_owned())));
    assert_eq!(batch.items[7].series.unit, "s");
}

#[test]
fn open_metrics() {
    let text = r#"# TYPE acme_http_router_request_seconds summary
# UNIT acme_http_router_request_seconds seconds
acme_http_router_request_seconds_sum{path="/api/v1",method="GET"} 9036.32
acme_http_router_request_seconds_count{path="/api/v1",method="GET"} 807283.0
acme_http_router_request_seconds_created{path="/api/v1",method="GET"} 1605281325.0
# TYPE foo counter
foo_total 17.0 1520879607.789 # {trace_id="KOO5S4vxi0o"} 0.67 1520879606.0
foo_created 1520430000.123
# TYPE go_goroutines gauge
go_goroutines 69
# EOF
after_the_end 1
"#;
    let batch = read_exposition(text.as_bytes(), &asked(true));
    assert_eq!(batch.n_rejected, 0);
    assert_eq!(
        shown(&batch),
        [
            "acme_http_router_request_seconds.sum{method=GET,path=/api/v1} 9036.32 Counter @7",
            "acme_http_router_request_seconds.count{method=GET,path=/api/v1} 807283 Counter @7",
            "foo_total{} 17 Counter @1520879607789000",
            "go_goroutines{} 69 Gauge @7",
        ]
    );
}

#[test]
fn names_in_quotes_and_odd_spacing() {
    let batch = read("{\"my.name\", a = \"x\" , } 1\r\n  other\t{ }\t2\t \nplain_total 3");
    assert_eq!(
        shown(&batch),
        ["my.name{a=x} 1 Gauge @7", "other{} 2 Gauge @7", "plain_total{} 3 Counter @7"]
    );
}

#[test]
fn bad_lines_are_rejected_with_a_reason() {
    for bad in [
        "novalue",
        "a b",
        "a 1 2 3",
        "a{ 1",
        "a{x} 1",
        "a{x=1} 1",
        "a{x=\"1} 1",
        "a{x=\"1\" y=\"2\"} 1",
        "{} 1",
        "{=\"x\"} 1",
        "a{x=\"\\",
        "9a 1",
        "a-b 1",
        "<html>",
        "{\"a\",\"b\"} 1",
        "a 1 x",
    ] {
        let batch = read(&format!("good 1\n{bad}\nfine 2"));
        assert_eq!((batch.items.len(), batch.n_rejected), (2, 1), "{bad}");
    }
    let complaint = read("good 1\na b").complaint().unwrap();
    assert!(complaint.contains("the value is not a number"), "{complaint}");
    let batch = read_exposition(b"good 1\n\xff\xfe 2\nfine 3", &asked(false));
    assert_eq!((batch.items.len(), batch.n_rejected), (2, 1));
}

#[test]
fn answers_are_bounded() {
    let many = "a 1\n".repeat(MAX_SAMPLES + 5);
    let batch = read(&many);
    assert_eq!((batch.items.len(), batch.n_rejected), (MAX_SAMPLES, 5));
    assert_eq!(read(&format!("a{{x=\"{}\"}} 1", "y".repeat(LONGEST_LINE))).n_rejected, 1);
    let labels: Vec<_> = (0..=MAX_LABELS).map(|n| format!("l{n}=\"\"")).collect();
    assert_eq!(read(&format!("a{{{}}} 1", labels.join(","))).n_rejected, 1);
    let long = read(&format!("a{{x=\"{}\"}} 1", "y".repeat(5000)));
    assert!(long.items[0].series.about.iter().any(|(_, value)| value.len() == LONGEST_TEXT));
}

proptest! {
    #[test]
    fn anything_is_read_to_its_end(text in r#"([a-z_{}="\\# 0-9.,\n\t]|TYPE|histogram|summary|_sum|le|é){0,200}"#, open: bool) {
        let batch = read_exposition(text.as_bytes(), &asked(open));
        prop_assert!(batch.items.len() + batch.n_rejected <= text.lines().count() + 1);
    }

    #[test]
    fn bytes_are_read_to_their_end(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        read_exposition(&bytes, &asked(true));
    }

    #[test]
    fn texts_of_labels_come_back(text in "\\PC{0,40}|[\\\\\"\n]{0,10}") {
        let escaped = text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        let batch = read(&format!("a{{x=\"{escaped}\"}} 1"));
        prop_assert_eq!(&batch.items[0].series.about[1], &("x".to_owned(), text));
    }
}
