//! Real containers. `./test.sh docker` starts an engine, builds the image and runs these.

#![cfg(feature = "docker")]

mod contract;
mod slots;
mod support;
