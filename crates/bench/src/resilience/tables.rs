//! Rows as figures beside goals, and as tables beside the paper's.

use super::{Paper, Row, Strategy, TABLE_1, Variant};
use crate::figure::Figure;
use crate::report::Table;

/// What the paper has for a system, when it is one of its own.
fn paper_of(row: &Row) -> Option<Paper> {
    TABLE_1.get(row.system).copied().filter(|paper| paper.perturbations == row.perturbations)
}

/// Table 1 as figures: how far the paper's strategies are from its cells, and what the default needs.
pub(super) fn paper(name: &str, rows: &[Row]) -> Vec<Figure> {
    let mut figures = Vec::new();
    for (strategy, within) in [(Strategy::RtDd, 1.0), (Strategy::RtDdO, 2.0)] {
        let off = rows.iter().filter(|row| row.strategy == strategy).filter_map(|row| {
            let paper = paper_of(row)?.of(strategy)?;
            Some((row.mean - f64::from(paper)).abs())
        });
        if let Some(worst) = off.reduce(f64::max) {
            let what = format!("{name}: {strategy}, farthest of all cells from the paper's mean");
            figures.push(Figure::lower(what, worst, "trials").goal(within));
        }
    }
    figures.extend(default(name, rows, Variant::Paper));
    figures
}

/// The harder variants as figures.
pub(super) fn harder(name: &str, rows: &[Row]) -> Vec<Figure> {
    Variant::ALL.into_iter().skip(1).flat_map(|variant| default(name, rows, variant)).collect()
}

/// What the default needs in the worst system, beside RT-DD-O there, and how often it is wrong.
fn default(name: &str, rows: &[Row], variant: Variant) -> Vec<Figure> {
    let of = |strategy: Strategy| {
        rows.iter().filter(move |row| (row.variant, row.strategy) == (variant, strategy))
    };
    let Some(worst) = of(Strategy::Default).max_by(|a, b| a.mean.total_cmp(&b.mean)) else {
        return Vec::new();
    };
    let told = match variant {
        Variant::Paper => "failing actor known".to_owned(),
        other => other.to_string(),
    };
    let what = format!("{name}: {told}, mean trials in the worst of {}", of(Strategy::Default).count());
    let means: Vec<f64> = of(Strategy::Default).map(|row| row.mean).collect();
    let mut trials = Figure::lower(what, worst.mean, "trials").goal(variant.goal()).spread(&means);
    let peer = of(Strategy::RtDdO).map(|row| row.mean).reduce(f64::max);
    if let Some(peer) = peer {
        trials = trials.peer("rt-dd-o", peer);
    }
    let wrong = of(Strategy::Default).map(|row| 100.0 * (1.0 - row.right)).fold(0.0, f64::max);
    vec![trials, Figure::lower(format!("{name}: {told}, missed or wrong"), wrong, "%").goal(0.0)]
}

/// Table 1: mean and median of every strategy beside the paper's mean.
pub(super) fn table_1(name: &str, rows: &[Row]) -> Table {
    let mut head = vec!["perturbations".to_owned()];
    for strategy in Strategy::ALL {
        let short = if strategy == Strategy::Default { "default" } else { strategy.name() };
        head.push(format!("{short} mean / median"));
        if strategy != Strategy::Default {
            head.push("paper".into());
        }
    }
    let mut table = Table {
        title: format!(
            "Table 1, {name}: trials until the defect is found (in brackets: random searches stopped as in the paper)"
        ),
        head,
        rows: Vec::new(),
    };
    for group in rows.chunk_by(|a, b| a.system == b.system) {
        let mut line = vec![format!("{} {}", group[0].perturbations, group[0].kind)];
        for row in group {
            let stopped = if row.stopped > 0 { format!(" ({})", row.stopped) } else { String::new() };
            line.push(format!("{:.1} / {:.1}{stopped}", row.mean, row.median));
            if row.strategy != Strategy::Default {
                let paper = paper_of(row).and_then(|paper| paper.of(row.strategy));
                line.push(paper.map_or(String::new(), |mean| mean.to_string()));
            }
        }
        table.rows.push(line);
    }
    table
}

/// The harder variants: the mean of the default, and where the paper's can do it that of RT-DD-O.
pub(super) fn variants(name: &str, rows: &[Row]) -> Table {
    let mut table = Table {
        title: format!("Harder variants, {name}: mean trials of the default (rt-dd-o)"),
        head: std::iter::once("perturbations".to_owned())
            .chain(Variant::ALL.iter().skip(1).map(ToString::to_string))
            .collect(),
        rows: Vec::new(),
    };
    for group in rows.chunk_by(|a, b| a.system == b.system) {
        let mut line = vec![format!("{} {}", group[0].perturbations, group[0].kind)];
        for variant in Variant::ALL.into_iter().skip(1) {
            let mean = |strategy: Strategy| {
                group.iter().find(|r| (r.variant, r.strategy) == (variant, strategy)).map(|r| r.mean)
            };
            line.push(match (mean(Strategy::Default), mean(Strategy::RtDdO)) {
                (Some(own), Some(theirs)) => format!("{own:.1} ({theirs:.1})"),
                (Some(own), None) => format!("{own:.1}"),
                // A lost counter is seen nowhere else, so that sinks tell nothing of it.
                (None, _) => String::new(),
            });
        }
        table.rows.push(line);
    }
    table
}
