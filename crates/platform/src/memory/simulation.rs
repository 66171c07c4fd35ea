//! What the simulated application does: how long things take, and under which circumstances it fails.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use faultscope_model::ServiceName;
use faultscope_model::circumstance::Circumstance;
use faultscope_model::outcome::StartEnding;
use faultscope_model::series::CallName;
use serde::{Deserialize, Serialize};

/// A simulated application.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Simulation {
    /// Decides everything random. The same circumstance, repeated as often, meets the same fate whatever
    /// runs beside it.
    pub seed: u64,
    /// How long it takes to reach a plan.
    pub apply: Cost,
    /// How long a test takes.
    pub exec: Cost,
    /// How long it takes until everything of a cancelled trial is gone.
    #[serde(default, with = "faultscope_model::units::duration")]
    pub clear: Duration,
    /// What goes wrong; the first that applies decides.
    #[serde(default)]
    pub faults: Vec<Fault>,
}

/// How long something takes: `base + per_instance * created`, spread around that by a lognormal factor.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// Always.
    #[serde(with = "faultscope_model::units::duration")]
    pub base: Duration,
    /// For each instance that is created.
    #[serde(default, with = "faultscope_model::units::duration")]
    pub per_instance: Duration,
    /// Spread: the standard deviation of the logarithm; 0 is none.
    #[serde(default)]
    pub spread: f64,
}

/// Something that goes wrong.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Fault {
    /// Under which circumstances.
    pub when: Condition,
    /// How often then; 1 is always.
    #[serde(default = "always")]
    pub probability: f64,
    /// What is seen.
    pub effect: Effect,
}

/// What is seen of a fault.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// The test ends with 1 and prints this. Another message is another failure: `Unresolved` to a search
    /// that looks for the first.
    Fail {
        /// What the test prints.
        message: String,
    },
    /// An instance of this service does not get ready.
    NotReady {
        /// The service.
        service: ServiceName,
        /// In which way.
        ending: StartEnding,
        /// What it says before.
        #[serde(default)]
        last_lines: Vec<String>,
    },
    /// The machine refuses: the trial is invalid.
    Invalid,
}

/// A predicate over circumstances.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Condition {
    /// Every circumstance.
    Always,
    /// All of these.
    All(Vec<Self>),
    /// Any of these.
    Any(Vec<Self>),
    /// Not this.
    Not(Box<Self>),
    /// More than one node, or more.
    Nodes {
        /// The least number.
        at_least: u16,
    },
    /// Enough instances of a service.
    Instances {
        /// The service.
        service: ServiceName,
        /// The least number.
        at_least: u32,
    },
    /// A configuration item is set, perhaps to a value.
    Config {
        /// The service.
        service: ServiceName,
        /// `memory`, `env.NAME`.
        item: String,
        /// The value; any where none is named.
        #[serde(default)]
        equals: Option<String>,
    },
    /// An imposed order has one call before another.
    Before {
        /// The earlier call.
        first: CallName,
        /// The later call.
        then: CallName,
    },
    /// A service has this version.
    Version {
        /// The service.
        service: ServiceName,
        /// The version.
        equals: String,
    },
    /// At least so many perturbations.
    Perturbations {
        /// The least number.
        at_least: usize,
    },
    /// Anything else; not written to files.
    #[serde(skip)]
    Custom(Arc<dyn Fn(&Circumstance) -> bool + Send + Sync>),
}

impl Condition {
    /// Whether a circumstance meets it.
    pub fn holds(&self, circumstance: &Circumstance) -> bool {
        match self {
            Self::Always => true,
            Self::All(all) => all.iter().all(|c| c.holds(circumstance)),
            Self::Any(any) => any.iter().any(|c| c.holds(circumstance)),
            Self::Not(inner) => !inner.holds(circumstance),
            Self::Nodes { at_least } => circumstance.nodes >= *at_least,
            Self::Instances { service, at_least } => circumstance.instances_of(service) >= *at_least,
            Self::Config { service, item, equals } => {
                let value = circumstance.config.get(service).and_then(|items| items.get(item));
                value.is_some_and(|value| equals.as_ref().is_none_or(|wanted| wanted == value))
            }
            Self::Before { first, then } => circumstance.sequence.iter().any(|order| {
                let place = |call: &CallName| order.order.iter().position(|c| c == call);
                matches!((place(first), place(then)), (Some(a), Some(b)) if a < b)
            }),
            Self::Version { service, equals } => circumstance.versions.get(service) == Some(equals),
            Self::Perturbations { at_least } => circumstance.perturbations.len() >= *at_least,
            Self::Custom(holds) => holds(circumstance),
        }
    }
}

impl fmt::Debug for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match serde_json::to_string(self) {
            Ok(text) => f.write_str(&text),
            Err(_) => f.write_str("custom"),
        }
    }
}

impl Cost {
    /// Always the same, however many instances.
    pub fn fixed(base: Duration) -> Self {
        Self { base, per_instance: Duration::ZERO, spread: 0.0 }
    }

    /// How long it takes this time.
    pub(crate) fn sample(&self, created: usize, chance: &mut Chance) -> Duration {
        let middle = self.base + self.per_instance * created as u32;
        middle.mul_f64((self.spread * chance.normal()).exp())
    }
}

/// Chance that can be repeated.
#[derive(Debug, Clone)]
pub(crate) struct Chance(u64);

impl Chance {
    /// From a seed and what it is about.
    pub(crate) fn new(seed: u64, about: &str) -> Self {
        let hash = about.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        Self(seed ^ hash)
    }

    /// A number from 0 to below 1 (splitmix64).
    pub(crate) fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// A number of the standard normal distribution (Box and Muller).
    fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.uniform()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.uniform()).cos()
    }
}

fn always() -> f64 {
    1.0
}
