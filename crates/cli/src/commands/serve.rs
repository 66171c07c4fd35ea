//! `faultscope serve`

use std::io::Read as _;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use faultscope_model::units::{self, ByteSize, count};
use faultscope_store::serve::{
    Access, ConnectionLimits, Connections, Forward, ForwardCounts, ForwardOptions, ServeOptions, Served,
    otlp_router, router, serve,
};
use faultscope_store::spans::{SpanRetention, SpanStore, SpanStoreOptions};
use hyper::header::HeaderName;
use serde::Serialize;
use tokio::net::TcpListener;
use tokio::task::{JoinHandle, JoinSet};

use super::scrape::{self, ScrapeTarget};
use crate::error::CommandError;
use crate::exit::Exit;
use crate::folder::FolderArg;
use crate::printer::Printer;
use crate::project;

/// How long open requests may take to end at shutdown.
const DRAIN: Duration = Duration::from_secs(10);
/// Shorter tokens can be guessed.
const MIN_TOKEN: usize = 16;
/// No header can hold more.
const MAX_TOKEN_FILE: u64 = 4096;
/// The shortest scrape interval.
const MAX_OFTEN: Duration = Duration::from_millis(100);

#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    pub(crate) folder: FolderArg,
    /// Address for Zipkin and Jaeger clients.
    #[arg(long, default_value = "127.0.0.1:9411", value_name = "ADDRESS")]
    pub(crate) listen: SocketAddr,
    /// Address for OTLP over HTTP; `off` for none.
    #[arg(long, default_value = "127.0.0.1:4318", value_name = "ADDRESS")]
    pub(crate) otlp: String,
    /// Address for OTLP over gRPC; `off` for none.
    #[arg(long, default_value = "127.0.0.1:4317", value_name = "ADDRESS")]
    pub(crate) grpc: String,
    /// File with the token that requests must send as `Authorization: Bearer`; required on addresses other than
    /// loopback. `FAULTSCOPE_TOKEN` may hold it instead. Other users can read command lines, so it is not an option.
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// Also allow pages of this origin to send requests; repeat for several.
    #[arg(long = "allow-origin", value_name = "ORIGIN")]
    pub(crate) origins: Vec<String>,
    /// Remove the oldest spans until all fit into this size.
    #[arg(long, default_value = "20GiB", value_name = "SIZE")]
    pub(crate) keep_bytes: ByteSize,
    /// Remove spans that are older than this: `24h`, `168h`.
    #[arg(long, value_name = "DURATION")]
    pub(crate) keep_for: Option<String>,
    /// Treat a 64-bit trace id as equal to a 128-bit one with the same lower half.
    #[arg(long)]
    pub(crate) loose_ids: bool,
    /// Offer the values of this tag for autocompletion; repeat for several.
    #[arg(long = "autocomplete", value_name = "TAG")]
    pub(crate) tag_values: Vec<String>,
    /// Scrape metrics in Prometheus' text format here; repeat for several. The service may follow:
    /// `http://127.0.0.1:8080/metrics=order`.
    #[arg(long, value_name = "URL")]
    pub(crate) scrape: Vec<ScrapeTarget>,
    /// Scrape interval.
    #[arg(long, default_value = "15s", value_name = "DURATION")]
    pub(crate) scrape_every: String,
    /// Forward spans to another collector by OTLP: `http://host:4318` or `grpc://host:4317`.
    ///
    /// Senders never wait for it: what it cannot accept in time is dropped and counted in /metrics.
    #[arg(long, value_name = "URL")]
    pub(crate) forward: Option<String>,
    /// A header for that collector, such as `Authorization: Bearer ...`; repeat for several.
    #[arg(long = "forward-header", value_name = "NAME: VALUE", requires = "forward")]
    pub(crate) forward_headers: Vec<String>,
    /// The most spans that may wait for that collector.
    #[arg(long, default_value_t = 100_000, value_name = "SPANS", requires = "forward")]
    pub(crate) forward_queue: u64,
    /// Stop after this time.
    #[arg(long = "for", value_name = "DURATION")]
    pub(crate) duration: Option<String>,
}

#[derive(Debug, Serialize)]
struct Listening {
    zipkin: String,
    otlp: Option<String>,
    grpc: Option<String>,
}

pub(crate) async fn run(args: ServeArgs, printer: &Printer) -> Result<Exit, CommandError> {
    let duration = |text: &Option<String>| text.as_deref().map(units::parse_duration).transpose();
    let wrong = |e: units::InvalidUnit| CommandError::usage(e.to_string());
    let (within, most_age) =
        (duration(&args.duration).map_err(wrong)?, duration(&args.keep_for).map_err(wrong)?);
    let every = units::parse_duration(&args.scrape_every).map_err(wrong)?;
    if every < MAX_OFTEN {
        return Err(
            CommandError::usage("metrics are asked for every 100ms at most").hint("--scrape-every 15s")
        );
    }
    let (otlp, grpc) = (address("--otlp", &args.otlp)?, address("--grpc", &args.grpc)?);
    let token = read_token(args.token_file.as_deref())?;
    for address in [Some(args.listen), otlp, grpc].into_iter().flatten() {
        check(address.ip(), token.is_some(), printer)?;
    }
    let forward = forward(&args, printer)?;
    // Ports are bound before anything is written: a port in use is an error of the command line.
    let listener = bind(args.listen, "--listen").await?;
    let otlp = bind_any(otlp, "--otlp").await?;
    let grpc = bind_any(grpc, "--grpc").await?;
    let store = SpanStore::open(
        project::state_folder(&args.folder),
        SpanStoreOptions {
            retention: SpanRetention { most_bytes: Some(args.keep_bytes.0), most_age },
            tag_values: args.tag_values.clone(),
            secrets: project::secrets_of(&args.folder, printer),
            ..SpanStoreOptions::default()
        },
    )?;
    let options = ServeOptions {
        strict: !args.loose_ids,
        tag_values: args.tag_values,
        access: Access { token, origins: args.origins },
        forward: forward.clone(),
        ..ServeOptions::default()
    };
    let served = Served::new(store, options);
    let shown = |listener: &TcpListener| listener.local_addr().map(|a| format!("http://{a}"));
    let unknown = |e: std::io::Error| CommandError::internal("a socket has no address").because(e);
    let listening = Listening {
        zipkin: shown(&listener).map_err(unknown)?,
        otlp: otlp.as_ref().map(shown).transpose().map_err(unknown)?,
        grpc: grpc.as_ref().map(shown).transpose().map_err(unknown)?,
    };
    let stop = crate::campaign::interrupted();
    let mut servers = JoinSet::new();
    let connections = Connections::new(ConnectionLimits::default());
    let (all, collector) = (router(&served), otlp_router(&served));
    for (listener, routes) in [(Some(listener), all), (otlp, collector.clone()), (grpc, collector)] {
        let Some(listener) = listener else { continue };
        let stop = stop.clone();
        servers.spawn(serve(listener, routes, Arc::clone(&connections), stop.cancelled_owned()));
    }
    let handing_on = forward.clone().map(|forward| tokio::spawn(async move { forward.run().await }));
    print_addresses(&listening, printer)?;
    let mut scrapers = JoinSet::new();
    for target in args.scrape {
        scrapers.spawn(scrape::follow(target, every, Arc::clone(&served), stop.clone(), printer.clone()));
    }
    match within {
        None => stop.cancelled().await,
        Some(within) => {
            let _ = tokio::time::timeout(within, stop.cancelled()).await;
            stop.cancel();
        }
    }
    let drained = async { while servers.join_next().await.is_some() {} };
    if tokio::time::timeout(DRAIN, drained).await.is_err() {
        printer.warn("some requests did not end in time and were cut off");
        servers.shutdown().await;
    }
    scrapers.shutdown().await;
    if let (Some(forward), Some(handing_on)) = (forward, handing_on) {
        finish(&forward, handing_on, printer).await;
    }
    close(served, printer).await;
    Ok(Exit::Done)
}

/// Parses the options of the forwarding collector.
fn forward(args: &ServeArgs, printer: &Printer) -> Result<Option<Arc<Forward>>, CommandError> {
    let Some(url) = &args.forward else { return Ok(None) };
    let mut options = ForwardOptions::to(url).map_err(|why| {
        CommandError::usage(format!("`{url}` {why}"))
            .hint("--forward http://127.0.0.1:4318 or --forward grpc://127.0.0.1:4317")
    })?;
    for header in &args.forward_headers {
        let wrong = || CommandError::usage(format!("`{header}` is not a header")).hint("NAME: VALUE");
        let (name, value) = header.split_once(':').ok_or_else(wrong)?;
        let name: HeaderName = name.trim().parse().map_err(|_| wrong())?;
        options.headers.append(name, value.trim().parse().map_err(|_| wrong())?);
    }
    options.queued_spans = args.forward_queue;
    options.secrets = project::secrets_of(&args.folder, printer).rules;
    Ok(Some(Forward::new(options)))
}

/// Forwards what still waits, for a limited time, and prints the totals.
async fn finish(forward: &Forward, handing_on: JoinHandle<()>, printer: &Printer) {
    forward.close();
    let ending = handing_on.abort_handle();
    if tokio::time::timeout(DRAIN, handing_on).await.is_err() {
        ending.abort();
    }
    let ForwardCounts { sent, dropped, waiting, .. } = forward.counts();
    printer.talk(format!("{} forwarded", count(sent, "span")));
    if dropped + waiting > 0 {
        printer.warn(format!("{} not forwarded, but stored here", count(dropped + waiting, "span")));
    }
}

fn print_addresses(listening: &Listening, printer: &Printer) -> Result<(), CommandError> {
    if printer.json {
        return printer.result(listening);
    }
    printer.line(format!("Zipkin and Jaeger clients: {}", listening.zipkin));
    if let Some(otlp) = &listening.otlp {
        printer.line(format!("OTLP over HTTP:            {otlp}"));
    }
    if let Some(grpc) = &listening.grpc {
        printer.line(format!("OTLP over gRPC:            {grpc}"));
    }
    printer.talk("Ctrl-C ends it; what was acknowledged is kept");
    Ok(())
}

/// Parses an address; none for `off`.
fn address(option: &str, text: &str) -> Result<Option<SocketAddr>, CommandError> {
    if text == "off" {
        return Ok(None);
    }
    let wrong = |_| {
        CommandError::usage(format!("`{text}` is not an address"))
            .hint(format!("{option} 127.0.0.1:4318 or {option} off"))
    };
    text.parse().map(Some).map_err(wrong)
}

async fn bind_any(address: Option<SocketAddr>, option: &str) -> Result<Option<TcpListener>, CommandError> {
    match address {
        Some(address) => bind(address, option).await.map(Some),
        None => Ok(None),
    }
}

/// Requires a token on addresses that other machines can reach.
fn check(ip: IpAddr, has_token: bool, printer: &Printer) -> Result<(), CommandError> {
    if ip.is_loopback() {
        return Ok(());
    }
    if !has_token {
        return Err(CommandError::usage(format!(
            "{ip} can be reached from other machines, so a token is needed"
        ))
        .hint("--token-file or FAULTSCOPE_TOKEN; senders give it as `Authorization: Bearer ...`"));
    }
    printer.warn(format!(
        "{ip} can be reached from other machines: whoever has the token reads and writes spans, and nothing is \
         encrypted on the way"
    ));
    Ok(())
}

/// The token from its file or the environment. It must not be one that can be guessed, or one that no header can hold.
fn read_token(file: Option<&Path>) -> Result<Option<String>, CommandError> {
    let variable = std::env::var_os("FAULTSCOPE_TOKEN").filter(|token| !token.is_empty());
    let token = match (file, variable) {
        (None, None) => return Ok(None),
        (Some(_), Some(_)) => {
            return Err(CommandError::usage("there are two tokens: --token-file and FAULTSCOPE_TOKEN"));
        }
        (Some(file), None) => read_token_file(file).map_err(|e| {
            CommandError::usage(format!("cannot read the token in {}", file.display())).because(e)
        })?,
        (None, Some(token)) => token.to_string_lossy().into_owned(),
    };
    let token = token.trim_end_matches(['\r', '\n']);
    if token.len() < MIN_TOKEN || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        let problem = "the token is not at least 16 printable characters without spaces";
        return Err(CommandError::usage(problem).hint("`head -c 24 /dev/urandom | base64` makes a good one"));
    }
    Ok(Some(token.to_owned()))
}

fn read_token_file(file: &Path) -> std::io::Result<String> {
    if !std::fs::metadata(file)?.is_file() {
        return Err(std::io::Error::other("it is no regular file"));
    }
    let mut token = String::new();
    std::fs::File::open(file)?.take(MAX_TOKEN_FILE).read_to_string(&mut token)?;
    Ok(token)
}

async fn bind(address: SocketAddr, option: &str) -> Result<TcpListener, CommandError> {
    TcpListener::bind(address).await.map_err(|e| {
        let taken = e.kind() == std::io::ErrorKind::AddrInUse;
        let error = CommandError::new(Exit::Environment, format!("cannot listen on {address}")).because(e);
        if taken {
            error.hint(format!("something else listens there; {option} takes another address"))
        } else {
            error
        }
    })
}

/// Writes what is still queued and prints the totals.
async fn close(served: Arc<Served>, printer: &Printer) {
    let closing = tokio::task::spawn_blocking(move || {
        let counts = served.store().counts();
        // Dropping the last owner ends the writer, which commits what is queued.
        drop(served);
        counts
    });
    let Ok(counts) = closing.await else { return };
    printer.talk(format!("{} and {} kept", count(counts.stored, "span"), count(counts.points, "point")));
    if counts.refused + counts.lost > 0 {
        let message = "spans refused while too many waited, and";
        printer.warn(format!("{} {message} {} could not be written", counts.refused, counts.lost));
    }
}
