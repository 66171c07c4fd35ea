//! Zipkin v1: one span with two sides becomes two spans.

use faultscope_model::trace::{ReportedSpan, SpanKind};
use faultscope_model::{SpanId, TraceId};

use crate::interop::{Limits, zipkin};

/// Reads v1 JSON; annotations are written `us value service`, binary ones `key=value service`.
fn read(fields: &str, annotations: &[&str], binary: &[&str]) -> Vec<ReportedSpan> {
    let endpoint = |name: &str| match name {
        "-" => String::new(),
        name => format!(r#","endpoint":{{"serviceName":"{name}"}}"#),
    };
    let annotation = |text: &&str| {
        let [us, value, service] = text.split(' ').collect::<Vec<_>>()[..] else { panic!("{text}") };
        format!(r#"{{"timestamp":{us},"value":"{value}"{}}}"#, endpoint(service))
    };
    let tag = |text: &&str| {
        let [tag, service] = text.split(' ').collect::<Vec<_>>()[..] else { panic!("{text}") };
        let (key, value) = tag.split_once('=').unwrap();
        let value = if value == "true" { value.to_owned() } else { format!("\"{value}\"") };
        format!(r#"{{"key":"{key}","value":{value}{}}}"#, endpoint(service))
    };
    let json = format!(
        r#"[{{"traceId":"1","id":"2","name":"GET"{fields},"annotations":[{}],"binaryAnnotations":[{}]}}]"#,
        annotations.iter().map(annotation).collect::<Vec<_>>().join(","),
        binary.iter().map(tag).collect::<Vec<_>>().join(","),
    );
    let decoded = zipkin::v1_json(json.as_bytes(), &Limits::default()).unwrap();
    assert_eq!(decoded.rejected, []);
    decoded.items
}

/// What a span says in short: kind, service, start, duration, shared, remote.
fn short(span: &ReportedSpan) -> String {
    let kind = span.kind.map_or("-".to_owned(), |kind| format!("{kind:?}").to_lowercase());
    let text = |text: &Option<String>| text.clone().unwrap_or("-".to_owned());
    let number = |number: Option<u64>| number.map_or("-".to_owned(), |number| number.to_string());
    let shared = if span.shared { " shared" } else { "" };
    format!(
        "{kind} {}>{} {}+{}{shared}",
        text(&span.local.service),
        text(&span.remote.service),
        number(span.start_us),
        number(span.duration_us)
    )
}

#[test]
fn sides_become_spans() {
    let both = r#","timestamp":10,"duration":50"#;
    for (fields, annotations, binary, expected) in [
        // The client's side alone, with and without its own times.
        (both, &["10 cs web", "60 cr web"][..], &["sa=true app"][..], &["client web>app 10+50"][..]),
        ("", &["10 cs web", "60 cr web"], &[], &["client web>- 10+50"]),
        // The server's side alone: without times of its own it shares the client's span.
        (both, &["10 sr app", "60 ss app"], &["ca=true web"], &["server app>web 10+50"]),
        ("", &["10 sr app", "60 ss app"], &[], &["server app>- 10+50 shared"]),
        (r#","timestamp":10"#, &["10 sr app", "60 ss app"], &[], &["server app>- 10+50 shared"]),
        // Both sides.
        (
            both,
            &["10 cs web", "20 sr app", "50 ss app", "60 cr web"],
            &["ca=true web", "sa=true app"],
            &["client web>app 10+50", "server app>web 20+30 shared"],
        ),
        ("", &["10 cs web", "20 sr app"], &[], &["client web>- 10+-", "server app>- 20+- shared"]),
        // A service that calls itself.
        (
            both,
            &["10 cs web", "20 sr web", "50 ss web", "60 cr web"],
            &[],
            &["client web>- 10+50", "server web>- 20+30 shared"],
        ),
        // A missing start that the end implies.
        (both, &["60 cr web"], &[], &["client web>- 10+50"]),
        (both, &["60 ss app"], &[], &["server app>- 10+50"]),
        // Incomplete calls.
        ("", &["10 cs web"], &[], &["client web>- 10+-"]),
        ("", &["60 cr web"], &[], &["client web>- -+-"]),
        (r#","timestamp":10"#, &["20 sr app"], &[], &["server app>- 10+-"]),
        // Messages.
        ("", &["10 ms a", "15 ws a"], &["ma=true kafka"], &["producer a>kafka 10+5"]),
        ("", &["10 wr b", "15 mr b"], &["ma=true kafka"], &["consumer b>kafka 10+5"]),
        ("", &["15 mr b"], &[], &["consumer b>- 15+-"]),
        (
            "",
            &["10 ms a", "15 ws a", "20 wr b", "25 mr b"],
            &["ma=true kafka"],
            &["producer a>kafka 10+5", "consumer b>kafka 20+5 shared"],
        ),
        // Nothing but tags and addresses.
        (both, &[], &["lc= cron"], &["- cron>- 10+50"]),
        (both, &[], &["ca=true web", "sa=true app"], &["- web>app 10+50"]),
        (both, &[], &["sa=true app"], &["- ->app 10+50"]),
        (both, &[], &["ca=true web"], &["server ->web 10+50"]),
        // Finagle's way of naming the client's socket.
        (both, &["10 sr app", "60 ss app"], &["ca=true app", "sa=true app"], &["server app>- 10+50"]),
    ] {
        let spans = read(fields, annotations, binary);
        let found: Vec<_> = spans.iter().map(short).collect();
        assert_eq!(found, expected, "{fields} {annotations:?} {binary:?}");
        assert!(spans.iter().all(|span| span.name == "get" && span.id == SpanId(2)));
    }
}

#[test]
fn annotations_and_tags_go_to_their_side() {
    let spans = read(
        "",
        &["10 cs web", "11 ws web", "12 custom app", "13 lost -", "20 sr app", "60 cr web", "70 cs -"],
        &["http.path=/a web", "tag=1 app", "none=x -"],
    );
    assert_eq!(spans.len(), 2);
    let tag = |side: usize, key| spans[side].tag(key);
    assert_eq!((tag(0, "http.path"), tag(0, "none"), tag(1, "tag")), (Some("/a"), Some("x"), Some("1")));
    let values =
        |side: usize| spans[side].annotations.iter().map(|(_, text)| text.as_str()).collect::<Vec<_>>();
    // Core annotations without an endpoint are ordinary ones.
    assert_eq!(values(0), ["ws", "lost", "cs"]);
    assert_eq!(values(1), ["custom"]);
}

#[test]
fn numbers_are_kept_and_other_values_left_out() {
    let json = r#"[{"traceId":"463ac35c9f6413ad48485a3953bb6124","id":"2","parentId":"0","debug":true,"binaryAnnotations":
        [{"key":"a","value":200},{"key":"b","value":1.5},{"key":"c","value":true},{"key":"d","value":{"x":[]}},
         {"key":"e","value":null},{"key":"f","value":""}]}]"#;
    let decoded = zipkin::v1_json(json.as_bytes(), &Limits::default()).unwrap();
    let span = &decoded.items[0];
    assert_eq!(span.trace, TraceId(0x463a_c35c_9f64_13ad_4848_5a39_53bb_6124));
    assert!(span.debug && span.parent.is_none());
    let tags: Vec<_> = span.tags.iter().map(|(key, value)| format!("{key}={value}")).collect();
    assert_eq!(tags, ["a=200", "b=1.5", "f="]);
}

#[test]
fn v2_on_the_v1_route_is_rejected() {
    let limits = Limits::default();
    for body in [
        r#"[{"traceId":"1","id":"2","localEndpoint":{"serviceName":"x"}}]"#,
        r#"[{"traceId":"1","id":"2","tags":{}}]"#,
        r#"[{"traceId":"1","id":"2","kind":"CLIENT"}]"#,
    ] {
        let error = zipkin::v1_json(body.as_bytes(), &limits).unwrap_err();
        assert_eq!(error.to_string(), "expected Zipkin v1 JSON, but received Zipkin v2 JSON");
    }
    let bad = r#"[{"traceId":"1","id":"2"},{"traceId":"1"},{"id":"2"},{"traceId":"1","id":"x"},
        {"traceId":"1","id":"2","annotations":[{"value":"cs"}]},{"traceId":"1","id":"2","binaryAnnotations":[{}]},7]"#;
    let decoded = zipkin::v1_json(bad.as_bytes(), &limits).unwrap();
    assert_eq!((decoded.items.len(), decoded.n_rejected), (1, 6));
}

#[test]
fn many_services_in_one_span_are_refused() {
    let names: Vec<_> = (0..100).map(|n| format!("1 x s{n}")).collect();
    let json = names.iter().map(|text| {
        let service = text.rsplit(' ').next().unwrap();
        format!(r#"{{"timestamp":1,"value":"x","endpoint":{{"serviceName":"{service}"}}}}"#)
    });
    let json =
        format!(r#"[{{"traceId":"1","id":"2","annotations":[{}]}}]"#, json.collect::<Vec<_>>().join(","));
    let decoded = zipkin::v1_json(json.as_bytes(), &Limits::default()).unwrap();
    assert_eq!((decoded.items.len(), decoded.n_rejected), (0, 1));
}

/// Writes Thrift as a tracer does.
#[derive(Default)]
struct Thrift(Vec<u8>);

impl Thrift {
    fn field(mut self, kind: u8, number: i16, bytes: &[u8]) -> Self {
        self.0.push(kind);
        self.0.extend(number.to_be_bytes());
        self.0.extend(bytes);
        self
    }

    fn i64(self, number: i16, value: i64) -> Self {
        self.field(10, number, &value.to_be_bytes())
    }

    fn text(self, number: i16, bytes: &[u8]) -> Self {
        self.field(11, number, &[&(bytes.len() as i32).to_be_bytes(), bytes].concat())
    }

    fn list(self, number: i16, items: &[Self]) -> Self {
        self.field(15, number, &list(items))
    }

    fn part(self, number: i16, part: &Self) -> Self {
        self.field(12, number, &[&part.0[..], &[0]].concat())
    }
}

fn list(items: &[Thrift]) -> Vec<u8> {
    let mut out = vec![12];
    out.extend((items.len() as i32).to_be_bytes());
    for item in items {
        out.extend(&item.0);
        out.push(0);
    }
    out
}

fn thrift_endpoint(name: &str) -> Thrift {
    let ip = [192, 168, 0, 1];
    Thrift::default().field(8, 1, &ip).field(6, 2, &9411u16.to_be_bytes()).text(3, name.as_bytes())
}

#[test]
fn thrift_is_read() {
    let endpoint = thrift_endpoint("Web");
    let annotation =
        |us: i64, value: &str| Thrift::default().i64(1, us).text(2, value.as_bytes()).part(3, &endpoint);
    let binary = |key: &str, value: &[u8], kind: i32, endpoint: &Thrift| {
        Thrift::default()
            .text(1, key.as_bytes())
            .text(2, value)
            .field(8, 3, &kind.to_be_bytes())
            .part(4, endpoint)
    };
    let span = Thrift::default()
        .i64(1, 1)
        .text(3, b"GET")
        .i64(4, 2)
        .i64(5, 3)
        .list(6, &[annotation(10, "cs"), annotation(60, "cr")])
        .list(
            8,
            &[
                binary("http.path", b"/a", 6, &endpoint),
                binary("status", &200i16.to_be_bytes(), 2, &endpoint),
                binary("sa", &[1], 0, &thrift_endpoint("app")),
                binary("odd", &[1], 1, &endpoint),
            ],
        )
        .field(2, 9, &[1])
        .i64(10, 10)
        .i64(11, 50)
        .i64(12, 7)
        // Fields of the future: a map, a set of structs.
        .field(13, 90, &[11, 12, 0, 0, 0, 1, 0, 0, 0, 1, b'k', 0])
        .field(14, 91, &[12, 0, 0, 0, 2, 0, 0]);
    let body = list(&[span, Thrift::default().i64(1, 1)]);
    let decoded = zipkin::v1_thrift(&body, &Limits::default()).unwrap();
    assert_eq!((decoded.items.len(), decoded.n_rejected), (1, 1));
    let span = &decoded.items[0];
    assert_eq!(span.trace, TraceId(7 << 64 | 1));
    assert_eq!((span.id, span.parent, span.kind), (SpanId(2), Some(SpanId(3)), Some(SpanKind::Client)));
    assert_eq!((span.start_us, span.duration_us, span.debug), (Some(10), Some(50), true));
    assert_eq!(span.local.service.as_deref(), Some("web"));
    assert_eq!((span.local.ipv4, span.local.port), (Some([192, 168, 0, 1].into()), Some(9411)));
    assert_eq!(span.remote.service.as_deref(), Some("app"));
    let tags: Vec<_> = span.tags.iter().map(|(key, value)| format!("{key}={value}")).collect();
    assert_eq!(tags, ["http.path=/a", "status=200"]);
    for end in 0..body.len() {
        assert!(end == 0 || zipkin::v1_thrift(&body[..end], &Limits::default()).is_err(), "{end}");
    }
}

#[test]
fn thrift_that_lies_is_refused() {
    let limits = Limits::default();
    let nested = [[12u8, 0, 99].repeat(10_000), vec![0; 10_001]].concat();
    for body in [
        vec![12, 0x7f, 0xff, 0xff, 0xff],
        vec![12, 0xff, 0xff, 0xff, 0xff],
        vec![8, 0, 0, 0, 1, 0],
        [&[12, 0, 0, 0, 1][..], &nested].concat(),
        [&list(&[Thrift::default().field(99, 1, &[])])[..]].concat(),
        list(&[Thrift::default().field(11, 3, &[0x80, 0, 0, 0])]),
    ] {
        assert_eq!(zipkin::v1_thrift(&body, &limits).unwrap_err().status(), 400);
    }
    let many = Limits { items: 1, ..limits };
    assert_eq!(zipkin::v1_thrift(&[12, 0, 0, 0, 2, 0, 0], &many).unwrap_err().status(), 413);
}
