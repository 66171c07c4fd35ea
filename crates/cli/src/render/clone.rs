//! Clones on the terminal.

use std::time::Duration;

use faultscope_engine::clone::Manifest;
use faultscope_model::units::{ByteSize, count, show_duration};
use faultscope_platform::SharedData;

use super::table::Table;
use super::time;
use crate::printer::Printer;

/// One line for each clone.
pub(crate) fn table<'a>(clones: impl Iterator<Item = &'a Manifest>) -> Table {
    let mut table = Table::new(&["clone", "taken", "name", "instances", "data", "pause", "because"]);
    for clone in clones {
        table.row([
            clone.id.to_string(),
            time::ago(clone.taken_us),
            clone.name.clone().unwrap_or_default(),
            clone.snapshot.instances.len().to_string(),
            ByteSize(clone.bytes()).to_string(),
            show_pause(clone.longest_pause()),
            clone.trigger.to_string(),
        ]);
    }
    table
}

/// All about a clone.
pub(crate) fn show(clone: &Manifest, printer: &Printer) {
    let name = clone.name.as_ref().map(|name| format!(" `{name}`")).unwrap_or_default();
    printer.line(format!(
        "clone {}{name} of {} ({}), taken {}: {}",
        clone.id,
        clone.application,
        clone.snapshot.platform,
        time::ago(clone.taken_us),
        clone.trigger
    ));
    printer.line(format!(
        "  {} stood still up to {}, frozen within {} of each other",
        count(clone.snapshot.instances.len(), "instance"),
        show_pause(clone.longest_pause()),
        show_pause(clone.snapshot.spread())
    ));
    let mut table = Table::new(&["instance", "pause", "data", "files", "state in memory"]);
    for instance in &clone.snapshot.instances {
        let pause = if instance.ran { show_pause(instance.pause) } else { "had ended".to_owned() };
        table.row([
            instance.id.to_string(),
            pause,
            ByteSize(instance.data.bytes).to_string(),
            instance.data.files.to_string(),
            clone.memory(&instance.id).to_string(),
        ]);
    }
    for shared in &clone.snapshot.shared {
        let name = match &shared.of {
            SharedData::Volume(name) => format!("volume {name}"),
            SharedData::Home => "home".to_owned(),
        };
        let (bytes, files) = (ByteSize(shared.data.bytes).to_string(), shared.data.files.to_string());
        table.row([name, String::new(), bytes, files, String::new()]);
    }
    printer.line(table);
    let own = clone.snapshot.instances.iter().map(|instance| instance.data.left_out);
    let left_out: u64 = own.chain(clone.snapshot.shared.iter().map(|shared| shared.data.left_out)).sum();
    if left_out > 0 {
        let files = count(usize::try_from(left_out).unwrap_or(usize::MAX), "file");
        printer.line(format!("  not in it: {files} (sockets, devices, or not readable)"));
    }
}

/// The manifest for `--json`, without the environment: its values may be secrets.
pub(crate) fn without_values(clone: &Manifest) -> Manifest {
    let mut clone = clone.clone();
    for instance in &mut clone.plan.instances {
        instance.env.values_mut().for_each(|value| "<hidden>".clone_into(value));
    }
    clone
}

fn show_pause(pause: Duration) -> String {
    // Microseconds say nothing here.
    let rounded = Duration::from_micros(pause.as_micros().div_ceil(100) as u64 * 100);
    show_duration(rounded)
}
