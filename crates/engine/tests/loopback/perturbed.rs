//! Perturbed calls: which defects are found, and that nothing else is called one.

use std::io;
use std::sync::Arc;

use faultscope_engine::resilience::{
    self, Defect, ResilienceOptions, SetsTried, SkipReason, Tally, TestReport, Verdict,
};
use faultscope_engine::views::{describe_finding, describe_sets, describe_verdict};
use faultscope_model::CampaignKind;
use faultscope_model::event::Event;
use faultscope_model::perturbation::Kind;
use faultscope_platform::loopback::{Call, Loopback, Test};
use tokio::sync::{Barrier, Notify};
use tokio_util::sync::CancellationToken;

use crate::bed::{Bed, close, defects, text};
use crate::shop::{REPAIRED, platform, shop, shop_with};

const TWICE: &str = "duplicate shop POST /buy > stock POST /take";
const FORGOTTEN: &str = "restart shop POST /buy > ledger PUT /entries/order-a";

fn kinds(kinds: &[Kind]) -> ResilienceOptions {
    ResilienceOptions { kinds: kinds.to_vec(), ..ResilienceOptions::default() }
}

fn has(defect: &Defect, kind: Kind) -> bool {
    defect.perturbations.iter().any(|perturbation| perturbation.kind == kind)
}

/// What makes a test a command.
fn as_command(run: &str) -> Vec<(&'static str, String)> {
    let steps = "    steps:
      - { post: \"http://shop/buy\", json: { id: order-a } }
      - { get: \"http://shop/state\", expect: { json: { left: \"9\", sum: \"7\" } } }
";
    vec![(steps, format!("    {run}\n"))]
}

fn changed<'a>(own: &'a [(&'static str, String)], others: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    own.iter().map(|(from, to)| (*from, to.as_str())).chain(others.iter().copied()).collect()
}

#[tokio::test]
async fn every_defect_is_found_blamed_and_shown_again() {
    let bed = shop(&[]).with(|options| options.slots = 2);
    let report = bed.resilience(ResilienceOptions::default()).await;
    assert_eq!(defects(&report), [TWICE, FORGOTTEN]);
    let [TestReport { defects: found, missed, unstable: 0, flaky: None, trials, .. }] = &report.tests[..]
    else {
        panic!("{report:#?}")
    };
    assert!(missed.is_empty() && trials.unresolved == 0, "{report:#?}");
    let twice = found.iter().find(|defect| has(defect, Kind::Duplicate)).unwrap();
    let signature = twice.signature.as_ref().unwrap().to_string();
    assert_eq!(signature, "buy: step 2: GET http://shop/state: left: `8` does not match `9`");
    assert_eq!((twice.blamed.join(" "), twice.minimal, twice.invariant), ("shop".into(), true, false));
    let marked = twice.trace.iter().filter(|step| step.marks.iter().any(|mark| mark == "duplicate"));
    assert_eq!(marked.count(), 2, "both sendings are marked: {:#?}", twice.trace);

    let session = bed.open_for(bed.application(), CampaignKind::Resilience, None).await;
    let never = CancellationToken::new();
    for defect in found {
        let again = defect.perturbations.clone();
        let run = resilience::reproduce(&session, "buy", again, None, &never).await.unwrap().unwrap();
        assert_eq!(run.outcome.word(), "fail");
    }
    let absent = vec!["restart shop POST /sell > stock POST /take".parse().unwrap()];
    let run = resilience::reproduce(&session, "buy", absent, None, &never).await.unwrap().unwrap();
    assert_eq!(run.outcome.word(), "unresolved");
    let missed = &run.perturbed.unwrap().missed;
    assert_eq!(missed[0].why.to_string(), "no such call or message came");
    close(session).await;
}

#[tokio::test]
async fn a_restart_is_borne_by_what_is_durable() {
    let report = shop(&[("LEDGER: \"\"", "LEDGER: keeps")]).resilience(kinds(&[Kind::Restart])).await;
    assert_eq!((report.verdict.clone(), defects(&report)), (Verdict::Clean, vec![]), "{report:#?}");
    let restarts = report.tests[0].candidates[&Kind::Restart];
    assert!(restarts >= 4, "stock and ledger are asked to, {restarts} times");
}

#[tokio::test]
async fn a_sound_shop_is_clean_and_its_retry_is_found_out() {
    let report = shop(&REPAIRED).resilience(ResilienceOptions::default()).await;
    assert_eq!(report.verdict, Verdict::Clean, "{report:#?}");
    let test = &report.tests[0];
    assert!(test.missed.is_empty(), "{test:#?}");
    assert_eq!(test.candidates.get(&Kind::ErrorFirst), Some(&1), "the call with a retry was found out");
}

#[tokio::test]
async fn what_callers_make_of_errors_is_judged() {
    // The stock is asked again although its answer was only lost, and nobody minds when the ledger fails.
    let bed = shop(&[("SHOP: \"\"", "SHOP: asks-again ignores-ledger")]).with(|options| options.slots = 2);
    let report = bed.resilience(kinds(&[Kind::Error, Kind::LostAnswer])).await;
    let wanted = [
        "error shop POST /buy > ledger PUT /entries/order-a",
        "lost_answer shop POST /buy > stock POST /take",
    ];
    assert_eq!(defects(&report), wanted, "{report:#?}");
    // Eight calls with two kinds each, alone and in pairs.
    let enumerated = 8 + 8 * 6 / 2;
    assert!(2 * report.tests[0].trials.changing <= enumerated, "{:?}", report.tests[0].trials);
}

#[tokio::test]
async fn an_error_that_a_retry_gets_past_may_still_do_harm() {
    let sound = [REPAIRED[0], REPAIRED[1], ("SHOP: \"\"", "SHOP: books-more-the-second-time")];
    let report = shop(&sound).resilience(kinds(&[Kind::Error, Kind::ErrorFirst])).await;
    assert_eq!(defects(&report), ["error_first shop POST /buy > ledger PUT /entries/order-a"], "{report:#?}");
    let said = report.tests[0].defects[0].signature.as_ref().unwrap().to_string();
    assert!(said.ends_with("sum: `8` does not match `7`"), "{said}");
}

#[tokio::test]
async fn calls_that_overtake_one_another_are_tried() {
    let second_came = Arc::new(Notify::new());
    let log = move |call: Call| {
        let second_came = second_came.clone();
        async move {
            let memory = call.instance.memory();
            match call.path() {
                "/order" => return memory.get("order").unwrap_or_default(),
                path => memory.set("order", memory.get("order").unwrap_or_default() + &path[1..]),
            }
            // Both are under way at the same time, in whatever order they come.
            if call.path() == "/b" {
                second_came.notify_one();
            } else {
                second_came.notified().await;
            }
            String::new()
        }
    };
    let platform = Loopback::new().service("log", log).service("clock", |_| async { "now" }).program(
        "both",
        |test: Test| async move {
            let client = test.client();
            let second = async {
                // A whole call later, so that the first one is there before.
                client.get("http://clock/").await?;
                client.post("http://log/b", "b").await
            };
            tokio::try_join!(client.post("http://log/a", "a"), second)?;
            let order = text(&client.get("http://log/order").await?);
            if order == "ab" { Ok(()) } else { Err(io::Error::other(format!("the order is {order}"))) }
        },
    );
    let file = "name: log
services:
  log: { command: [log], ports: [80] }
  clock: { command: [clock], ports: [80] }
tests: [ { name: order, run: [both] } ]
";
    let report = Bed::new(file, platform).resilience(kinds(&[Kind::Reorder])).await;
    assert_eq!(defects(&report), ["reorder log POST /a"], "{report:#?}");
    let said = report.tests[0].defects[0].signature.as_ref().unwrap().to_string();
    assert_eq!(said, "order: exit code 1: the order is ba");
}

#[tokio::test]
async fn a_verdict_says_what_was_done_and_what_was_not() {
    // The shop hands every error on, so the test fails with each of them, and that is accepted.
    let report = shop(&REPAIRED).resilience(kinds(&[Kind::Error, Kind::Restart])).await;
    let test = &report.tests[0];
    assert_eq!(report.verdict, Verdict::Clean, "{report:#?}");
    let Tally { passed, degraded, broke: 0, unclear: 0, not_applied: 0, never_tried } = test.tally else {
        panic!("{:?}", test.tally)
    };
    assert_eq!((degraded, test.tally.carried_out()), (4, passed + degraded), "four calls between services");
    assert!(passed >= 4, "restarts are borne: {:?}", test.tally);
    let restarts = test.skipped.iter().find(|skipped| skipped.why == SkipReason::NotDurable).unwrap();
    assert_eq!((restarts.number, restarts.names.join(" ")), (2, "shop".into()), "it keeps nothing");
    assert_eq!(never_tried, 2);
    let wanted = format!(
        "no defect found in 1 test: {} perturbations carried out ({passed} passed, 4 degraded), 2 never tried",
        passed + 4
    );
    assert_eq!(report.summary(), wanted);
    assert_eq!(report.tally, test.tally);

    let report = shop(&REPAIRED).resilience(kinds(&[Kind::Error])).await;
    let said = describe_verdict(&report.tests[0]);
    assert!(said.starts_with("no defect found, but every perturbation degraded the test: 4 "), "{said}");
}

#[tokio::test]
async fn what_was_not_tried_for_want_of_budget_is_counted() {
    let options = ResilienceOptions { most_trials: Some(2), ..kinds(&[Kind::Error]) };
    let report = shop(&REPAIRED).resilience(options).await;
    let test = &report.tests[0];
    assert_eq!((test.verdict.clone(), test.tally.carried_out()), (Verdict::OutOfBudget, 2), "{test:#?}");
    let left = test.skipped.iter().find(|skipped| skipped.why == SkipReason::OutOfBudget).unwrap();
    assert_eq!(left.number, 2);
    assert_eq!(describe_sets(&test.sets).as_deref(), Some("2 of 4 single perturbations tried"));
}

#[tokio::test]
async fn single_perturbations_come_first_and_pairs_when_they_are_asked_for() {
    let singles = |bed: &Bed| {
        let done = |event: &Event| matches!(event, Event::SinglesDone { .. });
        bed.events().into_iter().find(done).expect("it says when all single ones are done")
    };
    let bed = shop(&REPAIRED);
    let report = bed.resilience(kinds(&[Kind::Error])).await;
    let trials = report.tests[0].trials.all();
    assert_eq!(singles(&bed), Event::SinglesDone { trials, most: 1 });
    assert_eq!(report.tests[0].sets, [SetsTried { size: 1, tried: 4, pruned: 0, left: 0 }]);

    let bed = shop(&REPAIRED);
    let options = ResilienceOptions { most_together: 2, ..kinds(&[Kind::Error]) };
    let report = bed.resilience(options).await;
    assert_eq!(singles(&bed), Event::SinglesDone { trials, most: 2 });
    let [single, pairs] = report.tests[0].sets[..] else { panic!("{:?}", report.tests[0].sets) };
    assert_eq!((single.tried, single.left, pairs.left), (4, 0, 0));
    assert!(pairs.tried + pairs.pruned > 0, "{pairs:?}");

    // With what is left of a budget: enough for the single ones and one pair at most.
    let bed = shop(&REPAIRED);
    let options = ResilienceOptions {
        most_trials: Some(single.tried + pairs.tried.saturating_sub(1)),
        larger_with_rest: true,
        ..kinds(&[Kind::Error])
    };
    let report = bed.resilience(options).await;
    assert_eq!(report.verdict, Verdict::Clean, "the single ones are done: {report:#?}");
}

#[tokio::test]
async fn a_second_answer_that_differs_is_a_finding_and_no_defect() {
    // The test does not look at how many are left, so that only the answers show it.
    let steps = as_command("http: { post: \"http://shop/buy\", json: { id: order-a } }");
    let lenient = [("expect: { body: \"10|9\" }", "expect: { status: 200 }")];
    let report =
        shop_with(&changed(&steps, &lenient), platform()).resilience(kinds(&[Kind::Duplicate])).await;
    assert_eq!((report.verdict.clone(), defects(&report)), (Verdict::Clean, vec![]), "{report:#?}");
    let [finding] = &report.tests[0].findings[..] else { panic!("{:?}", report.tests[0].findings) };
    assert_eq!(
        describe_finding(finding),
        "shop POST /buy > stock POST /take arrived twice and was answered differently: the whole body"
    );
    let careful = [("STOCK: \"\"", "STOCK: careful")];
    let report =
        shop_with(&changed(&steps, &careful), platform()).resilience(kinds(&[Kind::Duplicate])).await;
    assert!(report.tests[0].findings.is_empty(), "{:?}", report.tests[0].findings);
}

async fn buy(test: Test) -> Result<(), String> {
    let answer = test.client().post("http://shop/buy", r#"{"id":"order-a"}"#).await;
    let answer = answer.map_err(|error| error.to_string())?;
    if answer.status().is_success() { Ok(()) } else { Err(format!("status {}", answer.status().as_u16())) }
}

#[tokio::test]
async fn a_command_that_got_an_error_is_degraded() {
    // Nothing is ever found in a durable folder.
    let platform = || platform().program("buy", buy).program("ls", |_| async { 0 });
    let command = as_command("run: [buy]");
    let options = || ResilienceOptions { most_together: 1, ..kinds(&[Kind::Error, Kind::Duplicate]) };
    let report = shop_with(&changed(&command, &REPAIRED), platform()).resilience(options()).await;
    assert_eq!(report.verdict, Verdict::Clean, "{report:#?}");
    let notes = report.tests[0].notes.join("\n");
    assert!(notes.contains("answered with an error"), "{notes}");
    let skipped = &report.tests[0].skipped;
    let not_repeated = skipped.iter().find(|skipped| skipped.why == SkipReason::NoDelivery).unwrap();
    assert_eq!(not_repeated.names, ["shop POST /buy"], "{skipped:?}");
    assert_eq!(report.warnings, ["`durable` of stock: no test led to anything being kept in `data/`"]);

    let strict = as_command("run: [buy]\n    degraded: \"\"");
    let wrong = [REPAIRED[0], REPAIRED[1], ("\"POST /take\": at", "\"POST /takee\": at")];
    let report = shop_with(&changed(&strict, &wrong), platform()).resilience(options()).await;
    let wanted =
        ["error shop POST /buy > ledger PUT /entries/order-a", "error shop POST /buy > stock POST /take"];
    assert_eq!(defects(&report), wanted, "{report:#?}");
    assert!(report.warnings[0].contains("`POST /takee`"), "{:?}", report.warnings);
}

#[tokio::test]
async fn invariants_are_looked_at_where_the_test_itself_is_content() {
    // The test asks for nothing but a good answer; that nothing is taken twice is what must hold.
    let command = as_command("http: { post: \"http://shop/buy\", json: { id: order-a } }");
    let must = [("\"10|9\"", "\"^(10|9)$\"")];
    let report = shop_with(&changed(&command, &must), platform()).resilience(kinds(&[Kind::Duplicate])).await;
    assert_eq!(defects(&report), [TWICE], "{report:#?}");
    let defect = &report.tests[0].defects[0];
    assert!(defect.invariant && defect.blamed == ["stock"], "{defect:#?}");
    assert_eq!(defect.signature.as_ref().unwrap().test, "nothing is lost");
}

#[tokio::test]
async fn a_degraded_answer_is_good_enough_where_the_file_says_so() {
    let degraded = as_command(
        "degraded: \"status 502\"\n    http: { post: \"http://shop/buy\", json: { id: order-a }, expect: { status: 200 } }",
    );
    let options = || ResilienceOptions { most_together: 1, ..kinds(&[Kind::Error]) };
    let report = shop_with(&changed(&degraded, &REPAIRED), platform()).resilience(options()).await;
    assert_eq!(report.verdict, Verdict::Clean, "{report:#?}");
    let strict =
        degraded.iter().map(|(from, to)| (*from, to.replace("status 502", "status 418"))).collect::<Vec<_>>();
    let report = shop_with(&changed(&strict, &REPAIRED), platform()).resilience(options()).await;
    assert_eq!(defects(&report).len(), 2, "{report:#?}");
}

#[tokio::test]
async fn a_test_that_fails_by_itself_is_refused() {
    let report = shop(&[("left: \"9\"", "left: \"12\"")]).resilience(ResilienceOptions::default()).await;
    assert_eq!(report.verdict, Verdict::FailsAlready);
    let test = &report.tests[0];
    assert_eq!((test.trials.baseline, test.trials.all()), (3, 3));
    let said = test.signature.as_ref().unwrap().to_string();
    assert_eq!(said, "buy: step 2: GET http://shop/state: left: `9` does not match `12`");
}

#[tokio::test]
async fn runs_without_perturbations_use_all_slots() {
    // Each of them waits for the other one.
    let both = Arc::new(Barrier::new(2));
    let platform =
        Loopback::new().service("back", |_| async { "fine" }).program("meets", move |test: Test| {
            let both = both.clone();
            async move {
                both.wait().await;
                test.client().get("http://back/x").await.map(|_| ())
            }
        });
    let file = "name: meeting\nservices: { back: { command: [back], ports: [80] } }\ntests: [ { name: t, run: [meets], within: 20s } ]\n";
    let bed = Bed::new(file, platform).with(|options| options.slots = 2);
    let options = ResilienceOptions { most_trials: Some(0), ..kinds(&[Kind::Duplicate]) };
    let report = bed.resilience(options).await;
    assert_eq!((report.verdict, report.tests[0].trials.baseline), (Verdict::OutOfBudget, 2));
}
