//! `faultscope clean`

use faultscope_model::units;
use faultscope_model::units::count;
use faultscope_platform::process::{ProcessOptions, ProcessPlatform, WantedIsolation};
use faultscope_platform::{Platform, Reaped};
use faultscope_store::{Retention, Store};
use serde::Serialize;

use crate::args::CleanArgs;
use crate::error::CommandError;
use crate::exit::Exit;
use crate::printer::Printer;
use crate::project;

#[derive(Debug, Serialize)]
struct Cleaned {
    left_over: Reaped,
    campaigns: Vec<String>,
}

pub(crate) async fn run(args: CleanArgs, printer: &Printer) -> Result<Exit, CommandError> {
    let state = project::state_folder(&args.folder);
    let options = ProcessOptions {
        isolation: WantedIsolation::Auto,
        program: project::own_program()?,
        state: Some(state.clone()),
    };
    let mut left_over = ProcessPlatform::new(options)?.reap_orphans().await?;
    left_over.containers += containers().await?;
    let mut campaigns = Vec::new();
    let keep_for = args.keep_for.as_deref().map(units::parse_duration).transpose();
    let most_age = keep_for.map_err(|e| CommandError::usage(e.to_string()))?;
    let most_bytes = args.keep_bytes.map(|size| size.0);
    let retention = Retention { most_campaigns: args.keep, most_bytes, most_age };
    if retention != Retention::default() && state.is_dir() {
        let store = Store::open(&state)?;
        campaigns = store.retain(retention)?.iter().map(ToString::to_string).collect();
    }
    let cleaned = Cleaned { left_over, campaigns };
    if printer.json {
        printer.result(&cleaned)?;
        return Ok(Exit::Done);
    }
    let Reaped { processes, cgroups, mounts, containers, folders } = &cleaned.left_over;
    printer.line(format!(
        "removed {}, {}, {}, {}, {} of killed faultscope processes, and {}",
        count(*processes, "process"),
        count(*cgroups, "control group"),
        count(*mounts, "mount"),
        count(*containers, "container"),
        count(*folders, "folder"),
        count(cleaned.campaigns.len(), "campaign")
    ));
    Ok(Exit::Done)
}

/// Removes containers, networks and volumes of killed tools; without an engine there are none.
#[cfg(feature = "docker")]
async fn containers() -> Result<usize, CommandError> {
    use faultscope_platform::PlatformErrorKind;
    use faultscope_platform::docker::{DockerOptions, DockerPlatform};
    match DockerPlatform::connect(DockerOptions::default()).await {
        Ok(platform) => Ok(platform.reap_orphans().await?.containers),
        Err(error) if error.kind == PlatformErrorKind::Unavailable => Ok(0),
        Err(error) => Err(error.into()),
    }
}

#[cfg(not(feature = "docker"))]
async fn containers() -> Result<usize, CommandError> {
    Ok(0)
}
