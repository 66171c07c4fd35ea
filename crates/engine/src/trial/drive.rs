//! The stage of a trial that differs between capabilities: what drives the deployed application.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use faultscope_mesh::{MeshReports, MeshSlot};
use faultscope_model::outcome::TestResult;
use faultscope_model::run::{InstanceExit, Perturbed};
use faultscope_model::{Application, Circumstance, Outcome, TrialId};
use tokio_util::sync::CancellationToken;

use crate::clone::StartPoint;
use crate::drive::{ReplayedAnswer, TrialTrace};
use crate::error::EngineError;
use crate::replay::ReplayMocks;
use crate::session::{Lease, Session};

/// Drives a deployed application: with tests, perturbed tests, recorded requests, or by people.
#[async_trait]
pub trait Drive: fmt::Debug + Send + Sync {
    /// What it asks of the application. Equal values mean the same question, so that an answer from before an
    /// interruption can be used for it.
    fn question(&self) -> serde_json::Value;

    /// The number of tests it will run, for displays.
    fn n_tests(&self) -> usize {
        0
    }

    /// The only test that is judged, where others merely run beside it; none when all are.
    fn judged_test(&self) -> Option<&str> {
        None
    }

    /// Whether calls get names that are the same in every run, and their spans are kept at hand.
    fn names_calls(&self) -> bool {
        false
    }

    /// Whether a trial of it has a time limit and is repeated if the infrastructure spoils it.
    fn is_repeatable(&self) -> bool {
        true
    }

    /// What stands for services that are not deployed, anew for each attempt.
    fn mocks(&self) -> Option<Arc<ReplayMocks>> {
        None
    }

    /// What the deployment starts from; fresh data and the commands of the file if none.
    fn starts_from(&self) -> Option<&StartPoint> {
        None
    }

    /// Drives the application until it is done, or `cancel` fires.
    async fn drive(&self, live: &Live<'_>, cancel: &CancellationToken) -> Result<Driven, EngineError>;

    /// Changes the judged outcome by what only this drive knows.
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
    pub(crate) mocks: Option<Arc<ReplayMocks>>,
}

impl Live<'_> {
    /// The mesh around it, if that runs in this process.
    pub(crate) fn mesh(&self) -> Option<&MeshSlot> {
        self.lease.mesh.as_ref()
    }

    pub(crate) fn application(&self) -> &Application {
        &self.session.application
    }
}

/// The result of a drive.
#[derive(Debug, Default)]
pub struct Driven {
    /// Results of the tests, in order.
    pub tests: Vec<TestResult>,
    /// Calls and messages for whoever requested the trial, beyond the stored run.
    pub trace: Option<Box<TrialTrace>>,
    /// The answers to requests that were sent again, in their order.
    pub replayed: Vec<ReplayedAnswer>,
}

impl Driven {
    /// All test results in it, so that secrets can be redacted before anything is judged.
    pub(crate) fn results_mut(&mut self) -> impl Iterator<Item = &mut TestResult> {
        let beside = self.trace.iter_mut().flat_map(|trace| trace.results_mut());
        self.tests.iter_mut().chain(beside)
    }
}

/// What a drive may use to refine an outcome.
#[derive(Debug)]
pub struct JudgeFacts<'a> {
    pub(crate) application: &'a Application,
    pub(crate) circumstance: &'a Circumstance,
    pub(crate) reports: &'a MeshReports,
    pub(crate) driven: &'a Driven,
    /// Instances that ended by themselves.
    pub(crate) exits: &'a [InstanceExit],
}

/// An outcome, with details if calls were perturbed.
#[derive(Debug)]
pub struct Refined {
    /// The refined outcome.
    pub outcome: Outcome,
    /// What was done to calls and messages.
    pub perturbed: Option<Box<Perturbed>>,
}
