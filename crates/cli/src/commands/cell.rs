//! The hidden `faultscope cell`.

use faultscope_cell::CellOptions;

use crate::args::CellArgs;
use crate::error::CommandError;
use crate::exit::Exit;

pub(crate) fn run(args: CellArgs) -> Result<Exit, CommandError> {
    let options = CellOptions {
        spec: args.spec,
        service: args.service,
        port: args.port,
    };
    faultscope_cell::run(options)
        .map_err(|e| CommandError::new(Exit::Spec, "the cell cannot run").because(e))?;
    Ok(Exit::Done)
}
