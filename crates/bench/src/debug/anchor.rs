//! Recorded results of other algorithms on the same instances.

/// A recorded result.
#[derive(Debug, Clone, PartialEq)]
pub struct Anchor {
    /// The algorithm.
    pub algorithm: String,
    /// The family.
    pub family: String,
    /// Number of deltas.
    pub n: usize,
    /// Size of the cause.
    pub k: usize,
    /// Number of slots.
    pub slots: usize,
    /// `unit` or `lognormal`.
    pub durations: String,
    /// Number of instances.
    pub instances: usize,
    /// Finished trials, mean.
    pub trials: f64,
    /// Started trials, mean.
    pub started: f64,
    /// Makespan, mean.
    pub makespan: f64,
}

/// Parses recorded results: comma-separated, with a header; other lines are ignored.
///
/// ```
/// let text = "head\nddmin,mono,15,1,1,unit,20,6.3,8,6.3,0,6.3,6\n";
/// assert_eq!(faultscope_bench::debug::read_anchors(text)[0].trials, 6.3);
/// ```
pub fn read_anchors(text: &str) -> Vec<Anchor> {
    text.lines().skip(1).filter_map(read).collect()
}

fn read(line: &str) -> Option<Anchor> {
    let fields: Vec<&str> = line.split(',').collect();
    let text = |i: usize| fields.get(i).map(|field| (*field).to_owned());
    let number = |i: usize| fields.get(i)?.parse::<f64>().ok();
    let count = |i: usize| fields.get(i)?.parse::<usize>().ok();
    Some(Anchor {
        algorithm: text(0)?,
        family: text(1)?,
        n: count(2)?,
        k: count(3)?,
        slots: count(4)?,
        durations: text(5)?,
        instances: count(6)?,
        trials: number(7)?,
        started: number(9)?,
        makespan: number(11)?,
    })
}
