//! The one async orchestrator: it deploys, drives, judges and records.
//!
//! Four modules do the work: a [`Session`] holds a platform, a mesh and a store for one campaign and leases
//! its slots; a trial is a pipeline from circumstance to stored run with one exchangeable stage, its [`Drive`];
//! the driver is the one loop that runs requested trials; views read what is stored.
//! Each capability is a module beside them.

mod bounded_file;
pub mod causal;
pub mod clone;
pub mod debug;
mod drive;
mod driver;
mod error;
mod host_command;
mod html;
pub mod load;
mod protos;
pub mod record;
mod reflection;
pub mod replay;
pub mod resilience;
#[cfg(test)]
mod sample;
mod scrape;
mod session;
pub mod stored;
pub mod testing;
mod trial;
pub mod views;
pub mod watch;

pub use bounded_file::{MAX_APPLICATION_FILE, read_bounded, read_text_bounded};
pub use drive::{
    CaseError, Cases, HookError, Pace, People, PerturbedTests, Published, PublishedPort, Replay,
    ReplayedAnswer, Tests, TrialTrace, Unperturbed, find_cases,
};
pub use driver::Budget;
pub use error::EngineError;
pub use protos::load_protos;
pub use scrape::scrape;
pub use session::{EventBus, Lease, Session, SessionOptions};
pub use trial::{Drive, Driven, FinishedTrial, JudgeFacts, Live, Refined, TrialEnd, TrialRequest};
