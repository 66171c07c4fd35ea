//! Tests of the searches on simulated slots.

mod anchors;
mod bayes;
mod cases;
mod closure;
mod properties;
mod resilience;
