//! Replays the corpus of the fuzz targets with the compiler of the project.

#![allow(clippy::expect_used, clippy::panic, reason = "a test may fail by a panic")]
#![allow(unreachable_pub, reason = "the targets are public in the crate that fuzzes them")]

use std::path::Path;

#[path = "../fuzz/src/descriptors.rs"]
mod descriptors;
#[path = "../fuzz/src/forward.rs"]
mod forward;
#[path = "../fuzz/src/http_body.rs"]
mod http_body;
#[path = "../fuzz/src/resp.rs"]
mod resp;

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
fn http_body_corpus() {
    replay("http_body", http_body::run);
}

#[test]
fn forward_corpus() {
    replay("forward", forward::run);
}

#[test]
fn resp_corpus() {
    replay("resp", resp::run);
}

#[test]
fn descriptors_corpus() {
    replay("descriptors", descriptors::run);
}
