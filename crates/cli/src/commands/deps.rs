//! `faultscope deps`

use std::time::Duration;

use clap::Args;
use faultscope_engine::views::{self, group_by_caller, plain};
use faultscope_model::trace::CallEdge;
use faultscope_model::units::{count, nouns, show_duration};

use super::traces::open;
use crate::error::CommandError;
use crate::exit::Exit;
use crate::folder::FolderArg;
use crate::now::{now_us, parse_micros};
use crate::printer::Printer;

#[derive(Debug, Args)]
pub(crate) struct DepsArgs {
    #[command(flatten)]
    pub(crate) folder: FolderArg,
    /// How far to look back: `1h`, `24h`.
    #[arg(long, default_value = "24h", value_name = "DURATION")]
    pub(crate) since: String,
    /// Print a graph for Graphviz: `faultscope deps --dot | dot -Tsvg`.
    #[arg(long, conflicts_with = "json")]
    pub(crate) dot: bool,
}

pub(crate) fn run(args: &DepsArgs, printer: &Printer) -> Result<Exit, CommandError> {
    let edges = views::list_edges(&open(&args.folder)?, now_us(), parse_micros(&args.since)?)?;
    if printer.json {
        printer.result(&edges)?;
    } else if args.dot {
        printer.line(dot(&edges));
    } else if edges.is_empty() {
        printer.line("no calls between services were reported in this time");
        printer.talk(
            "a wider time: --since 720h; `faultscope test` or `up` record calls, `serve` takes spans in",
        );
    } else {
        picture(&edges, printer);
    }
    Ok(Exit::Done)
}

/// One block for each caller, services that nobody calls first.
fn picture(edges: &[CallEdge], printer: &Printer) {
    let widest = edges.iter().map(|edge| plain(&edge.child).chars().count()).max().unwrap_or_default();
    for group in group_by_caller(edges) {
        printer.line(printer.strong(&plain(group.caller)));
        let last = group.edges.len().saturating_sub(1);
        for (index, edge) in group.edges.into_iter().enumerate() {
            let branch = if index == last { "└─▶" } else { "├─▶" };
            let time = |us: Option<u64>| {
                us.map_or_else(|| "-".into(), |us| show_duration(Duration::from_micros(us)))
            };
            let errors = match edge.error_count {
                0 => String::new(),
                n => printer.bad(&format!("  {} ({:.1} %)", count(n, "error"), edge.error_share * 100.0)),
            };
            printer.line(format!(
                " {branch} {:<widest$}  {:>7} {:<5}  {:>8}/s  p50 {:>7}  p99 {:>7}{errors}",
                plain(&edge.child),
                edge.call_count,
                nouns(&edge.call_count, "call"),
                rate(edge.calls_per_second),
                time(edge.p50_us),
                time(edge.p99_us),
            ));
        }
    }
}

fn rate(per_second: f64) -> String {
    if per_second >= 10.0 { format!("{per_second:.0}") } else { format!("{per_second:.2}") }
}

fn dot(edges: &[CallEdge]) -> String {
    let quoted = |name: &str| format!("\"{}\"", plain(name).replace('\\', "\\\\").replace('"', "\\\""));
    let mut text = "digraph dependencies {\n  rankdir=LR;\n  node [shape=box];\n".to_owned();
    for edge in edges {
        let errors = match edge.error_count {
            0 => String::new(),
            n => format!("\\n{}", count(n, "error")),
        };
        let colour = if edge.error_count == 0 { "" } else { ", color=red" };
        text += &format!(
            "  {} -> {} [label=\"{}\\n{}/s{errors}\"{colour}];\n",
            quoted(&edge.parent),
            quoted(&edge.child),
            count(edge.call_count, "call"),
            rate(edge.calls_per_second),
        );
    }
    text + "}"
}
