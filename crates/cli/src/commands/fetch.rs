//! `faultscope fetch`: one HTTP request, for tests on machines without curl.

use bytes::Bytes;
use faultscope_model::units;
use http_body_util::{BodyExt, Full, Limited};
use hyper::{Request, Uri};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use tokio::net::TcpStream;

use crate::args::FetchArgs;
use crate::error::CommandError;
use crate::exit::Exit;
use crate::printer::Printer;

/// The largest response that is read.
const ANSWER_LIMIT: usize = 16 << 20;

#[derive(Debug, Serialize)]
struct Answer {
    status: u16,
    headers: Vec<(String, String)>,
    body: String,
}

pub(crate) async fn run(args: FetchArgs, printer: &Printer) -> Result<Exit, CommandError> {
    let within = units::parse_duration(&args.within).map_err(|e| CommandError::usage(e.to_string()))?;
    let failed =
        |e: String| CommandError::new(Exit::Found, format!("{} {}", args.method, args.url)).because(e);
    let answer = match tokio::time::timeout(within, send(&args)).await {
        Ok(answer) => answer.map_err(failed)?,
        Err(_) => return Err(failed("no answer in time".to_owned())),
    };
    let exit = if answer.status >= 400 { Exit::Found } else { Exit::Done };
    if printer.json {
        printer.result(&answer)?;
    } else {
        printer.line(&answer.body);
        if exit == Exit::Found {
            printer.talk(format!("status {}", answer.status));
        }
    }
    Ok(exit)
}

async fn send(args: &FetchArgs) -> Result<Answer, String> {
    let uri: Uri = args.url.parse().map_err(|e| format!("`{}` is not a URL: {e}", args.url))?;
    if uri.scheme_str() != Some("http") {
        return Err("only http URLs can be fetched".into());
    }
    let host = uri.host().ok_or("the URL has no host")?;
    let port = uri.port_u16().unwrap_or(80);
    let stream =
        TcpStream::connect((host.trim_matches(['[', ']']), port)).await.map_err(|e| e.to_string())?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(|e| e.to_string())?;
    let connection = tokio::spawn(connection);
    let path = uri.path_and_query().map_or("/", |p| p.as_str());
    let authority = uri.authority().map_or_else(|| host.to_owned(), ToString::to_string);
    let mut request = Request::builder().method(args.method.as_str()).uri(path).header("host", authority);
    for header in &args.headers {
        let (name, value) =
            header.split_once(':').ok_or_else(|| format!("`{header}` is not `name: value`"))?;
        request = request.header(name.trim(), value.trim());
    }
    let body = Full::new(Bytes::from(args.data.clone().unwrap_or_default()));
    let request = request.body(body).map_err(|e| e.to_string())?;
    let response = sender.send_request(request).await.map_err(|e| e.to_string())?;
    let status = response.status().as_u16();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let headers = response.headers().iter().map(|(n, v)| (n.to_string(), text(v.as_bytes()))).collect();
    let body = Limited::new(response.into_body(), ANSWER_LIMIT).collect().await.map_err(|e| e.to_string())?;
    connection.abort();
    Ok(Answer { status, headers, body: text(&body.to_bytes()) })
}
