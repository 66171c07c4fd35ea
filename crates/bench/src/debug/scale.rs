//! The cost of the search itself: one decision among 1,000 deltas, and a campaign over 10,000.

use std::fmt::Write as _;
use std::time::Duration;

use faultscope_model::{Application, Outcome};
use faultscope_platform::memory::{Condition, Cost, Effect, Fault, Simulation};
use faultscope_search::Ticket;
use faultscope_search::{Bayes, BayesOptions, Moves, Problem, Search, SlotView, Standing};
use tokio::time::Instant;

use crate::bench::Host;
use crate::campaign::{Campaign, CampaignOptions};
use crate::error::BenchError;
use crate::figure::Figure;
use crate::part::scratch_folder;
use crate::simulate::{Durations, Family, Instance, Oracle, Slots, simulate};
use crate::usage::own_thread;

/// A search whose decisions are timed: everything between two trials.
struct Timed {
    search: Bayes,
    recorded: Duration,
    decisions: Vec<Duration>,
}

impl Search for Timed {
    fn plan(&mut self, slots: &[SlotView], in_flight: &[Ticket]) -> Moves {
        let began = own_thread();
        let moves = self.search.plan(slots, in_flight);
        self.decisions.push(own_thread() - began + std::mem::take(&mut self.recorded));
        moves
    }

    fn record(&mut self, trial: Ticket, outcome: &Outcome, cost: Duration) {
        let began = own_thread();
        self.search.record(trial, outcome, cost);
        self.recorded += own_thread() - began;
    }

    fn is_done(&self) -> bool {
        self.search.is_done()
    }

    fn standing(&self) -> Standing {
        self.search.standing()
    }
}

/// The CPU time of a decision at 1,000 deltas, with causes of 1, 2, 4 and 8.
pub(super) fn decisions(seed: u64) -> Vec<Figure> {
    const DELTAS: usize = 1_000;
    let mut all: Vec<f64> = Vec::new();
    for (number, k) in (0..).zip([1, 2, 4, 8]) {
        let seed = seed.wrapping_add(number);
        let cause = (0..k).map(|i| (i * 127 + seed as usize * 31) % DELTAS).collect();
        let id = format!("decisions-{k}");
        let instance = Instance::new(id, Family::Mono, DELTAS, vec![cause], seed);
        let search = Bayes::new(Problem::new(DELTAS), BayesOptions { seed, ..BayesOptions::default() });
        let mut timed = Timed { search, recorded: Duration::ZERO, decisions: Vec::new() };
        let slots = Slots::new(4, Durations::Lognormal(seed));
        simulate(&mut timed, &Oracle::new(&instance), &slots, 10_000);
        all.extend(timed.decisions.iter().map(|took| took.as_secs_f64() * 1000.0));
    }
    let mean = all.iter().sum::<f64>() / all.len().max(1) as f64;
    vec![Figure::lower("a decision at 1,000 deltas, mean CPU time", mean, "ms").goal(1.0).spread(&all)]
}

/// A whole campaign over 10,000 settings of which five together fail, on the simulated platform, whose
/// trials take no time: only the tool is measured.
pub(super) async fn ten_thousand(seed: u64, host: &Host<'_>) -> Result<Figure, BenchError> {
    const DELTAS: usize = 10_000;
    let cause: Vec<usize> = (0..5).map(|i| (i * 1_973 + seed as usize * 97) % DELTAS).collect();
    let mut text = String::from(
        "name: large\nservices: { s: { command: [s], ports: [80] } }\ntests: [ { name: t, run: [t] } ]\n\
         failing:\n  config:\n    s:\n",
    );
    for number in 0..DELTAS {
        let _ = writeln!(text, "      env.V{number:05}: \"1\"");
    }
    let application = Application::read_alone(&text, "large.yaml")?;
    let service = application.services.keys().next().cloned();
    let service = service.ok_or_else(|| BenchError::internal("the large space has no service"))?;
    let item = |number: &usize| Condition::Config {
        service: service.clone(),
        item: format!("env.V{number:05}"),
        equals: None,
    };
    let simulation = Simulation {
        seed,
        apply: Cost::fixed(Duration::ZERO),
        exec: Cost::fixed(Duration::ZERO),
        clear: Duration::ZERO,
        faults: vec![Fault {
            when: Condition::All(cause.iter().map(item).collect()),
            probability: 1.0,
            effect: Effect::Fail { message: "broken".into() },
        }],
    };
    let folder = scratch_folder()?;
    let options = CampaignOptions { slots: 4, seed };
    let began = Instant::now();
    let campaign = Campaign::simulated(host, application, folder.path(), simulation, options).await?;
    let answer = campaign.debug(false, false).await;
    let took = began.elapsed().as_secs_f64();
    let answer = campaign.close_with(answer).await?;
    let mut wanted: Vec<String> = cause.iter().map(|number| format!("env.V{number:05}")).collect();
    wanted.sort();
    let found = answer.causes.first().map(Vec::as_slice).unwrap_or_default();
    let is_right = found.len() == wanted.len()
        && found.iter().zip(&wanted).all(|(found, wanted)| found.ends_with(wanted.as_str()));
    if answer.verdict != "reduced" || !is_right {
        let what = "the cause among 10,000 deltas was not found";
        return Err(BenchError::internal(what).because(format!("{} {found:?}", answer.summary)));
    }
    let name = "10,000 deltas, a cause of 5, simulated platform";
    Ok(Figure::lower(name, took, "s").goal(10.0).detail(format!("{} trials", answer.finished)))
}
