//! `replay --debug`: services that start in a debugger, and how to attach to it.

use std::time::Duration;

use faultscope_engine::Session;
use faultscope_engine::clone::{AttachHint, Forwarded, StartPoint, StoredClone, forward_port};
use faultscope_model::{Application, InstanceId, ServiceName, SlotId};

use crate::error::CommandError;
use crate::exit::Exit;
use crate::printer::Printer;

/// How long people may look at a breakpoint.
pub(crate) const PEOPLE_WITHIN: Duration = Duration::from_secs(4 * 3600);

/// Services with another command.
#[derive(Debug, Default)]
pub(crate) struct Debugging {
    services: Vec<(ServiceName, String)>,
}

impl Debugging {
    /// Reads `SERVICE=COMMAND`.
    pub(crate) fn parse(texts: &[String], application: &Application) -> Result<Self, CommandError> {
        let mut services = Vec::new();
        for text in texts {
            let parts = text.split_once('=').filter(|(_, command)| !command.trim().is_empty());
            let (name, command) = parts.ok_or_else(|| {
                let examples =
                    AttachHint::examples().map(|(language, command)| format!("{language}: {command}"));
                CommandError::usage(format!("`{text}` is not a service and a command"))
                    .hint(format!("write `--debug order='COMMAND'`; {}", examples.join("; ")))
            })?;
            let service = application.services.keys().find(|service| service.as_str() == name);
            let service = service.ok_or_else(|| {
                let names =
                    application.services.keys().map(ToString::to_string).collect::<Vec<_>>().join(", ");
                CommandError::usage(format!("there is no service `{name}`"))
                    .hint(format!("there are {names}"))
            })?;
            services.push((service.clone(), command.to_owned()));
        }
        Ok(Self { services })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.services.is_empty()
    }

    /// What the deployment starts from; none if everything is as recorded.
    pub(crate) fn start_point(&self, clone: Option<StoredClone>) -> Option<StartPoint> {
        if clone.is_none() && self.is_empty() {
            return None;
        }
        let start = clone.map(StartPoint::from_clone).unwrap_or_default();
        let add = |start: StartPoint, (service, command): &(ServiceName, String)| {
            // Through a shell, so that people may write what they would type.
            let words = vec!["sh".to_owned(), "-c".to_owned(), format!("exec {command}")];
            start.with_command(service.clone(), words, PEOPLE_WITHIN)
        };
        Some(self.services.iter().fold(start, add))
    }

    /// Forwards the ports of the debuggers, and says how to attach to them.
    pub(crate) async fn forward(
        &self,
        session: &Session,
        printer: &Printer,
    ) -> Result<Vec<Forwarded>, CommandError> {
        let mut forwarded = Vec::new();
        for (service, command) in &self.services {
            let words: Vec<String> = command.split_whitespace().map(str::to_owned).collect();
            let Some(hint) = AttachHint::find(&words) else {
                printer.talk(format!("{service} runs `{command}`"));
                continue;
            };
            let instance = InstanceId::new(service.clone(), 1);
            let platform = session.platform().clone();
            let port = forward_port(platform, SlotId(0), instance.clone(), hint.port).await;
            let port = port.map_err(|e| {
                CommandError::new(Exit::Environment, "no port of this machine can be used").because(e)
            })?;
            printer.talk(format!(
                "{instance} starts with {}; attach to {}: {}",
                hint.debugger,
                port.address,
                hint.instructions(port.address.port())
            ));
            forwarded.push(port);
        }
        Ok(forwarded)
    }
}
