//! End-to-end tests: the built tool, real processes, real clients. One binary, since linking is what takes long.

mod check;
mod check_errors;
mod init;
mod talk;

use faultscope_testkit::{Faultscope, Fixture};

/// The built tool in an empty folder.
fn tool() -> Faultscope {
    Faultscope::new(env!("CARGO_BIN_EXE_faultscope"))
}

/// The built tool in a folder with an application.
fn tool_with(fixture: &Fixture) -> Faultscope {
    Faultscope::with(env!("CARGO_BIN_EXE_faultscope"), fixture)
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
