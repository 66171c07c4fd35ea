//! DAGMA (Bello et al. 2022): graphs by continuous optimisation, with a log-determinant that is infinite on cycles.
//!
//! Never the default: the result depends on the scale of the columns, and on data like that of performance tests it
//! finds far fewer edges than DirectLiNGAM.

pub(crate) mod adam;
pub(crate) mod linear;
pub(crate) mod mlp;
pub(crate) mod prune;
