#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| faultscope_fuzz::read("jaeger_v3", bytes));
