//! Sends the requests of a scenario to one target, as fast as users do, and measures the answers.
//!
//! Each user has a connection of its own and at most one request under way. Closed users begin the next request when
//! they have the answer. Open ones take the next arrival of one common schedule: when all of them are busy, arrivals
//! wait, and their latency counts from when they should have been sent.

mod connection;
mod machine;
mod recorder;
mod user;

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use faultscope_model::random::{Random, mix};
use faultscope_model::workload::{
    Arrivals, Invalidity, LoadReport, LoadWindow, RequestFailure, Scenario, SelfCheck, Spacing, Threshold,
};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use machine::MachineWatch;
use recorder::Recorder;
use user::User;

/// Everything about a load.
#[derive(Debug, Clone)]
pub struct LoadOptions {
    /// Where requests go; no redirect leads elsewhere.
    pub target: LoadTarget,
    /// What is sent.
    pub scenario: Scenario,
    /// How users come.
    pub arrivals: Arrivals,
    /// How long users send requests, the ramp included.
    pub duration: Duration,
    /// How long an answer may take.
    pub within: Duration,
    /// Limits that the load must keep.
    pub thresholds: Vec<Threshold>,
    /// Stop when a threshold was broken for this many seconds in a row, after the ramp.
    pub stop_after: Option<u32>,
    /// The seed of every random choice.
    pub seed: u64,
}

/// An address, and what requests call it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadTarget {
    /// The address.
    pub address: SocketAddr,
    /// The value of `host`.
    pub authority: String,
    /// Sent before each path; empty, or begins with `/` and does not end with it.
    pub prefix: String,
    /// The protocol.
    pub protocol: LoadProtocol,
}

/// How requests are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoadProtocol {
    /// HTTP/1.1, connections kept open.
    Http1,
    /// HTTP/2 without TLS.
    Http2,
}

impl LoadTarget {
    /// Whether requests stay on this machine.
    pub fn is_local(&self) -> bool {
        match self.address.ip() {
            IpAddr::V4(address) => address.is_loopback(),
            IpAddr::V6(address) => {
                address.is_loopback() || address.to_ipv4_mapped().is_some_and(|v4| v4.is_loopback())
            }
        }
    }
}

/// Above this share of its cores the generator may be the bottleneck.
const MAX_OWN_CPU: f64 = 0.8;
/// The latest that one request of a hundred may be sent; it is added to latencies in open loads.
const MAX_LAG_US: u64 = 5_000;
/// Above this share other processes disturb the figures.
const MAX_OTHERS: f64 = 0.05;
/// The length of a window.
const WINDOW: Duration = Duration::from_secs(1);

/// What all users share.
#[derive(Debug)]
struct Shared {
    options: LoadOptions,
    recorder: Recorder,
    started: Instant,
    /// No request begins after it.
    until: Instant,
    /// Users that have begun.
    users: AtomicU32,
    schedule: Mutex<Schedule>,
    /// Fires when a stop rule ends the load: no request begins, those under way end.
    over: CancellationToken,
    /// Fires when the user ends it: requests under way are dropped.
    cancel: CancellationToken,
}

/// The arrivals of an open load.
#[derive(Debug)]
struct Schedule {
    random: Random,
    next: Instant,
}

/// Runs a load to its end, to a stop rule or until `cancel` fires. Each second is sent to `windows` as it ends.
pub async fn run_load(
    options: LoadOptions,
    windows: mpsc::UnboundedSender<LoadWindow>,
    cancel: &CancellationToken,
) -> LoadReport {
    let mut machine = MachineWatch::start().await;
    let started = Instant::now();
    let ramp = options.arrivals.ramp().min(options.duration);
    let shared = Arc::new(Shared {
        recorder: Recorder::new(&options.scenario, started + ramp),
        started,
        until: started + options.duration,
        users: AtomicU32::new(0),
        schedule: Mutex::new(Schedule { random: Random::new(mix(options.seed)), next: started }),
        over: CancellationToken::new(),
        cancel: cancel.clone(),
        options,
    });
    let mut users = JoinSet::new();
    for number in 0..shared.options.arrivals.most_users() {
        let user = User::new(Arc::clone(&shared), number);
        users.spawn(user.run());
    }
    let (seen, mut stopped_early) = {
        let watching = watch_windows(&shared, &windows, ramp, &mut machine);
        tokio::pin!(watching);
        tokio::select! {
            seen = &mut watching => seen,
            () = all_ended(&mut users) => watching.await,
        }
    };
    stopped_early |= cancel.is_cancelled();
    all_ended(&mut users).await;
    machine.finish();
    report(&shared, ramp, seen, &machine, stopped_early)
}

async fn all_ended(users: &mut JoinSet<()>) {
    while let Some(ended) = users.join_next().await {
        if let Err(error) = ended
            && error.is_panic()
        {
            std::panic::resume_unwind(error.into_panic());
        }
    }
}

/// Closes a window each second until the load is over; tells whether a stop rule ended it.
async fn watch_windows(
    shared: &Arc<Shared>,
    windows: &mpsc::UnboundedSender<LoadWindow>,
    ramp: Duration,
    machine: &mut MachineWatch,
) -> (Vec<LoadWindow>, bool) {
    let mut seen = Vec::new();
    let mut broken_in_a_row = 0;
    let measured_from = shared.started + ramp;
    loop {
        let end = shared.started + WINDOW * (seen.len() as u32 + 1);
        let is_last = end >= shared.until;
        tokio::select! {
            () = tokio::time::sleep_until(end.min(shared.until)) => {}
            () = shared.cancel.cancelled() => return (seen, false),
        }
        if !machine.is_measuring() && Instant::now() >= measured_from {
            machine.begin_measuring();
        }
        let (closed, alone) = shared.recorder.close_window(WINDOW);
        let window = LoadWindow {
            end_s: (end.min(shared.until) - shared.started).as_secs_f64(),
            users: shared.users.load(Ordering::Relaxed),
            ..closed
        };
        // A second that began in the ramp is not judged.
        let is_broken = end >= measured_from + WINDOW && is_broken(&shared.options.thresholds, &alone);
        broken_in_a_row = if is_broken { broken_in_a_row + 1 } else { 0 };
        // Nobody may listen.
        let _ = windows.send(window.clone());
        seen.push(window);
        if shared.options.stop_after.is_some_and(|most| broken_in_a_row >= most) {
            shared.over.cancel();
            return (seen, true);
        }
        if is_last {
            return (seen, false);
        }
    }
}

/// Whether one second alone breaks a threshold. Those of single requests are judged at the end only.
fn is_broken(thresholds: &[Threshold], second: &LoadReport) -> bool {
    thresholds.iter().filter(|threshold| threshold.request.is_none()).any(|threshold| {
        let result = threshold.judge(second);
        // A second without an answer breaks no limit of latencies: errors and rates say that.
        result.measured.is_some() && !result.is_kept
    })
}

fn report(
    shared: &Shared,
    ramp: Duration,
    windows: Vec<LoadWindow>,
    machine: &MachineWatch,
    stopped_early: bool,
) -> LoadReport {
    let options = &shared.options;
    let ended = windows.last().map_or(0.0, |window| window.end_s);
    let until = shared.started + Duration::from_secs_f64(ended);
    let mut report = shared.recorder.report(&options.scenario, until);
    let lag_p99_us = shared.recorder.lag_p99_us();
    let mut invalid = Vec::new();
    let mut check = |is_so: bool, why| {
        if is_so {
            invalid.push(why)
        }
    };
    check(machine.cpu_share() > MAX_OWN_CPU, Invalidity::GeneratorBusy);
    check(lag_p99_us > MAX_LAG_US, Invalidity::GeneratorLate);
    check(machine.others_before() > MAX_OTHERS, Invalidity::MachineBusy);
    check(report.counts.failed.contains_key(&RequestFailure::Local), Invalidity::OutOfResources);
    check(report.counts.requests == 0, Invalidity::NothingMeasured);
    report.seed = options.seed;
    report.ramp_s = ramp.as_secs_f64();
    report.most_users = options.arrivals.most_users();
    report.windows = windows;
    report.self_check = SelfCheck {
        cpu_share: machine.cpu_share(),
        lag_p99_us,
        others_before: machine.others_before(),
        invalid,
    };
    report.stopped_early = stopped_early;
    report.thresholds = options.thresholds.iter().map(|threshold| threshold.judge(&report)).collect();
    report
}

impl Shared {
    /// Whether no further request may begin.
    fn is_over(&self) -> bool {
        self.over.is_cancelled() || Instant::now() >= self.until
    }

    /// Sleeps, but not beyond the end of the load.
    async fn sleep_until(&self, time: Instant) {
        tokio::select! {
            () = tokio::time::sleep_until(time.min(self.until)) => {}
            () = self.over.cancelled() => {}
        }
    }

    /// When the next request of an open load is due; none when the load is over.
    fn next_arrival(&self, rate: f64, spacing: Spacing) -> Option<Instant> {
        let mut schedule = self.schedule.lock().unwrap_or_else(PoisonError::into_inner);
        let due = schedule.next;
        let gap = spacing.draw(rate, &mut schedule.random);
        schedule.next = due + gap;
        (due < self.until).then_some(due)
    }
}

#[cfg(test)]
mod tests;
