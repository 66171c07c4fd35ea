//! What Zipkin and the tool are sent and asked: everything that a server can get wrong.

use serde_json::{Value, json};

/// An endpoint with nothing but a name.
pub(crate) fn endpoint(service: &str) -> Value {
    json!({ "serviceName": service })
}

/// Each span shows something that a server can get wrong.
pub(crate) fn corner_cases(t: u64) -> Value {
    json!([
        // A client and a server that share an id and do not say so; a database that tells nothing of itself.
        {"traceId": "48485a3953bb6124", "id": "1", "name": "GET ", "kind": "CLIENT", "timestamp": t, "duration": 200_000,
         "localEndpoint": {"serviceName": "Front", "ipv4": "10.0.0.1"}, "remoteEndpoint": endpoint("back"),
         "annotations": [{"timestamp": t + 5, "value": "wire send"}], "tags": {"http.path": "/pay", "environment": "test"}},
        {"traceId": "48485a3953bb6124", "id": "1", "name": "get /pay", "kind": "SERVER", "timestamp": t + 10_000,
         "duration": 150_000, "localEndpoint": {"serviceName": "back", "ipv4": "10.0.0.2"}},
        {"traceId": "48485a3953bb6124", "id": "2", "parentId": "1", "name": "query", "kind": "CLIENT",
         "timestamp": t + 20_000, "duration": 100_000, "localEndpoint": {"serviceName": "back", "ipv4": "10.0.0.2"},
         "remoteEndpoint": endpoint("db"), "tags": {"error": "deadlock", "lc": "sql"}},
        // A long id, and a long one with zeros in front.
        {"traceId": "463ac35c9f6413ad48485a3953bb6aaa", "id": "a", "name": "wide", "kind": "SERVER", "timestamp": t + 1_000_000,
         "duration": 1, "localEndpoint": {"serviceName": "wide", "port": 80}},
        {"traceId": "00000000000000000000000000000ac1", "id": "0001", "parentId": "0000000000000000", "name": "ZERO",
         "timestamp": t + 6_000_000, "duration": 0, "localEndpoint": endpoint("zero"), "tags": {"a": "", "b": "x=y"},
         "annotations": [{"timestamp": t, "value": "b"}, {"timestamp": t, "value": "a"}, {"timestamp": t, "value": "a"}]},
        // Without a time; in two pieces.
        {"traceId": "abc", "id": "b", "name": "noTime", "localEndpoint": endpoint("timeless")},
        {"traceId": "abd", "id": "b", "name": "piece", "localEndpoint": endpoint("pieces")},
        {"traceId": "abd", "id": "b", "timestamp": t + 2_000_000, "duration": 300, "localEndpoint": endpoint("pieces"),
         "tags": {"late": "yes", "environment": "live"}},
        // Messages by a broker.
        {"traceId": "abe", "id": "1", "kind": "PRODUCER", "name": "send", "timestamp": t + 3_000_000, "duration": 5,
         "localEndpoint": endpoint("prod"), "remoteEndpoint": endpoint("kafka")},
        {"traceId": "abe", "id": "2", "parentId": "1", "kind": "CONSUMER", "name": "recv", "timestamp": t + 3_000_100,
         "duration": 5, "localEndpoint": endpoint("cons"), "remoteEndpoint": endpoint("kafka")},
        // Its own parent; both kinds of addresses, one in the other's place; shared on the wrong side.
        {"traceId": "abf", "id": "1", "kind": "SERVER", "shared": true, "name": "self", "parentId": "1",
         "timestamp": t + 4_000_000, "duration": 7, "debug": true,
         "localEndpoint": {"serviceName": "v6", "ipv6": "2001:db8::c001", "ipv4": "::ffff:1.2.3.4"}},
        {"traceId": "ac0", "id": "1", "kind": "CLIENT", "shared": true, "name": "", "timestamp": t + 5_000_000,
         "localEndpoint": endpoint("noname")},
        // No endpoint at all; a root that is missing; two roots.
        {"traceId": "ac2", "id": "1", "name": "nobody", "timestamp": t + 7_000_000, "duration": 3},
        {"traceId": "ac3", "id": "2", "parentId": "1", "name": "orphan", "kind": "SERVER", "timestamp": t + 8_000_000,
         "duration": 3, "localEndpoint": endpoint("orphan"), "remoteEndpoint": endpoint("front")},
        {"traceId": "ac4", "id": "1", "name": "one", "timestamp": t + 9_000_000, "duration": 3, "localEndpoint": endpoint("two")},
        {"traceId": "ac4", "id": "2", "name": "other", "timestamp": t + 9_000_001, "duration": 4, "localEndpoint": endpoint("two")},
    ])
}

/// Many traces of some services that call each other, from a seed.
pub(crate) fn many_traces(seed: u64, t: u64) -> Value {
    let mut state = seed;
    let mut below = move |end: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % end
    };
    let mut spans = Vec::new();
    for trace in 0..120u64 {
        // Traces do not overlap: of those that do, Zipkin's store in memory orders by chance.
        let begin = t + trace * 1_000_000;
        for n in 0..=below(6) {
            let parent = (n > 0).then(|| format!("{:x}", 1 + below(n)));
            let (from, to) = (below(5), below(5));
            let mut span = json!({"traceId": format!("{:x}", 0x1000 + trace), "id": format!("{:x}", n + 1), "name": format!("Op{}", below(4)),
                "timestamp": begin + n * 100 + below(100), "localEndpoint": endpoint(&format!("svc{from}"))});
            let map = span.as_object_mut().unwrap();
            map.extend(parent.map(|parent| ("parentId".to_owned(), json!(parent))));
            if let Some(kind) = ["CLIENT", "SERVER", "PRODUCER", "CONSUMER"].get(below(6) as usize) {
                map.insert("kind".into(), json!(kind));
            }
            if below(3) > 0 {
                map.insert("remoteEndpoint".into(), endpoint(&format!("svc{to}")));
            }
            if below(5) > 0 {
                let magnitude = below(18);
                map.insert("duration".into(), json!(1 + below(1 << magnitude)));
            }
            let method = ["GET", "POST"][below(2) as usize];
            let mut tags = json!({ "http.method": method });
            if below(8) == 0 {
                tags["error"] = ["", "timeout"][below(2) as usize].into();
            }
            map.insert("tags".into(), tags);
            if below(6) == 0 {
                map.insert("annotations".into(), json!([{"timestamp": begin, "value": "cache miss"}]));
            }
            spans.push(span);
        }
    }
    json!(spans)
}

/// Searches, with the end of time still to be named.
pub(crate) const SEARCHES: &str = "
    limit=0 limit=-1 limit=x limit=1 limit=2 limit=1000 limit= limit=2147483648 spanName=get+/pay
    spanName=GET+/PAY spanName=all serviceName=all serviceName=front&spanName=all
    serviceName=all&spanName=all spanName=ALL spanName=zero&serviceName=front remoteServiceName=db
    remoteServiceName=DB remoteServiceName=all serviceName=front&remoteServiceName=db
    serviceName=back&remoteServiceName=db annotationQuery=error annotationQuery=error=deadlock
    annotationQuery=error%3Ddeadlock annotationQuery=error%3Dx annotationQuery=wire+send
    annotationQuery=wire+send+and+error serviceName=front&annotationQuery=wire+send+and+error
    annotationQuery=http.path%3D/pay annotationQuery=http.path annotationQuery=a annotationQuery=a%3D
    annotationQuery=b%3Dx%3Dy annotationQuery=b%3Dx annotationQuery=%3D annotationQuery=+and+
    annotationQuery=error+and+error%3Ddeadlock annotationQuery=error%3Ddeadlock+and+error
    annotationQuery=error%3Dx+and+error%3Ddeadlock annotationQuery=ERROR annotationQuery=error+AND+lc
    annotationQuery=error+and++lc annotationQuery=%20error%20 annotationQuery=error+and+lc%3Dsql
    minDuration=200000 minDuration=200001 minDuration=0 minDuration=-1 minDuration=x maxDuration=5
    minDuration=10&maxDuration=5 minDuration=1&maxDuration=1 minDuration=7&maxDuration=7
    serviceName=back&minDuration=150001 serviceName=back&minDuration=90000&maxDuration=110000
    minDuration=101000&maxDuration=149000 minDuration= maxDuration= serviceName= spanName= annotationQuery=
    unknown=1
";

/// Times that make sense, and others.
pub(crate) const TIMES: &str = "
    endTs=0 endTs=-5 endTs=x endTs= lookback=0 lookback=x lookback=-1 lookback=1 lookback=99999999999999999
    endTs=99999999999999999999 endTs=9223372036854775807 lookback=
";

/// Ids as they may be written.
pub(crate) const IDS: &str = "
    48485a3953bb6124 48485A3953BB6124 463ac35c9f6413ad48485a3953bb6aaa 000000000000000048485a3953bb6124
    48485a3953bb6aaa abc 0abc 0000000000000abc abd abe abf ac0 ac1 ac2 ac3 ac4 fff 0 zz
    00000000000000000000000000000000000 ggggggggggggggggggggggggggggggggg -1
";

/// Lists of ids.
pub(crate) const MANY_IDS: &str = "
    abd,abe abd abd,abd abd,0abd abd,fff fff,ffe abd,zz abd,0 abd, abd,,abe %20abd%20,%20abe
    48485a3953bb6124,463ac35c9f6413ad48485a3953bb6aaa abe,abd,abc
";

/// Other questions.
pub(crate) const PATHS: &str = "
    /api/v2/spans /api/v2/remoteServices /api/v2/traceMany /api/v2/autocompleteKeys
    /api/v2/autocompleteValues /api/v2/autocompleteValues?key= /api/v2/autocompleteValues?key=x
    /api/v2/autocompleteValues?key=environment /api/v2/autocompleteValues?key=late /api/v2/nothing
    /api/v1/services /api/v1/traces
";

/// Bodies of Zipkin v2 JSON: what is special about each, and itself.
pub(crate) const BODIES: &str = r#"
empty list | []
object | {}
nonsense | nonsense
cut off | [
number | [1]
null | [null]
text | ["x"]
no id | [{"traceId":"f2"}]
no trace id | [{"id":"1"}]
bad trace id | [{"traceId":"zz","id":"1"}]
long trace id | [{"traceId":"111111111111111111111111111111111","id":"1"}]
zero trace id | [{"traceId":"0","id":"1"}]
zero id | [{"traceId":"e2","id":"0"}]
capital id | [{"traceId":"F4","id":"1"}]
long id | [{"traceId":"f5","id":"12345678901234567"}]
bad parent | [{"traceId":"f5","id":"1","parentId":"zz"}]
bad kind | [{"traceId":"f3","id":"1","kind":"BAD"}]
small kind | [{"traceId":"f3","id":"1","kind":"client"}]
bad time | [{"traceId":"f6","id":"1","timestamp":"x"}]
time as text | [{"traceId":"f6","id":"1","timestamp":"1500000000000000"}]
fraction | [{"traceId":"e3","id":"1","timestamp":1.5}]
negative duration | [{"traceId":"f6","id":"1","duration":-1}]
tag with number | [{"traceId":"f7","id":"1","tags":{"a":1}}]
tag with truth | [{"traceId":"f7","id":"1","tags":{"a":true}}]
tag without value | [{"traceId":"f7","id":"1","tags":{"a":null}}]
tags in a list | [{"traceId":"f7","id":"1","tags":[]}]
tag with object | [{"traceId":"f7","id":"1","tags":{"a":{}}}]
annotation without time | [{"traceId":"f8","id":"1","annotations":[{"value":"x"}]}]
annotation without value | [{"traceId":"f8","id":"1","annotations":[{"timestamp":1}]}]
annotations in an object | [{"traceId":"f8","id":"1","annotations":{}}]
large port | [{"traceId":"f9","id":"1","localEndpoint":{"port":70000}}]
negative port | [{"traceId":"f9","id":"1","localEndpoint":{"port":-1}}]
bad address | [{"traceId":"f9","id":"1","localEndpoint":{"ipv4":"x"}}]
nulls | [{"traceId":"fa","id":"1","name":null,"localEndpoint":null}]
unknown field | [{"traceId":"fb","id":"1","unknown":{"a":[1]}}]
truth as text | [{"traceId":"fc","id":"1","debug":"true"}]
id as number | [{"traceId":"fd","id":1}]
name as number | [{"traceId":"fe","id":"1","name":5}]
version 1 | [{"traceId":"fe","id":"1","annotations":[{"timestamp":1,"value":"sr","endpoint":{"serviceName":"v1"}}],"binaryAnnotations":[]}]
"#;
