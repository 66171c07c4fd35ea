//! The options of a session.

use std::path::PathBuf;
use std::time::Duration;

use faultscope_model::record::Sampling;
use faultscope_model::wiring::RecordLevel;
use faultscope_model::{CampaignId, CampaignKind};

/// The options of a session.
#[derive(Debug, Clone)]
pub struct SessionOptions {
    /// The command that the session belongs to.
    pub purpose: CampaignKind,
    /// The folder of the application file.
    pub root: PathBuf,
    /// The tool's folder, `.faultscope`.
    pub state: PathBuf,
    /// The tool's executable.
    pub program: PathBuf,
    /// The command line, for the record.
    pub command_line: Vec<String>,
    /// How many trials can run at the same time.
    pub slots: u16,
    /// The source of every random choice.
    pub seed: u64,
    /// How much the mesh records; none for the application's setting.
    pub record: Option<RecordLevel>,
    /// How often instances are measured; none for the application's setting.
    pub metrics: Option<Sampling>,
    /// Threads of the mesh.
    pub mesh_workers: usize,
    /// A trial that takes longer counts as spoiled.
    pub trial_within: Duration,
    /// How long an application stays up at least, so that services are noticed that end soon after their start.
    pub up_at_least: Duration,
    /// How often a spoiled trial is repeated before the campaign fails.
    pub retries: u32,
    /// After how many trials a known circumstance is repeated; 0 for never.
    pub sentinel_every: u32,
    /// Resume this campaign instead of starting a new one.
    pub resume: Option<CampaignId>,
    /// The home of whoever runs the tool.
    pub home: Option<PathBuf>,
}

impl SessionOptions {
    /// The default options.
    pub fn new(purpose: CampaignKind, root: PathBuf, program: PathBuf) -> Self {
        Self {
            purpose,
            state: root.join(".faultscope"),
            root,
            program,
            command_line: Vec::new(),
            slots: 1,
            seed: 1,
            record: None,
            metrics: None,
            mesh_workers: 1,
            // Longer than any sensible test suite; a trial that hangs must not hold its slot for ever.
            trial_within: Duration::from_secs(600),
            up_at_least: Duration::ZERO,
            // An agent that dies once is bad luck, one that dies four times in a row is a broken machine.
            retries: 3,
            sentinel_every: 0,
            resume: None,
            home: std::env::var_os("HOME").map(PathBuf::from),
        }
    }

    /// A path that the application file shares with trials; none if it is below a home that nobody knows.
    pub(crate) fn find_shared(&self, path: &str) -> Option<PathBuf> {
        match path.strip_prefix("~/") {
            Some(below) => self.home.as_ref().map(|home| home.join(below)),
            None => Some(path.into()),
        }
    }
}
