//! Spans, metrics and runs on disk.
