//! Where on a line of values a failure starts.
//!
//! One end is known to fail; the other passes, or is not known and is looked for by doubling the distance.
//! Between the two the interval is cut into as many parts as there are free slots and one more. What a
//! neighbourhood of one place cannot show, a few looks far from it can: whether the line has just one
//! boundary.

use std::collections::{BTreeMap, BTreeSet};

use crate::Ticket;
use faultscope_model::Outcome;

use crate::tuning::BoundaryTuning;

/// What is known before the search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Line {
    /// A place that fails.
    pub failing: i64,
    /// A place that passes, or where to look for one.
    pub other: Side,
    /// Whether places that differ by 2 % count as neighbours.
    pub relative: bool,
}

/// The side on which the failure ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// This place passes.
    Passing(i64),
    /// Somewhere up to this place, which is above or below.
    Towards(i64),
}

/// Searches a boundary.
///
/// ```
/// use faultscope_model::Outcome;
/// use faultscope_search::{Boundary, Line, Side};
/// let mut search = Boundary::new(Line { failing: 64, other: Side::Passing(256), relative: false }, 1);
/// while !search.is_done() {
///     for (trial, place) in search.plan(1).start {
///         let outcome = if place >= 96 { Outcome::Pass } else { Outcome::Unresolved { reason: "?".into() } };
///         search.record(trial, &outcome);
///     }
/// }
/// assert_eq!(search.found().passes, Some(96));
/// ```
#[derive(Debug, Clone)]
pub struct Boundary {
    line: Line,
    /// How many passing trials make a place pass.
    repeats: u32,
    /// How often the place that is named in the end must have passed.
    confirmations: u32,
    known: BTreeMap<i64, PlaceOutcome>,
    passes: BTreeMap<i64, u32>,
    running: BTreeMap<Ticket, i64>,
    /// The failing and the passing place that are neighbours, once they are found.
    settled: Option<(i64, i64)>,
    /// Places far from them that are looked at to see whether this boundary is the only one.
    looks: BTreeSet<i64>,
    next: u64,
    tuning: BoundaryTuning,
}

/// What a place showed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PlaceOutcome {
    Pass,
    Fail,
    Unresolved,
}

/// What to do next.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Steps {
    /// Places to try.
    pub start: Vec<(Ticket, i64)>,
    /// Trials that nobody needs any more.
    pub cancel: Vec<Ticket>,
}

/// A boundary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundBoundary {
    /// The failing place nearest to the passing side.
    pub fails: i64,
    /// The passing place nearest to it; none when all that was tried fails.
    pub passes: Option<i64>,
    /// Places between the two that could not be judged.
    pub unresolved: Vec<i64>,
    /// Places on the failing side that pass.
    pub odd_passes: Vec<i64>,
    /// Places on the passing side that fail.
    pub odd_fails: Vec<i64>,
    /// Whether nothing between the two is worth a further trial.
    pub sharp: bool,
}

impl Boundary {
    /// Searches on a line. `repeats` trials of a place must pass before it counts as passing.
    pub fn new(line: Line, repeats: u32) -> Self {
        let mut known = BTreeMap::from([(line.failing, PlaceOutcome::Fail)]);
        if let Side::Passing(place) = line.other {
            known.insert(place, PlaceOutcome::Pass);
        }
        Self {
            line,
            repeats: repeats.max(1),
            confirmations: 1,
            known,
            passes: BTreeMap::new(),
            running: BTreeMap::new(),
            settled: None,
            looks: BTreeSet::new(),
            next: 1,
            tuning: BoundaryTuning::default(),
        }
    }

    /// Asks for more passes of the place that is named in the end: near a boundary both outcomes are often possible, and
    /// the search is led to a place that happened to pass.
    pub fn confirmed_by(self, confirmations: u32) -> Self {
        Self { confirmations: confirmations.max(1), ..self }
    }

    /// How often a place was seen to pass.
    pub fn passes_at(&self, place: i64) -> u32 {
        self.passes.get(&place).copied().unwrap_or_default()
    }

    /// The passing place that would be named now, and has not passed often enough for that.
    fn unconfirmed(&self) -> Option<i64> {
        let (_, place) = self.interval().filter(|_| self.settled.is_none() && self.gaps().is_empty())?;
        // The passing end was confirmed by whoever began the search with it.
        let is_given = matches!(self.line.other, Side::Passing(end) if end == place);
        (!is_given && self.passes_at(place) < self.confirmations).then_some(place)
    }

    /// Whether everything is known.
    pub fn is_done(&self) -> bool {
        let looks = self.settled.is_none() && self.is_settled() && !self.far_places().is_empty();
        self.spent() || (self.running.is_empty() && self.wanted(1).is_empty() && !looks)
    }

    /// Places to try on the free slots, and running trials that are no longer needed.
    pub fn plan(&mut self, free: usize) -> Steps {
        if self.spent() {
            return Steps { start: Vec::new(), cancel: self.running.keys().copied().collect() };
        }
        let needless = |place: i64| match (self.settled, self.interval()) {
            (None, Some((fails, passes))) => !(fails.min(passes)..=fails.max(passes)).contains(&place),
            _ => false,
        };
        let cancel: Vec<Ticket> =
            self.running.iter().filter(|(_, place)| needless(**place)).map(|(&trial, _)| trial).collect();
        for trial in &cancel {
            self.running.remove(trial);
        }
        if self.settled.is_none() && self.is_settled() {
            self.looks = self.far_places();
            self.settled = self.interval();
        }
        let mut start = Vec::new();
        for place in self.wanted(free) {
            let trial = Ticket(self.next);
            self.next += 1;
            self.running.insert(trial, place);
            start.push((trial, place));
        }
        Steps { start, cancel }
    }

    /// Tells what a trial showed.
    pub fn record(&mut self, trial: Ticket, outcome: &Outcome) {
        let Some(place) = self.running.remove(&trial) else { return };
        let seen = match outcome {
            Outcome::Fail { .. } => PlaceOutcome::Fail,
            Outcome::Unresolved { .. } => PlaceOutcome::Unresolved,
            Outcome::Pass => {
                let passes = self.passes.entry(place).or_default();
                *passes += 1;
                if *passes < self.repeats {
                    return;
                }
                PlaceOutcome::Pass
            }
        };
        // A failure is certain, whatever other trials of the place show.
        let before = self.known.get(&place).copied();
        if before != Some(PlaceOutcome::Fail) {
            self.known.insert(place, seen);
        }
    }

    /// How many trials were started.
    pub fn trials(&self) -> u32 {
        u32::try_from(self.next - 1).unwrap_or(u32::MAX)
    }

    /// What is known so far.
    pub fn found(&self) -> FoundBoundary {
        let interval = self.interval();
        let fails = interval.map_or_else(|| self.furthest_failure(), |(fails, _)| fails);
        let up = self.upwards();
        let beyond = |a: i64, b: i64| if up { a > b } else { a < b };
        let places = |seen: PlaceOutcome, test: &dyn Fn(i64) -> bool| -> Vec<i64> {
            self.known
                .iter()
                .filter(|(place, s)| **s == seen && test(**place))
                .map(|(&place, _)| place)
                .collect()
        };
        let passes = interval.map(|(_, passes)| passes);
        FoundBoundary {
            fails,
            passes,
            unresolved: places(PlaceOutcome::Unresolved, &|p| {
                beyond(p, fails) && passes.is_none_or(|passes| beyond(passes, p))
            }),
            odd_passes: places(PlaceOutcome::Pass, &|p| beyond(fails, p)),
            odd_fails: places(PlaceOutcome::Fail, &|p| passes.is_some_and(|passes| beyond(p, passes))),
            sharp: interval.is_some() && self.gaps().is_empty(),
        }
    }

    fn spent(&self) -> bool {
        self.trials() >= self.tuning.most_trials
    }

    fn upwards(&self) -> bool {
        match self.line.other {
            Side::Passing(place) | Side::Towards(place) => place > self.line.failing,
        }
    }

    /// The known places from the failing end on, towards the passing side.
    fn outwards(&self) -> Vec<(i64, PlaceOutcome)> {
        let from = self.line.failing;
        let mut places: Vec<(i64, PlaceOutcome)> = if self.upwards() {
            self.known.range(from..).map(|(&p, &s)| (p, s)).collect()
        } else {
            self.known.range(..=from).map(|(&p, &s)| (p, s)).collect()
        };
        if !self.upwards() {
            places.reverse();
        }
        places
    }

    /// Whether nothing is left to try between the two, and nothing runs there.
    fn is_settled(&self) -> bool {
        let pending = self.passes.keys().any(|place| !self.known.contains_key(place));
        self.running.is_empty()
            && !pending
            && self.interval().is_some()
            && self.gaps().is_empty()
            && self.unconfirmed().is_none()
    }

    /// The failing and the passing place between which the boundary nearest to the failing end lies.
    fn interval(&self) -> Option<(i64, i64)> {
        if self.settled.is_some() {
            return self.settled;
        }
        let mut fails = self.line.failing;
        for (place, seen) in self.outwards() {
            match seen {
                PlaceOutcome::Fail => fails = place,
                PlaceOutcome::Pass => return Some((fails, place)),
                PlaceOutcome::Unresolved => {}
            }
        }
        None
    }

    fn furthest_failure(&self) -> i64 {
        let failing = self.outwards().into_iter().filter(|(_, seen)| *seen == PlaceOutcome::Fail);
        failing.map(|(place, _)| place).next_back().unwrap_or(self.line.failing)
    }

    fn are_neighbours(&self, a: i64, b: i64) -> bool {
        let apart = a.abs_diff(b);
        let relative =
            self.line.relative && apart <= a.unsigned_abs().min(b.unsigned_abs()) / self.tuning.parts;
        apart <= 1 || relative
    }

    /// Parts of the interval in which something is left to try, known and running places between them.
    fn gaps(&self) -> Vec<(i64, i64)> {
        let Some((fails, passes)) = self.interval() else { return Vec::new() };
        let (low, high) = (fails.min(passes), fails.max(passes));
        let mut marks: BTreeSet<i64> = self.known.range(low..=high).map(|(&place, _)| place).collect();
        marks.extend(self.running.values().copied().filter(|p| (low..=high).contains(p)));
        marks.extend(self.passes.keys().copied().filter(|p| (low..=high).contains(p)));
        let marks: Vec<i64> = marks.into_iter().collect();
        // Between two places that cannot be judged nothing is worth a look.
        let unclear = |place: i64| self.known.get(&place) == Some(&PlaceOutcome::Unresolved);
        let worth = |&(a, b): &(i64, i64)| !(self.are_neighbours(a, b) || unclear(a) && unclear(b));
        marks.windows(2).map(|pair| (pair[0], pair[1])).filter(worth).collect()
    }

    /// Places worth a trial now, one for each free slot at most.
    fn wanted(&self, free: usize) -> Vec<i64> {
        // A place that passed, but not yet often enough, comes first: the interval depends on it.
        let running = |place: i64| self.running.values().filter(|p| **p == place).count();
        let mut wanted: Vec<i64> = Vec::new();
        for (&place, &passes) in self.passes.iter().filter(|(place, _)| !self.known.contains_key(place)) {
            let missing = (self.repeats - passes) as usize;
            wanted.extend(std::iter::repeat_n(place, missing.saturating_sub(running(place))));
        }
        if let Some(place) = self.unconfirmed() {
            let missing = (self.confirmations - self.passes_at(place)) as usize;
            wanted.extend(std::iter::repeat_n(place, missing.saturating_sub(running(place))));
        }
        if self.settled.is_some() {
            let open =
                |p: &&i64| !self.known.contains_key(p) && !self.passes.contains_key(p) && running(**p) == 0;
            wanted.extend(self.looks.iter().filter(open));
        } else if self.interval().is_some() {
            wanted.extend(self.cuts(free.saturating_sub(wanted.len())));
        } else {
            wanted.extend(self.doublings(free.saturating_sub(wanted.len())));
        }
        wanted.truncate(free);
        wanted
    }

    /// Cuts the widest gaps: evenly where nothing runs in them, so that n slots make n + 1 equal parts.
    fn cuts(&self, free: usize) -> Vec<i64> {
        let mut gaps = self.gaps();
        let mut cuts = Vec::new();
        if let [(low, high)] = gaps[..] {
            for part in 1..=free {
                let at = self.between(low, high, part, free + 1);
                if at > low && at < high && !cuts.contains(&at) {
                    cuts.push(at);
                }
            }
            return cuts;
        }
        while cuts.len() < free {
            let Some(widest) =
                (0..gaps.len()).max_by_key(|&g| (gaps[g].0.abs_diff(gaps[g].1), usize::MAX - g))
            else {
                break;
            };
            let (low, high) = gaps.swap_remove(widest);
            let at = self.between(low, high, 1, 2);
            cuts.push(at);
            gaps.extend([(low, at), (at, high)].into_iter().filter(|&(a, b)| !self.are_neighbours(a, b)));
        }
        cuts
    }

    /// The place after `part` of `parts` equal parts; equal factors where the scale is relative.
    fn between(&self, low: i64, high: i64, part: usize, parts: usize) -> i64 {
        let share = part as f64 / parts as f64;
        if self.line.relative && low > 0 && high / low >= 4 {
            let at = (low as f64) * (high as f64 / low as f64).powf(share);
            return (at as i64).clamp(low + 1, high - 1);
        }
        let wide = i128::from(high) - i128::from(low);
        let at = i128::from(low) + wide * part as i128 / parts as i128;
        i64::try_from(at).unwrap_or(high).clamp(low + 1, (high - 1).max(low + 1))
    }

    /// The next places outwards, each twice as far from zero or from the failing end as the one before.
    fn doublings(&self, free: usize) -> Vec<i64> {
        let Side::Towards(end) = self.line.other else { return Vec::new() };
        let start = self.line.failing;
        let tried = |place: i64| {
            self.known.contains_key(&place)
                || self.passes.contains_key(&place)
                || self.running.values().any(|p| *p == place)
        };
        let mut places = Vec::new();
        let mut place = start;
        while place != end && places.len() < free {
            place = next_outwards(place, start, end);
            if !tried(place) {
                places.push(place);
            }
        }
        places
    }

    /// A place in the middle of each side, to see whether the boundary is the only one.
    fn far_places(&self) -> BTreeSet<i64> {
        let Some((fails, passes)) = self.interval() else { return BTreeSet::new() };
        let outer = match self.line.other {
            Side::Passing(place) => Some(place),
            Side::Towards(_) => self.outwards().last().map(|(place, _)| *place),
        };
        let middle = |a: i64, b: i64| {
            let (low, high) = (a.min(b), a.max(b));
            (!self.are_neighbours(low, high)).then(|| self.between(low, high, 1, 2))
        };
        let sides = [middle(self.line.failing, fails), outer.and_then(|outer| middle(passes, outer))];
        sides.into_iter().flatten().filter(|place| !self.known.contains_key(place)).collect()
    }
}

/// Twice as far: away from zero by doubling, towards zero by halving.
fn next_outwards(place: i64, start: i64, end: i64) -> i64 {
    let next = match (place, end > start) {
        (0, true) => 1,
        (0, false) => -1,
        (p, true) if p > 0 => p.saturating_mul(2),
        (p, false) if p < 0 => p.saturating_mul(2),
        (p, _) => p / 2,
    };
    if end > start { next.min(end) } else { next.max(end) }
}

#[cfg(test)]
mod tests;
