//! The benchmark's protocol with real actors: one line of JSON requests a search or a single run, one line answers.
//!
//! `faultscope bench resilience` starts this program once per core and distributes the work,
//! so that the tool itself needs no actor framework.

use std::io::{self, BufRead, Write};

use faultscope_bench::resilience::simulate::{Asserted, Mutant, System};
use faultscope_bench::resilience::{Answer, Ask, Framework};
use faultscope_model::outcome::Unresolved;
use faultscope_model::{DeltaSet, Outcome};
use faultscope_probe_format::Perturbation;
use faultscope_search::resilience::Clues;
use tokio::time::Instant;

use crate::{Faults, Sample, trial};

/// The longest line that is read.
const MAX_LINE: u64 = 64 << 20;

/// Answers until there are no more lines.
pub fn serve(input: &mut dyn BufRead, output: &mut dyn Write) -> io::Result<()> {
    let mut systems: Vec<Mutant> = Vec::new();
    let mut line = String::new();
    loop {
        line.clear();
        if io::Read::take(&mut *input, MAX_LINE).read_line(&mut line)? == 0 {
            return Ok(());
        }
        let answer = match serde_json::from_str(&line) {
            Ok(ask) => answer(&mut systems, ask),
            Err(error) => Answer::Problem(error.to_string()),
        };
        serde_json::to_writer(&mut *output, &answer)?;
        output.write_all(b"\n")?;
        output.flush()?;
    }
}

fn answer(systems: &mut Vec<Mutant>, ask: Ask) -> Answer {
    let unknown = |number: usize| Answer::Problem(format!("there is no system {number}"));
    match ask {
        Ask::Systems(text) => match System::read(&text) {
            Ok(read) => {
                *systems = read.into_iter().map(Mutant::new).collect();
                Answer::Systems(systems.len())
            }
            Err(error) => Answer::Problem(error.to_string()),
        },
        Ask::Search(framework, task) => match systems.get(task.system) {
            None => unknown(task.system),
            Some(sound) => Answer::Search(task.run(sound, &mut |mutant, set, _| run(framework, mutant, set))),
        },
        Ask::Time(framework, number, count) => match systems.get(number) {
            None => unknown(number),
            Some(sound) => time(framework, sound, count),
        },
    }
}

/// Runs a mutant on real actors.
pub fn run(framework: Framework, mutant: &Mutant, set: &DeltaSet) -> (Outcome, Clues) {
    let target = |place: usize| mutant.targets.candidates.get(place).map(|c| c.perturbation.target.clone());
    let defects = &mutant.defects;
    let faults = Faults {
        actors: defects.actors.clone(),
        trigger: defects.trigger.and_then(target),
        pair: defects.pair.and_then(|(a, b)| Some([target(a)?, target(b)?])),
    };
    let sample = Sample::Counters(mutant.system().clone(), faults);
    match trial(framework, &sample, mutant.targets.perturbations(set)) {
        Ok(mut trial) => {
            if mutant.asserted == Asserted::Sinks {
                trial.wrong.retain(|(name, ..)| mutant.is_sink(name));
            }
            trial.judged(&mutant.targets, mutant.asserted)
        }
        Err(error) => (
            Outcome::Unresolved { reason: Unresolved::Described { text: error.to_string() } },
            Clues::default(),
        ),
    }
}

fn time(framework: Framework, sound: &Mutant, count: usize) -> Answer {
    let all = sound.targets.perturbations(&sound.targets.full());
    // Spread over the run, as in any subset that a search tries.
    let step = all.len().checked_div(count).unwrap_or(1).max(1);
    let chosen: Vec<Perturbation> = all.into_iter().step_by(step).take(count).collect();
    let sample = Sample::Counters(sound.system().clone(), Faults::default());
    let began = Instant::now();
    match trial(framework, &sample, chosen) {
        Ok(trial) => {
            Answer::Time(began.elapsed().as_secs_f64(), trial.wrong.is_empty() && trial.missed.is_empty())
        }
        Err(error) => Answer::Problem(error.to_string()),
    }
}
