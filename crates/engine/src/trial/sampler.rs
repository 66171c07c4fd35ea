//! Measures instances while a deployment is up: at its start, periodically, and at its end.
//!
//! Measuring never disturbs a trial: what cannot be measured or written is logged and left out.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use faultscope_model::application::MetricsEndpoint;
use faultscope_model::metrics::{Metric, Point, Sample};
use faultscope_model::{InstanceId, ServiceName, SlotId, TrialId};
use faultscope_platform::Platform;
use faultscope_store::SampleWriter;
use futures_util::future::join_all;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::wire::SlotRecorder;
use crate::scrape::scrape;
use crate::session::{Lease, Session};

/// After this many rounds the interval doubles, so that an application that stays up for weeks fills no disk.
const ROUNDS: u32 = 20_000;

/// The time limit for scraping one instance.
const ASK_WITHIN: Duration = Duration::from_secs(1);

/// Measures until it is finished; stops when it is dropped.
#[derive(Debug)]
pub(super) struct Sampler {
    finish: Option<oneshot::Sender<()>>,
    task: JoinHandle<()>,
}

struct Sampling {
    platform: Arc<dyn Platform>,
    slot: SlotId,
    trial: TrialId,
    /// Counts the bytes of calls, if the mesh carries them in this process.
    recorder: Option<Arc<SlotRecorder>>,
    samples: Arc<SampleWriter>,
    /// Services that expose their own metrics.
    endpoints: BTreeMap<ServiceName, MetricsEndpoint>,
    every: Duration,
}

impl Session {
    /// Starts measuring what was just deployed; returns after the first round, so that whatever is called next
    /// has a sample before it.
    pub(super) async fn start_sampling(&self, slot: &Lease, trial: TrialId) -> Option<Sampler> {
        let sampling = Sampling {
            platform: self.platform.clone(),
            slot: slot.id,
            trial,
            recorder: slot.mesh.as_ref().map(|_| slot.recorder.clone()),
            samples: self.campaign.samples().clone(),
            endpoints: self.endpoints(),
            every: self.measured_every()?,
        };
        sampling.once().await;
        let (finish, finished) = oneshot::channel();
        Some(Sampler { finish: Some(finish), task: tokio::spawn(sampling.run(finished)) })
    }

    /// How often instances are measured, and should export their own metrics.
    pub(crate) fn measured_every(&self) -> Option<Duration> {
        self.options.metrics.unwrap_or(self.application.record.metrics).every
    }

    fn endpoints(&self) -> BTreeMap<ServiceName, MetricsEndpoint> {
        let services = self.application.services.iter();
        services.filter_map(|(name, service)| Some((name.clone(), service.metrics.clone()?))).collect()
    }
}

impl Sampler {
    /// Measures a last time and returns when everything is written.
    pub(super) async fn finish(mut self) {
        if let Some(finish) = self.finish.take() {
            let _ = finish.send(());
        }
        if let Err(error) = (&mut self.task).await {
            tracing::warn!(%error, "measuring panicked");
        }
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Sampling {
    async fn run(self, mut finished: oneshot::Receiver<()>) {
        let mut every = self.every;
        loop {
            for _ in 0..ROUNDS {
                let last = tokio::select! {
                    biased;
                    _ = &mut finished => true,
                    () = tokio::time::sleep(every) => false,
                };
                self.once().await;
                if last {
                    return;
                }
            }
            every *= 2;
        }
    }

    /// One round.
    async fn once(&self) {
        let mut samples = match self.platform.metrics(self.slot).await {
            Ok(samples) => samples,
            Err(error) => return tracing::debug!(%error, "instances cannot be measured"),
        };
        samples.iter_mut().for_each(|sample| self.add_network(sample));
        let told = join_all(samples.iter().map(|sample| self.scrape_instance(&sample.instance))).await;
        let points: Vec<Point> = told.into_iter().flatten().collect();
        let (writer, trial, slot) = (self.samples.clone(), self.trial, self.slot);
        let writing = tokio::task::spawn_blocking(move || writer.write(trial, slot, &samples, &points));
        match writing.await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, cause = %error.source, "samples could not be stored"),
            Err(error) => tracing::warn!(%error, "samples could not be stored"),
        }
    }

    /// The metrics that an instance exposes.
    async fn scrape_instance(&self, instance: &InstanceId) -> Vec<Point> {
        let Some(endpoint) = self.endpoints.get(&instance.service) else { return Vec::new() };
        let (service, name) = (instance.service.as_str(), instance.to_string());
        let asking = async {
            // Directly to the instance: it is not a call of the application, and must not pass the mesh.
            let stream = self.platform.dial(self.slot, instance, endpoint.port).await?;
            scrape(stream, service, &endpoint.path, (service, &name)).await
        };
        match tokio::time::timeout(ASK_WITHIN, asking).await {
            Ok(Ok(batch)) => {
                if let Some(complaint) = batch.complaint() {
                    tracing::debug!(%instance, complaint, "some metrics cannot be read");
                }
                batch.items
            }
            Ok(Err(error)) => {
                tracing::debug!(%instance, %error, "its metrics cannot be scraped");
                Vec::new()
            }
            Err(_) => {
                tracing::debug!(%instance, "scraping its metrics takes too long");
                Vec::new()
            }
        }
    }

    /// Adds what the platform cannot measure: the bytes of calls that have ended.
    fn add_network(&self, sample: &mut Sample) {
        if let Some(recorder) = &self.recorder
            && sample.get(Metric::NetworkReceived).is_none()
        {
            let carried = recorder.carried(&sample.instance);
            sample.values.set(Metric::NetworkReceived, Some(carried.received as f64));
            sample.values.set(Metric::NetworkSent, Some(carried.sent as f64));
        }
    }
}
