//! What all imports of containers have in common once their services are known.

use std::collections::BTreeMap;

use super::infer::{Clues, UnknownHost, find_unknown_hosts, infer_ports};
use super::tracing::use_own_collector;
use super::warnings::{Warnings, list_names};
use super::{Imported, ImportedApplication, ImportedService};

/// What a service without a `command` needs. Images are run, not built, so `build` alone helps on no platform.
pub(super) fn describe_missing_command(service: &ImportedService) -> &'static str {
    if service.image.is_some() {
        "no `command` is known: use `--platform docker`, or add one to run without containers"
    } else {
        "only `build` is known: add the `command` that starts it, or, for `--platform docker`, \
         the `image` that you have built from it"
    }
}

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
    for UnknownHost { host, called_by, place } in find_unknown_hosts(&application) {
        warnings.add_general(format!(
            "`{host}` is not among the services, but `{called_by}` may call it ({place}); \
             add it to `services`, or to `external` if it is outside"
        ));
    }
    Imported { application, warnings: warnings.render() }
}
