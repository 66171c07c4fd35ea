//! Runs one sample as a test in its own process: perturbed and traced as the environment says,
//! and failing with the actor's name.
#![allow(clippy::print_stderr, reason = "it is a program")]

use std::process::ExitCode;

use faultscope_actor_samples::{Faults, Framework, Sample, bench, run};
use faultscope_bench::resilience::simulate::System;
use faultscope_probe::Probe;

const USAGE: &str = "usage: faultscope-actor-samples ractor|kameo accumulator|repaired
       faultscope-actor-samples ractor|kameo counters|FILE SYSTEM [FAULTY ACTOR ...]
       faultscope-actor-samples bench
`counters` are ten generated systems, FILE holds others; `bench` answers lines of JSON on stdin.";

fn sample(arguments: &[String]) -> Option<(Framework, Sample)> {
    let framework = match arguments.first()?.as_str() {
        "ractor" => Framework::Ractor,
        "kameo" => Framework::Kameo,
        _ => return None,
    };
    let sample = match arguments.get(1)?.as_str() {
        "accumulator" => Sample::Accumulator { repaired: false },
        "repaired" => Sample::Accumulator { repaired: true },
        from => {
            let systems = match from {
                "counters" => System::ten(1),
                file => System::read(&std::fs::read_to_string(file).ok()?).ok()?,
            };
            let system = systems.into_iter().nth(arguments.get(2)?.parse().ok()?)?;
            let faulty: Option<Vec<usize>> = arguments[3..].iter().map(|a| a.parse().ok()).collect();
            Sample::Counters(system, Faults::at(faulty?))
        }
    };
    Some((framework, sample))
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments == ["bench"] {
        return match bench::serve(&mut std::io::stdin().lock(), &mut std::io::stdout().lock()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("cannot answer: {error}");
                ExitCode::FAILURE
            }
        };
    }
    let Some((framework, sample)) = sample(&arguments) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    let name = arguments.first().map_or("", String::as_str);
    let probe = match Probe::from_env(name) {
        Ok(probe) => probe,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::from(2);
        }
    };
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("no runtime: {error}");
            return ExitCode::from(2);
        }
    };
    let wrong = runtime.block_on(run(framework, &sample, &probe));
    for (actor, found, expected) in &wrong {
        let message = format!("error@[{actor}] {found} != {expected}");
        probe.blame(actor, &message);
        eprintln!("{message}");
    }
    if wrong.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
