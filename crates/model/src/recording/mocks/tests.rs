use super::*;

fn service(name: &str) -> ServiceName {
    name.parse().unwrap()
}

fn call(trace: u128, start_us: u64, path: &str, (body, answer): (&str, &str)) -> RecordedCall {
    RecordedCall {
        trace: TraceId(trace),
        span: SpanId(start_us),
        callee: service("pay"),
        port: 80,
        wire: Wire::Http1,
        method: "POST".into(),
        path: path.into(),
        body: body.into(),
        start_us,
        duration_us: 7,
        answer: Some(Answer {
            status: Some(200),
            body: answer.into(),
            bytes: answer.len() as u64,
            ..Answer::default()
        }),
    }
}

fn ask(book: &mut MockBook, trace: u128, path: &str, body: &str) -> Result<String, Box<MockMiss>> {
    let callee = service("pay");
    let asked =
        AskedCall { trace: TraceId(trace), callee: &callee, method: "POST", path, body: body.as_bytes() };
    let found = book.take_answer(&asked)?;
    Ok(String::from_utf8(found.answer.body).unwrap())
}

fn book(calls: Vec<RecordedCall>) -> MockBook {
    let rooted = [TraceId(1), TraceId(2)].into();
    let mut book = MockBook::new(calls, rooted);
    book.expect_trace(TraceId(101), TraceId(1));
    book.expect_trace(TraceId(102), TraceId(2));
    book
}

#[test]
fn traces_are_not_mixed_up() {
    let mut book = book(vec![call(1, 10, "/charge", ("", "one")), call(2, 11, "/charge", ("", "two"))]);
    assert_eq!(ask(&mut book, 102, "/charge", "").unwrap(), "two", "although it comes first");
    assert_eq!(ask(&mut book, 101, "/charge", "").unwrap(), "one");
    let miss = ask(&mut book, 101, "/charge", "").unwrap_err();
    assert_eq!(miss.reason, MissReason::AllGiven { recorded: 1 });
    assert_eq!((miss.trace, miss.nearest.unwrap().trace), (Some(TraceId(1)), TraceId(1)));
}

#[test]
fn the_nth_call_gets_the_nth_answer() {
    let mut book = book(vec![
        call(1, 12, "/next", ("", "c")),
        call(1, 10, "/next", ("", "a")),
        call(1, 11, "/next", ("", "b")),
    ]);
    let all: Vec<_> = (0..3).map(|_| ask(&mut book, 101, "/next", "").unwrap()).collect();
    assert_eq!(all, ["a", "b", "c"]);
    let miss = ask(&mut book, 101, "/next", "").unwrap_err();
    assert_eq!(miss.reason.to_string(), "all 3 recorded answers have been given");
    assert_eq!(book.count_unused()[&service("pay")], (3, 0));
}

#[test]
fn bodies_decide_before_the_order() {
    let calls = || {
        vec![
            call(1, 10, "/take", (r#"{"item":"pear","order":17}"#, "pear")),
            call(1, 11, "/take", (r#"{"item":"plum","order":17}"#, "plum")),
        ]
    };
    assert_eq!(ask(&mut book(calls()), 101, "/take", r#"{"item":"plum","order":17}"#).unwrap(), "plum");
    // The order has another number this time, and still the right one is found.
    assert_eq!(ask(&mut book(calls()), 101, "/take", r#"{"order":1,"item":"plum"}"#).unwrap(), "plum");
    assert_eq!(ask(&mut book(calls()), 101, "/take", "?").unwrap(), "pear", "the order decides");
}

#[test]
fn ids_in_paths_may_differ_and_queries_count() {
    let mut book = book(vec![
        call(1, 10, "/users/17?full=1", ("", "full")),
        call(1, 11, "/users/17", ("", "short")),
        call(1, 12, "/users/3", ("", "other")),
    ]);
    assert_eq!(ask(&mut book, 101, "/users/3", "").unwrap(), "other", "the same path wins");
    assert_eq!(ask(&mut book, 101, "/users/99", "").unwrap(), "short");
    assert_eq!(ask(&mut book, 101, "/users/99", "").unwrap(), "full");
}

#[test]
fn misses_show_what_is_nearest() {
    let mut book = book(vec![call(1, 10, "/cards/list", ("", "a")), call(2, 11, "/refunds", ("", "b"))]);
    let miss = ask(&mut book, 101, "/cards/drop?x=1", "").unwrap_err();
    assert_eq!((miss.operation.as_str(), miss.reason), ("POST /cards/drop", MissReason::OtherOperation));
    assert_eq!(miss.nearest.unwrap().operation, "POST /cards/list");
    let miss = ask(&mut book, 101, "/refunds", "").unwrap_err();
    assert_eq!(miss.reason, MissReason::OtherOperation, "it belongs to another trace");
    assert_eq!(miss.nearest.unwrap().trace, TraceId(2));
    let callee = service("mail");
    let asked = AskedCall { trace: TraceId(101), callee: &callee, method: "GET", path: "/", body: b"" };
    let miss = book.take_answer(&asked).unwrap_err();
    assert_eq!((miss.reason, miss.nearest), (MissReason::NothingRecorded, None));
    let json = serde_json::to_value(ask(&mut book, 101, "/x", "").unwrap_err()).unwrap();
    assert_eq!((&json["reason"], &json["callee"]), (&"other_operation".into(), &"pay".into()));
}

#[test]
fn calls_without_a_trace_take_what_was_outside_of_requests() {
    let mut book = book(vec![
        call(1, 10, "/config", ("", "in a request")),
        call(77, 11, "/config", ("", "outside")),
        call(78, 12, "/config", ("", "outside")),
    ]);
    for _ in 0..5 {
        assert_eq!(ask(&mut book, 500, "/config", "").unwrap(), "outside", "it polls as often as it likes");
    }
    assert_eq!(ask(&mut book, 101, "/config", "").unwrap(), "in a request");
}

#[test]
fn calls_without_a_trace_are_answered_if_there_is_nothing_else() {
    let mut book = book(vec![call(1, 10, "/a", ("x", "x")), call(2, 11, "/a", ("y", "y"))]);
    assert_eq!(ask(&mut book, 500, "/a", "y").unwrap(), "y");
    assert_eq!(ask(&mut book, 500, "/a", "y").unwrap(), "x");
    assert_eq!(ask(&mut book, 500, "/a", "y").unwrap_err().reason, MissReason::AllGiven { recorded: 2 });
}

#[test]
fn answers_that_change_are_never_repeated() {
    let mut book = book(vec![call(77, 11, "/turn", ("", "1")), call(78, 12, "/turn", ("", "2"))]);
    assert_eq!(ask(&mut book, 500, "/turn", "").unwrap(), "1");
    assert_eq!(ask(&mut book, 500, "/turn", "").unwrap(), "2");
    assert_eq!(ask(&mut book, 500, "/turn", "").unwrap_err().reason, MissReason::AllGiven { recorded: 2 });
}

#[test]
fn answers_that_cannot_be_given_say_why() {
    let reason = |change: fn(&mut RecordedCall)| {
        let mut recorded = call(1, 10, "/a", ("", "whole"));
        change(&mut recorded);
        ask(&mut book(vec![recorded]), 101, "/a", "").unwrap_err().reason
    };
    let cut = |call: &mut RecordedCall| call.answer.as_mut().unwrap().bytes = 9000;
    assert_eq!(reason(cut), MissReason::CutAnswer { recorded: 5, size: 9000 });
    assert_eq!(reason(|call| call.answer = None), MissReason::NoPayload);
    assert_eq!(reason(|call| call.wire = Wire::Tcp), MissReason::NotHttp);
    let hide = |call: &mut RecordedCall| {
        call.answer.as_mut().unwrap().headers.push(("set-cookie".into(), REDACTED.into()));
    };
    assert_eq!(reason(hide), MissReason::DiscardedSecret);
}

#[test]
fn a_call_that_failed_fails_again() {
    let mut recorded = call(1, 10, "/a", ("", ""));
    recorded.answer.as_mut().unwrap().error = Some(crate::CallError::ResetByCallee);
    let callee = service("pay");
    let asked = AskedCall { trace: TraceId(101), callee: &callee, method: "POST", path: "/a", body: b"" };
    let found = book(vec![recorded]).take_answer(&asked).unwrap();
    assert_eq!(found.answer.error, Some(crate::CallError::ResetByCallee));
    assert_eq!(found.by, MatchedBy { trace: true, same_request: true, repeated: false });
}
