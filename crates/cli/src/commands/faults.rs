//! `faultscope faults`

use clap::{Args, Subcommand};
use faultscope_model::application::nearest;
use faultscope_mutate::{Fault, Operator, faults};

use crate::error::CommandError;
use crate::exit::Exit;
use crate::printer::Printer;
use crate::render::table::Table;

#[derive(Debug, Args)]
pub(crate) struct FaultsArgs {
    #[command(subcommand)]
    pub(crate) command: FaultsCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum FaultsCommand {
    /// Lists known faults of microservice systems.
    Ls(FaultsLsArgs),
    /// Shows one fault: symptom, cause, source, and the operators with the same symptom.
    Show(FaultsShowArgs),
}

#[derive(Debug, Args)]
pub(crate) struct FaultsLsArgs {
    /// Only faults with the symptom of this operator.
    #[arg(long, value_name = "OPERATOR")]
    pub(crate) operator: Option<Operator>,
}

#[derive(Debug, Args)]
pub(crate) struct FaultsShowArgs {
    /// The fault: RR-1, DD-F1, MS-F1.
    pub(crate) fault: String,
}

pub(crate) fn run(args: &FaultsArgs, printer: &Printer) -> Result<Exit, CommandError> {
    match &args.command {
        FaultsCommand::Ls(args) => ls(args, printer),
        FaultsCommand::Show(args) => show(args, printer),
    }
}

fn ls(args: &FaultsLsArgs, printer: &Printer) -> Result<Exit, CommandError> {
    let is_wanted = |fault: &&Fault| args.operator.is_none_or(|operator| fault.operators.contains(&operator));
    let listed: Vec<&Fault> = faults().filter(is_wanted).collect();
    if printer.json {
        printer.result(&listed)?;
        return Ok(Exit::Done);
    }
    let mut table = Table::new(&["fault", "noticed by", "operators", "symptom"]);
    for fault in listed {
        let category = fault.category.word().to_owned();
        table.row([fault.id.to_owned(), category, operators(fault), fault.symptom.to_owned()]);
    }
    printer.line(table);
    Ok(Exit::Done)
}

fn show(args: &FaultsShowArgs, printer: &Printer) -> Result<Exit, CommandError> {
    let Some(fault) = faults().find(|fault| fault.id.eq_ignore_ascii_case(&args.fault)) else {
        let near = nearest(&args.fault, faults().map(|fault| fault.id));
        let hint = near.map_or_else(
            || "`faultscope faults ls` lists them".to_owned(),
            |near| format!("did you mean `{near}`? `faultscope faults ls` lists them"),
        );
        return Err(CommandError::usage(format!("there is no fault `{}`", args.fault)).hint(hint));
    };
    if printer.json {
        printer.result(fault)?;
        return Ok(Exit::Done);
    }
    printer.line(printer.strong(fault.id));
    printer.line(format!("symptom    {}", fault.symptom));
    printer.line(format!("cause      {}", fault.cause));
    printer.line(format!("source     {}", fault.source));
    for operator in fault.operators {
        printer.line(format!("operator   {operator} {}: {}", operator.name(), operator.summary()));
    }
    Ok(Exit::Done)
}

fn operators(fault: &Fault) -> String {
    fault.operators.iter().map(|operator| operator.id()).collect::<Vec<_>>().join(", ")
}
