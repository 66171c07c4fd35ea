//! The launcher alone, for this crate's tests: what the tool's own binary does for its `launch` subcommand,
//! the service of the contract, and a tool that can be killed.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use faultscope_model::SlotId;
use faultscope_model::plan::Plan;
use faultscope_model::units::ByteSize;
use faultscope_platform::contract::service_main;
use faultscope_platform::process::launch::launch_main;
use faultscope_platform::{
    Execution, Place, Platform, ProcessOptions, ProcessPlatform, Rights, SlotSpec, WantedIsolation,
};
use tokio_util::sync::CancellationToken;

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    match args.next().as_ref().and_then(|a| a.to_str()) {
        Some("launch") => launch_main(args.collect()),
        Some("service") => service_main(args.collect()),
        Some("tool") => tool(args.map(PathBuf::from).collect()),
        _ => ExitCode::from(64),
    }
}

/// Runs the plan in a file, and then a test if there is one, until it is killed:
/// `tool APPLICATION LABEL netns|ports PLAN [SCRIPT]`.
#[tokio::main]
async fn tool(args: Vec<PathBuf>) -> ExitCode {
    let [application, label, isolation, plan, script @ ..] = args.as_slice() else {
        return ExitCode::from(64);
    };
    let Ok(Ok(plan)) = std::fs::read(plan).map(|text| serde_json::from_slice::<Plan>(&text)) else {
        return ExitCode::from(65);
    };
    let isolation =
        if isolation.as_os_str() == "ports" { WantedIsolation::Ports } else { WantedIsolation::Netns };
    let spec = SlotSpec {
        id: SlotId(0),
        label: label.display().to_string(),
        application: application.clone(),
        state: application.join(".faultscope"),
        setup: None,
        template: String::new(),
        program: std::env::current_exe().unwrap_or_default(),
        log_limit: ByteSize(1 << 20),
        authority: None,
        control: None,
        home: None,
        shared: Vec::new(),
    };
    let run = async {
        let options = ProcessOptions { isolation, program: spec.program.clone(), state: None };
        let platform = ProcessPlatform::new(options)?;
        platform.open_slot(&spec).await?;
        platform.apply(spec.id, &plan, &CancellationToken::new()).await?;
        Ok::<_, faultscope_platform::PlatformError>(platform)
    };
    match run.await {
        Ok(platform) => {
            let _ = writeln!(std::io::stdout(), "ready");
            if let [script] = script {
                let run = Execution {
                    command: vec!["sh".into(), "-c".into(), script.display().to_string()],
                    env: BTreeMap::new(),
                    directory: String::new(),
                    within: Duration::from_secs(600),
                    output_limit: 1 << 10,
                    place: Place::Test,
                    rights: Rights::Service,
                };
                let _ = platform.exec(spec.id, &run, &CancellationToken::new()).await;
            }
            std::future::pending().await
        }
        Err(error) => {
            let _ = writeln!(std::io::stdout(), "{error:?}");
            ExitCode::FAILURE
        }
    }
}
