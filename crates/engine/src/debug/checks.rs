//! Start-up checks: nothing may fail without deltas, and the failure must come with all of them.

use std::sync::Arc;

use faultscope_model::application::TestCase;
use faultscope_model::outcome::Signature;
use faultscope_model::{DeltaSet, Outcome, Run, SlotId, Space, TrialId};
use tokio_util::sync::CancellationToken;

use super::Verdict;
use crate::error::EngineError;
use crate::session::Session;
use crate::trial::{TrialEnd, TrialRequest};

/// The start-up checks have numbers of their own, beyond any search's.
const CHECKS: u64 = 900_000;

/// Runs the simplest and the failing circumstance, at the same time where there are two slots.
pub(super) async fn check_both_ends(
    session: &Arc<Session>,
    space: &Space,
    tests: &[TestCase],
    stop: &CancellationToken,
) -> Result<Option<(Run, Run)>, EngineError> {
    let request = |number: u64, deltas: DeltaSet| -> Result<TrialRequest, EngineError> {
        Ok(TrialRequest {
            trial: TrialId(CHECKS + number),
            circumstance: space.circumstance(&deltas)?,
            deltas,
            tests: tests.to_vec(),
            wanted: None,
        })
    };
    let (simplest, failing) = (request(1, DeltaSet::new())?, request(2, space.full())?);
    let ends = if session.slots.len() > 1 {
        let (first, second) =
            tokio::join!(session.trial(SlotId(0), &simplest, stop), session.trial(SlotId(1), &failing, stop));
        (first?, second?)
    } else {
        let first = session.trial(SlotId(0), &simplest, stop).await?;
        (first, session.trial(SlotId(0), &failing, stop).await?)
    };
    match ends {
        (TrialEnd::Finished(simplest), TrialEnd::Finished(failing)) => Ok(Some((*simplest, *failing))),
        _ => Ok(None),
    }
}

/// The failure to look for: that of the named test, or of the only test that fails with all deltas.
pub(super) fn wanted(session: &Session, failing: &Run, named: Option<&str>) -> Result<Signature, Verdict> {
    if let Outcome::Unresolved { reason } = &failing.outcome {
        return Err(Verdict::Unresolved { reason: reason.clone() });
    }
    let signatures = signatures(session, failing);
    match (signatures.as_slice(), named) {
        ([], _) => Err(Verdict::NotReproduced),
        ([only], None) => Ok(only.clone()),
        ([only], Some(name)) if only.test == name => Ok(only.clone()),
        (several, _) => Err(Verdict::OtherTestsFail {
            named: named.map(ToOwned::to_owned),
            failing: several.iter().map(|s| s.test.clone()).collect(),
        }),
    }
}

fn signatures(session: &Session, run: &Run) -> Vec<Signature> {
    let pattern_of = |name: &str| {
        let test = session.application().tests.iter().find(|t| t.name == name);
        // The pattern was checked when the file was read.
        test.and_then(|t| t.failure.as_deref()).and_then(|p| regex::Regex::new(p).ok())
    };
    run.evidence.tests.iter().filter_map(|t| t.signature(pattern_of(&t.test).as_ref())).collect()
}

pub(super) fn refuse_simplest(simplest: &Run, wanted: &Signature) -> Option<Verdict> {
    match &simplest.outcome {
        Outcome::Pass => None,
        Outcome::Fail { signature } if signature.test == wanted.test => Some(Verdict::FailsAlready),
        Outcome::Fail { signature } => Some(Verdict::Unresolved {
            reason: format!("in the simplest circumstance another test fails: {signature}"),
        }),
        Outcome::Unresolved { reason } => {
            Some(Verdict::Unresolved { reason: format!("the simplest circumstance: {reason}") })
        }
    }
}
