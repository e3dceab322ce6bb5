//! The files and folders that a page mentions, and its relative links.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::pages::{is_of_project, root};

/// A mention with one of these endings is a file of the repository.
const ENDINGS: &[&str] = &[
    "rs", "lua", "py", "pyi", "ts", "js", "cjs", "mjs", "go", "kt", "java", "rb", "c", "h", "hpp", "cpp",
    "toml", "json", "md", "svg", "ru",
];
/// A mention in quotes that begins with one of these is a folder or a file of the repository.
const FOLDERS: &[&str] = &["benches", "bindings", "core", "deploy", "docs", "examples", "tests", "tools"];
/// Files that builds and users make; a page may name them although the repository does not have them.
const MADE: &[&str] = &["target/", "node_modules/", "path/to/", "bindings/wasm/dist", "playground/uplot/"];
/// Every file and folder of the project, and what remains of its path when folders at the front are left out: a page may
/// shorten paths so.
pub(crate) fn known() -> BTreeSet<String> {
    let mut known = BTreeSet::new();
    collect(root(), "", &mut known);
    known
}

fn collect(folder: &Path, path: &str, known: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let name = entry.file_name().into_string().unwrap();
        let path = if path.is_empty() { name } else { format!("{path}/{name}") };
        let ends = path.match_indices('/').map(|(at, _)| path[at + 1..].to_owned());
        known.extend(ends.chain([path.clone()]));
        if entry.file_type().unwrap().is_dir() && is_of_project(&entry.file_name()) {
            collect(&entry.path(), &path, known);
        }
    }
}

/// Every path that a page mentions and the repository does not have, with its line.
pub(crate) fn missing(page: &str, known: &BTreeSet<String>) -> Vec<(usize, String)> {
    let text = fs::read_to_string(root().join(page)).unwrap();
    let mut missing = Vec::new();
    let mut is_code = false;
    for (at, line) in text.lines().enumerate() {
        if line.starts_with("```") {
            is_code = !is_code;
        } else if !is_code {
            let links =
                links(line).filter(|link| !folder_of(page).is_some_and(|folder| folder.join(link).exists()));
            let paths = mentions(line).filter(|path| !exists(page, path, known));
            missing.extend(links.chain(paths).map(|path| (at + 1, path.to_owned())));
        }
    }
    missing
}

/// The targets of relative links, without what follows `#`.
fn links(line: &str) -> impl Iterator<Item = &str> {
    let targets = line.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let relative = targets.filter(|target| !target.contains(':') && !target.starts_with(['#', '<']));
    relative.filter_map(|target| target.split('#').next())
}

/// What reads as a path of the repository, in quotes or not.
fn mentions(line: &str) -> impl Iterator<Item = &str> {
    let in_quotes = line.split('`').skip(1).step_by(2);
    let folders = in_quotes.filter(|quoted| quoted.chars().all(is_of_path));
    let folders = folders.filter(|quoted| FOLDERS.contains(&quoted.split('/').next().unwrap_or_default()));
    let words = line.split(|letter| !is_of_path(letter) && letter != ':' && letter != '<');
    let words = words.map(|word| word.trim_end_matches(['.', ':']));
    let files = words.filter(|word| {
        let ending = word.rsplit_once('.').map(|(_, ending)| ending);
        word.chars().all(is_of_path) && ending.is_some_and(|ending| ENDINGS.contains(&ending))
    });
    let paths = folders.chain(files).filter(|path| path.contains('/') && !path.starts_with('/'));
    paths.filter(|path| !MADE.iter().any(|made| path.contains(made)))
}

fn is_of_path(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || "_-./@".contains(letter)
}

fn folder_of(page: &str) -> Option<PathBuf> {
    root().join(page).parent().map(Path::to_owned)
}

/// Whether the path leads somewhere, from the page's folder or from any folder of the project.
fn exists(page: &str, path: &str, known: &BTreeSet<String>) -> bool {
    known.contains(path.trim_end_matches('/'))
        || folder_of(page).is_some_and(|folder| folder.join(path).exists())
}

#[test]
fn a_missing_file_a_missing_folder_and_a_broken_link_are_found() {
    let line = "`core/none/`, core/src/none.rs, [this](docs/none.md#part), `tests/run`, src/lib.rs, https://a.b/c.md.";
    let known = known();
    let found: Vec<_> = mentions(line).filter(|path| !exists("README.md", path, &known)).collect();
    assert_eq!(found, ["core/none/", "core/src/none.rs", "docs/none.md"]);
    assert_eq!(links(line).collect::<Vec<_>>(), ["docs/none.md"]);
}
