//! Tests of the searches on simulated slots.

mod anchors;
mod bayes;
mod closure;
mod properties;
