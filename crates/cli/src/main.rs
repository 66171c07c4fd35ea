//! The `faultscope` binary: the tool, the launcher of processes and every cell.

use std::process::ExitCode;

fn main() -> ExitCode {
    faultscope_cli::main()
}
