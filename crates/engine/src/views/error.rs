//! Errors of views, in kinds that a caller can act on.

use std::fmt;
use std::path::PathBuf;

use faultscope_model::CampaignId;
use faultscope_model::units::{count, nouns};
use faultscope_store::StoreError;

/// The most candidates that a message lists; the error itself has all of them.
const MAX_LISTED: usize = 5;

/// Why a view cannot be computed.
#[derive(Debug, thiserror::Error)]
pub enum ViewError {
    /// There is no `.faultscope` folder.
    #[error("there are no {} at {}", wanted.plural(), place.display())]
    NoStore {
        /// What was requested.
        wanted: Subject,
        /// Where the folder would be.
        place: PathBuf,
    },
    /// The folder exists, but contains nothing of this kind.
    #[error("{}", empty(*.0))]
    Empty(Subject),
    /// Nothing has this name.
    #[error("{}", not_found(*subject, name))]
    NotFound {
        /// What was requested.
        subject: Subject,
        /// The name as typed.
        name: String,
    },
    /// A name that is not valid.
    #[error("the {subject} id `{name}` {reason}")]
    BadName {
        /// What was requested.
        subject: Subject,
        /// The name as typed.
        name: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A prefix of several names.
    #[error("{}", ambiguous(*subject, name, candidates))]
    Ambiguous {
        /// What was requested.
        subject: Subject,
        /// The prefix as typed.
        name: String,
        /// All names that start with it.
        candidates: Vec<String>,
    },
    /// The campaign has no report: it has not ended, or is of a kind without one.
    #[error("campaign {0} has no report")]
    NoReport(CampaignId),
    /// The store cannot be read; its kind says whether it is damaged, newer, in use or not permitted.
    #[error(transparent)]
    Unreadable(#[from] StoreError),
}

/// What was requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subject {
    /// The record of a trial.
    Run,
    /// All trials of one command.
    Campaign,
    /// The report of a campaign.
    Report,
    /// A trace, reported or recorded.
    Trace,
    /// A trace within one run.
    TraceOfRun,
    /// Reported spans.
    Span,
    /// A metric.
    Metric,
}

impl Subject {
    fn plural(self) -> String {
        // A report belongs to a campaign: whoever asks for one names its campaign.
        let one = if self == Self::Report { Self::Campaign } else { self };
        nouns(&2_u8, &one.to_string())
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Run => "run",
            Self::Campaign => "campaign",
            Self::Report => "report",
            Self::Trace | Self::TraceOfRun => "trace",
            Self::Span => "span",
            Self::Metric => "metric",
        })
    }
}

fn empty(subject: Subject) -> String {
    match subject {
        Subject::Report => "there is no finished debug campaign yet".to_owned(),
        other => format!("there are no {} yet", other.plural()),
    }
}

fn not_found(subject: Subject, name: &str) -> String {
    match subject {
        Subject::Metric => format!("there is no metric `{name}` here"),
        Subject::TraceOfRun => format!("the run has no trace `{name}`"),
        Subject::Trace => format!("there is no trace `{name}`"),
        other => format!("there is no {other} `{name}`"),
    }
}

fn ambiguous(subject: Subject, name: &str, candidates: &[String]) -> String {
    let listed: Vec<_> = candidates.iter().take(MAX_LISTED).map(String::as_str).collect();
    let (all, listed) = (count(candidates.len() as u64, &subject.to_string()), listed.join(", "));
    match subject {
        Subject::Trace => format!("the trace id `{name}` begins {all}: {listed}"),
        _ => format!("`{name}` begins {all}: {listed}"),
    }
}
