//! The scoring rules of the Numenta Anomaly Benchmark (Lavin and Ahmad 2015, and the published scorer).
//!
//! A window around each labelled anomaly earns the score of its earliest alarm, which falls from 1 at its beginning to
//! 0 at its end along a sigmoid. A window without an alarm costs a weight. Every alarm outside of windows costs a
//! weight too, less if it comes soon after a window. Sums are normalised so that no alarm at all is 0 and an alarm at
//! the first value of each window is 100.

/// The share of a file that detectors learn from: alarms in it are ignored.
const PROBATION: f64 = 0.15;
/// Longer files have a probation of this share of 5,000 values.
const PROBATION_VALUES: f64 = 5000.0;
/// Beyond this many window widths after a window, an alarm costs its full weight.
const FAR: f64 = 3.0;
/// The slope of the sigmoid.
const SLOPE: f64 = 5.0;

/// How much misses and false alarms cost; a found window earns 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Profile {
    pub(crate) name: &'static str,
    false_alarm: f64,
    miss: f64,
}

impl Profile {
    pub(crate) const STANDARD: Self = Self { name: "standard", false_alarm: 0.11, miss: 1.0 };
    /// The three application profiles of NAB.
    pub(crate) const ALL: [Self; 3] = [
        Self::STANDARD,
        Self { name: "reward few false alarms", false_alarm: 0.22, miss: 1.0 },
        Self { name: "reward few misses", false_alarm: 0.11, miss: 2.0 },
    ];
}

/// A labelled anomaly: its first and last value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Window {
    pub(crate) first: usize,
    pub(crate) last: usize,
}

/// What the alarms of one or more files add up to.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Tally {
    sum: f64,
    /// The costs of missing all windows.
    nothing: f64,
    pub(crate) windows: usize,
    pub(crate) found: usize,
    pub(crate) false_alarms: usize,
}

impl Tally {
    /// Scores the alarms of a file, ascending positions of values, against windows that are sorted and disjoint.
    pub(crate) fn score(profile: Profile, values: usize, windows: &[Window], alarms: &[usize]) -> Self {
        let counted = alarms.iter().copied().filter(|alarm| *alarm >= probation(values) && *alarm < values);
        let mut best: Vec<Option<f64>> = vec![None; windows.len()];
        let (mut sum, mut false_alarms) = (0.0, 0);
        for alarm in counted {
            let after = windows.partition_point(|window| window.first <= alarm);
            match after.checked_sub(1).map(|place| (place, windows[place])) {
                Some((place, window)) if alarm <= window.last => {
                    let earned = earned(window, alarm);
                    best[place] = Some(best[place].map_or(earned, |best: f64| best.max(earned)));
                }
                before => {
                    sum += profile.false_alarm * cost(before.map(|(_, window)| window), alarm);
                    false_alarms += 1;
                }
            }
        }
        sum += best.iter().map(|best| best.unwrap_or(-profile.miss)).sum::<f64>();
        Self {
            sum,
            nothing: -profile.miss * windows.len() as f64,
            windows: windows.len(),
            found: best.iter().flatten().count(),
            false_alarms,
        }
    }

    /// Adds up the files of a corpus.
    pub(crate) fn total(files: impl IntoIterator<Item = Self>) -> Self {
        files.into_iter().fold(Self::default(), |all, file| Self {
            sum: all.sum + file.sum,
            nothing: all.nothing + file.nothing,
            windows: all.windows + file.windows,
            found: all.found + file.found,
            false_alarms: all.false_alarms + file.false_alarms,
        })
    }

    /// 0 for no alarm at all, 100 for perfect ones; none without labelled anomalies.
    pub(crate) fn normalised(&self) -> Option<f64> {
        let perfect = self.windows as f64;
        (self.windows > 0).then(|| 100.0 * (self.sum - self.nothing) / (perfect - self.nothing))
    }

    /// The share of alarms that are in a window, counting one alarm per window.
    pub(crate) fn precision(&self) -> Option<f64> {
        let alarms = self.found + self.false_alarms;
        (alarms > 0).then(|| self.found as f64 / alarms as f64)
    }
}

/// The number of values at the beginning of a file that are not scored.
pub(crate) fn probation(values: usize) -> usize {
    (PROBATION * (values as f64).min(PROBATION_VALUES)).floor() as usize
}

fn earned(window: Window, alarm: usize) -> f64 {
    let width = (window.last - window.first + 1) as f64;
    let place = -((window.last - alarm + 1) as f64) / width;
    sigmoid(place) / sigmoid(-1.0)
}

/// From -1 to 0: an alarm just after a window is nearly right.
fn cost(before: Option<Window>, alarm: usize) -> f64 {
    let Some(window) = before else { return -1.0 };
    let width = (window.last - window.first).max(1) as f64;
    sigmoid((alarm - window.last) as f64 / width)
}

fn sigmoid(place: f64) -> f64 {
    if place > FAR { -1.0 } else { 2.0 / (1.0 + (SLOPE * place).exp()) - 1.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: usize = 1000;
    const WINDOWS: [Window; 2] = [Window { first: 300, last: 399 }, Window { first: 700, last: 799 }];

    fn score(alarms: &[usize]) -> f64 {
        Tally::score(Profile::STANDARD, FILE, &WINDOWS, alarms).normalised().unwrap()
    }

    #[test]
    fn silence_is_zero_and_the_first_value_of_each_window_is_a_hundred() {
        assert_eq!(score(&[]), 0.0);
        assert!((score(&[300, 700]) - 100.0).abs() < 1e-9);
    }

    #[test]
    fn only_the_earliest_alarm_of_a_window_counts() {
        assert_eq!(score(&[310]), score(&[310, 311, 350, 399]));
        assert!(score(&[300]) > score(&[350]) && score(&[350]) > score(&[399]));
    }

    #[test]
    fn alarms_outside_cost_by_their_distance_from_the_window_before() {
        // 0.11 of a window, of which there are two, each worth 2.
        assert!((score(&[200]) + 100.0 * 0.11 / 4.0).abs() < 1e-9);
        assert!(score(&[401]) > score(&[450]) && score(&[450]) > score(&[200]));
        assert_eq!(score(&[699]), score(&[200]));
    }

    #[test]
    fn alarms_in_the_probation_are_ignored() {
        assert_eq!((probation(1000), probation(20_000)), (150, 750));
        assert_eq!(score(&[0, 149]), 0.0);
        assert!(score(&[150]) < 0.0);
    }

    #[test]
    fn profiles_weigh_misses_and_false_alarms() {
        let by_profile = |alarms: &[usize]| {
            Profile::ALL.map(|profile| Tally::score(profile, FILE, &WINDOWS, alarms).normalised().unwrap())
        };
        let [standard, few_false, few_misses] = by_profile(&[200, 300]);
        assert!(few_false < standard);
        // Half of the windows is more than half of the score where misses cost double: (1 + 2 - 0.11) / 6.
        assert!((few_misses - 100.0 * (3.0 - 0.11) / 6.0).abs() < 1e-9);
    }

    #[test]
    fn a_corpus_without_anomalies_has_no_score() {
        let tally = Tally::score(Profile::STANDARD, FILE, &[], &[500]);
        assert_eq!((tally.normalised(), tally.false_alarms), (None, 1));
        let both = Tally::total([tally, Tally::score(Profile::STANDARD, FILE, &WINDOWS, &[300, 700])]);
        assert!((both.normalised().unwrap() - (100.0 - 100.0 * 0.11 / 4.0)).abs() < 1e-9);
        assert_eq!(both.precision(), Some(2.0 / 3.0));
    }
}
