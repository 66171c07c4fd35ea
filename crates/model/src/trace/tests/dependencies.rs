//! Who calls whom.

use super::lines;
use crate::trace::{DependencyLink, Linker, TraceTree, group_by_trace};

fn check(text: &str, expected: &str) {
    let mut linker = Linker::default();
    linker.add(&TraceTree::new(lines(text)));
    let link = |link: &DependencyLink| match link.error_count {
        0 => format!("{}>{} {}", link.parent, link.child, link.call_count),
        errors => format!("{}>{} {}/{errors}", link.parent, link.child, link.call_count),
    };
    let found: Vec<_> = linker.links().iter().map(link).collect();
    assert_eq!(found.join(", "), expected, "{text}");
}

const TRACE: &str = "c b client app>db error
    b a server app>web shared
    b a client web>app
    a - server web";

#[test]
fn calls_count_once() {
    check("", "");
    check(TRACE, "web>app 1, app>db 1/1");
    // A parent that was not handed on; a client that never reported.
    check(
        "c b client app>db error\n b a server app>web shared\n b - client web>app\n a - server web",
        "web>app 1, app>db 1/1",
    );
    check("c b client app>db error\n b a server app>web shared\n a - server web", "web>app 1, app>db 1/1");
    // Several levels, all instrumented, also where ports differ.
    check(
        "10 - server one\n 20 10 client one\n 20 10 server two shared\n 30 20 client two\n 30 20 server three shared",
        "one>two 1, two>three 1",
    );
    check("a - client web\n b a server app", "web>app 1");
    check("a - client web\n a - server app shared", "web>app 1");
    // The server's own name counts more than what the client calls it.
    check("a - client web>elephant\n b a server app", "web>app 1");
    check("a - client web\n b a server web", "web>web 1");
    // One-way calls have no duration, which does not matter.
    check("a - client web @1\n a - server app shared @2", "web>app 1");
}

#[test]
fn what_has_no_tracer_is_found_by_its_callers() {
    check("a - server web\n b a client web>app\n c a client web>app", "web>app 2");
    check("a - server web\n b a client web>app\n c a client web>app error", "web>app 2/1");
    check(
        "20 - server web>kafka\n 21 20 client web\n 21 20 server app shared\n 22 21 client app>db",
        "kafka>web 1, web>app 1, app>db 1",
    );
    check("a - server app>web", "web>app 1");
    check("a - client web>app", "web>app 1");
    check("10 - server app>kafka\n 11 10 - app", "kafka>app 1");
}

#[test]
fn local_spans_lie_between() {
    check("a - server web\n b a\n c b client web>app\n d b client web>app", "web>app 2");
    check(
        "20 - server web\n 21 20 - web\n 22 21 client web\n 22 21 server app shared\n 23 22 - app\n 24 23 - app\n 25 24 client app>db",
        "web>app 1, app>db 1",
    );
    // A call that was not reported, but must have been made; nobody knows whether it failed.
    check("a - server web\n b a\n c b client app\n d b client app", "web>app 2");
    check("b a client web\n c b client app error\n d b client app error", "web>app 2");
    check("20 - server web\n 22 21 client app", "web>app 1");
}

#[test]
fn errors_count_once() {
    check("a - client web\n b a server app\n c a server app error", "web>app 2/1");
    check("a - client web error\n b a server app error", "web>app 1/1");
    check("a - client web error\n b a server app", "web>app 1/1");
    check("a - client web error\n a - server app shared", "web>app 1/1");
    check("a - client web error\n b - server app shared error", "web>app 1/1");
    // An annotation of that name is no failure.
    check("a - client web annotated-error\n b a server app annotated-error", "web>app 1");
}

#[test]
fn messages_go_by_their_broker() {
    check("a - producer web>kafka\n b a consumer app>kafka", "web>kafka 1, kafka>app 1");
    check("a - producer web>k1\n b a consumer app>k2", "web>k1 1, k2>app 1");
    check("a - producer web\n b a consumer app", "");
    check("a - producer web\n b a consumer app>kafka", "kafka>app 1");
    check("a - producer web>kafka\n b a consumer app", "web>kafka 1");
    check("a - producer web>kafka error\n b a consumer app>kafka", "web>kafka 1/1, kafka>app 1");
    // A server below a producer is a call all the same; a consumer below a client is not.
    check("a - producer web\n b a server app", "web>app 1");
    check("a - producer web\n a - server app shared", "web>app 1");
    check("a - client web\n b a consumer app", "");
}

#[test]
fn both_names_must_be_known() {
    for root in ["server", "server web", "server ->web", "client", "client web", "client ->web"] {
        check(&format!("a - {root}"), "");
    }
    check("b a server web\n c b client web\n d b client web", "");
    check("b a server one\n c a server two", "");
    check("b a client web>app\n b a server app>web shared", "web>app 1");
    // Without a kind both names make it a call.
    check("b a - web>app\n c b - app>db error", "web>app 1, app>db 1/1");
    check("20 - - ->web\n 21 20 - web>app\n 22 21 - app>db", "web>app 1, app>db 1");
    check("20 - - web", "");
}

#[test]
fn links_add_up() {
    let mut linker = Linker::default();
    for _ in 0..2 {
        linker.add(&TraceTree::new(lines(TRACE)));
    }
    let links = linker.links();
    assert_eq!((links[0].call_count, links[1].error_count), (2, 2));
    let json = serde_json::to_string(&links).unwrap();
    assert_eq!(
        json,
        r#"[{"parent":"web","child":"app","callCount":2},{"parent":"app","child":"db","callCount":2,"errorCount":2}]"#
    );
    let mut merged = Linker::default();
    links.iter().chain(&links).for_each(|link| merged.add_link(link.clone()));
    assert_eq!(merged.links()[0].call_count, 4);
}

#[test]
fn a_server_that_cut_the_trace_id_still_links() {
    let mut mixed = lines("1 - server web\n 2 1 server app shared\n 2 1 client web");
    mixed[0].trace.0 |= 7 << 64;
    mixed[2].trace.0 |= 7 << 64;
    let mut linker = Linker::default();
    for trace in group_by_trace(mixed, false) {
        linker.add(&TraceTree::new(trace));
    }
    assert_eq!(linker.links().len(), 1);
}
