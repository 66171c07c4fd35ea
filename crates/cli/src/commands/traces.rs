//! `faultscope traces`

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use faultscope_engine::views::{self, Archive, Subject};
use faultscope_model::operation::grpc_path;
use faultscope_model::trace::TraceQuery;
use faultscope_model::units::{count, show_duration};
use faultscope_store::interop::query::annotation_query;
use faultscope_store::interop::{otlp, zipkin};

use super::beside::{BesideArgs, warn_of_missing};
use super::traces_import::{self, ImportArgs};
use crate::error::CommandError;
use crate::exit::Exit;
use crate::folder::FolderArg;
use crate::now::{now_us, parse_micros};
use crate::printer::Printer;
use crate::project;
use crate::render;
use crate::render::table::Table;

#[derive(Debug, Args)]
pub(crate) struct TracesArgs {
    #[command(subcommand)]
    command: TracesCommand,
}

#[derive(Debug, Subcommand)]
enum TracesCommand {
    /// Lists traces, newest first.
    ///
    /// Example: faultscope traces ls --service order --min-duration 100ms --query "error"
    Ls(LsArgs),
    /// Draws a trace as a waterfall, with its critical path and errors.
    ///
    /// Example: faultscope traces show last --metrics --metric db.connections
    Show(ShowArgs),
    /// Reads spans from files or from another Zipkin or Jaeger.
    ///
    /// Files may contain Zipkin JSON (also one span per line), Zipkin or OTLP protobuf, OTLP JSON, traces saved from
    /// Jaeger's UI, or Thrift. Spans that are already stored are skipped.
    ///
    /// Example: faultscope traces import http://127.0.0.1:9411 --since 2h --service order
    Import(ImportArgs),
    /// Writes traces to standard output or a file.
    Export(ExportArgs),
}

#[derive(Debug, Args)]
struct LsArgs {
    #[command(flatten)]
    search: Search,
    #[command(flatten)]
    folder: FolderArg,
}

#[derive(Debug, Args)]
struct Search {
    /// Only traces with this service, as caller or callee.
    #[arg(long)]
    service: Option<String>,
    /// Only traces with a span of this name; `package.Service/Method` for gRPC.
    #[arg(long, visible_alias = "operation")]
    name: Option<String>,
    /// Only traces with a span whose other side is this service.
    #[arg(long)]
    remote: Option<String>,
    /// Only traces with these tags or annotations: `http.method=GET and error`.
    #[arg(long, value_name = "TERMS")]
    query: Option<String>,
    /// Only traces with an error.
    #[arg(long)]
    error: bool,
    /// Only traces with a span of at least this duration.
    #[arg(long, value_name = "DURATION")]
    min_duration: Option<String>,
    /// Only traces with a span of at most this duration.
    #[arg(long, value_name = "DURATION")]
    max_duration: Option<String>,
    /// How far to look back.
    #[arg(long, default_value = "24h", value_name = "DURATION")]
    since: String,
    /// Number of traces.
    #[arg(long, default_value_t = 20)]
    limit: usize,
}

#[derive(Debug, Args)]
struct ShowArgs {
    /// The trace id, its beginning, or `last`.
    id: String,
    /// The application's folder or file.
    #[arg(long, value_name = "FOLDER", default_value = ".")]
    folder: PathBuf,
    /// Show times as reported, without correcting clocks.
    #[arg(long)]
    raw: bool,
    #[command(flatten)]
    beside: BesideArgs,
}

#[derive(Debug, Args)]
struct ExportArgs {
    /// The traces; by default those that match the search.
    ids: Vec<String>,
    #[command(flatten)]
    search: Search,
    /// The application's folder or file.
    #[arg(long, value_name = "FOLDER", default_value = ".")]
    folder: PathBuf,
    /// Output format.
    #[arg(long, value_enum, default_value_t = Format::Json)]
    format: Format,
    /// File to write; `-` prints it, a name that ends in `.gz` compresses it.
    #[arg(long, short, default_value = "-", value_name = "FILE")]
    output: PathBuf,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Zipkin v2 JSON, one list of spans.
    Json,
    /// Zipkin v2 JSON, a span on each line.
    Ndjson,
    /// OTLP JSON.
    Otlp,
}

pub(crate) async fn run(args: TracesArgs, printer: &Printer) -> Result<Exit, CommandError> {
    match args.command {
        TracesCommand::Ls(args) => list(&args, printer),
        TracesCommand::Show(args) => show(&args, printer),
        TracesCommand::Import(args) => traces_import::run(args, printer).await,
        TracesCommand::Export(args) => export(&args, printer),
    }
}

fn list(args: &LsArgs, printer: &Printer) -> Result<Exit, CommandError> {
    let listed = views::list_traces(&open(&args.folder)?, &args.search.query()?)?;
    if printer.json {
        printer.result(&listed)?;
        return Ok(Exit::Done);
    }
    if listed.traces.is_empty() {
        printer.line("no trace was found");
        printer.talk(format!("looked back {}; use --since to look further", args.search.since));
        if !listed.any_sent {
            printer.talk("`faultscope test` and `up` record calls, `serve` and `traces import` store spans");
        }
        return Ok(Exit::Done);
    }
    let mut table = Table::new(&["trace", "when", "duration", "spans", "services", "errors", "root"]);
    for trace in listed.traces {
        let errors = if trace.errors == 0 { "-".to_owned() } else { trace.errors.to_string() };
        table.row([
            trace.id,
            trace.start_us.map(render::time::ago).unwrap_or_default(),
            show_duration(Duration::from_micros(trace.duration_us)),
            trace.spans.to_string(),
            trace.services.to_string(),
            errors,
            match trace.missing_parents {
                0 => trace.root,
                missing => format!("{} (broken: {} missing)", trace.root, count(missing, "parent")),
            },
        ]);
    }
    printer.line(table);
    Ok(Exit::Done)
}

fn show(args: &ShowArgs, printer: &Printer) -> Result<Exit, CommandError> {
    let view = views::show_trace(&open(&args.folder)?, &args.id, args.raw, &args.beside.requested())?;
    warn_of_missing(&view.missing, printer);
    if printer.json {
        let json = view.to_zipkin();
        let json =
            json.map_err(|e| CommandError::internal("the result cannot be written as JSON").because(e))?;
        printer.line(String::from_utf8_lossy(&json));
    } else {
        render::waterfall::waterfall(&view.waterfall, printer);
    }
    Ok(Exit::Done)
}

/// Opens what is stored beside an application file, to read spans.
pub(super) fn open(folder: &Path) -> Result<Archive, CommandError> {
    Ok(Archive::open(&project::state_folder(folder), Subject::Span)?)
}

fn export(args: &ExportArgs, printer: &Printer) -> Result<Exit, CommandError> {
    let archive = open(&args.folder)?;
    let mut spans = Vec::new();
    for id in &args.ids {
        spans.extend(views::find_trace(&archive, id)?);
    }
    if args.ids.is_empty() {
        spans = views::search_traces(&archive, &args.search.query()?)?.concat();
    }
    let bytes = match args.format {
        Format::Json => zipkin::to_json(&spans),
        Format::Ndjson => zipkin::to_lines(&spans),
        Format::Otlp => otlp::to_json(&spans),
    };
    if args.output.as_os_str() == "-" {
        printer.line(String::from_utf8_lossy(&bytes).trim_end());
        return Ok(Exit::Done);
    }
    let is_packed = args.output.extension().is_some_and(|end| end == "gz");
    let bytes = if is_packed { packed(&bytes) } else { Ok(bytes) };
    bytes.and_then(|bytes| std::fs::write(&args.output, bytes)).map_err(|e| {
        CommandError::new(Exit::Environment, format!("cannot write {}", args.output.display())).because(e)
    })?;
    printer.talk(format!("{} written to {}", count(spans.len(), "span"), args.output.display()));
    Ok(Exit::Done)
}

/// Compresses the output.
fn packed(bytes: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(bytes)?;
    encoder.finish()
}

/// The name that the spans of an operation have. A call of gRPC is written as `package.Service/Method`, also with the
/// slash or the verb that its path has.
fn span_name(asked: &str) -> &str {
    let path = asked.trim().strip_prefix("POST ").unwrap_or(asked).trim();
    let name = path.strip_prefix('/').unwrap_or(path);
    if grpc_path(name).is_some() { name } else { asked }
}

impl Search {
    fn terms(&self) -> Vec<(String, Option<String>)> {
        let mut terms = self.query.as_deref().map(annotation_query).unwrap_or_default();
        if self.error {
            terms.push(("error".to_owned(), None));
        }
        terms
    }

    fn query(&self) -> Result<TraceQuery, CommandError> {
        let optional = |text: &Option<String>| text.as_deref().map(parse_micros).transpose();
        Ok(TraceQuery {
            service: self.service.clone(),
            remote_service: self.remote.clone(),
            name: self.name.as_deref().map(|name| span_name(name).to_owned()),
            terms: self.terms(),
            least_us: optional(&self.min_duration)?,
            most_us: optional(&self.max_duration)?,
            end_us: now_us(),
            lookback_us: parse_micros(&self.since)?,
            limit: self.limit.clamp(1, 100_000),
        })
    }
}
