//! The engine between deploying and judging: services as closures, real sockets, a real mesh.
//!
//! What needs real processes, namespaces or the terminal is tested through the binary; search and bookkeeping
//! without calls on the simulated platform in `tests/it`.

mod bed;
mod commands;
mod debugging;

mod exits;
mod gates;
mod greeter;
mod grpc;
mod grpc_steps;
mod keeping;
mod logs;
mod mocks;
mod outages;
mod people;
mod perturbed;
mod processes;
mod recording;
mod replay;
mod resuming;

mod shop;
mod slots;
mod spans;
mod starts;
mod steps;

/// A file that no `mod` names would never run, and nobody would notice.
#[test]
fn every_file_is_a_module() {
    let own = include_str!("main.rs");
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/loopback");
    for entry in std::fs::read_dir(folder).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let module = name.strip_suffix(".rs").unwrap_or(&name);
        assert!(
            module == "main" || name.starts_with('.') || own.contains(&format!("mod {module};")),
            "tests/loopback/{name} is not a module of main.rs"
        );
    }
}
