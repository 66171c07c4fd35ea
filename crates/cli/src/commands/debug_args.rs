//! The options of `faultscope debug`.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, ValueEnum};
use faultscope_model::units::parse_duration;

use super::report::Wanted;
use crate::args::Target;

#[derive(Debug, Args)]
pub(crate) struct DebugArgs {
    #[command(flatten)]
    pub(crate) target: Target,
    /// The failing test; by default the one in the file, or the only one that fails with all deltas.
    #[arg(long, value_name = "NAME")]
    pub(crate) test: Option<String>,
    /// Run only the failing test in each trial.
    #[arg(long)]
    pub(crate) only: bool,
    /// How trials are chosen.
    #[arg(long, value_enum, default_value_t = StrategyArg::Bayes)]
    pub(crate) strategy: StrategyArg,
    /// Continue after the first cause until none is left.
    #[arg(long)]
    pub(crate) all: bool,
    /// Find the boundary of every number in the cause: "fails at 95MiB and below".
    #[arg(long)]
    pub(crate) boundary: bool,
    /// Reduce the input of the failing test: its steps, or the file it reads.
    #[arg(long)]
    pub(crate) input: bool,
    /// Stop with the best answer so far after a time or a number of trials: 5m, "30 trials"; or both.
    #[arg(long, value_name = "BUDGET")]
    pub(crate) budget: Vec<Budget>,
    /// Continue a campaign that was interrupted, killed or out of budget; by default the last one.
    #[arg(long, value_name = "CAMPAIGN", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    pub(crate) resume: Option<String>,
    /// How often the failure shows if its cause is present: `auto` estimates it, `off` takes every trial at
    /// face value, 0.3 means three times in ten.
    #[arg(long, value_name = "auto|off|RATE", default_value = "auto")]
    pub(crate) flaky: FlakyArg,
    /// How sure a cause must be: it is repeated until a failure that shows in 7 of 10 runs or fewer would have
    /// been noticed with this probability. Lower is faster: 0.99 takes 12 repetitions and 2 for each delta of the
    /// cause, 0.9 takes 6 and 1, and `--flaky off` takes none.
    #[arg(long, default_value_t = 0.99, value_name = "PROBABILITY", value_parser = parse_confidence)]
    pub(crate) confidence: f64,
    /// How often the failing circumstance must fail in a row to count as stable.
    #[arg(long, default_value_t = 3, value_name = "TIMES", value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) repeat: u32,
    /// Repeat a known trial after this many others, to notice changes of the environment; 0 for never.
    #[arg(long, default_value_t = 20, value_name = "TRIALS")]
    pub(crate) sentinel_every: u32,
    /// Number of trials at the same time.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) slots: u16,
    /// Seed of every random choice.
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Also write the report as html, json, md or junit, beside the campaign or to FORMAT=FILE; repeat for several.
    #[arg(long = "report", value_name = "FORMAT[=FILE]")]
    pub(crate) reports: Vec<Wanted>,
    /// File of the reproduction bundle; by default beside the campaign.
    #[arg(long, value_name = "FILE")]
    pub(crate) bundle: Option<PathBuf>,
}

fn parse_confidence(text: &str) -> Result<f64, String> {
    let wrong = || format!("`{text}` is no probability from 0.5 to 0.9999; write `0.99`");
    text.parse().ok().filter(|share| (0.5..=0.9999).contains(share)).ok_or_else(wrong)
}

/// After what a search stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Budget {
    Time(Duration),
    Trials(usize),
}

impl Budget {
    /// The shortest time and the smallest number of trials of several budgets.
    pub(crate) fn tightest(budgets: &[Self]) -> (Option<Duration>, Option<usize>) {
        let (mut most_time, mut most_trials) = (None, None);
        for budget in budgets {
            match *budget {
                Self::Time(time) => most_time = Some(most_time.map_or(time, |most: Duration| most.min(time))),
                Self::Trials(n) => most_trials = Some(most_trials.map_or(n, |most: usize| most.min(n))),
            }
        }
        (most_time, most_trials)
    }
}

impl FromStr for Budget {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("`{text}` is neither a time nor a number of trials; write `5m` or `30 trials`");
        let trials = text.strip_suffix("trials").or_else(|| text.strip_suffix("trial"));
        match trials {
            Some(count) => count.trim().parse().map(Self::Trials).map_err(|_| wrong()),
            // A bare number is ambiguous.
            None if text.trim().parse::<f64>().is_ok() => Err(wrong()),
            None => parse_duration(text).map(Self::Time).map_err(|_| wrong()),
        }
    }
}

/// How often the failure shows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum FlakyArg {
    Auto,
    Off,
    Rate(f64),
}

impl FromStr for FlakyArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            "off" => Ok(Self::Off),
            _ => {
                let rate = text.parse().ok().filter(|rate| (0.01..=1.0).contains(rate));
                rate.map(Self::Rate).ok_or_else(|| "a rate lies between 0.01 and 1".to_owned())
            }
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum StrategyArg {
    /// Bayesian group testing: the fewest trials.
    Bayes,
    /// The sequential reference, one trial at a time.
    Ddmin,
    /// Parallel delta debugging as published.
    DdminPar,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budgets_are_times_or_trials() {
        assert_eq!("5m".parse(), Ok(Budget::Time(Duration::from_secs(300))));
        assert_eq!("30 trials".parse(), Ok(Budget::Trials(30)));
        assert_eq!("1trial".parse(), Ok(Budget::Trials(1)));
        for wrong in ["", "30", "-1 trials", "many trials", "5 apples"] {
            assert!(wrong.parse::<Budget>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn rates_lie_between_never_and_always() {
        assert_eq!("0.3".parse(), Ok(FlakyArg::Rate(0.3)));
        for wrong in ["0", "1.5", "-1", "NaN", "sometimes"] {
            assert!(wrong.parse::<FlakyArg>().is_err(), "{wrong}");
        }
    }
}
