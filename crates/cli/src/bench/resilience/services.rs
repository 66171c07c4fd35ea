//! The seeded defects of the booking sample with real services: what is found, and in how many trials beside
//! trying one set after the other.

use std::path::Path;
use std::sync::Arc;

use faultscope_engine::Session;
use faultscope_engine::resilience::{self, ResilienceOptions, TestReport, Verdict};
use faultscope_model::figures::{Figure, FigureTable};
use faultscope_model::perturbation::Perturbation;
use faultscope_model::units::show_duration;
use serde::Deserialize;

use crate::args::{PlatformChoice, Target};
use crate::bench::{BenchArgs, lower};
use crate::error::CommandError;
use crate::exit::Exit;
use crate::printer::Printer;
use crate::project::Project;
use crate::samples::{BOOKING, TICKETING};

/// A case and what must be found in it, as `cases/booking/expected.yaml` has it.
#[derive(Debug, Deserialize)]
struct Case {
    case: String,
    file: String,
    #[serde(default)]
    defects: Vec<Vec<String>>,
}

/// Perturbs every case.
pub(super) async fn run(
    args: &BenchArgs,
    printer: &Printer,
) -> Result<(Vec<Figure>, FigureTable), CommandError> {
    let broken = |error: &dyn std::fmt::Display| {
        CommandError::new(Exit::Environment, "the sample cannot be written").because(error.to_string())
    };
    let cases: Vec<Case> = serde_saphyr::from_str(BOOKING).map_err(|e| broken(&e))?;
    let folder = tempfile::tempdir().map_err(|e| broken(&e))?;
    TICKETING.write(folder.path()).map_err(|e| broken(&e))?;
    let mut table = FigureTable {
        title: "Services: the booking cases, beside trying sets by size".into(),
        head: ["case", "calls", "defects", "trials", "sets up to two", "time"].map(str::to_owned).to_vec(),
        rows: Vec::new(),
    };
    let (mut right, mut largest) = (0, 0.0f64);
    for case in &cases {
        printer.talk(format!("services: {}", case.case));
        let test = perturb(&folder.path().join("cases/booking").join(&case.file), args.seed, printer).await?;
        let is_right = case.is_found_in(&test);
        right += usize::from(is_right);
        if !is_right {
            printer.warn(format!("{}: found {:?}", case.case, found(&test)));
        }
        let trials = test.trials.all() - test.trials.baseline;
        let sets = test.candidates.values().sum::<usize>() + test.trials.changing + test.trials.pruned;
        largest = largest.max(100.0 * trials as f64 / sets.max(1) as f64);
        table.rows.push(vec![
            case.case.clone(),
            test.seen.to_string(),
            test.defects.len().to_string(),
            trials.to_string(),
            sets.to_string(),
            show_duration(test.took),
        ]);
    }
    let figures = vec![
        super::all_of("services: cases with exactly their defects", right, cases.len()),
        lower("services: trials beside sets by size, worst case", largest, "%", 50.0),
    ];
    Ok((figures, table))
}

async fn perturb(file: &Path, seed: u64, printer: &Printer) -> Result<TestReport, CommandError> {
    let target = Target::of(file.to_owned(), PlatformChoice::Process, None);
    let project = Project::of(&target, printer)?;
    let platform = project.platform(&target).await?;
    let mut options = project.session("bench", seed, None)?;
    options.slots = 2;
    let session = Arc::new(Session::open(project.application.clone(), platform, options).await?);
    let stop = crate::campaign::interrupted();
    let report = resilience::resilience(&session, &ResilienceOptions::default(), &stop).await;
    crate::campaign::close(session, "measured").await?;
    if stop.is_cancelled() {
        return Err(CommandError::new(Exit::Interrupted, "interrupted"));
    }
    report?.tests.into_iter().next().ok_or_else(|| CommandError::internal("a report without its test"))
}

impl Case {
    fn is_found_in(&self, test: &TestReport) -> bool {
        let mut wanted = self.defects.clone();
        wanted.sort();
        let verdict = if wanted.is_empty() { Verdict::Clean } else { Verdict::Defects };
        test.verdict == verdict && found(test) == wanted
    }
}

fn found(test: &TestReport) -> Vec<Vec<String>> {
    let names = |set: &Vec<Perturbation>| {
        let mut names: Vec<_> = set.iter().map(ToString::to_string).collect();
        names.sort();
        names
    };
    let sets =
        test.defects.iter().flat_map(|defect| std::iter::once(&defect.perturbations).chain(&defect.also));
    let mut found: Vec<_> = sets.map(names).collect();
    found.sort();
    found
}
