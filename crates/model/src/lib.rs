//! Vocabulary, file formats and wiring types of Faultscope; no I/O, no async, no clock.
