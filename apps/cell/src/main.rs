//! Runs one cell: `faultscope-cell SPEC SERVICE [PORT]`. With nothing but a spec, checks all of it.

use std::process::ExitCode;

use faultscope_cell::{CellError, CellOptions, parse, run};

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let Some(spec) = arguments.next() else {
        return complain("usage: faultscope-cell SPEC [SERVICE [PORT]]");
    };
    let Some(service) = arguments.next() else {
        return check(&spec);
    };
    let port = match arguments.next().map(|port| port.parse()).transpose() {
        Ok(port) => port,
        Err(error) => return complain(&format!("the port: {error}")),
    };
    match run(CellOptions { spec: spec.into(), service, port }) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => complain(&chain(&error)),
    }
}

fn check(path: &str) -> ExitCode {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) => return complain(&format!("{path}: {error}")),
    };
    match parse(&text) {
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => complain(&format!("{path}: {error}")),
    }
}

fn chain(error: &CellError) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        text += &format!(": {error}");
        cause = error.source();
    }
    text
}

#[expect(clippy::print_stderr, reason = "it is its own command line")]
fn complain(message: &str) -> ExitCode {
    eprintln!("{message}");
    ExitCode::FAILURE
}
