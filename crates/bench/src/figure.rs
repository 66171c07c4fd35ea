//! Figures: what a benchmark measured, its goal, and how the two compare.

use std::fmt;

use serde::Serialize;

/// One measured figure.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Figure {
    /// What was measured.
    pub name: String,
    /// The value; none if there was nothing to compare with.
    pub measured: Option<f64>,
    /// The unit of `measured` and `goal`.
    pub unit: String,
    /// Which way is better.
    pub direction: Direction,
    /// The value to reach.
    pub goal: Option<f64>,
    /// A goal that is missed by no more than this share is a tie.
    pub tolerance: f64,
    /// How the figure compares with its goal.
    pub verdict: Verdict,
    /// The variation between repetitions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spread: Option<Spread>,
    /// What the figure is compared with in the same run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peer: Option<PeerFigure>,
    /// What else is needed to read it, for example which cell is the worst.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

/// Which way is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    /// More is better.
    Higher,
    /// Less is better.
    Lower,
}

/// How a figure compares with its goal.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Verdict {
    /// There is no goal.
    NoGoal,
    /// The goal is reached.
    Met,
    /// The goal is missed by this share of it, which is within the tolerance.
    Tie {
        /// The share of the goal.
        by: f64,
    },
    /// The goal is missed by more than the tolerance, or nothing could be measured.
    Missed {
        /// The share of the goal; none for a goal of zero.
        by: Option<f64>,
    },
    /// The peer was left out, so there is no comparison.
    NotCompared,
}

/// The figure of a peer.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PeerFigure {
    /// The peer, with its unit if that differs from the figure's.
    pub name: String,
    /// Its value.
    pub measured: f64,
}

/// The variation between repetitions.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Spread {
    /// Number of repetitions.
    pub repetitions: usize,
    /// The minimum.
    pub min: f64,
    /// The median.
    pub median: f64,
    /// The maximum.
    pub max: f64,
}

impl Spread {
    /// The spread of these measurements; NaN without any.
    pub fn from_values(values: &[f64]) -> Self {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let at = |place: usize| sorted.get(place).copied().unwrap_or(f64::NAN);
        Self {
            repetitions: sorted.len(),
            min: at(0),
            median: at(sorted.len() / 2),
            max: at(sorted.len().saturating_sub(1)),
        }
    }
}

impl Figure {
    /// A figure without a goal.
    pub fn new(name: impl Into<String>, measured: f64, unit: &str, direction: Direction) -> Self {
        Self {
            name: name.into(),
            measured: Some(measured),
            unit: unit.to_owned(),
            direction,
            goal: None,
            tolerance: 0.0,
            verdict: Verdict::NoGoal,
            spread: None,
            peer: None,
            detail: None,
        }
    }

    /// A figure of which more is better.
    pub fn higher(name: impl Into<String>, measured: f64, unit: &str) -> Self {
        Self::new(name, measured, unit, Direction::Higher)
    }

    /// A figure of which less is better.
    pub fn lower(name: impl Into<String>, measured: f64, unit: &str) -> Self {
        Self::new(name, measured, unit, Direction::Lower)
    }

    /// How many of `wanted` are right; the goal is all of them.
    pub fn all_of(name: impl Into<String>, right: usize, wanted: usize) -> Self {
        Self::higher(name, right as f64, &format!("of {wanted}")).goal(wanted as f64)
    }

    /// The median of several measurements, with their spread.
    pub fn median(name: impl Into<String>, values: &[f64], unit: &str, direction: Direction) -> Self {
        let spread = Spread::from_values(values);
        Self { spread: Some(spread), ..Self::new(name, spread.median, unit, direction) }
    }

    /// A comparison that was not made because the peer was left out.
    pub fn not_compared(name: impl Into<String>, unit: &str, direction: Direction, goal: f64) -> Self {
        let verdict = Verdict::NotCompared;
        Self { measured: None, goal: Some(goal), verdict, ..Self::new(name, f64::NAN, unit, direction) }
    }

    /// Sets the goal.
    pub fn goal(mut self, goal: f64) -> Self {
        self.goal = Some(goal);
        self.judge()
    }

    /// Sets the tolerance: a goal that is missed by no more than this share is a tie.
    pub fn tolerance(mut self, tolerance: f64) -> Self {
        self.tolerance = tolerance;
        self.judge()
    }

    /// Adds the figure of a peer.
    pub fn peer(mut self, name: &str, measured: f64) -> Self {
        self.peer = Some(PeerFigure { name: name.to_owned(), measured });
        self
    }

    /// Adds the spread of repeated measurements.
    pub fn spread(mut self, values: &[f64]) -> Self {
        self.spread = Some(Spread::from_values(values));
        self
    }

    /// Adds what else is needed to read it.
    pub fn detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = Some(detail.into());
        self
    }

    fn judge(mut self) -> Self {
        if let (Some(goal), Some(measured)) = (self.goal, self.measured) {
            self.verdict = Verdict::compare(measured, goal, self.direction, self.tolerance);
        }
        self
    }
}

impl Verdict {
    /// Compares a measured value with a goal.
    ///
    /// ```
    /// use faultscope_bench::figure::{Direction, Verdict};
    /// assert_eq!(Verdict::compare(9.0, 10.0, Direction::Lower, 0.1), Verdict::Met);
    /// assert_eq!(Verdict::compare(10.5, 10.0, Direction::Lower, 0.1), Verdict::Tie { by: 0.05 });
    /// assert_eq!(Verdict::compare(12.0, 10.0, Direction::Lower, 0.1), Verdict::Missed { by: Some(0.2) });
    /// ```
    pub fn compare(measured: f64, goal: f64, direction: Direction, tolerance: f64) -> Self {
        // Means of many searches are sums of fractions, so the last digits of a double are noise.
        const ROUNDING: f64 = 1e-9;
        let beyond = match direction {
            Direction::Higher => goal - measured,
            Direction::Lower => measured - goal,
        };
        if beyond <= ROUNDING {
            return Self::Met;
        }
        let by = (goal != 0.0).then(|| beyond / goal.abs()).filter(|by| by.is_finite());
        match by {
            Some(by) if by <= tolerance => Self::Tie { by },
            by => Self::Missed { by },
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let share = |by: f64| match 100.0 * by {
            percent if percent < 10.0 => format!("{percent:.1} %"),
            percent => format!("{percent:.0} %"),
        };
        match self {
            Self::NoGoal => f.pad(""),
            Self::Met => f.pad("met"),
            Self::Tie { by } => f.pad(&format!("tie, {} off", share(*by))),
            Self::Missed { by: Some(by) } => f.pad(&format!("MISSED by {}", share(*by))),
            Self::Missed { by: None } => f.pad("MISSED"),
            Self::NotCompared => f.pad("not compared"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(measured: f64, goal: f64, direction: Direction, tolerance: f64) -> String {
        Figure::new("f", measured, "s", direction).goal(goal).tolerance(tolerance).verdict.to_string()
    }

    #[test]
    fn reaching_a_goal_exactly_is_met_in_both_directions() {
        for direction in [Direction::Lower, Direction::Higher] {
            assert_eq!(verdict(3.0, 3.0, direction, 0.0), "met");
            assert_eq!(verdict(0.0, 0.0, direction, 0.0), "met");
        }
        assert_eq!(verdict(0.1 + 0.2, 0.3, Direction::Lower, 0.0), "met");
    }

    #[test]
    fn a_goal_that_is_missed_within_the_tolerance_is_a_tie_that_says_by_how_much() {
        assert_eq!(verdict(10.4, 10.0, Direction::Lower, 0.1), "tie, 4.0 % off");
        assert_eq!(verdict(9.6, 10.0, Direction::Higher, 0.1), "tie, 4.0 % off");
        assert_eq!(verdict(11.0, 10.0, Direction::Lower, 0.1), "tie, 10 % off");
    }

    #[test]
    fn beyond_the_tolerance_a_goal_is_missed() {
        assert_eq!(verdict(10.4, 10.0, Direction::Lower, 0.0), "MISSED by 4.0 %");
        assert_eq!(verdict(12.5, 10.0, Direction::Lower, 0.1), "MISSED by 25 %");
        assert_eq!(verdict(5.0, 10.0, Direction::Higher, 0.1), "MISSED by 50 %");
    }

    #[test]
    fn a_goal_of_zero_has_no_share() {
        assert_eq!(verdict(1.0, 0.0, Direction::Lower, 0.1), "MISSED");
    }

    #[test]
    fn what_could_not_be_measured_never_meets_a_goal() {
        assert_eq!(verdict(f64::NAN, 10.0, Direction::Lower, 0.1), "MISSED");
        assert_eq!(Figure::median("f", &[], "s", Direction::Higher).goal(1.0).verdict.to_string(), "MISSED");
    }

    #[test]
    fn without_its_peer_a_figure_is_not_compared_whatever_its_goal() {
        let figure = Figure::not_compared("against Envoy", "x", Direction::Higher, 1.5);
        assert_eq!((figure.measured, figure.verdict), (None, Verdict::NotCompared));
        assert_eq!(figure.goal(0.0).verdict, Verdict::NotCompared);
    }

    #[test]
    fn the_spread_of_repetitions_has_both_ends_and_the_middle() {
        let spread = Spread::from_values(&[3.0, 1.0, 2.0]);
        assert_eq!((spread.repetitions, spread.min, spread.median, spread.max), (3, 1.0, 2.0, 3.0));
    }
}
