#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| polylimit_fuzz::script_reply::run(bytes));
