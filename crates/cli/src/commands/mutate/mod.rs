//! `faultscope mutate`

mod apply;
mod args;
mod check;
mod journal;
mod listing;
mod score;
mod sources;

use faultscope_model::ServiceName;
use faultscope_model::units::count;
use faultscope_mutate::{Operator, faults, mesh_equivalent};
use serde::Serialize;

use crate::args::Global;
use crate::error::CommandError;
use crate::exit::Exit;
use crate::printer::Printer;
use crate::project::Project;
use crate::render::table::Table;
pub(crate) use args::MutateArgs;
use args::{LsArgs, MutateCommand, ShowArgs};
use check::Checked;
use listing::{ListedMutant, Listing};

/// Rows that are shown without `--all`. The rest is counted.
const SHOWN: usize = 200;

pub(crate) async fn run(args: MutateArgs, global: &Global, printer: &Printer) -> Result<Exit, CommandError> {
    match args.command {
        MutateCommand::Ls(args) => ls(&args, printer),
        MutateCommand::Show(args) => show(&args, printer),
        MutateCommand::Apply(args) => apply::apply(&args, printer),
        MutateCommand::Revert(args) => apply::revert(&args, printer),
        MutateCommand::Score(args) => score::run(*args, global, printer).await,
    }
}

fn ls(args: &LsArgs, printer: &Printer) -> Result<Exit, CommandError> {
    let project = Project::read(&args.file)?;
    let mut listing = Listing::read(&project, printer);
    listing.select(&args.selection)?;
    if args.check {
        check::check_all(&project.root, &mut listing.mutants);
    }
    if printer.json {
        printer.result(&listing)?;
        return Ok(Exit::Done);
    }
    if listing.mutants.is_empty() {
        printer.line("there is no place for a mutant");
        return Ok(Exit::Done);
    }
    let mut heading = vec!["mutant", "operator", "service", "place", "in"];
    if args.check {
        heading.push("check");
    }
    let mut table = Table::new(&heading);
    let shown = if args.selection.all { listing.mutants.len() } else { SHOWN };
    for listed in listing.mutants.iter().take(shown) {
        let mutant = &listed.mutant;
        let operator = match mutant.variant {
            Some(variant) => format!("{} {} ({variant})", mutant.operator, mutant.operator.name()),
            None => format!("{} {}", mutant.operator, mutant.operator.name()),
        };
        let place = format!("{}:{}", mutant.path, mutant.line);
        let check = listed.check.as_ref().map_or_else(String::new, Checked::to_string);
        table.row([
            mutant.id.to_string(),
            operator,
            listed.services.join(", "),
            place,
            mutant.within.clone(),
            check,
        ]);
    }
    printer.line(table);
    let hidden = listing.mutants.len().saturating_sub(shown);
    if hidden > 0 {
        printer.line(printer.dim(&format!("and {} more; --all lists them", count(hidden, "mutant"))));
    }
    Ok(Exit::Done)
}

/// The JSON output of `mutate show`.
#[derive(Debug, Serialize)]
struct Shown<'m> {
    #[serde(flatten)]
    listed: &'m ListedMutant,
    diff: String,
    faults: Vec<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mesh: Option<faultscope_mutate::MeshEquivalent>,
}

fn show(args: &ShowArgs, printer: &Printer) -> Result<Exit, CommandError> {
    let project = Project::read(&args.file)?;
    let mut listed = Listing::read(&project, printer).find(&args.mutant)?;
    if args.check {
        check::check_all(&project.root, std::slice::from_mut(&mut listed));
    }
    let operator = listed.mutant.operator;
    let service = listed.services.first().and_then(|name| name.parse::<ServiceName>().ok());
    let mesh = mesh_equivalent(operator, service.as_ref());
    if printer.json {
        let faults = similar_faults(operator);
        printer.result(&Shown { diff: listed.mutant.patch.to_string(), listed: &listed, faults, mesh })?;
        return Ok(Exit::Done);
    }
    printer.line(printer.strong(&format!("{} {}: {}", operator, operator.name(), operator.summary())));
    printer.line(format!("similar faults: {}", similar_faults(operator).join(", ")));
    if let Some(mesh) = mesh {
        let rule = serde_json::to_string(&mesh.rule)
            .map_err(|e| CommandError::internal("the rule cannot be written as JSON").because(e))?;
        printer.line(format!("the mesh has the same symptom with the rule {rule}; {}", mesh.difference));
    }
    if let Some(check) = &listed.check {
        printer.line(format!("check: {check}"));
    }
    printer.line(listed.mutant.patch.to_string().trim_end());
    Ok(Exit::Done)
}

fn similar_faults(operator: Operator) -> Vec<&'static str> {
    faults().filter(|fault| fault.operators.contains(&operator)).map(|fault| fault.id).collect()
}
