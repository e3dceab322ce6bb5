//! The pages of the documentation and the blocks in them.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

/// Indented blocks of these pages are drawings and not commands.
const DRAWINGS: &[&str] = &["ARCHITECTURE.md"];

pub(crate) struct Page {
    /// Relative to the root.
    pub(crate) path: String,
    /// The lines at which fenced blocks start, and their languages.
    pub(crate) fenced: Vec<(usize, String)>,
    /// The commands of `sh` blocks and indented blocks, with their lines. Lines that end in a backslash are joined.
    pub(crate) commands: Vec<(usize, String)>,
    /// The `toml` blocks, with the lines at which they start.
    pub(crate) documents: Vec<(usize, String)>,
}

pub(crate) fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

/// All pages of the project, without built or installed folders.
pub(crate) fn pages() -> Vec<Page> {
    let mut files = Vec::new();
    find(root(), &mut files);
    files.sort();
    files.iter().map(|file| page(file)).collect()
}

/// Whether a folder is neither hidden, nor built, nor installed.
pub(crate) fn is_of_project(folder: &OsStr) -> bool {
    !folder.as_encoded_bytes().starts_with(b".") && folder != "target" && folder != "node_modules"
}

fn find(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        if entry.file_type().unwrap().is_dir() {
            if is_of_project(&entry.file_name()) && name != "results" {
                find(&entry.path(), files);
            }
        } else if Path::new(&name).extension().is_some_and(|extension| extension == "md") {
            files.push(entry.path());
        }
    }
}

fn page(file: &Path) -> Page {
    let path = file.strip_prefix(root()).unwrap().to_str().unwrap().to_owned();
    let mut page = Page { fenced: Vec::new(), commands: Vec::new(), documents: Vec::new(), path };
    let mut fence: Option<String> = None;
    let mut before = "";
    let mut indented = false;
    let text = fs::read_to_string(file).unwrap();
    for (at, line) in text.lines().enumerate() {
        if let Some(language) = line.trim_start().strip_prefix("```") {
            assert!(line.starts_with("```"), "{}:{}: an indented fence", page.path, at + 1);
            if fence.take().is_none() {
                page.fenced.push((at + 1, language.to_owned()));
                if language == "toml" {
                    page.documents.push((at + 1, String::new()));
                }
                fence = Some(language.to_owned());
            }
        } else if fence.as_deref() == Some("toml") {
            let (_, document) = page.documents.last_mut().unwrap();
            document.push_str(line);
            document.push('\n');
        } else {
            // An indented block follows an empty line.
            let deep = fence.is_none() && line.starts_with("    ") && !DRAWINGS.contains(&page.path.as_str());
            indented = deep && (indented || before.trim().is_empty());
            if indented || fence.as_deref() == Some("sh") {
                command(&mut page.commands, at + 1, line.trim());
            }
        }
        before = line;
    }
    assert!(fence.is_none(), "{}: a block has no end", page.path);
    page
}

fn command(commands: &mut Vec<(usize, String)>, at: usize, line: &str) {
    if let Some((_, last)) = commands.last_mut()
        && last.ends_with('\\')
    {
        last.truncate(last.len() - 1);
        last.push_str(line);
    } else if !line.is_empty() && !line.starts_with('#') {
        commands.push((at, line.to_owned()));
    }
}
