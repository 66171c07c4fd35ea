//! The two files through which a test's own process is perturbed and reports what happened.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use faultscope_model::perturbation::{
    Configuration, Event, PERTURBATION_FILE, Perturbation, TRACE_FILE, read_trace,
};
use faultscope_model::{CampaignId, SlotId};

use crate::bounded_file;
use crate::drive::tests::{REPORTS, Report};

/// The largest trace file that is read.
const MAX_TRACE: u64 = 256 << 20;

/// The files of one trial, removed with it.
#[derive(Debug)]
pub(super) struct ProcessFiles {
    perturbations: Report,
    trace: Report,
}

impl ProcessFiles {
    /// Writes the perturbations into a folder that the test sees.
    pub(super) fn write(
        folder: &Path,
        campaign: &CampaignId,
        slot: SlotId,
        perturbations: &[Perturbation],
    ) -> io::Result<Self> {
        let file = |name: &str| {
            Report(folder.join(format!("{REPORTS}{}-{campaign}-{}-{name}", std::process::id(), slot.0)))
        };
        let files = Self { perturbations: file("perturb.json"), trace: file("trace.jsonl") };
        files.trace.remove();
        let configuration = Configuration::new(perturbations.to_vec());
        std::fs::write(&files.perturbations.0, serde_json::to_vec(&configuration)?)?;
        Ok(files)
    }

    /// The variables that point a command to them.
    pub(super) fn env(&self) -> BTreeMap<String, String> {
        let text = |report: &Report| report.0.to_string_lossy().into_owned();
        BTreeMap::from([
            (TRACE_FILE.to_owned(), text(&self.trace)),
            (PERTURBATION_FILE.to_owned(), text(&self.perturbations)),
        ])
    }

    /// The messages that the process recorded; empty if it has no adapter.
    pub(super) fn read_messages(&self) -> Result<Vec<Event>, String> {
        let bytes = match bounded_file::read_bounded(&self.trace.0, MAX_TRACE) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            read => read.map_err(|e| e.to_string())?,
        };
        let text = String::from_utf8(bytes).map_err(|_| "it is not text".to_owned())?;
        read_trace(&text).map(|(_, events)| events).map_err(|e| e.to_string())
    }
}
