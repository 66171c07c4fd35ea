//! The order in which the instances of a plan are started.

use std::collections::{BTreeMap, BTreeSet};

use faultscope_model::ServiceName;
use faultscope_model::plan::{InstancePlan, Plan};
use futures_util::future::try_join_all;
use tokio::sync::watch;

use crate::{PlatformError, PlatformErrorKind};

/// Starts instances concurrently, each when all instances of the services it waits for are ready.
pub(crate) async fn start_in_order<Ready>(
    create: &[&InstancePlan],
    start: impl Fn(InstancePlan) -> Ready,
) -> Result<(), PlatformError>
where
    Ready: Future<Output = Result<(), PlatformError>>,
{
    let mut missing: BTreeMap<&ServiceName, usize> = BTreeMap::new();
    for instance in create {
        *missing.entry(&instance.id.service).or_default() += 1;
    }
    let (progress, _) = watch::channel(missing);
    let (progress, start) = (&progress, &start);
    let in_turn = |instance: &&InstancePlan| {
        let instance = (*instance).clone();
        async move {
            let can_start = |missing: &BTreeMap<&ServiceName, usize>| {
                instance.after.iter().all(|service| missing.get(service).is_none_or(|n| *n == 0))
            };
            // The sender lives as long as this future, so waiting cannot fail.
            let _ = progress.subscribe().wait_for(can_start).await;
            let service = instance.id.service.clone();
            start(instance).await?;
            progress.send_modify(|missing| {
                if let Some(n) = missing.get_mut(&service) {
                    *n -= 1;
                }
            });
            Ok(())
        }
    };
    try_join_all(create.iter().map(in_turn)).await.map(drop)
}

/// Rejects a plan whose services wait for each other.
pub(crate) fn check_order(plan: &Plan, platform: &'static str) -> Result<(), PlatformError> {
    let after: BTreeMap<&ServiceName, BTreeSet<&ServiceName>> =
        plan.instances.iter().fold(BTreeMap::new(), |mut all, i| {
            all.entry(&i.id.service).or_default().extend(&i.after);
            all
        });
    let mut settled: BTreeSet<&ServiceName> = BTreeSet::new();
    while settled.len() < after.len() {
        let next = after.iter().find(|(service, before)| {
            !settled.contains(*service)
                && before.iter().all(|b| settled.contains(b) || !after.contains_key(*b))
        });
        match next {
            Some((service, _)) => settled.insert(service),
            None => {
                let rest: Vec<_> =
                    after.keys().filter(|s| !settled.contains(*s)).map(ToString::to_string).collect();
                let error = PlatformError::new(PlatformErrorKind::BadPlan, platform, "find a start order");
                return Err(error.because(format!("services wait for each other: {}", rest.join(", "))));
            }
        };
    }
    Ok(())
}
