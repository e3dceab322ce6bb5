//! The code of the page is that of the applications.

const PAGE: &str = include_str!("../../../../../../docs/rust.md");
const SOURCES: [&str; 2] = [include_str!("../../src/limited.rs"), include_str!("../../../warp/src/serve.rs")];

#[test]
fn code_of_the_page_is_that_of_the_applications() {
    let blocks: Vec<_> =
        PAGE.split("```rust,ignore\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
    assert_eq!(blocks.len(), 2);
    for block in blocks {
        for line in block.lines().filter(|line| !line.contains("limit.layer(")) {
            let line = line.trim().trim_start_matches("pub(crate) ");
            assert!(
                SOURCES.iter().any(|source| source.contains(line)),
                "no application has the line {line:?}"
            );
        }
    }
}
