#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| polylimit_fuzz::request_attributes::run(bytes));
