//! `faultscope traces import`: spans from files, or from another server.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use faultscope_engine::read_bounded;
use faultscope_model::trace::ReportedSpan;
use faultscope_model::trace::group_by_trace;
use faultscope_model::units::count;
use faultscope_store::interop::{DecodeError, Decoded, Limits, SpanFormat, inflate, jaeger, zipkin};
use faultscope_store::secrets::{Redactor, SecretOptions};
use faultscope_store::spans::{SpanReader, SpanStore, SpanStoreOptions};
use faultscope_store::{StoreError, StoreErrorKind};
use serde::Serialize;
use tokio::time::Instant;

use super::traces_fetch::{Remote, Wanted};
use crate::error::CommandError;
use crate::exit::Exit;
use crate::now::{now_us, parse_micros};
use crate::printer::Printer;
use crate::project;

/// Spans per batch.
const BATCH: usize = 5000;

/// The most bytes of standard input. A file may have more, since its size is known before it is read.
const MAX_STDIN: u64 = 256 << 20;

/// The interval of progress messages.
const TELL: Duration = Duration::from_secs(2);

#[derive(Debug, Args)]
pub(crate) struct ImportArgs {
    /// Files, `-` for standard input, or URLs of servers. Compressed files (.gz) work, too.
    #[arg(required = true, value_name = "FILE|URL")]
    sources: Vec<PathBuf>,
    /// The application's folder or file.
    #[arg(long, value_name = "FOLDER", default_value = ".")]
    folder: PathBuf,
    /// How far to look back, when reading from a server.
    #[arg(long, default_value = "24h", value_name = "DURATION")]
    since: String,
    /// Only traces with a span of this service, when reading from a server.
    #[arg(long, value_name = "SERVICE")]
    service: Option<String>,
    /// A header for the server, such as `Authorization: Bearer …`; repeat for several.
    #[arg(long = "header", value_name = "NAME: VALUE")]
    headers: Vec<String>,
}

#[derive(Debug, Default, Serialize)]
struct Imported {
    spans: usize,
    rejected: usize,
    /// Spans that were stored before.
    known: usize,
    complaints: Vec<String>,
}

/// Stores spans and counts the results.
struct Importer {
    state: PathBuf,
    secrets: SecretOptions,
    /// Opened with the first span, so that a wrong URL leaves no folder behind.
    store: Option<SpanStore>,
    reader: SpanReader,
    redactor: Redactor,
    imported: Imported,
}

pub(crate) async fn run(args: ImportArgs, printer: &Printer) -> Result<Exit, CommandError> {
    let state = project::state_folder(&args.folder);
    let secrets = project::secrets_of(&args.folder, printer);
    let redactor = Redactor::new(&secrets.rules);
    let reader = SpanReader::open(&state, true);
    let mut importer =
        Importer { state, secrets, store: None, reader, redactor, imported: Imported::default() };
    for source in &args.sources {
        match source.to_str().filter(|text| text.contains("://")) {
            Some(url) => from_server(url, &args, &mut importer, printer).await?,
            None => {
                let bytes = read(source)?;
                let decoded = decode(&bytes).map_err(|error| {
                    CommandError::usage(format!("{} holds no spans that can be read", source.display()))
                        .because(error)
                })?;
                importer.take(&source.display().to_string(), decoded).await?;
            }
        }
    }
    let imported = importer.imported;
    if printer.json {
        printer.result(&imported)?;
    } else {
        for complaint in &imported.complaints {
            printer.warn(complaint);
        }
        let Imported { spans, rejected, known, .. } = imported;
        printer
            .line(format!("{} imported, {rejected} rejected, {known} already stored", count(spans, "span")));
    }
    Ok(if imported.rejected == 0 { Exit::Done } else { Exit::Found })
}

async fn from_server(
    url: &str,
    args: &ImportArgs,
    importer: &mut Importer,
    printer: &Printer,
) -> Result<(), CommandError> {
    let now_us = now_us();
    let from_us = now_us.saturating_sub(parse_micros(&args.since)?);
    let mut remote = Remote::open(Wanted {
        url: url.to_owned(),
        from_ms: from_us / 1_000,
        until_ms: now_us / 1_000,
        service: args.service.clone(),
        headers: args.headers.clone(),
    })
    .await?;
    let mut told = Instant::now();
    while let Some(decoded) = remote.next(&limits()).await? {
        importer.take(url, decoded).await?;
        if told.elapsed() > TELL {
            told = Instant::now();
            printer.talk(format!("{} so far", count(importer.imported.spans, "span")));
        }
    }
    if remote.cut > 0 {
        let complaint = format!("{url}: {} milliseconds have more traces than are given at once", remote.cut);
        importer.imported.complaints.push(complaint);
    }
    Ok(())
}

impl Importer {
    /// Stores spans that are new.
    async fn take(&mut self, source: &str, decoded: Decoded) -> Result<(), CommandError> {
        if let Some(complaint) = decoded.complaint() {
            self.imported.complaints.push(format!("{source}: {complaint}"));
        }
        self.imported.rejected += decoded.n_rejected;
        let mut fresh = Vec::new();
        for trace in group_by_trace(decoded.items, true) {
            let Some(first) = trace.first() else { continue };
            let here = self.reader.trace(first.trace)?;
            let before = fresh.len() + trace.len();
            // Stored spans are redacted, so these must be, too, before they are compared.
            let is_here = |span: &ReportedSpan| {
                let mut shown = span.clone();
                self.redactor.reported(&mut shown);
                here.contains(&shown)
            };
            fresh.extend(trace.into_iter().filter(|span| !is_here(span)));
            self.imported.known += before - fresh.len();
        }
        self.imported.spans += fresh.len();
        if fresh.is_empty() {
            return Ok(());
        }
        let store = match &mut self.store {
            Some(store) => store,
            closed => {
                let options =
                    SpanStoreOptions { secrets: self.secrets.clone(), ..SpanStoreOptions::default() };
                closed.insert(SpanStore::open(&self.state, options).map_err(in_use)?)
            }
        };
        let mut spans = fresh.into_iter().peekable();
        while spans.peek().is_some() {
            let batch: Vec<_> = spans.by_ref().take(BATCH).collect();
            let ack = store.put(batch).map_err(|e| CommandError::internal("the store").because(e))?;
            ack.committed().await?;
        }
        Ok(())
    }
}

fn in_use(error: StoreError) -> CommandError {
    let running = error.kind == StoreErrorKind::InUse;
    let error = CommandError::from(error);
    if running { error.hint("end `faultscope serve` first, or send the file to it") } else { error }
}

pub(super) fn read(file: &Path) -> Result<Vec<u8>, CommandError> {
    let limit = limits().body_bytes as u64;
    let read = if file.as_os_str() == "-" { read_stdin(MAX_STDIN) } else { read_bounded(file, limit) };
    read.map_err(|e| CommandError::usage(format!("cannot read {}", file.display())).because(e))
}

/// Standard input has no size, and may have no end.
fn read_stdin(limit: u64) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    std::io::stdin().take(limit + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit {
        let problem = format!("it has more than {limit} bytes; write it to a file first");
        return Err(std::io::Error::new(std::io::ErrorKind::FileTooLarge, problem));
    }
    Ok(bytes)
}

/// Files may be larger than request bodies.
fn limits() -> Limits {
    Limits { body_bytes: 1 << 30, items: 10_000_000, decoded_bytes: 8 << 30, ..Limits::default() }
}

/// Detects the format by content; file names are not reliable.
pub(super) fn decode(bytes: &[u8]) -> Result<Decoded, DecodeError> {
    let limits = limits();
    let encoding = bytes.starts_with(&[0x1f, 0x8b]).then_some("gzip");
    let bytes = inflate(bytes, encoding, &limits)?;
    let text = bytes.trim_ascii_start();
    match text.first() {
        None => Ok(Decoded::default()),
        Some(b'[') => json_list(text, &limits),
        Some(b'{') if looks_like_otlp(text) => SpanFormat::OtlpJson.decode(text, &limits),
        Some(b'{') if looks_like_jaeger(text) => jaeger::read_v1(text, &limits),
        Some(b'{') => zipkin::v2_lines(text, &limits),
        // Thrift begins with the type of its elements, a struct; protobuf with the first field.
        Some(0x0c) if bytes.first() == Some(&0x0c) => SpanFormat::ZipkinV1Thrift.decode(&bytes, &limits),
        Some(_) => protobuf(&bytes, &limits),
    }
}

fn json_list(text: &[u8], limits: &Limits) -> Result<Decoded, DecodeError> {
    let inner = text.get(1..).unwrap_or_default().trim_ascii_start();
    if inner.starts_with(b"[") {
        return zipkin::v2_traces(text, limits);
    }
    match zipkin::v2_json(text, limits) {
        Err(DecodeError::WrongFormat { .. }) => zipkin::v1_json(text, limits),
        // Several lists, one per line.
        Err(error) => zipkin::v2_lines(text, limits).map_err(|_| error),
        read => read,
    }
}

fn looks_like_otlp(text: &[u8]) -> bool {
    let head = String::from_utf8_lossy(text.get(..4096).unwrap_or(text)).into_owned();
    head.contains("\"resourceSpans\"") || head.contains("\"resource_spans\"")
}

/// Only Jaeger writes `traceID` and has its traces in a list called `data`.
fn looks_like_jaeger(text: &[u8]) -> bool {
    let head = String::from_utf8_lossy(text.get(..4096).unwrap_or(text)).into_owned();
    head.contains("\"data\"") && head.contains("\"traceID\"")
}

/// Zipkin's and OTLP's lists both begin with field 1; only one of them decodes to something.
fn protobuf(bytes: &[u8], limits: &Limits) -> Result<Decoded, DecodeError> {
    let sound = |decoded: &Decoded| !decoded.items.is_empty() && decoded.n_rejected == 0;
    let zipkin = SpanFormat::ZipkinV2Proto.decode(bytes, limits);
    if zipkin.as_ref().is_ok_and(sound) {
        return zipkin;
    }
    let otlp = SpanFormat::OtlpProto.decode(bytes, limits);
    if otlp.as_ref().is_ok_and(|decoded| !decoded.items.is_empty()) { otlp } else { zipkin }
}
