//! The goals of the default search on instances with known causes, and their verdicts.

use super::{Row, Strategy};
use crate::figure::{Direction, Figure};
use crate::simulate::Family;

/// A cell is a mean over a few instances, which varies by about this much from draw to draw (see
/// `agreement.rs`): a goal that a cell misses by no more is a tie.
pub const CELL_TOLERANCE: f64 = 0.1;

/// A cell with its value and goal.
struct Cell<'a> {
    row: &'a Row,
    measured: f64,
    goal: f64,
}

/// Judges the rows of the default search, some of them against those of `ddmin-par`: one figure for each goal, that
/// of its worst cell. Goals without any row are left out.
pub fn goals(rows: &[Row]) -> Vec<Figure> {
    let ours: Vec<&Row> = rows.iter().filter(|row| row.strategy == Strategy::Bayes).collect();
    let theirs = |row: &Row| rows.iter().find(|r| r.strategy == Strategy::DdminPar && r.matches(row));
    let mono = |row: &Row| row.family == Family::Mono;
    let ranked = |row: &Row| matches!(row.family, Family::Mono | Family::Paper);
    let unit = |row: &Row| row.durations == "unit";
    let small = |row: &Row| row.n <= 128 && row.k <= 4;
    let at_most = |name: &str, value: &dyn Fn(&Row) -> Option<(f64, f64)>| {
        let cells = select(&ours, value);
        let peer = |cell: &Cell<'_>| theirs(cell.row).and_then(value).map(|(measured, _)| measured);
        worst(name, cells, Direction::Lower, CELL_TOLERANCE, &peer)
    };
    let always = |name: &str, value: &dyn Fn(&Row) -> Option<f64>| {
        let cells = select(&ours, &|row| value(row).map(|share| (share, 1.0)));
        worst(name, cells, Direction::Higher, 0.0, &|_| None)
    };
    let figures = [
        at_most("trials with one slot <= 1.2 L + k + 1 (k = 8: 1.4 L)", &|row| {
            let factor = if row.k > 4 { 1.4 } else { 1.2 };
            let limit = factor * row.bound() + row.k as f64 + 1.0;
            (mono(row) && unit(row) && row.slots == 1).then_some((row.trials, limit))
        }),
        at_most("makespan <= 1.25 L/p + 2 (unit, n <= 128, k <= 4)", &|row| {
            let limit = 1.25 * row.bound() / row.slots as f64 + 2.0;
            (mono(row) && unit(row) && row.slots > 1 && small(row)).then_some((row.makespan, limit))
        }),
        at_most("makespan <= 0.5 x ddmin-par (unit, elsewhere)", &|row| {
            let theirs = theirs(row)?;
            (mono(row) && unit(row) && row.slots > 1 && !small(row))
                .then_some((row.makespan, 0.5 * theirs.makespan))
        }),
        at_most("not slower than ddmin-par (mono, paper)", &|row| {
            let theirs = theirs(row)?;
            ranked(row).then_some((row.makespan, theirs.makespan))
        }),
        at_most("started <= 1.3 x finished (mono, paper)", &|row| {
            ranked(row).then_some((row.started, 1.3 * row.trials))
        }),
        always("every answer 1-minimal", &|row| Some(row.minimal)),
        always("all disjoint causes found (multi)", &|row| {
            (row.family == Family::Multi).then_some(row.exact)
        }),
        faster(&ours, &theirs),
    ];
    figures.into_iter().flatten().collect()
}

/// The speed-up over `ddmin-par`, as the geometric mean over all mono cells with several slots.
fn faster<'a>(ours: &[&Row], theirs: &dyn Fn(&Row) -> Option<&'a Row>) -> Option<Figure> {
    let ratios: Vec<f64> = ours
        .iter()
        .filter(|row| row.family == Family::Mono && row.slots > 1)
        .filter_map(|row| theirs(row).map(|theirs| theirs.makespan / row.makespan))
        .collect();
    if ratios.is_empty() {
        return None;
    }
    let name = ">= 1.8 x faster than ddmin-par in the geometric mean (mono, p > 1)";
    let figure = Figure::higher(name, geometric_mean(&ratios), "x").spread(&ratios).goal(1.8);
    Some(figure.peer("ddmin-par", 1.0).detail(format!("over {} cells", ratios.len())))
}

/// The geometric mean; NaN of nothing.
pub(super) fn geometric_mean(ratios: &[f64]) -> f64 {
    (ratios.iter().map(|ratio| ratio.ln()).sum::<f64>() / ratios.len() as f64).exp()
}

fn select<'a>(rows: &[&'a Row], value: &dyn Fn(&Row) -> Option<(f64, f64)>) -> Vec<Cell<'a>> {
    rows.iter().filter_map(|&row| value(row).map(|(measured, goal)| Cell { row, measured, goal })).collect()
}

/// The figure of the cell that is closest to its goal or furthest beyond it. Since all cells have the same
/// tolerance, its verdict holds for all.
fn worst(
    name: &str,
    mut cells: Vec<Cell<'_>>,
    direction: Direction,
    tolerance: f64,
    peer: &dyn Fn(&Cell<'_>) -> Option<f64>,
) -> Option<Figure> {
    let beyond = |cell: &Cell<'_>| match direction {
        Direction::Lower => cell.measured / cell.goal,
        Direction::Higher => cell.goal - cell.measured,
    };
    cells.sort_by(|a, b| beyond(b).total_cmp(&beyond(a)));
    let first = cells.first()?;
    let judge = |cell: &Cell<'_>| {
        Figure::new(name, cell.measured, "", direction).goal(cell.goal).tolerance(tolerance)
    };
    let over = |cell: &&Cell<'_>| judge(cell).verdict != crate::figure::Verdict::Met;
    let missed = cells.iter().filter(over).count();
    let row = first.row;
    let beyond = if missed > 0 { format!(", {missed} beyond the goal") } else { String::new() };
    let detail = format!("worst of {}{beyond}: {} p{} {}", cells.len(), row.cell, row.slots, row.durations);
    let figure = judge(first).detail(detail);
    Some(match peer(first) {
        Some(peer) => figure.peer("ddmin-par", peer),
        None => figure,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::Verdict;

    fn row(strategy: Strategy, cell: &str, makespan: f64, started: f64) -> Row {
        Row {
            strategy,
            cell: cell.into(),
            family: Family::Mono,
            n: 15,
            k: 1,
            slots: 4,
            durations: "lognormal",
            instances: 20,
            trials: 10.0,
            most: 12,
            started,
            makespan,
            minimal: 1.0,
            exact: 1.0,
        }
    }

    fn figure(rows: &[Row], name: &str) -> Figure {
        goals(rows).into_iter().find(|figure| figure.name.starts_with(name)).unwrap()
    }

    #[test]
    fn one_cell_a_little_over_its_goal_makes_a_tie_and_not_a_met_goal() {
        let mut rows = vec![
            row(Strategy::DdminPar, "mono-15-1", 5.0, 10.0),
            row(Strategy::Bayes, "mono-15-1", 2.0, 13.5),
            row(Strategy::DdminPar, "mono-20-1", 5.0, 10.0),
            row(Strategy::Bayes, "mono-20-1", 2.0, 11.0),
        ];
        let tie = figure(&rows, "started");
        assert!(matches!(tie.verdict, Verdict::Tie { by } if (by - 0.5 / 13.0).abs() < 1e-9), "{tie:?}");
        assert_eq!(tie.detail.as_deref(), Some("worst of 2, 1 beyond the goal: mono-15-1 p4 lognormal"));
        rows[3].started = 20.0;
        let missed = figure(&rows, "started");
        assert!(matches!(missed.verdict, Verdict::Missed { .. }), "{missed:?}");
        assert_eq!(missed.peer.unwrap().measured, 10.0);
    }

    #[test]
    fn answers_must_all_be_minimal_without_any_tolerance() {
        let mut rows = vec![row(Strategy::Bayes, "mono-15-1", 2.0, 10.0)];
        assert_eq!(figure(&rows, "every answer").verdict, Verdict::Met);
        rows[0].minimal = 0.999;
        assert!(matches!(figure(&rows, "every answer").verdict, Verdict::Missed { .. }));
    }

    #[test]
    fn the_geometric_mean_is_over_pairs_of_the_same_cell() {
        let rows = vec![
            row(Strategy::DdminPar, "mono-15-1", 4.0, 10.0),
            row(Strategy::Bayes, "mono-15-1", 2.0, 10.0),
            row(Strategy::Bayes, "mono-20-1", 2.0, 10.0),
        ];
        let faster = figure(&rows, ">= 1.8");
        assert_eq!((faster.measured, faster.verdict), (Some(2.0), Verdict::Met));
    }
}
