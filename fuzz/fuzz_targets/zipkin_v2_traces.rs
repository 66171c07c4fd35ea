#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| faultscope_fuzz::read("zipkin_v2_traces", bytes));
