//! The commands that show again what a campaign found.

use std::time::Duration;

use faultscope_model::outcome::Ending;
use faultscope_model::units::show_duration;

use super::command_line::CommandLine;
use crate::debug::FoundCause;
use crate::resilience::Defect;

/// How a cause is shown again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CauseTarget<'t> {
    /// `test`, or `up` where there is no test to run.
    pub verb: &'t str,
    /// The words that name the application and its platform.
    pub application: &'t [String],
    /// The failing test; none where a service does not come up.
    pub test: Option<&'t str>,
    /// The number of trials after which a failure that shows only at times should have shown.
    pub tries: u32,
}

/// How a defect is shown again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DefectTarget<'t> {
    /// The adapter that runs perturbed tests itself; the application file is not needed then.
    pub command: Option<&'t str>,
    /// The application file.
    pub file: &'t str,
    /// The perturbed test.
    pub test: &'t str,
    /// Settings of the circumstance, as they were typed.
    pub settings: &'t [String],
    /// The time that the test was given.
    pub within: Option<Duration>,
}

/// The command that shows the failure of a cause again: with all deltas of the failing trial.
pub fn reproduce_cause(cause: &FoundCause, target: &CauseTarget<'_>) -> CommandLine {
    let mut command = CommandLine::faultscope([target.verb]);
    command.words.extend_from_slice(target.application);
    for delta in &cause.witness {
        command = command.option("--delta", &delta.name);
    }
    if let Some(test) = target.test {
        command = command.option("--test", test);
    }
    if target.tries > 1 && target.verb == "test" {
        command = command.option("--repeat", &target.tries.to_string());
        command.words.push("--fail-fast".to_owned());
    }
    command
}

/// The command that shows a defect again: with exactly its perturbations.
pub fn reproduce_defect(defect: &Defect, target: &DefectTarget<'_>) -> CommandLine {
    let mut command = match target.command {
        Some(adapter) => CommandLine::faultscope(["resilience"]).option("--command", adapter),
        None => CommandLine::faultscope(["resilience", target.file]).option("--test", target.test),
    };
    for perturbation in &defect.perturbations {
        command = command.option("--reproduce", &perturbation.to_string());
    }
    for setting in target.settings {
        command = command.option("--set", setting);
    }
    // Whoever waits for a test that hangs should not wait longer than the campaign did.
    let hangs = defect.signature.as_ref().is_some_and(|signature| signature.ending == Ending::TimedOut);
    match target.within.filter(|_| hangs) {
        Some(within) => command.option("--within", &show_duration(within)),
        None => command,
    }
}
