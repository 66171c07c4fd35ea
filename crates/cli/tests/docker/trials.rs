//! Cells in containers: a gate, a restart, a limit, a cancel, a killed tool.

use std::sync::Arc;

use faultscope_engine::testing::run_trial;
use faultscope_engine::{Session, SessionOptions, Tests, TrialRequest};
use faultscope_model::rule::{Effect, Occurrence, Rule, Selector};
use faultscope_model::{Application, CampaignKind, Outcome, Treatment};
use faultscope_platform::docker::{DockerOptions, DockerPlatform};
use faultscope_testkit::cells;
use tokio_util::sync::CancellationToken;

use crate::{left, tool_with};

const CALLS: [&str; 3] = ["back GET /word", "front GET /hello", "log POST /third"];

#[test]
#[ignore = "needs a Docker engine: ./test.sh docker"]
fn a_gate_imposes_any_order() {
    for order in [[0, 1, 2], [2, 1, 0]] {
        let service = |name: &str, port: u16| {
            format!(
                "  {name}: {{ command: [\"${{faultscope}}\", cell, --spec, cells.yaml, --service, {name}], \
                 ports: [{port}], ready: {{ http: /health }} }}\n"
            )
        };
        let names: Vec<String> = order.iter().map(|&n| format!("\"{}\"", CALLS[n])).collect();
        let fixture = cells()
            .replace("tests:\n", &format!("{}{}tests:\n", service("desk", 8082), service("log", 8083)))
            .replace(
                "failing:\n",
                "  - { name: desk, http: { post: \"http://desk:8082/at-once\" } }\nfailing:\n",
            )
            .replace(
                "  instances: { back: 3 }\n  config: { back: { env.BROKEN: \"true\", memory: 64MiB } }\n",
                "",
            )
            .more(&format!(
                "  sequence: [ {{ from: desk, in: \"POST /at-once\", order: [ {} ] }} ]\n",
                names.join(", ")
            ));
        let tool = tool_with(&fixture);
        let run = tool.tested(["--platform", "docker", "--failing", "--test", "desk"], 0);
        let mut calls: Vec<_> = run.spans().iter().filter(|s| s["caller"] == "desk-1").collect();
        calls.sort_by_key(|s| s["start_us"].as_u64().unwrap() + s["duration_us"].as_u64().unwrap());
        let answered: Vec<_> = calls.iter().map(|s| s["callee"].as_str().unwrap()).collect();
        assert_eq!(answered, order.map(|n| CALLS[n].split(' ').next().unwrap()));
        assert_eq!(run.json["run"]["evidence"]["gates"].as_array().unwrap().len(), 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a Docker engine: ./test.sh docker"]
async fn a_callee_is_restarted_after_a_call() {
    // The second call of the test goes to the container that took the first one's place.
    let fixture = cells().replace(
        "    http: { get: \"http://front:8080/hello\", expect: { status: 200, json: { said: hello world } } }\n",
        "    steps: [ { get: \"http://front:8080/hello\" }, { get: \"http://front:8080/hello\" } ]\n",
    );
    let tool = tool_with(&fixture);
    let text = tool.read("faultscope.yaml");
    let application = Application::read(&text, "faultscope.yaml", &|_, _| Err("nothing".into())).unwrap();
    let platform = Arc::new(DockerPlatform::connect(DockerOptions::default()).await.unwrap());
    let options = SessionOptions::new(CampaignKind::Test, tool.folder(), tool.program().to_owned());
    let session = Arc::new(Session::open(application.clone(), platform, options).await.unwrap());
    let mut circumstance = application.simplest.clone();
    let select = Selector {
        callee: Some("back".parse().unwrap()),
        occurrence: Occurrence::Nth(1),
        ..Selector::default()
    };
    circumstance.perturbations = vec![Rule { id: 1, select, effect: Effect::RestartAfter }];
    let drive = Tests::new(application.tests.clone());
    let request = TrialRequest { treatment: Treatment::Nothing, circumstance, drive, wanted: None };
    let run = run_trial(&session, request, &CancellationToken::new()).await.unwrap().unwrap();
    assert_eq!(run.outcome, Outcome::Pass, "{run:?}");
    assert_eq!((run.evidence.rules[0].applied, run.evidence.spans), (1, 4));
    assert!(run.evidence.exits.is_empty(), "a restart that was asked for is no event");
    Arc::into_inner(session).unwrap().close("done").await.unwrap();
    assert_eq!(left(std::process::id()), Vec::<String>::new());
}

#[test]
#[ignore = "needs a Docker engine: ./test.sh docker"]
fn memory_runs_out() {
    let fixture = cells().replace("http://front:8080/hello", "http://front:8080/heap");
    let tool = tool_with(&fixture);
    let run = tool.tested(["--platform", "docker", "--set", "config.back.memory=32MiB"], 1);
    let exits = &run.json["run"]["evidence"]["exits"];
    assert_eq!(
        (exits[0]["instance"].as_str(), exits[0]["reason"]["kind"].as_str()),
        (Some("back-1"), Some("out_of_memory")),
        "{exits}"
    );
}

#[test]
#[ignore = "needs a Docker engine: ./test.sh docker"]
fn slots_run_side_by_side() {
    let tool = tool_with(&cells());
    let words =
        ["test", "--platform", "docker", "--repeat", "4", "--slots", "2", "--set", "instances.back=2"];
    let tested = tool.json(words, 0);
    assert_eq!((&tested["passed"], tested["runs"].as_array().unwrap().len()), (&4.into(), 4));
}

#[test]
#[ignore = "needs a Docker engine: ./test.sh docker"]
fn an_interrupted_trial_leaves_nothing() {
    let fixture = cells().replace("http://front:8080/hello", "http://front:8080/slow");
    let tool = tool_with(&fixture);
    let running = tool.start(["test", "--platform", "docker"]);
    let id = running.id();
    while left(id).iter().filter(|line| line.contains("-front-") || line.contains("-back-")).count() < 2 {
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    running.interrupt();
    let started = tokio::time::Instant::now();
    let code = running.wait();
    assert!(started.elapsed().as_secs() < 15, "{:?}", started.elapsed());
    code.expect(130);
    assert_eq!(left(id), Vec::<String>::new());
}

#[test]
#[ignore = "needs a Docker engine: ./test.sh docker"]
fn what_a_killed_tool_left_is_removed() {
    let fixture = cells().replace("  back:\n", "  back:\n    durable: [data/]\n");
    let tool = tool_with(&fixture);
    let mut running = tool.start(["up", "--platform", "docker", "--publish-from", "43100"]);
    running.wait_for_line("back .*8081");
    let id = running.id();
    let other = tool.run(["clean"]).expect(0);
    // Two services, a sidecar, a network and a volume.
    assert_eq!(left(id).len(), 5, "a living tool keeps its own: {}", other.stdout);
    running.kill();
    let _ = running.wait();
    let cleaned = tool.run(["clean"]).expect(0);
    assert!(cleaned.stdout.contains("of killed faultscope processes"), "{}", cleaned.stdout);
    assert_eq!(left(id), Vec::<String>::new());
}
