//! Real processes in real slots.

mod bad;
mod contract;
mod killed;
mod memory;
mod netns;
mod support;
mod timing;
