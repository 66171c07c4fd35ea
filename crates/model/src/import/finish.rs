//! What all imports of containers have in common once their services are known.

use std::collections::BTreeMap;

use super::infer::{Clues, infer_ports};
use super::tracing::use_own_collector;
use super::warnings::{Warnings, list_names};
use super::{Imported, ImportedApplication};

/// Said of services that are known by their image alone.
pub(super) const NO_COMMAND: &str =
    "no `command` is known: use `--platform docker`, or add one to run without containers";

/// What a user can choose.
#[derive(Debug, Clone, Copy)]
pub(super) struct FinishOptions {
    /// Keep services that collect traces.
    pub(super) keep_tracing: bool,
}

/// Replaces trace back ends by the built-in collector, infers ports, and says who stays unreachable.
pub(super) fn finish(
    mut application: ImportedApplication,
    mut clues: BTreeMap<String, Clues>,
    options: &FinishOptions,
    mut warnings: Warnings,
) -> Imported {
    if !options.keep_tracing {
        use_own_collector(&mut application, &mut clues, &mut warnings);
    }
    let unreachable = infer_ports(&mut application.services, &clues);
    for found in unreachable {
        let needed_by = list_names(&found.needed_by);
        let message = format!("no port is known, but {needed_by} may call it; add `ports`");
        warnings.add(&found.service, message);
    }
    Imported { application, warnings: warnings.render() }
}
