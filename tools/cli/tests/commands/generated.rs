//! What is made from the arguments and checked in. To write it: `POLYLIMIT_WRITE_GENERATED=1 cargo test -p polylimit-cli generated`.

use std::fs;
use std::path::PathBuf;

use crate::support::Shell;

const SHELLS: [(&str, &str); 5] = [
    ("bash", "polylimit.bash"),
    ("elvish", "polylimit.elv"),
    ("fish", "polylimit.fish"),
    ("powershell", "_polylimit.ps1"),
    ("zsh", "_polylimit"),
];

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("generated")
}

/// The pages of a command and of all commands in it.
fn manual_pages(shell: &Shell, command: &[&str], pages: &mut Vec<(String, String)>) {
    let name = [&["polylimit"], command].concat().join("-");
    pages.push((format!("{name}.1"), shell.run(&[&["man"], command].concat()).fine()));
    let help = shell.run(&[command, &["--help"]].concat()).fine();
    let lines = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    for line in lines.take_while(|line| !line.is_empty()) {
        // Further lines of a description are indented more.
        let Some(name) = line.strip_prefix("  ").filter(|line| !line.starts_with(' ')) else { continue };
        let name = name.split_whitespace().next().unwrap();
        if name != "help" {
            manual_pages(shell, &[command, &[name]].concat(), pages);
        }
    }
}

#[test]
fn generated_files_are_as_checked_in() {
    let shell = Shell::new();
    let mut files: Vec<(PathBuf, String)> = Vec::new();
    for (name, file) in SHELLS {
        files.push((folder().join("completions").join(file), shell.run(&["completions", name]).fine()));
    }
    let mut pages = Vec::new();
    manual_pages(&shell, &[], &mut pages);
    assert!(pages.len() > 30 && pages.iter().any(|(name, _)| name == "polylimit-policies-put.1"));
    files.extend(pages.into_iter().map(|(name, text)| (folder().join("man").join(name), text)));
    let writes = std::env::var_os("POLYLIMIT_WRITE_GENERATED").is_some();
    if writes {
        let _ = fs::remove_dir_all(folder());
    }
    for (path, text) in &files {
        if writes {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let there = fs::read_to_string(path).unwrap_or_default();
        assert!(
            there == *text,
            "{} is not what the program writes: see this file's first line",
            path.display()
        );
    }
    let there = ["completions", "man"].map(|name| fs::read_dir(folder().join(name)).unwrap().count());
    assert_eq!(there.iter().sum::<usize>(), files.len(), "a file is there that the program does not write");
}
