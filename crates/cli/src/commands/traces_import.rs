//! `faultscope traces import`: spans from files, or from another server.

use std::io::Read;
use std::path::{Path, PathBuf};

use clap::Args;
use faultscope_store::interop::{DecodeError, Decoded, Limits, SpanFormat, inflate, zipkin};
use faultscope_store::slices::{SpanStore, SpanStoreOptions};
use faultscope_store::{StoreError, StoreErrorKind};
use serde::Serialize;

use crate::error::CommandError;
use crate::exit::Exit;
use crate::printer::Printer;
use crate::project;

/// Spans that are stored together.
const BATCH: usize = 5000;

#[derive(Debug, Args)]
pub(crate) struct ImportArgs {
    /// The files; `-` reads standard input. Compressed ones (.gz) are taken too.
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// The application's folder or file.
    #[arg(long, value_name = "FOLDER", default_value = ".")]
    folder: PathBuf,
}

#[derive(Debug, Default, Serialize)]
struct Imported {
    spans: usize,
    rejected: usize,
    complaints: Vec<String>,
}

pub(crate) async fn run(args: ImportArgs, printer: &Printer) -> Result<Exit, CommandError> {
    let store = SpanStore::open(
        project::state_folder(&args.folder),
        SpanStoreOptions {
            secrets: project::secrets_of(&args.folder, printer),
            ..SpanStoreOptions::default()
        },
    );
    let store = store.map_err(in_use)?;
    let mut imported = Imported::default();
    for file in &args.files {
        let bytes = read(file)?;
        let decoded = decode(&bytes).map_err(|error| {
            CommandError::usage(format!("{} holds no spans that can be read", file.display())).because(error)
        })?;
        if let Some(complaint) = decoded.complaint() {
            imported.complaints.push(format!("{}: {complaint}", file.display()));
        }
        imported.rejected += decoded.n_rejected;
        imported.spans += decoded.items.len();
        let mut spans = decoded.items.into_iter().peekable();
        while spans.peek().is_some() {
            let batch: Vec<_> = spans.by_ref().take(BATCH).collect();
            let ack = store.put(batch).map_err(|e| CommandError::internal("the store").because(e))?;
            ack.committed().await?;
        }
    }
    if printer.json {
        printer.result(&imported)?;
    } else {
        for complaint in &imported.complaints {
            printer.warn(complaint);
        }
        printer.line(format!("{} spans imported, {} not taken", imported.spans, imported.rejected));
    }
    Ok(if imported.rejected == 0 { Exit::Done } else { Exit::Found })
}

fn in_use(error: StoreError) -> CommandError {
    let running = error.kind == StoreErrorKind::InUse;
    let error = CommandError::from(error);
    if running { error.hint("end `faultscope serve` first, or send the file to it") } else { error }
}

fn read(file: &Path) -> Result<Vec<u8>, CommandError> {
    let limit = limits().body_bytes as u64;
    let mut bytes = Vec::new();
    let outcome = if file.as_os_str() == "-" {
        std::io::stdin().take(limit + 1).read_to_end(&mut bytes)
    } else {
        std::fs::File::open(file).and_then(|file| file.take(limit + 1).read_to_end(&mut bytes))
    };
    outcome.map_err(|e| CommandError::usage(format!("cannot read {}", file.display())).because(e))?;
    Ok(bytes)
}

/// Files may be larger than what is taken over the network.
fn limits() -> Limits {
    Limits { body_bytes: 1 << 30, items: 10_000_000, ..Limits::default() }
}

/// Reads a file by what it looks like; its name says nothing that can be relied on.
fn decode(bytes: &[u8]) -> Result<Decoded, DecodeError> {
    let limits = limits();
    let encoding = bytes.starts_with(&[0x1f, 0x8b]).then_some("gzip");
    let bytes = inflate(bytes, encoding, &limits)?;
    let text = bytes.trim_ascii_start();
    match text.first() {
        None => Ok(Decoded::default()),
        Some(b'[') => json_list(text, &limits),
        Some(b'{') if looks_like_otlp(text) => SpanFormat::OtlpJson.decode(text, &limits),
        Some(b'{') => zipkin::v2_lines(text, &limits),
        // Thrift begins with the type of its elements, a struct; both protobufs with their first field.
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
        // Several lists, one on each line.
        Err(error) => zipkin::v2_lines(text, limits).map_err(|_| error),
        read => read,
    }
}

fn looks_like_otlp(text: &[u8]) -> bool {
    let head = String::from_utf8_lossy(text.get(..4096).unwrap_or(text)).into_owned();
    head.contains("\"resourceSpans\"") || head.contains("\"resource_spans\"")
}

/// Zipkin's and OTLP's lists both begin with field 1; only one of them makes sense.
fn protobuf(bytes: &[u8], limits: &Limits) -> Result<Decoded, DecodeError> {
    let sound = |decoded: &Decoded| !decoded.items.is_empty() && decoded.n_rejected == 0;
    let zipkin = SpanFormat::ZipkinV2Proto.decode(bytes, limits);
    if zipkin.as_ref().is_ok_and(sound) {
        return zipkin;
    }
    let otlp = SpanFormat::OtlpProto.decode(bytes, limits);
    if otlp.as_ref().is_ok_and(|decoded| !decoded.items.is_empty()) { otlp } else { zipkin }
}
