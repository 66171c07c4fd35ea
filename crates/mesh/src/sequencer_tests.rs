//! The sequencer without sockets: arrivals, answers and time are given.

use std::time::Duration;

use super::*;

struct Series {
    sequencer: Sequencer,
    from: InstanceId,
    now: Instant,
    held: Vec<(Ticket, oneshot::Receiver<()>)>,
}

fn series(order: &[&str]) -> Series {
    let gate = Gate {
        id: 7,
        from: "order".parse().unwrap(),
        handling: "POST /pay".parse().unwrap(),
        order: order.iter().map(|call| call.parse().unwrap()).collect(),
        wait: Duration::from_secs(2),
    };
    let series = Series {
        sequencer: Sequencer::new(vec![gate]),
        from: "order-1".parse().unwrap(),
        now: Instant::now(),
        held: Vec::new(),
    };
    let handled = Handled {
        span: SpanId(1),
        trace: TraceId(1),
        instance: &series.from,
        method: "POST",
        path: "/pay?x=1",
    };
    series.sequencer.begin(handled, series.now);
    series
}

impl Series {
    fn arrive(&mut self, callee: &str, parent: Option<u64>, trace: u128) -> bool {
        let arrival = Arrival {
            caller: &self.from,
            parent: parent.map(SpanId),
            trace: TraceId(trace),
            callee: &callee.parse().unwrap(),
            method: "PUT",
            path: "/s",
        };
        let held = self.sequencer.arrive(arrival, self.now);
        let is_held = held.is_some();
        self.held.extend(held);
        is_held
    }

    fn released(&mut self) -> Vec<bool> {
        self.held.iter_mut().map(|(_, receiver)| receiver.try_recv().is_ok()).collect()
    }

    fn answer(&self, call: usize) {
        self.sequencer.answered(self.held[call].0, self.now);
    }

    fn expire(&mut self) {
        self.now += Duration::from_secs(2);
        self.sequencer.expire(self.held[0].0, self.now);
    }

    fn outcome(&self) -> Option<GateOutcome> {
        let mut reports = self.sequencer.take_reports();
        assert!(reports.len() <= 1, "{reports:?}");
        reports.pop().map(|report| report.outcome)
    }
}

fn names(calls: &[&str]) -> Vec<CallName> {
    calls.iter().map(|call| call.parse().unwrap()).collect()
}

#[test]
fn releases_in_the_order() {
    let mut series = series(&["b PUT /s", "a PUT /s"]);
    assert!(series.arrive("a", Some(1), 1) && series.arrive("b", Some(1), 1));
    assert_eq!(series.released(), [false, true]);
    assert_eq!(series.outcome(), None);
    series.answer(1);
    assert!(series.held[0].1.try_recv().is_ok());
    assert_eq!(series.outcome(), Some(GateOutcome::Completed));
}

#[test]
fn tells_equal_calls_apart_by_their_ordinal() {
    let mut series = series(&["a PUT /s#2", "a PUT /s"]);
    assert!(series.arrive("a", Some(1), 1) && series.arrive("a", Some(1), 1));
    assert_eq!(series.released(), [false, true]);
    assert!(!series.arrive("a", Some(1), 1), "a third one passes freely");
}

#[test]
fn other_calls_pass() {
    let mut series = series(&["a PUT /s", "b PUT /s"]);
    assert!(!series.arrive("c", Some(1), 1), "another callee");
    assert!(!series.arrive("a", Some(9), 9), "another handling");
    assert!(series.arrive("a", Some(9), 1), "unknown parent, but the trace tells");
}

#[test]
fn a_synchronous_caller_is_named() {
    let mut series = series(&["b PUT /s", "a PUT /s"]);
    series.arrive("a", Some(1), 1);
    series.expire();
    assert_eq!(series.released(), [true]);
    let expected = GateOutcome::Synchronous { arrived: names(&["a PUT /s"]), missing: names(&["b PUT /s"]) };
    assert_eq!(series.outcome(), Some(expected));
    assert!(!series.arrive("b", Some(1), 1), "the rest passes freely");
}

#[test]
fn an_exhausted_pool_is_named() {
    let mut series = series(&["a PUT /s#3", "a PUT /s", "a PUT /s#2"]);
    series.arrive("a", Some(1), 1);
    series.arrive("a", Some(1), 1);
    series.expire();
    assert_eq!(series.outcome(), Some(GateOutcome::PoolExhausted { missing: names(&["a PUT /s#3"]) }));
}

#[test]
fn an_ended_handling_leaves_calls_missing() {
    let mut series = series(&["a PUT /s", "b PUT /s"]);
    series.arrive("a", Some(1), 1);
    series.sequencer.ended(SpanId(1));
    assert_eq!(series.outcome(), Some(GateOutcome::Missing { missing: names(&["b PUT /s"]) }));
    assert!(series.held[0].1.try_recv().is_err_and(|e| e == oneshot::error::TryRecvError::Closed));
}

#[test]
fn an_unanswered_call_is_named() {
    let mut series = series(&["b PUT /s", "a PUT /s"]);
    series.arrive("a", Some(1), 1);
    series.arrive("b", Some(1), 1);
    series.expire();
    assert_eq!(series.outcome(), Some(GateOutcome::Unanswered { call: names(&["b PUT /s"])[0].clone() }));
    assert_eq!(series.released(), [true, true]);
}

#[test]
fn an_arrival_prolongs_the_wait() {
    let mut series = series(&["a PUT /s", "b PUT /s", "c PUT /s"]);
    series.arrive("a", Some(1), 1);
    series.now += Duration::from_secs(1);
    series.arrive("b", Some(1), 1);
    series.now += Duration::from_millis(1500);
    series.sequencer.expire(series.held[0].0, series.now);
    assert_eq!(series.outcome(), None);
}

#[test]
fn a_caller_that_goes_is_not_waited_for() {
    let mut series = series(&["a PUT /s", "b PUT /s"]);
    series.arrive("a", Some(1), 1);
    series.answer(0);
    series.arrive("b", Some(1), 1);
    assert!(series.held[1].1.try_recv().is_ok());
    assert!(matches!(series.outcome(), Some(GateOutcome::Unanswered { .. })));
}
