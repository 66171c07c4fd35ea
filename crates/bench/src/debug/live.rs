//! The fault cases of the sample with real processes, compared with Table 3 of the paper.

use std::path::{Path, PathBuf};

use faultscope_model::compare::compare;
use faultscope_model::units::show_duration;
use serde::Deserialize;

use crate::bench::{Host, Measured};
use crate::campaign::{Campaign, CampaignOptions, Debugged, read_application};
use crate::error::BenchError;
use crate::figure::Figure;
use crate::part::scratch_folder;
use crate::report::Table;

/// How often each seeded case must be answered correctly.
const TIMES: usize = 3;

/// A case and its expected answer, from `cases/expected.yaml`.
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
pub(super) async fn run(seed: u64, host: &Host<'_>, measured: &mut Measured) -> Result<(), BenchError> {
    let folder = scratch_folder()?;
    (host.write_sample)(folder.path()).map_err(broken)?;
    let expected = std::fs::read_to_string(folder.path().join("cases/expected.yaml")).map_err(broken)?;
    let cases: Vec<Case> = serde_saphyr::from_str(&expected).map_err(broken)?;
    let mut table = Table::new(
        "Live, beside Table 3 (returned / created / scheduled / finished / minutes with 6 clusters)",
        ["case", "slots", "deltas", "returned", "scheduled", "finished", "time", "the paper's Table 3"],
    );
    for case in &cases {
        let slots: &[u16] = if case.table3.is_some() { &[1, 4] } else { &[2; TIMES] };
        let mut right = 0;
        for (turn, &slots) in slots.iter().enumerate() {
            host.talk(format!("live: {}, {slots} slots", case.case));
            let options = CampaignOptions { slots, seed: seed.wrapping_add(turn as u64) };
            let answer = debug(case, folder.path(), options, host).await?;
            if case.is_answered_by(&answer) {
                right += 1;
            } else {
                let note = format!("wrong: {}: {} {:?}", case.case, answer.summary, answer.causes);
                measured.notes.push(note);
            }
            table.rows.push(case.row(&answer, slots));
            measured.figures.extend(case.figures(&answer, slots));
        }
        measured.figures.push(Figure::all_of(format!("{}, right answers", case.case), right, slots.len()));
    }
    measured.tables.push(table);
    Ok(())
}

async fn debug(
    case: &Case,
    folder: &Path,
    options: CampaignOptions,
    host: &Host<'_>,
) -> Result<Debugged, BenchError> {
    let place = |file: &PathBuf| folder.join("cases").join(file);
    let (mut application, root) = read_application(&place(&case.file))?;
    if let Some(good) = &case.good {
        // Both sides of the sample are in one folder, so that their paths mean the same.
        let (good, _) = read_application(&place(good))?;
        application = compare(&good, &application).map_err(|e| broken(e.problem))?.application;
    }
    let (campaign, _) = Campaign::on_processes(host, application, &root, options).await?;
    // The paper's cases run all their tests, as the paper did.
    let answer = campaign.debug(case.all, case.table3.is_none()).await;
    campaign.close_with(answer).await
}

fn broken(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> BenchError {
    BenchError::environment("the sample cannot be written or read").because(error)
}

impl Case {
    fn is_answered_by(&self, answer: &Debugged) -> bool {
        if answer.verdict != self.verdict {
            return false;
        }
        let mut found = answer.causes.clone();
        if !self.all {
            return found.iter().all(|cause| self.causes.contains(cause)) && found.len() <= 1;
        }
        let mut wanted = self.causes.clone();
        found.sort();
        wanted.sort();
        found == wanted && answer.none_left
    }

    /// The figures that are compared with the paper and with goals.
    fn figures(&self, answer: &Debugged, slots: u16) -> Option<Figure> {
        let paper = self.table3;
        match slots {
            1 => {
                let name = format!("{}, one slot, finished trials", self.case);
                let figure = Figure::lower(name, answer.finished as f64, "trials").goal(self.most?);
                Some(match paper {
                    Some(paper) => figure.peer("paper", paper.finished as f64),
                    None => figure,
                })
            }
            4 => {
                let paper = paper?;
                let figure = Figure::lower(format!("{}, 4 slots", self.case), answer.took.as_secs_f64(), "s");
                Some(figure.goal(60.0).peer("paper", f64::from(paper.minutes) * 60.0))
            }
            _ => None,
        }
    }

    fn row(&self, answer: &Debugged, slots: u16) -> Vec<String> {
        let returned: usize = answer.causes.iter().map(Vec::len).sum();
        let paper = self.table3.map_or_else(String::new, |p| {
            format!("{} / {} / {} / {} / {} min", p.returned, p.created, p.scheduled, p.finished, p.minutes)
        });
        vec![
            self.case.clone(),
            slots.to_string(),
            answer.deltas.to_string(),
            returned.to_string(),
            (answer.finished + answer.cancelled).to_string(),
            answer.finished.to_string(),
            show_duration(answer.took),
            paper,
        ]
    }
}
