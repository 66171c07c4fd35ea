//! `faultscope store`

use clap::{Args, Subcommand};
use faultscope_model::units::count;
use faultscope_store::{PartKind, PartState, Repair, RepairAction, StorePart, check_store, repair_store};

use crate::error::CommandError;
use crate::exit::Exit;
use crate::folder::FolderArg;
use crate::printer::Printer;
use crate::project;
use crate::render::table::Table;

#[derive(Debug, Args)]
pub(crate) struct StoreArgs {
    #[command(subcommand)]
    command: StoreCommand,
}

#[derive(Debug, Subcommand)]
enum StoreCommand {
    /// Lists every campaign and slice with its state; changes nothing.
    Check {
        #[command(flatten)]
        folder: FolderArg,
    },
    /// Migrates, salvages, and moves what cannot be read to `.faultscope/damaged`.
    Repair {
        #[command(flatten)]
        folder: FolderArg,
    },
}

pub(crate) fn run(args: &StoreArgs, printer: &Printer) -> Result<Exit, CommandError> {
    let (StoreCommand::Check { folder } | StoreCommand::Repair { folder }) = &args.command;
    let state = project::state_folder(folder);
    if !state.is_dir() {
        let message = format!("there is no store at {}", state.display());
        return Err(CommandError::usage(message).hint("name the folder of the application file"));
    }
    match &args.command {
        StoreCommand::Check { .. } => show_parts(&check_store(&state, None)?, printer),
        StoreCommand::Repair { .. } => show_repairs(&repair_store(&state, None)?, printer),
    }
}

fn show_parts(parts: &[StorePart], printer: &Printer) -> Result<Exit, CommandError> {
    let n_damaged = parts.iter().filter(|part| matches!(part.state, PartState::Damaged { .. })).count();
    let exit = if n_damaged > 0 { Exit::Found } else { Exit::Done };
    if printer.json {
        printer.result(&parts)?;
        return Ok(exit);
    }
    if parts.is_empty() {
        printer.line("nothing is stored yet");
        return Ok(exit);
    }
    let mut table = Table::new(&["part", "name", "state", ""]);
    for part in parts {
        let (state, reason) = describe(&part.state);
        table.row([kind(part.kind).to_owned(), part.name.clone(), state.to_owned(), reason.to_owned()]);
    }
    printer.line(table);
    if n_damaged > 0 {
        let are = if n_damaged == 1 { "is" } else { "are" };
        printer.talk(format!(
            "{} {are} damaged; `faultscope store repair` saves what can be read",
            count(n_damaged, "part")
        ));
    } else if parts.iter().any(|part| part.state == PartState::NeedsMigration) {
        printer.talk(
            "what an older version wrote is migrated when it is read, all of it by `faultscope store repair`",
        );
    }
    Ok(exit)
}

fn show_repairs(repairs: &[Repair], printer: &Printer) -> Result<Exit, CommandError> {
    if printer.json {
        printer.result(&repairs)?;
        return Ok(Exit::Done);
    }
    if repairs.is_empty() {
        printer.line("nothing needs a repair");
    }
    for Repair { part, action } in repairs {
        let done = match action {
            RepairAction::Migrated => "migrated".to_owned(),
            RepairAction::Salvaged { rows, moved_to } => {
                format!("{} saved; the damaged file is at {}", count(*rows, "row"), moved_to.display())
            }
            RepairAction::SetAside { moved_to } => format!("moved to {}", moved_to.display()),
            RepairAction::LeftAlone { reason } => format!("left as it is: {reason}"),
        };
        printer.line(format!("{} {}: {done}", kind(part.kind), part.name));
    }
    Ok(Exit::Done)
}

fn kind(kind: PartKind) -> &'static str {
    match kind {
        PartKind::Campaign => "campaign",
        PartKind::Slice => "slice",
        PartKind::Catalogue => "catalogue",
    }
}

fn describe(state: &PartState) -> (&'static str, &str) {
    match state {
        PartState::Ok => ("ok", ""),
        PartState::NeedsMigration => ("needs migration", ""),
        PartState::InUse => ("in use", ""),
        PartState::Newer { reason } => ("newer", reason),
        PartState::Sealed { reason } => ("sealed", reason),
        PartState::Damaged { reason } => ("damaged", reason),
    }
}
