//! What searches must find: the contract of Zipkin's span stores, restated.
//!
//! A search here is what a store without any index does: group, match, newest first, as many as asked for.

use faultscope_model::trace::{ReportedSpan, TraceQuery, group_by_trace, trace_start_us};

use super::spans;
use crate::interop::query::{Parameters, matches, matches_one_span, zipkin_traces};

/// Milliseconds since 1970 of some midnight.
const TODAY: u64 = 1_704_067_200_000;

fn query(parameters: &str) -> TraceQuery {
    zipkin_traces(&Parameters::parse(parameters), (TODAY + 86_400_000) * 1_000).unwrap()
}

/// The names of the first spans of the traces that are found, newest first.
fn search(all: &[ReportedSpan], parameters: &str) -> Vec<String> {
    let query = query(&format!("lookback=172800000&{parameters}"));
    let mut traces: Vec<_> =
        group_by_trace(all.to_vec(), true).into_iter().filter(|trace| matches(&query, trace)).collect();
    traces.sort_by_key(|trace| std::cmp::Reverse(trace_start_us(trace)));
    traces.truncate(query.limit);
    traces.iter().map(|trace| trace[0].name.clone()).collect()
}

fn check(all: &[ReportedSpan], cases: &[(&str, &[&str])]) {
    for (parameters, expected) in cases {
        assert_eq!(search(all, parameters), *expected, "{parameters}");
    }
}

/// A client's span that has everything.
fn client() -> Vec<ReportedSpan> {
    spans(&format!(
        r#"[{{"traceId":"1","id":"1","name":"Call","kind":"CLIENT","timestamp":{}000,"duration":200000,
            "localEndpoint":{{"serviceName":"Web"}},"remoteEndpoint":{{"serviceName":"App"}},
            "annotations":[{{"timestamp":{TODAY}000,"value":"foo"}}],
            "tags":{{"http.path":"/api","empty":"","sp aced":"a = b"}}}}]"#,
        TODAY + 1
    ))
}

#[test]
fn nothing_is_found_in_nothing() {
    check(&[], &[("", &[]), ("serviceName=service", &[]), ("annotationQuery=a%3Db", &[])]);
    // Nor by a span that says nothing.
    let bare = spans(r#"[{"traceId":"1","id":"1"}]"#);
    check(
        &bare,
        &[("", &[]), ("serviceName=service", &[]), ("spanName=x", &[]), ("annotationQuery=custom", &[])],
    );
}

#[test]
fn names_durations_and_terms() {
    check(
        &client(),
        &[
            ("", &["call"]),
            ("serviceName=web", &["call"]),
            ("serviceName=WEB", &["call"]),
            ("serviceName=web1", &[]),
            // The service is who reports, not who is called.
            ("serviceName=app", &[]),
            ("serviceName=web&remoteServiceName=app", &["call"]),
            ("serviceName=web&remoteServiceName=APP", &["call"]),
            ("serviceName=web&remoteServiceName=app1", &[]),
            ("remoteServiceName=app", &["call"]),
            ("spanName=call", &["call"]),
            ("spanName=CALL", &["call"]),
            ("spanName=call1", &[]),
            ("serviceName=web&spanName=call1", &[]),
            ("serviceName=web&spanName=all", &["call"]),
            ("minDuration=200000", &["call"]),
            ("minDuration=200001", &[]),
            ("minDuration=199998&maxDuration=199999", &[]),
            ("minDuration=200000&maxDuration=200000", &["call"]),
            ("annotationQuery=foo", &["call"]),
            ("annotationQuery=fo", &[]),
            // An annotation has no value.
            ("annotationQuery=foo%3Dfoo", &[]),
            ("annotationQuery=http.path", &["call"]),
            ("annotationQuery=http.path%3D/api", &["call"]),
            ("annotationQuery=http.path%3D/ap", &[]),
            ("annotationQuery=http", &[]),
            ("annotationQuery=empty", &["call"]),
            ("annotationQuery=empty%3D", &["call"]),
            ("annotationQuery=empty%3D1", &[]),
            ("annotationQuery=sp+aced%3Da+%3D+b", &["call"]),
            ("annotationQuery=foo+and+http.path%3D/api+and+empty", &["call"]),
            ("annotationQuery=foo+and+bar", &[]),
            ("serviceName=web&annotationQuery=foo", &["call"]),
            ("serviceName=app&annotationQuery=foo", &[]),
        ],
    );
}

#[test]
fn time_is_counted_from_the_end() {
    let all = spans(&format!(
        r#"[{{"traceId":"1","id":"1","name":"one","timestamp":{}000}},{{"traceId":"2","id":"1","name":"two","timestamp":{}000}}]"#,
        TODAY + 1,
        TODAY + 2
    ));
    let end = |ms: u64, more: &str| format!("endTs={}{more}", TODAY + ms);
    check(
        &all,
        &[
            (&end(0, ""), &[]),
            (&end(1, ""), &["one"]),
            (&end(2, ""), &["two", "one"]),
            (&end(3, ""), &["two", "one"]),
            (&end(3, "&limit=1"), &["two"]),
        ],
    );
    // The default of these tests looks back far; a later parameter of the same name is not read.
    let near = |ms: u64| query(&format!("endTs={}&lookback=1", TODAY + ms));
    let found = |ms: u64| all.iter().filter(|span| matches(&near(ms), std::slice::from_ref(*span))).count();
    assert_eq!([found(1), found(2), found(3), found(4)], [1, 2, 1, 0]);
}

#[test]
fn a_trace_that_ends_after_the_end_is_whole() {
    let all = spans(&format!(
        r#"[{{"traceId":"1","id":"1","name":"root","timestamp":{TODAY}000,"duration":900000}},
            {{"traceId":"1","parentId":"1","id":"2","name":"late","timestamp":{}000,"duration":1}}]"#,
        TODAY + 800
    ));
    check(&all, &[(&format!("endTs={}", TODAY + 100), &["root"])]);
    // Its root says when it starts, even where a child claims to be earlier.
    let mut skewed = all.clone();
    skewed[1].start_us = Some(1_000);
    check(&skewed, &[(&format!("endTs={TODAY}"), &["root"])]);
}

#[test]
fn without_a_start_nothing_is_found_until_it_comes() {
    let fields = r#""traceId":"1","id":"1","name":"x","localEndpoint":{"serviceName":"web"},"remoteEndpoint":{"serviceName":"app"}"#;
    let first = spans(&format!("[{{{fields}}}]"));
    let cases = ["serviceName=web", "serviceName=web&remoteServiceName=app", "serviceName=web&spanName=x"];
    for parameters in cases {
        check(&first, &[(parameters, &[])]);
    }
    let both = spans(&format!(r#"[{{{fields}}},{{{fields},"timestamp":{TODAY}000}}]"#));
    for parameters in cases {
        check(&both, &[(parameters, &["x"])]);
    }
}

#[test]
fn a_late_duration_is_found() {
    let fields =
        format!(r#""traceId":"1","id":"1","timestamp":{TODAY}000,"localEndpoint":{{"serviceName":"web"}}"#);
    let all = spans(&format!(r#"[{{{fields},"name":"x","duration":0}},{{{fields},"duration":200000}}]"#));
    check(&all, &[("minDuration=200001", &[]), ("minDuration=200000", &["x"])]);
}

#[test]
fn bits_above_64_tell_traces_apart() {
    let one = |id: &str, n: u32| {
        format!(
            r#"{{"traceId":"{id}","id":"1","name":"t{n}","timestamp":{TODAY}000,"tags":{{"foo":"{n}"}}}}"#
        )
    };
    let low = "000000000000000f";
    let all = [one(low, 1), one(&format!("463ac35c9f6413ad{low}"), 2), one(&format!("1{low}"), 3)].join(",");
    let all = spans(&format!("[{all}]"));
    for n in ["1", "2", "3"] {
        check(&all, &[(&format!("annotationQuery=foo%3D{n}"), &[&format!("t{n}")])]);
    }
}

#[test]
fn durations_are_the_services() {
    // Three traces of archivers: who does what differs.
    let span = |trace: u32, id: u32, name: &str, at: u64, duration: u64, local: &str, remote: &str| {
        let parent = if id > 1 && trace < 3 { r#","parentId":"1""# } else { "" };
        format!(
            r#"{{"traceId":"{trace}","id":"{id}"{parent},"name":"{name}","timestamp":{},"duration":{duration},
               "localEndpoint":{{"serviceName":"{local}"}},"remoteEndpoint":{{"serviceName":"{remote}"}}}}"#,
            (TODAY - 3) * 1_000 + at
        )
    };
    let all = spans(&format!(
        "[{}]",
        [
            span(1, 1, "one", 100, 200_000, "frontend", "db"),
            span(1, 2, "tar", 200, 150_000, "backend", "backend"),
            span(1, 3, "gz", 250, 50_000, "db", "frontend"),
            span(2, 1, "two", 110, 200_000, "db", "frontend"),
            span(2, 2, "tar", 210, 150_000, "backend", "backend"),
            span(2, 3, "gz", 260, 50_000, "frontend", "backend"),
            span(3, 3, "zip", 130, 50_000, "backend", "backend"),
        ]
        .join(",")
    ));
    check(
        &all,
        &[
            ("serviceName=frontend&minDuration=200000", &["one"]),
            ("serviceName=db&minDuration=200000", &["two"]),
            ("serviceName=backend&minDuration=50000&maxDuration=150000", &["zip", "two", "one"]),
            ("serviceName=frontend&remoteServiceName=backend&minDuration=50000&maxDuration=50000", &["two"]),
            (
                "serviceName=backend&remoteServiceName=backend&spanName=zip&minDuration=50000&maxDuration=50000",
                &["zip"],
            ),
            ("serviceName=backend&minDuration=50000&maxDuration=50000", &["zip"]),
        ],
    );
}

#[test]
fn terms_are_the_services() {
    let pair = |trace: u32, local: &str, remote: &str, word: &str| {
        format!(
            r#"{{"traceId":"{trace}","id":"1","name":"{word}","kind":"CLIENT","timestamp":{TODAY}000,"duration":3000,
                "localEndpoint":{{"serviceName":"{local}"}},"annotations":[{{"timestamp":{TODAY}500,"value":"{word}"}}],
                "tags":{{"local":"{word}","{word}-b":"{word}"}}}},
               {{"traceId":"{trace}","id":"1","kind":"SERVER","shared":true,"timestamp":{TODAY}100,"duration":1000,
                "localEndpoint":{{"serviceName":"{remote}"}}}}"#
        )
    };
    let all = spans(&format!("[{},{}]", pair(1, "front", "back", "web"), pair(2, "back", "front", "app")));
    for (service, word, found) in
        [("front", "web", true), ("back", "web", false), ("back", "app", true), ("front", "app", false)]
    {
        for term in [word.to_owned(), format!("{word}-b"), format!("local%3D{word}")] {
            let expected: &[&str] = if found { &[word] } else { &[] };
            check(&all, &[(&format!("serviceName={service}&annotationQuery={term}"), expected)]);
        }
    }
}

#[test]
fn terms_add_up_and_odd_data_is_found() {
    let one = |n: u64, fields: &str| {
        let at = TODAY + n;
        format!(
            r#"{{"traceId":"{n}","id":"1","name":"call{n}","timestamp":{at}000,"localEndpoint":{{"serviceName":"web"}},{fields}}}"#
        )
    };
    let annotations = |values: &[&str]| {
        let list: Vec<_> =
            values.iter().map(|value| format!(r#"{{"timestamp":1,"value":"{value}"}}"#)).collect();
        format!(r#""annotations":[{}]"#, list.join(","))
    };
    let all = spans(&format!(
        "[{}]",
        [
            one(1, &annotations(&["foo"])),
            one(2, &annotations(&["bar", "foo"])),
            one(3, &format!(r#"{},"tags":{{"baz":"qux"}}"#, annotations(&["foo"]))),
            one(4, &format!(r#"{},"tags":{{"baz":"qux"}}"#, annotations(&["bar", "foo"]))),
            one(
                5,
                r#""name":"{\"foo\":\"bar\"}","tags":{"http.path":"/api","http.path.morepath":"/api/api"}"#
            ),
        ]
        .join(",")
    ));
    let odd = r#"{"foo":"bar"}"#;
    check(
        &all,
        &[
            ("serviceName=web&annotationQuery=foo", &["call4", "call3", "call2", "call1"]),
            ("serviceName=web&annotationQuery=foo+and+bar", &["call4", "call2"]),
            ("serviceName=web&annotationQuery=foo+and+bar+and+baz%3Dqux", &["call4"]),
            ("serviceName=web&annotationQuery=baz", &["call4", "call3"]),
            ("serviceName=web&spanName=%7B%22foo%22%3A%22bar%22%7D", &[odd]),
            ("annotationQuery=http.path.morepath%3D/api/api", &[odd]),
            ("limit=2", &[odd, "call4"]),
        ],
    );
}

#[test]
fn failures_are_found_by_tag_or_status() {
    let mut all = client();
    check(&all, &[("annotationQuery=error", &[])]);
    all[0].failed = true;
    check(&all, &[("annotationQuery=error", &["call"]), ("annotationQuery=error%3D1", &[])]);
    all[0].tags.push(("error".to_owned(), String::new()));
    check(&all, &[("annotationQuery=error", &["call"]), ("annotationQuery=error%3D1", &[])]);
}

#[test]
fn one_span_or_several_may_answer() {
    let all = spans(&format!(
        r#"[{{"traceId":"1","id":"1","name":"a","timestamp":{TODAY}000,"localEndpoint":{{"serviceName":"web"}},"tags":{{"x":"1"}}}},
            {{"traceId":"1","id":"2","parentId":"1","name":"b","timestamp":{TODAY}000,"duration":5,"localEndpoint":{{"serviceName":"web"}}}}]"#
    ));
    for (parameters, zipkin, jaeger) in [
        ("spanName=a&annotationQuery=x", true, true),
        ("spanName=b&annotationQuery=x", true, false),
        ("spanName=a&minDuration=5", true, false),
        ("spanName=b&minDuration=5", true, true),
        ("spanName=c", false, false),
        ("serviceName=app", false, false),
    ] {
        let query = query(parameters);
        assert_eq!((matches(&query, &all), matches_one_span(&query, &all)), (zipkin, jaeger), "{parameters}");
    }
}
