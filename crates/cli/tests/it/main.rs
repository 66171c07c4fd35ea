//! End-to-end tests: the built tool, real processes, real clients. One binary, since linking is what takes long.

mod beside;
mod booking;
mod bounds;
mod bundles;
mod campaigns;
mod capture;
mod cases;
mod causal;
mod check;
mod check_errors;
mod circumstances;
mod clients;
mod clones;
mod compare;
mod debug;
mod deeper;
mod discovered;
mod discovery;
mod hostile;
mod init;
mod isolation;
mod joined;
mod kills;
mod leases;
mod load;
mod metrics;
mod mutants;
mod outcomes;
mod pasting;
mod record;
mod remote;
mod reports;
mod resilience;
mod runs;
mod secrets;
mod sequences;
mod starts;
mod store;
mod talk;
mod ticketing;
mod todo;
mod trouble;
mod up;
mod watch;

use faultscope_testkit::{Faultscope, Fixture, cells, free_port};

/// The built tool in an empty folder.
fn tool() -> Faultscope {
    Faultscope::new(env!("CARGO_BIN_EXE_faultscope"))
}

/// The built tool in a folder with an application.
fn tool_with(fixture: &Fixture) -> Faultscope {
    Faultscope::with(env!("CARGO_BIN_EXE_faultscope"), fixture)
}

/// The cells, with ports on the machine that no other test uses; `front` has the first.
fn published(front: u16) -> Fixture {
    cells()
        .replace("ports: [8080]", &format!("ports: [8080]\n    publish: {{ 8080: {front} }}"))
        .replace("ports: [8081]", &format!("ports: [8081]\n    publish: {{ 8081: {} }}", free_port()))
}

/// A file that no `mod` names would never run, and nobody would notice.
#[test]
fn every_file_is_a_module() {
    let own = include_str!("main.rs");
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it");
    for entry in std::fs::read_dir(folder).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let module = name.strip_suffix(".rs").unwrap_or(&name);
        assert!(
            module == "main" || name.starts_with('.') || own.contains(&format!("mod {module};")),
            "tests/it/{name} is not a module of main.rs"
        );
    }
}
