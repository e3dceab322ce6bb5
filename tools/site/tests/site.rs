//! The site of the repository is complete and its links lead somewhere; mistakes in pages are found.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::fs;
use std::path::Path;

use tempfile::TempDir;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// Builds a small repository of these files, and returns the error.
fn problems_of(files: &[(&str, &str)]) -> String {
    let folder = TempDir::new().unwrap();
    let repository = folder.path().join("repository");
    let book = fs::read_to_string(Path::new(ROOT).join("docs/book.toml")).unwrap();
    for (path, text) in files.iter().chain(&[("docs/book.toml", book.as_str())]) {
        let path = repository.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    match polylimit_site::build(&repository, &folder.path().join("site")) {
        Ok(_) => String::new(),
        Err(error) => format!("{error:#}"),
    }
}

#[test]
fn site_of_the_repository_has_every_page_and_no_broken_link() {
    let folder = TempDir::new().unwrap();
    let site = folder.path().join("site");
    let pages = polylimit_site::build(Path::new(ROOT), &site).unwrap_or_else(|error| panic!("{error:#}"));
    assert!(pages > 80, "only {pages} pages");
    for page in ["index.html", "docs/start.html", "bindings/python/README.html", "docs/algorithms.svg"] {
        assert!(site.join(page).is_file(), "there is no {page}");
    }
    let start = fs::read_to_string(site.join("docs/start.html")).unwrap();
    for tab in ["Python", "Node", "Go", "Rust", "C", "C++", "Kotlin", "Java", "Ruby", "Swift", "Command line"]
    {
        assert!(start.contains(&format!(">{tab}</label>")), "docs/start.md has no tab for {tab}");
    }
    // Hosts leave a page for its package's own address; in the site it is a link to a neighbouring page.
    let node = fs::read_to_string(site.join("bindings/node/README.html")).unwrap();
    assert!(!node.contains("https://polylimit.dev/docs"), "a link leaves the site");
}

#[test]
fn language_models_find_an_index_and_the_source_of_each_page() {
    let folder = TempDir::new().unwrap();
    let (repository, site) = (folder.path().join("repository"), folder.path().join("site"));
    let files = [
        ("docs/SUMMARY.md", "# Summary\n\n[p](../README.md)\n\n# Guide\n\n- [A](a.md)\n  - [B](b.md)\n"),
        ("README.md", "# p\n\nIt limits.\nExactly.\n\nMore.\n"),
        ("docs/a.md", "# A\n\nWhat a does. And more.\n"),
        ("docs/b.md", "# B\n\n| a |\n|---|\n"),
        ("docs/book.toml", &*fs::read_to_string(Path::new(ROOT).join("docs/book.toml")).unwrap()),
    ];
    for (path, text) in files {
        fs::create_dir_all(repository.join(path).parent().unwrap()).unwrap();
        fs::write(repository.join(path), text).unwrap();
    }
    polylimit_site::build(&repository, &site).unwrap_or_else(|error| panic!("{error:#}"));
    let index = fs::read_to_string(site.join("llms.txt")).unwrap();
    assert_eq!(
        index,
        "# p\n\n> It limits. Exactly.\n\n## Guide\n\n- [A](docs/a.md): What a does\n- [B](docs/b.md)\n"
    );
    assert_eq!(fs::read_to_string(site.join("docs/a.md")).unwrap(), files[2].1);
}

#[test]
fn a_page_without_a_line_in_the_summary_and_a_line_without_a_page_are_found() {
    let found = problems_of(&[
        ("docs/SUMMARY.md", "# Summary\n\n- [A](a.md)\n- [C](c.md)\n"),
        ("docs/a.md", "# A\n"),
        ("docs/b.md", "# B\n"),
    ]);
    assert_eq!(
        found,
        "docs/SUMMARY.md has no line for docs/b.md\ndocs/SUMMARY.md names docs/c.md, which does not exist"
    );
}

#[test]
fn a_link_to_no_file_to_no_page_and_to_no_anchor_are_found() {
    let summary = ("docs/SUMMARY.md", "# Summary\n\n- [A](a.md)\n- [B](b.md)\n");
    let b = ("docs/b.md", "# B\n\n## Keys and costs\n");
    let found = problems_of(&[
        summary,
        b,
        ("README.md", "# Not in the summary\n"),
        ("docs/a.md", "[1](none.md) [2](../README.md)\n[3](../docs) [4](../tools) [5](../../outside.toml)\n"),
        ("tools/run", ""),
    ]);
    assert_eq!(
        found,
        "docs/a.md:1: none.md does not exist\n\
         docs/a.md:1: ../README.md is no page of docs/SUMMARY.md\n\
         docs/a.md:2: ../tools is a folder without a page in docs/SUMMARY.md\n\
         docs/a.md:2: ../../outside.toml does not exist"
    );
    let found =
        problems_of(&[summary, b, ("docs/a.md", "[1](b.md#keys-and-costs) [2](b.md#none) [3](#none)\n")]);
    let lines: Vec<_> = found.lines().filter(|line| line.starts_with("docs/a.html")).collect();
    assert_eq!(
        lines,
        [
            "docs/a.html of the site: #none names an anchor that does not exist",
            "docs/a.html of the site: b.html#none names an anchor that does not exist"
        ]
    );
}

#[test]
fn tabs_that_do_not_end_are_found_with_their_page() {
    let found = problems_of(&[
        ("docs/SUMMARY.md", "# Summary\n\n- [A](a.md)\n"),
        ("docs/a.md", "<!-- tabs -->\n**Rust**\n\n**Go**\n"),
    ]);
    assert_eq!(found, "docs/a.md: the last tabs have no <!-- end of tabs -->");
}
