//! Causal graphs as SVG: layers from left to right, strong arrows thick.

use std::fmt::Write;

use faultscope_analysis::causal::{Arrow, CausalGraph, split_name};

use super::layout::lay_out;
use super::share_of;

/// Sizes in pixels.
const ROW: f64 = 42.0;
const BOX: f64 = 26.0;
const GAP: f64 = 96.0;
const MARGIN: f64 = 24.0;
const LETTER: f64 = 7.4;
/// Names are cut to this many characters.
const MAX_LETTERS: usize = 26;
/// Up to this many edges have labels; more would cover one another.
const MAX_LABELS: usize = 40;

/// Fill and outline of each metric, in turn; chosen to differ in lightness as well.
const COLORS: [(&str, &str); 6] = [
    ("#e3eefb", "#3f74b5"),
    ("#fdebd3", "#b8741a"),
    ("#e2f3e4", "#3b8a4b"),
    ("#f3e4f5", "#8a4b96"),
    ("#fbe3e3", "#b04545"),
    ("#eeeeea", "#77776c"),
];
/// Columns without a metric in their name: treatments.
const PLAIN: (&str, &str) = ("#ffffff", "#4a4a4a");

/// Draws a graph. With arrows, the thickness and the label of an edge are its share of the effect's variance.
pub fn draw_svg(graph: &CausalGraph, arrows: &[Arrow]) -> String {
    let layout = lay_out(graph);
    let shown: Vec<String> = graph.nodes().iter().map(|name| shorten(name)).collect();
    let mut widths = vec![0.0f64; layout.layers];
    for (name, &(layer, _)) in shown.iter().zip(&layout.nodes) {
        widths[layer] = widths[layer].max(name.chars().count() as f64 * LETTER + 22.0);
    }
    let mut lefts = vec![MARGIN; layout.layers];
    for layer in 1..layout.layers {
        lefts[layer] = lefts[layer - 1] + widths[layer - 1] + GAP;
    }
    let metrics = list_metrics(graph);
    let legend = if metrics.is_empty() { 0.0 } else { 34.0 };
    let width = lefts.last().zip(widths.last()).map_or(2.0 * MARGIN, |(left, width)| left + width + MARGIN);
    let width = width.max(MARGIN * 2.0 + metrics.len() as f64 * 90.0);
    let height = 2.0 * MARGIN + layout.rows * ROW + legend;
    let y = |row: f64| MARGIN + row * ROW + ROW / 2.0;
    let mut svg = String::new();
    let mut put = |line: String| {
        svg.push_str(&line);
        svg.push('\n');
    };
    put(format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" width=\"{width:.0}\" \
         height=\"{height:.0}\" font-family=\"system-ui, 'DejaVu Sans', sans-serif\" font-size=\"12.5\" role=\"img\">"
    ));
    put(format!(
        "<title>Causal graph of {} nodes and {} edges</title>",
        graph.nodes().len(),
        graph.edges().len()
    ));
    put(
        "<defs><marker id=\"tip\" viewBox=\"0 0 10 10\" refX=\"9\" refY=\"5\" markerWidth=\"9\" markerHeight=\"9\" \
         markerUnits=\"userSpaceOnUse\" orient=\"auto\"><path d=\"M0,0.8 L10,5 L0,9.2 L2.6,5 z\" fill=\"#5b6b7b\"/></marker></defs>"
            .to_owned(),
    );
    put(format!("<rect width=\"{width:.0}\" height=\"{height:.0}\" fill=\"#ffffff\"/>"));
    let mut labels = Vec::new();
    // Thin edges first, so that thick ones lie on top.
    let mut by_share: Vec<usize> = (0..graph.edges().len()).collect();
    let share = |at: usize| share_of(graph, arrows, &graph.edges()[at]);
    by_share.sort_by(|&a, &b| share(a).unwrap_or(0.0).total_cmp(&share(b).unwrap_or(0.0)));
    for at in by_share {
        let edge = &graph.edges()[at];
        let first = layout.nodes[edge.from].0;
        let route = &layout.routes[at];
        let mut path = String::new();
        let mut x = lefts[first] + box_width(&shown[edge.from]);
        let mut row = route[0];
        let _ = write!(path, "M{x:.1},{:.1}", y(row));
        for (step, &next) in route.iter().enumerate().skip(1) {
            let layer = first + step;
            let (from_y, to_y, left) = (y(row), y(next), lefts[layer]);
            // Straight along the rest of the layer it comes from, then bent within the gap.
            let gap_start = lefts[layer - 1] + widths[layer - 1];
            let _ = write!(path, " L{gap_start:.1},{from_y:.1}");
            let half = (left - gap_start) / 2.0;
            let end = if step + 1 == route.len() { left - 1.0 } else { left };
            let _ = write!(
                path,
                " C{:.1},{from_y:.1} {:.1},{to_y:.1} {end:.1},{to_y:.1}",
                gap_start + half,
                left - half
            );
            (x, row) = (gap_start, next);
        }
        let strength = share(at);
        let (thickness, opacity) = match strength {
            Some(share) => (1.0 + 3.5 * share.clamp(0.0, 1.0), 0.35 + 0.6 * share.clamp(0.0, 1.0)),
            None => (1.3, 0.7),
        };
        put(format!(
            "<path d=\"{path}\" fill=\"none\" stroke=\"#5b6b7b\" stroke-width=\"{thickness:.1}\" \
             stroke-opacity=\"{opacity:.2}\" marker-end=\"url(#tip)\"><title>{} to {}{}</title></path>",
            escape(&graph.nodes()[edge.from]),
            escape(&graph.nodes()[edge.to]),
            strength.map(|share| format!(": {:.0} %", 100.0 * share)).unwrap_or_default()
        ));
        if let Some(share) = strength.filter(|_| graph.edges().len() <= MAX_LABELS) {
            // Beside the tip, where edges are furthest apart from those to other nodes.
            let before = route[route.len().saturating_sub(2)];
            let lean = (y(row) - y(before)) * 0.12;
            labels.push((x + GAP * 0.62, y(row) - lean - 3.0, share));
        }
    }
    spread_labels(&mut labels);
    for (x, y, share) in labels {
        put(format!(
            "<text x=\"{x:.1}\" y=\"{y:.1}\" font-size=\"10\" fill=\"#33414f\" text-anchor=\"middle\" \
             stroke=\"#ffffff\" stroke-width=\"3\" paint-order=\"stroke\">{:.0} %</text>",
            100.0 * share
        ));
    }
    for (at, name) in shown.iter().enumerate() {
        let (layer, row) = layout.nodes[at];
        let (fill, line) = color_of(&graph.nodes()[at], &metrics);
        let (left, wide, middle) = (lefts[layer], box_width(name), y(row));
        put(format!(
            "<g><title>{}</title><rect x=\"{left:.1}\" y=\"{:.1}\" width=\"{wide:.1}\" height=\"{BOX}\" rx=\"7\" \
             fill=\"{fill}\" stroke=\"{line}\" stroke-width=\"1.2\"/><text x=\"{:.1}\" y=\"{:.1}\" \
             text-anchor=\"middle\" fill=\"#1d2733\">{}</text></g>",
            escape(&graph.nodes()[at]),
            middle - BOX / 2.0,
            left + wide / 2.0,
            middle + 4.4,
            escape(name)
        ));
    }
    for (at, metric) in metrics.iter().enumerate() {
        let (fill, line) = COLORS[at % COLORS.len()];
        let (x, y) = (MARGIN + 90.0 * at as f64, height - MARGIN - 4.0);
        put(format!(
            "<rect x=\"{x:.1}\" y=\"{:.1}\" width=\"14\" height=\"14\" rx=\"4\" fill=\"{fill}\" stroke=\"{line}\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" fill=\"#33414f\">{}</text>",
            y - 11.0,
            x + 20.0,
            y + 0.5,
            escape(&shorten(metric))
        ));
    }
    svg + "</svg>\n"
}

/// Moves labels that would cover one another down.
fn spread_labels(labels: &mut [(f64, f64, f64)]) {
    labels.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)));
    for at in 1..labels.len() {
        let (x, y, _) = labels[at - 1];
        if (labels[at].0 - x).abs() < 24.0 && labels[at].1 - y < 11.0 {
            labels[at].1 = y + 11.0;
        }
    }
}

fn box_width(name: &str) -> f64 {
    name.chars().count() as f64 * LETTER + 22.0
}

/// Metrics that at least two columns have in their names.
fn list_metrics(graph: &CausalGraph) -> Vec<String> {
    let mut metrics: Vec<(String, usize)> = Vec::new();
    for (metric, _) in graph.nodes().iter().filter_map(|name| split_name(name)) {
        match metrics.iter_mut().find(|(known, _)| known == metric) {
            Some((_, count)) => *count += 1,
            None => metrics.push((metric.to_owned(), 1)),
        }
    }
    metrics.into_iter().filter(|(_, count)| *count > 1).map(|(metric, _)| metric).take(COLORS.len()).collect()
}

fn color_of(name: &str, metrics: &[String]) -> (&'static str, &'static str) {
    let place = split_name(name).and_then(|(metric, _)| metrics.iter().position(|known| known == metric));
    place.map_or(PLAIN, |at| COLORS[at % COLORS.len()])
}

fn shorten(name: &str) -> String {
    match name.chars().count() > MAX_LETTERS {
        true => name.chars().take(MAX_LETTERS - 1).chain(['…']).collect(),
        false => name.to_owned(),
    }
}

fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            c if c.is_control() => safe.push(' '),
            c => safe.push(c),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;
    use faultscope_analysis::causal::Edge;

    #[test]
    fn pictures_are_well_formed_whatever_the_names() {
        let nodes = vec![
            "users".to_owned(),
            "RT_<s0>&\u{1}".to_owned(),
            "RT_a_name_that_is_far_too_long_to_be_shown".to_owned(),
        ];
        let edges = vec![Edge { from: 0, to: 1, weight: 2.0 }, Edge { from: 0, to: 2, weight: f64::NAN }];
        let graph = CausalGraph::new(nodes.clone(), edges).unwrap();
        let arrow = Arrow { from: nodes[0].clone(), to: nodes[1].clone(), share: 1.4 };
        let svg = draw_svg(&graph, &[arrow]);
        let document = roxmltree::Document::parse(&svg).unwrap();
        let texts: Vec<&str> = document
            .descendants()
            .filter(|node| node.has_tag_name("text"))
            .filter_map(|node| node.text())
            .collect();
        assert_eq!(texts, ["140 %", "users", "RT_<s0>& ", "RT_a_name_that_is_far_too…", "RT"]);
        let empty = CausalGraph::new(Vec::new(), Vec::new()).unwrap();
        roxmltree::Document::parse(&draw_svg(&empty, &[])).unwrap();
    }
}
