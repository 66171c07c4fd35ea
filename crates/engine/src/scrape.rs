//! Scrapes metrics as Prometheus does: one GET, one bounded response.

use std::io;

use bytes::Bytes;
use faultscope_model::metrics::Point;
use faultscope_store::interop::Batch;
use faultscope_store::interop::{ScrapeSource, read_exposition};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::Request;
use hyper::header::{ACCEPT, CONNECTION, CONTENT_TYPE, HOST};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use crate::session::now_us;

/// The largest response that is read.
const ANSWER_LIMIT: usize = 8 << 20;

/// The plain format first, since every exporter supports it.
const FORMATS: &str = "text/plain;version=0.0.4,application/openmetrics-text;version=1.0.0;q=0.5";

/// Scrapes the metrics of an instance over a connection.
pub async fn scrape(
    stream: TcpStream,
    host: &str,
    path: &str,
    (service, instance): (&str, &str),
) -> io::Result<Batch<Point>> {
    let request = Request::get(path)
        .header(HOST, host)
        .header(ACCEPT, FORMATS)
        .header(CONNECTION, "close")
        .body(Empty::<Bytes>::new())
        .map_err(io::Error::other)?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
    let at_us = now_us();
    let exchange = async {
        let response = sender.send_request(request).await.map_err(io::Error::other)?;
        if !response.status().is_success() {
            return Err(io::Error::other(format!("it answers with status {}", response.status().as_u16())));
        }
        let kind = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let open_metrics = kind.is_some_and(|kind| kind.starts_with("application/openmetrics-text"));
        let body = Limited::new(response.into_body(), ANSWER_LIMIT).collect().await;
        Ok((body.map_err(io::Error::other)?.to_bytes(), open_metrics))
    };
    // The connection lives as long as the request: both are polled here, and dropped together.
    tokio::pin!(connection, exchange);
    let (body, open_metrics) = tokio::select! {
        answer = &mut exchange => answer?,
        ended = &mut connection => {
            ended.map_err(io::Error::other)?;
            exchange.await?
        }
    };
    Ok(read_exposition(&body, &ScrapeSource { service, instance, at_us, open_metrics }))
}
