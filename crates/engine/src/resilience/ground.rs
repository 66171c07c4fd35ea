//! What can be perturbed: read from what two runs without perturbations showed.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use faultscope_model::application::{Delivery, Resilience};
use faultscope_model::grpc::Idempotency;
use faultscope_model::perturbation::{Event, Kind, Perturbation, TargetId, masked_operation};
use faultscope_model::rule::{Effect, Occurrence, Rule, Selector};
use faultscope_model::run::CallSeen;
use faultscope_model::{Application, ServiceName, Span};
use faultscope_search::resilience::{Candidate, Scope, SeenCall, Targets};

use super::ResilienceOptions;
use crate::drive::TrialTrace;

/// Methods whose requests may be repeated, as HTTP has it.
const IDEMPOTENT: [&str; 5] = ["GET", "HEAD", "OPTIONS", "PUT", "DELETE"];

/// The header by which a caller says that its request may be repeated.
const IDEMPOTENCY_KEY: &str = "idempotency-key";

/// What can be done to a test.
#[derive(Debug, Default)]
pub(super) struct Ground {
    /// The neutral perturbations.
    pub(super) targets: Targets,
    /// Outages that begin during the test.
    pub(super) outages: Vec<Perturbation>,
    /// A candidate for every call, for its place in the trace.
    pub(super) places: Vec<Candidate>,
    /// Calls and messages that only one of the runs had; they are left alone.
    pub(super) unstable: usize,
    /// How many calls and messages were seen.
    pub(super) seen: usize,
}

impl Ground {
    pub(super) fn new(
        application: &Application,
        options: &ResilienceOptions,
        first: &TrialTrace,
        second: &TrialTrace,
    ) -> Self {
        let calls = named(&first.spans);
        let again = named(&second.spans);
        let mut events = events_of(&first.spans, &calls);
        let offset = events.len() as u64 + 1;
        events.extend(first.messages.iter().map(|event| shifted(event, offset)));
        let scope = Scope { kinds: vec![Kind::Duplicate, Kind::Restart], from_test: true };
        let mut targets = Targets::new(&events, &scope);
        let all = std::mem::take(&mut targets.candidates);
        let messages = |seen: &TrialTrace| -> BTreeSet<Perturbation> {
            Targets::new(&seen.messages, &scope).candidates.into_iter().map(|c| c.perturbation).collect()
        };
        let (stable, known) = (messages(second), messages(first));
        let names = |messages: &BTreeSet<Perturbation>| -> BTreeSet<TargetId> {
            messages.iter().map(|p| p.target.clone()).collect()
        };
        let (names_first, names_second) = (names(&known), names(&stable));
        let unstable = calls.keys().filter(|target| !again.contains_key(*target)).count()
            + names_first.difference(&names_second).count();
        let seen = calls.len() + names_first.len();
        let mut places = Vec::new();
        for candidate in all {
            let Perturbation { kind, target } = &candidate.perturbation;
            let Some(span) = calls.get(target) else {
                let fits = options.kinds.contains(kind) && stable.contains(&candidate.perturbation);
                if fits && known.contains(&candidate.perturbation) {
                    targets.candidates.push(candidate);
                }
                continue;
            };
            // All calls are repeatable and all services persistent in the events: here each comes once.
            if *kind == Kind::Duplicate && again.contains_key(target) {
                places.push(candidate.clone());
                let possible = |kind: &Kind| is_possible(*kind, span, &calls, application, options);
                let kinds = options.kinds.iter().filter(|kind| possible(kind));
                let with = |kind: &Kind| Candidate {
                    perturbation: Perturbation { kind: *kind, target: target.clone() },
                    ..candidate.clone()
                };
                targets.candidates.extend(kinds.map(with));
            }
        }
        for (kind, service) in whole_services(application, options, first, second, &calls) {
            let place = targets.actors.iter().position(|actor| actor == service.as_str());
            let actor = place.unwrap_or_else(|| {
                targets.actors.push(service.to_string());
                targets.actors.len() - 1
            });
            let perturbation = Perturbation { kind, target: TargetId::whole(service.as_str()) };
            let turn = targets.add_turn(actor);
            let (from, message) = (String::new(), String::new());
            targets.candidates.push(Candidate { perturbation, from, message, actor, turn });
        }
        let outages = outages_during(options, first, second);
        Self { targets, outages, places, unstable, seen }
    }
}

/// Services that can be away or restarted before the test: those that others are connected to by then, and those that
/// no restart after a call reaches.
fn whole_services(
    application: &Application,
    options: &ResilienceOptions,
    first: &TrialTrace,
    second: &TrialTrace,
    calls: &HashMap<TargetId, &Span>,
) -> Vec<(Kind, ServiceName)> {
    let mut whole = Vec::new();
    if options.kinds.contains(&Kind::Outage) {
        let connected = first.connected.intersection(&second.connected);
        whole.extend(connected.map(|service| (Kind::Outage, service.clone())));
    }
    if options.kinds.contains(&Kind::Restart) && !first.spans.is_empty() {
        let is_called = |name: &ServiceName| calls.values().any(|span| span.callee == *name);
        let fits =
            |name: &ServiceName, keeps: bool| options.all_restarts && !keeps || (keeps && !is_called(name));
        let services = application.services.iter().filter(|(name, service)| fits(name, service.persistent));
        whole.extend(services.map(|(name, _)| (Kind::Restart, name.clone())));
    }
    whole
}

/// The calls with which an outage begins during the test, by number: the first one meets a service that is gone, the
/// second one a service that was there a moment ago. Later moments seldom show anything else, and each costs a trial
/// of several seconds.
const OUTAGE_MOMENTS: [u32; 2] = [1, 2];

/// Outages of services that other services call during the test, in both runs as often as it takes.
fn outages_during(options: &ResilienceOptions, first: &TrialTrace, second: &TrialTrace) -> Vec<Perturbation> {
    if !options.kinds.contains(&Kind::Outage) {
        return Vec::new();
    }
    let both = first.called.iter().filter_map(|(service, calls)| {
        let again = second.called.get(service)?;
        Some((service, *calls.min(again)))
    });
    let moments = |(service, calls): (&ServiceName, u32)| {
        let possible = OUTAGE_MOMENTS.into_iter().filter(move |moment| *moment <= calls);
        let service = service.clone();
        possible.map(move |moment| Perturbation {
            kind: Kind::Outage,
            target: TargetId::any_call(service.as_str(), moment),
        })
    };
    both.flat_map(moments).collect()
}

/// The first attempt at each call that the test led to.
pub(super) fn named(spans: &[Span]) -> HashMap<TargetId, &Span> {
    let mut calls: HashMap<TargetId, &Span> = HashMap::new();
    for span in spans {
        if let Some(target) = span.target.as_ref().filter(|target| target.is_of_test()) {
            calls.entry(target.clone()).or_insert(span);
        }
    }
    calls
}

/// Calls as the paper's events: a request is sent, its handling is a turn, a service an actor.
fn events_of(spans: &[Span], calls: &HashMap<TargetId, &Span>) -> Vec<Event> {
    let mut events = Vec::new();
    let mut turns: HashMap<&TargetId, u64> = HashMap::new();
    let mut created: BTreeSet<&str> = BTreeSet::new();
    for span in spans {
        let Some(target) = &span.target else { continue };
        if calls.get(target).is_none_or(|first| first.id != span.id) {
            continue;
        }
        let to = span.callee.to_string();
        if created.insert(span.callee.as_str()) {
            events.push(Event::Create { parent: None, child: to.clone(), persistent: true });
        }
        let number = turns.len() as u64 + 1;
        let turn = target.cause().and_then(|cause| turns.get(&cause).copied());
        events.push(Event::Send {
            from: span.caller.service.to_string(),
            to: to.clone(),
            message: masked_operation(&span.method, &span.path),
            send: number,
            turn,
            at_least_once: true,
            target: Some(target.clone()),
        });
        events.push(Event::Turn { to, send: number, turn: number });
        turns.insert(target, number);
    }
    events
}

/// An event whose numbers do not meet those of calls.
fn shifted(event: &Event, by: u64) -> Event {
    let mut event = event.clone();
    match &mut event {
        Event::Send { send, turn, .. } => {
            *send += by;
            *turn = turn.map(|turn| turn + by);
        }
        Event::Turn { send, turn, .. } => {
            *send += by;
            *turn += by;
        }
        _ => {}
    }
    event
}

/// Whether a neutral perturbation makes sense for a call.
fn is_possible(
    kind: Kind,
    span: &Span,
    calls: &HashMap<TargetId, &Span>,
    application: &Application,
    options: &ResilienceOptions,
) -> bool {
    let service = application.services.get(&span.callee);
    match kind {
        Kind::Duplicate => match service.and_then(|s| s.delivery_of(&span.method, &span.path)) {
            Some(Delivery::AtLeastOnce) => true,
            Some(Delivery::AtMostOnce) => false,
            None => options.all_deliveries || is_repeatable(span, application),
        },
        Kind::Restart => service.is_some_and(|service| service.persistent || options.all_restarts),
        Kind::Delay => true,
        Kind::Reorder => calls.values().any(|other| can_overtake(other, span)),
        // A retry must be left, which only a trial with an error shows.
        _ => false,
    }
}

/// Whether a request may be repeated without a declaration: by its HTTP method, by its key, or by the
/// `idempotency_level` of its gRPC method.
pub(super) fn is_repeatable(span: &Span, application: &Application) -> bool {
    let by_descriptor = || {
        let path = span.path.split('?').next().unwrap_or_default();
        let method = application.descriptors.method(path);
        method.is_some_and(|method| method.idempotency != Idempotency::Unknown)
    };
    IDEMPOTENT.contains(&span.method.as_str()) || has_key(span) || by_descriptor()
}

fn has_key(span: &Span) -> bool {
    let headers = span.payload.as_ref().map(|payload| payload.request_headers.as_slice()).unwrap_or_default();
    headers.iter().any(|(name, _)| name.eq_ignore_ascii_case(IDEMPOTENCY_KEY))
}

/// Whether a call was under way beside this one, later and unrelated, to the same callee.
fn can_overtake(other: &Span, span: &Span) -> bool {
    let related = match (&other.target, &span.target) {
        (Some(other), Some(own)) => other.is_related(own),
        _ => true,
    };
    !related
        && other.callee == span.callee
        && (span.start_us, span.id) < (other.start_us, other.id)
        && other.start_us < span.start_us + span.duration_us
}

/// The rules that carry perturbations of calls out; those of messages find no call.
pub(super) fn rules(perturbations: &[Perturbation], resilience: &Resilience) -> Vec<Rule> {
    let (status, grpc_status) = (resilience.status, Some(resilience.grpc_code.0));
    let rule = |(id, perturbation): (u32, &Perturbation)| {
        // What a retry is to get past is done to the first attempt only.
        let (effect, occurrence) = match perturbation.kind {
            // Not done to a call, but to a service before the test, or from a call on.
            _ if perturbation.target.is_whole() => (Effect::Mark, Occurrence::Every),
            Kind::Outage => (Effect::Mark, Occurrence::Every),
            Kind::Duplicate => (Effect::Duplicate, Occurrence::Every),
            Kind::Restart => (Effect::RestartAfter, Occurrence::Every),
            Kind::Delay => {
                let jitter = std::time::Duration::ZERO;
                (Effect::Delay { by: resilience.delay, jitter }, Occurrence::First(1))
            }
            Kind::Reorder => (Effect::Reorder { within: resilience.reorder }, Occurrence::First(1)),
            Kind::ErrorFirst => (Effect::ErrorFirst { count: 1, status, grpc_status }, Occurrence::Every),
            Kind::LostAnswer => (Effect::LostAnswer, Occurrence::First(1)),
            Kind::Error => (Effect::Abort { status, grpc_status }, Occurrence::Every),
            Kind::Timeout => (Effect::Timeout { after: resilience.timeout }, Occurrence::Every),
            Kind::Truncate => (Effect::Truncate { after: 1 }, Occurrence::Every),
        };
        let target = Some(perturbation.target.clone());
        Rule { id, select: Selector { target, occurrence, ..Selector::default() }, effect }
    };
    (1..).zip(perturbations).map(rule).collect()
}

/// The calls of a run, for the search by growing size. What the test itself calls is left alone: it has
/// nothing but its answer.
pub(super) fn seen_calls(calls: &[CallSeen]) -> Vec<SeenCall> {
    let of = |call: &CallSeen| {
        let parent = call.target.cause();
        let spared = match &parent {
            None => Kind::ALL.to_vec(),
            Some(_) if call.bytes < 2 => vec![Kind::Truncate],
            Some(_) => Vec::new(),
        };
        SeenCall { target: call.target.clone(), parent, answer: call.answer.clone(), good: call.good, spared }
    };
    calls.iter().map(of).collect()
}

/// Why there is nothing to perturb, where what was chosen or how the test runs explains it.
pub(super) fn nothing(seen: &TrialTrace, kinds: &[Kind]) -> Option<&'static str> {
    let for_messages = kinds.iter().any(|kind| matches!(kind, Kind::Duplicate | Kind::Restart));
    if seen.spans.is_empty() && seen.messages.is_empty() {
        Some("no call came through the mesh, and the test's process reported no message")
    } else if seen.spans.is_empty() && !for_messages {
        Some("messages of actors know only duplicate and restart")
    } else {
        None
    }
}

/// How many candidates there are of each kind.
pub(super) fn counts(targets: &Targets) -> BTreeMap<Kind, usize> {
    let mut counts = BTreeMap::new();
    for candidate in &targets.candidates {
        *counts.entry(candidate.perturbation.kind).or_default() += 1;
    }
    counts
}
