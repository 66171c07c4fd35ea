//! Zipkin v2: what is normalised, what is refused, and that what is written reads back.

use faultscope_model::trace::{Endpoint, SpanKind};
use faultscope_model::{SpanId, TraceId};

use super::{span, spans};
use crate::interop::{DecodeError, Limits, read_trace_id, zipkin, zipkin_trace_id};

#[test]
fn trace_ids_are_padded_and_cut() {
    for (text, written) in [
        ("1", "0000000000000001"),
        ("48485a3953bb6124", "48485a3953bb6124"),
        ("148485a3953bb6124", "00000000000000148485a3953bb6124".to_owned().as_str().trim_start()),
        ("000000000000000048485a3953bb6124", "48485a3953bb6124"),
        ("463ac35c9f6413ad48485a3953bb6124", "463ac35c9f6413ad48485a3953bb6124"),
        ("463AC35C9F6413AD48485A3953BB6124", "463ac35c9f6413ad48485a3953bb6124"),
    ] {
        let id = span(&format!(r#""traceId":"{text}""#)).trace;
        let written = if written.len() == 31 { format!("0{written}") } else { written.to_owned() };
        assert_eq!(zipkin_trace_id(id), written, "{text}");
    }
    for bad in ["", "0", "00000000000000000000000000000000", "g", "1 ", &"1".repeat(33), "é"] {
        assert!(read_trace_id(bad).is_err(), "{bad}");
    }
}

#[test]
fn span_ids_are_padded_and_zero_parents_dropped() {
    assert_eq!(span(r#""id":"a""#).id, SpanId(10));
    assert_eq!(span(r#""parentId":"b""#).parent, Some(SpanId(11)));
    for none in ["0", "0000000000000000", "2"] {
        // A span is not its own parent.
        assert_eq!(span(&format!(r#""parentId":"{none}""#)).parent, None, "{none}");
    }
    assert_eq!(span(r#""parentId":null,"name":null,"tags":null,"localEndpoint":null"#), span(""));
}

#[test]
fn names_are_lower_cased_and_nothing_else() {
    let span = span(
        r#""name":"GET ","localEndpoint":{"serviceName":"Order-Café"},"remoteEndpoint":{"serviceName":"ÉCLAIR"}"#,
    );
    assert_eq!(span.name, "get ");
    assert_eq!(span.local.service.as_deref(), Some("order-café"));
    assert_eq!(span.remote.service.as_deref(), Some("éclair"));
}

#[test]
fn shared_is_the_servers() {
    assert!(span(r#""kind":"SERVER","shared":true"#).shared);
    assert!(span(r#""shared":true"#).shared);
    assert!(!span(r#""kind":"CLIENT","shared":true"#).shared);
    assert!(!span(r#""shared":false"#).shared);
    assert!(span(r#""debug":true"#).debug);
}

#[test]
fn times_are_micros_and_zero_is_unknown() {
    for (fields, start, duration) in [
        (r#""timestamp":1502787600000000,"duration":150000"#, Some(1_502_787_600_000_000), Some(150_000)),
        (r#""timestamp":0,"duration":0"#, None, None),
        (r#""timestamp":-1,"duration":-5"#, None, None),
        (r#""timestamp":1502787600000000.9,"duration":0.25"#, Some(1_502_787_600_000_000), Some(1)),
        (r#""timestamp":"1502787600000000","duration":"7""#, Some(1_502_787_600_000_000), Some(7)),
        (r#""timestamp":1.5e3,"duration":1.5e3"#, Some(1_500), Some(1_500)),
        ("", None, None),
    ] {
        let span = span(fields);
        assert_eq!((span.start_us, span.duration_us), (start, duration), "{fields}");
    }
}

#[test]
fn endpoints_may_hold_anything_or_nothing() {
    let endpoint = |json: &str| span(&format!(r#""localEndpoint":{json}"#)).local;
    let ip = |v4: Option<&str>, v6: Option<&str>| Endpoint {
        ipv4: v4.map(|ip| ip.parse().unwrap()),
        ipv6: v6.map(|ip| ip.parse().unwrap()),
        ..Endpoint::default()
    };
    for (json, expected) in [
        ("{}", ip(None, None)),
        (r#"{"serviceName":""}"#, ip(None, None)),
        (r#"{"serviceName":null,"ipv4":null,"port":null}"#, ip(None, None)),
        (r#"{"ipv4":"127.0.0.1","ipv6":"2001:db8::c001"}"#, ip(Some("127.0.0.1"), Some("2001:db8::c001"))),
        (r#"{"ipv4":"2001:db8::c001"}"#, ip(None, Some("2001:db8::c001"))),
        (r#"{"ipv6":"127.0.0.1"}"#, ip(Some("127.0.0.1"), None)),
        (r#"{"ipv6":"::ffff:1.2.3.4"}"#, ip(Some("1.2.3.4"), None)),
        (r#"{"ipv6":"::1.2.3.4"}"#, ip(Some("1.2.3.4"), None)),
        (r#"{"ipv6":"::1"}"#, ip(None, Some("::1"))),
        (r#"{"ipv4":"localhost","port":0}"#, ip(None, None)),
        (r#"{"port":-1}"#, ip(None, None)),
        (r#"{"port":8080,"future":{}}"#, Endpoint { port: Some(8080), ..Endpoint::default() }),
    ] {
        assert_eq!(endpoint(json), expected, "{json}");
    }
}

#[test]
fn annotations_are_sorted_and_tags_unique() {
    let span = span(
        r#""annotations":[{"timestamp":2,"value":"b"},{"timestamp":1,"value":"z"},{"timestamp":2,"value":"b"}],
           "tags":{"a":"1","b":2,"a":"3","":"","c":"{\"x\":\"é\\n\"}"}"#,
    );
    assert_eq!(span.annotations, [(1, "z".to_owned()), (2, "b".to_owned())]);
    let tags: Vec<_> = span.tags.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
    assert_eq!(tags, [("", ""), ("a", "3"), ("b", "2"), ("c", "{\"x\":\"é\\n\"}")]);
}

#[test]
fn many_tags_stay_unique() {
    let tags: Vec<_> = (0..200).map(|n| format!(r#""k{}":"{n}""#, n % 100)).collect();
    let json = format!(r#"[{{"traceId":"1","id":"2","tags":{{{}}}}}]"#, tags.join(","));
    let span = spans(&json).remove(0);
    assert_eq!(span.tags.len(), 100);
    assert_eq!(span.tag("k99"), Some("199"));
}

#[test]
fn good_spans_of_a_bad_batch_are_kept() {
    let good = r#"{"traceId":"1","id":"2"}"#;
    for (bad, reason) in [
        ("{}", "traceId is missing"),
        (r#"{"traceId":"1"}"#, "id is missing"),
        (r#"{"traceId":null,"id":"1"}"#, "traceId is missing"),
        (r#"{"traceId":"0","id":"1"}"#, "traceId is all zeros"),
        (r#"{"traceId":"x","id":"1"}"#, "traceId is not hexadecimal"),
        (r#"{"traceId":"1","id":"0000000000000000"}"#, "id is all zeros"),
        (r#"{"traceId":"1","id":"12345678901234567"}"#, "id is too long"),
        (r#"{"traceId":"1","id":"2","parentId":""}"#, "parentId is empty"),
        (r#"{"traceId":"1","id":"2","kind":"client"}"#, "kind is none of"),
        (r#"{"traceId":"1","id":"2","timestamp":"noon"}"#, "a text holds no number"),
        (r#"{"traceId":"1","id":"2","timestamp":18446744073709551615}"#, "too large"),
        (r#"{"traceId":"1","id":"2","timestamp":1e300}"#, "too large"),
        (r#"{"traceId":"1","id":"2","tags":{"a":null}}"#, "tag `a` has no value"),
        (r#"{"traceId":"1","id":"2","tags":{"a":true}}"#, "expected a text"),
        (r#"{"traceId":"1","id":"2","tags":[]}"#, "expected tags"),
        (r#"{"traceId":"1","id":"2","localEndpoint":"x"}"#, "expected an endpoint"),
        (r#"{"traceId":"1","id":"2","localEndpoint":{"port":65536}}"#, "65536 is not a port"),
        (r#"{"traceId":"1","id":"2","annotations":[{"value":"x"}]}"#, "no timestamp"),
        (r#"{"traceId":"1","id":"2","debug":"yes"}"#, "expected a boolean"),
        ("3", "expected a span"),
        ("null", "expected a span"),
        (r#"["1","2"]"#, "expected a span"),
    ] {
        let body = format!("[{good},{bad},{good},{bad},{good}]");
        let decoded = zipkin::v2_json(body.as_bytes(), &Limits::default()).unwrap();
        assert_eq!((decoded.items.len(), decoded.n_rejected), (3, 2), "{bad}");
        assert_eq!(decoded.rejected.iter().map(|r| r.index).collect::<Vec<_>>(), [1, 3], "{bad}");
        assert!(decoded.rejected[0].reason.contains(reason), "{bad}: {}", decoded.rejected[0].reason);
        assert!(decoded.complaint().unwrap().contains("2 of 5"), "{bad}");
    }
}

#[test]
fn bodies_other_than_lists_are_rejected() {
    for bad in [
        "{",
        "[",
        "[{\"traceId\":\"1\",\"id\":\"2\"}",
        "{}",
        "3",
        "[]x",
        "[,]",
        "[{}{}]",
        "\u{feff}[]",
        "[{'a':1}]",
    ] {
        let error = zipkin::v2_json(bad.as_bytes(), &Limits::default()).unwrap_err();
        assert_eq!(error.status(), 400, "{bad}");
    }
    assert!(
        zipkin::v2_json(b"[{\"traceId\":\"1\",\"id\":\"2\",\"name\":\"\xff\"}]", &Limits::default()).is_err()
    );
}

#[test]
fn v1_on_the_v2_route_is_rejected() {
    let v1 = r#"{"traceId":"1","id":"2","binaryAnnotations":[]}"#;
    let v1_too = r#"{"traceId":"1","id":"2","annotations":[{"timestamp":1,"value":"sr","endpoint":{"serviceName":"x"}}]}"#;
    for body in [format!("[{v1}]"), format!("[{v1_too}]"), format!("[{v1},{v1_too}]")] {
        let error = zipkin::v2_json(body.as_bytes(), &Limits::default()).unwrap_err();
        assert!(matches!(error, DecodeError::WrongFormat { .. }) && error.status() == 400, "{body}");
        assert_eq!(error.to_string(), "expected Zipkin v2 JSON, but received Zipkin v1 JSON");
    }
    let mixed = format!(r#"[{v1},{{"traceId":"1","id":"2"}}]"#);
    let decoded = zipkin::v2_json(mixed.as_bytes(), &Limits::default()).unwrap();
    assert_eq!((decoded.items.len(), decoded.n_rejected), (1, 1));
}

#[test]
fn counts_and_lengths_are_bounded() {
    let limits = Limits { items: 3, tags: 2, annotations: 2, text_bytes: 4, ..Limits::default() };
    let decode = |body: &str| zipkin::v2_json(body.as_bytes(), &limits);
    let good = r#"{"traceId":"1","id":"2"}"#;
    assert_eq!(decode(&format!("[{good},{good},{good},{good}]")).unwrap_err().status(), 413);
    assert_eq!(decode("[{},{},{},{}]").unwrap_err().status(), 413);
    let many = r#"[{"traceId":"1","id":"2","tags":{"a":"1","b":"2","c":"3"}},{"traceId":"1","id":"2","annotations":
        [{"timestamp":1,"value":"a"},{"timestamp":1,"value":"b"},{"timestamp":1,"value":"c"}]}]"#;
    assert_eq!(decode(many).unwrap().n_rejected, 2);
    // Cut between characters, never within one.
    let long = decode(r#"[{"traceId":"1","id":"2","name":"abcé","tags":{"xéééé":"yyyyyyyy"}}]"#).unwrap();
    assert_eq!((long.items[0].name.as_str(), long.items[0].tags[0].0.as_str()), ("abc", "xé"));
    assert_eq!(long.items[0].tags[0].1, "yyyy");
}

#[test]
fn many_rejections_take_little() {
    let body = format!("[{}{{}}]", "{},".repeat(50_000));
    let decoded = zipkin::v2_json(body.as_bytes(), &Limits::default()).unwrap();
    assert_eq!((decoded.n_rejected, decoded.rejected.len()), (50_001, 100));
}

#[test]
fn traces_and_lines_are_read_too() {
    let one = r#"{"traceId":"1","id":"2"}"#;
    let limits = Limits::default();
    let traces = zipkin::v2_traces(format!("[[{one},{one}],[],[{one}]]").as_bytes(), &limits).unwrap();
    assert_eq!(traces.items.len(), 3);
    let lines =
        zipkin::v2_lines(format!("{one}\r\n\n[{one},{one}]\n{{}}\nnonsense\n{one}").as_bytes(), &limits)
            .unwrap();
    assert_eq!((lines.items.len(), lines.n_rejected), (4, 2));
    let written = zipkin::to_lines(&lines.items);
    assert_eq!(zipkin::v2_lines(&written, &limits).unwrap().items, lines.items);
}

#[test]
fn what_is_written_is_what_zipkin_writes() {
    let json = concat!(
        r#"[{"traceId":"7180c278b62e8f6a216a2aea45d08fc9","parentId":"6b221d5bc9e6496c","id":"5b4185666d50f68b","#,
        r#""kind":"CLIENT","name":"get","timestamp":1439572800000000,"duration":200000,"#,
        r#""localEndpoint":{"serviceName":"frontend","ipv4":"127.0.0.1"},"#,
        r#""remoteEndpoint":{"serviceName":"backend","ipv4":"192.168.99.101","port":9000},"#,
        r#""annotations":[{"timestamp":1439572800100000,"value":"foo"}],"#,
        r#""tags":{"clnt/finagle.version":"6.45.0","http.path":"/api"},"debug":true}]"#
    );
    assert_eq!(String::from_utf8(zipkin::to_json(&spans(json))).unwrap(), json);
}

#[test]
fn a_status_becomes_an_error_tag() {
    let mut span = span(r#""name":"x""#);
    span.name = "GET /A".to_owned();
    span.failed = true;
    let written = String::from_utf8(zipkin::to_json(&[span.clone()])).unwrap();
    assert!(written.contains(r#""name":"get /a","tags":{"error":"true"}"#), "{written}");
    let read = zipkin::v2_proto(&zipkin::to_proto(&[span]), &Limits::default()).unwrap();
    assert_eq!(read.items[0].tag("error"), Some("true"));
}

#[test]
fn protobuf_reads_back_and_is_checked() {
    let all = spans(
        r#"[{"traceId":"7180c278b62e8f6a216a2aea45d08fc9","parentId":"1","id":"2","kind":"SERVER","name":"get",
            "timestamp":1,"duration":2,"localEndpoint":{"serviceName":"a","ipv4":"1.2.3.4","ipv6":"2001:db8::1","port":1},
            "remoteEndpoint":{"port":65535},"annotations":[{"timestamp":1,"value":"é"}],"tags":{"z":"","a":"b"},
            "shared":true},
            {"traceId":"1","id":"2","kind":"PRODUCER","debug":true},{"traceId":"1","id":"2","kind":"CONSUMER"},
            {"traceId":"1","id":"2","kind":"CLIENT"}]"#,
    );
    let bytes = zipkin::to_proto(&all);
    let limits = Limits::default();
    assert_eq!(zipkin::v2_proto(&bytes, &limits).unwrap().items, all);
    assert!(zipkin::v2_proto(&bytes[..bytes.len() - 1], &limits).is_err());
    // Spans by hand: bad lengths of ids, zeros, bad text, a future field, a future kind.
    let good: &[u8] = &[10, 8, 0, 0, 0, 0, 0, 0, 0, 1, 26, 8, 0, 0, 0, 0, 0, 0, 0, 2];
    let decode = |extra: &[u8]| {
        let span = [good, extra].concat();
        let body = [&[10, span.len() as u8], span.as_slice(), &[10, 20], good].concat();
        let decoded = zipkin::v2_proto(&body, &limits).unwrap();
        assert!(!decoded.items.is_empty());
        decoded
    };
    assert_eq!(decode(&[]).items.len(), 2);
    assert_eq!(decode(&[0xf8, 0x01, 3, 32, 99]).items[0].kind, None);
    assert_eq!(decode(&[32, 3]).items[0].kind, Some(SpanKind::Producer));
    for bad in [
        &[18, 1, 1][..],
        &[10, 3, 1, 1, 1],
        &[42, 1, 0xff],
        &[10, 8, 0, 0, 0, 0, 0, 0, 0, 0],
        &[66, 4, 32, 128, 128, 4],
    ] {
        assert_eq!(decode(bad).n_rejected, 1, "{bad:?}");
    }
    assert_eq!(decode(&[]).items[0].trace, TraceId(1));
    let limits = Limits { items: 1, ..Limits::default() };
    assert_eq!(zipkin::v2_proto(&bytes, &limits).unwrap_err().status(), 413);
    let limits = Limits { item_bytes: 30, ..Limits::default() };
    assert_eq!(zipkin::v2_proto(&bytes, &limits).unwrap().n_rejected, 1);
}

#[test]
fn addresses_with_zeros_in_front_are_decimal() {
    let ip = |text: &str| span(&format!(r#""localEndpoint":{{"ipv4":"{text}"}}"#)).local.ipv4;
    assert_eq!(ip("52.0.0.04"), Some("52.0.0.4".parse().unwrap()));
    assert_eq!(ip("010.001.000.255"), Some("10.1.0.255".parse().unwrap()));
    for none in ["1.2.3", "1.2.3.4.5", "1.2.3.0256", "1.2.3.999", "1.2.3.", "1.2.3.+4", "a.b.c.d"] {
        assert_eq!(ip(none), None, "{none}");
    }
}
