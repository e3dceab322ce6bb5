#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| polylimit_server_fuzz::forward::run(bytes));
