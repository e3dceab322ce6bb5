//! The picture of the algorithms in the documentation is current.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[path = "../examples/draw_algorithms/picture.rs"]
mod picture;
#[path = "../examples/draw_algorithms/traffic.rs"]
mod traffic;

/// `WRITE_DOCS=1 cargo test -p polylimit-simulation --test algorithms` updates the picture.
#[test]
fn picture_of_the_algorithms_is_current() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/algorithms.svg");
    let drawn = picture::algorithms().unwrap().svg();
    if std::env::var_os("WRITE_DOCS").is_some() {
        std::fs::write(path, &drawn).unwrap();
    } else {
        let text = std::fs::read_to_string(path).unwrap();
        assert!(text == drawn, "docs/algorithms.svg differs from what is drawn: run with WRITE_DOCS=1");
    }
}
