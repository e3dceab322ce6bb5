#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| polylimit_fuzz::module_by_hand::run(bytes));
