//! Causal models on data with known answers.

mod data;
mod discovery;
mod limits;
mod model;
