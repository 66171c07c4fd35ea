//! What others tell, joined to moments: against the plainest reading, on random series, and by real names.

use proptest::prelude::*;

use super::*;
use crate::ids::{SpanId, TraceId};
use crate::trace::ReportedSpan;

const S: u64 = 1_000_000;

fn labels(labels: &[(&str, &str)]) -> Vec<(String, String)> {
    labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn make_series(name: &str, kind: Kind, about: &[(&str, &str)], points: &[(u64, f64)]) -> ReportedSeries {
    ReportedSeries::new(name.to_owned(), "Order", kind, points.to_vec()).about(labels(about))
}

fn gauge(name: &str, about: &[(&str, &str)], value: f64) -> ReportedSeries {
    make_series(name, Kind::Gauge, about, &[(10 * S, value)])
}

fn handler(tags: &[(&str, &str)]) -> Handler {
    let mut span = ReportedSpan::new(TraceId(1), SpanId(2));
    span.local.service = Some("order".to_owned());
    span.tags = labels(tags);
    Handler::from_span(&span).unwrap()
}

fn history(series: impl IntoIterator<Item = ReportedSeries>) -> ReportedHistory {
    ReportedHistory::new(series, [])
}

/// What the only instance used at ten seconds.
#[track_caller]
fn used(series: impl IntoIterator<Item = ReportedSeries>) -> Moment {
    let history = history(series);
    history
        .instance(&handler(&[]))
        .expect("one instance")
        .usage_at(10 * S, MAX_REPORTED_AGE_US)
        .expect("something")
}

/// Growth between reports, a second apart.
fn growth() -> impl Strategy<Value = Vec<(u64, f64)>> {
    prop::collection::vec(0..50_u32, 2..20)
        .prop_map(|grown| (0..).zip(grown).map(|(second, grown)| (second * S, f64::from(grown))).collect())
}

fn added_up(points: &[(u64, f64)]) -> Vec<(u64, f64)> {
    let mut all = 0.0;
    points
        .iter()
        .map(|(at, grown)| {
            (*at, {
                all += grown;
                all
            })
        })
        .collect()
}

proptest! {
    #[test]
    fn a_gauge_is_the_last_value_not_later_and_not_too_old(
        points in prop::collection::btree_map(0..200_u64, 0..50_u32, 1..20), at in 0..250_u64, age in 0..100_u64,
    ) {
        let points: Vec<_> = points.into_iter().map(|(time, value)| (time, f64::from(value))).collect();
        let known = points.iter().rev().find(|(time, _)| *time <= at && at - time <= age);
        let history = history([make_series("process_resident_memory_bytes", Kind::Gauge, &[], &points)]);
        let instance = history.instance(&handler(&[])).unwrap();
        let moment = instance.usage_at(at, age);
        prop_assert_eq!(moment.map(|m| m.age_us), known.map(|(time, _)| at - time));
        prop_assert_eq!(moment.and_then(|m| m.values.get(Metric::MemoryResident)), known.map(|(_, v)| *v));
        let selector = "process_resident_memory_bytes".parse().unwrap();
        let named = instance.series_at(&selector, at, age);
        prop_assert_eq!(named.first().and_then(|value| value.value), known.map(|(_, v)| *v));
    }

    #[test]
    fn growth_is_the_same_however_it_is_counted(grown in growth(), at in 0..25_u64) {
        let rate_of = |kind, points: &[(u64, f64)]| {
            let history = history([make_series("process.cpu.time", kind, &[], points)]);
            history.instance(&handler(&[])).unwrap().usage_at(at * S, MAX_REPORTED_AGE_US)
        };
        let delta = rate_of(Kind::Delta, &grown).unwrap();
        let counter = rate_of(Kind::Counter, &added_up(&grown)).unwrap();
        prop_assert_eq!(delta.cpu_cores, counter.cpu_cores);
        // Since its start is not what a delta knows.
        prop_assert_eq!(delta.values.get(Metric::CpuSeconds), None);
        prop_assert!(counter.values.get(Metric::CpuSeconds).is_some());
    }

    #[test]
    fn parts_add_up_to_the_whole(user in growth(), system in growth(), at in 0..25_u64) {
        let n = user.len().min(system.len());
        let both: Vec<_> = user.iter().zip(&system).map(|((t, a), (_, b))| (*t, a + b)).collect();
        let part = |state, points: &[(u64, f64)]| {
            make_series("process.cpu.time", Kind::Counter, &[("state", state)], &added_up(&points[..n]))
        };
        let at = |series: Vec<ReportedSeries>| history(series).instance(&handler(&[])).unwrap().usage_at(at * S, MAX_REPORTED_AGE_US).unwrap();
        let parts = at(vec![part("user", &user), part("system", &system)]);
        let whole = at(vec![make_series("process.cpu.time", Kind::Counter, &[], &added_up(&both))]);
        prop_assert_eq!(parts.values, whole.values);
        let (parts, whole) = (parts.cpu_cores.unwrap(), whole.cpu_cores.unwrap());
        prop_assert!((parts - whole).abs() < 1e-9);
    }

    #[test]
    fn nobody_gets_the_values_of_another(
        ids in prop::collection::btree_set("[ab]-[0-9]", 0..4),
        pods in prop::collection::btree_set("pod-[0-9]", 0..3),
        asked in prop::option::of("[ab]-[0-9]"),
        pod in prop::option::of("pod-[0-9]"),
    ) {
        // The value says whose it is.
        let by_id = ids.iter().map(|id| gauge(id, &[("service.instance.id", id.as_str())], 1.0));
        let by_pod = pods.iter().map(|pod| gauge(pod, &[("k8s_pod_name", pod.as_str())], 1.0));
        let history = history(by_id.chain(by_pod));
        let tags: Vec<_> = [("service.instance.id", asked.as_deref()), ("k8s.pod.name", pod.as_deref())]
            .into_iter().filter_map(|(key, value)| Some((key, value?))).collect();
        let found = history.instance(&handler(&tags)).and_then(|instance| instance.name());
        let known = |name: &Option<String>, series: &std::collections::BTreeSet<String>| name.clone().filter(|name| series.contains(name));
        match found {
            Some(name) if tags.is_empty() => prop_assert!(ids.len() + pods.len() == 1, "{name}"),
            Some(name) => {
                let alone = ids.len() + pods.len() == 1;
                let named = Some(name) == asked.as_deref() || Some(name) == pod.as_deref();
                let unknown_key = (asked.is_none() || ids.is_empty()) && (pod.is_none() || pods.is_empty());
                prop_assert!(named || alone && unknown_key, "{name} for {tags:?}");
            }
            None => prop_assert!(
                known(&asked, &ids).is_none() || pod.is_some(),
                "{asked:?} is there"
            ),
        }
    }
}

#[test]
fn names_of_the_world_are_ours() {
    let mib = f64::from(1 << 20);
    let by = |series: ReportedSeries| series.in_unit("By");
    // As the OpenTelemetry SDK for Python sends them.
    let moment = used([
        make_series("process.cpu.time", Kind::Counter, &[("type", "user")], &[(0, 1.0), (10 * S, 4.0)])
            .in_unit("s"),
        make_series("process.cpu.time", Kind::Counter, &[("type", "system")], &[(0, 0.5), (10 * S, 1.5)])
            .in_unit("s"),
        by(gauge("process.memory.usage", &[], 40.0 * mib)),
        by(gauge("process.memory.virtual", &[], 400.0 * mib)),
        by(gauge("process.runtime.cpython.memory", &[("type", "rss")], 41.0 * mib)),
        by(gauge("process.runtime.cpython.memory", &[("type", "vms")], 401.0 * mib)),
        gauge("process.thread.count", &[], 7.0),
        gauge("process.runtime.cpython.thread_count", &[], 6.0),
    ]);
    let get = |metric| moment.values.get(metric);
    assert_eq!((moment.cpu_cores, get(Metric::CpuSeconds)), (Some(0.4), Some(5.5)));
    assert_eq!((get(Metric::MemoryResident), get(Metric::Threads)), (Some(40.0 * mib), Some(7.0)));
    assert_eq!((get(Metric::MemoryWorkingSet), get(Metric::NetworkSent)), (None, None));

    let cases: [(&str, Metric, ReportedSeries, f64); 19] = [
        (
            "older Python",
            Metric::MemoryResident,
            gauge("process.runtime.cpython.memory", &[("type", "rss")], 3.0),
            3.0,
        ),
        ("older Python", Metric::Threads, gauge("process.runtime.cpython.thread_count", &[], 3.0), 3.0),
        ("prometheus_client", Metric::MemoryResident, gauge("process_resident_memory_bytes", &[], 3.0), 3.0),
        ("prom-client", Metric::StartTime, gauge("process_start_time_seconds", &[], 1.7e9), 1.7e9),
        ("Micrometer", Metric::Threads, gauge("jvm_threads_live_threads", &[], 3.0), 3.0),
        (
            "Micrometer by OTLP",
            Metric::StartTime,
            gauge("process.start.time", &[], 1.7e12).in_unit("ms"),
            1.7e9,
        ),
        (
            "Java agent",
            Metric::Threads,
            gauge("jvm.thread.count", &[("jvm.thread.state", "runnable")], 3.0),
            3.0,
        ),
        ("client_java", Metric::Threads, gauge("jvm_threads_current", &[], 3.0), 3.0),
        ("Go", Metric::Threads, gauge("go_threads", &[], 3.0), 3.0),
        ("prometheus-net", Metric::MemoryResident, gauge("process_working_set_bytes", &[], 3.0), 3.0),
        (
            "OTel by way of Prometheus",
            Metric::MemoryResident,
            gauge("process_memory_usage_bytes", &[], 3.0),
            3.0,
        ),
        (
            "kubelet",
            Metric::MemoryWorkingSet,
            gauge("k8s.pod.memory.working_set", &[], 3.0).in_unit("By"),
            3.0,
        ),
        ("kubelet", Metric::MemoryWorkingSet, gauge("container.memory.working_set", &[], 3.0), 3.0),
        ("cAdvisor", Metric::MemoryWorkingSet, gauge("container_memory_working_set_bytes", &[], 3.0), 3.0),
        ("cAdvisor", Metric::MemoryLimit, gauge("container_spec_memory_limit_bytes", &[], 9.0), 9.0),
        (
            "Docker",
            Metric::CpuSeconds,
            make_series("container.cpu.usage.total", Kind::Counter, &[], &[(S, 2e9)]).in_unit("ns"),
            2.0,
        ),
        (
            "Micrometer",
            Metric::CpuSeconds,
            make_series("process_cpu_time_ns_total", Kind::Counter, &[], &[(S, 2e9)]),
            2.0,
        ),
        ("cluster", Metric::Restarts, gauge("k8s.container.restarts", &[], 3.0), 3.0),
        (
            "container",
            Metric::NetworkSent,
            make_series(
                "container.network.io",
                Kind::Counter,
                &[("network.io.direction", "transmit")],
                &[(S, 3.0)],
            ),
            3.0,
        ),
    ];
    for (who, metric, series, value) in cases {
        let name = series.name.clone();
        assert!(is_metric_name(&name), "{name}");
        let moment = used([series]);
        assert_eq!(moment.values.iter().collect::<Vec<_>>(), [(metric, value)], "{who}: {name}");
    }
    for (name, is) in
        [("http.server.duration", false), ("process.runtime.jvm.memory.usage", false), ("up", false)]
    {
        assert_eq!(is_metric_name(name), is, "{name}");
    }
}

#[test]
fn what_is_not_sure_is_missing() {
    let nothing = |series: Vec<ReportedSeries>| {
        let history = history(series);
        history.instance(&handler(&[])).expect("one instance").usage_at(10 * S, MAX_REPORTED_AGE_US)
    };
    // cAdvisor tells about every container of a machine.
    let container = |name| gauge("container_memory_working_set_bytes", &[("container", name)], 3.0);
    assert_eq!(nothing(vec![container("a"), container("b")]), None);
    // A share of a core is no CPU time, whatever its name.
    assert_eq!(nothing(vec![gauge("container.cpu.usage", &[], 0.5)]), None);
    assert_eq!(nothing(vec![gauge("container_spec_memory_limit_bytes", &[], 0.0)]), None);
    assert_eq!(nothing(vec![gauge("process.memory.usage", &[], 3.0).in_unit("%")]), None);
    // Threads are in another state now; those of the last report count.
    let state = |state, at| {
        make_series("jvm.thread.count", Kind::Gauge, &[("jvm.thread.state", state)], &[(at, 4.0)])
    };
    let moment = used([state("runnable", 5 * S), state("waiting", 9 * S), state("blocked", 9 * S)]);
    assert_eq!((moment.values.get(Metric::Threads), moment.age_us), (Some(8.0), S));
}

#[test]
fn instances_are_distinguished() {
    let named = |key, value| gauge("threads_of_it", &[(key, value)], 1.0);
    let scraped = || history([named("service.instance.id", "10.0.0.1:9000")]);
    // Whoever scrapes gives a name that is not the service's own; it is the only one all the same.
    let who = handler(&[("service.instance.id", "627cc493-f310")]);
    assert_eq!(scraped().instance(&who).and_then(ReportedInstance::name), Some("10.0.0.1:9000"));
    assert_eq!(scraped().instance(&handler(&[("service.instance.id", "10.0.0.2:9000")])), None);
    // Two take part and one is scraped: it may be the other one.
    let other = handler(&[("service.instance.id", "99aa-11")]);
    let series = || [named("service.instance.id", "10.0.0.1:9000")];
    assert_eq!(ReportedHistory::new(series(), [&who, &other]).instance(&who), None);
    assert!(ReportedHistory::new(series(), [&who, &who]).instance(&who).is_some());
    let mut span = ReportedSpan::new(TraceId(1), SpanId(2));
    span.local.service = Some("order".to_owned());
    (span.local.ipv4, span.local.port) = (Some([10, 0, 0, 1].into()), Some(9000));
    let both = history(["10.0.0.1:9000", "10.0.0.2:9000"].map(|at| named("service.instance.id", at)));
    let found = both.instance(&Handler::from_span(&span).unwrap());
    assert_eq!(found.and_then(ReportedInstance::name), Some("10.0.0.1:9000"));
    span.local.port = Some(8080);
    assert_eq!(both.instance(&Handler::from_span(&span).unwrap()), None);

    // One host, two processes: what one key leaves open the next one may tell.
    let pair =
        history(["a", "b"].map(|id| {
            make_series("x", Kind::Gauge, &[("container.id", id), ("host.name", "h")], &[(S, 1.0)])
        }));
    assert_eq!(pair.instance(&handler(&[("host.name", "h")])), None);
    let second = pair.instance(&handler(&[("host.name", "h"), ("container.id", "b")]));
    assert_eq!(second.and_then(ReportedInstance::name), Some("b"));

    // The same instance in two trials at once is two instances.
    let run = |run: &str| named("service.instance.id", "order-1").in_run(run);
    let who = Handler::from(&"order-1".parse::<InstanceId>().unwrap());
    assert!(history([run("7f.1")]).instance(&who).is_some());
    assert_eq!(history([run("7f.1"), run("7f.2")]).instance(&who), None);
    // The mesh's side of a call that nobody took is nobody's.
    span.tags = labels(&[("faultscope.wire", "http/1.1")]);
    assert_eq!(Handler::from_span(&span), None);
    span.tags.extend(labels(&[("faultscope.callee", "Stock-2")]));
    assert_eq!(Handler::from_span(&span).map(|who| who.service), Some("stock".to_owned()));
}

#[test]
fn any_series_by_its_name() {
    let orders = |kind, count| {
        make_series(
            "orders",
            Kind::Counter,
            &[("kind", kind), ("telemetry.sdk.language", "go")],
            &[(0, 0.0), (10 * S, count)],
        )
    };
    let wait = |end: &str, points: &[(u64, f64)]| {
        make_series(&format!("wait.{end}"), Kind::Delta, &[], points).in_unit("ms")
    };
    let history = history([
        orders("pay", 20.0),
        orders("ask", 5.0),
        wait("count", &[(0, 9.0), (10 * S, 4.0)]),
        wait("sum", &[(0, 9.0), (10 * S, 50.0)]),
        gauge("process.memory.usage", &[], 5.0),
    ]);
    let instance = history.instance(&handler(&[])).unwrap();
    let at = |text: &str| instance.series_at(&text.parse().unwrap(), 12 * S, MAX_REPORTED_AGE_US);
    let found = at("orders");
    assert_eq!(
        found.iter().map(|v| (v.value, v.per_second)).collect::<Vec<_>>(),
        [(Some(20.0), Some(2.0)), (Some(5.0), Some(0.5))]
    );
    assert_eq!(SeriesValue::distinguishing_labels(&found), ["kind=pay", "kind=ask"]);
    assert_eq!(at(r#"orders{kind="ask"}"#).len(), 1);
    assert_eq!(SeriesValue::distinguishing_labels(&at("orders{kind=ask}")), [""]);
    assert_eq!((at("orders{kind=none}"), at("nothing")), (vec![], vec![]));
    let wait = at("wait").remove(0);
    assert_eq!((wait.mean, wait.per_second, wait.value, wait.age_us), (Some(12.5), Some(0.4), None, 2 * S));
    assert_eq!(at("wait.count")[0].per_second, Some(0.4));
    assert_eq!(at("memory.resident")[0].value, Some(5.0));
    for bad in ["", "{a=b}", "a{b", "a{b}", "a}"] {
        assert_eq!(bad.parse::<SeriesSelector>(), Err(InvalidSelector), "{bad}");
    }
    let selector: SeriesSelector = "orders{kind=pay}".parse().unwrap();
    assert_eq!(selector.to_string(), "orders{kind=pay}");
    assert!(
        selector.may_match("orders.sum")
            && !selector.may_match("orders.bucket")
            && !selector.may_match("order")
    );
    assert!("threads".parse::<SeriesSelector>().unwrap().may_match("process.thread.count"));
}
