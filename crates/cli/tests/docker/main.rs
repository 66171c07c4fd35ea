//! The built tool and real containers. `./test.sh docker` starts an engine, builds the image and runs these.

#![cfg(feature = "docker")]

mod images;
mod perturbed;
mod projects;
mod trials;

use std::process::Command;

use faultscope_testkit::{Faultscope, Fixture};

/// The image that `./test.sh docker` builds: busybox and the contract's service, nothing else.
const IMAGE: &str = "faultscope-test";

/// The built tool in a folder with an application.
fn tool_with(fixture: &Fixture) -> Faultscope {
    Faultscope::with(env!("CARGO_BIN_EXE_faultscope"), fixture)
}

/// What the engine still has of the tool with this process id.
fn left(tool: u32) -> Vec<String> {
    let lists = [
        ["ps", "-a", "--format", "{{.Label \"faultscope.owner\"}} container {{.Names}}"].as_slice(),
        &["network", "ls", "--format", "{{.Label \"faultscope.owner\"}} network {{.Name}}"],
        &["volume", "ls", "--format", "{{.Label \"faultscope.owner\"}} volume {{.Name}}"],
    ];
    let mut found = Vec::new();
    for words in lists {
        let output = Command::new("docker").args(words).output().expect("the docker client");
        assert!(output.status.success(), "{output:?}");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        found.extend(text.lines().filter(|line| line.starts_with(&format!("{tool}."))).map(str::to_owned));
    }
    found
}
