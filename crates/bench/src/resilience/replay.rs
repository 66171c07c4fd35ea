//! Checks that a found failure is reproducible: the same perturbations, a new process each time.

use std::path::Path;
use std::process::Stdio;

use faultscope_model::perturbation::{Configuration, PERTURBATION_FILE, Perturbation};
use tokio::process::Command;

use super::simulate::{Mutant, System};
use super::{Framework, Task};
use crate::error::BenchError;
use crate::figure::Figure;

/// How often a found failure is replayed.
const TIMES: usize = 100;

/// A search and the perturbations that it found.
pub(super) type Found = (Task, Vec<Perturbation>);

/// Replays a failure from a file and counts how often it occurs again, at the same actor.
pub(super) async fn run(
    program: &Path,
    framework: Framework,
    systems: &[Mutant],
    task: &Task,
    cause: Vec<Perturbation>,
) -> Result<Figure, BenchError> {
    let broken = |error: &dyn std::fmt::Display| {
        BenchError::environment("a replay could not be run").because(error.to_string())
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
    Ok(Figure::all_of(format!("{framework}: a replay file fails again"), same, TIMES))
}
