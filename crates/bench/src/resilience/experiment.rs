//! The paper's experiment (section 5): how many trials each strategy needs on systems with known defects.

use std::fmt;

use faultscope_search::Search;
use faultscope_search::resilience::{RtDd, RtR, Screen, ScreenOptions, Targets};
use serde::{Deserialize, Serialize};

/// A strategy by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Strategy {
    /// Random exploration.
    RtR,
    /// Delta debugging.
    RtDd,
    /// Delta debugging, pruned by causality.
    RtDdO,
    /// The default of `resilience`.
    Default,
}

impl Strategy {
    /// All strategies.
    pub const ALL: [Self; 4] = [Self::RtR, Self::RtDd, Self::RtDdO, Self::Default];

    /// The name on the command line and in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::RtR => "rt-r",
            Self::RtDd => "rt-dd",
            Self::RtDdO => "rt-dd-o",
            Self::Default => "screen-aim-confirm-peel",
        }
    }

    /// Creates the search.
    pub fn search(self, targets: &Targets, seed: u64) -> Box<dyn Search + Send> {
        match self {
            Self::RtR => Box::new(RtR::new(targets, seed)),
            Self::RtDd => Box::new(RtDd::new(targets.clone(), false, seed)),
            Self::RtDdO => Box::new(RtDd::new(targets.clone(), true, seed)),
            Self::Default => {
                Box::new(Screen::new(targets.clone(), ScreenOptions { seed, ..ScreenOptions::default() }))
            }
        }
    }
}

impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// How a system is modified.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Variant {
    /// One defect at actor 5, 25 or 45; the first failing actor is known. The paper's variant.
    Paper,
    /// As in the paper, but only the verdict is known.
    Verdict,
    /// As in the paper, but only one perturbation triggers it.
    SingleTrigger,
    /// As in the paper, but only actors without successors are asserted.
    WeakOracle,
    /// This many defects, all to be found.
    Defects(usize),
    /// Two perturbations that fail only together; only the verdict is known.
    Pair,
    /// No defect.
    Clean,
}

impl Variant {
    /// The reported variants.
    pub const ALL: [Self; 10] = [
        Self::Paper,
        Self::Verdict,
        Self::SingleTrigger,
        Self::WeakOracle,
        Self::Defects(1),
        Self::Defects(2),
        Self::Defects(3),
        Self::Defects(5),
        Self::Pair,
        Self::Clean,
    ];

    /// The largest mean number of trials that the default may need.
    pub fn goal(self) -> f64 {
        match self {
            Self::Paper => 3.0,
            Self::Verdict | Self::WeakOracle => 8.0,
            Self::SingleTrigger => 6.5,
            Self::Defects(count) => 2.0 * count as f64 + 1.0,
            Self::Pair => 30.0,
            Self::Clean => 1.0,
        }
    }
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Paper => f.pad("paper"),
            Self::Verdict => f.pad("verdict only"),
            Self::SingleTrigger => f.pad("single trigger"),
            Self::WeakOracle => f.pad("weak oracle"),
            Self::Defects(count) => f.pad(&format!("all of {count}")),
            Self::Pair => f.pad("pair"),
            Self::Clean => f.pad("clean"),
        }
    }
}

/// The figures of a system in the paper's Table 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Paper {
    /// Perturbations.
    pub perturbations: usize,
    /// Mean iterations of RT-R, without runs that timed out.
    pub rt_r: u32,
    /// Of RT-DD.
    pub rt_dd: u32,
    /// Of RT-DD-O.
    pub rt_dd_o: u32,
}

impl Paper {
    /// The figure of a strategy; the default is not in the paper.
    pub fn of(self, strategy: Strategy) -> Option<u32> {
        match strategy {
            Strategy::RtR => Some(self.rt_r),
            Strategy::RtDd => Some(self.rt_dd),
            Strategy::RtDdO => Some(self.rt_dd_o),
            Strategy::Default => None,
        }
    }
}

/// Table 1: mean iterations.
pub const TABLE_1: [Paper; 10] = [
    Paper { perturbations: 129, rt_r: 52, rt_dd: 12, rt_dd_o: 8 },
    Paper { perturbations: 204, rt_r: 63, rt_dd: 12, rt_dd_o: 10 },
    Paper { perturbations: 308, rt_r: 32, rt_dd: 13, rt_dd_o: 11 },
    Paper { perturbations: 378, rt_r: 49, rt_dd: 13, rt_dd_o: 8 },
    Paper { perturbations: 513, rt_r: 34, rt_dd: 15, rt_dd_o: 11 },
    Paper { perturbations: 626, rt_r: 62, rt_dd: 14, rt_dd_o: 8 },
    Paper { perturbations: 706, rt_r: 49, rt_dd: 14, rt_dd_o: 8 },
    Paper { perturbations: 854, rt_r: 46, rt_dd: 14, rt_dd_o: 10 },
    Paper { perturbations: 885, rt_r: 42, rt_dd: 14, rt_dd_o: 13 },
    Paper { perturbations: 1004, rt_r: 41, rt_dd: 15, rt_dd_o: 10 },
];
