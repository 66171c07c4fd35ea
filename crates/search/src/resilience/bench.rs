//! The paper's experiment (section 5): how many trials each strategy needs on systems with known defects.

use std::fmt;

use faultscope_model::perturbation::Kind;
use faultscope_model::{DeltaSet, Outcome};

use super::simulate::{Asserted, Defects, Explored, Mutant, System, explore};
use super::{Clues, RtDd, RtR, Screen, ScreenOptions, Targets};
use crate::Search;
use crate::random::{Random, mix};

/// A strategy by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Strategy {
    /// Random exploration.
    RtR,
    /// Delta debugging.
    RtDd,
    /// The same, pruned by causality.
    RtDdO,
    /// Screen, aim, confirm, peel.
    Default,
}

impl Strategy {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::RtR, Self::RtDd, Self::RtDdO, Self::Default];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::RtR => "rt-r",
            Self::RtDd => "rt-dd",
            Self::RtDdO => "rt-dd-o",
            Self::Default => "screen-aim-confirm-peel",
        }
    }

    /// The search.
    pub fn search(self, targets: &Targets, seed: u64) -> Box<dyn Search + Send> {
        match self {
            Self::RtR => Box::new(RtR::new(targets, seed)),
            Self::RtDd => Box::new(RtDd::new(targets.clone(), false, seed)),
            Self::RtDdO => Box::new(RtDd::new(targets.clone(), true, seed)),
            Self::Default => {
                Box::new(Screen::new(targets.clone(), ScreenOptions { seed, ..ScreenOptions::default() }))
            }
        }
    }
}

impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// What is made of a system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Variant {
    /// One defect at actor 5, 25 or 45; the first failing actor is known. The paper's.
    Paper,
    /// The same, but only the verdict is known.
    Verdict,
    /// The same, but only one perturbation shows it.
    SingleTrigger,
    /// The same, but only actors without successors are asserted.
    WeakOracle,
    /// So many defects, all to be found.
    Defects(usize),
    /// Two perturbations that fail only together; only the verdict is known.
    Pair,
    /// No defect.
    Clean,
}

impl Variant {
    /// Those that are reported.
    pub const ALL: [Self; 9] = [
        Self::Paper,
        Self::Verdict,
        Self::SingleTrigger,
        Self::WeakOracle,
        Self::Defects(2),
        Self::Defects(3),
        Self::Defects(5),
        Self::Pair,
        Self::Clean,
    ];
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Paper => f.pad("paper"),
            Self::Verdict => f.pad("verdict only"),
            Self::SingleTrigger => f.pad("single trigger"),
            Self::WeakOracle => f.pad("weak oracle"),
            Self::Defects(count) => f.pad(&format!("all of {count}")),
            Self::Pair => f.pad("pair"),
            Self::Clean => f.pad("clean"),
        }
    }
}

/// What the paper's Table 1 has for a system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Paper {
    /// Perturbations.
    pub perturbations: usize,
    /// Mean iterations of RT-R, without runs that timed out.
    pub rt_r: u32,
    /// Of RT-DD.
    pub rt_dd: u32,
    /// Of RT-DD-O.
    pub rt_dd_o: u32,
}

/// Table 1: mean iterations.
pub const TABLE_1: [Paper; 10] = [
    Paper { perturbations: 129, rt_r: 52, rt_dd: 12, rt_dd_o: 8 },
    Paper { perturbations: 204, rt_r: 63, rt_dd: 12, rt_dd_o: 10 },
    Paper { perturbations: 308, rt_r: 32, rt_dd: 13, rt_dd_o: 11 },
    Paper { perturbations: 378, rt_r: 49, rt_dd: 13, rt_dd_o: 8 },
    Paper { perturbations: 513, rt_r: 34, rt_dd: 15, rt_dd_o: 11 },
    Paper { perturbations: 626, rt_r: 62, rt_dd: 14, rt_dd_o: 8 },
    Paper { perturbations: 706, rt_r: 49, rt_dd: 14, rt_dd_o: 8 },
    Paper { perturbations: 854, rt_r: 46, rt_dd: 14, rt_dd_o: 10 },
    Paper { perturbations: 885, rt_r: 42, rt_dd: 14, rt_dd_o: 13 },
    Paper { perturbations: 1004, rt_r: 41, rt_dd: 15, rt_dd_o: 10 },
];

/// A cell: one strategy on the mutants of one system.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// Which system, from 0.
    pub system: usize,
    /// How many perturbations it has.
    pub perturbations: usize,
    /// Of which kind.
    pub kind: Kind,
    /// The variant.
    pub variant: Variant,
    /// The strategy.
    pub strategy: Strategy,
    /// Trials, mean.
    pub mean: f64,
    /// Trials, median.
    pub median: f64,
    /// Trials, most.
    pub most: u32,
    /// The share of runs with the right answer: every defect found, each minimal, and no other.
    pub right: f64,
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
    cell_with(number, sound, variant, strategy, repeats, seed, &mut |mutant, set, seed| mutant.run(set, seed))
}

/// How a mutant is run with a set of perturbations: simulated, or on real actors.
pub type RunMutant<'a> = dyn FnMut(&Mutant, &DeltaSet, u64) -> (Outcome, Clues) + 'a;

/// Measures one cell: three places of the defect, so many repetitions each.
pub fn cell_with(
    number: usize,
    sound: &Mutant,
    variant: Variant,
    strategy: Strategy,
    repeats: u64,
    seed: u64,
    run: &mut RunMutant<'_>,
) -> Row {
    let mut counts: Vec<u32> = Vec::new();
    let mut right = 0;
    for actor in [5usize, 25, 45] {
        for repeat in 0..repeats {
            let seed = mix(seed ^ mix(repeat ^ mix(actor as u64 ^ mix(number as u64))));
            let mutant = mutate(sound, variant, actor, seed);
            let mut search = strategy.search(&mutant.targets, seed);
            let mut order = Random::new(seed);
            let explored = explore(&mut *search, 1, 20_000, |set| run(&mutant, set, order.next()));
            right += usize::from(is_right(&mutant, strategy, &explored));
            counts.push(found_after(strategy, variant, &explored));
        }
    }
    counts.sort_unstable();
    let total = counts.len().max(1);
    Row {
        system: number,
        perturbations: sound.targets.candidates.len(),
        kind: sound.targets.candidates.first().map_or(Kind::Duplicate, |c| c.perturbation.kind),
        variant,
        strategy,
        mean: f64::from(counts.iter().sum::<u32>()) / total as f64,
        median: f64::from(counts[total / 2] + counts[(total - 1) / 2]) / 2.0,
        most: counts.last().copied().unwrap_or(0),
        right: right as f64 / total as f64,
    }
}

/// The trials until the defect was found. Only the default goes on to show that none is left: that last
/// trial counts where all defects are asked for.
fn found_after(strategy: Strategy, variant: Variant, explored: &Explored) -> u32 {
    let proof = match (strategy, variant) {
        (_, Variant::Clean | Variant::Defects(_)) => 0,
        (Strategy::Default, _) => 1,
        _ => 0,
    };
    explored.trials - proof
}

fn mutate(sound: &Mutant, variant: Variant, actor: usize, seed: u64) -> Mutant {
    let mut random = Random::new(seed ^ 0xdef);
    let one = Defects { actors: vec![actor], ..Defects::default() };
    match variant {
        Variant::Paper => sound.with(one, Asserted::First),
        Variant::Verdict => sound.with(one, Asserted::Verdict),
        Variant::WeakOracle => sound.with(one, Asserted::Sinks),
        Variant::SingleTrigger => {
            let place = sound.place(actor);
            let at: Vec<usize> = (0..sound.targets.candidates.len())
                .filter(|&p| Some(sound.targets.candidates[p].actor) == place)
                .collect();
            let trigger = Some(at[random.below(at.len())]);
            sound.with(Defects { trigger, ..one }, Asserted::First)
        }
        Variant::Defects(count) => {
            let actors = random.choose(count, 49).into_iter().map(|actor| actor + 1).collect();
            sound.with(Defects { actors, ..Defects::default() }, Asserted::First)
        }
        Variant::Pair => {
            let pair = random.choose(2, sound.targets.candidates.len());
            let pair = Some((pair[0], pair[1]));
            sound.with(Defects { pair, ..Defects::default() }, Asserted::Verdict)
        }
        Variant::Clean => sound.with(Defects::default(), Asserted::First),
    }
}

/// Whether exactly the defects were found, each by one perturbation (or the pair), and nothing else.
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

/// Measures all systems, variants and strategies; `done` is called after every row.
pub fn rows(systems: &[System], repeats: u64, seed: u64, mut done: impl FnMut(&Row)) -> Vec<Row> {
    let mut rows = Vec::new();
    for (number, system) in systems.iter().enumerate() {
        let sound = Mutant::new(system.clone());
        for variant in Variant::ALL {
            for strategy in Strategy::ALL {
                // The others stop at the first defect and know no pairs.
                let apt = matches!(
                    variant,
                    Variant::Paper | Variant::Verdict | Variant::SingleTrigger | Variant::Clean
                );
                // A lost counter is seen nowhere else, so that sinks tell nothing of it.
                let blind = variant == Variant::WeakOracle && system.kind == Kind::Restart;
                if strategy != Strategy::Default && !apt || blind {
                    continue;
                }
                let row = cell(number, &sound, variant, strategy, repeats, seed);
                done(&row);
                rows.push(row);
            }
        }
    }
    rows
}
