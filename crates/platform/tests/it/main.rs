//! Real processes in real slots.

mod bad;
mod contract;
mod fresh;
mod killed;
mod loopback;
mod memory;
mod mounts;
mod netns;
mod ports;
mod profilers;
mod rights;
mod snapshots;
mod support;
mod timing;
