//! The one async orchestrator: it deploys, drives, judges and records.
//!
//! A [`Session`] holds a platform, a mesh and a store for one campaign; [`Session::trial`] carries one
//! trial from circumstance to run; [`campaign`] lets a search choose the trials of all slots.

pub mod campaign;
mod clock;
mod collector;
pub mod debug;
mod deploying;
mod error;
mod events;
mod evidence;
mod exits;
mod honest;
mod judging;
mod live;
mod missing;
mod perturbing;
pub mod resilience;
mod resume;
#[cfg(test)]
mod sample;
mod sampler;
mod scrape;
mod session;
pub mod stored;
mod testing;
mod trial;
pub mod views;
mod wire;

pub use error::EngineError;
pub use events::EventBus;
pub use perturbing::Perturbing;
pub use scrape::scrape;
pub use session::{Session, SessionOptions};
pub use testing::{CaseError, Cases, find_cases};
pub use trial::{TrialEnd, TrialRequest};
