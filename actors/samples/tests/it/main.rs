//! The samples on real actors: found defects, clean repairs, files by environment variables.

mod in_process;
mod processes;
