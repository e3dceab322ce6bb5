//! The program on a terminal.

use std::fs::File;
use std::io::Read as _;
use std::process::Stdio;

use rustix_openpty::openpty;

use crate::support::Shell;

/// Runs the program on a pseudo terminal, which answers, and returns the exit status and what it shows.
fn on_terminal(
    shell: &Shell,
    arguments: &[&str],
    environment: &[(&str, &str)],
    answer: &str,
) -> (i32, String) {
    use std::io::Write as _;
    let terminal = openpty(None, None).unwrap();
    let mut command = shell.command(arguments);
    let side = || Stdio::from(terminal.user.try_clone().unwrap());
    command
        .stdin(side())
        .stdout(side())
        .stderr(side())
        .env("TERM", "xterm")
        .envs(environment.iter().copied());
    let mut child = command.spawn().unwrap();
    drop(command);
    drop(terminal.user);
    let mut master = File::from(terminal.controller);
    master.write_all(answer.as_bytes()).unwrap();
    let mut shown = Vec::new();
    // The terminal fails once its last process has gone.
    let _ = master.read_to_end(&mut shown);
    let status = child.wait().unwrap().code().unwrap_or(-1);
    (status, String::from_utf8(shown).unwrap())
}

#[test]
fn colours_are_for_terminals_without_no_color() {
    let shell = Shell::with_store("memory:");
    let check = ["check", "5/hour", "k"];
    let (status, shown) = on_terminal(&shell, &check, &[], "");
    assert!(status == 0 && shown.contains("\u{1b}[32mallowed\u{1b}[0m"), "{shown}");
    let (_, shown) = on_terminal(&shell, &["check", "5/hour", "k", "--cost", "6"], &[], "");
    assert!(shown.contains("\u{1b}[31mdenied\u{1b}[0m"), "{shown}");
    for environment in [("NO_COLOR", "1"), ("TERM", "dumb")] {
        for arguments in [&check[..], &["check"], &["--help"]] {
            let (_, shown) = on_terminal(&shell, arguments, &[environment], "");
            assert!(!shown.is_empty() && !shown.contains('\u{1b}'), "{shown:?}");
        }
    }
    assert!(!shell.run(&check).fine().contains('\u{1b}'));
}

#[test]
fn progress_is_for_terminals() {
    let shell = Shell::with_store("memory:");
    let bench = ["bench", "5/hour", "--seconds", "1"];
    let (status, shown) = on_terminal(&shell, &bench, &[], "");
    assert!(status == 0 && shown.contains("checking") && shown.contains("checks in"), "{shown}");
    let (_, shown) = on_terminal(&shell, &[&bench[..], &["--quiet"]].concat(), &[], "");
    assert_eq!(shown, "");
    assert!(!shell.run(&bench).fine().contains("checking"));
}

/// What takes long with many keys or requests shows how far it is, and leaves nothing of that on the screen.
#[test]
fn progress_is_told_by_commands_that_take_long() {
    let shell = Shell::with_redis();
    for number in 0..3 {
        let _ = shell.run(&["check", "3/day", &format!("a{number}")]).fine();
    }
    for (arguments, progress, answer, answered) in [
        (&["list", "3/day"][..], &["examined 0 keys"][..], "", "a2"),
        (&["top", "3/day"], &["examining keys for 0 s"], "", "a2"),
        (&["reset", "3/day", "--prefix", "a0", "--yes"], &["resetting 0 keys"], "", "reset 1 key"),
        (
            &["reset", "3/day", "--prefix", "a"],
            &["counted 0 keys", "resetting", "0/2 keys"],
            "y\n",
            "reset 2 keys",
        ),
        #[cfg(feature = "simulate")]
        (
            &["simulate", "--policy", "1/s", "--traffic", "5 clients 2/s", "--for", "1m", "--no-plot"],
            &["simulating", "0 %"],
            "",
            "600 requests",
        ),
    ] {
        let (status, shown) = on_terminal(&shell, arguments, &[], answer);
        assert_eq!(status, 0, "{arguments:?}: {shown}");
        for part in progress {
            assert!(shown.contains(part), "{arguments:?} does not show {part}: {shown:?}");
        }
        // The bar is cleared before the answer.
        let (_, last) = shown.rsplit_once("\u{1b}[2K").unwrap();
        assert!(last.contains(answered) && !progress.iter().any(|part| last.contains(part)), "{shown:?}");
    }
    let (_, shown) = on_terminal(&shell, &["list", "3/day", "--quiet"], &[], "");
    assert_eq!(shown, "");
    // Lines of JSON on the same terminal are not mixed with a bar.
    let _ = shell.run(&["check", "3/day", "a1"]).fine();
    let (_, shown) = on_terminal(&shell, &["list", "3/day", "--json"], &[], "");
    assert!(shown.starts_with("{\"policy\":") && !shown.contains('\u{1b}'), "{shown:?}");
}

#[test]
fn reset_of_a_prefix_counts_and_asks() {
    let shell = Shell::with_redis();
    for key in ["a1", "a2", "b"] {
        let _ = shell.run(&["check", "3/day", key]).fine();
    }
    let reset = ["reset", "3/day", "--prefix", "a"];
    shell.run(&reset).fails(64, "give --yes");
    let (status, shown) = on_terminal(&shell, &reset, &[], "n\n");
    assert!(status == 1 && shown.contains("reset 2 keys? [y/N]"), "{shown}");
    let (status, shown) = on_terminal(&shell, &reset, &[], "y\n");
    assert!(status == 0 && shown.contains("reset 2 keys"), "{shown}");
    assert_eq!(shell.run(&[&reset[..], &["--yes"]].concat()).fine(), "reset 0 keys\n");
    assert_eq!(shell.json("listed_key", &["list"]).1.len(), 1);
}

#[test]
fn what_others_have_chosen_does_not_control_the_terminal() {
    let shell = Shell::with_redis();
    let document = "polylimit = 1\n[policies.api]\nquotas = \"9/minute\"\n";
    let _ = shell.file("limits.toml", document);
    let hostile = "a\u{1b}[31m\u{7}\u{202e}\nb";
    let escaped = r"a\u{1b}[31m\u{7}\u{202e}\u{a}b";
    let _ = shell.run(&["check", "9/minute", hostile]).fine();
    let put = ["policies", "put", "limits.toml", "--expect", "0", "--by", hostile, "--why", hostile];
    let _ = shell.run(&put).fine();
    let item = "user a\u{1b}[31m\u{202e}";
    let add = ["deny", "add", item, "--by", hostile, "--why", hostile];
    for (arguments, shows) in [
        (&add[..], r"set: deny user a"),
        (&["deny", "list"], escaped),
        (&["policies", "history"], escaped),
        (&["list"], escaped),
        (&["top"], escaped),
        (&["explain", "9/minute", hostile], "allowed"),
        (&["deny", "remove", item], "removed: deny user"),
        (&["check", "none\u{1b}[31m", "k"], r"\u{1b}[31m"),
    ] {
        let run = shell.run(arguments);
        let shown = format!("{}{}", run.output, run.errors);
        assert!(shown.contains(shows), "{arguments:?}: {shown:?}");
        let is_bad = |c: char| c.is_control() && c != '\n' || c == '\u{202e}';
        assert!(!shown.contains(is_bad), "{arguments:?}: {shown:?}");
    }
}
