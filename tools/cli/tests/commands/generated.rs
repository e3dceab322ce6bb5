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

#[test]
fn generated_files_are_as_checked_in() {
    let shell = Shell::new();
    let mut files: Vec<(PathBuf, String)> = Vec::new();
    for (name, file) in SHELLS {
        files.push((folder().join("completions").join(file), shell.run(&["completions", name]).fine()));
    }
    let help = shell.run(&["--help"]).fine();
    let commands =
        help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    let names: Vec<&str> = commands.filter_map(|line| line.split_whitespace().next()).collect();
    assert!(names.contains(&"check") && names.contains(&"man"), "{help}");
    files.push((folder().join("man/polylimit.1"), shell.run(&["man"]).fine()));
    for name in names {
        files.push((folder().join(format!("man/polylimit-{name}.1")), shell.run(&["man", name]).fine()));
    }
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
