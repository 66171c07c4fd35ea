//! Decisions that hold for a whole slot, wherever its proxies run: rule occurrences and gates.
//!
//! Proxies ask through [`Steering`]. In the tool's own process the answer is there at once; a sidecar asks
//! the tool and waits. Proxies must not keep counters of their own beside it.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use faultscope_model::rule::{Effect, Rule};
use faultscope_model::series::{Gate, GateReport};
use faultscope_model::{InstanceId, SpanId};
use futures_util::future::BoxFuture;
use tokio::time::Instant;

use crate::reports::RuleHits;
use crate::sequencer::{Arrival, Handled, Sequencer, Ticket};

/// An answer that is there, or comes from the tool.
pub(crate) enum Answer<T> {
    Now(T),
    Later(BoxFuture<'static, T>),
}

/// A held call: its place, and what it waits for.
pub(crate) struct Hold {
    pub(crate) ticket: Ticket,
    pub(crate) release: BoxFuture<'static, ()>,
}

/// Who counts and sequences for a slot.
pub(crate) trait Steering: Send + Sync + fmt::Debug {
    /// Counts a call that these rules select, by index, and gives those that take effect.
    fn count(&self, selected: &[usize], caller: &InstanceId, method: &str, path: &str) -> Answer<Vec<usize>>;
    /// Notes that a rule did something to a call.
    fn applied(&self, rule: usize);
    /// Whether there are gates at all.
    fn has_gates(&self) -> bool;
    /// A request has arrived at its callee.
    fn begin(&self, handled: Handled<'_>) -> Answer<()>;
    /// A call has arrived; gives what holds it.
    fn arrive(&self, arrival: Arrival<'_>) -> Option<Hold>;
    /// The answer of a held call has reached its caller.
    fn answered(&self, ticket: Ticket);
    /// The handling of a request has ended.
    fn ended(&self, span: SpanId);
    /// A report was lost: nothing that gates show in this trial can be trusted.
    fn lost(&self);
    /// Takes what became of the gates.
    fn take_gates(&self) -> Vec<GateReport>;
    /// Takes how often rules were met.
    fn take_rules(&self) -> Vec<RuleHits>;
}

/// Steering within this process.
#[derive(Debug)]
pub(crate) struct LocalSteering {
    rules: Vec<Counted>,
    first: Mutex<HashMap<(usize, InstanceId, String), u32>>,
    sequencer: Arc<Sequencer>,
}

#[derive(Debug)]
struct Counted {
    rule: Rule,
    seen: AtomicU32,
    matched: AtomicU64,
    applied: AtomicU64,
}

/// Callers and operations that one trial's `error first` rules tell apart; more are not made to fail.
const MOST_FIRST: usize = 65_536;

// === impl LocalSteering ===

impl LocalSteering {
    pub(crate) fn new(rules: &[Rule], gates: &[Gate]) -> Self {
        let counted = |rule: &Rule| Counted {
            rule: rule.clone(),
            seen: AtomicU32::new(0),
            matched: AtomicU64::new(0),
            applied: AtomicU64::new(0),
        };
        Self {
            rules: rules.iter().map(counted).collect(),
            first: Mutex::default(),
            sequencer: Arc::new(Sequencer::new(gates.to_vec())),
        }
    }

    fn is_among_first(
        &self,
        index: usize,
        count: u32,
        caller: &InstanceId,
        method: &str,
        path: &str,
    ) -> bool {
        let operation = match &self.rules[index].rule.select.operation {
            Some(pattern) => pattern.to_string(),
            None => [method, path.split('?').next().unwrap_or_default()].join(" "),
        };
        let mut first = self.first.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (index, caller.clone(), operation);
        if first.len() >= MOST_FIRST && !first.contains_key(&key) {
            return false;
        }
        let seen = first.entry(key).or_default();
        *seen = seen.saturating_add(1);
        *seen <= count
    }
}

impl Steering for LocalSteering {
    fn count(&self, selected: &[usize], caller: &InstanceId, method: &str, path: &str) -> Answer<Vec<usize>> {
        let takes_effect = |index: &usize| {
            let Some(counted) = self.rules.get(*index) else {
                return false;
            };
            let turn = counted.seen.fetch_add(1, Ordering::Relaxed).saturating_add(1);
            if !counted.rule.select.occurrence.covers(turn) {
                return false;
            }
            counted.matched.fetch_add(1, Ordering::Relaxed);
            match counted.rule.effect {
                Effect::ErrorFirst { count, .. } => self.is_among_first(*index, count, caller, method, path),
                _ => true,
            }
        };
        Answer::Now(selected.iter().copied().filter(takes_effect).collect())
    }

    fn applied(&self, rule: usize) {
        if let Some(counted) = self.rules.get(rule) {
            counted.applied.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn has_gates(&self) -> bool {
        !self.sequencer.is_idle()
    }

    fn begin(&self, handled: Handled<'_>) -> Answer<()> {
        self.sequencer.begin(handled, Instant::now());
        Answer::Now(())
    }

    fn arrive(&self, arrival: Arrival<'_>) -> Option<Hold> {
        let (ticket, mut released) = self.sequencer.arrive(arrival, Instant::now())?;
        let sequencer = Arc::clone(&self.sequencer);
        let release = Box::pin(async move {
            while let Some(deadline) = sequencer.deadline(ticket) {
                tokio::select! {
                    _ = &mut released => return,
                    () = tokio::time::sleep_until(deadline) => sequencer.expire(ticket, Instant::now()),
                }
            }
        });
        Some(Hold { ticket, release })
    }

    fn answered(&self, ticket: Ticket) {
        self.sequencer.answered(ticket, Instant::now());
    }

    fn ended(&self, span: SpanId) {
        self.sequencer.ended(span);
    }

    fn lost(&self) {
        self.sequencer.lost();
    }

    fn take_gates(&self) -> Vec<GateReport> {
        self.sequencer.take_reports()
    }

    fn take_rules(&self) -> Vec<RuleHits> {
        let hits = |counted: &Counted| RuleHits {
            rule: counted.rule.id,
            matched: counted.matched.swap(0, Ordering::Relaxed),
            applied: counted.applied.swap(0, Ordering::Relaxed),
        };
        self.rules.iter().map(hits).collect()
    }
}
