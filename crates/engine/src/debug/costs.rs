//! What applying each delta takes, measured and remembered across campaigns.
//!
//! A trial's deployment takes what the simplest one takes and a part for each delta. Which delta took how
//! much is not seen directly, so every trial corrects the estimates of its deltas by an equal share of
//! what it took more or less than expected; over many trials with different sets this finds the parts.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use faultscope_model::{Run, Space};
use serde::{Deserialize, Serialize};

use crate::driver::SetRun;

/// How much of an error is corrected at once: less would forget too slowly, more would follow chance.
const PACE: f64 = 0.3;

/// The most deltas that are remembered for one application.
const MOST: usize = 20_000;

const FORMAT: u32 = 1;

/// What applying each delta of an application takes, in seconds by name.
#[derive(Debug, Clone, PartialEq)]
pub struct Costs {
    path: PathBuf,
    application: String,
    all: CostsFile,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct CostsFile {
    format: u32,
    applications: BTreeMap<String, BTreeMap<String, f64>>,
}

impl Costs {
    /// What is remembered in the tool's folder; nothing when there is no file or it cannot be read.
    pub fn load(state: &Path, application: &str) -> Self {
        let path = state.join("costs.json");
        let read = std::fs::read(&path).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
        let empty = CostsFile { format: FORMAT, applications: BTreeMap::new() };
        let all = read.filter(|file: &CostsFile| file.format == FORMAT).unwrap_or(empty);
        Self { path, application: application.to_owned(), all }
    }

    /// The same space with what is remembered.
    pub fn apply(&self, space: Space) -> Space {
        let Some(known) = self.all.applications.get(&self.application) else { return space };
        space.with_costs(|delta| {
            let seconds = known.get(&delta.name)?;
            Duration::try_from_secs_f64(*seconds).ok()
        })
    }

    /// Learns from what trials took beside the simplest one.
    pub(crate) fn learn<'r>(
        &mut self,
        space: &Space,
        simplest: &Run,
        runs: impl Iterator<Item = &'r SetRun>,
    ) {
        let base = simplest.cost.deploy.as_secs_f64();
        let known = self.all.applications.entry(self.application.clone()).or_default();
        // A deployment that did not come up took something else than its deltas.
        for SetRun { set, run } in runs.filter(|shown| !shown.run.cost.deploy.is_zero()) {
            let deltas: Vec<_> = set.iter().filter_map(|d| space.deltas.get(d)).collect();
            let estimate = |delta: &faultscope_model::space::Delta| {
                known.get(&delta.name).copied().unwrap_or(delta.cost.as_secs_f64())
            };
            let expected: f64 = deltas.iter().map(|delta| estimate(delta)).sum();
            let error = (run.cost.deploy.as_secs_f64() - base).max(0.0) - expected;
            let share = PACE * error / deltas.len().max(1) as f64;
            let corrected: Vec<_> =
                deltas.iter().map(|delta| (delta.name.clone(), (estimate(delta) + share).max(0.0))).collect();
            known.extend(corrected);
        }
        while known.len() > MOST {
            known.pop_first();
        }
    }

    /// Writes everything back. Losing it costs a little order among equals, so trouble is only logged.
    pub fn save(&self) {
        let written = serde_json::to_vec(&self.all).map_err(std::io::Error::other).and_then(|bytes| {
            // Whole or not at all, whoever else is writing.
            let new = self.path.with_extension(format!("json.{}", std::process::id()));
            std::fs::write(&new, bytes)?;
            std::fs::rename(&new, &self.path)
        });
        if let Err(error) = written {
            tracing::warn!(%error, path = %self.path.display(), "what deltas cost cannot be remembered");
        }
    }
}

#[cfg(test)]
mod tests {
    use faultscope_model::run::{Cost, Evidence};
    use faultscope_model::{Application, DeltaSet, Outcome, SlotId, TrialId};

    use super::*;

    const FILE: &str = "
name: shop
services: { a: { command: [a] }, b: { command: [b] }, c: { command: [c] } }
failing: { instances: { a: 2, b: 2, c: 2 } }
";

    fn run(space: &Space, set: DeltaSet, deploy: f64) -> SetRun {
        let run = Run {
            id: "a.1".parse().unwrap(),
            trial: TrialId::chosen(1),
            slot: SlotId(0),
            circumstance: space.circumstance(&set).unwrap(),
            treatment: space.treatment(&set),
            outcome: Outcome::Pass,
            evidence: Evidence::default(),
            started_us: 0,
            cost: Cost { deploy: Duration::from_secs_f64(deploy), ..Cost::default() },
            seed: 1,
            retries: 0,
            perturbed: None,
            question: None,
        };
        SetRun { set, run }
    }

    #[test]
    fn the_dear_delta_is_found_and_remembered() {
        let folder = tempfile::tempdir().unwrap();
        let space = Application::read_alone(FILE, "shop.yaml").unwrap().space().unwrap();
        let mut costs = Costs::load(folder.path(), "shop");
        assert_eq!(costs.apply(space.clone()), space, "nothing is known yet");
        let sets: [&[usize]; 4] = [&[0], &[0, 1], &[1, 2], &[0, 2]];
        let dear = |set: &[usize]| if set.contains(&2) { 3.0 } else { 1.0 };
        let simplest = run(&space, DeltaSet::new(), 1.0);
        for _ in 0..50 {
            let runs: Vec<SetRun> =
                sets.iter().map(|set| run(&space, set.iter().copied().collect(), dear(set))).collect();
            costs.learn(&space, &simplest.run, runs.iter());
        }
        costs.save();
        let known = Costs::load(folder.path(), "shop").apply(space.clone());
        let cost = |delta: usize| known.deltas[delta].cost.as_secs_f64();
        assert!((cost(2) - 2.0).abs() < 0.2, "{}", cost(2));
        assert!(cost(0) < 0.2 && cost(1) < 0.2, "{} {}", cost(0), cost(1));
        assert_eq!(Costs::load(folder.path(), "other").apply(space.clone()), space);
    }

    #[test]
    fn damaged_memory_is_no_memory() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("costs.json"), "{]").unwrap();
        let space = Application::read_alone(FILE, "shop.yaml").unwrap().space().unwrap();
        assert_eq!(Costs::load(folder.path(), "shop").apply(space.clone()), space);
    }
}
