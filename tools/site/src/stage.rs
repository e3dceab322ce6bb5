//! Copies the pages and the files that they link to next to the site, as mdBook reads them.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::path::Path;

use anyhow::Result;
use regex::{Captures, Regex};

use crate::links::{self, Target};
use crate::summary::Summary;
use crate::{markdown, read, tabs, write};

/// The look of the site, and what its tabs do.
const ASSETS: [(&str, &str); 2] =
    [("site.css", include_str!("../assets/site.css")), ("tabs.js", include_str!("../assets/tabs.js"))];

pub(crate) fn stage(
    repository: &Path,
    summary: &Summary,
    into: &Path,
    problems: &mut Vec<String>,
) -> Result<()> {
    if into.exists() {
        fs::remove_dir_all(into)?;
    }
    write(&into.join("book.toml"), read(&repository.join("docs/book.toml"))?)?;
    for (name, text) in ASSETS {
        write(&into.join(name), text)?;
    }
    let pages = into.join("src");
    write(&pages.join("SUMMARY.md"), &summary.text)?;
    let mut files = BTreeSet::new();
    for page in summary.pages.iter().filter(|page| repository.join(page).is_file()) {
        let text = with_links(repository, summary, page, &mut files, problems)?;
        match tabs::render(&text) {
            Ok(text) => write(&pages.join(page), text)?,
            Err(problem) => problems.push(format!("{page}: {problem}")),
        }
    }
    for file in files {
        write(&pages.join(&file), fs::read(repository.join(&file))?)?;
    }
    stage_playground(repository, &pages.join("docs/playground"))
}

/// What the page of the playground loads: its own files, the charts, and the package for browsers if it was built.
fn stage_playground(repository: &Path, into: &Path) -> Result<()> {
    let parts = [
        ("docs/playground", "."),
        ("tools/simulation/vendor/uplot", "uplot"),
        ("bindings/wasm/dist", "package"),
        ("bindings/wasm/dist/module", "package/module"),
    ];
    for (folder, name) in parts {
        let Ok(entries) = fs::read_dir(repository.join(folder)) else { continue };
        for entry in entries {
            let path = entry?.path();
            let loaded =
                path.extension().is_some_and(|end| ["css", "js", "wasm"].map(OsStr::new).contains(&end));
            if let (true, Some(file)) = (loaded, path.file_name()) {
                write(&into.join(name).join(file), fs::read(&path)?)?;
            }
        }
    }
    Ok(())
}

/// The page with links that lead somewhere in the site. The files to which it links are added to `files`.
fn with_links(
    repository: &Path,
    summary: &Summary,
    page: &str,
    files: &mut BTreeSet<String>,
    problems: &mut Vec<String>,
) -> Result<String> {
    let pattern = Regex::new(r"\]\(([^)\s]+)\)")?;
    let text = read(&repository.join(page))?;
    let mut written = String::new();
    for (at, line, is_code) in markdown::lines(&text) {
        let line = if is_code {
            line.into()
        } else {
            pattern.replace_all(line, |found: &Captures<'_>| {
                let link = &found[1];
                let Some((path, target)) = links::target(page, link) else { return found[0].to_owned() };
                match place(repository, summary, &path, files) {
                    Ok(path) => format!("]({})", rewritten(page, &path, &target)),
                    Err(problem) => {
                        problems.push(format!("{page}:{at}: {link} {problem}"));
                        found[0].to_owned()
                    }
                }
            })
        };
        written.push_str(&line);
        written.push('\n');
    }
    Ok(written)
}

fn rewritten(page: &str, path: &str, target: &Target<'_>) -> String {
    let link = if target.path.is_empty() { String::new() } else { links::relative(page, path) };
    target.fragment.map_or_else(|| link.clone(), |fragment| format!("{link}#{fragment}"))
}

/// The page or file of the site for a path of the repository.
fn place(
    repository: &Path,
    summary: &Summary,
    path: &str,
    files: &mut BTreeSet<String>,
) -> Result<String, &'static str> {
    if path.is_empty() || summary.pages.iter().any(|page| page == path) {
        return Ok(if path.is_empty() { "README.md".to_owned() } else { path.to_owned() });
    }
    // The home page serves a page without its ending, too.
    let page = format!("{path}.md");
    if summary.pages.contains(&page) {
        return Ok(page);
    }
    let there = repository.join(path);
    if there.is_dir() {
        return summary
            .page_of_folder(path)
            .map(str::to_owned)
            .ok_or("is a folder without a page in docs/SUMMARY.md");
    }
    if path.starts_with("..") || !there.is_file() {
        return Err("does not exist");
    }
    if there.extension().is_some_and(|extension| extension == "md") {
        return Err("is no page of docs/SUMMARY.md");
    }
    files.insert(path.to_owned());
    Ok(path.to_owned())
}
