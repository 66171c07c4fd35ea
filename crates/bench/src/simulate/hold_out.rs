//! Instances that were not used to choose constants of a search: other shapes of causes, other sizes, other seeds.
//!
//! The deltas of an application are ordered by service, so a service is a run of neighbouring deltas here. Causes
//! are correlated as real ones are: within a service, across neighbours, or a whole service at once.

use super::{Family, Instance};
use crate::random::{Random, mix};

/// The held-out families.
pub const HOLD_OUT_FAMILIES: [Family; 5] = [
    Family::Neighbours,
    Family::Service,
    Family::WholeService,
    Family::Several,
    Family::UnresolvedNeighbours,
];

/// Their numbers of deltas.
pub const HOLD_OUT_SIZES: [usize; 6] = [28, 60, 110, 210, 410, 800];

/// Separates these seeds from those of [`super::generate`].
const SALT: u64 = 0x401d_0000_0000;

/// Draws instances: every family in every size, with `count` seeds.
pub fn hold_out(seed: u64, count: usize) -> Vec<Instance> {
    let mut instances = Vec::new();
    for (place, family) in (0u64..).zip(HOLD_OUT_FAMILIES) {
        for n in HOLD_OUT_SIZES {
            for number in 0..count {
                let drawn = mix(mix(seed ^ SALT) ^ mix(place << 32 | (n as u64) << 16 | number as u64));
                let mut random = Random::new(drawn);
                instances.push(draw(&mut random, format!("{family}-{n}-{number}"), family, n));
            }
        }
    }
    instances
}

fn draw(random: &mut Random, id: String, family: Family, n: usize) -> Instance {
    let services = services(random, n);
    let mut groups = Vec::new();
    let causes = match family {
        Family::Service => vec![of_one_service(random, &services)],
        Family::WholeService => vec![services[random.below(services.len())].clone()],
        Family::Several => several(random, n),
        Family::UnresolvedNeighbours => {
            let home = random.below(services.len());
            let beside = [home.checked_sub(1), Some(home + 1), Some(home + 3)];
            groups = beside.into_iter().flatten().filter_map(|place| services.get(place).cloned()).collect();
            let count = 1 + random.below(2);
            vec![random.choose(count, services[home].len()).iter().map(|&at| services[home][at]).collect()]
        }
        _ => vec![neighbours(random, n)],
    };
    Instance { groups, ..Instance::new(id, family, n, causes, random.next()) }
}

/// Splits deltas into services of two to nine.
fn services(random: &mut Random, n: usize) -> Vec<Vec<usize>> {
    let mut services = Vec::new();
    let mut from = 0;
    while from < n {
        let mut to = (from + 2 + random.below(8)).min(n);
        if n - to < 2 {
            to = n;
        }
        services.push((from..to).collect());
        from = to;
    }
    services
}

fn neighbours(random: &mut Random, n: usize) -> Vec<usize> {
    let count = 2 + random.below(4);
    let first = random.below(n - count + 1);
    (first..first + count).collect()
}

fn of_one_service(random: &mut Random, services: &[Vec<usize>]) -> Vec<usize> {
    let service = &services[random.below(services.len())];
    let count = 2 + random.below(3);
    random.choose(count, service.len()).iter().map(|&at| service[at]).collect()
}

/// Two to four disjoint causes: one delta, two anywhere, or neighbours.
fn several(random: &mut Random, n: usize) -> Vec<Vec<usize>> {
    let wanted = 2 + random.below(3);
    let mut causes: Vec<Vec<usize>> = Vec::new();
    while causes.len() < wanted {
        let cause = match random.below(3) {
            0 => vec![random.below(n)],
            1 => random.choose(2, n),
            _ => neighbours(random, n),
        };
        if !causes.iter().flatten().any(|delta| cause.contains(delta)) {
            causes.push(cause);
        }
    }
    causes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulate::Oracle;

    #[test]
    fn causes_fail_are_minimal_and_lie_within_their_deltas() {
        for instance in hold_out(1, 4) {
            let oracle = Oracle::new(&instance);
            assert!(instance.causes.iter().flatten().all(|&delta| delta < instance.n), "{}", instance.id);
            assert!(oracle.fails(&(0..instance.n).collect()), "{}", instance.id);
            for cause in &instance.causes {
                assert!(oracle.is_one_minimal(&cause.iter().copied().collect()), "{}", instance.id);
            }
        }
    }

    #[test]
    fn other_seeds_and_other_families_draw_other_instances() {
        let (one, other) = (hold_out(1, 2), hold_out(2, 2));
        assert!(one.iter().zip(&other).all(|(a, b)| a.seed != b.seed));
        assert_eq!(one.len(), HOLD_OUT_FAMILIES.len() * HOLD_OUT_SIZES.len() * 2);
    }
}
