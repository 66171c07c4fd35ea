//! The behaviour of the simulated application: how long things take, and when it fails.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use faultscope_model::ServiceName;
use faultscope_model::circumstance::Circumstance;
use faultscope_model::outcome::StartEnding;
use faultscope_model::random::Random;
use faultscope_model::series::CallName;
use serde::{Deserialize, Serialize};

/// A simulated application.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Simulation {
    /// The source of everything random. The n-th repetition of a circumstance has the same result whatever
    /// runs beside it.
    pub seed: u64,
    /// Time to apply a plan.
    pub apply: Cost,
    /// Time to run a test.
    pub exec: Cost,
    /// Time until everything of a cancelled trial is gone.
    #[serde(default, with = "faultscope_model::units::duration")]
    pub clear: Duration,
    /// Faults; the first that applies decides.
    #[serde(default)]
    pub faults: Vec<Fault>,
}

/// A duration: `base + per_instance * created`, multiplied by a lognormal factor.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// The fixed part.
    #[serde(with = "faultscope_model::units::duration")]
    pub base: Duration,
    /// Added for each created instance.
    #[serde(default, with = "faultscope_model::units::duration")]
    pub per_instance: Duration,
    /// The standard deviation of the logarithm; 0 for none.
    #[serde(default)]
    pub spread: f64,
}

/// A fault of the simulated application.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Fault {
    /// The circumstances in which it occurs.
    pub when: Condition,
    /// How likely it is then; 1 is always.
    #[serde(default = "always")]
    pub probability: f64,
    /// What it causes.
    pub effect: Effect,
}

/// What a fault causes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// The test exits with 1 and prints this. Another message is another failure: unresolved to a search
    /// that looks for the first.
    Fail {
        /// What the test prints.
        message: String,
    },
    /// An instance of this service does not become ready.
    NotReady {
        /// The service.
        service: ServiceName,
        /// How its start fails.
        ending: StartEnding,
        /// Its last output.
        #[serde(default)]
        last_lines: Vec<String>,
    },
    /// The first instance of this service takes longer to become ready, perhaps longer than it may.
    SlowStart {
        /// The service.
        service: ServiceName,
        /// How long it takes.
        #[serde(with = "faultscope_model::units::duration")]
        takes: Duration,
    },
    /// The machine fails: the trial is invalid.
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
    /// At least this many nodes.
    Nodes {
        /// The least number.
        at_least: u16,
    },
    /// At least this many instances of a service.
    Instances {
        /// The service.
        service: ServiceName,
        /// The least number.
        at_least: u32,
    },
    /// A configuration item is set, or has a value.
    Config {
        /// The service.
        service: ServiceName,
        /// `memory`, `env.NAME`.
        item: String,
        /// The value; any if absent.
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
    /// At least this many perturbations.
    Perturbations {
        /// The least number.
        at_least: usize,
    },
    /// Any other predicate; cannot be written to files.
    #[serde(skip)]
    Custom(Arc<dyn Fn(&Circumstance) -> bool + Send + Sync>),
}

impl Condition {
    /// Whether a circumstance satisfies it.
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
    /// A fixed duration, independent of the number of instances.
    pub fn fixed(base: Duration) -> Self {
        Self { base, per_instance: Duration::ZERO, spread: 0.0 }
    }

    /// Draws a duration.
    pub(crate) fn sample(&self, created: usize, chance: &mut Chance) -> Duration {
        let middle = self.base + self.per_instance * created as u32;
        middle.mul_f64((self.spread * chance.normal()).exp())
    }
}

/// Random numbers of one question.
#[derive(Debug, Clone)]
pub(crate) struct Chance(Random);

impl Chance {
    /// Seeded by a number and a text.
    pub(crate) fn new(seed: u64, about: &str) -> Self {
        let hash = about.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        Self(Random::new(seed ^ hash))
    }

    /// A number from 0 to below 1.
    pub(crate) fn uniform(&mut self) -> f64 {
        self.0.unit()
    }

    /// A number of the standard normal distribution.
    fn normal(&mut self) -> f64 {
        self.0.normal()
    }
}

fn always() -> f64 {
    1.0
}
