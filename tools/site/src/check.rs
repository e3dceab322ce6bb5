//! The links of the rendered site: files and anchors must exist. Other sites are not asked.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::Result;
use html5ever::tendril::StrTendril;
use html5ever::tokenizer::{BufferQueue, TagToken, Token, TokenSink, TokenSinkResult, Tokenizer};

use crate::links;
use crate::read;

/// What a page of the site says about links.
#[derive(Default)]
struct Page {
    anchors: BTreeSet<String>,
    links: BTreeSet<String>,
}

#[derive(Default)]
struct Tags(RefCell<Page>);

impl TokenSink for Tags {
    type Handle = ();

    fn process_token(&self, token: Token, _line: u64) -> TokenSinkResult<()> {
        if let TagToken(tag) = token {
            let mut page = self.0.borrow_mut();
            for attribute in tag.attrs {
                match &*attribute.name.local {
                    "id" => page.anchors.insert(attribute.value.to_string()),
                    "href" | "src" => page.links.insert(attribute.value.to_string()),
                    _ => false,
                };
            }
        }
        TokenSinkResult::Continue
    }
}

/// Every link of the site that leads nowhere, with its page.
pub(crate) fn broken_links(site: &Path) -> Result<Vec<String>> {
    let mut files = BTreeSet::new();
    find(site, "", &mut files)?;
    let mut pages = BTreeMap::new();
    for file in files.iter().filter(|file| Path::new(file).extension().is_some_and(|end| end == "html")) {
        pages.insert(file.as_str(), page(&read(&site.join(file))?));
    }
    let mut problems = Vec::new();
    for (path, page) in &pages {
        for link in &page.links {
            if let Some(problem) = broken(path, link, &files, &pages) {
                problems.push(format!("{path} of the site: {link} {problem}"));
            }
        }
    }
    Ok(problems)
}

fn broken(
    page: &str,
    link: &str,
    files: &BTreeSet<String>,
    pages: &BTreeMap<&str, Page>,
) -> Option<&'static str> {
    if links::has_scheme(link) {
        return None;
    }
    let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
    let path = if path.is_empty() { page.to_owned() } else { links::normal(links::folder(page), path) };
    if !files.contains(&path) {
        return Some("does not exist");
    }
    let has_anchor = anchor.is_empty() || pages.get(path.as_str())?.anchors.contains(anchor);
    (!has_anchor).then_some("names an anchor that does not exist")
}

fn page(text: &str) -> Page {
    let input = BufferQueue::default();
    input.push_back(StrTendril::from(text));
    let tokenizer = Tokenizer::new(Tags::default(), html5ever::tokenizer::TokenizerOpts::default());
    let _ = tokenizer.feed(&input);
    tokenizer.end();
    tokenizer.sink.0.into_inner()
}

fn find(site: &Path, folder: &str, files: &mut BTreeSet<String>) -> Result<()> {
    for entry in fs::read_dir(site.join(folder))? {
        let entry = entry?;
        let path = links::normal(folder, &entry.file_name().to_string_lossy());
        if entry.file_type()?.is_dir() {
            find(site, &path, files)?;
        } else {
            files.insert(path);
        }
    }
    Ok(())
}
