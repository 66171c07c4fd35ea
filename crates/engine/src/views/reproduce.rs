//! Commands that reproduce what a campaign found.

use std::time::Duration;

use faultscope_model::circumstance::Order;
use faultscope_model::outcome::Ending;
use faultscope_model::secrets::{SecretNames, redact_str};
use faultscope_model::units::show_duration;

use super::command_line::CommandLine;
use crate::debug::FoundCause;
use crate::resilience::Defect;

/// How to reproduce a cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CauseTarget<'t> {
    /// `test`, or `up` if there is no test to run.
    pub verb: &'t str,
    /// The arguments that select the application and its platform.
    pub application: &'t [String],
    /// The order of concurrent calls that the campaign imposed and the application file does not give.
    pub orders: &'t [Order],
    /// The failing test; none if a service does not become ready.
    pub test: Option<&'t str>,
    /// The number of trials after which a flaky failure should have shown.
    pub tries: u32,
}

/// How to reproduce a defect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DefectTarget<'t> {
    /// The test command of `--command`; then no application file is needed.
    pub command: Option<&'t str>,
    /// The arguments that select the application and its platform.
    pub application: &'t [String],
    /// The perturbed test.
    pub test: &'t str,
    /// Settings of the circumstance as typed.
    pub settings: &'t [String],
    /// The time limit of the test.
    pub within: Option<Duration>,
}

/// The command that reproduces a cause, with all deltas of the failing trial.
pub fn reproduce_cause(cause: &FoundCause, target: &CauseTarget<'_>) -> CommandLine {
    let mut command = CommandLine::faultscope([target.verb]);
    command.words.extend_from_slice(target.application);
    for delta in &cause.witness {
        command = command.option("--delta", &delta.name);
    }
    for order in target.orders {
        command = command.option("--order", &order.to_string());
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

/// The command that reproduces a defect, with exactly its perturbations.
pub fn reproduce_defect(defect: &Defect, target: &DefectTarget<'_>) -> CommandLine {
    let mut command = match target.command {
        Some(adapter) => CommandLine::faultscope(["resilience"]).option("--command", adapter),
        None => {
            let mut command = CommandLine::faultscope(["resilience"]);
            command.words.extend_from_slice(target.application);
            command.option("--test", target.test)
        }
    };
    for perturbation in &defect.perturbations {
        command = command.option("--reproduce", &perturbation.to_string());
    }
    for setting in target.settings {
        // The command is printed and kept; whoever runs it again knows the value.
        let shown = redact_str(setting, &SecretNames::default());
        command = command.option("--set", shown.as_deref().unwrap_or(setting));
    }
    // A test that hangs should not take longer than in the campaign.
    let hangs = defect.signature.as_ref().is_some_and(|signature| signature.ending == Ending::TimedOut);
    match target.within.filter(|_| hangs) {
        Some(within) => command.option("--within", &show_duration(within)),
        None => command,
    }
}
