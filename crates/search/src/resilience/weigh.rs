//! Who is suspicious: weights of candidates, and how a set is cut along them.

use std::collections::BTreeMap;

use faultscope_model::DeltaSet;
use faultscope_model::perturbation::Kind;

use super::Targets;
use crate::random::mix;
use crate::tuning::SuspicionTuning;

/// Candidates that a defect concerns together: all of one kind at one actor.
pub(super) type Class = (usize, Kind);

pub(super) fn class_of(targets: &Targets, place: usize) -> Class {
    let candidate = &targets.candidates[place];
    (candidate.actor, candidate.perturbation.kind)
}

/// Whom to aim at first: those of the blamed that failed by themselves, and nobody when several ends failed,
/// which is what one defect before them looks like.
pub(super) fn aims(targets: &Targets, blamed: &[usize]) -> Vec<usize> {
    let ends = targets.ends();
    let only_ends = blamed.iter().all(|&actor| ends[actor].len() == 1 && ends[actor].contains(&actor));
    let one_before = (0..ends.len()).any(|actor| blamed.iter().all(|end| ends[actor].contains(end)));
    if blamed.len() > 1 && only_ends && one_before { Vec::new() } else { roots(targets, blamed) }
}

/// Those of the blamed that no other blamed actor leads to.
fn roots(targets: &Targets, blamed: &[usize]) -> Vec<usize> {
    let follows = |to: usize| {
        let ways = targets.upstream(to);
        blamed.iter().any(|&from| from != to && ways[from].is_some())
    };
    let mut roots: Vec<usize> = blamed.iter().copied().filter(|&actor| !follows(actor)).collect();
    roots.dedup();
    roots
}

/// The weights of the classes that a set touches, given whose assertions failed.
pub(super) fn weigh(
    targets: &Targets,
    set: &DeltaSet,
    blamed: &[usize],
    tuning: &SuspicionTuning,
) -> BTreeMap<Class, f64> {
    let mut weights: BTreeMap<Class, f64> = set.iter().map(|place| (class_of(targets, place), 1.0)).collect();
    if blamed.is_empty() {
        return weights;
    }
    let ends = targets.ends();
    let is_end = |actor: usize| ends[actor].len() == 1 && ends[actor].contains(&actor);
    // Where only ends are asserted, what fails is what the defect leads to.
    let spared = |actor: usize| {
        let spared = ends[actor].iter().filter(|end| !blamed.contains(end)).count();
        tuning.spared.powi(spared.try_into().unwrap_or(i32::MAX))
    };
    let only_ends = blamed.iter().all(|&actor| is_end(actor));
    let leads_to_all = |actor: usize| blamed.iter().all(|end| ends[actor].contains(end));
    if only_ends && blamed.len() > 1 && (0..ends.len()).any(leads_to_all) {
        for (&(actor, _), weight) in &mut weights {
            *weight = if leads_to_all(actor) { spared(actor) } else { tuning.elsewhere * spared(actor) };
        }
        return weights;
    }
    let roots = roots(targets, blamed);
    let ways: Vec<Vec<Option<u32>>> = roots.iter().map(|&root| targets.upstream(root)).collect();
    // How far an actor is from all that failed; none when it does not lead to all of them.
    let far = |actor: usize| ways.iter().map(|way| way[actor]).sum::<Option<u32>>();
    let raw = |actor: usize| {
        let likely = if only_ends { spared(actor) } else { 1.0 };
        far(actor).map(|far| tuning.farther.powi(far as i32) * likely)
    };
    let total: f64 = weights.keys().filter(|c| !roots.contains(&c.0)).filter_map(|c| raw(c.0)).sum();
    let own = weights.keys().filter(|class| roots.contains(&class.0)).count().max(1) as f64;
    let others = weights.len() as f64;
    for (&(actor, _), weight) in &mut weights {
        *weight = if roots.contains(&actor) {
            tuning.blamed / own
        } else {
            let upstream = raw(actor).map_or(0.0, |raw| tuning.upstream * raw / total);
            upstream + (1.0 - tuning.blamed - tuning.upstream) / others
        };
    }
    weights
}

/// Cuts a set into parts of about the same suspicion; along classes where that is near enough. Classes that
/// are equally suspicious are in an order drawn from the seed, so that no place of a defect is unlucky in
/// every search.
pub(super) fn split(
    targets: &Targets,
    set: &DeltaSet,
    weights: &BTreeMap<Class, f64>,
    parts: usize,
    seed: u64,
) -> Vec<DeltaSet> {
    let mut classes: BTreeMap<Class, Vec<usize>> = BTreeMap::new();
    for place in set.iter() {
        classes.entry(class_of(targets, place)).or_default().push(place);
    }
    let weight = |class: &Class| weights.get(class).copied().unwrap_or(1e-6).max(1e-9);
    let mut order: Vec<(&Class, &Vec<usize>)> = classes.iter().collect();
    let drawn = |class: &Class| mix(seed ^ mix(class.0 as u64));
    order.sort_by_key(|(class, _)| (drawn(class), **class));
    order.sort_by(|a, b| weight(b.0).total_cmp(&weight(a.0)));
    let mut items: Vec<(usize, f64, bool)> = Vec::new();
    for (class, members) in order {
        let each = weight(class) / members.len() as f64;
        // The last message is the likeliest, so it leads.
        for (index, &place) in members.iter().rev().enumerate() {
            items.push((place, each, index == 0));
        }
    }
    let total: f64 = items.iter().map(|item| item.1).sum();
    let parts = parts.min(items.len()).max(1);
    let near = total / (4 * parts) as f64;
    let mut before = vec![0.0; items.len() + 1];
    for (index, item) in items.iter().enumerate() {
        before[index + 1] = before[index] + item.1;
    }
    let mut cuts = vec![0];
    for part in 1..parts {
        let wanted = total * part as f64 / parts as f64;
        let distance = |index: &usize| (before[*index] - wanted).abs();
        let range = cuts[part - 1] + 1..=items.len() - (parts - part);
        let exact = range.clone().min_by(|a, b| distance(a).total_cmp(&distance(b)));
        let bound = range.filter(|&index| items.get(index).is_some_and(|item| item.2));
        let bound = bound.min_by(|a, b| distance(a).total_cmp(&distance(b)));
        let cut = bound.filter(|index| distance(index) <= near).or(exact);
        cuts.push(cut.unwrap_or(cuts[part - 1] + 1));
    }
    cuts.push(items.len());
    cuts.windows(2).map(|cut| items[cut[0]..cut[1]].iter().map(|item| item.0).collect()).collect()
}
