//! docs/SUMMARY.md: which pages the site has, and in which order.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::Result;
use regex::Regex;

use crate::links;
use crate::read;

const PAGE: &str = "docs/SUMMARY.md";

pub(crate) struct Summary {
    /// The summary with paths from the root of the repository.
    pub(crate) text: String,
    /// The pages, by their paths from the root, in the order of the summary.
    pub(crate) pages: Vec<String>,
}

impl Summary {
    pub(crate) fn read(repository: &Path) -> Result<Self> {
        let text = read(&repository.join(PAGE))?;
        let mut pages = Vec::new();
        let text = Regex::new(r"\]\(([^)]+)\)")?.replace_all(&text, |link: &regex::Captures<'_>| {
            let page = links::normal(links::folder(PAGE), &link[1]);
            let link = format!("]({page})");
            pages.push(page);
            link
        });
        Ok(Self { text: text.into_owned(), pages })
    }

    /// Pages in docs that the summary does not name, and pages that it names and that do not exist.
    pub(crate) fn missing_pages(&self, repository: &Path) -> Result<Vec<String>> {
        let mut there = BTreeSet::new();
        find(repository, "docs", &mut there)?;
        there.remove(PAGE);
        let named: BTreeSet<&String> = self.pages.iter().collect();
        let mut problems: Vec<_> = there
            .iter()
            .filter(|page| !named.contains(page))
            .map(|page| format!("{PAGE} has no line for {page}"))
            .collect();
        let absent = named.into_iter().filter(|page| !repository.join(page).is_file());
        problems.extend(absent.map(|page| format!("{PAGE} names {page}, which does not exist")));
        Ok(problems)
    }

    /// The page that describes a folder: its README, or else the first page of the summary in it.
    pub(crate) fn page_of_folder(&self, folder: &str) -> Option<&str> {
        let readme = format!("{folder}/README.md");
        let within = |page: &&String| page.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'));
        let readme = self.pages.iter().find(|page| **page == readme);
        readme.or_else(|| self.pages.iter().find(within)).map(String::as_str)
    }
}

fn find(repository: &Path, folder: &str, pages: &mut BTreeSet<String>) -> Result<()> {
    for entry in fs::read_dir(repository.join(folder))? {
        let entry = entry?;
        let path = format!("{folder}/{}", entry.file_name().to_string_lossy());
        if entry.file_type()?.is_dir() {
            find(repository, &path, pages)?;
        } else if Path::new(&path).extension().is_some_and(|extension| extension == "md") {
            pages.insert(path);
        }
    }
    Ok(())
}
