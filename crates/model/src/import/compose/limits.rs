//! Replicas and limits of the running system: they make the failing circumstance.

use crate::import::ImportedCircumstance;
use crate::import::node::Node;
use crate::units::ByteSize;

/// Notes the replicas and limits of a service; the error is a message about one value.
pub(super) fn note_limits<'n>(
    name: &str,
    service: &'n Node,
    failing: &mut ImportedCircumstance,
) -> Result<(), (&'n Node, String)> {
    let deploy = service.get("deploy");
    let limits = deploy.and_then(|d| d.get("resources")).and_then(|r| r.get("limits"));
    let either = |short: &str, long: &str| service.get(short).or_else(|| limits.and_then(|l| l.get(long)));

    if let Some(node) = service.get("scale").or_else(|| deploy.and_then(|d| d.get("replicas"))) {
        let count: u32 = parse_number(node, "a number of instances")?;
        if count > 1000 {
            return Err((node, format!("{count} instances are more than 1000")));
        }
        if count > 1 {
            failing.instances.insert(name.to_owned(), count);
        }
    }
    let mut put = |key: &str, value: String| {
        failing.config.entry(name.to_owned()).or_default().insert(key.to_owned(), value);
    };
    if let Some(node) = either("mem_limit", "memory") {
        let text = node.as_text().unwrap_or_default();
        let size: ByteSize =
            text.parse().map_err(|_| (node, format!("`{text}` is not a size like `64m`")))?;
        if size.0 > 0 && size.is_tiny() {
            return Err((node, format!("no process runs in {size}")));
        }
        if size.0 > 0 {
            put("memory", exact_size(size.0));
        }
    }
    if let Some(node) = either("cpus", "cpus") {
        let cores: f64 = parse_number(node, "a number of cores")?;
        if cores.is_finite() && cores > 0.0 {
            put("cpu", cores.to_string());
        }
    }
    if let Some(node) = either("pids_limit", "pids") {
        // Minus one and zero mean no limit.
        let pids: i32 = parse_number(node, "a number of processes")?;
        if pids > 0 {
            put("pids", pids.to_string());
        }
    }
    Ok(())
}

fn parse_number<'n, T: std::str::FromStr>(node: &'n Node, what: &str) -> Result<T, (&'n Node, String)> {
    let text = node.as_text().unwrap_or_default();
    text.trim().parse().map_err(|_| (node, format!("`{text}` is not {what}")))
}

/// The size in the largest unit that divides it, so that nothing is rounded.
pub(in crate::import) fn exact_size(bytes: u64) -> String {
    for (shift, unit) in [(30, "GiB"), (20, "MiB"), (10, "KiB")] {
        if bytes.is_multiple_of(1 << shift) {
            return format!("{}{unit}", bytes >> shift);
        }
    }
    format!("{bytes}B")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_from_both_places() {
        for (yaml, expected) in [
            ("{scale: 2, mem_limit: 64m, cpus: 0.5, pids_limit: 100}", "2 cpu=0.5 memory=64MiB pids=100"),
            (
                "deploy: {replicas: 3, resources: {limits: {memory: 1.5G, cpus: '2', pids: 9}}}",
                "3 cpu=2 memory=1536MiB pids=9",
            ),
            ("{scale: 1, mem_limit: 0, pids_limit: -1, cpus: 0}", "1"),
            ("{mem_limit: 100000}", "1 memory=100000B"),
            ("{mem_limit: 80}", "no process runs in 80B"),
            ("{deploy: {replicas: 1}, mem_limit: 1g}", "1 memory=1GiB"),
            ("{scale: many}", "`many` is not a number of instances"),
            ("{mem_limit: much}", "`much` is not a size like `64m`"),
        ] {
            let mut failing = ImportedCircumstance::default();
            let got = match note_limits("s", &Node::parse("f", yaml).unwrap(), &mut failing) {
                Ok(()) => {
                    let config = failing.config.get("s").cloned().unwrap_or_default();
                    let config = config.into_iter().map(|(key, value)| format!(" {key}={value}"));
                    format!("{}{}", failing.instances.get("s").unwrap_or(&1), config.collect::<String>())
                }
                Err((_, message)) => message,
            };
            assert_eq!(got, expected, "{yaml}");
        }
    }
}
