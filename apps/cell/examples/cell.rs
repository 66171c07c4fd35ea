//! Runs one cell: `cell SPEC SERVICE [PORT]`.

use std::process::ExitCode;

use faultscope_cell::{CellError, CellOptions, run};

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let (Some(spec), Some(service)) = (arguments.next(), arguments.next()) else {
        return complain("usage: cell SPEC SERVICE [PORT]");
    };
    let port = match arguments.next().map(|port| port.parse()).transpose() {
        Ok(port) => port,
        Err(error) => return complain(&format!("the port: {error}")),
    };
    match run(CellOptions {
        spec: spec.into(),
        service,
        port,
    }) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => complain(&chain(&error)),
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

#[expect(clippy::print_stderr, reason = "an example is its own command line")]
fn complain(message: &str) -> ExitCode {
    eprintln!("{message}");
    ExitCode::FAILURE
}
