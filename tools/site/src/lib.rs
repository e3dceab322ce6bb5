//! The pages of the repository as one site: docs/SUMMARY.md names them, mdBook renders them, and every link among them is checked.
//!
//! A page stands in the site where it stands in the repository, so a relative link leads to the same page in both.

mod check;
mod links;
mod llms;
mod markdown;
mod stage;
mod summary;
mod tabs;

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use mdbook_driver::MDBook;

use summary::Summary;

/// Renders the pages of the repository into the folder, and returns how many pages there are. Every problem of the pages is in
/// the error. The staged sources are next to the folder, in `FOLDER-source`.
///
/// # Errors
///
/// A page that the summary does not name or that is missing, tabs that are not closed, a link that leads nowhere, and files that
/// cannot be read or written.
pub fn build(repository: &Path, into: &Path) -> Result<usize> {
    let into = std::path::absolute(into)?;
    let summary = Summary::read(repository)?;
    let mut problems = summary.missing_pages(repository)?;

    let mut source = into.clone().into_os_string();
    source.push("-source");
    let source = Path::new(&source);
    stage::stage(repository, &summary, source, &mut problems)?;
    report(&problems)?;

    let mut book = MDBook::load(source).context("the pages cannot be loaded")?;
    book.config.build.build_dir.clone_from(&into);
    book.build().context("the pages cannot be rendered")?;
    report(&check::broken_links(&into)?)?;
    llms::write_index(repository, &summary, &into)?;
    Ok(summary.pages.len())
}

fn report(problems: &[String]) -> Result<()> {
    if !problems.is_empty() {
        bail!("{}", problems.join("\n"));
    }
    Ok(())
}

/// Reads a text file; the error names it.
fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("{} cannot be read", path.display()))
}

/// Writes a file with its folders.
fn write(path: &Path, text: impl AsRef<[u8]>) -> Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::write(path, text).with_context(|| format!("{} cannot be written", path.display()))
}
