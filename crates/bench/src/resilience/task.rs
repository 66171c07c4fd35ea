//! Runs searches one after the other, and sums up what they needed.

use faultscope_model::perturbation::{Kind, Perturbation};
use faultscope_model::{DeltaSet, Outcome};
use faultscope_search::resilience::Clues;
use serde::{Deserialize, Serialize};

use super::{Strategy, Variant};
use crate::random::{Random, mix};
use crate::resilience::simulate::{Asserted, Defects, Explored, Mutant, explore};

/// The paper stops a search after 30 minutes, which 71 of its 300 random searches reached. This limit
/// stops about as many of ours.
const MAX_RANDOM: u32 = 150;

/// More trials than any other search needs.
const MOST: u32 = 20_000;

/// The actors of which one has the defect.
const PLACES: [usize; 3] = [5, 25, 45];

/// One search on one mutant of one system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Task {
    /// Index of the system.
    pub system: usize,
    /// How the system is modified.
    pub variant: Variant,
    /// The strategy.
    pub strategy: Strategy,
    /// The actor with the defect, unless the variant draws it.
    pub actor: usize,
    /// The source of everything random.
    pub seed: u64,
}

/// What a search needed and found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// Number of trials.
    pub trials: u32,
    /// Whether the answer is right: every defect found, each minimal, and no other.
    pub right: bool,
    /// Whether it was stopped, as the paper's were after 30 minutes.
    pub stopped: bool,
    /// The failing sets that it found.
    pub found: Vec<Vec<Perturbation>>,
}

/// Runs a mutant with a set of perturbations: simulated, or on real actors.
pub type RunMutant<'a> = dyn FnMut(&Mutant, &DeltaSet, u64) -> (Outcome, Clues) + 'a;

impl Task {
    /// The searches of a cell: three positions of the defect, with repetitions.
    pub fn of_cell(
        system: usize,
        variant: Variant,
        strategy: Strategy,
        repeats: u64,
        seed: u64,
    ) -> Vec<Self> {
        let place = |actor: usize| {
            (0..repeats).map(move |repeat| {
                let seed = mix(seed ^ mix(repeat ^ mix(actor as u64 ^ mix(system as u64))));
                Self { system, variant, strategy, actor, seed }
            })
        };
        PLACES.into_iter().flat_map(place).collect()
    }

    /// The system with the defects of the task.
    pub fn mutant(&self, sound: &Mutant) -> Mutant {
        let mut random = Random::new(self.seed ^ 0xdef);
        let one = Defects { actors: vec![self.actor], ..Defects::default() };
        match self.variant {
            Variant::Paper => sound.with(one, Asserted::First),
            Variant::Verdict => sound.with(one, Asserted::Verdict),
            Variant::WeakOracle => sound.with(one, Asserted::Sinks),
            Variant::SingleTrigger => {
                let place = sound.place(self.actor);
                let at: Vec<usize> = (0..sound.targets.candidates.len())
                    .filter(|&p| Some(sound.targets.candidates[p].actor) == place)
                    .collect();
                // An actor without messages cannot show a defect.
                let trigger = (!at.is_empty()).then(|| at[random.below(at.len())]);
                sound.with(Defects { trigger, ..one }, Asserted::First)
            }
            Variant::Defects(count) => {
                let actors = random.choose(count, 49).into_iter().map(|actor| actor + 1).collect();
                sound.with(Defects { actors, ..Defects::default() }, Asserted::First)
            }
            Variant::Pair => {
                let pair = random.choose(2, sound.targets.candidates.len());
                let pair = pair.first().copied().zip(pair.get(1).copied());
                sound.with(Defects { pair, ..Defects::default() }, Asserted::Verdict)
            }
            Variant::Clean => sound.with(Defects::default(), Asserted::First),
        }
    }

    /// Runs the search.
    pub fn run(&self, sound: &Mutant, run: &mut RunMutant<'_>) -> Run {
        let mutant = self.mutant(sound);
        let mut search = self.strategy.search(&mutant.targets, self.seed);
        let mut order = Random::new(self.seed);
        let most = if self.strategy == Strategy::RtR { MAX_RANDOM } else { MOST };
        let explored = explore(&mut *search, 1, most, |set| run(&mutant, set, order.next()));
        let stopped = !search.is_done();
        let found =
            explored.standing.causes.iter().map(|cause| mutant.targets.perturbations(&cause.core)).collect();
        let right = !stopped && is_right(&mutant, self.strategy, &explored);
        Run { trials: self.counted(&explored), right, stopped, found }
    }

    /// The trials until the defect was found. Only the default continues to show that none is left: that
    /// last trial counts if all defects are requested.
    fn counted(&self, explored: &Explored) -> u32 {
        let proof = match (self.strategy, self.variant) {
            (_, Variant::Clean | Variant::Defects(_)) => 0,
            (Strategy::Default, _) => 1,
            _ => 0,
        };
        explored.trials - proof
    }
}

/// Whether exactly the defects were found, each by one perturbation (or the pair).
fn is_right(mutant: &Mutant, strategy: Strategy, explored: &Explored) -> bool {
    let causes: Vec<&DeltaSet> = explored.standing.causes.iter().map(|cause| &cause.core).collect();
    if let Some((a, b)) = mutant.defects.pair {
        return causes.len() == 1 && *causes[0] == DeltaSet::from_iter([a, b]);
    }
    if let Some(trigger) = mutant.defects.trigger {
        return causes.len() == 1 && *causes[0] == DeltaSet::from_iter([trigger]);
    }
    let mut found: Vec<usize> = Vec::new();
    for cause in &causes {
        if cause.len() != 1 {
            return false;
        }
        found.extend(cause.iter().map(|place| mutant.targets.candidates[place].actor));
    }
    let mut wanted: Vec<usize> = mutant.defects.actors.iter().filter_map(|&a| mutant.place(a)).collect();
    if strategy != Strategy::Default {
        // The paper's strategies stop at the first.
        return found.iter().all(|actor| wanted.contains(actor)) && found.is_empty() == wanted.is_empty();
    }
    found.sort_unstable();
    wanted.sort_unstable();
    found == wanted
}

/// A cell: one strategy on the mutants of one system.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// Index of the system.
    pub system: usize,
    /// Number of perturbations.
    pub perturbations: usize,
    /// Their kind.
    pub kind: Kind,
    /// The variant.
    pub variant: Variant,
    /// The strategy.
    pub strategy: Strategy,
    /// Trials, mean, without stopped searches.
    pub mean: f64,
    /// Trials, median.
    pub median: f64,
    /// Trials, maximum.
    pub most: u32,
    /// The share of right answers among searches that were not stopped.
    pub right: f64,
    /// Number of stopped searches.
    pub stopped: usize,
}

impl Row {
    /// Summarizes the searches of a cell.
    pub fn new(system: usize, sound: &Mutant, variant: Variant, strategy: Strategy, runs: &[Run]) -> Self {
        let done: Vec<&Run> = runs.iter().filter(|run| !run.stopped).collect();
        let mut counts: Vec<u32> = done.iter().map(|run| run.trials).collect();
        counts.sort_unstable();
        let total = counts.len().max(1);
        let at = |place: usize| counts.get(place).copied().unwrap_or(0);
        Self {
            system,
            perturbations: sound.targets.candidates.len(),
            kind: sound.targets.candidates.first().map_or(Kind::Duplicate, |c| c.perturbation.kind),
            variant,
            strategy,
            mean: f64::from(counts.iter().sum::<u32>()) / total as f64,
            median: f64::from(at(total / 2) + at((total - 1) / 2)) / 2.0,
            most: counts.last().copied().unwrap_or(0),
            right: done.iter().filter(|run| run.right).count() as f64 / total as f64,
            stopped: runs.len() - done.len(),
        }
    }
}

/// Measures one cell on simulated actors.
pub fn cell(
    number: usize,
    sound: &Mutant,
    variant: Variant,
    strategy: Strategy,
    repeats: u64,
    seed: u64,
) -> Row {
    let tasks = Task::of_cell(number, variant, strategy, repeats, seed);
    let run = |task: &Task| task.run(sound, &mut |mutant, set, seed| mutant.run(set, seed));
    let runs: Vec<Run> = tasks.iter().map(run).collect();
    Row::new(number, sound, variant, strategy, &runs)
}

/// What is measured on a system of this kind: the paper's experiment with all strategies, the harder variants with
/// the default, and the best of the paper's strategies where that is applicable.
pub fn cells(kind: Kind) -> Vec<(Variant, Strategy)> {
    let mut cells: Vec<_> = Strategy::ALL.into_iter().map(|strategy| (Variant::Paper, strategy)).collect();
    for variant in Variant::ALL.into_iter().skip(1) {
        // A lost counter shows nowhere else, so sinks reveal nothing about it.
        if variant == Variant::WeakOracle && kind == Kind::Restart {
            continue;
        }
        if matches!(variant, Variant::Verdict | Variant::SingleTrigger) {
            cells.push((variant, Strategy::RtDdO));
        }
        cells.push((variant, Strategy::Default));
    }
    cells
}
