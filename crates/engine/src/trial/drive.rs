//! The one stage of a trial that differs from capability to capability: what drives the deployed application.

use std::fmt;

use async_trait::async_trait;
use faultscope_mesh::{MeshReports, MeshSlot};
use faultscope_model::outcome::TestResult;
use faultscope_model::run::Perturbed;
use faultscope_model::{Application, Circumstance, Outcome, TrialId};
use tokio_util::sync::CancellationToken;

use crate::drive::TrialTrace;
use crate::error::EngineError;
use crate::session::{Lease, Session};

/// Drives a deployed application: with tests, perturbed tests, or by the hands of people.
#[async_trait]
pub trait Drive: fmt::Debug + Send + Sync {
    /// What it asks of the application. The same value means the same question, so an answer from before an
    /// interruption can be taken for it.
    fn question(&self) -> serde_json::Value;

    /// How many tests it is going to run, for displays.
    fn n_tests(&self) -> usize {
        0
    }

    /// Whether calls get names that are the same in every run, and their spans are kept at hand.
    fn names_calls(&self) -> bool {
        false
    }

    /// Whether a trial of it has a time limit and is repeated when the infrastructure spoils it.
    fn is_repeatable(&self) -> bool {
        true
    }

    /// Drives the application until there is nothing left to do, or `cancel` fires.
    async fn drive(&self, live: &Live<'_>, cancel: &CancellationToken) -> Result<Driven, EngineError>;

    /// Changes what the common judge came to by what only this drive knows.
    fn refine(&self, _facts: &JudgeFacts<'_>, judged: Outcome) -> Refined {
        Refined { outcome: judged, perturbed: None }
    }
}

/// A deployed application, as a drive sees it.
#[derive(Debug)]
pub struct Live<'a> {
    pub(crate) session: &'a Session,
    pub(crate) lease: &'a Lease,
    pub(crate) trial: TrialId,
}

impl Live<'_> {
    /// The mesh around it, where that runs in this process.
    pub(crate) fn mesh(&self) -> Option<&MeshSlot> {
        self.lease.mesh.as_ref()
    }

    pub(crate) fn application(&self) -> &Application {
        &self.session.application
    }
}

/// What a drive showed.
#[derive(Debug, Default)]
pub struct Driven {
    /// What each test showed.
    pub tests: Vec<TestResult>,
    /// What whoever asked for the trial wants to see at once, beyond the stored run.
    pub trace: Option<Box<TrialTrace>>,
}

impl Driven {
    /// Every test result in it, so that secrets can be taken out before anything is judged.
    pub(crate) fn results_mut(&mut self) -> impl Iterator<Item = &mut TestResult> {
        let invariants = self.trace.iter_mut().flat_map(|trace| trace.invariants.iter_mut());
        self.tests.iter_mut().chain(invariants)
    }
}

/// What a drive may look at when it refines an outcome.
#[derive(Debug)]
pub struct JudgeFacts<'a> {
    pub(crate) application: &'a Application,
    pub(crate) circumstance: &'a Circumstance,
    pub(crate) reports: &'a MeshReports,
    pub(crate) driven: &'a Driven,
}

/// An outcome, with what it rests on where calls were perturbed.
#[derive(Debug)]
pub struct Refined {
    /// What the trial showed.
    pub outcome: Outcome,
    /// What was done to calls and messages.
    pub perturbed: Option<Box<Perturbed>>,
}
