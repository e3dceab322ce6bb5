//! Checks that a command of the documentation exists.

use std::fs;
use std::path::Path;

use crate::pages::root;

/// Programs that are not part of the project, and the command line, whose tests run its pages.
const PROGRAMS: &[&str] = &[
    "cc",
    "cp",
    "curl",
    "export",
    "gem",
    "go",
    "java",
    "ldconfig",
    "node",
    "npm",
    "npx",
    "pip",
    "polylimit",
    "promtool",
    "python",
    "sed",
    "sha256sum",
    "tar",
];

/// Returns what is missing. Paths are relative to the root or to the folder of the page.
pub(crate) fn check(folder: &Path, line: &str) -> Result<(), String> {
    let line = line.split(" #").next().unwrap_or(line);
    line.split("&&").try_for_each(|command| {
        let mut words = command.split_whitespace().skip_while(|word| is_assignment(word));
        let program = words.next().ok_or("no command")?;
        let words: Vec<&str> = words.collect();
        match program {
            "make" => makes(&words),
            "cargo" => builds(&words),
            _ if program.contains('/') => {
                // A script next to the file may build it.
                let is_file = |path: &Path| path.is_file() || path.with_file_name("build").is_file();
                let found = is_file(&root().join(program)) || is_file(&folder.join(program));
                found.then_some(()).ok_or_else(|| format!("there is no {program}"))
            }
            _ => PROGRAMS.contains(&program).then_some(()).ok_or_else(|| format!("{program} is not known")),
        }
    })
}

fn is_assignment(word: &str) -> bool {
    word.split_once('=').is_some_and(|(name, _)| name.chars().all(|c| c.is_ascii_uppercase() || c == '_'))
}

/// The Makefile has every target and reads every variable.
fn makes(words: &[&str]) -> Result<(), String> {
    let (folder, words) = match words {
        ["-C", folder, rest @ ..] => (*folder, rest),
        _ => (".", words),
    };
    let path = root().join(folder).join("Makefile");
    let makefile = fs::read_to_string(path).map_err(|error| format!("{folder}/Makefile: {error}"))?;
    for word in words {
        let exists = match word.split_once('=') {
            Some((name, _)) => makefile.contains(&format!("$({name})")),
            None => makefile.lines().any(|line| line.starts_with(&format!("{word}:"))),
        };
        if !exists {
            return Err(format!("{folder}/Makefile has no {word}"));
        }
    }
    Ok(())
}

/// The package exists, with its test or program.
fn builds(words: &[&str]) -> Result<(), String> {
    let after = |option: &str| words.iter().position(|word| *word == option).and_then(|at| words.get(at + 1));
    let Some(package) = after("-p") else { return Ok(()) };
    let members = fs::read_to_string(root().join("Cargo.toml")).map_err(|error| error.to_string())?;
    let folder = members
        .split('"')
        .map(|member| root().join(member))
        .find(|member| {
            fs::read_to_string(member.join("Cargo.toml"))
                .is_ok_and(|text| text.contains(&format!("name = \"{package}\"\n")))
        })
        .ok_or_else(|| format!("there is no package {package}"))?;
    for (option, place) in [("--test", "tests"), ("--bin", "src/bin")] {
        if let Some(name) = after(option)
            && !folder.join(place).join(format!("{name}.rs")).is_file()
            && !folder.join(place).join(name).join("main.rs").is_file()
        {
            return Err(format!("{package} has no {name} in {place}"));
        }
    }
    Ok(())
}
