//! The report of every benchmark, as JSON and as text.

use std::fmt;

use serde::Serialize;

use crate::figure::{Direction, Figure, Verdict};
use crate::load::MachineLoad;

/// The report of a benchmark.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// The name of the benchmark.
    pub bench: String,
    /// Where and how it ran.
    pub environment: Environment,
    /// The load of the machine by other work.
    pub load: MachineLoad,
    /// The measured figures.
    pub figures: Vec<Figure>,
    /// Tables with more detail than single figures.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tables: Vec<Table>,
}

/// Where and how a benchmark ran.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Environment {
    /// The version of the tool.
    pub version: String,
    /// `release` or `debug`.
    pub profile: String,
    /// Operating system and kernel.
    pub system: String,
    /// Number of cores.
    pub cores: usize,
    /// The seed of everything random.
    pub seed: u64,
    /// What else is needed to read the figures.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

impl Environment {
    pub(crate) fn here(seed: u64, notes: Vec<String>) -> Self {
        let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        Self {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            profile: if cfg!(debug_assertions) { "debug" } else { "release" }.to_owned(),
            system: format!("{} {}", std::env::consts::OS, kernel.trim()),
            cores: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            seed,
            notes,
        }
    }
}

/// A table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Table {
    /// What it shows.
    pub title: String,
    /// Column names.
    pub head: Vec<String>,
    /// The rows.
    pub rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new<const COLUMNS: usize>(title: impl Into<String>, head: [&str; COLUMNS]) -> Self {
        Self { title: title.into(), head: head.map(str::to_owned).to_vec(), rows: Vec::new() }
    }
}

/// The conclusion from all figures; decides the exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Conclusion {
    /// No goal is missed; some may be ties or not compared.
    Reached,
    /// A goal is missed.
    Missed,
    /// Others used the machine so much that the figures are meaningless.
    Invalid,
}

impl Report {
    /// The conclusion from all figures.
    pub fn conclusion(&self) -> Conclusion {
        let is_missed = |figure: &Figure| matches!(figure.verdict, Verdict::Missed { .. });
        if !self.load.valid {
            Conclusion::Invalid
        } else if self.figures.iter().any(is_missed) {
            Conclusion::Missed
        } else {
            Conclusion::Reached
        }
    }

    fn summary(&self) -> String {
        let count =
            |test: &dyn Fn(&Verdict) -> bool| self.figures.iter().filter(|f| test(&f.verdict)).count();
        let parts = [
            (count(&|verdict| *verdict == Verdict::Met), "met"),
            (count(&|verdict| matches!(verdict, Verdict::Tie { .. })), "tie"),
            (count(&|verdict| matches!(verdict, Verdict::Missed { .. })), "missed"),
            (count(&|verdict| *verdict == Verdict::NotCompared), "not compared"),
        ];
        let goals: usize = parts.iter().map(|(count, _)| count).sum();
        let told: Vec<String> = parts
            .iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, word)| format!("{count} {word}"))
            .collect();
        format!("{goals} goals: {}", if told.is_empty() { "none stated".to_owned() } else { told.join(", ") })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Environment { system, cores, profile, seed, notes, .. } = &self.environment;
        writeln!(f, "bench {} on {system} with {cores} cores, {profile} build, seed {seed}", self.bench)?;
        let load = &self.load;
        let percent = |share: f64| format!("{:.0} %", 100.0 * share);
        writeln!(
            f,
            "load average {:.2} at the start, {:.2} at the end; others used {} of the CPU before and {} during the \
             run (figures are valid up to {})",
            load.average_at_start,
            load.average_at_end,
            percent(load.others_before),
            percent(load.others_during),
            percent(load.most_others),
        )?;
        let tolerant = self.figures.iter().map(|figure| figure.tolerance).fold(0.0, f64::max);
        if tolerant > 0.0 {
            writeln!(
                f,
                "goals marked ~ are ties when they are missed by no more than {}",
                percent(tolerant)
            )?;
        }
        let head = ["figure", "measured", "unit", "goal", "verdict", "min / median / max", "peer"];
        let rows: Vec<Vec<String>> = self.figures.iter().map(row).collect();
        writeln!(f, "{}", align(&head.map(str::to_owned), &rows))?;
        for Table { title, head, rows } in &self.tables {
            writeln!(f, "\n{title}\n{}", align(head, rows))?;
        }
        for note in notes {
            writeln!(f, "note: {note}")?;
        }
        write!(f, "{}", self.summary())?;
        if self.conclusion() == Conclusion::Invalid {
            write!(
                f,
                "\nINVALID: other processes used {} of the CPU during the run, more than {}; repeat it on a quiet machine",
                percent(load.others_during),
                percent(load.most_others)
            )?;
        }
        Ok(())
    }
}

fn row(figure: &Figure) -> Vec<String> {
    let sign = match figure.direction {
        Direction::Higher => ">=",
        Direction::Lower => "<=",
    };
    let tolerant = if figure.tolerance > 0.0 { "~" } else { "" };
    let name = match &figure.detail {
        Some(detail) => format!("{}; {detail}", figure.name),
        None => figure.name.clone(),
    };
    let spread = figure.spread.map(|spread| {
        let ends = [spread.min, spread.median, spread.max].map(number).join(" / ");
        format!("{ends} of {}", spread.repetitions)
    });
    let peer = figure.peer.as_ref().map(|peer| format!("{}: {}", peer.name, number(peer.measured)));
    vec![
        name,
        figure.measured.map(number).unwrap_or_default(),
        figure.unit.clone(),
        figure.goal.map(|goal| format!("{tolerant}{sign} {}", number(goal))).unwrap_or_default(),
        figure.verdict.to_string(),
        spread.unwrap_or_default(),
        peer.unwrap_or_default(),
    ]
}

fn number(value: f64) -> String {
    match value.abs() {
        v if v >= 1000.0 => format!("{value:.0}"),
        v if v >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// Columns as wide as their widest cell, two spaces between.
fn align(head: &[String], rows: &[Vec<String>]) -> String {
    let mut widths: Vec<usize> = head.iter().map(|cell| cell.chars().count()).collect();
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let line = |cells: &[String]| {
        let cells: Vec<String> =
            cells.iter().zip(&widths).map(|(cell, &width)| format!("{cell:<width$}")).collect();
        cells.join("  ").trim_end().to_owned()
    };
    std::iter::once(line(head)).chain(rows.iter().map(|row| line(row))).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(figures: Vec<Figure>, others: f64) -> Report {
        Report {
            bench: "test".into(),
            environment: Environment::here(7, vec!["a note".into()]),
            load: MachineLoad::new([0.5, 1.5], 0.01, others),
            figures,
            tables: vec![Table::new("A table", ["a", "long"])],
        }
    }

    fn lower(measured: f64) -> Figure {
        Figure::lower("time", measured, "s").goal(10.0).tolerance(0.1)
    }

    #[test]
    fn a_missed_goal_decides_and_a_tie_does_not() {
        assert_eq!(report(vec![lower(9.0), lower(10.5)], 0.0).conclusion(), Conclusion::Reached);
        assert_eq!(report(vec![lower(9.0), lower(12.0)], 0.0).conclusion(), Conclusion::Missed);
        let left_out = Figure::not_compared("x", "x", Direction::Higher, 1.5);
        assert_eq!(report(vec![left_out], 0.0).conclusion(), Conclusion::Reached);
    }

    #[test]
    fn load_makes_met_and_missed_goals_invalid_alike() {
        for measured in [9.0, 12.0] {
            let report = report(vec![lower(measured)], 0.5);
            assert_eq!(report.conclusion(), Conclusion::Invalid);
            assert!(report.to_string().contains("INVALID: other processes used 50 % of the CPU"), "{report}");
        }
    }

    #[test]
    fn text_states_seed_load_tolerance_and_verdicts() {
        let text = report(
            vec![
                lower(9.0).spread(&[8.0, 9.0, 9.5]),
                lower(10.5).peer("other", 11.0),
                lower(12.0),
                Figure::not_compared("against Envoy", "x", Direction::Higher, 1.5),
            ],
            0.02,
        )
        .to_string();
        for part in [
            "seed 7",
            "load average 0.50 at the start, 1.50 at the end",
            "others used 1 % of the CPU before and 2 % during the run (figures are valid up to 15 %)",
            "no more than 10 %",
            "~<= 10.0  met",
            "tie, 5.0 % off",
            "MISSED by 20 %",
            "8.00 / 9.00 / 9.50 of 3",
            "other: 11.0",
            "not compared",
            "note: a note",
            "4 goals: 1 met, 1 tie, 1 missed, 1 not compared",
        ] {
            assert!(text.contains(part), "`{part}` is not in\n{text}");
        }
    }

    #[test]
    fn json_has_what_was_measured_the_goal_the_direction_and_the_verdict() {
        let json = serde_json::to_value(report(vec![lower(10.5)], 0.0)).unwrap();
        let figure = &json["figures"][0];
        assert_eq!((&figure["measured"], &figure["goal"]), (&10.5.into(), &10.0.into()));
        assert_eq!((&figure["direction"], &figure["verdict"]["kind"]), (&"lower".into(), &"tie".into()));
        assert_eq!(json["load"]["valid"], true);
    }
}
