//! Arguments, printing, exit codes: the only crate that knows the terminal.

mod args;
mod campaign;
mod commands;
mod comparison;
mod error;
mod exit;
mod folder;
mod now;
mod printer;
mod progress;
mod project;
mod render;
mod sample_apps;
mod shell;
mod terminal;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser;

use args::{Cli, Command};
use error::CommandError;
use exit::Exit;
use printer::Printer;
// The name under which `bench` knows them.
use sample_apps as samples;

/// Runs the tool with the process's own arguments.
pub fn main() -> ExitCode {
    let mut words: Vec<OsString> = std::env::args_os().collect();
    // The launcher changes namespaces, which a process with threads cannot do: nothing may run before it.
    if words.get(1).is_some_and(|word| word == "launch") {
        return faultscope_platform::process::launch::launch_main(words.split_off(2));
    }
    if words.get(1).is_some_and(|word| word == "cell") {
        let printer = Printer::new(false, args::Color::Never, false);
        return finish(commands::cell::run(words.split_off(2)), &printer);
    }
    faultscope_platform::process::open_files::raise_limit();
    let json = words.iter().any(|word| word == "--json");
    let cli = match Cli::try_parse_from(words) {
        Ok(cli) => cli,
        Err(error) => {
            let _ = error.print();
            if !error.use_stderr() {
                return Exit::Done.into();
            }
            if json {
                let printer = Printer::new(true, args::Color::Never, false);
                printer.line(CommandError::usage(error.to_string().trim()).to_json());
            }
            return Exit::Usage.into();
        }
    };
    let printer = Printer::new(cli.global.json, cli.global.color, cli.global.quiet);
    start_logging(cli.global.verbose, printer.is_log_coloured());
    finish(run(cli, &printer), &printer)
}

fn finish(outcome: Result<Exit, CommandError>, printer: &Printer) -> ExitCode {
    match outcome {
        Ok(exit) => exit.into(),
        Err(error) => {
            printer.error(&error);
            error.exit.into()
        }
    }
}

fn run(cli: Cli, printer: &Printer) -> Result<Exit, CommandError> {
    match cli.command {
        Command::Completions(args) => commands::completions::run(&args),
        Command::Init(args) => commands::init::run(&args, printer),
        other => {
            let runtime = tokio::runtime::Builder::new_multi_thread()
                .worker_threads(2)
                .enable_all()
                .build()
                .map_err(|e| CommandError::internal("the runtime cannot start").because(e))?;
            let outcome = runtime.block_on(dispatch(other, &cli.global, printer));
            // Blocking work that hangs must not keep a finished tool alive.
            runtime.shutdown_timeout(std::time::Duration::from_secs(1));
            outcome
        }
    }
}

async fn dispatch(command: Command, global: &args::Global, printer: &Printer) -> Result<Exit, CommandError> {
    survive_file_size_limits();
    match command {
        Command::Check(args) => commands::check::run(args, global, printer).await,
        Command::Capture(args) => commands::capture::run(args, printer).await,
        Command::Up(args) => commands::up::run(args, global, printer).await,
        Command::Record(args) => commands::record::run(*args, global, printer).await,
        Command::Clone(args) => commands::clone::run(*args, global, printer).await,
        Command::Replay(args) => commands::replay::run(*args, global, printer).await,
        Command::Debug(args) => commands::debug::run(args, global, printer).await,
        Command::Resilience(args) => commands::resilience::run(*args, global, printer).await,
        Command::Test(args) => commands::test::run(args, global, printer).await,
        Command::Runs(args) => commands::runs::run(&args, printer),
        Command::Report(args) => commands::report::run(&args, printer),
        Command::Repro(args) => commands::repro::run(args, global, printer).await,
        Command::Serve(args) => commands::serve::run(args, printer).await,
        Command::Traces(args) => commands::traces::run(args, printer).await,
        Command::Services(args) => commands::services::run(&args, printer),
        Command::Deps(args) => commands::deps::run(&args, printer),
        Command::Load(args) => commands::load::run(*args, global, printer).await,
        Command::Metrics(args) => commands::metrics::run(&args, printer),
        Command::Causal(args) => commands::causal::run(&args, printer),
        Command::Watch(args) => commands::watch::run(*args, printer).await,
        Command::Clean(args) => commands::clean::run(args, printer).await,
        Command::Store(args) => commands::store::run(&args, printer),
        Command::Demo(args) => commands::demo::run(args, global, printer).await,
        #[cfg(feature = "mutate")]
        Command::Mutate(args) => commands::mutate::run(args, global, printer).await,
        #[cfg(feature = "mutate")]
        Command::Faults(args) => commands::faults::run(&args, printer),
        Command::Bench(args) => commands::bench::run(&args, printer).await,
        Command::Fetch(args) => commands::fetch::run(args, printer).await,
        Command::BenchPart(args) => commands::bench::run_part(&args).await,
        Command::Completions(_) | Command::Init(_) => {
            Err(CommandError::internal("this command runs without a runtime"))
        }
    }
}

/// Makes writing beyond the limit of file sizes an error. By default SIGXFSZ ends the process. A handler is not
/// inherited by the programs that the tool starts, as ignoring the signal would be.
fn survive_file_size_limits() {
    const SIGXFSZ: i32 = 25;
    let kind = tokio::signal::unix::SignalKind::from_raw(SIGXFSZ);
    if let Err(error) = tokio::signal::unix::signal(kind) {
        tracing::warn!(%error, "a limit of file sizes would end the tool");
    }
}

fn start_logging(verbose: u8, is_coloured: bool) {
    let default = match verbose {
        0 => "warn",
        1 => "warn,faultscope=info",
        2 => "info,faultscope=debug",
        _ => "debug,faultscope=trace",
    };
    let filter =
        tracing_subscriber::EnvFilter::try_from_env("FAULTSCOPE_LOG").unwrap_or_else(|_| default.into());
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(|| LogOutput)
        .with_ansi(is_coloured)
        .without_time()
        .try_init();
}

/// Where log lines go: to stderr, as long as that can be written. Log lines come from threads that must go on, and a full
/// disk or a closed pipe (`2>&1 | head -1`) is no reason to end them.
struct LogOutput;

impl std::io::Write for LogOutput {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let _ = std::io::Write::write_all(&mut std::io::stderr(), bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
