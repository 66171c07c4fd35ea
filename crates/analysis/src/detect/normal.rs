//! Quantiles of the normal distribution.

/// Where a standard normal variable has this cumulative probability (Abramowitz and Stegun 26.2.23, error below
/// 4.5e-4, which is less than a rank among 2,000 values).
pub(super) fn quantile_of_normal(probability: f64) -> f64 {
    let outer = probability.min(1.0 - probability).max(f64::MIN_POSITIVE);
    let t = (-2.0 * outer.ln()).sqrt();
    let upper = t
        - (2.515_517 + t * (0.802_853 + t * 0.010_328))
            / (1.0 + t * (1.432_788 + t * (0.189_269 + t * 0.001_308)));
    if probability < 0.5 { -upper } else { upper }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_quantiles() {
        for (probability, quantile) in
            [(0.5, 0.0), (0.975, 1.959_964), (0.025, -1.959_964), (0.999, 3.090_232)]
        {
            assert!((quantile_of_normal(probability) - quantile).abs() < 5e-4, "{probability}");
        }
        assert!(quantile_of_normal(0.0).is_finite() && quantile_of_normal(1.0).is_finite());
    }
}
