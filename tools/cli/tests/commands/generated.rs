//! Completions and manual pages, which the build of the packages writes with `tools/packages/documents`.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::support::{PROGRAM, Shell};

/// The names of all commands in a command, as its help has them.
fn commands(shell: &Shell, command: &[String], found: &mut Vec<Vec<String>>) {
    let arguments: Vec<&str> = command.iter().map(String::as_str).chain(["--help"]).collect();
    let help = shell.run(&arguments).fine();
    let lines = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    for line in lines.take_while(|line| !line.is_empty()) {
        // Further lines of a description are indented more.
        let Some(name) = line.strip_prefix("  ").filter(|line| !line.starts_with(' ')) else { continue };
        let name = name.split_whitespace().next().unwrap();
        if name != "help" {
            let inner: Vec<String> = command.iter().cloned().chain([name.to_owned()]).collect();
            commands(shell, &inner, found);
            found.push(inner);
        }
    }
}

#[test]
fn packages_have_manual_pages_of_all_commands_and_completions_for_all_shells() {
    let shell = Shell::new();
    let documents = Path::new(env!("CARGO_MANIFEST_DIR")).join("../packages/documents");
    let status = Command::new(documents).arg(PROGRAM).arg(shell.folder()).status().unwrap();
    assert!(status.success());
    let mut all = Vec::new();
    commands(&shell, &[], &mut all);
    assert!(all.len() > 30 && all.contains(&vec!["policies".to_owned(), "put".to_owned()]));
    for command in &all {
        let page = fs::read_to_string(shell.folder().join(format!("man/polylimit-{}.1", command.join("-"))))
            .unwrap();
        let arguments: Vec<&str> = ["man"].into_iter().chain(command.iter().map(String::as_str)).collect();
        assert_eq!(page, shell.run(&arguments).fine());
    }
    // That of polylimit itself, too.
    assert!(fs::read_to_string(shell.folder().join("man/polylimit.1")).unwrap().contains("Exit status:"));
    assert_eq!(fs::read_dir(shell.folder().join("man")).unwrap().count(), all.len() + 1);
    let names = ["_polylimit", "_polylimit.ps1", "polylimit.bash", "polylimit.elv", "polylimit.fish"];
    for name in names {
        let text = fs::read_to_string(shell.folder().join("completions").join(name)).unwrap();
        for command in all.iter().flatten() {
            assert!(text.contains(command.as_str()), "{name}: {command}");
        }
    }
    assert_eq!(fs::read_dir(shell.folder().join("completions")).unwrap().count(), names.len());
}

#[test]
fn manual_pages_that_cannot_be_written_name_the_folder() {
    let shell = Shell::new();
    let file = shell.file("file", "");
    shell.run(&["man", "--into", file.to_str().unwrap()]).fails(64, "file\" cannot be used: ");
    shell.run(&["man", "check", "--into", "pages"]).fails(64, "cannot be used with");
}
