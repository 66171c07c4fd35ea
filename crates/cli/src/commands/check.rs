//! `faultscope check`

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use faultscope_engine::debug::Costs;
use faultscope_engine::testing::run_trial;
use faultscope_engine::{Cases, Session, Tests, TrialRequest};
use faultscope_model::application::Service;
use faultscope_model::plan::Probe;
use faultscope_model::run::InstanceExit;
use faultscope_model::space::Delta;
use faultscope_model::span::Parentage;
use faultscope_model::units::{count, show_duration};
use faultscope_model::{CampaignKind, InstanceId, Outcome, Run, ServiceName, Span, Treatment};
use serde::Serialize;

use crate::args::{CheckArgs, Global};
use crate::campaign::{Opening, RunningCampaign, interrupted};
use crate::error::CommandError;
use crate::exit::Exit;
use crate::printer::Printer;
use crate::project::Project;
use crate::render;
use crate::render::table::Table;

/// How long the application is up at least, where a service shows by nothing that it works: interpreters need a
/// moment before they fail.
const WATCHED: Duration = Duration::from_secs(2);

#[derive(Debug, Serialize)]
struct Checked {
    application: String,
    services: usize,
    tests: usize,
    deltas: Vec<Delta>,
    /// The cases of tests that list them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    cases: Vec<Listed>,
    /// What will not work on this machine.
    warnings: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    probe: Option<Probed>,
}

#[derive(Debug, Serialize)]
struct Listed {
    test: String,
    cases: Vec<String>,
    /// Cases whose names would be mistaken for something else.
    left_out: usize,
}

impl Listed {
    fn new(found: &Cases) -> Self {
        let cases = found.cases.iter().map(|case| case.name.clone()).collect();
        Self { test: found.test.clone(), cases, left_out: found.left_out }
    }
}

#[derive(Debug, Serialize)]
struct Probed {
    run: String,
    outcome: Outcome,
    calls: u64,
    /// Instances that ended by themselves.
    exits: Vec<InstanceExit>,
    /// The last lines that these printed.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    logs: BTreeMap<InstanceId, Vec<String>>,
    /// Services that made calls without propagating the context, and how many.
    not_propagating: BTreeMap<String, u64>,
    /// Services that propagated it.
    propagating: Vec<String>,
    /// Services that made calls while they handled no request, and how many.
    of_unknown_cause: BTreeMap<String, u64>,
    external_calls_refused: BTreeMap<String, u64>,
}

pub(crate) async fn run(args: CheckArgs, global: &Global, printer: &Printer) -> Result<Exit, CommandError> {
    let mut project = Project::open(&args.target, printer)?;
    let mut warnings = super::check_programs::warnings(&project, args.target.platform);
    let cases = match project.find_cases(printer).await {
        Ok(cases) => cases.iter().map(Listed::new).collect(),
        Err(error) => {
            warnings.push([error.message].into_iter().chain(error.causes).collect::<Vec<_>>().join(": "));
            Vec::new()
        }
    };
    let space = project.application.space().map_err(|e| CommandError::new(Exit::Spec, e.to_string()))?;
    let space = Costs::load(&project.root.join(".faultscope"), &project.application.name).apply(space);
    let probe = if args.probe { Some(probe(&project, &args, global, printer).await?) } else { None };
    let exit = match probe.as_ref().map(|probe| &probe.outcome) {
        None | Some(Outcome::Pass) => Exit::Done,
        Some(Outcome::Fail { .. }) => Exit::Found,
        Some(Outcome::Unresolved { .. }) => Exit::Unresolved,
    };
    let checked = Checked {
        application: project.application.name.clone(),
        services: project.application.services.len(),
        tests: project.application.tests.len(),
        deltas: space.full().iter().map(|delta| space.deltas[delta].clone()).collect(),
        warnings,
        cases,
        probe,
    };
    if printer.json {
        printer.result(&checked)?;
    } else {
        show(&checked, &project, printer);
    }
    Ok(exit)
}

fn show(checked: &Checked, project: &Project, printer: &Printer) {
    printer.line(format!(
        "{}: {}, {}, {} between simplest and failing",
        printer.strong(&checked.application),
        count(checked.services, "service"),
        count(checked.tests, "test"),
        count(checked.deltas.len(), "delta"),
    ));
    for Listed { test, cases, .. } in &checked.cases {
        let first: Vec<&str> = cases.iter().take(3).map(String::as_str).collect();
        let more = if cases.len() > first.len() { ", ..." } else { "" };
        printer.line(format!("{test}: {}: {}{more}", count(cases.len(), "case"), first.join(", ")));
    }
    if !checked.deltas.is_empty() {
        let mut table = Table::new(&["rank", "dimension", "delta", "from", "to", "cost"]);
        let mut deltas: Vec<_> = checked.deltas.iter().collect();
        deltas.sort_by_key(|delta| delta.rank);
        for delta in deltas {
            table.row([
                delta.rank.to_string(),
                delta.dimension.to_string(),
                delta.name.clone(),
                delta.from.clone(),
                delta.to.clone(),
                show_duration(delta.cost),
            ]);
        }
        printer.line(table);
    } else if project.application.failing == project.application.simplest {
        printer.line("no `failing:` circumstance yet, so there is nothing to reduce");
    }
    for warning in &checked.warnings {
        printer.line(format!("{} {warning}", printer.bad("warning:")));
    }
    let Some(probe) = &checked.probe else { return };
    printer.line(format!("\nprobe: {} seen, outcome {}", count(probe.calls, "call"), probe.outcome.word()));
    render::run::ended(&probe.exits, &probe.logs, render::run::MESSAGE_LINES, printer);
    if let Outcome::Unresolved { reason } = &probe.outcome {
        printer.line(format!("{} {reason}", printer.bad("not probed:")));
    } else if probe.calls == 0 {
        printer.line("no test made a call, so trace context could not be checked");
    } else if probe.not_propagating.is_empty() && !probe.propagating.is_empty() {
        printer.line(format!(
            "every service that makes calls propagates trace context ({})",
            count(probe.propagating.len(), "service")
        ));
    }
    let silent = probe.propagating.is_empty() && probe.not_propagating.is_empty();
    if silent && probe.of_unknown_cause.is_empty() && probe.calls > 0 {
        printer.line("no service made a call, so trace context could not be checked");
    }
    for (service, calls) in &probe.of_unknown_cause {
        printer.line(format!(
            "{} made {} outside of any request: it handled none at that time and sent no trace context",
            printer.strong(service),
            count(*calls, "call"),
        ));
    }
    for (service, calls) in &probe.not_propagating {
        printer.line(format!(
            "{} does not propagate trace context in {}: the mesh infers the request behind each, which works only \
             while one is in flight",
            printer.strong(service),
            count(*calls, "call"),
        ));
    }
    for (host, calls) in &probe.external_calls_refused {
        printer.line(format!(
            "{} to the external host {host} refused, because the file does not set `allow: true` for it",
            count(*calls, "call")
        ));
    }
    let at = crate::shell::at(&project.root);
    printer.line(format!("see them with `faultscope runs show {}{at}`", probe.run));
}

async fn probe(
    project: &Project,
    args: &CheckArgs,
    global: &Global,
    printer: &Printer,
) -> Result<Probed, CommandError> {
    let shows_nothing = |service: &Service| service.ready.probe == Probe::Started;
    let watched =
        if project.application.services.values().any(shows_nothing) { WATCHED } else { Duration::ZERO };
    let opening = Opening::new(CampaignKind::Probe, &args.target, 1).up_at_least(watched);
    let campaign = RunningCampaign::open(project, opening, global, printer).await?;
    let request = TrialRequest {
        treatment: Treatment::Nothing,
        circumstance: project.application.simplest.clone(),
        drive: Tests::new(project.application.tests.clone()),
        wanted: None,
    };
    let stop = interrupted();
    let work = async |session: &Arc<Session>| {
        let Some(run) = run_trial(session, request, &stop).await? else { return Ok(None) };
        let spans = session.spans_of(run.trial).await?;
        Ok(Some(summarize(project, run, &spans)))
    };
    let probed = campaign.run(work, |_| "probed".into()).await?;
    probed.ok_or_else(|| CommandError::new(Exit::Interrupted, "interrupted"))
}

/// What the calls of a run show about trace context and external hosts.
fn summarize(project: &Project, run: Run, spans: &[Span]) -> Probed {
    let mut not_propagating: BTreeMap<String, u64> = BTreeMap::new();
    let mut of_unknown_cause: BTreeMap<String, u64> = BTreeMap::new();
    let mut propagating = std::collections::BTreeSet::new();
    for span in spans.iter().filter(|span| span.wire.carries_headers()) {
        match span.parentage {
            Parentage::Propagated => {
                propagating.insert(span.caller.service.to_string());
            }
            Parentage::Inferred | Parentage::Unknown => {
                *not_propagating.entry(span.caller.service.to_string()).or_default() += 1;
            }
            Parentage::Root if span.caller.service.as_str() != ServiceName::TEST => {
                *of_unknown_cause.entry(span.caller.service.to_string()).or_default() += 1;
            }
            Parentage::Root => {}
        }
    }
    let mut refused: BTreeMap<String, u64> = BTreeMap::new();
    for external in &project.application.externals {
        let calls = spans.iter().filter(|s| s.callee == external.service && !external.allow).count();
        if calls > 0 {
            refused.insert(external.host.clone(), calls as u64);
        }
    }
    Probed {
        run: run.id.to_string(),
        calls: run.evidence.spans,
        outcome: run.outcome,
        exits: run.evidence.exits,
        logs: run.evidence.logs,
        not_propagating,
        propagating: propagating.into_iter().collect(),
        of_unknown_cause,
        external_calls_refused: refused,
    }
}
