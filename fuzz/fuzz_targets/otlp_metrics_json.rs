#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| faultscope_fuzz::read("otlp_metrics_json", bytes));
