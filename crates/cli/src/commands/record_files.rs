//! `faultscope record export` and `faultscope record import`

use std::fs::File;
use std::io::{BufReader, BufWriter, IsTerminal, Read, Write};
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use faultscope_engine::record::{RecordOptions, import_calls};
use faultscope_engine::views::{Archive, FoundCalls, Subject, find_calls_of_run, find_calls_of_traces};
use faultscope_model::recording::calls_from_reports;
use faultscope_model::units::count;
use faultscope_model::wiring::RecordLevel;
use faultscope_model::{Run, Span};
use faultscope_store::recording_file::{
    Passphrase, RecordingFileError, RecordingHead, RecordingReader, RecordingWriter,
};

use super::traces_import::{decode, read};
use crate::error::CommandError;
use crate::exit::Exit;
use crate::printer::Printer;
use crate::project;
use crate::shell;

/// The variable that may hold the passphrase.
const VARIABLE: &str = "FAULTSCOPE_PASSPHRASE";

/// A passphrase file is not longer than this.
const MAX_PASSPHRASE_FILE: u64 = 4096;

#[derive(Debug, Subcommand)]
pub(crate) enum RecordCommand {
    /// Writes traces or a run into one file that another machine can read, sealed with a passphrase.
    ///
    /// Example: faultscope record export --run last -o odd.recording
    Export(ExportArgs),
    /// Stores such a file, or spans of Zipkin with the tags `req`, `req_headers` and `res`, as a run to replay.
    ///
    /// Example: faultscope record import odd.recording
    Import(ImportArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ExportArgs {
    /// The traces to write: ids, their beginnings, or `last`.
    #[arg(value_name = "TRACE", required_unless_present = "run")]
    traces: Vec<String>,
    /// Write all calls of a run instead: its id, its campaign, or `last`.
    #[arg(long, value_name = "RUN", conflicts_with = "traces")]
    run: Option<String>,
    /// The file to write; an existing one is not replaced.
    #[arg(long, short, value_name = "FILE")]
    output: PathBuf,
    /// Write secrets as they were sent; otherwise they are `[redacted]`, and requests with them cannot be replayed.
    #[arg(long)]
    with_secrets: bool,
    #[command(flatten)]
    passphrase: PassphraseArgs,
    /// The application's folder or file.
    #[arg(long, value_name = "FOLDER", default_value = ".")]
    folder: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct ImportArgs {
    /// The file.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    passphrase: PassphraseArgs,
    /// The application's folder or file.
    #[arg(long, value_name = "FOLDER", default_value = ".")]
    folder: PathBuf,
}

#[derive(Debug, Args)]
struct PassphraseArgs {
    /// File with the passphrase. `FAULTSCOPE_PASSPHRASE` may hold it instead; on a terminal it is asked for. Other users
    /// can read command lines, so it is not an option.
    #[arg(long, value_name = "FILE")]
    passphrase_file: Option<PathBuf>,
}

pub(crate) async fn run(command: RecordCommand, printer: &Printer) -> Result<Exit, CommandError> {
    match command {
        RecordCommand::Export(args) => export(&args, printer),
        RecordCommand::Import(args) => import(&args, printer).await,
    }
}

fn export(args: &ExportArgs, printer: &Printer) -> Result<Exit, CommandError> {
    let state = project::state_folder(&args.folder);
    let found: FoundCalls = match &args.run {
        Some(run) => find_calls_of_run(&Archive::open(&state, Subject::Run)?, run, args.with_secrets)?,
        None => {
            find_calls_of_traces(&Archive::open(&state, Subject::Trace)?, &args.traces, args.with_secrets)?
        }
    };
    let passphrase = read_passphrase(&args.passphrase)?;
    let head = RecordingHead {
        tool: env!("CARGO_PKG_VERSION").to_owned(),
        application: found.application,
        started_us: found.run.started_us,
        secrets: args.with_secrets,
    };
    // A file that is there may be the only copy of something.
    let cannot =
        |e: std::io::Error| CommandError::usage(format!("cannot write {}", args.output.display())).because(e);
    let file = File::create_new(&args.output).map_err(cannot)?;
    let written = write_calls(BufWriter::new(file), &passphrase, &head, &found.calls);
    if let Err(error) = written {
        // Half a file is of no use to anybody.
        let _ = std::fs::remove_file(&args.output);
        return Err(cannot(error));
    }
    if args.with_secrets {
        printer.warn("the file holds secrets as they were sent: whoever has the passphrase can use them");
    }
    printer.line(format!("{} written to {}", count(found.calls.len(), "call"), args.output.display()));
    Ok(Exit::Done)
}

fn write_calls(
    out: impl Write,
    passphrase: &Passphrase,
    head: &RecordingHead,
    calls: &[Span],
) -> std::io::Result<()> {
    let mut writer = RecordingWriter::new(out, passphrase, head)?;
    for call in calls {
        writer.add(call)?;
    }
    writer.finish().map(drop)
}

async fn import(args: &ImportArgs, printer: &Printer) -> Result<Exit, CommandError> {
    let refuse = |error: RecordingFileError| {
        let exit = match error {
            RecordingFileError::Io(_) | RecordingFileError::WrongPassphrase => Exit::Usage,
            _ => Exit::Environment,
        };
        CommandError::new(exit, format!("{} cannot be read", args.file.display())).because(error)
    };
    let mut options = RecordOptions {
        state: project::state_folder(&args.folder),
        application: "imported".to_owned(),
        command_line: std::env::args().collect(),
        seed: 0,
        level: RecordLevel::default(),
        rules: Vec::new(),
        sample: None,
        secrets: project::secrets_of(&args.folder, printer),
    };
    let file = File::open(&args.file).map_err(|e| refuse(e.into()))?;
    let run: Run = if is_recording(&args.file)? {
        let passphrase = read_passphrase(&args.passphrase)?;
        let mut reader = RecordingReader::open(BufReader::new(file), &passphrase).map_err(refuse)?;
        options.application.clone_from(&reader.head().application);
        import_calls(&options, || reader.next_call()).await?.map_err(refuse)?
    } else {
        let decoded = decode(&read(&args.file)?).map_err(|error| {
            CommandError::usage(format!("{} is neither a recording nor spans", args.file.display()))
                .because(error)
        })?;
        let calls = calls_from_reports(&decoded.items);
        if calls.is_empty() {
            return Err(CommandError::new(Exit::Unresolved, "no span has the tags of a recorded request")
                .hint(
                    "spans with `req`, `req_headers` and `res` can be replayed; `traces import` stores any",
                ));
        }
        let mut calls = calls.into_iter();
        import_calls(&options, || Ok::<_, RecordingFileError>(calls.next())).await?.map_err(refuse)?
    };
    let (calls, at) = (run.evidence.spans, shell::at(&args.folder));
    printer.line(format!("{} imported as run {}", count(calls, "call"), run.id));
    printer.talk(format!("send it again with `faultscope replay --run {}{at}`", run.id));
    Ok(Exit::Done)
}

/// Whether a file begins as recordings do.
fn is_recording(file: &Path) -> Result<bool, CommandError> {
    const BEGINNING: &[u8] = b"faultscope-recording ";
    let mut beginning = Vec::new();
    File::open(file)
        .and_then(|file| file.take(BEGINNING.len() as u64).read_to_end(&mut beginning))
        .map_err(|e| CommandError::usage(format!("cannot read {}", file.display())).because(e))?;
    Ok(beginning == BEGINNING)
}

/// The passphrase from its file, the environment, or the terminal.
fn read_passphrase(args: &PassphraseArgs) -> Result<Passphrase, CommandError> {
    let variable = std::env::var(VARIABLE).ok().filter(|text| !text.is_empty());
    let text = match (&args.passphrase_file, variable) {
        (Some(_), Some(_)) => {
            return Err(CommandError::usage(format!(
                "there are two passphrases: --passphrase-file and {VARIABLE}"
            )));
        }
        (Some(file), None) => {
            let mut text = String::new();
            let read =
                File::open(file).and_then(|file| file.take(MAX_PASSPHRASE_FILE).read_to_string(&mut text));
            read.map_err(|e| {
                CommandError::usage(format!("cannot read the passphrase in {}", file.display())).because(e)
            })?;
            text
        }
        (None, Some(text)) => text,
        (None, None) if std::io::stdin().is_terminal() => ask_for_passphrase()
            .map_err(|e| CommandError::usage("the passphrase cannot be read from the terminal").because(e))?,
        (None, None) => {
            return Err(CommandError::usage("a passphrase is needed")
                .hint(format!("--passphrase-file FILE, or {VARIABLE}")));
        }
    };
    Passphrase::new(&text).map_err(|e| CommandError::usage(e.to_string()))
}

/// Asks on the terminal, without showing what is typed.
fn ask_for_passphrase() -> std::io::Result<String> {
    use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};
    let terminal = std::io::stdin();
    let before = tcgetattr(&terminal)?;
    let mut silent = before.clone();
    silent.local_modes.remove(LocalModes::ECHO);
    let mut out = std::io::stderr();
    write!(out, "passphrase: ")?;
    out.flush()?;
    tcsetattr(&terminal, OptionalActions::Flush, &silent)?;
    let mut text = String::new();
    let read = terminal.read_line(&mut text);
    // Shown again whatever happened.
    tcsetattr(&terminal, OptionalActions::Flush, &before)?;
    writeln!(out)?;
    read.map(|_| text)
}
