#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| polylimit_fuzz::store_url::run(bytes));
