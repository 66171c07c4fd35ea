//! `faultscope clone shell`

use std::io::{IsTerminal, Read};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use faultscope_engine::clone::{CloneDesk, CloneTrigger, StartPoint, StoredClone};
use faultscope_engine::testing::keep_up;
use faultscope_engine::{People, Session, TrialRequest};
use faultscope_model::{CampaignKind, InstanceId, SlotId};
use faultscope_platform::{Execution, Place, Rights};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::clone::open_shelf;
use crate::args::{Global, IsolationArg, PlatformChoice, Target};
use crate::campaign::{Opening, RunningCampaign, interrupted};
use crate::error::CommandError;
use crate::exit::Exit;
use crate::printer::Printer;
use crate::project::Project;
use crate::terminal::Terminal;

/// A shell may stay open over night.
const SHELL_WITHIN: Duration = Duration::from_secs(7 * 24 * 3600);
/// What is kept of the output of a command.
const MAX_OUTPUT: usize = 16 << 20;
/// The longest script that is read from standard input.
const MAX_SCRIPT: u64 = 1 << 20;
/// Edited copies are kept by their names, so that none is removed for them.
const KEEP_ALL: usize = usize::MAX;

#[derive(Debug, Args)]
pub(crate) struct ShellArgs {
    /// Its id, the beginning of it, its name, or `last`.
    clone: String,
    /// The service or instance; by default the first one.
    #[arg(value_name = "SERVICE")]
    service: Option<String>,
    /// A command to run instead of a shell. Without a terminal, a shell reads commands from standard input.
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
    /// Keep the copy as another clone with this name when the shell ends.
    #[arg(long, value_name = "NAME")]
    save_as: Option<String>,
    /// The application's folder or file.
    #[arg(long, value_name = "FOLDER", default_value = ".")]
    folder: PathBuf,
    /// The platform that runs the application.
    #[arg(long, value_enum, default_value_t = PlatformChoice::Process)]
    platform: PlatformChoice,
    /// How processes are isolated; by default as in the file.
    #[arg(long, value_enum)]
    isolation: Option<IsolationArg>,
}

pub(crate) async fn run(args: ShellArgs, global: &Global, printer: &Printer) -> Result<Exit, CommandError> {
    let target = Target::for_file(args.folder.clone(), args.platform, args.isolation);
    let project = Project::open(&target, printer)?;
    let shelf = open_shelf(&args.folder);
    let clone = shelf.find(&args.clone)?;
    if let Some(name) = &args.save_as {
        shelf.check_name(name)?;
    }
    let instance = find_instance(&clone, args.service.as_deref())?;
    let campaign =
        RunningCampaign::open(&project, Opening::new(CampaignKind::Up, &target, 1), global, printer).await?;
    let (until, cancel, stop) = (CancellationToken::new(), CancellationToken::new(), interrupted());
    let (opened, is_open) = oneshot::channel();
    let given = (clone.manifest.treatment.clone(), clone.manifest.circumstance.clone());
    let (desk, cloner) = CloneDesk::open(shelf, given.clone(), KEEP_ALL);
    let people = People::new(Vec::new(), opened, until.clone())
        .map_err(|e| CommandError::internal("a socket has no address").because(e))?
        .with_clones(cloner)
        .starting_from(StartPoint::from_clone(clone.clone()));
    let request =
        TrialRequest { treatment: given.0, circumstance: given.1, drive: Arc::new(people), wanted: None };
    let mut trial = tokio::spawn({
        let (session, cancel) = (campaign.session.clone(), cancel.clone());
        async move { keep_up(&session, request, &cancel).await }
    });
    let up = tokio::select! {
        Ok(_) = is_open => true,
        _ = &mut trial => false,
        () = stop.cancelled() => {
            cancel.cancel();
            let _ = (&mut trial).await;
            false
        }
    };
    if !up {
        campaign.close(&"not up").await?;
        return Err(CommandError::new(Exit::Unresolved, "the clone's services did not get ready")
            .hint("`faultscope runs show last --logs` shows what they printed"));
    }
    let mut campaign = campaign;
    campaign.end_progress().await;
    let code = open_shell(&campaign.session, &instance, &clone, &args.command, printer).await;
    let saved = match (&code, args.save_as) {
        (Ok(_), Some(name)) => {
            let trigger = CloneTrigger::Edit { of: clone.manifest.id.clone() };
            Some(desk.order(trigger, Some(name)).await)
        }
        _ => None,
    };
    until.cancel();
    let ended = trial.await;
    campaign.close(&"ended").await?;
    ended.map_err(|e| CommandError::internal("the trial's task panicked").because(e))??;
    if let Some(saved) = saved.transpose()? {
        let id = saved.manifest.id;
        printer.talk(format!("kept as {id}; replay on it with `faultscope replay TRACE --on {id}`"));
    }
    match code? {
        Some(0) => Ok(Exit::Done),
        _ => Ok(Exit::Found),
    }
}

/// Runs a shell, a script or a command in an instance; returns its exit code.
async fn open_shell(
    session: &Session,
    instance: &InstanceId,
    clone: &StoredClone,
    command: &[String],
    printer: &Printer,
) -> Result<Option<i32>, CommandError> {
    let planned = clone.manifest.plan.instances.iter().find(|planned| planned.id == *instance);
    let is_interactive = command.is_empty() && std::io::stdin().is_terminal();
    let shell = std::env::var("SHELL").unwrap_or_else(|_| "sh".to_owned());
    let words = if !command.is_empty() {
        command.to_vec()
    } else if is_interactive {
        vec![shell]
    } else {
        vec!["sh".into(), "-c".into(), read_script()?]
    };
    let run = Execution {
        command: words,
        env: planned.map(|planned| planned.env.clone()).unwrap_or_default(),
        directory: planned.map(|planned| planned.directory.clone()).unwrap_or_default(),
        within: SHELL_WITHIN,
        output_limit: MAX_OUTPUT,
        place: Place::Instance(instance.clone()),
        rights: Rights::Service,
    };
    let (slot, cancel) = (SlotId(0), CancellationToken::new());
    if is_interactive {
        printer.talk(format!(
            "a shell in a copy of {instance}; what you change here is gone unless --save-as keeps it"
        ));
        let no_terminal =
            |e: std::io::Error| CommandError::new(Exit::Environment, "there is no terminal").because(e);
        let terminal = Terminal::open().map_err(no_terminal)?;
        let program_side = terminal.program_side().map_err(no_terminal)?;
        let exit = session.platform().attach(slot, &run, program_side, &cancel).await;
        terminal.close();
        return Ok(exit?.code);
    }
    let exit = session.platform().exec(slot, &run, &cancel).await?;
    if !exit.stdout.is_empty() {
        printer.line(exit.stdout.trim_end_matches('\n'));
    }
    if !exit.stderr.is_empty() {
        printer.talk(exit.stderr.trim_end_matches('\n'));
    }
    Ok(exit.code)
}

fn read_script() -> Result<String, CommandError> {
    let mut script = String::new();
    let read = std::io::stdin().lock().take(MAX_SCRIPT).read_to_string(&mut script);
    read.map_err(|e| CommandError::usage("the script on standard input cannot be read").because(e))?;
    Ok(script)
}

fn find_instance(clone: &StoredClone, wanted: Option<&str>) -> Result<InstanceId, CommandError> {
    let all: Vec<&InstanceId> = clone.manifest.plan.instances.iter().map(|instance| &instance.id).collect();
    let found = match wanted {
        None => all.first(),
        Some(wanted) => all.iter().find(|id| id.to_string() == wanted || id.service.as_str() == wanted),
    };
    found.map(|id| (*id).clone()).ok_or_else(|| {
        let names = all.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        CommandError::usage(format!("the clone has no `{}`", wanted.unwrap_or("service")))
            .hint(format!("it has {names}"))
    })
}
