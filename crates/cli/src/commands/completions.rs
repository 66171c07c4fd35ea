//! `faultscope completions`

use clap::CommandFactory;

use crate::args::{Cli, CompletionsArgs};
use crate::error::CommandError;
use crate::exit::Exit;

pub(crate) fn run(args: &CompletionsArgs) -> Result<Exit, CommandError> {
    clap_complete::generate(args.shell, &mut Cli::command(), "faultscope", &mut std::io::stdout());
    Ok(Exit::Done)
}
