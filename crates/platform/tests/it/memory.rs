//! The simulated back end.

use std::time::Duration;

use faultscope_model::SlotId;
use faultscope_model::plan::Reset;
use faultscope_platform::contract::{ContractApp, contract};
use faultscope_platform::memory::{Condition, Cost, Effect, Fault, MemoryPlatform, Simulation};
use faultscope_platform::{Platform, PlatformErrorKind};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::support::{App, instance, plan, run};

fn simulation(faults: Vec<Fault>) -> Simulation {
    let apply = Cost { base: Duration::from_secs(10), per_instance: Duration::from_secs(2), spread: 0.2 };
    Simulation { seed: 7, apply, exec: Cost::fixed(Duration::from_secs(5)), clear: Duration::ZERO, faults }
}

fn fault(when: Condition, probability: f64, effect: Effect) -> Fault {
    Fault { when, probability, effect }
}

#[tokio::test(start_paused = true)]
async fn keeps_the_contract() {
    let app = App::new();
    let application = ContractApp {
        slot: Box::new(move |id| app.slot(id.0)),
        service: vec!["service".into()],
        image: None,
    };
    contract(&MemoryPlatform::new(simulation(Vec::new())), application).await;
}

#[tokio::test(start_paused = true)]
async fn fails_as_scripted_in_virtual_time() {
    let two = Condition::Instances { service: "order".parse().unwrap(), at_least: 2 };
    let lost = Effect::Fail { message: "lost update".into() };
    let limited =
        Condition::Config { service: "order".parse().unwrap(), item: "memory".into(), equals: None };
    let flaky = Effect::Fail { message: "flaky".into() };
    let faults = vec![
        fault(limited, 1.0, Effect::Invalid),
        fault(two, 1.0, lost),
        fault(Condition::Always, 0.3, flaky),
    ];
    let text = serde_json::to_string(&simulation(faults)).unwrap();
    let outcomes = async || {
        let platform = MemoryPlatform::new(serde_json::from_str(&text).unwrap());
        let (app, slot, cancel) = (App::new(), SlotId(0), CancellationToken::new());
        platform.open_slot(&app.slot(0)).await.unwrap();
        let mut plan = plan(vec![instance("order-1", 8080, &[])], Reset::Restart);
        let started = Instant::now();
        let mut codes = Vec::new();
        for _ in 0..200 {
            platform.reserve(slot, &plan).await.unwrap();
            platform.apply(slot, &plan, &cancel).await.unwrap();
            codes.push(platform.exec(slot, &run("true"), &cancel).await.unwrap().code);
            assert!(platform.virtual_time(slot).unwrap() > Duration::from_secs(8));
        }
        assert!(started.elapsed() > Duration::from_secs(200 * 10), "virtual time passes");
        plan.circumstance.instances.insert("order".parse().unwrap(), 2);
        platform.apply(slot, &plan, &cancel).await.unwrap();
        assert_eq!(platform.exec(slot, &run("true"), &cancel).await.unwrap().stdout, "lost update");
        let limit = [("memory".to_owned(), "64MiB".to_owned())].into();
        plan.circumstance.config.insert("order".parse().unwrap(), limit);
        platform.apply(slot, &plan, &cancel).await.unwrap();
        let invalid = platform.exec(slot, &run("true"), &cancel).await.unwrap_err();
        assert_eq!(invalid.kind, PlatformErrorKind::Infrastructure);
        codes
    };
    let codes = outcomes().await;
    let failed = codes.iter().filter(|code| **code == Some(1)).count();
    assert!((40..80).contains(&failed), "{failed} of 200 with a probability of 0.3");
    assert_eq!(codes, outcomes().await, "the same seed, the same fate");
}
