//! `faultscope traces`

use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::{Args, Subcommand, ValueEnum};
use faultscope_model::trace::{ReportedSpan, TraceQuery};
use faultscope_model::units::{self, count, show_duration};
use faultscope_store::interop::query::{annotation_query, matches};
use faultscope_store::interop::trace::{failed, start_us};
use faultscope_store::interop::{self, otlp, read_trace_id, zipkin, zipkin_trace_id};
use serde::Serialize;

use super::beside::{BesideArgs, Joined};
use super::services::open;
use super::traces_import::{self, ImportArgs};
use crate::error::CommandError;
use crate::exit::Exit;
use crate::folder::FolderArg;
use crate::printer::Printer;
use crate::render;
use crate::render::table::Table;

/// Traces among which the beginning of an id is looked for, the latest ones.
const MOST_LOOKED_AT: usize = 10_000;

/// Clocks of services may be ahead.
const END_OF_TIME_US: u64 = i64::MAX.cast_unsigned();

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
    /// Files may hold Zipkin JSON (also one span per line), Zipkin or OTLP protobuf, OTLP JSON, what Jaeger's
    /// page saves, or Thrift. What is already here is not stored again.
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
    /// Only traces in which this service takes part.
    #[arg(long)]
    service: Option<String>,
    /// Only with a span of this name.
    #[arg(long, visible_alias = "operation")]
    name: Option<String>,
    /// Only with a span whose other side is this service.
    #[arg(long)]
    remote: Option<String>,
    /// Only with these tags or annotations: `http.method=GET and error`.
    #[arg(long, value_name = "TERMS")]
    query: Option<String>,
    /// Only traces in which something failed.
    #[arg(long)]
    error: bool,
    /// Only with a span of at least this duration.
    #[arg(long, value_name = "DURATION")]
    min_duration: Option<String>,
    /// Only with a span of at most this duration.
    #[arg(long, value_name = "DURATION")]
    max_duration: Option<String>,
    /// How far back.
    #[arg(long, default_value = "24h", value_name = "DURATION")]
    since: String,
    /// How many traces.
    #[arg(long, default_value_t = 20)]
    limit: usize,
}

#[derive(Debug, Args)]
struct ShowArgs {
    /// The trace's id, its first letters, or `last`.
    id: String,
    /// The application's folder or file.
    #[arg(long, value_name = "FOLDER", default_value = ".")]
    folder: PathBuf,
    /// Show times as they were reported, without correcting clocks.
    #[arg(long)]
    raw: bool,
    #[command(flatten)]
    beside: BesideArgs,
}

#[derive(Debug, Args)]
struct ExportArgs {
    /// The traces; without any, those that the search finds.
    ids: Vec<String>,
    #[command(flatten)]
    search: Search,
    /// The application's folder or file.
    #[arg(long, value_name = "FOLDER", default_value = ".")]
    folder: PathBuf,
    /// How they are written.
    #[arg(long, value_enum, default_value_t = Format::Json)]
    format: Format,
    /// Where to write; `-` prints it, a name that ends in `.gz` compresses it.
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

#[derive(Debug, Serialize)]
struct Listed {
    id: String,
    start_us: Option<u64>,
    duration_us: u64,
    root: String,
    spans: usize,
    services: usize,
    errors: usize,
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
    let reader = open(&args.folder)?;
    let traces = reader.search(&args.search.query()?, matches)?;
    let listed: Vec<Listed> = traces.iter().map(|spans| Listed::of(spans)).collect();
    if printer.json {
        printer.result(&listed)?;
        return Ok(Exit::Done);
    }
    if listed.is_empty() {
        printer.line("no trace was found");
        printer.talk(format!("looked back {}; --since takes a wider time", args.search.since));
        if reader.count()? == 0 {
            printer.talk("`faultscope test` or `up` record calls, `serve` and `traces import` take spans in");
        }
        return Ok(Exit::Done);
    }
    let mut table = Table::new(&["trace", "when", "duration", "spans", "services", "errors", "root"]);
    for trace in listed {
        let errors = if trace.errors == 0 { "-".to_owned() } else { trace.errors.to_string() };
        table.row([
            trace.id,
            trace.start_us.map(render::time::ago).unwrap_or_default(),
            show_duration(Duration::from_micros(trace.duration_us)),
            trace.spans.to_string(),
            trace.services.to_string(),
            errors,
            render::waterfall::plain(&trace.root),
        ]);
    }
    printer.line(table);
    Ok(Exit::Done)
}

fn show(args: &ShowArgs, printer: &Printer) -> Result<Exit, CommandError> {
    let spans = find(&args.folder, &args.id)?;
    let beside = args.beside.of_trace(&args.folder, &spans, printer)?;
    let known: Vec<_> = spans.iter().map(|span| beside.of_span(span)).collect();
    if args.beside.is_any() {
        beside.say_missing(known.iter().flatten(), printer);
    }
    if printer.json {
        let json = zipkin::to_json(&spans);
        let json = if args.beside.is_any() { with_metrics(&json, &known)? } else { json };
        printer.line(String::from_utf8_lossy(&json));
    } else {
        render::waterfall::waterfall(spans, args.raw, &beside, printer);
    }
    Ok(Exit::Done)
}

/// Spans of Zipkin, each with what was known of its instance.
fn with_metrics(spans: &[u8], known: &[Option<Joined>]) -> Result<Vec<u8>, CommandError> {
    let add = || -> serde_json::Result<Vec<u8>> {
        let mut spans: Vec<serde_json::Value> = serde_json::from_slice(spans)?;
        for (span, known) in spans.iter_mut().zip(known) {
            if let Some(known) = known {
                span["metrics"] = serde_json::to_value(known)?;
            }
        }
        serde_json::to_vec(&spans)
    };
    add().map_err(|e| CommandError::internal("the result cannot be written as JSON").because(e))
}

/// A trace by its id: what services reported, and what the mesh saw of it.
pub(crate) fn find(folder: &std::path::Path, id: &str) -> Result<Vec<ReportedSpan>, CommandError> {
    let unknown = |why: &str| {
        CommandError::usage(format!("the trace id `{id}` {why}")).hint("`faultscope traces ls` lists traces")
    };
    let reader = open(folder)?;
    if id != "last" {
        let spans = reader.trace(read_trace_id(id).map_err(unknown)?)?;
        if !spans.is_empty() {
            return Ok(spans);
        }
    }
    // Whoever types an id types its beginning.
    let latest = TraceQuery {
        end_us: END_OF_TIME_US,
        lookback_us: END_OF_TIME_US,
        limit: if id == "last" { 1 } else { MOST_LOOKED_AT },
        ..TraceQuery::default()
    };
    let mut found = reader.search(&latest, |_, _| true)?;
    let begins = id.to_ascii_lowercase();
    let name = |spans: &[ReportedSpan]| spans.first().map_or_else(String::new, |s| zipkin_trace_id(s.trace));
    found.retain(|spans| id == "last" || name(spans).starts_with(&begins));
    match found.len() {
        0 if id == "last" => Err(unknown("names none: there are no traces yet")),
        0 => Err(unknown("is not known")),
        1 => Ok(found.remove(0)),
        n => {
            let names: Vec<_> = found.iter().take(5).map(|spans| name(spans)).collect();
            Err(unknown(&format!("begins {n} traces: {}", names.join(", "))))
        }
    }
}

fn export(args: &ExportArgs, printer: &Printer) -> Result<Exit, CommandError> {
    let mut spans = Vec::new();
    for id in &args.ids {
        spans.extend(find(&args.folder, id)?);
    }
    if args.ids.is_empty() {
        spans = open(&args.folder)?.search(&args.search.query()?, matches)?.concat();
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

/// A file that is named so is compressed.
fn packed(bytes: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(bytes)?;
    encoder.finish()
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
        let optional = |text: &Option<String>| text.as_deref().map(micros).transpose();
        Ok(TraceQuery {
            service: self.service.clone(),
            remote_service: self.remote.clone(),
            name: self.name.clone(),
            terms: self.terms(),
            least_us: optional(&self.min_duration)?,
            most_us: optional(&self.max_duration)?,
            end_us: now_us(),
            lookback_us: micros(&self.since)?,
            limit: self.limit.clamp(1, 100_000),
        })
    }
}

impl Listed {
    fn of(spans: &[ReportedSpan]) -> Self {
        let root = spans.iter().find(|span| span.parent.is_none() && !span.shared);
        let root = root.or_else(|| spans.iter().min_by_key(|span| span.start_us.unwrap_or(u64::MAX)));
        let ends =
            spans.iter().filter_map(|span| Some(span.start_us? + span.duration_us.unwrap_or_default()));
        let starts = spans.iter().filter_map(|span| span.start_us);
        let services: std::collections::BTreeSet<_> =
            spans.iter().filter_map(|span| span.local.service.as_deref()).collect();
        Self {
            id: spans.first().map_or_else(String::new, |span| zipkin_trace_id(span.trace)),
            start_us: start_us(spans),
            duration_us: ends.max().unwrap_or_default().saturating_sub(starts.min().unwrap_or_default()),
            root: root.map(render::waterfall::label).unwrap_or_default(),
            spans: interop::trace::merge(spans.to_vec()).len(),
            services: services.len(),
            errors: spans.iter().filter(|span| failed(span)).count(),
        }
    }
}

/// A duration as it is typed, in microseconds.
pub(super) fn micros(text: &str) -> Result<u64, CommandError> {
    let duration = units::parse_duration(text).map_err(|e| CommandError::usage(e.to_string()))?;
    Ok(u64::try_from(duration.as_micros()).unwrap_or(u64::MAX))
}

/// Microseconds since 1970.
pub(super) fn now_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}
