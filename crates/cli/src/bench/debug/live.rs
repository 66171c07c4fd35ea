//! The fault cases of the sample with real processes, beside Table 3 of the paper.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use faultscope_engine::Session;
use faultscope_engine::debug::{self, DebugOptions, DebugReport};
use faultscope_model::figures::{Better, Figure, FigureTable};
use faultscope_model::units::show_duration;
use serde::Deserialize;

use super::broken;
use crate::args::{PlatformChoice, Target};
use crate::bench::BenchArgs;
use crate::error::CommandError;
use crate::exit::Exit;
use crate::printer::Printer;
use crate::project::Project;
use crate::samples::{EXPECTED, TICKETING};

/// How often each seeded case must be answered rightly.
const TIMES: usize = 3;

/// A case and what must be answered for it, as `cases/expected.yaml` has it.
#[derive(Debug, Deserialize)]
struct Case {
    case: String,
    file: PathBuf,
    good: Option<PathBuf>,
    #[serde(default)]
    all: bool,
    #[serde(default = "reduced")]
    verdict: String,
    #[serde(default)]
    causes: Vec<Vec<String>>,
    most: Option<f64>,
    table3: Option<Table3>,
}

/// The paper's figures (Table 3).
#[derive(Debug, Clone, Copy, Deserialize)]
struct Table3 {
    returned: usize,
    created: usize,
    scheduled: usize,
    finished: usize,
    minutes: u32,
}

fn reduced() -> String {
    "reduced".into()
}

/// Debugs every case: those of the paper with one slot and with four, the others several times.
pub(super) async fn run(
    args: &BenchArgs,
    printer: &Printer,
) -> Result<(Vec<Figure>, Vec<FigureTable>), CommandError> {
    let cases: Vec<Case> = serde_saphyr::from_str(EXPECTED).map_err(broken)?;
    let folder = tempfile::tempdir().map_err(broken)?;
    TICKETING.write(folder.path()).map_err(broken)?;
    let mut figures = Vec::new();
    let head =
        ["case", "slots", "deltas", "returned", "scheduled", "finished", "time", "the paper's Table 3"];
    let mut table = FigureTable {
        title: "Live, beside Table 3 (returned / created / scheduled / finished / minutes with 6 clusters)"
            .into(),
        head: head.map(str::to_owned).to_vec(),
        rows: Vec::new(),
    };
    for case in &cases {
        let slots: &[u16] = if case.table3.is_some() { &[1, 4] } else { &[2; TIMES] };
        let mut right = 0;
        for (turn, &slots) in slots.iter().enumerate() {
            let seed = args.seed.wrapping_add(turn as u64);
            printer.talk(format!("live: {}, {slots} slots", case.case));
            let report = debug(case, folder.path(), (slots, seed), printer).await?;
            let answer = case.is_answered_by(&report);
            right += usize::from(answer);
            if !answer {
                printer.warn(format!("{}: {}", case.case, told(&report)));
            }
            table.rows.push(case.row(&report, slots));
            if let (1, Some(most)) = (slots, case.most) {
                let finished = report.trials.finished as f64;
                let mut figure = super::super::lower(
                    &format!("{}, one slot, finished trials", case.case),
                    finished,
                    "trials",
                    most,
                );
                if let Some(paper) = case.table3 {
                    figure = figure.peer("paper", paper.finished as f64);
                }
                figures.push(figure);
            }
            if let (4, Some(paper)) = (slots, case.table3) {
                let name = format!("{}, 4 slots", case.case);
                let took = report.took.as_secs_f64();
                figures.push(
                    super::super::lower(&name, took, "s", 60.0)
                        .peer("paper", f64::from(paper.minutes) * 60.0),
                );
            }
        }
        let name = format!("{}, right answers", case.case);
        let wanted = slots.len();
        let figure = Figure::new(name, right as f64, &format!("of {wanted}"), Better::Higher);
        figures.push(figure.goal(wanted as f64));
    }
    Ok((figures, vec![table]))
}

async fn debug(
    case: &Case,
    folder: &Path,
    (slots, seed): (u16, u64),
    printer: &Printer,
) -> Result<DebugReport, CommandError> {
    let place = |file: &PathBuf| folder.join("cases").join(file);
    let mut target = Target::of(place(&case.file), PlatformChoice::Process, None);
    if let Some(good) = &case.good {
        (target.comparison.good, target.comparison.bad) = (vec![place(good)], vec![place(&case.file)]);
    }
    let project = Project::of(&target, printer)?;
    let platform = project.platform(&target).await?;
    let mut options = project.session("bench", seed, None)?;
    options.slots = slots;
    let session = Arc::new(Session::open(project.application.clone(), platform, options).await?);
    // The paper's cases run all their tests, as the paper's did.
    let chosen =
        DebugOptions { all: case.all, only_failing_test: case.table3.is_none(), ..DebugOptions::default() };
    let stop = crate::campaign::interrupted();
    let report = debug::debug(&session, &chosen, &stop).await;
    crate::campaign::close(session, "measured").await?;
    let report = report?;
    if stop.is_cancelled() {
        return Err(CommandError::new(Exit::Interrupted, "interrupted"));
    }
    Ok(report)
}

impl Case {
    fn is_answered_by(&self, report: &DebugReport) -> bool {
        let verdict = serde_json::to_value(&report.verdict).unwrap_or_default();
        if verdict["kind"] != self.verdict.as_str() {
            return false;
        }
        let mut found = causes(report);
        if !self.all {
            return found.iter().all(|cause| self.causes.contains(cause)) && found.len() <= 1;
        }
        let mut wanted = self.causes.clone();
        found.sort();
        wanted.sort();
        found == wanted && report.none_left
    }

    fn row(&self, report: &DebugReport, slots: u16) -> Vec<String> {
        let returned: usize = report.causes.iter().map(|cause| cause.deltas.len()).sum();
        let paper = self.table3.map_or_else(String::new, |p| {
            format!("{} / {} / {} / {} / {} min", p.returned, p.created, p.scheduled, p.finished, p.minutes)
        });
        let trials = &report.trials;
        vec![
            self.case.clone(),
            slots.to_string(),
            report.deltas.to_string(),
            returned.to_string(),
            (trials.finished + trials.cancelled).to_string(),
            trials.finished.to_string(),
            show_duration(report.took),
            paper,
        ]
    }
}

/// The causes by the names of their deltas.
fn causes(report: &DebugReport) -> Vec<Vec<String>> {
    let named = |cause: &debug::FoundCause| {
        let mut names: Vec<_> = cause.deltas.iter().map(|delta| delta.name.clone()).collect();
        names.sort();
        names
    };
    report.causes.iter().map(named).collect()
}

fn told(report: &DebugReport) -> String {
    format!("{} {:?}", report.summary(), causes(report))
}
