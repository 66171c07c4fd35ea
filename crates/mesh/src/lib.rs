//! The caller-side proxy, its rules and its sequencer.
