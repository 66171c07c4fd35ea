//! What people should know about a campaign beside its defects: what was left alone, what the file declares
//! and no test bears out.

use std::collections::{BTreeMap, BTreeSet};

use faultscope_model::perturbation::{Kind, masked_operation};
use faultscope_model::units::count;
use faultscope_model::{Application, ServiceName, Span};

use super::ResilienceOptions;
use super::ground::{IDEMPOTENT, has_key, named};
use crate::drive::TrialTrace;

/// Operations that are named one by one.
const MOST_NAMED: usize = 3;

/// What unperturbed runs have shown about what the file declares.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// Declared deliveries that some call fits: the service, and the place in its list.
    delivered: BTreeSet<(ServiceName, usize)>,
    /// Durable folders in which nothing was after any test; none before the first one.
    unused: Option<BTreeSet<(ServiceName, String)>>,
}

impl Known {
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

    /// What no test bore out.
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

/// What was seen and left alone, and why.
pub(super) fn left_alone(
    application: &Application,
    options: &ResilienceOptions,
    seen: &TrialTrace,
) -> Vec<String> {
    let mut notes = Vec::new();
    if options.kinds.contains(&Kind::Duplicate) && !options.all_deliveries {
        let undeclared = |span: &&Span| {
            let service = application.services.get(&span.callee);
            service.is_some_and(|service| service.delivery_of(&span.method, &span.path).is_none())
                && !IDEMPOTENT.contains(&span.method.as_str())
                && !has_key(span)
        };
        let calls: Vec<&Span> = named(&seen.spans).into_values().filter(undeclared).collect();
        let names: BTreeSet<String> = calls
            .iter()
            .map(|span| format!("{} {}", span.callee, masked_operation(&span.method, &span.path)))
            .collect();
        if !names.is_empty() {
            let more = if names.len() > MOST_NAMED { ", ..." } else { "" };
            let first: Vec<&str> = names.iter().take(MOST_NAMED).map(String::as_str).collect();
            let was = if calls.len() == 1 { "was" } else { "were" };
            notes.push(format!(
                "{} {was} not repeated, since no `delivery` is declared: {}{more} (--all-deliveries repeats all)",
                count(calls.len(), "call"),
                first.join(", ")
            ));
        }
    }
    let mut unknown: BTreeMap<String, usize> = BTreeMap::new();
    for span in &seen.spans {
        if span.target.as_ref().is_some_and(|target| target.service_of_origin().is_some()) {
            *unknown.entry(span.caller.service.to_string()).or_default() += 1;
        }
    }
    for (service, calls) in unknown {
        let calls = count(calls, "call");
        notes.push(format!(
            "{calls} of unknown cause left alone: made by {service} without trace context, in the handling of \
             no request or of several"
        ));
    }
    notes
}

/// That failures were taken as honest.
pub(super) fn honest(trials: usize) -> Option<String> {
    (trials > 0).then(|| {
        format!(
            "{} failed after a request of the test itself was answered with an error (status 500 and above), \
             which is honest and no defect; `degraded: \"\"` at the test makes it one",
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
                    delivery: { 'POST /takee': at-least-once, 'POST /pay': at-least-once }\n";
        let application = Application::read_alone(text, "x.yaml").unwrap();
        let of =
            |method: &str, path: &str| call(method, path, TargetId::root().call("stock", method, path, 1));
        let unknown = call("GET", "/left", TargetId::of_its_own("test").call("stock", "GET", "/left", 1));
        let spans = vec![of("POST", "/take"), of("POST", "/pay"), of("GET", "/take"), unknown];
        let folder = |name: &str| BTreeSet::from([("stock".parse().unwrap(), name.to_owned())]);
        let seen = TrialTrace { spans, unused: folder("dta"), ..TrialTrace::default() };
        let mut known = Known::default();
        assert!(known.warnings(&application).is_empty(), "nothing was seen yet");
        known.learn(&application, &seen);
        let warnings = known.warnings(&application);
        assert_eq!(warnings.len(), 2, "{warnings:?}");
        assert!(warnings[0].contains("`POST /takee`") && warnings[1].contains("`dta`"), "{warnings:?}");
        known.learn(&application, &TrialTrace::default());
        assert_eq!(known.warnings(&application).len(), 1, "another test kept something there");
        let notes = left_alone(&application, &ResilienceOptions::default(), &seen);
        assert_eq!(notes.len(), 2, "{notes:?}");
        assert!(notes[0].starts_with("1 call was not repeated") && notes[0].contains("stock POST /take ("));
        assert!(notes[1].starts_with("1 call of unknown cause"), "{notes:?}");
        let all = ResilienceOptions { all_deliveries: true, ..ResilienceOptions::default() };
        assert_eq!(left_alone(&application, &all, &seen).len(), 1);
    }
}
