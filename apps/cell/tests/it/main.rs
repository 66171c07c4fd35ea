//! Real cells in one process, talking to each other over real sockets.

mod behaviour;
mod http;
mod process;
mod redis;
mod support;
