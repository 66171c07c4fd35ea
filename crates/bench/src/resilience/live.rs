//! The seeded defects of the booking sample with real services: what is found, and in how many trials compared with
//! trying one set after the other.

use std::path::Path;

use faultscope_model::units::show_duration;
use serde::Deserialize;

use crate::bench::{Host, Measured};
use crate::campaign::{Campaign, CampaignOptions, Perturbed, read_application};
use crate::error::BenchError;
use crate::figure::Figure;
use crate::part::scratch_folder;
use crate::report::Table;

/// A case and its expected defects, from `cases/booking/expected.yaml`.
#[derive(Debug, Deserialize)]
struct Case {
    case: String,
    file: String,
    #[serde(default)]
    defects: Vec<Vec<String>>,
}

/// Perturbs every case.
pub(super) async fn run(seed: u64, host: &Host<'_>, measured: &mut Measured) -> Result<(), BenchError> {
    let broken = |error: &dyn std::fmt::Display| {
        BenchError::environment("the sample cannot be written or read").because(error.to_string())
    };
    let folder = scratch_folder()?;
    (host.write_sample)(folder.path()).map_err(|e| broken(&e))?;
    let booking = folder.path().join("cases/booking");
    let expected = std::fs::read_to_string(booking.join("expected.yaml")).map_err(|e| broken(&e))?;
    let cases: Vec<Case> = serde_saphyr::from_str(&expected).map_err(|e| broken(&e))?;
    let mut table = Table::new(
        "Services: the booking cases, beside trying sets by size",
        ["case", "calls", "defects", "trials", "sets up to two", "time"],
    );
    let mut shares = Vec::new();
    let mut right = 0;
    for case in &cases {
        host.talk(format!("services: {}", case.case));
        let test = perturb(&booking.join(&case.file), seed, host).await?;
        if case.is_found_in(&test) {
            right += 1;
        } else {
            measured.notes.push(format!("wrong: {}: found {:?}", case.case, test.found));
        }
        shares.push(100.0 * test.trials as f64 / test.sets.max(1) as f64);
        table.rows.push(vec![
            case.case.clone(),
            test.calls.to_string(),
            test.defects.to_string(),
            test.trials.to_string(),
            test.sets.to_string(),
            show_duration(test.took),
        ]);
    }
    let largest = shares.iter().copied().fold(0.0, f64::max);
    measured.tables.push(table);
    measured.figures.extend([
        Figure::all_of("services: cases with exactly their defects", right, cases.len()),
        Figure::lower("services: trials beside sets by size, worst case", largest, "%")
            .goal(50.0)
            .spread(&shares),
    ]);
    Ok(())
}

async fn perturb(file: &Path, seed: u64, host: &Host<'_>) -> Result<Perturbed, BenchError> {
    let (application, root) = read_application(file)?;
    let options = CampaignOptions { slots: 2, seed };
    let (campaign, _) = Campaign::on_processes(host, application, &root, options).await?;
    let test = campaign.perturb().await;
    campaign.close_with(test).await
}

impl Case {
    fn is_found_in(&self, test: &Perturbed) -> bool {
        let mut wanted = self.defects.clone();
        wanted.sort();
        test.judged && test.found == wanted
    }
}
