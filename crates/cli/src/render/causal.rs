//! Causal graphs, models and answers as text.

use faultscope_analysis::causal::{
    Arrow, Caution, Discovery, DropReason, Explanation, Intervention, Limit, Method, Setting, Shape,
};
use faultscope_engine::causal::FitReport;
use faultscope_engine::views::plain;
use faultscope_model::units::count;

use super::spark::{number, sparkline};
use super::table::Table;
use crate::printer::Printer;

/// Names that are listed before the rest is counted.
const LISTED: usize = 6;

pub(crate) fn print_discovery(discovery: &Discovery, skipped_rows: usize, printer: &Printer) {
    let graph = &discovery.graph;
    printer.line(printer.strong(&format!(
        "{} between {} in {} ({})",
        count(graph.edges().len(), "edge"),
        count(graph.nodes().len(), "column"),
        count(discovery.rows, "row"),
        method_name(discovery.method)
    )));
    let mut table = Table::new(&["cause", "effect", "weight"]);
    for edge in graph.edges() {
        let [from, to] = [edge.from, edge.to].map(|at| plain(&graph.nodes()[at]));
        table.row([from, to, number(edge.weight)]);
    }
    if !graph.edges().is_empty() {
        printer.line(table);
    }
    print_doubts(discovery, skipped_rows, printer);
}

pub(crate) fn print_fit(report: &FitReport, printer: &Printer) {
    let edges = count(report.arrows.len(), "edge");
    let (nodes, rows) = (count(report.nodes.len(), "node"), count(report.rows, "row"));
    printer.line(printer.strong(&format!("model of {nodes} and {edges} from {rows}")));
    let mut table =
        Table::new(&["node", "mechanism", "explained", "causes, with their share of its variance"]);
    for node in &report.nodes {
        let mut arrows: Vec<&Arrow> = report.arrows.iter().filter(|arrow| arrow.to == node.node).collect();
        arrows.sort_by(|a, b| b.share.total_cmp(&a.share));
        let causes = arrows.iter().map(|arrow| format!("{} {}", plain(&arrow.from), percent(arrow.share)));
        table.row([
            plain(&node.node),
            node.shape.map_or("root", shape_name).to_owned(),
            node.explained.map(percent).unwrap_or_default(),
            causes.collect::<Vec<_>>().join(", "),
        ]);
    }
    printer.line(table);
    if !report.cut.is_empty() {
        let cut = report.cut.iter().map(|arrow| {
            format!("{} -> {} ({})", plain(&arrow.from), plain(&arrow.to), percent(arrow.share))
        });
        printer.line(format!("cut as weak: {}", list(&cut.collect::<Vec<_>>())));
    }
    match &report.discovery {
        Some(discovery) => print_doubts(discovery, report.skipped_rows, printer),
        None => print_skipped(report.skipped_rows, printer),
    }
}

pub(crate) fn print_intervention(answer: &Intervention, printer: &Printer) {
    printer.line(printer.strong(&match answer.set.is_empty() {
        true => "nothing set".to_owned(),
        false => format!("do {}", show_settings(&answer.set)),
    }));
    let mut table = Table::new(&["column", "mean", "90 % of models", "90 % of observations"]);
    for prediction in &answer.predictions {
        let range = |[low, high]: [f64; 2]| format!("{} to {}", number(low), number(high));
        table.row([
            plain(&prediction.node),
            number(prediction.mean),
            range(prediction.mean_interval),
            range(prediction.observation_interval),
        ]);
    }
    printer.line(table);
    if !answer.beyond_data.is_empty() {
        let names: Vec<String> = answer.beyond_data.iter().map(|name| plain(name)).collect();
        printer.warn(format!("{} set beyond what was observed: the answer extrapolates", list(&names)));
    }
}

pub(crate) fn print_limit(limit: &Limit, last: f64, printer: &Printer) {
    let (node, column, threshold) = (plain(&limit.node), plain(&limit.column), number(limit.threshold));
    let end = |end: Option<f64>| end.map_or_else(|| format!("more than {}", number(last)), number);
    let [low, high] = limit.interval.map(end);
    printer.line(printer.strong(&match limit.limit {
        Some(at) => {
            format!("{node} exceeds {threshold} from {column} = {} (90 %: {low} to {high})", number(at))
        }
        None => {
            format!("{node} does not exceed {threshold} up to {column} = {} (90 %: from {low})", number(last))
        }
    }));
    let points: Vec<(u64, f64)> = (0u64..).zip(&limit.curve).map(|(at, point)| (at, point.mean)).collect();
    if let (Some(first), Some(final_point)) = (limit.curve.first(), limit.curve.last()) {
        let line = sparkline(&points, 0, points.len().saturating_sub(1) as u64);
        printer.line(format!(
            "  {} at {}  {line}  {} at {}",
            number(first.mean),
            number(first.level),
            number(final_point.mean),
            number(final_point.level)
        ));
    }
    if let Some(observed) =
        limit.observed_up_to.filter(|observed| limit.limit.is_none_or(|at| at > *observed))
    {
        printer.warn(format!(
            "{column} was observed up to {} only: beyond, the model extrapolates",
            number(observed)
        ));
    }
}

pub(crate) fn print_explanation(answer: &Explanation, printer: &Printer) {
    let target = plain(&answer.target);
    printer.line(printer.strong(&match &answer.change {
        Some(change) => format!(
            "{target}: {} at {}, {} at {}",
            number(change.before),
            show_settings(&change.from),
            number(change.after),
            show_settings(&change.to)
        ),
        None => format!("{target}: observed variance"),
    }));
    if !answer.own_shares.is_empty() {
        let mut table = Table::new(&["adds itself", "service", "share"]);
        for own in &answer.own_shares {
            let service = own.service.as_deref().map(plain).unwrap_or_default();
            table.row([plain(&own.node), service, percent(own.share)]);
        }
        printer.line(table);
    }
    if answer.paths.is_empty() {
        printer.line("nothing in the model influences it");
        return;
    }
    printer.line(printer.strong("paths"));
    for path in &answer.paths {
        let nodes: Vec<String> = path.nodes.iter().map(|node| plain(node)).collect();
        printer.line(format!("  {:>5}  {}", percent(path.share), nodes.join(" -> ")));
    }
}

fn print_doubts(discovery: &Discovery, skipped_rows: usize, printer: &Printer) {
    for dropped in &discovery.dropped {
        let column = plain(&dropped.column);
        printer.line(match &dropped.reason {
            DropReason::Constant { value } => format!("left out: {column} is always {}", number(*value)),
            DropReason::Collinear { with } => {
                let with: Vec<String> = with.iter().map(|name| plain(name)).collect();
                format!("left out: {column} is a combination of {}", list(&with))
            }
        });
    }
    for caution in &discovery.cautions {
        printer.line(format!("caution: {}", describe_caution(caution)));
    }
    print_skipped(skipped_rows, printer);
}

fn print_skipped(rows: usize, printer: &Printer) {
    if rows > 0 {
        printer.line(format!("left out: {} without a value", count(rows, "row")));
    }
}

fn describe_caution(caution: &Caution) -> String {
    match caution {
        Caution::NormalNoise { columns } => {
            let names: Vec<String> = columns.iter().map(|name| plain(name)).collect();
            format!("the noise of {} looks normal, so directions between them are arbitrary", list(&names))
        }
        Caution::CommonCause { first, second, correlation } => format!(
            "{} and {} share noise (correlation {correlation:.2}): something unmeasured may influence both",
            plain(first),
            plain(second)
        ),
        Caution::Standardized => {
            "this method depends on the scale of the columns, which were standardised; direct-lingam does not"
                .into()
        }
        Caution::BrokenCycles { threshold } => {
            format!("edges up to a weight of {threshold:.2} were removed to break cycles")
        }
        Caution::Unsettled => "the optimiser used up its iterations before it settled".into(),
    }
}

fn method_name(method: Method) -> &'static str {
    match method {
        Method::DirectLingam => "direct-lingam",
        Method::DagmaLinear => "dagma-linear",
        Method::DagmaMlp => "dagma-mlp",
        Method::DagGnn => "dag-gnn",
    }
}

fn shape_name(shape: Shape) -> &'static str {
    match shape {
        Shape::Linear => "linear",
        Shape::Polynomial => "polynomial",
        Shape::Queueing => "queueing",
        Shape::Boosted => "boosted",
    }
}

fn show_settings(settings: &[Setting]) -> String {
    let each =
        settings.iter().map(|setting| format!("{} = {}", plain(&setting.column), number(setting.value)));
    each.collect::<Vec<_>>().join(", ")
}

fn percent(share: f64) -> String {
    format!("{:.0} %", 100.0 * share)
}

fn list(names: &[String]) -> String {
    let shown = names.iter().take(LISTED).cloned().collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(LISTED) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}
