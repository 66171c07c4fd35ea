//! Converts what format 2 wrote as sentences, magic numbers or maps by sentence into the types of format 3, and the
//! numbered deltas of format 3 into the treatments of format 4.
//!
//! Runs, reports and lines of the event log have the same shapes, so one walk over their JSON serves all. A
//! sentence that cannot be parsed is kept as `described`.

use faultscope_model::{DeltaSet, ExitReason, InstanceId, NotApplied, Spoiled, Treatment, TrialId};
use serde_json::{Map, Value, json};

/// The depth to which documents are converted; ours have a dozen levels.
const MAX_DEPTH: usize = 64;

/// Converts a document from format 2 to format 3; one of format 3 stays as it is.
pub(super) fn facts_to_format_3(document: &mut Value) {
    walk(document, 0);
}

fn walk(value: &mut Value, depth: usize) {
    if depth > MAX_DEPTH {
        return;
    }
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| walk(item, depth + 1)),
        Value::Object(fields) => {
            change(fields);
            fields.values_mut().for_each(|field| walk(field, depth + 1));
        }
        _ => {}
    }
}

fn change(fields: &mut Map<String, Value>) {
    if let Some(trial) = fields.get_mut("trial")
        && let Some(known) = trial.as_u64().and_then(TrialId::from_key)
    {
        *trial = known.name().into();
    }
    if fields.get("kind").is_some_and(|kind| kind == "unresolved") {
        describe(fields);
    }
    if let Some(verdict) = fields.get_mut("verdict").and_then(Value::as_object_mut)
        && verdict.get("kind").is_some_and(|kind| kind == "unresolved")
        && verdict.get("reason").is_some_and(Value::is_string)
    {
        // The sentence says how it ended.
        verdict.entry("end").or_insert("failing".into());
    }
    for item in objects(fields.get_mut("otherwise")) {
        describe(item);
    }
    for exit in objects(fields.get_mut("exits")) {
        if let Some(reason) = exit.get("reason").and_then(Value::as_str) {
            let is_start = exit.contains_key("start");
            let reason = read_exit(reason, is_start);
            exit.insert("reason".into(), json!(reason));
        }
    }
    if let Some(start) = fields.get_mut("start").and_then(Value::as_object_mut)
        && let Some(reason) = start.get("reason").and_then(Value::as_str)
    {
        let reason = ExitReason::NotReady { detail: reason.to_owned() };
        start.insert("reason".into(), json!(reason));
    }
    for missed in objects(fields.get_mut("missed")) {
        let why =
            missed.get("why").filter(|why| serde_json::from_value::<NotApplied>((*why).clone()).is_err());
        if let Some(why) = why.and_then(Value::as_str) {
            let why = NotApplied::from_words(why);
            missed.insert("why".into(), json!(why));
        }
    }
    if let Some(unresolved) = fields.get_mut("unresolved").filter(|unresolved| unresolved.is_object()) {
        let counts = unresolved.as_object().into_iter().flatten();
        let count = |(reason, trials): (&String, &Value)| json!({ "reason": { "kind": "described", "text": reason }, "trials": trials });
        *unresolved = counts.map(count).collect();
    }
}

/// Brings a run or an event of format 3 to format 4; one of format 4 stays as it is.
pub(super) fn facts_to_format_4(document: &mut Value) {
    // Lines of the event log hold the event beside its time.
    let fields = match document.get("event") {
        Some(_) => &mut document["event"],
        None => document,
    };
    let Some(fields) = fields.as_object_mut() else { return };
    if fields.get("kind").is_some_and(|kind| kind == "trial_invalid")
        && let Some(message) = fields.get("reason").and_then(Value::as_str).map(ToOwned::to_owned)
    {
        fields.insert("reason".into(), json!(Spoiled::Infrastructure { message }));
    }
    let is_event = fields.get("kind").is_some_and(|kind| kind == "trial_started");
    let is_run = fields.contains_key("circumstance") && fields.contains_key("outcome");
    if !(is_event || is_run) || fields.contains_key("treatment") {
        return;
    }
    let numbers = fields.remove("deltas").and_then(|numbers| serde_json::from_value(numbers).ok());
    let asked = fields.get_mut("perturbed").and_then(Value::as_object_mut).and_then(|p| p.remove("asked"));
    let treatment = match (asked, numbers.filter(|numbers: &DeltaSet| !numbers.is_empty())) {
        (Some(Value::Array(asked)), _) if !asked.is_empty() => {
            json!({ "kind": "perturbations", "perturbations": asked })
        }
        (_, Some(numbers)) => json!(Treatment::Numbered { numbers }),
        (_, None) => json!(Treatment::Nothing),
    };
    fields.insert("treatment".into(), treatment);
}

fn objects(list: Option<&mut Value>) -> impl Iterator<Item = &mut Map<String, Value>> {
    let items = list.and_then(Value::as_array_mut).into_iter().flatten();
    items.filter_map(Value::as_object_mut)
}

/// Replaces a sentence by a typed reason.
fn describe(fields: &mut Map<String, Value>) {
    let Some(text) = fields.get("reason").and_then(Value::as_str) else { return };
    let reason = match text.split_once(" did not become ready: ") {
        Some((instance, detail)) if instance.parse::<InstanceId>().is_ok() => {
            let reason = ExitReason::NotReady { detail: detail.to_owned() };
            json!({ "kind": "not_ready", "instance": instance, "reason": reason })
        }
        _ => json!({ "kind": "described", "text": text }),
    };
    fields.insert("reason".into(), reason);
}

/// How an instance ended, parsed from the text of format 2.
fn read_exit(words: &str, is_start: bool) -> ExitReason {
    let number = |prefix: &str| words.strip_prefix(prefix).and_then(|number| number.parse().ok());
    let plain = [ExitReason::OutOfMemory, ExitReason::ChildOutOfMemory, ExitReason::Ended];
    if is_start {
        return ExitReason::NotReady { detail: words.to_owned() };
    }
    if let Some(code) = number("exited with ") {
        return ExitReason::Exited { code };
    }
    if let Some(signal) = number("killed by signal ") {
        return ExitReason::Signalled { signal };
    }
    let known = plain.into_iter().find(|reason| reason.to_string() == words);
    known.unwrap_or_else(|| ExitReason::NotReady { detail: words.to_owned() })
}

#[cfg(test)]
mod tests {
    use faultscope_model::event::Event;
    use faultscope_model::outcome::Unresolved;
    use faultscope_model::run::{InstanceExit, Missed};
    use faultscope_model::{Outcome, TrialRole};

    use super::*;

    fn brought(mut document: Value) -> Value {
        facts_to_format_3(&mut document);
        let once = document.clone();
        facts_to_format_3(&mut document);
        assert_eq!(document, once, "what is of format 3 stays as it is");
        document
    }

    #[test]
    fn events_of_format_2_are_read() {
        let outcome =
            json!({ "kind": "unresolved", "reason": "stock-1 did not become ready: exited with 3" });
        let line = json!({ "kind": "trial_finished", "trial": (3_u64 << 32) + 2, "run": "ab12.check-failing-2",
                           "outcome": outcome, "took": "1s" });
        let Event::TrialFinished { trial, outcome, .. } = serde_json::from_value(brought(line)).unwrap()
        else {
            panic!("another event")
        };
        assert_eq!(trial, TrialId::new(TrialRole::CheckFailing, 2));
        let Outcome::Unresolved { reason } = outcome else { panic!("{outcome:?}") };
        assert!(matches!(&reason, Unresolved::NotReady { .. }), "{reason:?}");
        assert_eq!(reason.to_string(), "stock-1 did not become ready: exited with 3");
    }

    #[test]
    fn exits_and_missed_perturbations_are_read_from_their_words() {
        for words in [
            "exited with 1",
            "killed by signal 11",
            "killed: out of memory",
            "a child was killed: out of memory",
            "ended",
        ] {
            let exits = brought(json!({ "exits": [{ "instance": "a-1", "reason": words }] }));
            let exit: InstanceExit = serde_json::from_value(exits["exits"][0].clone()).unwrap();
            assert_eq!(exit.reason.to_string(), words);
            assert!(!matches!(exit.reason, ExitReason::NotReady { .. }), "{words}");
        }
        let why = |words: &str| {
            let perturbation = json!({ "kind": "restart", "target": "a.Go" });
            let missed = brought(json!({ "missed": [{ "perturbation": perturbation, "why": words }] }));
            serde_json::from_value::<Missed>(missed["missed"][0].clone()).unwrap().why
        };
        assert_eq!(why("no such call or message came"), NotApplied::NoSuchCall);
        assert_eq!(why("something of long ago").to_string(), "something of long ago");
    }

    #[test]
    fn what_a_run_was_given_is_told_as_far_as_it_was_stored() {
        let treatment = |mut run: Value| {
            facts_to_format_4(&mut run);
            let once = run.clone();
            facts_to_format_4(&mut run);
            assert_eq!(run, once, "what is of format 4 stays as it is");
            assert!(run.get("deltas").is_none() && run["perturbed"].get("asked").is_none());
            serde_json::from_value::<Treatment>(run["treatment"].take()).unwrap()
        };
        let run = |rest: Value| {
            let mut run = json!({ "circumstance": {}, "outcome": { "kind": "pass" } });
            for (key, value) in rest.as_object().unwrap() {
                run[key] = value.clone();
            }
            run
        };
        assert_eq!(treatment(run(json!({}))), Treatment::Nothing);
        let numbers = [1, 5].into_iter().collect();
        assert_eq!(treatment(run(json!({ "deltas": [1, 5] }))), Treatment::Numbered { numbers });
        let asked = json!([{ "kind": "restart", "target": "a.Go" }]);
        let perturbed =
            treatment(run(json!({ "deltas": [7], "perturbed": { "test": "t", "asked": asked } })));
        assert_eq!(perturbed.perturbations().len(), 1, "{perturbed:?}");
    }

    #[test]
    fn events_of_format_3_are_read() {
        let mut line = json!({ "at_us": 1, "event": {
            "kind": "trial_started", "trial": "12", "slot": 0, "deltas": [2, 3], "tests": 1,
        } });
        assert!(
            serde_json::from_value::<Event>(line["event"].clone()).is_err(),
            "it takes the way of old lines"
        );
        facts_to_format_4(&mut line);
        let Event::TrialStarted { treatment, .. } = serde_json::from_value(line["event"].take()).unwrap()
        else {
            panic!("another event")
        };
        assert_eq!(treatment.size(), 2);
        let mut line =
            json!({ "kind": "trial_invalid", "trial": "3", "reason": "its agent is gone", "next_try": 2 });
        facts_to_format_4(&mut line);
        let Event::TrialInvalid { reason, .. } = serde_json::from_value(line).unwrap() else {
            panic!("another event")
        };
        assert_eq!(reason.to_string(), "its agent is gone");
    }

    #[test]
    fn reports_of_format_2_keep_their_words() {
        let report = brought(json!({ "tests": [{
            "verdict": { "kind": "unresolved", "reason": "nothing could be applied" },
            "unresolved": { "another failure: pay: exit code 1": 2 },
        }] }));
        let test = &report["tests"][0];
        assert_eq!(test["verdict"]["reason"]["text"], "nothing could be applied");
        assert_eq!(test["unresolved"][0]["trials"], 2);
        assert_eq!(test["unresolved"][0]["reason"]["text"], "another failure: pay: exit code 1");
    }
}
