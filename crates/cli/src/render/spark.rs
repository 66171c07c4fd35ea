//! Values over time as a sparkline.

/// Characters of a line.
const WIDTH: usize = 32;

const LEVELS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// A sparkline of the mean in each interval, scaled from the minimum to the maximum; blank where there are no points.
pub(crate) fn sparkline(points: &[(u64, f64)], first_us: u64, last_us: u64) -> String {
    let whole = last_us.saturating_sub(first_us).max(1);
    let mut parts = [(0.0, 0_u32); WIDTH];
    for (at_us, value) in points {
        let place = u128::from(at_us.saturating_sub(first_us)) * WIDTH as u128 / u128::from(whole);
        if let Some((sum, count)) = parts.get_mut((place as usize).min(WIDTH - 1)) {
            (*sum, *count) = (*sum + value, *count + 1);
        }
    }
    let means = parts.map(|(sum, count)| (count > 0).then(|| sum / f64::from(count)));
    let known = || means.iter().flatten().copied();
    let (low, high) = (known().fold(f64::INFINITY, f64::min), known().fold(f64::NEG_INFINITY, f64::max));
    let level = |mean: f64| {
        let share = if high > low { (mean - low) / (high - low) } else { 0.0 };
        LEVELS[((share * 7.0).round() as usize).min(7)]
    };
    means.iter().map(|mean| mean.map_or(' ', level)).collect()
}

/// A number, rounded to what can be read at a glance.
pub(crate) fn number(value: f64) -> String {
    if value.fract() == 0.0 && value.abs() < 1e15 {
        return format!("{value}");
    }
    let short = |text: String| text.trim_end_matches('0').to_owned();
    match value.abs() {
        1000.0.. => format!("{value:.0}"),
        1.0.. => short(format!("{value:.2}")).trim_end_matches('.').to_owned(),
        0.001.. => short(format!("{value:.4}")),
        _ => format!("{value:.2e}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_is_low_and_the_greatest_high() {
        let line = sparkline(&[(0, 1.0), (50, 4.5), (100, 8.0)], 0, 100);
        assert_eq!(line.chars().count(), WIDTH);
        assert_eq!(line.replace(' ', ""), "▁▅█");
        assert_eq!(sparkline(&[(5, 3.0)], 5, 5).trim(), "▁");
        assert_eq!(sparkline(&[], 0, 10).trim(), "");
    }

    #[test]
    fn numbers() {
        for (value, text) in [
            (3.0, "3"),
            (1234.56, "1235"),
            (1.239, "1.24"),
            (0.0125, "0.0125"),
            (1e-6, "1.00e-6"),
            (0.5, "0.5"),
            (12.5, "12.5"),
            (1.001, "1"),
            (-0.25, "-0.25"),
        ] {
            assert_eq!(number(value), text);
        }
    }
}
