//! What can be chosen about a resilience campaign.

use std::time::Duration;

use faultscope_model::application::{TestBody, TestCase};
use faultscope_model::perturbation::Kind;
use serde::{Deserialize, Serialize};

/// A command is given at least so long when it is perturbed.
const LEAST_LIMIT: Duration = Duration::from_secs(30);

/// How the next trials are chosen, for perturbations that a correct system tolerates all at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Strategy {
    /// All at once, then the most suspicious one: every defect, each minimal, in the fewest trials.
    #[default]
    Screen,
    /// One at a time in random order, until one fails (the paper's RT-R).
    RtR,
    /// Delta debugging until one defect is minimal (the paper's RT-DD).
    RtDd,
    /// The same, on what can have affected the actor that failed (the paper's RT-DD-O).
    RtDdO,
}

impl Strategy {
    /// Its name, as it is typed.
    pub fn word(self) -> &'static str {
        match self {
            Self::Screen => "screen",
            Self::RtR => "rt-r",
            Self::RtDd => "rt-dd",
            Self::RtDdO => "rt-dd-o",
        }
    }
}

/// What can be chosen about a resilience campaign. What is written of it decides whether a campaign can be
/// resumed; what is left out may change meanwhile.
#[derive(Debug, Clone, Serialize)]
pub struct ResilienceOptions {
    /// The tests, by name; all when empty.
    pub tests: Vec<String>,
    /// What is done to calls and messages.
    pub kinds: Vec<Kind>,
    /// How trials with neutral perturbations are chosen.
    pub strategy: Strategy,
    /// Repeat every request whose operation the file does not call at-most-once.
    pub all_deliveries: bool,
    /// Restart services that do not say that they keep their state, too.
    pub all_restarts: bool,
    /// How many perturbations that may change an answer are tried together, at most.
    pub most_together: usize,
    /// Whether pairs of them are tried with what is left of the budget, whatever is tried together otherwise.
    #[serde(skip)]
    pub larger_with_rest: bool,
    /// How long a perturbed test may take; as long as its unperturbed runs suggest when none.
    #[serde(with = "faultscope_model::units::duration::option")]
    pub within: Option<Duration>,
    /// After how long it stops with what it has.
    #[serde(skip)]
    pub most_time: Option<Duration>,
    /// After how many finished trials, those without perturbations not counted, it stops with what it has.
    #[serde(skip)]
    pub most_trials: Option<usize>,
}

impl ResilienceOptions {
    /// The kinds that are tried where nothing else is asked for: delays, time-outs and cut answers take long
    /// or depend on limits that only the application knows.
    pub const USUAL: [Kind; 7] = [
        Kind::Duplicate,
        Kind::Restart,
        Kind::Reorder,
        Kind::ErrorFirst,
        Kind::Outage,
        Kind::LostAnswer,
        Kind::Error,
    ];

    /// How long a perturbed test may take, given how long it took unperturbed. A command that hangs is found
    /// out long before the test's own limit; steps end by themselves.
    pub(super) fn limit(&self, test: &TestCase, usual: Duration) -> Duration {
        match (self.within, &test.body) {
            (Some(within), _) => within,
            (None, TestBody::Steps(_)) => test.within,
            (None, _) => test.within.min(LEAST_LIMIT.max(usual.saturating_mul(20))),
        }
    }
}

impl Default for ResilienceOptions {
    fn default() -> Self {
        Self {
            tests: Vec::new(),
            kinds: Self::USUAL.to_vec(),
            strategy: Strategy::default(),
            all_deliveries: false,
            all_restarts: false,
            most_together: 1,
            larger_with_rest: false,
            within: None,
            most_time: None,
            most_trials: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use faultscope_model::Application;

    use super::*;

    #[test]
    fn commands_are_given_a_multiple_of_what_they_usually_take() {
        let text = "name: x\ntests: [{ name: t, run: [t], within: 30m }]\n";
        let test = Application::read_alone(text, "x.yaml").unwrap().tests.remove(0);
        let mut options = ResilienceOptions::default();
        let seconds =
            |options: &ResilienceOptions, usual| options.limit(&test, Duration::from_secs(usual)).as_secs();
        assert_eq!([1, 5, 600].map(|usual| seconds(&options, usual)), [30, 100, 1800]);
        options.within = Some(Duration::from_secs(3));
        assert_eq!(seconds(&options, 5), 3);
    }
}
