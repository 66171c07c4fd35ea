//! The launcher alone, for this crate's tests: what the tool's own binary does for its `launch` subcommand,
//! and the service of the contract.

use std::process::ExitCode;

use faultscope_platform::contract::service_main;
use faultscope_platform::process::launch::launch_main;

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    match args.next().as_ref().and_then(|a| a.to_str()) {
        Some("launch") => launch_main(args.collect()),
        Some("service") => service_main(args.collect()),
        _ => ExitCode::from(64),
    }
}
