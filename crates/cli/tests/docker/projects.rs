//! `faultscope capture --compose`: what runs of a project, by the labels that Compose gives.

use std::process::Command;

use faultscope_testkit::cells;

use crate::{IMAGE, tool_with};

/// Containers of a project, gone in the end.
struct Project(String);

impl Project {
    fn run(&self, service: &str, number: u32, words: &[&str]) {
        let labels = [
            format!("com.docker.compose.project={}", self.0),
            format!("com.docker.compose.service={service}"),
            format!("com.docker.compose.container-number={number}"),
            "com.docker.compose.oneoff=False".to_owned(),
        ];
        let name = format!("{}-{service}-{number}", self.0);
        let mut command = Command::new("docker");
        command.args(["run", "-d", "--network", "none", "--name", &name]);
        command.args(labels.iter().flat_map(|label| ["--label", label.as_str()]));
        command.args(words).args([IMAGE, "sleep", "1000"]);
        let output = command.output().expect("the docker client");
        assert!(output.status.success(), "{output:?}");
    }
}

impl Drop for Project {
    fn drop(&mut self) {
        for name in ["front-1", "back-1", "back-2"] {
            let _ = Command::new("docker").args(["rm", "-f", &format!("{}-{name}", self.0)]).output();
        }
    }
}

#[test]
#[ignore = "needs a Docker engine: ./test.sh docker"]
fn replicas_limits_and_settings_of_a_running_project() {
    let project = Project(format!("captured{}", std::process::id()));
    project.run("front", 1, &["-e", "GREETING=hi", "-e", "API_TOKEN=secret"]);
    let limits = ["--memory", "64m", "--cpus", "0.5", "-e", "BROKEN=true"];
    project.run("back", 1, &limits);
    project.run("back", 2, &limits);
    let tool = tool_with(&cells());
    let told = tool.json(["capture", "--compose", &project.0, "--replace", "--write"], 0);
    assert_eq!(
        told["failing"],
        serde_json::json!({
            "nodes": 1,
            "instances": { "back": 2 },
            "config": {
                "back": { "cpu": "0.5", "env.BROKEN": "true", "memory": "64MiB" },
                "front": { "env.GREETING": "hi" },
            },
        })
    );
    let file = tool.read("faultscope.yaml");
    assert!(file.contains("env.GREETING: \"hi\"") && !file.contains("secret"), "{file}");
    assert_eq!(tool.json(["check"], 0)["deltas"].as_array().unwrap().len(), 5);
    let output = tool.run(["capture", "--compose", "nothing"]).expect(2);
    assert!(output.stderr.contains(&project.0), "{}", output.stderr);
}
