//! What people should know about a campaign beside its defects: what was skipped, and what the file declares and
//! no test exercises.

use std::collections::BTreeSet;

use faultscope_model::perturbation::{Kind, masked_operation};
use faultscope_model::span::Wire;
use faultscope_model::units::count;
use faultscope_model::{Application, ServiceName, Span};

use super::ResilienceOptions;
use super::ground::{is_repeatable, named};
use super::tally::{SkipReason, Skipped};
use crate::drive::{Repetition, TrialTrace};

/// Operations that are named one by one.
const MAX_NAMED: usize = 3;

/// What unperturbed runs have shown about what the file declares.
#[derive(Debug, Default)]
pub(super) struct ExercisedDeclarations {
    /// Declared deliveries that some call fits: the service, and the place in its list.
    delivered: BTreeSet<(ServiceName, usize)>,
    /// Durable folders in which nothing was after any test; none before the first one.
    unused: Option<BTreeSet<(ServiceName, String)>>,
}

impl ExercisedDeclarations {
    /// Takes what one test showed.
    pub(super) fn learn(&mut self, application: &Application, seen: &TrialTrace) {
        for span in &seen.spans {
            let declared = application.services.get(&span.callee).map(|service| service.delivery.as_slice());
            for (place, (operation, _)) in declared.unwrap_or_default().iter().enumerate() {
                if operation.matches(&span.method, &span.path) {
                    self.delivered.insert((span.callee.clone(), place));
                }
            }
        }
        let unused = match self.unused.take() {
            None => seen.unused.clone(),
            Some(before) => before.intersection(&seen.unused).cloned().collect(),
        };
        self.unused = Some(unused);
    }

    /// What no test exercised.
    pub(super) fn warnings(&self, application: &Application) -> Vec<String> {
        let Some(unused) = &self.unused else { return Vec::new() };
        let mut warnings = Vec::new();
        for (name, service) in &application.services {
            for (place, (operation, _)) in service.delivery.iter().enumerate() {
                if !self.delivered.contains(&(name.clone(), place)) {
                    let operation = format!("{} {}", operation.method(), operation.path());
                    warnings.push(format!("`delivery` of {name}: no test led to a call of `{operation}`"));
                }
            }
        }
        for (name, folder) in unused {
            warnings.push(format!("`durable` of {name}: no test led to anything being kept in `{folder}`"));
        }
        warnings
    }
}

/// How a test is judged after an outage, where it does not pass twice in the same deployment.
pub(super) fn describe_repetition(repetition: Repetition) -> Option<&'static str> {
    match repetition {
        Repetition::Passes => None,
        Repetition::Unknown | Repetition::Fails => Some(
            "the test does not pass twice in one deployment: after an outage it is only judged by errors that it gets",
        ),
        Repetition::FailsWithError => Some(
            "the test gets errors when it runs twice in one deployment: after an outage only services that end count",
        ),
    }
}

/// Calls, connections and services that were seen, or declared, and cannot be perturbed as they are.
pub(super) fn list_skipped(
    application: &Application,
    options: &ResilienceOptions,
    seen: &TrialTrace,
    n_unstable: usize,
) -> Vec<Skipped> {
    let calls = named(&seen.spans);
    let operation = |span: &Span| format!("{} {}", span.callee, masked_operation(&span.method, &span.path));
    let mut skipped = Vec::new();
    let mut skip = |why: SkipReason, names: Vec<String>, number: usize| {
        if number > 0 {
            let names: BTreeSet<String> = names.into_iter().collect();
            let unnamed = names.len().saturating_sub(MAX_NAMED);
            skipped.push(Skipped {
                why,
                number,
                names: names.into_iter().take(MAX_NAMED).collect(),
                unnamed,
            });
        }
    };
    if options.kinds.contains(&Kind::Duplicate) && !options.all_deliveries {
        let undeclared = |span: &&&Span| {
            let service = application.services.get(&span.callee);
            service.is_some_and(|service| service.delivery_of(&span.method, &span.path).is_none())
                && !is_repeatable(span, application)
        };
        let names: Vec<String> = calls.values().filter(undeclared).map(|span| operation(span)).collect();
        let number = names.len();
        skip(SkipReason::NoDelivery, names, number);
    }
    // A test of actors has no calls at all, and what it does not call says nothing.
    let has_calls = !seen.spans.is_empty();
    if options.kinds.contains(&Kind::Restart) && !options.all_restarts && has_calls {
        // After each of its calls, or before the test where it has none that are seen.
        let n_restarts =
            |name: &ServiceName| calls.values().filter(|span| span.callee == *name).count().max(1);
        let loses = application.services.iter().filter(|(_, service)| !service.persistent);
        let names: Vec<&ServiceName> = loses.map(|(name, _)| name).collect();
        let number = names.iter().map(|name| n_restarts(name)).sum();
        skip(SkipReason::NotDurable, names.into_iter().map(ToString::to_string).collect(), number);
    }
    let is_connection = |span: &&Span| matches!(span.wire, Wire::Tcp | Wire::Tls);
    let mut called: BTreeSet<&ServiceName> = seen.spans.iter().map(|span| &span.callee).collect();
    let mut names: Vec<String> =
        seen.spans.iter().filter(is_connection).map(|span| span.callee.to_string()).collect();
    // One that is still open has not been recorded yet.
    names.extend(seen.connected.iter().filter(|name| !called.contains(name)).map(ToString::to_string));
    let number = names.len();
    skip(SkipReason::NotHttp, names, number);
    called.extend(&seen.connected);
    // A connection that was opened before the test may carry its calls, too.
    called.extend(seen.called.keys());
    if has_calls {
        let silent = application.services.keys().filter(|name| !called.contains(name));
        let names: Vec<String> = silent.map(ToString::to_string).collect();
        let number = names.len();
        skip(SkipReason::NoCalls, names, number);
    }
    let unknown = |span: &&Span| span.target.as_ref().is_some_and(|t| t.service_of_origin().is_some());
    let callers = seen.spans.iter().filter(unknown).map(|span| span.caller.service.to_string());
    let names: Vec<String> = callers.collect();
    let number = names.len();
    skip(SkipReason::UnknownCause, names, number);
    skip(SkipReason::Unstable, Vec::new(), n_unstable);
    skipped
}

/// That failures were taken as honest.
pub(super) fn honest(trials: usize) -> Option<String> {
    (trials > 0).then(|| {
        format!(
            "{} counted as degraded because a request of the test itself was answered with an error (status 500 and \
             above); write `degraded: \"\"` at the test to count this as a defect",
            count(trials, "trial")
        )
    })
}

#[cfg(test)]
mod tests {
    use faultscope_model::perturbation::TargetId;

    use super::*;
    use crate::sample;

    fn call(method: &str, path: &str, target: TargetId) -> Span {
        let callee = "stock".parse().unwrap();
        Span { callee, method: method.into(), path: path.into(), target: Some(target), ..sample::span() }
    }

    #[test]
    fn what_is_declared_and_never_seen_and_what_is_left_alone_is_told() {
        let text = "name: x\nservices:\n  stock:\n    command: [s]\n    ports: [80]\n    durable: [dta]\n    \
                    delivery: { 'POST /takee': at-least-once, 'POST /pay': at-least-once }\n  audit:\n    \
                    command: [a]\n";
        let application = Application::read_alone(text, "x.yaml").unwrap();
        let of =
            |method: &str, path: &str| call(method, path, TargetId::root().call("stock", method, path, 1));
        let unknown = call("GET", "/left", TargetId::of_its_own("test").call("stock", "GET", "/left", 1));
        let spans = vec![of("POST", "/take"), of("POST", "/pay"), of("GET", "/take"), unknown];
        let folder = |name: &str| BTreeSet::from([("stock".parse().unwrap(), name.to_owned())]);
        let seen = TrialTrace { spans, unused: folder("dta"), ..TrialTrace::default() };
        let mut known = ExercisedDeclarations::default();
        assert!(known.warnings(&application).is_empty(), "nothing was seen yet");
        known.learn(&application, &seen);
        let warnings = known.warnings(&application);
        assert_eq!(warnings.len(), 2, "{warnings:?}");
        assert!(warnings[0].contains("`POST /takee`") && warnings[1].contains("`dta`"), "{warnings:?}");
        known.learn(&application, &TrialTrace::default());
        assert_eq!(known.warnings(&application).len(), 1, "another test kept something there");
        let connection = Span { wire: Wire::Tcp, callee: "redis".parse().unwrap(), ..sample::span() };
        let spans = seen.spans.into_iter().chain([connection]).collect();
        let seen = TrialTrace { spans, ..TrialTrace::default() };
        let skipped = |options: &ResilienceOptions| -> Vec<(SkipReason, usize, String)> {
            let all = list_skipped(&application, options, &seen, 2);
            all.into_iter().map(|s| (s.why, s.number, s.names.join(","))).collect()
        };
        let wanted = [
            (SkipReason::NoDelivery, 1, "stock POST /take"),
            (SkipReason::NotDurable, 1, "audit"),
            (SkipReason::NotHttp, 1, "redis"),
            (SkipReason::NoCalls, 1, "audit"),
            (SkipReason::UnknownCause, 1, "test"),
            (SkipReason::Unstable, 2, ""),
        ];
        let wanted = wanted.map(|(why, number, names)| (why, number, names.to_owned()));
        assert_eq!(skipped(&ResilienceOptions::default()), wanted);
        let all = ResilienceOptions { all_deliveries: true, ..ResilienceOptions::default() };
        assert_eq!(skipped(&all), wanted[1..]);
    }
}
