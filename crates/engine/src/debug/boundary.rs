//! Where the failure starts, for every number in a cause.

use faultscope_model::application::TestCase;
use faultscope_model::event::Event;
use faultscope_model::outcome::{Signature, Unresolved};
use faultscope_model::space::Axis;
use faultscope_model::{DeltaSet, Outcome, Run, RunId, Space, Treatment, TrialRole};
use faultscope_search::{Boundary, FoundBoundary, Line, Side};
use serde::{Deserialize, Serialize};

use crate::drive::Tests;
use crate::driver::{Asks, Driver, Ended, Moves, RequestedTrial, SlotState, SlotView, Ticket};
use crate::error::EngineError;
use crate::trial::{FinishedTrial, TrialRequest};

/// Where a failure starts along the values of one delta, all other deltas of the cause being there.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ValueBoundary {
    /// The delta.
    pub delta: String,
    /// The failing value nearest to the passing ones.
    pub fails: String,
    /// The passing value nearest to it; none when every value that was tried fails.
    pub passes: Option<String>,
    /// Whether the passing values are above the failing ones.
    pub passes_above: bool,
    /// Whether no value between the two is worth a further trial.
    pub sharp: bool,
    /// Values between the two that could not be judged.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unresolved: Vec<String>,
    /// What was seen at one of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unresolved_seen: Option<Unresolved>,
    /// Whether passing means that everything came up, because there is no test that could have passed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub only_comes_up: bool,
    /// Values on the failing side that pass all the same: there is more than one boundary.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub odd_passes: Vec<String>,
    /// Values on the passing side that fail all the same.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub odd_fails: Vec<String>,
    /// How many trials it took.
    pub trials: u32,
    /// How often the passing value passed here.
    #[serde(default)]
    pub passed_times: u32,
    /// The run of the failing value, where it was tried here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failing_run: Option<RunId>,
    /// The run of the passing value, where it was tried here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub passing_run: Option<RunId>,
}

impl ValueBoundary {
    /// For people: `order.memory: fails at 95MiB and below, passes from 96MiB`.
    pub fn describe(&self) -> String {
        let name = self.delta.strip_prefix("config ").unwrap_or(&self.delta);
        let (side, far) = if self.passes_above { ("below", "up to") } else { ("above", "down to") };
        let passing = if self.only_comes_up { "comes up" } else { "passes" };
        let mut text = match &self.passes {
            Some(passes) if self.passes_above => {
                format!("{name}: fails at {} and {side}, {passing} from {passes}", self.fails)
            }
            Some(passes) => format!("{name}: fails from {}, {passing} at {passes} and below", self.fails),
            None => format!("{name}: fails {far} {}, no passing value was found", self.fails),
        };
        if self.passes.is_some() && !self.sharp {
            text.push_str(" (not all values between were tried)");
        }
        if !self.unresolved.is_empty() {
            text.push_str(&format!("; between them {} could not be judged", self.unresolved.join(", ")));
            if let Some(seen) = &self.unresolved_seen {
                text.push_str(&format!(" ({})", seen.to_string().replace('\n', " ")));
            }
        }
        if !self.odd_passes.is_empty() || !self.odd_fails.is_empty() {
            let say = |values: &[String], what: &str| {
                if values.is_empty() { String::new() } else { format!(" {} {what}", values.join(", ")) }
            };
            let odd = [say(&self.odd_passes, "passes"), say(&self.odd_fails, "fails")];
            let odd: Vec<_> = odd.iter().map(|o| o.trim()).filter(|o| !o.is_empty()).collect();
            text.push_str(&format!("; more than one boundary: {}", odd.join(", ")));
        }
        text
    }
}

/// How often the passing value that is named must have passed: one that fails in half of the runs would have shown with
/// 97 %, which keeps a boundary from being named within the values where chance decides.
pub(super) const CONFIRMATIONS: u32 = 5;

/// What all trials of a boundary search share.
pub(super) struct Setting<'a> {
    pub(super) space: &'a Space,
    /// A passing value must pass them, also where the failure is that a service does not come up.
    pub(super) tests: &'a [TestCase],
    /// The only test that decides, where one was named.
    pub(super) judged: Option<&'a str>,
    pub(super) wanted: &'a Signature,
    /// What was tried before.
    pub(super) seen: &'a [&'a Run],
    /// How many passing trials make a value pass.
    pub(super) repeats: u32,
    /// How many make it the one that is named.
    pub(super) confirmations: u32,
}

impl Setting<'_> {
    /// Searches the boundaries of all numbers of a cause, and puts what is found into `found` as it comes, so
    /// that nothing is lost when it is stopped.
    pub(super) async fn search_boundaries(
        &self,
        driver: &mut Driver,
        cause: &DeltaSet,
        found: &mut Vec<ValueBoundary>,
    ) -> Result<Ended, EngineError> {
        for delta in cause.iter() {
            let Some(axis) = self.space.axis(delta) else { continue };
            for line in lines(&axis, self.has_passed_without(cause, delta)) {
                let text = format!("looking for the boundary of {}", self.space.deltas[delta].name);
                driver.session().events().emit(Event::Note { text });
                let mut values = Values {
                    setting: self,
                    cause,
                    delta,
                    axis: &axis,
                    search: Boundary::new(line, self.repeats).confirmed_by(self.confirmations),
                    runs: Vec::new(),
                    unresolved: Vec::new(),
                };
                let ended = driver.run(&mut values).await?;
                let boundary = values.describe(line);
                // A value that nobody has set is looked for on both sides, and is on one of them.
                if boundary.passes.is_some() || axis.simple.is_some() || axis.unlimited_above {
                    found.push(boundary);
                }
                if ended != Ended::Done {
                    return Ok(ended);
                }
            }
        }
        Ok(Ended::Done)
    }

    /// Whether the cause without one delta was seen to pass the tests; that a service came up is not enough.
    fn has_passed_without(&self, cause: &DeltaSet, delta: usize) -> bool {
        let mut less = cause.clone();
        less.remove(delta);
        let less = self.space.treatment(&less);
        let tested = |run: &Run| self.tests.is_empty() || !run.evidence.tests.is_empty();
        self.seen.iter().any(|run| run.treatment == less && run.outcome == Outcome::Pass && tested(run))
    }
}

/// The lines to search: between both ends, towards the simplest where that was not seen to pass, or outwards where
/// it has no value.
fn lines(axis: &Axis, has_passed: bool) -> Vec<Line> {
    let relative = axis.scale.relative;
    let line = |other: Side| Line { failing: axis.failing, other, relative };
    match axis.simple {
        Some(simple) if simple == axis.failing => Vec::new(),
        Some(simple) if has_passed => vec![line(Side::Passing(simple))],
        Some(simple) => vec![line(Side::Towards(simple))],
        None if axis.unlimited_above => vec![line(Side::Towards(axis.highest))],
        None => {
            let ends = [axis.lowest, axis.highest].into_iter().filter(|end| *end != axis.failing);
            ends.map(|end| line(Side::Towards(end))).collect()
        }
    }
}

struct Values<'a> {
    setting: &'a Setting<'a>,
    cause: &'a DeltaSet,
    delta: usize,
    axis: &'a Axis,
    search: Boundary,
    runs: Vec<(i64, RunId)>,
    unresolved: Vec<(i64, Unresolved)>,
}

impl Values<'_> {
    fn describe(&self, line: Line) -> ValueBoundary {
        let FoundBoundary { fails, passes, unresolved, odd_passes, odd_fails, sharp } = self.search.found();
        let show = |place: i64| self.axis.scale.show(place);
        let all = |places: Vec<i64>| places.into_iter().map(show).collect();
        let run_of = |place: i64| {
            self.runs.iter().rev().find(|(tried, _)| *tried == place).map(|(_, run)| run.clone())
        };
        let towards = match line.other {
            Side::Passing(place) | Side::Towards(place) => place,
        };
        let seen = self.unresolved.iter().find(|(place, _)| unresolved.contains(place));
        ValueBoundary {
            unresolved_seen: seen.map(|(_, reason)| reason.clone()),
            only_comes_up: self.setting.tests.is_empty(),
            delta: self.setting.space.deltas[self.delta].name.clone(),
            fails: show(fails),
            passes: passes.map(show),
            passes_above: towards > line.failing,
            sharp,
            unresolved: all(unresolved),
            odd_passes: all(odd_passes),
            odd_fails: all(odd_fails),
            trials: self.search.trials(),
            passed_times: passes.map_or(0, |place| self.search.passes_at(place)),
            failing_run: run_of(fails),
            passing_run: passes.and_then(run_of),
        }
    }
}

impl Asks for Values<'_> {
    fn ask(&mut self, slots: &[SlotView<'_>]) -> Result<Moves, EngineError> {
        let free: Vec<_> = slots.iter().filter(|view| view.state == SlotState::Free).collect();
        let steps = self.search.plan(free.len());
        let mut moves = Moves::default();
        for ((ticket, place), view) in steps.start.into_iter().zip(free) {
            let value = self.axis.scale.show(place);
            let space = self.setting.space;
            let treatment = Treatment::Value {
                deltas: space.names(self.cause),
                delta: space.deltas[self.delta].name.clone(),
                value: value.clone(),
            };
            let request = TrialRequest {
                treatment,
                circumstance: space.circumstance_at(self.cause, self.delta, &value)?,
                drive: Tests::judged_by(
                    self.setting.tests.to_vec(),
                    self.setting.judged.map(ToOwned::to_owned),
                ),
                wanted: Some(self.setting.wanted.without_numbers()),
            };
            let role = TrialRole::Boundary;
            moves.start.push(RequestedTrial { ticket, role, slot: view.slot, request });
        }
        moves.cancel = steps.cancel;
        Ok(moves)
    }

    fn answer(&mut self, ticket: Ticket, trial: FinishedTrial) -> Result<(), EngineError> {
        let run = trial.run;
        let place = value_of(&run, self.setting.space, self.delta, self.axis);
        self.search.record(ticket, &run.outcome);
        if let (Some(place), Outcome::Unresolved { reason }) = (place, &run.outcome) {
            self.unresolved.push((place, reason.clone()));
        }
        self.runs.extend(place.map(|place| (place, run.id)));
        Ok(())
    }

    fn is_done(&self) -> bool {
        self.search.is_done()
    }
}

/// The place of the value that a run had.
fn value_of(run: &Run, space: &Space, delta: usize, axis: &Axis) -> Option<i64> {
    axis.scale.place(&space.value_in(delta, &run.circumstance)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn boundary(passes: Option<&str>, above: bool) -> ValueBoundary {
        ValueBoundary {
            delta: "config order.memory".into(),
            fails: "95MiB".into(),
            passes: passes.map(ToOwned::to_owned),
            passes_above: above,
            sharp: true,
            unresolved: Vec::new(),
            unresolved_seen: None,
            only_comes_up: false,
            odd_passes: Vec::new(),
            odd_fails: Vec::new(),
            trials: 3,
            passed_times: 1,
            failing_run: None,
            passing_run: None,
        }
    }

    #[test]
    fn told_to_people() {
        let above = boundary(Some("96MiB"), true);
        assert_eq!(above.describe(), "order.memory: fails at 95MiB and below, passes from 96MiB");
        let below = boundary(Some("94MiB"), false);
        assert_eq!(below.describe(), "order.memory: fails from 95MiB, passes at 94MiB and below");
        let none = boundary(None, true);
        assert_eq!(none.describe(), "order.memory: fails up to 95MiB, no passing value was found");
        let odd = ValueBoundary { odd_passes: vec!["10MiB".into()], ..above };
        assert_eq!(
            odd.describe(),
            "order.memory: fails at 95MiB and below, passes from 96MiB; more than one boundary: 10MiB passes"
        );
    }
}
