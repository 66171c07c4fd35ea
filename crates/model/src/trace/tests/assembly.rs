//! Pieces joined, trees, clocks, critical paths.

use super::{lines, span};
use crate::ids::{SpanId, TraceId};
use crate::trace::{
    INSTANCE_TAG, ReportedSpan, SpanKind, TraceTree, clock_corrections, critical_path, group_by_trace,
    has_failed, merge_pieces, separate_shared_ids, trace_start_us,
};

/// The tree in short: `1(2(3) 4)`; `*` for a root that was not reported, `'` for a shared id.
fn shape(tree: &TraceTree) -> String {
    fn write(tree: &TraceTree, at: usize, out: &mut String) {
        match tree.span(at) {
            Some(span) => out.push_str(&format!("{:x}{}", span.id.0, if span.shared { "'" } else { "" })),
            None => out.push('*'),
        }
        let children: Vec<_> = tree.nodes[at]
            .children
            .iter()
            .map(|child| {
                let mut out = String::new();
                write(tree, *child, &mut out);
                out
            })
            .collect();
        if !children.is_empty() {
            out.push_str(&format!("({})", children.join(" ")));
        }
    }
    let mut out = String::new();
    if let Some(root) = tree.root {
        write(tree, root, &mut out);
    }
    out
}

#[test]
fn trees_are_built_by_parents() {
    for (text, expected) in [
        ("", ""),
        ("d c\n c b\n b a\n a -", "a(b(c(d)))"),
        ("a -\n a -\n a -", "a"),
        // Without a parent: below the earliest that has none.
        ("b - - - @1\n c b - - @2\n d b - - @3\n e - - - @4\n f - - - @5", "b(c d e f)"),
        ("e - - - @1\n b - - - @4", "e(b)"),
        // Nobody is the root.
        ("b a\n c a\n d a", "*(b c d)"),
        // Circles; a span is not its own parent.
        ("b b", "b"),
        ("b c - - @2\n c b - - @1", "*(c(b))"),
        ("a -\n b c - - @2\n c b - - @1\n d c", "a(c(d b))"),
        // Children by their start, those without one first.
        ("1 -\n a 1 - - @2\n b 1 - - @1\n c 1", "1(c b a)"),
        // A server shares its client's id; what it does is below it, not below the client.
        ("1 - client web\n 1 - server app shared\n 2 1 - app\n 3 1 - web", "1(1'(2) 3)"),
        // So too where the flag is missing, and the parent.
        ("1 - server web\n 2 1 client web\n 2 - server app\n 3 2 - app", "1(2(2'(3)))"),
        // Two servers answered one client.
        ("1 - client web\n 1 - server a shared\n 1 - server b shared\n 2 1 - a\n 3 1 - b", "1(1'(2) 1'(3))"),
        // The server's port or address differs between its spans.
        ("1 - client web\n 1 - server app shared ip=1\n 2 1 client app ip=2", "1(1'(2))"),
        // Its children may know their service by another name, or not at all; those of the client do.
        (
            "1 - client web\n 1 - server app shared\n 2 1 client todo-app\n 3 1 - -\n 4 1 - web",
            "1(1'(2 3) 4)",
        ),
        // Of two servers, the one that was at work.
        (
            "1 - client web @1 +99\n 1 - server a shared @10 +10\n 1 - server b shared @30 +10\n 2 1 - x @32",
            "1(1' 1'(2))",
        ),
        // A server that shares the id of a client outside of the trace.
        ("1 - server app shared\n 2 1 client app", "1'(2)"),
        // The client never reported.
        ("a - server web\n b a server app shared\n c b client app", "a(b'(c))"),
        ("a - server web\n b a - web\n c b server app shared\n d c - app", "a(b(c'(d)))"),
        // Addresses change and an id is also its own grandparent's.
        ("c a server s shared @1 ip=1\n b c client s @2 ip=2\n a c - s @3 ip=1", "*(c'(b a))"),
    ] {
        let tree = TraceTree::new(lines(text));
        assert_eq!(shape(&tree), expected, "{text}");
        assert_eq!(tree.breadth_first().len(), tree.spans.len(), "{text}");
        assert_eq!(tree.depth_first().len(), tree.spans.len(), "{text}");
    }
}

#[test]
fn both_walks_go_in_order() {
    let tree = TraceTree::new(lines("a -\n b a - - @1\n c a - - @2\n d b"));
    let id = |at: usize| tree.span(at).unwrap().id.0;
    assert_eq!(tree.breadth_first().into_iter().map(id).collect::<Vec<_>>(), [0xa, 0xb, 0xc, 0xd]);
    let depths: Vec<_> = tree.depth_first().into_iter().map(|(at, depth)| (id(at), depth)).collect();
    assert_eq!(depths, [(0xa, 0), (0xb, 1), (0xd, 2), (0xc, 1)]);
}

#[test]
fn a_long_chain_does_not_exhaust_the_stack() {
    let chain = (1..=50_000u64).map(|id| {
        let mut span = ReportedSpan::new(TraceId(1), SpanId(id));
        span.parent = Some(SpanId(id - 1)).filter(|parent| parent.0 > 0);
        (span.start_us, span.duration_us) = (Some(id), Some(200_000 - 2 * id));
        span
    });
    let tree = TraceTree::new(chain.collect());
    assert_eq!(tree.depth_first().last().unwrap().1, 49_999);
    assert_eq!(critical_path(&tree, &clock_corrections(&tree)).len(), 99_999);
}

#[test]
fn pieces_are_joined() {
    let endpoint = r#""local":{"service":"web"}"#;
    for (left, right, joined) in [
        // A late duration; tags and annotations add up, later tags count more.
        (
            r#""start_us":1,"name":"get","tags":[["a","1"],["b","1"]]"#,
            r#""duration_us":5,"tags":[["b","2"],["c","3"]]"#,
            r#""start_us":1,"duration_us":5,"name":"get","tags":[["a","1"],["b","2"],["c","3"]]"#,
        ),
        (
            r#""annotations":[[2,"b"]]"#,
            r#""annotations":[[1,"a"],[2,"b"]]"#,
            r#""annotations":[[1,"a"],[2,"b"]]"#,
        ),
        // What has no endpoint belongs to who has one; endpoints come in pieces, too.
        (r#""kind":"client""#, endpoint, &format!(r#""kind":"client",{endpoint}"#)),
        (
            r#""local":{"service":"web","ipv4":"10.0.0.1"}"#,
            r#""local":{"service":"web","port":80}"#,
            r#""local":{"service":"web","ipv4":"10.0.0.1","port":80}"#,
        ),
    ] {
        assert_eq!(merge_pieces(vec![span(left), span(right)]), [span(joined)], "{left} {right}");
    }
    for (left, right) in [
        (r#""local":{"service":"web"}"#, r#""local":{"service":"app"}"#),
        (r#""local":{"ipv4":"10.0.0.1"}"#, r#""local":{"ipv4":"10.0.0.2"}"#),
        (r#""local":{"service":"a","port":1}"#, r#""local":{"service":"a","port":2}"#),
        (r#""kind":"client""#, r#""kind":"server","shared":true"#),
        // Who calls itself has two sides all the same.
        (r#""kind":"client","local":{"service":"a"}"#, r#""kind":"server","local":{"service":"a"}"#),
    ] {
        assert_eq!(merge_pieces(vec![span(left), span(right)]).len(), 2, "{left} {right}");
    }
}

#[test]
fn servers_get_their_flag_and_parent_from_the_client() {
    let merged = merge_pieces(lines("2 - server app\n 2 1 client web"));
    assert!(!merged[0].shared && merged[1].shared);
    assert_eq!(merged[1].parent, Some(SpanId(1)));
    // Only a client lends its id.
    assert!(merge_pieces(lines("2 - server app\n 2 1 - web")).iter().all(|span| !span.shared));
}

#[test]
fn the_longest_trace_id_is_shown() {
    let mut mixed = lines("1 -\n 2 1\n 3 1");
    mixed[1].trace = TraceId(7 << 64 | 0xa);
    assert!(merge_pieces(mixed.clone()).iter().all(|span| span.trace == TraceId(7 << 64 | 0xa)));
    assert_eq!(group_by_trace(mixed.clone(), true).len(), 2);
    assert_eq!(group_by_trace(mixed, false).len(), 1);
}

#[test]
fn clocks_are_compared() {
    for (text, expected) in [
        // A server that seems to start before its client, by half of what is left.
        ("1 - client web ip=1 @20 +20\n 1 - server app shared ip=2 @10 +10", vec![0, 15]),
        ("1 - client web ip=1 @20 +20\n 2 1 server app ip=2 @10 +10", vec![0, 15]),
        ("1 - client web ip=1 @20 +20\n 1 - server app ip=2 @10 +10", vec![0, 15]),
        // At the same moment is too early as well.
        ("1 - client web ip=1 @20 +20\n 1 - server app shared ip=2 @20 +10", vec![0, 5]),
        // Nothing to correct: later, the same host, another kind, no address, no start.
        ("1 - client web ip=1 @20 +20\n 1 - server app shared ip=2 @30 +10", vec![0, 0]),
        ("1 - client web ip=1 @20 +20\n 1 - server app shared ip=1 @10 +10", vec![0, 0]),
        ("1 - producer web ip=1 @20 +20\n 2 1 consumer app ip=2 @10 +10", vec![0, 0]),
        ("1 - client web ip=1 @20 +20\n 1 - server app shared @10 +10", vec![0, 0]),
        ("1 - client web ip=1 +20\n 1 - server app shared ip=2 @10 +10", vec![0, 0]),
        // One-way, and a client that did not wait: 1 µs after it.
        ("1 - client web ip=1 @20\n 1 - server app shared ip=2 @10", vec![0, 11]),
        ("1 - client web ip=1 @20 +5\n 1 - server app shared ip=2 @10 +10", vec![0, 11]),
        // Passed on to what runs on the same host, through spans that do not say where.
        (
            "1 - client web ip=1 @20 +20\n 1 - server app shared ip=2 @10 +10\n 2 1 - app ip=2 @11 +2\n 3 2 - -\n 4 3 - app ip=2 @12",
            vec![0, 15, 15, 0, 15],
        ),
        (
            "1 - client web ip=1 @20 +20\n 1 - server app shared ip=2 @10 +10\n 2 1 - other ip=3 @11 +2",
            vec![0, 15, 0],
        ),
        // No root, or two.
        ("1 9 client web ip=1 @20 +20\n 1 9 server app shared ip=2 @10 +10", vec![0, 0]),
        ("1 - client web ip=1 @20 +20\n 1 - server app shared ip=2 @10 +10\n 5 - - x", vec![0, 0, 0]),
    ] {
        assert_eq!(clock_corrections(&TraceTree::new(lines(text))), expected, "{text}");
    }
}

#[test]
fn the_critical_path_covers_the_root() {
    for (text, expected) in [
        ("", ""),
        ("1 - - a", ""),
        ("1 - - a @10 +10", "1:10-20"),
        // One after the other; the time between is the parent's.
        ("1 - - a @0 +100\n 2 1 - a @10 +20\n 3 1 - a @50 +40", "1:0-10 2:10-30 1:30-50 3:50-90 1:90-100"),
        // At the same time: only what ends last counts.
        ("1 - - a @0 +100\n 2 1 - a @10 +30\n 3 1 - a @10 +80", "1:0-10 3:10-90 1:90-100"),
        // Overlapping: what ended before the later one began.
        (
            "1 - - a @0 +100\n 2 1 - a @10 +30\n 3 1 - a @30 +60\n 4 1 - a @5 +20",
            "1:0-5 4:5-25 1:25-30 3:30-90 1:90-100",
        ),
        // Below a child.
        ("1 - - a @0 +100\n 2 1 - a @10 +80\n 3 2 - a @20 +20", "1:0-10 2:10-20 3:20-40 2:40-90 1:90-100"),
        // What goes on after its parent ended delays nobody.
        ("1 - - a @0 +100\n 2 1 - a @50 +100", "1:0-50 2:50-100"),
        ("1 - - a @10 +10\n 2 1 - a @30 +5", "1:10-20"),
        // Nobody is the root: from the first begin to the last end.
        ("2 9 - a @10 +10\n 3 9 - a @30 +10", "2:10-20 3:30-40"),
    ] {
        let tree = TraceTree::new(lines(text));
        let steps = critical_path(&tree, &[]);
        let found: Vec<_> = steps
            .iter()
            .map(|step| format!("{}:{}-{}", tree.spans[step.span].id.0, step.start_us, step.end_us))
            .collect();
        assert_eq!(found.join(" "), expected, "{text}");
    }
}

#[test]
fn starts_and_failures() {
    assert_eq!(trace_start_us(&lines("2 1 - a @5\n 3 1 - a @4")), Some(4));
    assert_eq!(trace_start_us(&lines("2 1 - a @5\n 1 - - a @9")), Some(9));
    assert_eq!(trace_start_us(&lines("1 - - a\n 2 1 - a @5")), Some(5));
    assert_eq!(trace_start_us(&lines("1 - - a")), None);
    let all = [r#""tags":[["error",""]]"#, r#""tags":[["error","false"]]"#, ""].map(span);
    assert_eq!(all.iter().map(has_failed).collect::<Vec<_>>(), [true, false, false]);
}

#[test]
fn parents_that_never_came_are_known() {
    for (text, missing, first) in [
        ("1 -\n 2 1", vec![], 1),
        ("1 - - - @5\n 3 2 - - @6\n 4 2 - - @7", vec![2], 1),
        // Without a root the earliest span stands for the trace.
        ("3 2 - - @6\n 4 2 - - @5\n 5 9", vec![2, 9], 4),
        // A shared id is there when either half is.
        ("1 - server web\n 3 1 server app shared\n 4 3 - app", vec![], 1),
    ] {
        let tree = TraceTree::new(lines(text));
        assert_eq!(tree.missing.iter().map(|id| id.0).collect::<Vec<_>>(), missing, "{text}");
        assert_eq!(tree.first_span().map(|span| span.id.0), Some(first), "{text}");
    }
    assert!(TraceTree::new(Vec::new()).first_span().is_none());
}

#[test]
fn shared_ids_can_be_separated() {
    let text = "1 - client web\n 1 - server app shared\n 2 1 client app\n 3 1 - web\n 4 9 - web";
    let spans = separate_shared_ids(lines(text));
    assert_eq!(separate_shared_ids(lines(text)), spans, "always the same");
    let server = spans.iter().find(|span| span.kind == Some(SpanKind::Server)).unwrap();
    assert!(server.id != SpanId(1) && !server.shared && server.parent == Some(SpanId(1)));
    let parents: Vec<_> = spans.iter().map(|span| (span.id, span.parent)).collect();
    for wanted in [
        (SpanId(1), None),
        (SpanId(2), Some(server.id)),
        (SpanId(3), Some(SpanId(1))),
        // A parent that never came stays what it was.
        (SpanId(4), Some(SpanId(9))),
    ] {
        assert!(parents.contains(&wanted), "{wanted:?} in {parents:?}");
    }
}

/// One machine has one clock, whatever its instances are called.
#[test]
fn clocks_of_one_machine_are_not_corrected() {
    let mut spans = lines("1 - client web @20 +20\n 2 1 server app ip=2 @10 +10");
    spans[0].tags.push(("faultscope.wire".into(), "http1".into()));
    assert_eq!(clock_corrections(&TraceTree::new(spans.clone())), [0, 15], "who reports is not known");
    spans[1].tags.push((INSTANCE_TAG.into(), "app-1".into()));
    assert_eq!(clock_corrections(&TraceTree::new(spans)), [0, 0]);
}
