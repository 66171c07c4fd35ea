//! Every command that the tool prints works when it is pasted: where the campaign was started, whatever the names.

use faultscope_testkit::{Faultscope, Fixture, cells};
use regex::Regex;

use crate::resilience::shop;
use crate::tool_with;

/// An application and the file by which it is named, from the folder where the tool runs.
fn placed(fixture: &Fixture) -> Vec<(Faultscope, String)> {
    let case = |base: &str| format!("extends: {base}\n");
    vec![
        (tool_with(fixture), "faultscope.yaml".into()),
        (tool_with(&fixture.clone().below("bob's shop")), "bob's shop/faultscope.yaml".into()),
        (
            tool_with(&fixture.clone().file("hard cases/it's one.yaml", &case("../faultscope.yaml"))),
            "hard cases/it's one.yaml".into(),
        ),
        (
            tool_with(
                &fixture.clone().file("cases/$x.yaml", &case("../faultscope.yaml")).below("bob's shop"),
            ),
            "bob's shop/cases/$x.yaml".into(),
        ),
    ]
}

fn commands(text: &str) -> Vec<String> {
    let quoted = Regex::new("`(faultscope [^`]+)`").unwrap();
    quoted.captures_iter(text).map(|found| found[1].to_owned()).collect()
}

/// Pastes all commands of an output; returns their verbs.
#[track_caller]
fn paste_all(tool: &Faultscope, text: &str) -> Vec<String> {
    let mut verbs = Vec::new();
    for command in commands(text) {
        let verb = command.split(' ').nth(1).unwrap().to_owned();
        // What shows a failure again ends with 1.
        let code = if ["test", "repro", "resilience"].contains(&verb.as_str()) { 1 } else { 0 };
        let output = tool.pasted(&command);
        assert_eq!(output.code, Some(code), "{command}\n{}\n{}", output.stdout, output.stderr);
        verbs.push(verb);
    }
    verbs
}

#[test]
fn commands_of_debug_and_its_report() {
    let name = "name: \"it's a $hello \\\"there\\\"\"";
    for (tool, file) in placed(&cells().replace("name: hello", name)) {
        let words = ["debug", &file, "--quiet", "--flaky", "off", "--only"];
        let output = tool.run(words).expect(1);
        assert_eq!(paste_all(&tool, &output.stdout), ["runs", "test", "report", "repro"], "{file}");
        let report = tool.run(["report", "--folder", &file]).expect(0).stdout;
        assert_eq!(paste_all(&tool, &report), ["runs", "test"], "{file}\n{report}");
        // The folder of the file leads there, too.
        let folder = std::path::Path::new(&file).parent().unwrap().to_str().unwrap();
        let folder = if folder.is_empty() { "." } else { folder };
        let listed = tool.run(["runs", "ls", "--folder", folder]).expect(0).stdout;
        assert!(listed.contains("debug"), "{file}: {listed}");
    }
}

#[test]
fn commands_of_resilience() {
    for (tool, file) in placed(&shop().replace("name: buy", "name: \"bob's $buy\"")) {
        let words = ["resilience", &file, "--kinds", "duplicate", "--quiet"];
        let output = tool.run(words).expect(1);
        let verbs = paste_all(&tool, &output.stdout);
        assert!(verbs.contains(&"resilience".to_owned()), "{file}: {verbs:?}\n{}", output.stdout);
        let report = tool.run(["report", "--folder", &file]).expect(0).stdout;
        assert!(!paste_all(&tool, &report).is_empty(), "{report}");
    }
}

#[test]
fn commands_of_campaigns_without_an_answer() {
    let tool = tool_with(&cells().below("bob's shop"));
    let stopped = tool.run(["debug", "bob's shop", "--quiet", "--budget", "1 trial"]).expect(7).stdout;
    let [resume] = &commands(&stopped)[..] else { panic!("{stopped}") };
    tool.pasted(resume).expect(1);
    let second = "  - { name: \"it's again\", http: { get: \"http://front:8080/hello\" } }\nfailing:";
    let tool = tool_with(&cells().replace("failing:", second).below("bob's shop"));
    let two = tool.run(["debug", "--folder", "bob's shop", "--quiet", "--flaky", "off"]).expect(5).stdout;
    let [alone] = &commands(&two)[..] else { panic!("{two}") };
    tool.pasted(alone).expect(1);
}
