#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| faultscope_fuzz::read_message(bytes));
