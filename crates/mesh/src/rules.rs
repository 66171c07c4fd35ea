//! Which rules select a call, and what they do to it together. Counting is left to the steering.

use std::time::Duration;

use faultscope_model::rule::{Effect, Rule, Selector};
use faultscope_model::span::Wire;
use faultscope_model::{InstanceId, ServiceName};

use crate::dice::Dice;

/// A request's headers, in whatever shape the protocol has them.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Headers<'a> {
    None,
    Http1(&'a [httparse::Header<'a>]),
    Http2(&'a http::HeaderMap),
}

/// What rules may look at.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Facts<'a> {
    pub(crate) caller: &'a InstanceId,
    pub(crate) callee: &'a ServiceName,
    pub(crate) instance: Option<&'a InstanceId>,
    pub(crate) wire: Wire,
    pub(crate) method: &'a str,
    pub(crate) path: &'a str,
    pub(crate) headers: Headers<'a>,
}

/// What is done to one call; rules are named by their index.
#[derive(Debug, Default, Clone)]
pub(crate) struct Effects {
    pub(crate) delay: Duration,
    pub(crate) refuse: Option<Refusal>,
    /// The caller is to give up: it is watched while it waits.
    pub(crate) times_out: bool,
    pub(crate) duplicate: Option<usize>,
    pub(crate) lost_answer: Option<usize>,
    pub(crate) truncate: Option<(usize, u64)>,
    pub(crate) throttle: Option<(usize, u64)>,
    pub(crate) restart: Option<usize>,
}

/// How a call ends before it reaches its callee.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The connection or stream is reset.
    Reset,
    /// The mesh answers.
    Answer { status: u16, grpc_status: Option<u16> },
}

// === impl Headers ===

impl<'a> Headers<'a> {
    /// The first value of a header, in any case.
    pub(crate) fn get(&self, name: &str) -> Option<&'a [u8]> {
        match self {
            Self::None => None,
            Self::Http1(headers) => {
                headers.iter().find(|h| h.name.eq_ignore_ascii_case(name)).map(|h| h.value)
            }
            Self::Http2(headers) => headers.get(name).map(http::HeaderValue::as_bytes),
        }
    }
}

/// The rules that select a call, by index; targets and occurrences aside, which the steering knows.
pub(crate) fn selected(rules: &[Rule], facts: &Facts<'_>) -> Vec<usize> {
    let chosen = |(_, rule): &(usize, &Rule)| selects(&rule.select, facts);
    rules.iter().enumerate().filter(chosen).map(|(index, _)| index).collect()
}

fn selects(select: &Selector, facts: &Facts<'_>) -> bool {
    let is_connection = matches!(facts.wire, Wire::Tcp | Wire::Tls);
    select.caller.as_ref().is_none_or(|caller| *caller == facts.caller.service)
        && select.caller_instance.as_ref().is_none_or(|caller| caller == facts.caller)
        && select.callee.as_ref().is_none_or(|callee| callee == facts.callee)
        && select.callee_instance.as_ref().is_none_or(|instance| Some(instance) == facts.instance)
        && select
            .operation
            .as_ref()
            .is_none_or(|wanted| !is_connection && wanted.matches(facts.method, facts.path))
        && select.header.as_ref().is_none_or(|wanted| {
            facts.headers.get(&wanted.name).is_some_and(|found| {
                wanted.value.as_ref().is_none_or(|value| value.as_bytes() == found.trim_ascii())
            })
        })
}

/// Adds up the effects of the rules that take effect; gives also those that have been applied by that.
/// Effects on the answer are applied later, if the call gets that far.
pub(crate) fn combine(
    rules: &[Rule],
    effective: &[usize],
    wire: Wire,
    jitter: &Dice,
) -> (Effects, Vec<usize>) {
    let is_connection = matches!(wire, Wire::Tcp | Wire::Tls);
    let mut effects = Effects::default();
    let mut applied = Vec::new();
    for index in effective.iter().copied() {
        match &rules[index].effect {
            // A call that is refused already is not touched further.
            _ if effects.refuse.is_some() => {}
            Effect::Delay { by, jitter: most } => {
                effects.delay += *by + jitter.up_to(*most);
                applied.push(index);
            }
            Effect::Mark => applied.push(index),
            // The steering holds the call and knows whether that reordered anything.
            Effect::Reorder { .. } => {}
            Effect::Timeout { after } => {
                effects.delay += *after;
                (effects.refuse, effects.times_out) = (Some(Refusal::Reset), true);
                applied.push(index);
            }
            Effect::Drop => {
                effects.refuse = Some(Refusal::Reset);
                applied.push(index);
            }
            Effect::Truncate { after } => effects.truncate = Some((index, *after)),
            Effect::Throttle { bytes_per_second } => {
                effects.throttle = Some((index, (*bytes_per_second).max(1)))
            }
            // The rest needs requests and answers, which a bare connection does not show.
            _ if is_connection => {}
            Effect::Abort { status, grpc_status } | Effect::ErrorFirst { status, grpc_status, .. } => {
                effects.refuse = Some(Refusal::Answer { status: *status, grpc_status: *grpc_status });
                applied.push(index);
            }
            Effect::Duplicate => effects.duplicate = Some(index),
            Effect::LostAnswer => effects.lost_answer = Some(index),
            Effect::RestartAfter => effects.restart = Some(index),
        }
    }
    (effects, applied)
}

#[cfg(test)]
mod tests {
    use faultscope_model::rule::HeaderMatch;

    use super::*;

    fn check(select: Selector, expected: bool) {
        let caller: InstanceId = "web-1".parse().unwrap();
        let callee: ServiceName = "stock".parse().unwrap();
        let instance: InstanceId = "stock-2".parse().unwrap();
        let headers = [httparse::Header { name: "X-Tenant", value: b"blue" }];
        let facts = Facts {
            caller: &caller,
            callee: &callee,
            instance: Some(&instance),
            wire: Wire::Http1,
            method: "PUT",
            path: "/s/1?x",
            headers: Headers::Http1(&headers),
        };
        assert_eq!(selects(&select, &facts), expected, "{select:?}");
    }

    fn header(value: Option<&str>) -> Selector {
        let header = HeaderMatch { name: "x-tenant".to_owned(), value: value.map(str::to_owned) };
        Selector { header: Some(header), ..Selector::default() }
    }

    #[test]
    fn selectors() {
        check(Selector::default(), true);
        check(Selector { caller: Some("web".parse().unwrap()), ..Selector::default() }, true);
        check(Selector { caller_instance: Some("web-2".parse().unwrap()), ..Selector::default() }, false);
        check(Selector { callee: Some("web".parse().unwrap()), ..Selector::default() }, false);
        check(Selector { callee_instance: Some("stock-2".parse().unwrap()), ..Selector::default() }, true);
        check(Selector { operation: Some("PUT /s/{id}".parse().unwrap()), ..Selector::default() }, true);
        check(Selector { operation: Some("GET /s/{id}".parse().unwrap()), ..Selector::default() }, false);
        check(header(None), true);
        check(header(Some("blue")), true);
        check(header(Some("red")), false);
    }

    #[test]
    fn nothing_follows_a_refusal() {
        let rule = |id, effect| Rule { id, select: Selector::default(), effect };
        let rules = [
            rule(1, Effect::Mark),
            rule(2, Effect::Abort { status: 503, grpc_status: None }),
            rule(3, Effect::Drop),
            rule(4, Effect::Duplicate),
        ];
        let (effects, applied) = combine(&rules, &[0, 1, 2, 3], Wire::Http1, &Dice::new(1, 1));
        assert_eq!(effects.refuse, Some(Refusal::Answer { status: 503, grpc_status: None }));
        assert_eq!((applied, effects.duplicate), (vec![0, 1], None));
        let (_, applied) = combine(&rules, &[1], Wire::Tcp, &Dice::new(1, 1));
        assert!(applied.is_empty(), "a bare connection cannot be answered");
    }
}
