//! Joins against the plainest reading of their words, on random points.

use proptest::prelude::*;

use super::*;

fn sample(instance: &str, at_us: u64, values: &[(Metric, f64)]) -> Sample {
    let values =
        values.iter().fold(Values::default(), |all, (metric, value)| all.with(*metric, Some(*value)));
    Sample { instance: instance.parse().unwrap(), at_us, values }
}

/// Points by time; times may coincide.
fn points() -> impl Strategy<Value = Vec<(u64, f64)>> {
    prop::collection::vec((0..200_u64, 0..50_u32), 0..20).prop_map(|mut points| {
        points.sort_unstable();
        points.into_iter().map(|(time, value)| (time, f64::from(value))).collect()
    })
}

proptest! {
    #[test]
    fn the_last_point_not_later_and_not_too_old(points in points(), at in 0..250_u64, age in 0..100_u64) {
        let known = points.iter().rev().find(|(time, _)| *time <= at && at - time <= age);
        let expected = known.map(|(time, value)| AsOf { value: *value, age_us: at - time });
        prop_assert_eq!(as_of(&points, at, age), expected);
    }

    #[test]
    fn growth_adds_up_wherever_it_is_cut(points in points(), cut in 0..20_usize) {
        let cut = cut.min(points.len().saturating_sub(1));
        let (before, after) = (points.get(..=cut).unwrap_or_default(), &points[cut..]);
        prop_assert!((increase(&points) - increase(before) - increase(after)).abs() < 1e-9);
        prop_assert!(increase(&points) >= 0.0);
    }

    #[test]
    fn rates_are_between_near_points_only(points in points(), at in 0..250_u64, age in 0..100_u64) {
        if let Some(rate) = rate(&points, at, age) {
            prop_assert!(rate >= 0.0 && rate.is_finite());
            prop_assert!(points.iter().filter(|(time, _)| time.abs_diff(at) <= age).count() >= 2);
        }
    }

    #[test]
    fn a_steady_counter_has_its_rate_everywhere(per_second in 1..100_u32, n in 2..20_u64, at in 0..20_u64) {
        let steady: Vec<_> = (0..n).map(|s| (s * 1_000_000, f64::from(per_second) * s as f64)).collect();
        let at_us = (at.min(n - 1)) * 1_000_000;
        let found = rate(&steady, at_us, 2_000_000).unwrap();
        prop_assert!((found - f64::from(per_second)).abs() < 1e-6);
    }

    #[test]
    fn histories_know_no_future(times in prop::collection::vec(0..100_u64, 1..20), at in 0..120_u64) {
        let history = History::new(times.iter().map(|t| sample("a-1", *t, &[(Metric::Threads, *t as f64)])));
        let moment = history.usage_at(&"a-1".parse().unwrap(), at, 50);
        let known = times.iter().copied().filter(|t| *t <= at && at - t <= 50).max();
        prop_assert_eq!(moment.map(|m| m.age_us), known.map(|t| at - t));
        prop_assert_eq!(moment.and_then(|m| m.values.get(Metric::Threads)), known.map(|t| t as f64));
    }
}

#[test]
fn a_moment_has_rates_of_both_sides() {
    let used = |at: u64, cpu: f64| sample("a-1", at * 1_000_000, &[(Metric::CpuSeconds, cpu)]);
    let history = History::new([used(2, 3.0), used(0, 0.0), used(1, 1.0)]);
    let instance = "a-1".parse().unwrap();
    let cores = |at_us: u64| history.usage_at(&instance, at_us, 5_000_000).and_then(|m| m.cpu_cores);
    assert_eq!(cores(500_000), Some(1.0));
    assert_eq!(cores(1_000_000), Some(2.0));
    assert_eq!(cores(3_000_000), Some(2.0), "after the last sample its own rate is the best guess");
    assert_eq!(history.usage_at(&instance, 8_000_000, 5_000_000), None);
    assert_eq!(history.usage_at(&"b-1".parse().unwrap(), 0, 5_000_000), None);
}

#[test]
fn the_only_instance_of_a_service_needs_no_name() {
    let handler = |instance: &str| Handler::from(&instance.parse::<InstanceId>().unwrap());
    let unnamed = || {
        let mut span = crate::trace::ReportedSpan::new(crate::TraceId(1), crate::SpanId(1));
        span.local.service = Some("A".to_owned());
        Handler::from_span(&span).unwrap()
    };
    let history = |names: &[&str]| History::new(names.iter().map(|name| sample(name, 1, &[])));
    let name = |found: Option<InstanceId>| found.map(|instance| instance.to_string());
    assert_eq!(name(history(&["a-1", "b-1"]).instance(&unnamed())).as_deref(), Some("a-1"));
    assert_eq!(history(&["a-1", "a-2"]).instance(&unnamed()), None);
    assert_eq!(name(history(&["a-1", "a-2"]).instance(&handler("a-2"))).as_deref(), Some("a-2"));
    assert_eq!(name(history(&["a-1"]).instance(&handler("a-2"))).as_deref(), Some("a-2"));
}

#[test]
fn summaries_tell_growth_peaks_and_what_is_missing() {
    let used = |at: u64, cpu: f64, memory: f64, restarts: f64| {
        let values = [
            (Metric::CpuSeconds, cpu),
            (Metric::MemoryWorkingSet, memory),
            (Metric::MemoryLimit, 100.0),
            (Metric::Restarts, restarts),
        ];
        sample("a-1", at, &values)
    };
    let history = History::new([used(1, 5.0, 10.0, 0.0), used(2, 7.0, 90.0, 0.0), used(3, 0.5, 20.0, 1.0)]);
    let summary = history.summaries().remove(0);
    assert_eq!(summary.cpu_seconds, Some(2.5), "a restart begins at zero");
    assert_eq!((summary.memory_peak, summary.memory_limit), (Some(90.0), Some(100.0)));
    assert_eq!((summary.restarts, summary.network_sent), (Some(1.0), None));
    assert_eq!((summary.samples, summary.first_us, summary.last_us), (3, 1, 3));
}

#[test]
fn names_are_unique_and_found_again() {
    for (index, metric) in Metric::ALL.into_iter().enumerate() {
        assert_eq!(metric as usize, index);
        assert_eq!(Metric::by_name(metric.name()), Some(metric));
        assert!(!metric.unit().is_empty());
    }
    let values = Values::default().with(Metric::Threads, Some(3.0)).with(Metric::CpuLimit, Some(f64::NAN));
    assert_eq!(serde_json::to_string(&values).unwrap(), r#"{"threads":3.0}"#);
}
