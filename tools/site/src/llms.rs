//! The site for language models: `llms.txt`, an index by the convention of llmstxt.org, and the source of each page next to it.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, Result};

use crate::summary::Summary;
use crate::{read, write};

/// Writes the index and the sources of the pages into the site.
pub(crate) fn write_index(repository: &Path, summary: &Summary, site: &Path) -> Result<()> {
    write(&site.join("llms.txt"), index(repository, summary)?)?;
    for page in &summary.pages {
        write(&site.join(page), read(&repository.join(page))?)?;
    }
    Ok(())
}

/// The title and the first paragraph of the first page, and a link for each other one under the headings of the summary.
fn index(repository: &Path, summary: &Summary) -> Result<String> {
    let start = summary.pages.first().context("the summary names no page")?;
    let start = read(&repository.join(start))?;
    let title = start.lines().find_map(|line| line.strip_prefix("# ")).unwrap_or_default();
    let mut text = format!("# {title}\n\n> {}\n", first_paragraph(&start));
    // The first line is the title of the summary itself.
    for line in summary.text.lines().skip(1) {
        if let Some(heading) = line.strip_prefix("# ") {
            let _ = write!(text, "\n## {heading}\n\n");
        } else if let Some((name, page)) = link_of(line) {
            let about = first_paragraph(&read(&repository.join(page))?);
            let about = about.split_once(". ").map_or(&*about, |(sentence, _)| sentence);
            let about = about.trim_end_matches(['.', ':']);
            let note = if about.is_empty() { String::new() } else { format!(": {about}") };
            let _ = writeln!(text, "- [{name}]({page}){note}");
        }
    }
    Ok(text)
}

/// The name and the page of a line of the summary.
fn link_of(line: &str) -> Option<(&str, &str)> {
    line.trim_start().strip_prefix("- [")?.strip_suffix(')')?.split_once("](")
}

/// The first paragraph of a page, in one line; empty where it begins with a list, a table or code.
fn first_paragraph(page: &str) -> String {
    let mut lines =
        page.lines().skip_while(|line| line.starts_with('#') || line.trim().is_empty()).peekable();
    let is_text = lines
        .peek()
        .is_some_and(|line| line.starts_with(|first: char| first.is_alphanumeric() || first == '`'));
    if !is_text {
        return String::new();
    }
    lines.take_while(|line| !line.trim().is_empty()).map(str::trim).collect::<Vec<_>>().join(" ")
}
