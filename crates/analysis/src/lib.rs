//! Detection, prediction and causal models: data in, verdicts out.
