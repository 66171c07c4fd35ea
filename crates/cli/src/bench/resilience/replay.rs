//! Whether what was found fails again: the same perturbations, a process of its own each time.

use std::path::Path;
use std::process::Stdio;

use faultscope_model::figures::Figure;
use faultscope_model::perturbation::{Configuration, PERTURBATION_FILE, Perturbation};
use faultscope_search::resilience::bench::{Framework, Task};
use faultscope_search::resilience::simulate::{Mutant, System};
use tokio::process::Command;

use crate::error::CommandError;
use crate::exit::Exit;

/// How often a found failure is replayed.
const TIMES: usize = 100;

/// A search and the perturbations that it found.
pub(super) type Found = (Task, Vec<Perturbation>);

/// Replays a failure from a file and counts how often it comes back, at the same actor.
pub(super) async fn run(
    program: &Path,
    framework: Framework,
    systems: &[Mutant],
    task: &Task,
    cause: Vec<Perturbation>,
) -> Result<Figure, CommandError> {
    let broken = |error: &dyn std::fmt::Display| {
        CommandError::new(Exit::Environment, "a replay could not be run").because(error.to_string())
    };
    let folder = tempfile::tempdir().map_err(|e| broken(&e))?;
    let (replay, all) = (folder.path().join("replay.json"), folder.path().join("systems.json"));
    let text = serde_json::to_string(&Configuration::new(cause)).map_err(|e| broken(&e))?;
    std::fs::write(&replay, text).map_err(|e| broken(&e))?;
    let systems: Vec<System> = systems.iter().map(|sound| sound.system().clone()).collect();
    std::fs::write(&all, System::write(&systems)).map_err(|e| broken(&e))?;
    let expected = format!("error@[a{}]", task.actor);
    let mut same = 0;
    for _ in 0..TIMES {
        let output = Command::new(program)
            .arg(framework.to_string())
            .arg(&all)
            .args([task.system.to_string(), task.actor.to_string()])
            .env(PERTURBATION_FILE, &replay)
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output();
        let output = output.await.map_err(|e| broken(&e))?;
        let said = String::from_utf8_lossy(&output.stderr);
        same += usize::from(output.status.code() == Some(1) && said.contains(&expected));
    }
    Ok(super::all_of(&format!("{framework}: a replay file fails again"), same, TIMES))
}
