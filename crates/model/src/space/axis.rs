//! Deltas with numeric values, for which the boundary between passing and failing can be searched.

use super::{Change, DeltaSet, Excluded, Space};
use crate::circumstance::Circumstance;
use crate::scale::Scale;

/// The range of values of one delta.
#[derive(Debug, Clone, PartialEq)]
pub struct Axis {
    /// Maps values to positions.
    pub scale: Scale,
    /// The position of the simplest value; none where that is absent, as for unlimited memory.
    pub simple: Option<i64>,
    /// The position of the failing value.
    pub failing: i64,
    /// The lowest position that can be tried.
    pub lowest: i64,
    /// The highest position that can be tried.
    pub highest: i64,
    /// Whether an absent value lies above all others: a limit that is not set.
    pub unlimited_above: bool,
}

/// How often the failing value is doubled to find a passing one if the simplest value is absent: from 64 MiB that
/// reaches 1 TiB.
const MAX_DOUBLINGS: u32 = 14;

impl Space {
    /// The range of values of a delta; none if it is not numeric at both ends.
    pub fn axis(&self, delta: usize) -> Option<Axis> {
        let delta = self.deltas.get(delta).filter(|delta| !delta.is_secret)?;
        let (simple, failing, bytes, lowest) = match &delta.change {
            Change::Nodes(_) | Change::Instances(..) => {
                (Some(delta.from.clone()), delta.to.clone(), false, 1)
            }
            Change::Config(service, key, Some(value)) => {
                let simple = self.simplest.config.get(service).and_then(|items| items.get(key)).cloned();
                // A circumstance that does not mention the setting leaves the service's own value.
                let written = key.starts_with("env.").then(|| delta.from.clone());
                let simple =
                    simple.or(written.filter(|from| Scale::between(Some(from), value, false).is_some()));
                let lowest = if key.starts_with("env.") { 0 } else { 1 };
                (simple, value.clone(), key == "memory", lowest)
            }
            Change::Config(..) | Change::Version(..) | Change::Pair(..) => return None,
        };
        let scale = Scale::between(simple.as_deref(), &failing, bytes)?;
        let place = scale.place(&failing)?;
        let simple = match simple {
            Some(text) => Some(scale.place(&text)?),
            None => None,
        };
        let most = place.unsigned_abs().max(1).saturating_mul(1 << MAX_DOUBLINGS);
        let highest = i64::try_from(most).unwrap_or(i64::MAX / 8).min(i64::MAX / 8);
        let unlimited_above = matches!(&delta.change, Change::Config(_, key, _) if !key.starts_with("env."));
        // A negative value means that others below zero make sense, too.
        let lowest = if place < 0 || simple.is_some_and(|s| s < 0) { -highest } else { lowest.min(place) };
        Some(Axis { scale, simple, failing: place, lowest, highest, unlimited_above })
    }

    /// The value that a delta has in a circumstance.
    pub fn value_in(&self, delta: usize, circumstance: &Circumstance) -> Option<String> {
        match &self.deltas.get(delta)?.change {
            Change::Nodes(_) => Some(circumstance.nodes.to_string()),
            Change::Instances(service, _) => Some(circumstance.instances_of(service).to_string()),
            Change::Config(service, key, _) => circumstance.config.get(service)?.get(key).cloned(),
            Change::Version(service, _) => circumstance.versions.get(service).cloned(),
            Change::Pair(..) => None,
        }
    }

    /// The circumstance of a set that contains the delta, with another value for it.
    pub fn circumstance_at(
        &self,
        set: &DeltaSet,
        delta: usize,
        value: &str,
    ) -> Result<Circumstance, Excluded> {
        let mut space = self.clone();
        if let Some(delta) = space.deltas.get_mut(delta) {
            match &mut delta.change {
                Change::Nodes(nodes) => *nodes = value.parse().unwrap_or(*nodes),
                Change::Instances(_, count) => *count = value.parse().unwrap_or(*count),
                Change::Config(_, _, own) => *own = Some(value.to_owned()),
                Change::Version(..) | Change::Pair(..) => {}
            }
        }
        space.circumstance(set)
    }
}

#[cfg(test)]
mod tests {
    use crate::Application;

    #[test]
    fn numbers_have_an_axis() {
        let text = "
name: shop
services: { order: { command: [a] }, stock: { command: [b], versions: { v2: { command: [c] } } } }
simplest: { config: { order: { env.TTL: 30, env.MODE: fast } } }
failing:
  nodes: 3
  instances: { order: 4, stock: 0 }
  versions: { stock: v2 }
  config: { order: { memory: 64MiB, env.TTL: 300, env.MODE: safe, env.SIZE: 5 } }
";
        let space = Application::read_alone(text, "shop.yaml").unwrap().space().unwrap();
        let mut axes = Vec::new();
        for (index, delta) in space.deltas.iter().enumerate() {
            let Some(axis) = space.axis(index) else { continue };
            let far = axis.scale.show(axis.failing + 1);
            let at = space.circumstance_at(&std::iter::once(index).collect(), index, &far).unwrap();
            axes.push(format!(
                "{} {:?} {} {}",
                delta.name,
                axis.simple,
                axis.failing,
                serde_json::to_string(&at).unwrap()
            ));
        }
        assert_eq!(
            axes,
            [
                r#"node Some(1) 3 {"nodes":4,"config":{"order":{"env.MODE":"fast","env.TTL":"30"}}}"#,
                r#"instance order Some(1) 4 {"nodes":1,"instances":{"order":5},"config":{"order":{"env.MODE":"fast","env.TTL":"30"}}}"#,
                r#"config order.env.SIZE None 5 {"nodes":1,"config":{"order":{"env.MODE":"fast","env.SIZE":"6","env.TTL":"30"}}}"#,
                r#"config order.env.TTL Some(30) 300 {"nodes":1,"config":{"order":{"env.MODE":"fast","env.TTL":"301"}}}"#,
                r#"config order.memory None 64 {"nodes":1,"config":{"order":{"env.MODE":"fast","env.TTL":"30","memory":"65MiB"}}}"#,
            ]
        );
    }
}
