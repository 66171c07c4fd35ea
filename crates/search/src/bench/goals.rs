//! What the default search is to reach, and whether rows show it.

use super::{Row, Strategy};
use crate::simulate::Family;

/// A goal with its worst cell.
#[derive(Debug, Clone, PartialEq)]
pub struct Goal {
    /// What is to be reached.
    pub name: &'static str,
    /// How many cells count.
    pub cells: usize,
    /// Cells that miss it: name, value and limit, the worst first.
    pub missed: Vec<(String, f64, f64)>,
    /// The cell that is nearest to the limit or farthest beyond it.
    pub worst: Option<(String, f64, f64)>,
    /// What `ddmin-par` has in that cell.
    pub peer: Option<f64>,
    /// Whether the limit is the least that will do, not the most.
    pub at_least: bool,
}

/// Differences below this part are ties.
const TIE: f64 = 0.1;

impl Goal {
    /// Whether every cell reaches it or misses it by so little that it is a tie.
    pub fn is_met(&self) -> bool {
        self.ties() == self.missed.len()
    }

    /// How many cells miss it by so little that it is a tie.
    pub fn ties(&self) -> usize {
        let is_tie = |(_, value, limit): &&(String, f64, f64)| !self.at_least && value / limit - 1.0 < TIE;
        self.missed.iter().filter(is_tie).count()
    }
}

/// Judges the rows of the default search, some of them against those of `ddmin-par`. Goals without any
/// row are left out.
pub fn goals(rows: &[Row]) -> Vec<Goal> {
    let ours: Vec<&Row> = rows.iter().filter(|row| row.strategy == Strategy::Bayes).collect();
    let theirs = |row: &Row| rows.iter().find(|r| r.strategy == Strategy::DdminPar && r.matches(row));
    let mono = |row: &Row| row.family == Family::Mono;
    let ranked = |row: &Row| matches!(row.family, Family::Mono | Family::Paper);
    let unit = |row: &Row| row.durations == "unit";
    let small = |row: &Row| row.n <= 128 && row.k <= 4;
    let judge = |name, value: &dyn Fn(&Row) -> Option<(f64, f64)>| judge(name, &ours, &theirs, value);
    let mut goals = vec![
        judge("trials with one slot <= 1.2 L + k + 1 (k = 8: 1.4 L)", &|row| {
            let factor = if row.k > 4 { 1.4 } else { 1.2 };
            let limit = factor * row.bound() + row.k as f64 + 1.0;
            (mono(row) && unit(row) && row.slots == 1).then_some((row.trials, limit))
        }),
        judge("makespan <= 1.25 L/p + 2 (unit, n <= 128, k <= 4)", &|row| {
            let limit = 1.25 * row.bound() / row.slots as f64 + 2.0;
            (mono(row) && unit(row) && row.slots > 1 && small(row)).then_some((row.makespan, limit))
        }),
        judge("makespan <= 0.5 x ddmin-par (unit, elsewhere)", &|row| {
            let theirs = theirs(row)?;
            (mono(row) && unit(row) && row.slots > 1 && !small(row))
                .then_some((row.makespan, 0.5 * theirs.makespan))
        }),
        judge("not slower than ddmin-par (mono, paper)", &|row| {
            let theirs = theirs(row)?;
            ranked(row).then_some((row.makespan, theirs.makespan))
        }),
        judge("started <= 1.3 x finished (mono, paper)", &|row| {
            ranked(row).then_some((row.started, 1.3 * row.trials))
        }),
        judge("every answer 1-minimal", &|row| Some((1.0 - row.minimal, 1e-9))),
        judge("all disjoint causes found (multi)", &|row| {
            (row.family == Family::Multi).then_some((1.0 - row.exact, 1e-9))
        }),
    ];
    let pairs: Vec<f64> = ours
        .iter()
        .filter(|row| mono(row) && row.slots > 1)
        .filter_map(|row| theirs(row).map(|theirs| (theirs.makespan / row.makespan).ln()))
        .collect();
    if !pairs.is_empty() {
        let mean = (pairs.iter().sum::<f64>() / pairs.len() as f64).exp();
        let cell = ("all mono cells, p > 1".to_owned(), mean, 1.8);
        let missed = if mean < 1.8 { vec![cell.clone()] } else { Vec::new() };
        let name = ">= 1.8 x faster than ddmin-par in the geometric mean";
        let cells = pairs.len();
        goals.push(Goal { name, cells, missed, worst: Some(cell), peer: Some(1.0), at_least: true });
    }
    goals.retain(|goal| goal.cells > 0);
    goals
}

/// Judges each row by a value and its upper limit; rows without count not.
fn judge<'a>(
    name: &'static str,
    rows: &[&Row],
    theirs: &dyn Fn(&Row) -> Option<&'a Row>,
    value: &dyn Fn(&Row) -> Option<(f64, f64)>,
) -> Goal {
    let mut cells: Vec<(&Row, f64, f64)> = rows
        .iter()
        .filter_map(|&row| {
            let (value, limit) = value(row)?;
            Some((row, value, limit))
        })
        .collect();
    cells.sort_by(|a, b| (b.1 / b.2).total_cmp(&(a.1 / a.2)));
    let peer = cells.first().and_then(|(row, ..)| theirs(row)).and_then(value).map(|(value, _)| value);
    let named = |(row, value, limit): &(&Row, f64, f64)| {
        (format!("{} p{} {}", row.cell, row.slots, row.durations), *value, *limit)
    };
    let missed = cells.iter().filter(|(_, value, limit)| *value > limit + 1e-9).map(named).collect();
    Goal { name, cells: cells.len(), missed, worst: cells.first().map(named), peer, at_least: false }
}
