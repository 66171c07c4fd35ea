//! The options of `faultscope resilience`.

use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use clap::builder::NonEmptyStringValueParser;
use clap::{Args, ValueEnum};
use faultscope_engine::resilience::{ResilienceOptions, Strategy};
use faultscope_model::perturbation::{Kind, Perturbation};
use faultscope_model::units::parse_duration;

use super::debug_args::Budget;
use super::report::Wanted;
use super::resilience_report::Format;
use crate::args::{IsolationArg, PlatformChoice, Target};
use crate::project::FILE_NAME;

#[derive(Debug, Args)]
pub(crate) struct ResilienceArgs {
    /// The application file or its folder, then the tests; `faultscope.yaml` and all tests by default.
    #[arg(value_name = "FILE|TEST")]
    pub(crate) words: Vec<String>,
    /// The application file or its folder; then all positional arguments are tests.
    #[arg(long, value_name = "FOLDER", conflicts_with = "command")]
    pub(crate) folder: Option<PathBuf>,
    /// Perturb this test; repeat for several.
    #[arg(long = "test", value_name = "NAME")]
    pub(crate) tests: Vec<String>,
    /// Use this command as the only test, without an application file: for tests of actors.
    #[arg(long, value_name = "COMMAND", conflicts_with_all = ["words", "tests"], value_parser = NonEmptyStringValueParser::new())]
    pub(crate) command: Option<String>,
    /// What is done to calls, messages and services: duplicate, restart, delay, reorder, error_first, outage,
    /// lost_answer, error, timeout, truncate; or usual, neutral, all.
    #[arg(long, value_name = "KINDS", value_delimiter = ',', default_value = "usual")]
    pub(crate) kinds: Vec<Kinds>,
    /// How trials are chosen for what a correct system tolerates all at once.
    #[arg(long, value_enum, default_value_t = StrategyArg::Screen)]
    pub(crate) strategy: StrategyArg,
    /// Duplicate all requests except those whose operations are declared at-most-once.
    #[arg(long)]
    pub(crate) all_deliveries: bool,
    /// Restart services that are not `durable`, too: they lose what they keep in memory.
    #[arg(long)]
    pub(crate) all_restarts: bool,
    /// How many errors, lost answers and the like are tried together, at most; each is tried alone first. By
    /// default pairs are tried only with what is left of a --budget.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u8).range(1..=4))]
    pub(crate) together: Option<u8>,
    /// Change one setting: instances.order=2, config.order.memory=64MiB, config.order.env.TTL=5,
    /// versions.order=v2.
    #[arg(long = "set", value_name = "SETTING", conflicts_with = "command")]
    pub(crate) settings: Vec<String>,
    /// Limit of a perturbed test, which fails if it takes longer; by default 20 times as long as without
    /// perturbations, at least 30s, at most the test's own `within`.
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    pub(crate) within: Option<Duration>,
    /// Run one trial with exactly this perturbation, as a report names it; repeat for several.
    #[arg(long, value_name = "PERTURBATION", conflicts_with_all = ["resume", "budget", "reports"])]
    pub(crate) reproduce: Vec<Perturbation>,
    /// Stop with what was found after a time or a number of trials: 5m, "30 trials"; or both.
    #[arg(long, value_name = "BUDGET")]
    pub(crate) budget: Vec<Budget>,
    /// Continue a campaign that was interrupted, killed or out of budget; by default the last one.
    #[arg(long, value_name = "CAMPAIGN", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    pub(crate) resume: Option<String>,
    /// Number of trials at the same time.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) slots: u16,
    /// Seed of every random choice.
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Also write the report as html, json, junit or md, beside the campaign or to a file, whose
    /// folder is made; repeat for several.
    #[arg(long = "report", value_name = "FORMAT[=FILE]")]
    pub(crate) reports: Vec<Wanted<Format>>,
    /// The platform that runs the application.
    #[arg(long, value_enum, default_value_t = PlatformChoice::Process)]
    pub(crate) platform: PlatformChoice,
    /// How processes are isolated; by default as in the file.
    #[arg(long, value_enum)]
    pub(crate) isolation: Option<IsolationArg>,
}

/// A kind of perturbation, or a name for several.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Kinds(Vec<Kind>);

impl FromStr for Kinds {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Ok(Self(match text.trim() {
            "usual" => ResilienceOptions::USUAL.to_vec(),
            "neutral" => Kind::ALL.into_iter().filter(|kind| kind.is_neutral()).collect(),
            "all" => Kind::ALL.to_vec(),
            one => vec![one.parse().map_err(|e| format!("{e}; or usual, neutral, all"))?],
        }))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum StrategyArg {
    /// All at once, then the most suspicious one: every defect, each minimal, in the fewest trials.
    Screen,
    /// One at a time in random order, until one fails.
    RtR,
    /// Delta debugging until one defect is minimal.
    RtDd,
    /// The same, on what can have affected the actor that failed.
    RtDdO,
}

impl StrategyArg {
    pub(crate) fn chosen(self) -> Strategy {
        match self {
            Self::Screen => Strategy::Screen,
            Self::RtR => Strategy::RtR,
            Self::RtDd => Strategy::RtDd,
            Self::RtDdO => Strategy::RtDdO,
        }
    }
}

impl ResilienceArgs {
    /// The application file: the first positional argument if it is one.
    pub(crate) fn target(&self) -> Target {
        let first = || self.words.first().map(PathBuf::from).filter(|path| is_application(path));
        let file = self.folder.clone().or_else(first).unwrap_or_else(|| FILE_NAME.into());
        Target::for_file(file, self.platform, self.isolation)
    }

    /// The named tests.
    pub(crate) fn named(&self) -> Vec<String> {
        let is_first = self.words.first().is_some_and(|word| is_application(Path::new(word)));
        let files = usize::from(self.folder.is_none() && is_first);
        self.words.iter().skip(files).chain(&self.tests).cloned().collect()
    }

    /// All named kinds, each once, in canonical order.
    pub(crate) fn chosen_kinds(&self) -> Vec<Kind> {
        Kind::ALL.into_iter().filter(|kind| self.kinds.iter().any(|named| named.0.contains(kind))).collect()
    }
}

/// Whether an argument names a file, or a folder with an application.
fn is_application(path: &Path) -> bool {
    path.is_file() || path.join(FILE_NAME).is_file() || path.extension().is_some_and(|end| end == "yaml")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_have_words_for_several() {
        assert_eq!("restart".parse(), Ok(Kinds(vec![Kind::Restart])));
        assert_eq!("all".parse::<Kinds>().unwrap().0.len(), Kind::ALL.len());
        assert!("neutral".parse::<Kinds>().unwrap().0.iter().all(|kind| kind.is_neutral()));
        let wrong = "retsart".parse::<Kinds>().unwrap_err();
        assert!(wrong.contains("restart") && wrong.contains("usual"), "{wrong}");
    }
}
