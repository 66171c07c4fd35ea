//! `bench causal`: discovery against the edges, the CPU seconds and the scores of the reference packages.

pub(crate) mod command;
mod reference;
mod simulate;
