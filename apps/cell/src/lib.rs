//! A generic service that behaves as a small spec describes.
//!
//! The samples consist of cells: one binary, one spec file, one process per instance. A cell knows nothing of
//! Faultscope except a few names in its environment and headers, and it must stay small (8 MiB resident), because a
//! sample has dozens of them and a campaign runs several copies of a sample at once. `SPEC.md` is the reference.

mod cache;
mod cell;
mod client;
mod error;
mod expression;
mod interpret;
mod mubench;
mod places;
mod pool;
mod process;
mod random;
mod resp;
mod route;
mod scope;
mod server;
mod settings;
mod store;
mod template;
mod trim;
mod units;
mod work;

pub mod spec;

pub use cell::{Cell, Exit};
pub use error::CellError;
pub use expression::{EvaluationError, Expression, Found, Names, ParseError};
pub use mubench::from_mubench;
pub use process::{CellOptions, parse, run};
pub use server::serve;
pub use spec::{Spec, SpecError};
pub use template::{Part, Size, Template, Time};
pub use work::{private_memory, resident_memory};
