//! Tests of the operators: what they write, that it can be taken back, and that compilers accept it.

mod compilers;
mod hostile;
mod revert;
mod samples;
mod snapshots;
