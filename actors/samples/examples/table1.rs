//! The paper's Table 1 on real actors: `table1 [ractor|kameo] [topologies=FILE] [repeats=10] [seed=N]`.
#![allow(clippy::print_stdout, reason = "it is a program")]

use tokio::time::Instant;

use faultscope_actor_samples::{Framework, Sample, trial};
use faultscope_model::Outcome;
use faultscope_search::resilience::Clues;
use faultscope_search::resilience::bench::{Strategy, TABLE_1, Variant, cell_with};
use faultscope_search::resilience::simulate::{Asserted, Mutant, System};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let get = |key: &str| arguments.iter().find_map(|a| a.strip_prefix(key)?.strip_prefix('='));
    let kameo = arguments.iter().any(|a| a == "kameo");
    let framework = if kameo { Framework::Kameo } else { Framework::Ractor };
    let seed: u64 = get("seed").unwrap_or("1").parse()?;
    let repeats: u64 = get("repeats").unwrap_or("10").parse()?;
    let systems = match get("topologies") {
        Some(file) => System::read(&std::fs::read_to_string(file)?)?,
        None => System::ten(seed),
    };
    let began = Instant::now();
    println!("perturbations  variant       strategy                   mean median  most  right | paper");
    for (number, system) in systems.into_iter().enumerate() {
        let sound = Mutant::new(system.clone());
        let mut run = |mutant: &Mutant, set: &faultscope_model::DeltaSet, _: u64| {
            let sample = Sample::Counters(system.clone(), mutant.defects.actors.clone());
            match trial(framework, &sample, mutant.targets.perturbations(set)) {
                Ok(trial) => {
                    let (outcome, clues) = trial.judged(&mutant.targets, true);
                    let blind = mutant.asserted == Asserted::Verdict;
                    (outcome, if blind { Clues::default() } else { clues })
                }
                Err(error) => (Outcome::Unresolved { reason: error.to_string() }, Clues::default()),
            }
        };
        for (variant, strategy) in [
            (Variant::Paper, Strategy::RtDd),
            (Variant::Paper, Strategy::RtDdO),
            (Variant::Paper, Strategy::Default),
            (Variant::Verdict, Strategy::Default),
            (Variant::Defects(3), Strategy::Default),
            (Variant::Clean, Strategy::Default),
        ] {
            let row = cell_with(number, &sound, variant, strategy, repeats, seed, &mut run);
            let paper = TABLE_1.get(number).filter(|_| variant == Variant::Paper);
            let paper = paper.and_then(|paper| match strategy {
                Strategy::RtDd => Some(paper.rt_dd),
                Strategy::RtDdO => Some(paper.rt_dd_o),
                _ => None,
            });
            println!(
                "{:5} {:9} {:13} {:24} {:6.1} {:6.1} {:5} {:5.0}% | {}",
                row.perturbations,
                row.kind,
                variant,
                strategy,
                row.mean,
                row.median,
                row.most,
                100.0 * row.right,
                paper.map_or(String::new(), |mean| mean.to_string()),
            );
        }
    }
    println!("{:.1} s", began.elapsed().as_secs_f64());
    Ok(())
}
