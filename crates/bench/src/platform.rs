//! `bench platform`: how fast applications start, and what the tool needs for it.

use std::fmt::Write as _;
use std::path::Path;

use faultscope_model::Circumstance;
use faultscope_model::plan::Reset;

use crate::bench::{Host, Measured};
use crate::campaign::{Campaign, CampaignOptions, read_application};
use crate::error::BenchError;
use crate::figure::{Direction, Figure};
use crate::part::scratch_folder;
use crate::usage;

/// Repetitions of each start; the median counts.
const ROUNDS: u64 = 5;
const MIB: f64 = 1048576.0;

pub(crate) async fn run(seed: u64, host: &Host<'_>) -> Result<Measured, BenchError> {
    let folder = scratch_folder()?;
    let mut measured = Measured::default();
    host.talk("40 cells");
    measured.figures.push(forty_cells(&folder.path().join("forty"), seed, host, &mut measured.notes).await?);
    let ticketing = folder.path().join("ticketing");
    (host.write_sample)(&ticketing)
        .map_err(|e| BenchError::environment("the sample cannot be written").because(e))?;
    for (reset, goal) in [(Reset::Restart, 1.0), (Reset::Keep, 0.3)] {
        host.talk(format!("ticketing with one changed setting, reset {reset:?}"));
        measured.figures.extend(one_setting(&ticketing, reset, goal, seed, host).await?);
    }
    host.talk("four slots of ticketing");
    measured.figures.push(four_slots(&ticketing, seed, host).await?);
    Ok(measured)
}

async fn forty_cells(
    folder: &Path,
    seed: u64,
    host: &Host<'_>,
    notes: &mut Vec<String>,
) -> Result<Figure, BenchError> {
    let broken = |e: std::io::Error| BenchError::environment("the cells cannot be written").because(e);
    let mut file = String::from("name: forty\nservices:\n");
    let mut spec = String::from("version: 1\nservices:\n");
    for number in 1..=40 {
        let _ = writeln!(
            file,
            "  c{number}: {{ command: [\"${{faultscope}}\", cell, --spec, cells.yaml, --service, c{number}], \
             ports: [8080], protocol: http, ready: {{ http: /health }}, calls: [] }}"
        );
        let _ = writeln!(
            spec,
            "  c{number}: {{ port: 8080, operations: {{ \"GET /\": {{ steps: [ {{ respond: {{ status: 200, body: {{}} }} }} ] }} }} }}"
        );
    }
    std::fs::create_dir_all(folder).map_err(broken)?;
    std::fs::write(folder.join("faultscope.yaml"), file).map_err(broken)?;
    std::fs::write(folder.join("cells.yaml"), spec).map_err(broken)?;
    let (application, root) = read_application(&folder.join("faultscope.yaml"))?;
    let options = CampaignOptions { slots: 1, seed };
    let (campaign, able) = Campaign::on_processes(host, application, &root, options).await?;
    notes.push(format!("isolation {:?}, limits by {:?}", able.isolation, able.limits));
    let times = ready_times(&campaign, 1, |_| Circumstance::default()).await;
    let times = campaign.close_with(times).await?;
    Ok(Figure::median("40 cells ready", &times, "s", Direction::Lower).goal(0.5))
}

/// What services of the sample allocate for the sake of a fault case.
const HEAP: &str = "HEAP";

/// Deploys circumstances one after the other; returns the seconds until everything was ready.
async fn ready_times(
    campaign: &Campaign,
    first: u64,
    circumstance: impl Fn(u64) -> Circumstance,
) -> Result<Vec<f64>, BenchError> {
    let mut times = Vec::new();
    for trial in first..first + ROUNDS {
        times.push(campaign.deploy(circumstance(trial), false).await?.as_secs_f64());
    }
    Ok(times)
}

async fn one_setting(
    folder: &Path,
    reset: Reset,
    goal: f64,
    seed: u64,
    host: &Host<'_>,
) -> Result<Vec<Figure>, BenchError> {
    let (mut application, root) = read_application(&folder.join("faultscope.yaml"))?;
    application.reset = reset;
    let options = CampaignOptions { slots: 1, seed };
    let (campaign, _) = Campaign::on_processes(host, application, &root, options).await?;
    let figures = change_one_setting(&campaign, reset, goal).await;
    campaign.close_with(figures).await
}

async fn change_one_setting(campaign: &Campaign, reset: Reset, goal: f64) -> Result<Vec<Figure>, BenchError> {
    let services = &campaign.application().services;
    let service = services
        .keys()
        .find(|name| name.as_str() == "order")
        .ok_or_else(|| BenchError::internal("the sample has no service `order`"))?;
    campaign.deploy(Circumstance::default(), false).await?;
    let changed = |trial: u64| {
        let mut circumstance = Circumstance::default();
        let value = format!("{}MiB", 100 + trial);
        circumstance.config.entry(service.clone()).or_default().insert("memory".into(), value);
        circumstance
    };
    let times = ready_times(campaign, 2, changed).await?;
    let name = match reset {
        Reset::Restart => "ticketing, one changed setting, reset: restart",
        Reset::Keep => "ticketing, one changed setting, reset: keep",
    };
    let mut figures = vec![Figure::median(name, &times, "s", Direction::Lower).goal(goal)];
    if reset == Reset::Keep {
        // Cells are measured after they have served every kind of request, without what faults allocate on purpose.
        let mut circumstance = Circumstance::default();
        for (name, _) in services.iter().filter(|(_, service)| service.env.contains_key(HEAP)) {
            let config = circumstance.config.entry(name.clone()).or_default();
            config.insert(format!("env.{HEAP}"), "0MiB".into());
        }
        campaign.deploy(circumstance, true).await?;
        figures.extend(memory(services.len()));
    }
    Ok(figures)
}

/// The memory of the tool and its cells while the sample is up.
fn memory(services: usize) -> Vec<Figure> {
    let own = std::process::id();
    let below = usage::descendants(own);
    let cells: Vec<u32> =
        below.iter().filter(|(_, line)| line.contains(" cell ")).map(|(pid, _)| *pid).collect();
    let launchers = below.iter().filter(|(_, line)| line.contains(" launch ")).map(|(pid, _)| *pid);
    let launchers: u64 = launchers.map(usage::proportional).sum();
    let resident: Vec<f64> = cells.iter().map(|&pid| usage::resident(pid) as f64 / MIB).collect();
    // Cells are this program, so most of what is resident in one is there only once for all of them.
    let shares: Vec<f64> = cells.iter().map(|&pid| usage::proportional(pid) as f64 / MIB).collect();
    let largest = resident.iter().copied().fold(f64::NAN, f64::max);
    let own = usage::resident(own) as f64 / MIB;
    vec![
        Figure::lower(format!("the tool with {services} services up"), own, "MiB").goal(80.0),
        Figure::lower("its launchers beside it, by their share", launchers as f64 / MIB, "MiB"),
        Figure::median("a cell, median", &resident, "MiB", Direction::Lower),
        Figure::median("a cell by its share of pages, median", &shares, "MiB", Direction::Lower),
        Figure::lower("a cell, largest", largest, "MiB").goal(8.0),
    ]
}

async fn four_slots(folder: &Path, seed: u64, host: &Host<'_>) -> Result<Figure, BenchError> {
    let (application, root) = read_application(&folder.join("faultscope.yaml"))?;
    let options = CampaignOptions { slots: 4, seed };
    let (campaign, _) = Campaign::on_processes(host, application, &root, options).await?;
    let passed = campaign.count_passing(4).await;
    let passed = campaign.close_with(passed).await?;
    Ok(Figure::all_of("4 slots of ticketing at once, passing", passed, 4))
}
