//! The promises every back end keeps; each back end's tests call [`contract`] once.

mod service;

pub use service::{call, service_main};
