//! Runs one sample as a test of its own process: perturbed as the environment says, tracing where it
//! says, and failing with the actor's name.
#![allow(clippy::print_stderr, reason = "it is a program")]

use std::process::ExitCode;

use faultscope_actor_samples::{Framework, Sample, run};
use faultscope_probe::Probe;
use faultscope_search::resilience::simulate::System;

const USAGE: &str = "usage: faultscope-actor-samples ractor|kameo accumulator|repaired|counters \
[SYSTEM 0-9] [FAULTY ACTOR ...]";

fn sample(arguments: &[String]) -> Option<(Framework, Sample)> {
    let framework = match arguments.first()?.as_str() {
        "ractor" => Framework::Ractor,
        "kameo" => Framework::Kameo,
        _ => return None,
    };
    let sample = match arguments.get(1)?.as_str() {
        "accumulator" => Sample::Accumulator { repaired: false },
        "repaired" => Sample::Accumulator { repaired: true },
        "counters" => {
            let system = System::ten(1).into_iter().nth(arguments.get(2)?.parse().ok()?)?;
            let faulty = arguments[3..].iter().map(|actor| actor.parse().ok()).collect::<Option<_>>()?;
            Sample::Counters(system, faulty)
        }
        _ => return None,
    };
    Some((framework, sample))
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
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
