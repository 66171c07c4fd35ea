//! `faultscope completions`

use std::io::Write;

use clap::CommandFactory;

use crate::args::{Cli, CompletionsArgs};
use crate::error::CommandError;
use crate::exit::Exit;

pub(crate) fn run(args: &CompletionsArgs) -> Result<Exit, CommandError> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "faultscope", &mut script);
    // A closed pipe (`| head`) is not an error.
    let _ = std::io::stdout().write_all(&script);
    Ok(Exit::Done)
}
