//! Chooses the instance of a call. Repeatable: the same seed and order of calls give the same choices.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use faultscope_model::InstanceId;
use faultscope_model::wiring::{Balance, Endpoint};

use crate::dice::{Dice, stable_hash};
use crate::rules::Headers;
use crate::trial::Instance;

/// An instance that can be chosen.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) endpoint: Endpoint,
    pub(crate) instance: Arc<Instance>,
}

/// The instances of one service and how to choose among them.
#[derive(Debug)]
pub(crate) struct Choice {
    pub(crate) targets: Vec<Arc<Target>>,
    pub(crate) balance: Balance,
    pub(crate) turns: Arc<AtomicUsize>,
}

impl Choice {
    /// The instance for one call; none when the service is down.
    pub(crate) fn choose(
        &self,
        caller: &InstanceId,
        headers: Headers<'_>,
        dice: &Dice,
    ) -> Option<&Arc<Target>> {
        let count = self.targets.len();
        if count == 0 {
            return None;
        }
        let by_hash = |hash: u64| (hash % count as u64) as usize;
        let place = match &self.balance {
            Balance::RoundRobin => self.next_turn(count),
            Balance::Random => dice.below(count),
            Balance::LeastBusy => {
                let least = |(_, target): &(usize, &Arc<Target>)| {
                    (target.instance.busy(), target.endpoint.instance.ordinal)
                };
                self.targets.iter().enumerate().min_by_key(least).map_or(0, |(place, _)| place)
            }
            // The ordinal is added outside the hash, so that neighbours spread evenly.
            Balance::StickyCaller => by_hash(
                stable_hash(caller.service.as_str().as_bytes()).wrapping_add(u64::from(caller.ordinal)),
            ),
            Balance::StickyHeader { name } => match headers.get(name) {
                Some(value) => by_hash(stable_hash(value)),
                None => self.next_turn(count),
            },
            Balance::Pinned { ordinal } => {
                return self.targets.iter().find(|target| target.endpoint.instance.ordinal == *ordinal);
            }
        };
        self.targets.get(place)
    }

    fn next_turn(&self, count: usize) -> usize {
        self.turns.fetch_add(1, Ordering::Relaxed) % count
    }
}

#[cfg(test)]
mod tests {
    use faultscope_model::NodeId;

    use super::*;

    fn choice(balance: Balance) -> Choice {
        let target = |ordinal| {
            let instance = InstanceId::new("stock".parse().unwrap(), ordinal);
            let endpoint = Endpoint { instance, node: NodeId(0), addresses: Default::default() };
            Arc::new(Target { endpoint, instance: Arc::default() })
        };
        Choice { targets: (1..=3).map(target).collect(), balance, turns: Arc::default() }
    }

    fn chosen(choice: &Choice, caller: &str, tenants: &[Option<&str>]) -> Vec<u32> {
        let dice = Dice::new(5, 2);
        let choose = |tenant: &Option<&str>| {
            let headers: Vec<_> = tenant
                .iter()
                .map(|value| httparse::Header { name: "Tenant", value: value.as_bytes() })
                .collect();
            let target = choice.choose(&caller.parse().unwrap(), Headers::Http1(&headers), &dice);
            target.map_or(0, |target| target.endpoint.instance.ordinal)
        };
        tenants.iter().map(choose).collect()
    }

    #[test]
    fn modes() {
        assert_eq!(chosen(&choice(Balance::RoundRobin), "web-1", &[None; 4]), [1, 2, 3, 1]);
        assert_eq!(chosen(&choice(Balance::Pinned { ordinal: 2 }), "web-1", &[None; 2]), [2, 2]);
        assert_eq!(chosen(&choice(Balance::Pinned { ordinal: 9 }), "web-1", &[None]), [0], "down");
        let random = chosen(&choice(Balance::Random), "web-1", &[None; 30]);
        assert_eq!(random, chosen(&choice(Balance::Random), "web-1", &[None; 30]), "from the seed");
        assert!((1..=3).all(|ordinal| random.contains(&ordinal)));
    }

    #[test]
    fn sticky_to_callers() {
        let sticky = choice(Balance::StickyCaller);
        let mut of_callers: Vec<_> =
            ["web-1", "web-2", "web-3"].iter().map(|caller| chosen(&sticky, caller, &[None; 2])).collect();
        assert!(of_callers.iter().all(|pair| pair[0] == pair[1]));
        of_callers.sort();
        assert_eq!(of_callers, [[1, 1], [2, 2], [3, 3]]);
    }

    #[test]
    fn sticky_to_a_header() {
        let sticky = choice(Balance::StickyHeader { name: "tenant".to_owned() });
        let of_tenants = chosen(&sticky, "web-1", &[Some("a"), Some("b"), Some("a"), Some("b")]);
        assert_eq!(of_tenants[..2], of_tenants[2..]);
        assert_eq!(chosen(&sticky, "web-1", &[None, None]), [1, 2], "round robin without it");
    }

    #[test]
    fn least_busy() {
        let least = choice(Balance::LeastBusy);
        least.targets[0].instance.reserve();
        assert_eq!(chosen(&least, "web-1", &[None]), [2]);
        least.targets[0].instance.release();
        assert_eq!(chosen(&least, "web-1", &[None]), [1]);
    }
}
