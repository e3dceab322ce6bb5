//! A copy of the tree with every mutant in it, and its tests.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use crate::list::{Mutant, Points};
use crate::weave::{Constants, SWITCH, weave};

/// A program of tests.
pub(crate) struct Program {
    pub(crate) path: PathBuf,
    /// Its package's.
    pub(crate) folder: PathBuf,
}

pub(crate) struct Build {
    pub(crate) programs: Vec<Program>,
    /// Each mutant that does not compile.
    pub(crate) unviable: BTreeSet<u32>,
    /// Each mutant of a form that cannot share a build.
    pub(crate) apart: BTreeSet<u32>,
}

/// Copies the files under version control, and those that are not yet, and compiles the tests that `selection` names.
pub(crate) fn build(root: &Path, copy: &Path, mutants: &[Mutant], selection: &[OsString]) -> Result<Build> {
    let mut files: BTreeMap<&Path, Points> = BTreeMap::new();
    for (number, mutant) in (1..).zip(mutants) {
        let points = files.entry(&mutant.file).or_default();
        points.entry((mutant.genre, mutant.span.start)).or_default().push((number, mutant.clone()));
    }
    let crate_roots: BTreeSet<PathBuf> = files.keys().filter_map(|file| crate_root(root, file)).collect();
    let none = Points::new();
    let unneeded = std::env::var("UNNEEDED").unwrap_or_default();
    let (mut unviable, mut rejected, mut constant) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    loop {
        let without = &unviable | &rejected;
        let mut woven = BTreeSet::new();
        let tracked = tracked(root)?;
        // Any file of the changed crates may name their constants.
        let mut of_crates: BTreeMap<PathBuf, (Constants, Vec<&Path>)> = BTreeMap::new();
        for path in tracked.iter().filter(|path| path.extension().is_some_and(|it| it == "rs")) {
            if let Some(of_crate) = crate_root(root, path).filter(|it| crate_roots.contains(it))
                && let Ok(source) = std::fs::read_to_string(root.join(path))
            {
                let (constants, paths) = of_crates.entry(of_crate).or_default();
                constants.add(path, &source, files.get(&**path).unwrap_or(&none), &without)?;
                paths.push(path);
            }
        }
        for path in &tracked {
            let Ok(source) = std::fs::read(root.join(path)) else { continue };
            let mut text = source;
            let of_crate = of_crates.values().find(|(_, paths)| paths.contains(&&**path));
            if let Some((constants, _)) = of_crate {
                let points = files.get(&**path).unwrap_or(&none);
                let changed =
                    weave(path, std::str::from_utf8(&text)?, points, &without, &constant, constants)
                        .with_context(|| path.display().to_string())?;
                woven.extend(changed.numbers);
                unviable.extend(changed.unviable);
                text = changed.text.into_bytes();
            }
            if path.ends_with("Cargo.toml") {
                text = without_dependencies(&String::from_utf8(text)?, &unneeded).into_bytes();
            }
            if crate_roots.contains(path) {
                text.extend(SWITCH.bytes());
            }
            write_if_other(&copy.join(path), &text)?;
        }
        let outcome = compile(copy, selection)?;
        if outcome.is_built {
            let apart = (1..)
                .take(mutants.len())
                .filter(|it| !woven.contains(it) && !unviable.contains(it))
                .collect();
            return Ok(Build { programs: outcome.programs, unviable, apart });
        }
        let before = (unviable.len(), rejected.len(), constant.len());
        unviable.extend(outcome.mutants);
        constant.extend(outcome.constant);
        // A mutant that does not compile may be the cause of errors around it.
        if before.0 == unviable.len() {
            unviable.extend(outcome.around);
            rejected.extend(outcome.places);
        }
        if before == (unviable.len(), rejected.len(), constant.len()) {
            bail!("the copy does not compile, and no error names a mutant:\n{}", outcome.messages.join("\n"));
        }
        eprintln!("{} mutants do not compile, {} need builds of their own", unviable.len(), rejected.len());
    }
}

/// A manifest without the development dependencies that `unneeded` names: each would be compiled, although no test that runs here needs
/// it. The crates below the public one have that for the examples of their documentation only.
fn without_dependencies(manifest: &str, unneeded: &str) -> String {
    let mut section = "";
    let mut text = String::new();
    for line in manifest.split_inclusive('\n') {
        if line.starts_with('[') {
            section = line.trim_end();
        }
        let name = line.split(' ').next().unwrap_or_default();
        if section != "[dev-dependencies]" || !unneeded.split_whitespace().any(|it| it == name) {
            text.push_str(line);
        }
    }
    text
}

fn crate_root(root: &Path, file: &Path) -> Option<PathBuf> {
    file.ancestors().map(|it| it.join("lib.rs")).find(|it| root.join(it).is_file())
}

fn tracked(root: &Path) -> Result<Vec<PathBuf>> {
    let listed = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(root)
        .output()
        .context("git ls-files")?;
    let text = String::from_utf8(listed.stdout)?;
    Ok(text.split('\0').filter(|it| !it.is_empty()).map(PathBuf::from).collect())
}

/// Unchanged files keep their times, so that only changed crates are compiled again.
fn write_if_other(path: &Path, text: &[u8]) -> Result<()> {
    if std::fs::read(path).is_ok_and(|it| it == text) {
        return Ok(());
    }
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    std::fs::write(path, text).with_context(|| path.display().to_string())
}

#[derive(Default)]
struct Outcome {
    is_built: bool,
    programs: Vec<Program>,
    /// Those in a line that has an error.
    mutants: BTreeSet<u32>,
    /// Those in lines that have one together.
    around: BTreeSet<u32>,
    places: BTreeSet<u32>,
    constant: BTreeSet<String>,
    messages: Vec<String>,
}

#[derive(Deserialize)]
struct Message {
    reason: String,
    #[serde(rename = "message")]
    diagnostic: Option<Diagnostic>,
    executable: Option<PathBuf>,
    manifest_path: Option<PathBuf>,
    profile: Option<Profile>,
}

#[derive(Deserialize)]
struct Profile {
    test: bool,
}

#[derive(Deserialize)]
struct Diagnostic {
    level: String,
    message: String,
    rendered: Option<String>,
    spans: Vec<DiagnosticSpan>,
    code: Option<Code>,
}

#[derive(Deserialize)]
struct Code {
    code: String,
}

#[derive(Deserialize)]
struct DiagnosticSpan {
    file_name: PathBuf,
    line_start: usize,
    line_end: usize,
    is_primary: bool,
}

fn compile(copy: &Path, selection: &[OsString]) -> Result<Outcome> {
    let target = copy.parent().context("the copy is in a folder")?.join("build");
    let compiled = Command::new("cargo")
        .args(["test", "--no-run", "--message-format=json"])
        .args(selection)
        .current_dir(copy)
        .env("CARGO_TARGET_DIR", target)
        .env("CARGO_PROFILE_DEV_DEBUG", "0")
        .env("RUSTFLAGS", "--cap-lints=allow")
        .stderr(Stdio::piped())
        .output()
        .context("cargo test --no-run")?;
    let mut outcome = Outcome { is_built: compiled.status.success(), ..Outcome::default() };
    for line in String::from_utf8_lossy(&compiled.stdout).lines() {
        let Ok(message) = serde_json::from_str::<Message>(line) else { continue };
        if message.reason == "compiler-artifact" && message.profile.is_some_and(|it| it.test) {
            let folder = message.manifest_path.as_deref().and_then(Path::parent).unwrap_or(copy).to_owned();
            outcome.programs.extend(message.executable.map(|path| Program { path, folder }));
        } else if let Some(error) = message.diagnostic.filter(|it| it.level == "error") {
            outcome.attribute(copy, &error);
        }
    }
    if !outcome.is_built && outcome.messages.is_empty() {
        outcome.messages.push(String::from_utf8_lossy(&compiled.stderr).into_owned());
    }
    Ok(outcome)
}

impl Outcome {
    /// Finds the mutants of an error by the marks in the lines that it names.
    fn attribute(&mut self, copy: &Path, error: &Diagnostic) {
        self.messages.push(error.rendered.clone().unwrap_or_else(|| error.message.clone()));
        if error.code.as_ref().is_some_and(|it| it.code == "E0015") {
            let called = error.message.split('`').nth(1).unwrap_or_default();
            self.constant.extend(called.rsplit("::").next().map(str::to_owned));
            return;
        }
        let is_pattern = error.code.as_ref().is_some_and(|it| it.code == "E0004");
        for primary in [true, false] {
            let found = self.mutants.len() + self.around.len() + self.places.len();
            for span in error.spans.iter().filter(|it| it.is_primary == primary) {
                let Ok(text) = std::fs::read_to_string(copy.join(&span.file_name)) else { continue };
                let lines = text.lines().skip(span.line_start - 1).take(span.line_end - span.line_start + 1);
                let is_its_own = span.is_primary && span.line_start == span.line_end;
                let mutants = if is_its_own { &mut self.mutants } else { &mut self.around };
                for line in lines {
                    mutants.extend(marked(line, "/*mutant "));
                    self.places.extend(marked(line, "/*place "));
                    if is_pattern {
                        mutants.extend(marked(line, "/*arms "));
                    }
                }
            }
            if self.mutants.len() + self.around.len() + self.places.len() > found {
                break;
            }
        }
    }
}

fn marked(line: &str, mark: &str) -> Vec<u32> {
    let Some((_, rest)) = line.split_once(mark) else { return Vec::new() };
    let numbers = rest.split("*/").next().unwrap_or_default();
    numbers.split(' ').filter_map(|it| it.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unneeded_development_dependencies_are_left_out() {
        let manifest =
            "[dependencies]\na = 1\n\n[dev-dependencies]\n# For b.\na = 1\nab = 2\n\n[lints]\na = 3\n";
        let left = "[dependencies]\na = 1\n\n[dev-dependencies]\n# For b.\nab = 2\n\n[lints]\na = 3\n";
        assert_eq!(without_dependencies(manifest, "a c"), left);
        assert_eq!(without_dependencies(manifest, ""), manifest);
    }

    #[test]
    fn marks_name_mutants() {
        assert_eq!(marked("1 => a - b, /*mutant 17*/", "/*mutant "), [17]);
        assert_eq!(marked("_ => a + b, /*place 17 18*/", "/*place "), [17, 18]);
        assert!(marked("a + b", "/*mutant ").is_empty());
    }
}
