//! What a deployment starts from, where that is not fresh data and the commands of the application file.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use faultscope_model::ServiceName;
use faultscope_model::plan::{InstancePlan, Plan};
use faultscope_platform::Snapshot;

use super::shelf::StoredClone;

/// A clone, changed commands, or both.
#[derive(Debug, Clone, Default)]
pub struct StartPoint {
    clone: Option<StoredClone>,
    commands: BTreeMap<ServiceName, Vec<String>>,
    /// How long changed services may take to be ready: a debugger waits for people.
    ready_within: Option<Duration>,
}

impl StartPoint {
    /// The data, commands, environments and limits of a clone.
    pub fn from_clone(clone: StoredClone) -> Self {
        Self { clone: Some(clone), ..Self::default() }
    }

    /// Starts a service with another command, and waits longer until it is ready.
    pub fn with_command(
        mut self,
        service: ServiceName,
        command: Vec<String>,
        ready_within: Duration,
    ) -> Self {
        self.commands.insert(service, command);
        self.ready_within = Some(ready_within);
        self
    }

    /// What tells two start points apart.
    pub(crate) fn question(&self) -> serde_json::Value {
        let clone = self.clone.as_ref().map(|clone| clone.manifest.id.as_str());
        serde_json::json!({ "clone": clone, "commands": self.commands })
    }

    /// The data to start from.
    pub(crate) fn data(&self) -> Option<(&Path, &Snapshot)> {
        self.clone.as_ref().map(|clone| (clone.data.as_path(), &clone.manifest.snapshot))
    }

    /// Replaces what the application file says now by what the clone had, and then by what the user wants.
    pub(crate) fn adapt(&self, plan: &mut Plan, program: &str) {
        if let Some(StoredClone { manifest, .. }) = &self.clone {
            for instance in &mut plan.instances {
                let Some(stored) = manifest.plan.instances.iter().find(|other| other.id == instance.id)
                else {
                    continue;
                };
                let now = std::mem::replace(instance, stored.clone());
                // The tool itself may be somewhere else by now.
                replace_program(instance, &manifest.program, program);
                for name in &manifest.left_out {
                    if let Some(value) = now.env.get(name) {
                        instance.env.insert(name.clone(), value.clone());
                    }
                }
            }
        }
        for instance in &mut plan.instances {
            let Some(command) = self.commands.get(&instance.id.service) else { continue };
            (instance.command, instance.entrypoint) = (command.clone(), None);
            if let Some(within) = self.ready_within {
                instance.ready.within = instance.ready.within.max(within);
            }
        }
    }
}

fn replace_program(instance: &mut InstancePlan, old: &str, new: &str) {
    let words = instance.command.iter_mut().chain(instance.entrypoint.iter_mut().flatten());
    for word in words.chain(instance.env.values_mut()).filter(|word| word.as_str() == old) {
        new.clone_into(word);
    }
}
