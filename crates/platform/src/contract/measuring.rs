//! Promises about what is measured.

use std::time::Duration;

use faultscope_model::metrics::{Metric, Sample};
use faultscope_model::plan::Reset;

use super::Case;
use crate::{Action, now_us};

/// Clocks of the machine and of its kernel may differ a little.
const SLACK_US: u64 = 100_000;

impl Case<'_> {
    pub(super) async fn measures_what_instances_use(&self, simulated: bool) {
        let mut order = self.instance("order-1", 8080, &[]);
        order.limits.memory = Some("256MiB".parse().expect("a size"));
        order.limits.cpu = Some(2.0);
        let plan = self.plan(vec![order], Reset::Restart);
        let asked_us = now_us();
        self.deploy(&plan).await;
        let order = &plan.instances[0].id;
        let idle = self.measured().await;
        assert_eq!(idle.instance, *order);
        if simulated {
            tokio::time::sleep(Duration::from_secs(1)).await;
        } else {
            self.get(self.slot, order, 8080, "/burn/300").await.expect("it works for a while");
        }
        let busy = self.measured().await;
        let of = |sample: &Sample, metric: Metric| sample.get(metric).unwrap_or_else(|| panic!("{metric:?}"));
        let cpu = of(&busy, Metric::CpuSeconds) - of(&idle, Metric::CpuSeconds);
        // What shares the machine takes its part of the time, and a part of the work is surely counted.
        assert!(cpu > 0.01 && cpu < 30.0, "work costs CPU time: {cpu} s");
        assert!(busy.at_us > idle.at_us, "time goes on");
        let memory = busy.get(Metric::MemoryWorkingSet).or(busy.get(Metric::MemoryResident));
        let memory = memory.expect("memory is measured");
        let limit = of(&busy, Metric::MemoryLimit);
        assert!(memory > 0.0 && memory <= limit, "{memory} of {limit} bytes");
        assert_eq!((limit, of(&busy, Metric::CpuLimit)), (f64::from(256 << 20), 2.0));
        assert!(of(&busy, Metric::Threads) >= 1.0, "{busy:?}");
        for metric in Metric::ALL.into_iter().filter(|m| m.kind() == faultscope_model::metrics::Kind::Counter)
        {
            let (before, after) = (idle.get(metric), busy.get(metric));
            assert!(after >= before, "{metric:?} goes back from {before:?} to {after:?} without a restart");
        }
        let started = of(&busy, Metric::StartTime);
        assert_eq!(of(&idle, Metric::StartTime), started, "it goes on");
        let started_us = (started * 1e6) as u64;
        assert!(started_us + SLACK_US >= asked_us && started_us <= busy.at_us, "{asked_us} {started_us}");
        assert_eq!(of(&busy, Metric::Restarts), 0.0);

        self.platform.act(self.slot, order, Action::Restart).await.expect("it can be started again");
        let again = self.measured().await;
        assert!(of(&again, Metric::StartTime) > started, "a restart is a new start");
        assert_eq!(of(&again, Metric::Restarts), 1.0);
        assert!(of(&again, Metric::CpuSeconds) < of(&busy, Metric::CpuSeconds), "which begins at zero");
    }

    async fn measured(&self) -> Sample {
        let mut samples = self.platform.metrics(self.slot).await.expect("metrics");
        assert_eq!(samples.len(), 1);
        samples.remove(0)
    }
}
