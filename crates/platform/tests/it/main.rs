//! Real processes in real slots.

mod bad;
mod contract;
mod killed;
mod loopback;
mod memory;
mod mounts;
mod netns;
mod ports;
mod support;
mod timing;
