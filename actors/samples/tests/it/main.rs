//! The samples on real actors: found defects, clean repairs, files by environment variables.

mod bench;
mod in_process;
mod processes;
