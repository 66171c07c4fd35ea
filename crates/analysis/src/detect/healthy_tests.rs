//! Properties of the adaptive detector with its default risk: silent on an hour of healthy values, loud on planted
//! anomalies. Seeds are in the messages.

use super::*;

/// One value per second for an hour.
const HOUR: usize = 3600;
const SEEDS: std::ops::Range<u64> = 0..10;

/// SplitMix64, the same on every machine.
struct Random(u64);

impl Random {
    fn unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let word = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((word ^ (word >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }

    fn normal(&mut self) -> f64 {
        (-2.0 * (1.0 - self.unit()).ln()).sqrt() * (std::f64::consts::TAU * self.unit()).cos()
    }
}

/// What a healthy service does, in seconds per call.
type Behaviour = (&'static str, fn(&mut Random) -> f64);

const HEALTHY: [Behaviour; 4] = [
    ("log-normal", |random| 0.02 * random.normal().exp()),
    ("heavy log-normal", |random| 0.005 * (2.0 * random.normal()).exp()),
    // Every tenth call sleeps for up to a second, as the log processor of the to-do application does.
    ("random sleep", |random| {
        let sleep = if random.unit() < 0.1 { random.unit() } else { 0.0 };
        0.01 * (0.3 * random.normal()).exp() + sleep
    }),
    // A power law with infinite variance.
    ("Pareto", |random| 0.01 * (1.0 - random.unit()).powf(-1.0 / 1.5)),
];

fn latency() -> Monitor {
    let least = Effect { absolute: 0.001, relative: 0.5 };
    let options = AdaptiveOptions { scale: Scale::Logarithmic, least, ..AdaptiveOptions::default() };
    Monitor::new(Detector::Adaptive(Box::new(Adaptive::new(options))), MonitorOptions::default())
}

fn linear() -> Monitor {
    Monitor::new(
        Detector::Adaptive(Box::new(Adaptive::new(AdaptiveOptions::default()))),
        MonitorOptions::default(),
    )
}

fn observe_all(monitor: &mut Monitor, values: impl IntoIterator<Item = f64>) -> Vec<Alarm> {
    let readings = (0..).zip(values).map(|(second, value)| Reading { at_us: 1_000_000 * second, value });
    readings.filter_map(|reading| monitor.observe(reading)).collect()
}

fn healthy(behaviour: Behaviour, seed: u64, count: usize) -> Vec<f64> {
    let mut random = Random(seed);
    (0..count).map(|_| (behaviour.1)(&mut random)).collect()
}

#[test]
fn an_hour_of_healthy_latency_raises_no_alarm() {
    for behaviour in HEALTHY {
        for seed in SEEDS {
            let alarms = observe_all(&mut latency(), healthy(behaviour, seed, HOUR));
            assert!(alarms.is_empty(), "{} with seed {seed}: {alarms:?}", behaviour.0);
        }
    }
}

#[test]
fn an_hour_of_noisy_and_constant_usage_raises_no_alarm() {
    for seed in SEEDS {
        let mut random = Random(seed);
        let noisy: Vec<f64> = (0..HOUR).map(|_| 0.3 + 0.05 * random.normal()).collect();
        assert!(observe_all(&mut linear(), noisy).is_empty(), "noisy with seed {seed}");
        let season = |second: usize, noise: f64| 10.0 + 5.0 * (second as f64 / 50.0).sin() + noise;
        let seasonal: Vec<f64> = (0..HOUR).map(|second| season(second, random.normal())).collect();
        let alarms = observe_all(&mut linear(), seasonal);
        assert!(alarms.is_empty(), "seasonal with seed {seed}: {alarms:?}");
    }
    assert!(observe_all(&mut linear(), vec![20.0; HOUR]).is_empty());
    assert!(observe_all(&mut linear(), vec![0.0; HOUR]).is_empty());
}

/// The alarms after a fault begins at 1,000 values, and how many values it took.
fn delay_of(
    monitor: &mut Monitor,
    behaviour: Behaviour,
    seed: u64,
    fault: fn(usize, f64) -> f64,
) -> Option<u64> {
    let values = healthy(behaviour, seed, 1600);
    let faulty = values
        .into_iter()
        .enumerate()
        .map(|(place, value)| if place < 1000 { value } else { fault(place - 1000, value) });
    let alarms = observe_all(monitor, faulty);
    assert!(
        alarms.iter().all(|alarm| alarm.position >= 1000),
        "{} with seed {seed}: {alarms:?}",
        behaviour.0
    );
    alarms.first().map(|alarm| alarm.position - 1000)
}

#[test]
fn planted_faults_are_found_soon() {
    // The most values until the alarm, by fault.
    type Fault = fn(usize, f64) -> f64;
    let faults: [(&str, Behaviour, Fault, u64); 4] = [
        ("a constant delay of five times the median", HEALTHY[0], |_, value| value + 0.1, 40),
        ("a spike of one value", HEALTHY[0], |place, value| if place == 7 { 120.0 } else { value }, 7),
        (
            "a timeout of every third call",
            HEALTHY[2],
            |place, value| if place % 3 == 0 { 5.0 } else { value },
            60,
        ),
        (
            "a latency that doubles every 100 values",
            HEALTHY[0],
            |place, value| value * 2f64.powf(place as f64 / 100.0),
            500,
        ),
    ];
    for (fault, behaviour, apply, most) in faults {
        for seed in SEEDS {
            let delay = delay_of(&mut latency(), behaviour, seed, apply);
            assert!(delay.is_some_and(|delay| delay <= most), "{fault} with seed {seed}: {delay:?}");
        }
    }
}

#[test]
fn a_shift_soon_after_the_warm_up_is_one_alarm() {
    for seed in SEEDS {
        let values = healthy(HEALTHY[0], seed, 900);
        let faulty = values.into_iter().enumerate().map(|(place, value)| match place {
            0..250 => value,
            _ => value + 0.5,
        });
        let alarms = observe_all(&mut latency(), faulty);
        assert_eq!(alarms.len(), 1, "seed {seed}: {alarms:?}");
        assert!((250..270).contains(&alarms[0].position), "seed {seed}: {alarms:?}");
    }
}

#[test]
fn leaks_and_error_bursts_are_found() {
    for seed in SEEDS {
        let mut random = Random(seed);
        let leaking: Vec<f64> = (0..1600u32)
            .map(|second| 100.0 + 2.0 * random.normal() + f64::from(second.saturating_sub(1000)))
            .collect();
        let alarms = observe_all(&mut linear(), leaking);
        assert!((1000..1040).contains(&alarms[0].position), "leak with seed {seed}: {alarms:?}");
        assert_eq!(alarms.len(), 1, "one alarm per incident, seed {seed}: {alarms:?}");
        let failing: Vec<f64> = (0..1300)
            .map(|second| {
                if second >= 1000 {
                    0.5
                } else if random.unit() < 0.02 {
                    0.1
                } else {
                    0.0
                }
            })
            .collect();
        let least = Effect { absolute: 0.15, relative: 0.0 };
        let options = AdaptiveOptions { least, ..AdaptiveOptions::default() };
        let mut errors =
            Monitor::new(Detector::Adaptive(Box::new(Adaptive::new(options))), MonitorOptions::default());
        let alarms = observe_all(&mut errors, failing);
        assert!((1000..1010).contains(&alarms[0].position), "errors with seed {seed}: {alarms:?}");
        assert_eq!(alarms.len(), 1, "one alarm per incident, seed {seed}: {alarms:?}");
    }
}

#[test]
fn new_patterns_are_found_where_they_are_asked_for() {
    let season = |place: usize| 10.0 + 5.0 * (place as f64 / 40.0).sin();
    let values = (0..3000).map(|place| if (2500..2600).contains(&place) { 10.0 } else { season(place) });
    let options = AdaptiveOptions { pattern_risk: Some(EXPLORING_RISK), ..AdaptiveOptions::default() };
    let mut exploring =
        Monitor::new(Detector::Adaptive(Box::new(Adaptive::new(options))), MonitorOptions::default());
    let alarms = observe_all(&mut exploring, values);
    assert!(
        alarms
            .iter()
            .any(|alarm| alarm.signal == Signal::NewPattern && (2500..2620).contains(&alarm.position))
    );
}

#[test]
fn hostile_series_do_no_harm() {
    let hostile: [Vec<f64>; 6] = [
        vec![],
        vec![f64::NAN; 500],
        vec![f64::MAX, f64::MIN].into_iter().cycle().take(600).collect(),
        vec![0.0, f64::INFINITY, -0.0, f64::MIN_POSITIVE].into_iter().cycle().take(600).collect(),
        (0..600).map(|place| 2f64.powi(place % 1000)).collect(),
        vec![-1.0; 600],
    ];
    for (place, values) in hostile.into_iter().enumerate() {
        for mut monitor in [latency(), linear()] {
            for alarm in observe_all(&mut monitor, values.clone()) {
                assert!(!alarm.severity.is_nan() && !alarm.value.is_nan(), "series {place}: {alarm:?}");
            }
        }
    }
}

#[test]
fn clocks_that_jump_and_gaps_raise_no_alarm() {
    for seed in SEEDS {
        let mut monitor = latency();
        let mut random = Random(seed);
        for place in 0..3000u64 {
            // Forward by a day, then back by two, then the same moment for a while, then up to the end of time.
            let at_us = match place {
                0..1000 => place * 1_000_000,
                1000..1500 => 86_400_000_000 + place * 1_000_000,
                1500..2000 => place * 1000,
                2000..2500 => 5,
                _ => u64::MAX - (3000 - place),
            };
            let alarm = monitor.observe(Reading { at_us, value: HEALTHY[0].1(&mut random) });
            assert_eq!(alarm, None, "seed {seed}, value {place}");
        }
    }
}
