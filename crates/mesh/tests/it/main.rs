//! The mesh between real sockets: callers, callees and proxy in one process.
#![allow(clippy::unwrap_used, reason = "tests")]

mod balance;
mod context;
mod control;
mod fakes;
mod gates;
mod http1;
mod http2;
mod kit;
mod links;
mod mocks;
mod outage;
mod rules;
mod slot;
mod targets;
mod tcp;
mod tls;
mod trials;
