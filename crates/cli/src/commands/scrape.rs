//! `faultscope serve --scrape`: scrapes metrics of services as Prometheus does.

use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use faultscope_engine::scrape;
use faultscope_model::metrics::{Kind, Point, TimeSeries};
use faultscope_store::serve::Served;
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

use crate::now::now_us;
use crate::printer::Printer;

/// The time limit of one scrape.
const WITHIN: Duration = Duration::from_secs(10);

/// A target as typed: `http://host:port/path`, optionally followed by `=SERVICE`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ScrapeTarget {
    /// `host:port`.
    authority: String,
    path: String,
    service: String,
}

impl FromStr for ScrapeTarget {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let example = "write it like http://127.0.0.1:8080/metrics=order";
        let rest =
            text.strip_prefix("http://").ok_or_else(|| format!("it begins with http://; {example}"))?;
        let (url, service) = match rest.rsplit_once('=') {
            Some((url, service)) => (url, Some(service)),
            None if rest.contains('?') => {
                return Err(format!("with a query the service must be named; {example}"));
            }
            None => (rest, None),
        };
        let (host, path) = url.split_once('/').unwrap_or((url, "metrics"));
        let path = format!("/{path}");
        let authority = if host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok()) {
            host.to_owned()
        } else {
            format!("{host}:80")
        };
        let is_plain = |text: &str| !text.is_empty() && !text.contains(|c: char| c.is_control() || c == ' ');
        let service = service.unwrap_or(&authority).to_owned();
        if host.is_empty() || ![&authority, &path, &service].into_iter().all(|text| is_plain(text)) {
            return Err(example.to_owned());
        }
        Ok(Self { authority, path, service })
    }
}

/// Scrapes a target periodically until it is cancelled.
pub(super) async fn follow(
    target: ScrapeTarget,
    every: Duration,
    served: Arc<Served>,
    stop: CancellationToken,
    printer: Printer,
) {
    let mut silent = false;
    loop {
        let asked = tokio::time::timeout(WITHIN.min(every), target.scrape_once());
        let answer = tokio::select! {
            answer = asked => answer.unwrap_or_else(|_| Err("no answer in time".to_owned())),
            () = stop.cancelled() => return,
        };
        let is_up = answer.is_ok();
        match &answer {
            Ok(_) if silent => printer.talk(format!("{} exports its metrics again", target.service)),
            Err(reason) if !silent => {
                printer.warn(format!("cannot scrape the metrics of {}: {reason}", target.service));
            }
            _ => {}
        }
        silent = !is_up;
        let mut points = answer.unwrap_or_default();
        points.push(target.up(is_up));
        match served.store().put_points(points) {
            Ok(ack) => {
                if let Err(error) = ack.committed().await {
                    tracing::warn!(%error, cause = %error.source, "metrics could not be stored");
                }
            }
            Err(error) => tracing::warn!(%error, "metrics could not be stored"),
        }
        tokio::select! {
            () = tokio::time::sleep(every) => {}
            () = stop.cancelled() => return,
        }
    }
}

impl ScrapeTarget {
    async fn scrape_once(&self) -> Result<Vec<Point>, String> {
        let asking = async {
            let stream = TcpStream::connect(&self.authority).await?;
            scrape(stream, &self.authority, &self.path, (&self.service, &self.authority)).await
        };
        let batch = asking.await.map_err(|error| error.to_string())?;
        match batch.complaint() {
            Some(complaint) if batch.items.is_empty() => Err(complaint),
            Some(complaint) => {
                tracing::warn!(service = self.service, complaint, "some metrics cannot be read");
                Ok(batch.items)
            }
            None => Ok(batch.items),
        }
    }

    /// Whether the scrape succeeded, as Prometheus' metric `up`.
    fn up(&self, is_up: bool) -> Point {
        let about = vec![("service.instance.id".to_owned(), self.authority.clone())];
        let service = self.service.clone();
        let series =
            TimeSeries { name: "up".to_owned(), service, kind: Kind::Gauge, unit: String::new(), about };
        Point { series, at_us: now_us(), value: f64::from(u8::from(is_up)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_as_they_are_typed() {
        let read = |text: &str| text.parse::<ScrapeTarget>().map(|t| (t.authority, t.path, t.service));
        let target = |a: &str, p: &str, s: &str| Ok((a.to_owned(), p.to_owned(), s.to_owned()));
        assert_eq!(read("http://h:1/metrics=order"), target("h:1", "/metrics", "order"));
        assert_eq!(read("http://h:1"), target("h:1", "/metrics", "h:1"));
        assert_eq!(read("http://h/m"), target("h:80", "/m", "h:80"));
        assert_eq!(read("http://h:1/m?a=b=order"), target("h:1", "/m?a=b", "order"));
        for bad in ["h:1/metrics", "https://h/", "http://", "http://h:1/m?a", "http://h:1/m=", "http://h 1/"]
        {
            assert!(read(bad).is_err(), "{bad}");
        }
    }
}
