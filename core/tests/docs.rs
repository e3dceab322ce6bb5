//! Generated and repeated parts of the documentation are current.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[path = "../examples/draw_algorithms/drawing.rs"]
mod drawing;
#[path = "../examples/draw_algorithms/traffic.rs"]
mod traffic;

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use polylimit::{Degradation, RedisOptions};

const START: &str = "<!-- options: written by core/tests/docs.rs from RedisOptions::ALL -->\n";
const END: &str = "<!-- end of options -->";

/// `WRITE_DOCS=1 cargo test -p polylimit --test docs` updates the table.
#[test]
fn redis_options_are_documented() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/redis.md");
    let text = std::fs::read_to_string(path).unwrap();
    let mut table = "| option | default | allowed | |\n|---|---|---|---|\n".to_owned();
    for option in RedisOptions::ALL {
        let default = option.default.map_or_else(String::new, |default| format!("`{default}`"));
        // A bar would end the cell.
        let allowed = option.allowed.replace('|', "\\|");
        writeln!(table, "| `{}` | {default} | {allowed} | {} |", option.name, option.about).unwrap();
    }
    let (before, rest) = text.split_once(START).unwrap();
    let (_, after) = rest.split_once(END).unwrap();
    let written = format!("{before}{START}{table}{END}{after}");
    if std::env::var_os("WRITE_DOCS").is_some() {
        std::fs::write(path, &written).unwrap();
    } else {
        assert!(text == written, "docs/redis.md differs from RedisOptions::ALL: run with WRITE_DOCS=1");
    }
}

/// Every quick start describes the first use of Redis in the same words.
#[test]
fn quick_starts_say_the_same_about_redis() {
    let read = |path: &str| {
        std::fs::read_to_string(format!("{}/../{path}", env!("CARGO_MANIFEST_DIR")))
            .unwrap()
            .replace("fallbackShare", "fallback_share")
    };
    let readme = read("README.md");
    let (_, text) = readme.split_once("\nWith Redis, call `ready` ").unwrap();
    let (text, _) = text.split_once("\n\n").unwrap();
    assert!(text.contains("N times the limit"));
    for page in [
        "docs/redis.md",
        "bindings/python/README.md",
        "bindings/node/README.md",
        "bindings/c/README.md",
        "bindings/go/README.md",
        "bindings/uniffi/kotlin/README.md",
        "bindings/uniffi/ruby/README.md",
    ] {
        assert!(read(page).contains(text), "{page} has not the text of README.md about Redis");
    }
}

/// Operators look up the reason of a degraded decision.
#[test]
fn degradation_reasons_are_documented() {
    let text = include_str!("../../docs/redis.md");
    let (_, rest) = text.split_once("<!-- reasons: ").unwrap();
    let (table, _) = rest.split_once("<!-- end of reasons -->").unwrap();
    let rows = table.lines().filter_map(|line| line.strip_prefix("| `")?.split(" | ").next());
    let names = rows.flat_map(|names| names.split(", ")).map(|name| name.trim_matches('`'));
    let mut documented: Vec<_> = names.filter(|name| *name != "degraded").collect();
    let mut known = Degradation::ALL.map(Degradation::name);
    documented.sort_unstable();
    known.sort_unstable();
    assert_eq!(documented, known);
}

/// The README's examples in other languages are those of their own READMEs, which their tests run.
#[test]
fn examples_of_other_languages_are_those_of_their_pages() {
    let read =
        |path: &str| std::fs::read_to_string(format!("{}/../{path}", env!("CARGO_MANIFEST_DIR"))).unwrap();
    let readme = read("README.md");
    for (language, fence) in [
        ("python", "```python\n"),
        ("node", "```js\n"),
        ("c", "```c\n"),
        ("go", "```go\n"),
        ("uniffi/kotlin", "```kotlin\n"),
        ("uniffi/ruby", "```ruby\n"),
    ] {
        let theirs = read(&format!("bindings/{language}/README.md"));
        let blocks: Vec<_> =
            readme.split(fence).skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
        assert!(!blocks.is_empty(), "no example of {language}");
        for block in blocks {
            assert!(
                theirs.contains(block),
                "bindings/{language}/README.md does not have the example:\n{block}"
            );
        }
    }
}

#[test]
fn picture_of_the_algorithms_is_current() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/algorithms.svg");
    let drawn = drawing::draw().unwrap();
    if std::env::var_os("WRITE_DOCS").is_some() {
        std::fs::write(path, &drawn).unwrap();
    } else {
        let text = std::fs::read_to_string(path).unwrap();
        assert!(
            text == drawn,
            "docs/algorithms.svg differs from what core/examples/draw_algorithms draws: run with WRITE_DOCS=1"
        );
    }
}

/// docs/internals/deadlines.md names every constant that is a duration with its file, and every file that waits for a time.
#[test]
fn every_timer_is_listed() {
    const WAITS: [&str; 7] = [
        "sleep(",
        "sleep_until(",
        "timeout(",
        "timeout_at(",
        "park_timeout(",
        "recv_timeout(",
        "try_lock_for(",
    ];
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    let page = fs::read_to_string(root.join("docs/internals/deadlines.md")).unwrap();
    let mut sources = Vec::new();
    collect_sources(&root.join("core/src"), &mut sources);
    for binding in ["c", "node", "python", "uniffi"] {
        collect_sources(&root.join("bindings").join(binding).join("src"), &mut sources);
    }
    let mut missing = Vec::new();
    let mut listed = 0;
    for source in sources {
        let path = source.strip_prefix(root).unwrap().to_str().unwrap();
        let quoted = format!("`{}`", path.strip_prefix("core/src/").unwrap_or(path));
        let text = fs::read_to_string(&source).unwrap();
        let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
        for line in code.lines().map(|line| line.split("//").next().unwrap_or_default()) {
            let constant =
                line.split_once(": Duration = ").and_then(|(before, _)| before.split("const ").nth(1));
            // A public constant is a bound of what users choose.
            let constant = constant.filter(|_| !line.trim_start().starts_with("pub const"));
            let row = |name: &str| {
                page.lines().any(|row| row.contains(&quoted) && row.contains(&format!("`{name}`")))
            };
            if let Some(name) = constant
                && !row(name)
            {
                missing.push(format!("{path}: {name}"));
            }
            let waits = !line.contains("fn ") && WAITS.iter().any(|wait| line.contains(wait));
            if waits && !page.contains(&quoted) {
                missing.push(format!("{path}: {}", line.trim()));
            }
            listed += usize::from(constant.is_some() || waits);
        }
    }
    assert!(missing.is_empty(), "docs/internals/deadlines.md does not list:\n{}", missing.join("\n"));
    assert!(listed > 50, "only {listed} timers were found");
}

fn collect_sources(folder: &Path, sources: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let (path, name) = (entry.path(), entry.file_name());
        if path.is_dir() {
            collect_sources(&path, sources);
        } else if path.extension().is_some_and(|extension| extension == "rs") && name != "tests.rs" {
            sources.push(path);
        }
    }
}

/// Paused time reaches the core through one function, so nothing else may read a clock.
#[test]
fn clocks_are_read_in_one_place() {
    let mut sources = Vec::new();
    collect_sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut sources);
    let readers = ["Instant::now(", "SystemTime::now(", ".elapsed()"];
    let allowed = ["runtime/monotonic.rs", "runtime/clock/system.rs"];
    let mut found = Vec::new();
    for path in sources {
        let name = path.to_string_lossy().into_owned();
        if name.contains("tests") || allowed.iter().any(|allowed| name.ends_with(allowed)) {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        let code = text.split("\n#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        found.extend(
            readers.iter().filter(|reader| code.contains(**reader)).map(|reader| format!("{name}: {reader}")),
        );
    }
    assert!(found.is_empty(), "use runtime::monotonic: {found:#?}");
}
