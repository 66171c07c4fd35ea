//! OTLP traces: what becomes of each field, both encodings, and the way back.

use faultscope_model::trace::{Endpoint, ReportedSpan, SpanKind};
use faultscope_model::{SpanId, TraceId};
use serde_json::{Value, json};

use super::spans;
use crate::interop::{Limits, jaeger, otlp};

const TRACE: &str = "5B8EFFF798038103D269B633813FC60C";

fn body(resource: &Value, scope: &Value, spans: &Value) -> Vec<u8> {
    json!({ "resourceSpans": [{ "resource": resource, "scopeSpans": [{ "scope": scope, "spans": spans }] }] })
        .to_string()
        .into_bytes()
}

fn read(span: &Value) -> ReportedSpan {
    let mut whole = json!({ "traceId": TRACE, "spanId": "EEE19B7EC3C1B174" });
    for (key, value) in span.as_object().unwrap() {
        whole[key] = value.clone();
    }
    let decoded =
        otlp::traces_json(&body(&json!({}), &json!({}), &json!([whole])), &Limits::default()).unwrap();
    assert_eq!(decoded.rejected, []);
    decoded.items.into_iter().next().unwrap()
}

fn text(key: &str, value: &str) -> Value {
    json!({ "key": key, "value": { "stringValue": value } })
}

#[test]
fn the_protocols_own_example_is_read() {
    let resource = json!({ "attributes": [text("service.name", "My.Service"), text("host.name", "h1")] });
    let scope = json!({ "name": "my.library", "version": "1.0.0", "attributes": [text("x", "y")] });
    let span = json!({
        "traceId": TRACE, "spanId": "EEE19B7EC3C1B174", "parentSpanId": "eee19b7ec3c1b173",
        "name": "I'm a Server span", "startTimeUnixNano": "1544712660000000000",
        "endTimeUnixNano": "1544712661000000000", "kind": 2, "flags": 257, "future": { "x": [1] },
        "attributes": [text("my.span.attr", "some value")]
    });
    let decoded = otlp::traces_json(&body(&resource, &scope, &json!([span])), &Limits::default()).unwrap();
    let span = &decoded.items[0];
    assert_eq!(span.trace, TraceId(0x5b8e_fff7_9803_8103_d269_b633_813f_c60c));
    assert_eq!((span.id, span.parent), (SpanId(0xeee1_9b7e_c3c1_b174), Some(SpanId(0xeee1_9b7e_c3c1_b173))));
    assert_eq!((span.kind, span.name.as_str()), (Some(SpanKind::Server), "I'm a Server span"));
    assert_eq!((span.start_us, span.duration_us), (Some(1_544_712_660_000_000), Some(1_000_000)));
    assert_eq!(span.local.service.as_deref(), Some("My.Service"));
    let tags: Vec<_> = span.tags.iter().map(|(key, value)| format!("{key}={value}")).collect();
    assert_eq!(
        tags,
        ["my.span.attr=some value", "otel.scope.name=my.library", "otel.scope.version=1.0.0", "host.name=h1"]
    );
}

#[test]
fn values_of_all_kinds_become_texts() {
    let nested = json!({ "kvlistValue": { "values": [
        { "key": "a", "value": { "arrayValue": { "values": [{ "intValue": 1 }, { "boolValue": true }, {}] } } }] } });
    for (value, expected) in [
        (json!({ "stringValue": "x" }), "x"),
        (json!({ "boolValue": false }), "false"),
        (json!({ "intValue": "-9223372036854775808" }), "-9223372036854775808"),
        (json!({ "intValue": 200 }), "200"),
        (json!({ "intValue": 200.0 }), "200"),
        (json!({ "doubleValue": 1.5 }), "1.5"),
        (json!({ "doubleValue": 3 }), "3"),
        (json!({ "doubleValue": "NaN" }), "NaN"),
        (json!({ "doubleValue": "-Infinity" }), "-inf"),
        (json!({ "bytesValue": "AQID" }), "AQID"),
        (json!({ "stringValue": null }), ""),
        (json!({ "futureValue": {} }), ""),
        (json!({}), ""),
        (Value::Null, ""),
        (nested, r#"{"a":[1,true,null]}"#),
    ] {
        let span = read(&json!({ "attributes": [{ "key": "k", "value": value }] }));
        assert_eq!(span.tag("k"), Some(expected), "{value}");
    }
}

#[test]
fn times_are_nanos() {
    for (start, end, expected) in [
        (json!("1000"), json!("3999"), (Some(1), Some(2))),
        (json!(1000), json!(1000), (Some(1), Some(1))),
        (json!("1000"), json!("1500"), (Some(1), Some(1))),
        (json!("3000"), json!("1000"), (Some(3), None)),
        (json!("3000"), json!("0"), (Some(3), None)),
        (json!("0"), json!("3000"), (None, None)),
        (Value::Null, Value::Null, (None, None)),
        (
            json!("18446744073709551615"),
            json!("18446744073709551615"),
            (Some(18_446_744_073_709_551), Some(1)),
        ),
    ] {
        let span = read(&json!({ "startTimeUnixNano": start, "endTimeUnixNano": end }));
        assert_eq!((span.start_us, span.duration_us), expected, "{start} {end}");
    }
}

#[test]
fn status_is_kept_and_shown() {
    for (status, attributes, failed, tags) in [
        (json!({}), json!([]), false, vec![]),
        (json!({ "code": 1 }), json!([]), false, vec![("otel.status_code", "OK")]),
        (json!({ "code": 2, "message": "boom" }), json!([]), true, vec![("error", "boom")]),
        (json!({ "code": 2 }), json!([]), true, vec![("error", "")]),
        (
            json!({ "code": 2, "message": "boom" }),
            json!([text("error", "yes")]),
            true,
            vec![("error", "yes"), ("otel.status_description", "boom")],
        ),
    ] {
        let span = read(&json!({ "status": status, "attributes": attributes }));
        let found: Vec<_> = span.tags.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        assert_eq!((span.failed, found), (failed, tags), "{status}");
    }
}

#[test]
fn events_links_and_state_are_kept() {
    let span = read(&json!({
        "traceState": "a=b",
        "events": [
            { "timeUnixNano": "2000", "name": "plain" },
            { "timeUnixNano": "3000", "name": "exception", "attributes": [text("exception.type", "Io\"")] },
        ],
        "links": [{ "traceId": TRACE, "spanId": "00000000000000ff" }, { "traceId": "", "spanId": "" }],
    }));
    assert_eq!(
        span.annotations,
        [(2, "plain".to_owned()), (3, r#""exception":{"exception.type":"Io\""}"#.to_owned())]
    );
    assert_eq!(span.tag("otel.links"), Some("5b8efff798038103d269b633813fc60c-00000000000000ff"));
    assert_eq!(span.tag("w3c.tracestate"), Some("a=b"));
}

#[test]
fn the_other_side_is_found() {
    for (kind, attributes, service, ip, port) in [
        (3, vec![("peer.service", "db"), ("server.address", "db.local")], Some("db"), None, None),
        (
            3,
            vec![("server.address", "db.local"), ("server.port", "5432")],
            Some("db.local"),
            None,
            Some(5432),
        ),
        (3, vec![("net.peer.name", "old.local"), ("net.peer.port", "80")], Some("old.local"), None, Some(80)),
        (3, vec![("server.address", "10.0.0.1")], None, Some("10.0.0.1"), None),
        (
            3,
            vec![("db.system", "redis"), ("network.peer.address", "10.0.0.2")],
            Some("redis"),
            Some("10.0.0.2"),
            None,
        ),
        (4, vec![("messaging.system", "kafka")], Some("kafka"), None, None),
        (5, vec![("messaging.system", "kafka")], Some("kafka"), None, None),
        (
            2,
            vec![("client.address", "10.0.0.3"), ("server.address", "me.local")],
            None,
            Some("10.0.0.3"),
            None,
        ),
        (1, vec![("peer.service", "db")], None, None, None),
    ] {
        let list: Vec<_> = attributes.iter().map(|(key, value)| text(key, value)).collect();
        let span = read(&json!({ "kind": kind, "attributes": list }));
        let expected = Endpoint {
            service: service.map(str::to_owned),
            ipv4: ip.map(|ip| ip.parse().unwrap()),
            ipv6: None,
            port,
        };
        assert_eq!(span.remote, expected, "{kind} {attributes:?}");
        // What was found stays a tag as well.
        assert_eq!(span.tags.len(), attributes.len());
    }
}

#[test]
fn bad_spans_leave_good_ones() {
    let good = json!({ "traceId": TRACE, "spanId": "0000000000000001" });
    for bad in [
        json!({}),
        json!({ "traceId": TRACE }),
        json!({ "traceId": "00000000000000000000000000000000", "spanId": "0000000000000001" }),
        json!({ "traceId": "W47/95gDgQPSabYzgT/GDA==", "spanId": "0000000000000001" }),
        json!({ "traceId": TRACE, "spanId": "01" }),
        json!({ "traceId": TRACE, "spanId": "0000000000000001", "kind": "SPAN_KIND_SERVER" }),
        json!({ "traceId": TRACE, "spanId": "0000000000000001", "startTimeUnixNano": "-1" }),
        json!({ "traceId": TRACE, "spanId": "0000000000000001", "attributes": {} }),
        json!([TRACE]),
        json!(7),
    ] {
        let decoded =
            otlp::traces_json(&body(&json!({}), &json!({}), &json!([good, bad, good])), &Limits::default());
        let decoded = decoded.unwrap();
        assert_eq!((decoded.items.len(), decoded.n_rejected), (2, 1), "{bad}");
        assert_eq!(decoded.rejected[0].index, 1);
    }
    let parts = json!({ "resourceSpans": [7, { "resource": 7 }, { "scopeSpans": [7, { "scope": [] }] },
        { "resource": null, "scopeSpans": [{ "scope": null, "spans": [good] }] }, {}, { "scopeSpans": null }] });
    let decoded = otlp::traces_json(parts.to_string().as_bytes(), &Limits::default()).unwrap();
    assert_eq!((decoded.items.len(), decoded.n_rejected), (1, 4));
    for bad in ["[]", "7", "{", r#"{"resourceSpans":7}"#, r#"{"resourceSpans":[{"scopeSpans":{}}]}"#] {
        assert_eq!(otlp::traces_json(bad.as_bytes(), &Limits::default()).unwrap_err().status(), 400, "{bad}");
    }
}

#[test]
fn the_order_of_fields_does_not_matter() {
    let span = format!(r#"{{"traceId":"{TRACE}","spanId":"0000000000000001"}}"#);
    let resource = r#"{"attributes":[{"value":{"stringValue":"web"},"key":"service.name"}]}"#;
    let scope = r#"{"name":"lib"}"#;
    let other = format!(r#"{{"scopeSpans":[{{"spans":[{span}]}}]}}"#);
    for usual in [false, true] {
        let scopes = match usual {
            true => format!(r#"[{{"scope":{scope},"spans":[{span},7]}}]"#),
            false => format!(r#"[{{"spans":[{span},7],"scope":{scope}}}]"#),
        };
        let first = match usual {
            true => format!(r#"{{"resource":{resource},"scopeSpans":{scopes}}}"#),
            false => format!(r#"{{"scopeSpans":{scopes},"resource":{resource}}}"#),
        };
        let body = format!(r#"{{"resourceSpans":[{first},{other}]}}"#);
        let decoded = otlp::traces_json(body.as_bytes(), &Limits::default()).unwrap();
        assert_eq!((decoded.items.len(), decoded.n_rejected), (2, 1));
        assert_eq!(decoded.items[0].local.service.as_deref(), Some("web"));
        assert_eq!(decoded.items[0].tag("otel.scope.name"), Some("lib"));
        // Nothing is taken over from one resource or scope to the next.
        assert_eq!((decoded.items[1].local.service.as_deref(), decoded.items[1].tags.len()), (None, 0));
    }
}

#[test]
fn a_large_resource_cannot_be_multiplied() {
    let resource = json!({ "attributes": [text("big", &"x".repeat(100_000))] });
    let span = json!({ "traceId": TRACE, "spanId": "0000000000000001" });
    let limits = Limits { decoded_bytes: 750_000, ..Limits::default() };
    let ok = body(&resource, &json!({}), &json!(vec![span.clone(); 7]));
    assert_eq!(otlp::traces_json(&ok, &limits).unwrap().items.len(), 7);
    let bomb = body(&resource, &json!({}), &json!(vec![span; 8]));
    assert_eq!(otlp::traces_json(&bomb, &limits).unwrap_err().status(), 413);
}

fn all_kinds() -> Vec<ReportedSpan> {
    let mut all = spans(
        r#"[{"traceId":"7180c278b62e8f6a216a2aea45d08fc9","parentId":"1","id":"2","kind":"SERVER","name":"get",
             "timestamp":1000,"duration":2,"localEndpoint":{"serviceName":"a","ipv4":"1.2.3.4","port":1},
             "tags":{"http.status_code":"200","host.name":"h","otel.scope.name":"lib","otel.scope.version":"2",
             "otel.status_code":"OK","w3c.tracestate":"a=b",
             "otel.links":"7180c278b62e8f6a216a2aea45d08fc9-0000000000000001"},
             "annotations":[{"timestamp":1,"value":"\"e\":{\"k\":1}"},{"timestamp":2,"value":"\"not json"}]},
            {"traceId":"1","id":"2","kind":"CLIENT","localEndpoint":{"serviceName":"a"},"name":"x",
             "remoteEndpoint":{"serviceName":"db","ipv6":"2001:db8::1","port":5432}},
            {"traceId":"1","id":"3","localEndpoint":{"serviceName":"b"}}]"#,
    );
    all[1].failed = true;
    all[1].tags.push(("error".to_owned(), "boom".to_owned()));
    all
}

#[test]
fn what_is_written_reads_back() {
    let all = all_kinds();
    let limits = Limits::default();
    let from_json = otlp::traces_json(&otlp::to_json(&all), &limits).unwrap();
    let from_proto = otlp::traces_proto(&otlp::to_proto(&all), &limits).unwrap();
    assert_eq!(from_json, from_proto);
    assert_eq!(from_json.rejected, []);
    for (mut read, mut wrote) in from_json.items.into_iter().zip(all) {
        // Endpoints also come back as attributes, and order changes.
        read.tags.retain(|(key, _)| wrote.tag(key).is_some());
        read.tags.sort();
        wrote.tags.sort();
        assert_eq!(read, wrote);
    }
}

#[test]
fn spans_are_grouped_by_who_reports() {
    let written: Value = serde_json::from_slice(&otlp::to_json(&all_kinds())).unwrap();
    let groups = written["resourceSpans"].as_array().unwrap();
    assert_eq!(groups.len(), 3);
    assert_eq!(groups[0]["resource"]["attributes"].as_array().unwrap().len(), 2);
    let span = &groups[0]["scopeSpans"][0]["spans"][0];
    assert_eq!(groups[0]["scopeSpans"][0]["scope"], json!({ "name": "lib", "version": "2" }));
    assert_eq!(span["traceId"], "7180c278b62e8f6a216a2aea45d08fc9");
    assert_eq!((&span["kind"], &span["startTimeUnixNano"]), (&json!(2), &json!("1000000")));
    assert_eq!(span["attributes"][0], json!({ "key": "http.status_code", "value": { "intValue": "200" } }));
    assert_eq!(span["events"][0]["attributes"][0]["value"], json!({ "intValue": "1" }));
    let failed = &groups[1]["scopeSpans"][0]["spans"][0];
    assert_eq!(failed["status"], json!({ "message": "boom", "code": 2 }));
}

#[test]
fn jaeger_reads_both_forms() {
    let all = all_kinds();
    let v1: Value = serde_json::from_slice(&jaeger::v1_traces(&[&all[..1], &all[1..]])).unwrap();
    assert_eq!(v1["data"].as_array().unwrap().len(), 2);
    let trace = &v1["data"][0];
    let span = &trace["spans"][0];
    assert_eq!(
        (&trace["traceID"], &span["spanID"]),
        (&json!("7180c278b62e8f6a216a2aea45d08fc9"), &json!("0000000000000002"))
    );
    assert_eq!(
        span["references"],
        json!([{ "refType": "CHILD_OF",
        "traceID": "7180c278b62e8f6a216a2aea45d08fc9", "spanID": "0000000000000001" }])
    );
    assert_eq!(
        (&span["startTime"], &span["duration"], &span["operationName"]),
        (&json!(1000), &json!(2), &json!("get"))
    );
    assert_eq!(trace["processes"]["p1"]["serviceName"], "a");
    assert_eq!(
        span["logs"][0],
        json!({ "timestamp": 1, "fields": [{ "key": "event", "type": "string", "value": "\"e\":{\"k\":1}" }] })
    );
    let failed = v1["data"][1]["spans"][0]["tags"].as_array().unwrap();
    assert!(failed.contains(&json!({ "key": "error", "type": "bool", "value": true })));
    assert!(failed.contains(&json!({ "key": "span.kind", "type": "string", "value": "client" })));
    let v3 = jaeger::v3_traces(&all);
    let read = jaeger::read_v3(&v3, &Limits::default()).unwrap();
    assert_eq!(read.items.len(), 3);
    assert_eq!(read.items[0].trace, all[0].trace);
    let bad = body(&json!({}), &json!({}), &json!(vec![7; 150]));
    let bad = [b"{\"result\":", &bad[..], b"}"].concat();
    assert_eq!(jaeger::read_v3(&bad, &Limits::default()).unwrap().n_rejected, 150);
    let error: Value = serde_json::from_slice(&jaeger::v1_error(404, "trace not found")).unwrap();
    assert_eq!(error["errors"][0], json!({ "code": 404, "msg": "trace not found" }));
}
