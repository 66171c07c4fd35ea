//! After the drive: calls that outlive it end, exporters send what they have, and everything is counted.

use std::time::Duration;

use faultscope_mesh::MeshReports;
use faultscope_model::run::Evidence;
use faultscope_platform::PlatformEvent;
use tokio::sync::broadcast::Receiver;

use super::sampler::Sampler;
use super::{Driven, exits};
use crate::error::EngineError;
use crate::session::{Lease, Session};

/// How long calls that outlive the drive may run before the trial is judged: long enough for a response on
/// this machine, too short to notice.
const QUIET_WITHIN: Duration = Duration::from_millis(500);

impl Session {
    /// Waits until calls that outlive the drive have ended, and collects the reports of mesh and platform.
    pub(super) async fn settle(
        &self,
        lease: &Lease,
        sampler: Option<Sampler>,
        news: &mut Receiver<PlatformEvent>,
        driven: &Driven,
        evidence: &mut Evidence,
    ) -> Result<MeshReports, EngineError> {
        let mut reports = MeshReports::default();
        if let Some(mesh) = &lease.mesh {
            mesh.quiet(QUIET_WITHIN).await;
            // Connections that nobody closes, such as those of a pool, belong to this trial, too.
            mesh.end_trial();
            lease.recorder.end_sampling();
            reports = mesh.reports();
            if let Some(collector) = &lease.collector {
                collector.settle(reports.traced, !reports.exports.is_empty()).await;
            }
        }
        if let Some(sampler) = sampler {
            sampler.finish().await;
        }
        // Checked first: what was observed in a slot whose agent died is no evidence.
        self.platform.intact(lease.id()).await?;
        if lease.recorder.broken() && !driven.tests.is_empty() {
            exits::wait(news, &mut evidence.exits).await;
        }
        exits::collect(news, &mut evidence.exits);
        evidence.spans = lease.recorder.recorded();
        evidence.spans_dropped = self.campaign.dropped();
        let reported = lease.collector.as_ref().map_or(0, |collector| collector.left_out());
        evidence.left_out = lease.recorder.left_out() + reported;
        Ok(reports)
    }
}
