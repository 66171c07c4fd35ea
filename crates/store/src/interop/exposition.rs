//! Parses Prometheus' text format 0.0.4 and OpenMetrics 1.0.
//!
//! Lines are independent: a bad one is rejected, the others are kept. Histograms and
//! summaries get the names that those of OpenTelemetry get (`.count`, `.sum`, `.bucket`, `.p99`), so that both
//! can be queried in the same way.

use std::borrow::Cow;
use std::collections::HashMap;

use faultscope_model::metrics::{Kind, Point, TimeSeries};

use crate::interop::Batch;

/// The longest line that is parsed.
const LONGEST_LINE: usize = 64 << 10;
/// The most values of one scrape.
const MAX_SAMPLES: usize = 20_000;
/// The most labels of one value.
const MAX_LABELS: usize = 64;
/// The longest name or text of a label that is not cut.
const LONGEST_TEXT: usize = 1024;
/// The most families whose type is remembered.
const MAX_FAMILIES: usize = 10_000;
/// The label for the scraped instance.
const INSTANCE: &str = "service.instance.id";

/// What was scraped, and when.
#[derive(Debug, Clone, Copy)]
pub struct ScrapeSource<'t> {
    /// The service of the target.
    pub service: &'t str,
    /// The instance of the service.
    pub instance: &'t str,
    /// Time for values without a timestamp, in microseconds since 1970.
    pub at_us: u64,
    /// Whether the content type is OpenMetrics, whose timestamps are in seconds instead of milliseconds.
    pub open_metrics: bool,
}

/// The type of a family, from its `# TYPE` line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Type {
    Counter,
    Gauge,
    Histogram,
    Summary,
    Unknown,
}

#[derive(Default)]
struct Families<'a> {
    types: HashMap<&'a str, Type>,
    units: HashMap<&'a str, &'a str>,
}

/// A parsed line.
struct Line<'a> {
    name: Cow<'a, str>,
    labels: Vec<(Cow<'a, str>, Cow<'a, str>)>,
    value: f64,
    time: Option<f64>,
}

/// Parses a scrape, which may contain anything.
pub fn read_exposition(body: &[u8], asked: &ScrapeSource<'_>) -> Batch<Point> {
    let mut out = Batch::default();
    let mut families = Families::default();
    for (index, line) in body.split(|byte| *byte == b'\n').enumerate() {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.len() > LONGEST_LINE {
            out.reject(index, "the line is too long");
            continue;
        }
        let Ok(line) = std::str::from_utf8(line) else {
            out.reject(index, "the line is not text");
            continue;
        };
        let line = line.trim_matches([' ', '\t']);
        if let Some(comment) = line.strip_prefix('#') {
            if asked.open_metrics && comment.trim() == "EOF" {
                break;
            }
            families.note(comment);
        } else if !line.is_empty() {
            if out.items.len() >= MAX_SAMPLES {
                out.reject(index, "there are too many values");
                continue;
            }
            match (Scanner { rest: line }).line() {
                Ok(line) => out.items.extend(families.point(line, asked)),
                Err(reason) => out.reject(index, reason),
            }
        }
    }
    out
}

impl<'a> Families<'a> {
    /// Records `# TYPE` and `# UNIT`; other comments are ignored.
    fn note(&mut self, comment: &'a str) {
        let mut words = comment.split_ascii_whitespace();
        let (Some(what), Some(name), Some(value)) = (words.next(), words.next(), words.next()) else {
            return;
        };
        let name = name.trim_matches('"');
        if self.types.len().max(self.units.len()) >= MAX_FAMILIES {
            return;
        }
        match what {
            "TYPE" => {
                let kind = match value {
                    "counter" => Type::Counter,
                    "gauge" | "info" | "stateset" => Type::Gauge,
                    "histogram" | "gaugehistogram" => Type::Histogram,
                    "summary" => Type::Summary,
                    _ => Type::Unknown,
                };
                self.types.insert(name, kind);
            }
            "UNIT" => drop(self.units.insert(name, value)),
            _ => {}
        }
    }

    /// The point of a line; none if it is redundant.
    fn point(&self, line: Line<'_>, asked: &ScrapeSource<'_>) -> Option<Point> {
        let Line { name, mut labels, value, time } = line;
        let (family, suffix) = self.family(&name);
        let label = |labels: &[(Cow<'_, str>, Cow<'_, str>)], key: &str| {
            labels.iter().find(|(name, _)| name == key).map(|(_, value)| value.to_string())
        };
        let (name, kind) = match (self.types.get(family), suffix) {
            // The start of the counter; resets are visible in its values.
            (Some(Type::Counter | Type::Histogram | Type::Summary), "_created") => return None,
            (Some(Type::Histogram), "_bucket") => {
                // The last bucket contains all values, as `.count` says.
                if label(&labels, "le")
                    .is_some_and(|le| le.trim_start_matches('+').eq_ignore_ascii_case("inf"))
                {
                    return None;
                }
                (format!("{family}.bucket"), Kind::Counter)
            }
            (Some(Type::Histogram | Type::Summary), "_sum" | "_gsum") => {
                (format!("{family}.sum"), Kind::Counter)
            }
            (Some(Type::Histogram | Type::Summary), "_count" | "_gcount") => {
                (format!("{family}.count"), Kind::Counter)
            }
            (Some(Type::Summary), _) => {
                let quantile: f64 = label(&labels, "quantile")?.parse().ok()?;
                labels.retain(|(name, _)| name != "quantile");
                // Rounded to the decimal notation of quantiles.
                (format!("{family}.p{}", (quantile * 1e6).round() / 1e4), Kind::Gauge)
            }
            (Some(Type::Counter), _) => (name.to_string(), Kind::Counter),
            (Some(Type::Gauge), _) => (name.to_string(), Kind::Gauge),
            _ if name.ends_with("_total") => (name.to_string(), Kind::Counter),
            _ => (name.to_string(), Kind::Gauge),
        };
        let short = |text: &str| text.chars().take(LONGEST_TEXT).collect::<String>();
        let mut about: Vec<(String, String)> =
            labels.iter().filter(|(name, _)| name != INSTANCE).map(|(k, v)| (short(k), short(v))).collect();
        about.push((INSTANCE.to_owned(), asked.instance.to_owned()));
        about.sort();
        let per_second = if asked.open_metrics { 1e6 } else { 1e3 };
        let at_us = time.map(|time| time * per_second).filter(|us| *us >= 0.0 && us.is_finite());
        Some(Point {
            series: TimeSeries {
                name: short(&name),
                service: asked.service.to_owned(),
                kind,
                unit: self.unit(family).to_owned(),
                about,
            },
            at_us: at_us.map_or(asked.at_us, |us| us as u64),
            value,
        })
    }

    /// Splits a name into its family and suffix.
    fn family<'n>(&self, name: &'n str) -> (&'n str, &'n str) {
        const SUFFIXES: [&str; 7] = ["_bucket", "_sum", "_count", "_created", "_total", "_gsum", "_gcount"];
        if self.types.contains_key(name) {
            return (name, "");
        }
        let known = SUFFIXES.iter().find_map(|suffix| {
            let family = name.strip_suffix(suffix)?;
            self.types.contains_key(family).then(|| name.split_at(family.len()))
        });
        known.unwrap_or((name, ""))
    }

    /// The unit from its own line, or from the end of the name, as by convention.
    fn unit(&self, family: &str) -> &str {
        let named = self.units.get(family).copied().unwrap_or_else(|| {
            let base = family.strip_suffix("_total").unwrap_or(family);
            base.rsplit_once('_').map_or("", |(_, last)| last)
        });
        match named {
            "seconds" => "s",
            "bytes" => "By",
            _ => "",
        }
    }
}

struct Scanner<'a> {
    rest: &'a str,
}

impl<'a> Scanner<'a> {
    /// `name{label="text",...} value time # exemplar`, or `{"name",label="text"} value`.
    fn line(mut self) -> Result<Line<'a>, &'static str> {
        let end = self.rest.find(['{', ' ', '\t']).unwrap_or(self.rest.len());
        let (name, rest) = self.rest.split_at(end);
        self.rest = rest;
        let mut name = (!name.is_empty()).then_some(Cow::Borrowed(name));
        if name.as_deref().is_some_and(|name| !is_name(name)) {
            return Err("the name has a character that names cannot have");
        }
        let mut labels = Vec::new();
        self.skip_blanks();
        if self.take('{') {
            self.labels(&mut name, &mut labels)?;
        }
        let name = name.ok_or("there is no name")?;
        let numbers = self.rest.split('#').next().unwrap_or_default();
        let mut words = numbers.split_ascii_whitespace();
        let value = number(words.next().ok_or("there is no value")?).ok_or("the value is not a number")?;
        let time = words.next().map(|word| number(word).ok_or("the time is not a number")).transpose()?;
        if words.next().is_some() {
            return Err("there is something behind the time");
        }
        Ok(Line { name, labels, value, time })
    }

    fn labels(
        &mut self,
        name: &mut Option<Cow<'a, str>>,
        labels: &mut Vec<(Cow<'a, str>, Cow<'a, str>)>,
    ) -> Result<(), &'static str> {
        loop {
            self.skip_blanks();
            if self.take('}') {
                return Ok(());
            }
            let key = if self.rest.starts_with('"') {
                self.text()?
            } else {
                let end = self.rest.find(|c: char| !is_name_part(c)).unwrap_or(self.rest.len());
                let (key, rest) = self.rest.split_at(end);
                self.rest = rest;
                Cow::Borrowed(key)
            };
            self.skip_blanks();
            if self.take('=') {
                self.skip_blanks();
                let value = self.text()?;
                if key.is_empty() {
                    return Err("a label has no name");
                }
                if labels.len() >= MAX_LABELS {
                    return Err("there are too many labels");
                }
                labels.push((key, value));
            } else if name.is_none() && !key.is_empty() {
                // A name with arbitrary characters is quoted and among the labels.
                *name = Some(key);
            } else {
                return Err("a label has no text");
            }
            self.skip_blanks();
            if !self.take(',') && !self.rest.starts_with('}') {
                return Err("the labels do not end");
            }
        }
    }

    /// A quoted text with the escapes `\\`, `\"` and `\n`.
    fn text(&mut self) -> Result<Cow<'a, str>, &'static str> {
        if !self.take('"') {
            return Err("a label has no text");
        }
        let mut owned: Option<String> = None;
        let mut start = 0;
        let mut chars = self.rest.char_indices();
        while let Some((at, c)) = chars.next() {
            match c {
                '"' => {
                    let last = &self.rest[start..at];
                    self.rest = &self.rest[at + 1..];
                    return Ok(match owned {
                        Some(text) => Cow::Owned(text + last),
                        None => Cow::Borrowed(last),
                    });
                }
                '\\' => {
                    let (after, escaped) = chars.next().ok_or("a text does not end")?;
                    let text = owned.get_or_insert_default();
                    text.push_str(&self.rest[start..at]);
                    match escaped {
                        'n' => text.push('\n'),
                        '\\' | '"' => text.push(escaped),
                        // Undefined escapes are kept as they are.
                        other => text.extend(['\\', other]),
                    }
                    start = after + escaped.len_utf8();
                }
                _ => {}
            }
        }
        Err("a text does not end")
    }

    fn take(&mut self, wanted: char) -> bool {
        let rest = self.rest.strip_prefix(wanted);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn skip_blanks(&mut self) {
        self.rest = self.rest.trim_start_matches([' ', '\t']);
    }
}

fn is_name(name: &str) -> bool {
    name.chars().all(is_name_part) && !name.starts_with(|c: char| c.is_ascii_digit())
}

fn is_name_part(c: char) -> bool {
    // Dots are not allowed, but occur.
    c.is_ascii_alphanumeric() || matches!(c, '_' | ':' | '.')
}

fn number(word: &str) -> Option<f64> {
    // Rust parses `NaN`, `+Inf`, `inf` and `1e3` as Prometheus does.
    word.parse().ok()
}

#[cfg(test)]
mod tests;
