//! The caller-side proxy, its rules and its sequencer.
//!
//! A [`Mesh`] owns worker threads. A [`MeshSlot`] carries the calls of one slot: it listens where the
//! callers of the slot expect their callees, chooses the instance of each call, records the call as a
//! span and does to it what the wiring's rules, links and gates say.
//!
//! The mesh never invents behaviour: it has no retries, no time-outs and no answers of its own; a reset
//! stays a reset and a closed connection a closed one. Only where a service is not there, its owner may answer:
//! [`Mocks`]. The mesh knows neither platforms nor stores: sockets, dialling, restarting and recording come in through
//! [`Hooks`].

mod admit;
mod balance;
mod call;
mod call_count;
mod call_identity;
mod clock;
mod context;
pub mod control;
mod detect;
mod dial;
mod dice;
mod hooks;
mod http1;
mod http2;
mod mesh;
mod mocks;
mod outage;
mod recording;
mod reports;
mod resolver;
mod rules;
mod scene;
mod sequencer;
mod serve;
mod slot;
mod steering;
mod stream;
mod telemetry;
mod tls;
mod trial;
mod tunnel;
mod watch;

pub use call_count::ArmedOutage;
pub use hooks::{Dialer, Hooks, Recorder, Restarter};
pub use mesh::{Mesh, MeshError, MeshOptions};
pub use mocks::{MockAnswer, MockReply, MockRequest, Mocks};
pub use reports::{MeshReports, RuleHits};
pub use slot::MeshSlot;
