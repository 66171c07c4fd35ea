//! `faultscope replay`

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use faultscope_analysis::compare::{FieldRule, FieldRules};
use faultscope_engine::Pace;
use faultscope_engine::replay::{
    Original, ReplayDone, ReplayOptions, ReplayVerdict, mock_services, replay, write_test,
};
use faultscope_engine::views::{Archive, FoundRecording, Subject, find_run_to_replay, find_traces_to_replay};
use faultscope_model::application::nearest;
use faultscope_model::secrets::SecretNames;
use faultscope_model::units::{self, count};
use faultscope_model::{CampaignKind, ServiceName, Treatment};

use super::clone::open_shelf;
use super::debugging::{Debugging, PEOPLE_WITHIN};
use super::report::write;
use crate::args::{Global, IsolationArg, PlatformChoice, Target};
use crate::campaign::{Opening, RunningCampaign, interrupted};
use crate::error::CommandError;
use crate::exit::Exit;
use crate::printer::Printer;
use crate::project::{self, Project};
use crate::render;
use crate::shell;

#[derive(Debug, Args)]
pub(crate) struct ReplayArgs {
    /// The traces to replay: ids, their beginnings, or `last`.
    #[arg(value_name = "TRACE", required_unless_present = "run")]
    traces: Vec<String>,
    /// Replay all requests of a run instead, in their order: its id, its campaign, or `last`.
    #[arg(long, value_name = "RUN", conflicts_with = "traces")]
    run: Option<String>,
    /// The time between requests: `1` as recorded, `10` ten times as fast, `max` as fast as answers come.
    #[arg(long, default_value = "1", value_name = "FACTOR")]
    speed: String,
    /// How many fresh deployments get the requests. What differs between them is noise, so one alone cannot tell noise.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=100))]
    times: u32,
    /// Number of deployments at the same time.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    slots: u16,
    /// Whether answers to concurrent calls between services come in the recorded order.
    #[arg(long, value_enum, default_value_t = ReplayOrder::Recorded)]
    order: ReplayOrder,
    /// What may differ: `$.took`, `header etag`, `$.id ~ ^[0-9a-f-]+$`, `$.price +- 10%`, `$.items present`.
    #[arg(long = "ignore", value_name = "RULE")]
    rules: Vec<FieldRule>,
    /// A program that changes requests before they are sent, such as one that mints tokens: a line of JSON in, a line out.
    #[arg(long, value_name = "COMMAND")]
    hook: Option<String>,
    /// Do not start this service: its recorded answers are given in its place. Repeat for several. Hosts outside and
    /// services that are not in the application file are always answered for.
    #[arg(long = "mock", value_name = "SERVICE")]
    mocked: Vec<ServiceName>,
    /// Start the services from this clone instead of fresh data: its id, its name, or `last`.
    #[arg(long, value_name = "CLONE")]
    on: Option<String>,
    /// Start a service with another command, such as a debugger, and wait for people: `order='python -m debugpy --listen
    /// 5678 --wait-for-client app.py'`. Its port is forwarded to this machine.
    #[arg(long, value_name = "SERVICE=COMMAND")]
    debug: Vec<String>,
    /// How long an answer may take.
    #[arg(long, default_value = "60s", value_name = "DURATION")]
    within: String,
    /// Write the requests as a test of the application file, with what the replays had in common as expectations.
    #[arg(long, value_name = "FILE")]
    as_test: Option<PathBuf>,
    /// Write the report as a page.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// The application's folder or file.
    #[arg(long, value_name = "FOLDER", default_value = ".")]
    folder: PathBuf,
    /// The platform that runs the application.
    #[arg(long, value_enum, default_value_t = PlatformChoice::Process)]
    platform: PlatformChoice,
    /// How processes are isolated; by default as in the file.
    #[arg(long, value_enum)]
    isolation: Option<IsolationArg>,
    /// Seed of every random choice.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// The order of answers to concurrent calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ReplayOrder {
    /// As recorded, where every handling of the same request had the same order.
    Recorded,
    /// As it comes.
    Free,
}

pub(crate) async fn run(args: ReplayArgs, global: &Global, printer: &Printer) -> Result<Exit, CommandError> {
    let pace = read_pace(&args.speed)?;
    let within = units::parse_duration(&args.within).map_err(|e| CommandError::usage(e.to_string()))?;
    let target = Target::for_file(args.folder.clone(), args.platform, args.isolation);
    let mut project = Project::open(&target, printer)?;
    let mocked = check_mocked(&args.mocked, &project)?;
    let found = find(&args, &project, &mocked)?;
    warn_of_left_out(&found, printer);
    if found.recording.requests.is_empty() {
        return Err(nothing_to_send(&found));
    }
    let FoundRecording { recording, kind, run, reader, calls, orders } = found;
    // Of a system that somebody else started, no circumstance is known: it is replayed in the file's own.
    let clone = args.on.as_ref().map(|wanted| open_shelf(&args.folder).find(wanted)).transpose()?;
    let (treatment, mut circumstance) = match (&clone, kind) {
        // The data belongs to the instances that the clone had.
        (Some(clone), _) => (clone.manifest.treatment.clone(), clone.manifest.circumstance.clone()),
        (None, CampaignKind::Record) => (Treatment::Nothing, project.application.simplest.clone()),
        (None, _) => (run.treatment.clone(), run.circumstance.clone()),
    };
    if args.order == ReplayOrder::Recorded {
        for (from, handling) in &orders.ambiguous {
            printer.talk(format!(
                "{from} {handling}: its concurrent calls were answered in different orders, so none is imposed"
            ));
        }
        circumstance.impose(orders.orders);
    }
    mock_services(&mut project.application, &mut circumstance, &recording, &mocked);
    let length = recording.requests.last().map_or(0, |last| last.end_us() - recording.requests[0].start_us);
    let longest = match pace {
        Pace::Factor(factor) => Duration::from_micros((length as f64 / factor) as u64) + within,
        Pace::AsFastAsPossible => Duration::from_micros(length).saturating_mul(4) + within,
    };
    let debugging = Debugging::parse(&args.debug, &project.application)?;
    let start = debugging.start_point(clone);
    // People look at one deployment at a time, and take as long as they like.
    let (times, slots, longest, within) = match debugging.is_empty() {
        true => (args.times, args.slots, longest, within),
        false => (1, 1, longest + PEOPLE_WITHIN, within.max(PEOPLE_WITHIN)),
    };
    let opening = Opening::new(CampaignKind::Replay, &target, args.seed).slots(slots).longest_test(longest);
    let campaign = RunningCampaign::open(&project, opening, global, printer).await?;
    let _forwarded = debugging.forward(&campaign.session, printer).await?;
    let stop = interrupted();
    let rules = FieldRules::new(args.rules.clone());
    let hook = args.hook.as_ref().map(|command| ["sh", "-c", command].map(str::to_owned).to_vec());
    let options = ReplayOptions { pace, within, times, rules, hook, mocked, start };
    let given = (treatment, circumstance);
    let original = Original { run: &run, reader: &reader, calls: &calls };
    let work = async |session: &_| replay(session, &recording, &original, given, &options, &stop).await;
    let summarize = |done: &Option<ReplayDone>| match done {
        Some(_) => count(recording.requests.len(), "request"),
        None => "interrupted".to_owned(),
    };
    let Some(done) = campaign.run(work, summarize).await? else { return Ok(Exit::Interrupted) };
    if let Some(file) = &args.as_test {
        let names = SecretNames::new(&project.application.record.secrets);
        let name = format!("replay of {}", args.run.clone().unwrap_or_else(|| args.traces.join(", ")));
        write(file, write_test(&name, &recording, &done.answers, &names))?;
    }
    if let Some(file) = &args.html {
        write(file, faultscope_console::replay_report(&done.report))?;
    }
    if printer.json {
        printer.result(&done.report)?;
    } else {
        render::mocks::show(&done.report.mocks, printer);
        render::replay::show(&done.report, &shell::at(&project.root), printer);
        for file in args.as_test.iter().chain(&args.html) {
            printer.line(format!("written: {}", file.display()));
        }
    }
    Ok(match done.report.verdict {
        ReplayVerdict::Reproduced => Exit::Done,
        ReplayVerdict::Differs => Exit::Found,
        ReplayVerdict::NotComparable => Exit::Unresolved,
        ReplayVerdict::MockMissed => Exit::MockMissed,
    })
}

fn read_pace(text: &str) -> Result<Pace, CommandError> {
    if text == "max" {
        return Ok(Pace::AsFastAsPossible);
    }
    let factor = text.strip_suffix('x').unwrap_or(text).parse::<f64>().ok();
    let factor = factor.filter(|factor| factor.is_finite() && (0.001..=100_000.0).contains(factor));
    factor.map(Pace::Factor).ok_or_else(|| {
        CommandError::usage(format!("`{text}` is no speed"))
            .hint("`1` as recorded, `10` ten times as fast, or `max`")
    })
}

/// The services that are not to be started, if the application has them.
fn check_mocked(mocked: &[ServiceName], project: &Project) -> Result<BTreeSet<ServiceName>, CommandError> {
    let services = &project.application.services;
    if let Some(name) = mocked.iter().find(|name| !services.contains_key(*name)) {
        let names: Vec<_> = services.keys().map(ServiceName::as_str).collect();
        let hint = nearest(name.as_str(), names.iter().copied()).map_or_else(
            || format!("services: {}", names.join(", ")),
            |near| format!("did you mean `{near}`?"),
        );
        return Err(CommandError::usage(format!("there is no service `{name}`")).hint(hint));
    }
    Ok(mocked.iter().cloned().collect())
}

fn find(
    args: &ReplayArgs,
    project: &Project,
    mocked: &BTreeSet<ServiceName>,
) -> Result<FoundRecording, CommandError> {
    let state = project::state_folder(&args.folder);
    let mut deployed = project.application.clone();
    deployed.services.retain(|name, _| !mocked.contains(name));
    Ok(match &args.run {
        Some(run) => find_run_to_replay(&Archive::open(&state, Subject::Run)?, run, &deployed)?,
        None => {
            let archive = Archive::open(&state, Subject::Trace)?;
            find_traces_to_replay(&archive, &args.traces, &deployed)?
        }
    })
}

/// The most calls that are named one by one.
const MAX_NAMED: usize = 5;

fn warn_of_left_out(found: &FoundRecording, printer: &Printer) {
    let left_out = &found.recording.left_out;
    for call in left_out.iter().take(MAX_NAMED) {
        printer.warn(format!("cannot be sent again: {} {}", call.operation, call.reason));
    }
    if left_out.len() > MAX_NAMED {
        printer.warn(format!("and {} more", count(left_out.len() - MAX_NAMED, "call")));
    }
}

fn nothing_to_send(found: &FoundRecording) -> CommandError {
    let error = CommandError::new(Exit::Unresolved, "there is no request to send again");
    if found.recording.left_out.is_empty() {
        return error.hint(format!(
            "run {} has no call from outside to a service of this application; `faultscope traces ls` lists traces",
            found.run.id
        ));
    }
    error.hint("record whole bodies: `record: { level: bodies, most: 1MiB }` in the application file")
}
