//! Replays the corpus of the fuzz targets with the compiler of the project.

#![allow(clippy::expect_used, reason = "a test may fail by a panic")]
#![allow(unreachable_pub, reason = "the targets are public in the crate that fuzzes them")]

use std::path::Path;

#[path = "../fuzz/src/client_address.rs"]
mod client_address;
// It reads documents without a limiter, as `testing` allows.
#[cfg(feature = "testing")]
#[path = "../fuzz/src/document.rs"]
mod document;
#[cfg(target_os = "linux")]
#[path = "../fuzz/src/local_file.rs"]
mod local_file;
#[path = "../fuzz/src/module_by_hand.rs"]
mod module_by_hand;
#[path = "../fuzz/src/module_call.rs"]
mod module_call;
#[path = "../fuzz/src/operations.rs"]
mod operations;
#[path = "../fuzz/src/quota_text.rs"]
mod quota_text;
// It matches requests without a limiter, as `testing` allows.
#[cfg(feature = "testing")]
#[path = "../fuzz/src/request_attributes.rs"]
mod request_attributes;
// It calls scripts without a limiter, as `testing` allows; tests/run tests with that feature.
#[cfg(feature = "testing")]
#[path = "../fuzz/src/script_reply.rs"]
mod script_reply;
#[path = "../fuzz/src/store_url.rs"]
mod store_url;

/// Runs a target on every file of its corpus; a corpus without files is an error.
fn replay(target: &str, run: fn(&[u8])) {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(target);
    let mut replayed = 0;
    for file in corpus.read_dir().expect("the corpus is checked in") {
        let path = file.expect("the corpus can be listed").path();
        let bytes = std::fs::read(&path).expect("the corpus can be read");
        // The test's output is shown when it fails: the last line names the input.
        println!("{}", path.display());
        run(&bytes);
        replayed += 1;
    }
    assert!(replayed > 0, "no corpus in {}", corpus.display());
}

#[test]
fn quota_text_corpus() {
    replay("quota_text", quota_text::run);
}

#[test]
fn client_address_corpus() {
    replay("client_address", client_address::run);
}

#[test]
fn module_by_hand_corpus() {
    replay("module_by_hand", module_by_hand::run);
}

#[test]
fn operations_corpus() {
    replay("operations", operations::run);
}

#[test]
fn module_call_corpus() {
    replay("module_call", module_call::run);
}

#[test]
fn store_url_corpus() {
    replay("store_url", store_url::run);
}

#[cfg(target_os = "linux")]
#[test]
fn local_file_corpus() {
    replay("local_file", local_file::run);
}

#[cfg(feature = "testing")]
#[test]
fn script_reply_corpus() {
    replay("script_reply", script_reply::run);
}

#[cfg(feature = "testing")]
#[test]
fn document_corpus() {
    replay("document", document::run);
}

#[cfg(feature = "testing")]
#[test]
fn request_attributes_corpus() {
    replay("request_attributes", request_attributes::run);
}
