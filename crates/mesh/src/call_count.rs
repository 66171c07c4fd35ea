//! Counts the calls to each service during a test, and finds the one with which an outage begins.
//!
//! Every protocol counts: a request of HTTP is a call, and so are the bytes that a caller of another protocol sends
//! until it gets an answer. Calls of the test itself do not count, as an outage is for the services that call.

use std::collections::BTreeMap;

use faultscope_model::ServiceName;
use faultscope_model::wiring::OutageMode;

/// An outage that begins when a service is called for the n-th time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArmedOutage {
    /// Who goes away.
    pub service: ServiceName,
    /// The number of the call that finds it gone, from 1.
    pub at_call: u32,
    /// What callers meet.
    pub mode: OutageMode,
}

/// The calls of one test.
#[derive(Debug, Default)]
pub(crate) struct CallCount {
    is_counting: bool,
    calls: BTreeMap<ServiceName, u32>,
    armed: Vec<ArmedOutage>,
}

impl CallCount {
    /// Counts from now on, from zero.
    pub(crate) fn begin(&mut self, armed: Vec<ArmedOutage>) {
        *self = Self { is_counting: true, calls: BTreeMap::new(), armed };
    }

    /// Stops counting; what was counted stays known.
    pub(crate) fn stop(&mut self) {
        self.is_counting = false;
    }

    /// Counts a call and gives the outage that begins with it.
    pub(crate) fn count(&mut self, service: &ServiceName) -> Option<OutageMode> {
        if !self.is_counting {
            return None;
        }
        let calls = match self.calls.get_mut(service) {
            Some(calls) => calls,
            None => self.calls.entry(service.clone()).or_default(),
        };
        *calls = calls.saturating_add(1);
        let (armed, number) = (&self.armed, *calls);
        armed.iter().find(|o| o.service == *service && o.at_call == number).map(|o| o.mode)
    }

    pub(crate) fn calls(&self) -> &BTreeMap<ServiceName, u32> {
        &self.calls
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outage_begins_with_its_call_and_no_other() {
        let service = |name: &str| name.parse::<ServiceName>().unwrap();
        let (redis, stock) = (service("redis"), service("stock"));
        let mut count = CallCount::default();
        assert_eq!(count.count(&redis), None);
        assert!(count.calls().is_empty(), "calls before the test do not count");
        let armed =
            |service: &ServiceName, at_call, mode| ArmedOutage { service: service.clone(), at_call, mode };
        count.begin(vec![armed(&redis, 2, OutageMode::Hang), armed(&stock, 1, OutageMode::Reset)]);
        assert_eq!(count.count(&redis), None);
        assert_eq!(count.count(&stock), Some(OutageMode::Reset));
        assert_eq!(count.count(&redis), Some(OutageMode::Hang));
        assert_eq!(count.count(&redis), None, "it begins once");
        count.stop();
        assert_eq!(count.count(&redis), None);
        assert_eq!(count.calls().clone().into_iter().collect::<Vec<_>>(), [(redis, 3), (stock, 1)]);
    }
}
