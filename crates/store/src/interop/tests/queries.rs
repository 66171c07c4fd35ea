//! Parameters of searches.

use faultscope_model::trace::TraceQuery;

use crate::interop::query::{
    Parameters, annotation_query, go_duration_us, jaeger_v1, jaeger_v3, rfc3339_us, zipkin_dependencies,
    zipkin_trace_ids, zipkin_traces,
};

const NOW: u64 = 1_700_000_000_000_000;

fn zipkin(text: &str) -> Result<TraceQuery, String> {
    zipkin_traces(&Parameters::parse(text), NOW).map_err(|error| error.to_string())
}

#[test]
fn zipkins_defaults() {
    let expected =
        TraceQuery { end_us: NOW, lookback_us: 86_400_000_000, limit: 10, ..TraceQuery::default() };
    assert_eq!(zipkin(""), Ok(expected.clone()));
    assert_eq!(
        zipkin("serviceName=&spanName=all&remoteServiceName=&annotationQuery=&limit=&x=y"),
        Ok(expected)
    );
}

#[test]
fn zipkins_parameters() {
    let all = "serviceName=Web&remoteServiceName=App&spanName=GET+%2Fa%C3%A9&annotationQuery=error+and+a%3Db\
        &minDuration=100&maxDuration=200&endTs=1502787600000&lookback=3600000&limit=5";
    let expected = TraceQuery {
        service: Some("web".to_owned()),
        remote_service: Some("app".to_owned()),
        name: Some("get /aé".to_owned()),
        terms: vec![("error".to_owned(), None), ("a".to_owned(), Some("b".to_owned()))],
        least_us: Some(100),
        most_us: Some(200),
        end_us: 1_502_787_600_000_000,
        lookback_us: 3_600_000_000,
        limit: 5,
    };
    assert_eq!(zipkin(all), Ok(expected));
    for (bad, reason) in [
        ("endTs=0", "endTs: must be above 0"),
        ("endTs=x", "endTs: is not a whole number"),
        ("lookback=-1", "lookback: must be above 0"),
        ("limit=0", "limit: must be above 0"),
        ("limit=1.5", "limit: is not a whole number"),
        ("minDuration=0", "minDuration: must be above 0"),
        ("maxDuration=5", "maxDuration: is only valid with minDuration"),
        ("minDuration=6&maxDuration=5", "maxDuration: must not be below minDuration"),
    ] {
        assert_eq!(zipkin(bad), Err(reason.to_owned()), "{bad}");
    }
    // What is too large is bounded, not wrapped around.
    let large =
        zipkin("limit=9223372036854775807&endTs=9223372036854775807&lookback=9223372036854775807").unwrap();
    assert_eq!((large.limit, large.end_us, large.lookback_us), (10_000, u64::MAX, u64::MAX));
}

#[test]
fn annotation_queries() {
    for (text, expected) in [
        ("error", vec![("error", None)]),
        ("a=b", vec![("a", Some("b"))]),
        ("a=", vec![("a", None)]),
        ("a=b=c", vec![("a", Some("b=c"))]),
        (" a = b  and  c ", vec![("a", Some("b")), ("c", None)]),
        ("a and a=b", vec![("a", Some("b"))]),
        ("a=b and a", vec![("a", Some("b"))]),
        ("a=b and a=c", vec![("a", Some("c"))]),
        ("sand and hand", vec![("sand", None), ("hand", None)]),
        ("a and ", vec![("a", None)]),
        ("=b and x", vec![("x", None)]),
        ("", vec![]),
    ] {
        let terms = annotation_query(text);
        let found: Vec<_> = terms.iter().map(|(key, value)| (key.as_str(), value.as_deref())).collect();
        assert_eq!(found, expected, "{text}");
    }
    let many = vec!["x=1"; 100_000].join(" and ");
    assert_eq!(annotation_query(&many).len(), 1);
    let many: Vec<_> = (0..1_000).map(|n| format!("k{n}")).collect();
    assert_eq!(annotation_query(&many.join(" and ")).len(), 100);
}

#[test]
fn dependencies_and_many_traces() {
    let dependencies =
        |text: &str| zipkin_dependencies(&Parameters::parse(text)).map_err(|error| error.to_string());
    assert_eq!(dependencies("endTs=5"), Ok((5_000, 86_400_000_000)));
    assert_eq!(dependencies("endTs=5&lookback=2"), Ok((5_000, 2_000)));
    assert_eq!(dependencies("lookback=2"), Err("endTs: is missing".to_owned()));
    assert_eq!(dependencies("endTs=0"), Err("endTs: must be above 0".to_owned()));
    assert_eq!(dependencies("endTs=5&lookback=0"), Err("lookback: must be above 0".to_owned()));
    let ids = |text: &str| {
        let ids = zipkin_trace_ids(&Parameters::parse(text)).map_err(|error| error.to_string())?;
        Ok::<_, String>(ids.into_iter().map(|id| id.0).collect::<Vec<_>>())
    };
    assert_eq!(ids("traceIds=a,b"), Ok(vec![10, 11]));
    assert_eq!(ids("traceIds=a%2C000000000000000b"), Ok(vec![10, 11]));
    for bad in
        ["", "traceIds=", "traceIds=a", "traceIds=a,a", "traceIds=a,000a", "traceIds=a,x", "traceIds=a,,b"]
    {
        assert!(ids(bad).is_err(), "{bad}");
    }
}

#[test]
fn jaegers_older_search() {
    let read = |text: &str| jaeger_v1(&Parameters::parse(text), NOW).map_err(|error| error.to_string());
    let query = read(
        "service=Web&operation=GET+/a&tag=x:1:2&tag=error:true&tags=%7B%22y%22%3A%222%22%2C%22z%22%3Atrue%7D\
        &start=1000&end=5000&minDuration=1.5ms&maxDuration=2s&limit=7&lookback=1h",
    )
    .unwrap();
    let terms: Vec<_> = query.terms.iter().map(|(key, value)| (key.as_str(), value.as_deref())).collect();
    assert_eq!(terms, [("x", Some("1:2")), ("error", None), ("y", Some("2")), ("z", Some("true"))]);
    assert_eq!((query.service.as_deref(), query.name.as_deref()), (Some("Web"), Some("GET /a")));
    assert_eq!((query.end_us, query.lookback_us, query.limit), (5_000, 4_000, 7));
    assert_eq!((query.least_us, query.most_us), (Some(1_500), Some(2_000_000)));
    let plain = read("service=web").unwrap();
    assert_eq!((plain.end_us, plain.limit, plain.lookback_us), (NOW, 20, 172_800_000_000));
    for bad in [
        "",
        "service=w&start=9&end=5",
        "service=w&minDuration=5",
        "service=w&tag=x",
        "service=w&tags=[]",
        "service=w&tags={\"a\":{}}",
    ] {
        assert!(read(bad).is_err(), "{bad}");
    }
}

#[test]
fn jaegers_newer_search() {
    let read = |text: &str| jaeger_v3(&Parameters::parse(text)).map_err(|error| error.to_string());
    let times = "query.startTimeMin=2023-11-14T22:13:20Z&query.startTimeMax=2023-11-14T23:13:20.5%2B01:00";
    let query =
        read(&format!("{times}&query.serviceName=web&query.attributes={{\"a\":1}}&query.durationMin=1ms"))
            .unwrap();
    assert_eq!((query.end_us, query.lookback_us), (NOW + 500_000, 500_000));
    assert_eq!(
        (query.terms, query.least_us, query.limit),
        (vec![("a".to_owned(), Some("1".to_owned()))], Some(1_000), 100)
    );
    let old = "query.service_name=web&query.operation_name=op&query.start_time_min=1970-01-01T00:00:01Z\
        &query.start_time_max=1970-01-01T00:00:02Z&query.num_traces=3&query.duration_max=1s";
    let query = read(old).unwrap();
    assert_eq!((query.name.as_deref(), query.limit, query.most_us), (Some("op"), 3, Some(1_000_000)));
    for bad in [
        "",
        "query.startTimeMin=2023-11-14T22:13:20Z",
        &format!("{times}x"),
        &format!("{times}&query.durationMin=1"),
    ] {
        assert!(read(bad).is_err(), "{bad}");
    }
}

#[test]
fn durations_of_go() {
    for (text, expected) in [
        ("0", Some(0)),
        ("1s", Some(1_000_000)),
        ("1.5s", Some(1_500_000)),
        (".5s", Some(500_000)),
        ("300ms", Some(300_000)),
        ("100us", Some(100)),
        ("100µs", Some(100)),
        ("100μs", Some(100)),
        ("1500ns", Some(1)),
        ("2h45m", Some(9_900_000_000)),
        ("1m0.5s", Some(60_500_000)),
        ("+1s", Some(1_000_000)),
        ("", None),
        ("5", None),
        ("s", None),
        ("-1s", None),
        ("1d", None),
        ("1.2.3s", None),
        ("9999999999999999999999h", None),
    ] {
        assert_eq!(go_duration_us(text), expected, "{text}");
    }
}

#[test]
fn moments_of_rfc_3339() {
    for (text, expected) in [
        ("1970-01-01T00:00:00Z", Some(0)),
        ("2023-11-14T22:13:20Z", Some(NOW)),
        ("2023-11-14t22:13:20z", Some(NOW)),
        ("2023-11-15T00:13:20+02:00", Some(NOW)),
        ("2023-11-14T17:13:20.000001-05:00", Some(NOW + 1)),
        ("2023-11-14T22:13:20.123456789Z", Some(NOW + 123_456)),
        ("2024-02-29T00:00:00Z", Some(1_709_164_800_000_000)),
        ("2000-03-01T00:00:00Z", Some(951_868_800_000_000)),
        ("2023-02-29T00:00:00Z", None),
        ("2023-13-01T00:00:00Z", None),
        ("2023-00-01T00:00:00Z", None),
        ("2023-04-31T00:00:00Z", None),
        ("2023-11-14T24:00:00Z", None),
        ("2023-11-14T22:13:20", None),
        ("2023-11-14T22:13:20.Z", None),
        ("2023-11-14", None),
        ("1969-12-31T23:59:59Z", None),
        ("+023-11-14T22:13:20Z", None),
        ("２023-11-14T22:13:20Z", None),
        ("", None),
    ] {
        assert_eq!(rfc3339_us(text), expected, "{text}");
    }
}

#[test]
fn parameters_are_decoded() {
    let parameters = Parameters::parse("a=1&a=2&b&c=%41%zz%4&d=x+y%2B&=e&&f=%ff");
    assert_eq!(parameters.all("a").collect::<Vec<_>>(), ["1", "2"]);
    assert_eq!((parameters.get("a"), parameters.get("b"), parameters.get("none")), (Some("1"), None, None));
    assert_eq!((parameters.get("c"), parameters.get("d")), (Some("A%zz%4"), Some("x y+")));
    assert_eq!(parameters.get("f"), Some("\u{fffd}"));
    assert_eq!(Parameters::parse(&"a=1&".repeat(10_000)).0.len(), 256);
}
