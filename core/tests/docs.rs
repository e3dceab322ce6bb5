//! Generated and repeated parts of the documentation are current.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use polylimit::clock::ManualClock;
use polylimit::decision::Degradation;
use polylimit::redis::RedisOptions;
use polylimit::{Limiter, Policy, Request};

const START: &str = "<!-- options: written by core/tests/docs.rs from RedisOptions::ALL -->\n";
const END: &str = "<!-- end of options -->";

/// A file of the repository.
fn read(path: &str) -> String {
    fs::read_to_string(format!("{}/../{path}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

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

/// The names that a newcomer sees first; all others are in modules.
#[test]
fn root_of_the_crate_has_few_names() {
    let code = read("core/src/lib.rs");
    let names: Vec<_> = code
        .lines()
        .filter_map(|line| line.strip_prefix("pub use ")?.strip_suffix(';'))
        .flat_map(|path| {
            let (_, names) = path.split_once('{').or_else(|| path.rsplit_once("::")).unwrap();
            names.trim_end_matches('}').split(", ").collect::<Vec<_>>()
        })
        .collect();
    let expected = [
        "Limiter",
        "LimiterBuilder",
        "blocking",
        "Decision",
        "Error",
        "ErrorKind",
        "Policy",
        "Quota",
        "Request",
    ];
    assert_eq!(names, expected);
}

/// Every quick start describes the first use of Redis in the same words.
#[test]
fn quick_starts_say_the_same_about_redis() {
    let start = read("docs/start.md");
    let (_, text) = start.split_once("\nWith Redis, call `ready` ").unwrap();
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
        let page_text = read(page).replace("fallbackShare", "fallback_share");
        assert!(page_text.contains(text), "{page} has not the text of docs/start.md about Redis");
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

/// The examples of README.md and docs/start.md are those of the pages of their languages, whose tests run them.
#[test]
fn examples_of_other_languages_are_those_of_their_pages() {
    for (page, languages, examples) in [("README.md", 1, 1), ("docs/start.md", 10, 15)] {
        let text = read(page);
        let mut found = (0, 0);
        for (fence, theirs) in [
            ("```python\n", "bindings/python/README.md"),
            ("```js\n", "bindings/node/README.md"),
            ("```go\n", "bindings/go/README.md"),
            ("```c\n", "bindings/c/README.md"),
            ("```cpp\n", "bindings/c/README.md"),
            ("```kotlin\n", "bindings/uniffi/kotlin/README.md"),
            ("```java\n", "bindings/uniffi/kotlin/README.md"),
            ("```ruby\n", "bindings/uniffi/ruby/README.md"),
            // Compiled where a Swift toolchain is installed.
            ("```swift\n", "bindings/uniffi/swift/Sources/Quickstart/main.swift"),
            ("```console\n", "docs/command-line.md"),
        ] {
            let blocks: Vec<_> =
                text.split(fence).skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
            for block in &blocks {
                assert!(
                    read(theirs).contains(block),
                    "{theirs} does not have the example of {page}:\n{block}"
                );
            }
            found = (found.0 + usize::from(!blocks.is_empty()), found.1 + blocks.len());
        }
        assert_eq!(found, (languages, examples), "languages and examples of {page}");
    }
}

/// The commands that install a package stand in its page, too. tools/packages/test runs those of docs/start.md.
#[test]
fn commands_of_installation_are_those_of_the_pages() {
    let start = read("docs/start.md");
    for (tab, page) in [
        ("Python", "bindings/python/README.md"),
        ("Node", "bindings/node/README.md"),
        ("Go", "bindings/go/README.md"),
        ("Rust", "docs/rust.md"),
        ("C", "bindings/c/README.md"),
        ("Java", "bindings/uniffi/kotlin/README.md"),
        ("Ruby", "bindings/uniffi/ruby/README.md"),
        ("Command line", "docs/command-line.md"),
    ] {
        let (_, text) = start.split_once(&format!("\n**{tab}**\n\n```sh\n")).unwrap();
        let (commands, _) = text.split_once("```").unwrap();
        assert!(
            read(page).contains(commands),
            "{page} does not have the commands of docs/start.md:\n{commands}"
        );
    }
}

/// The first block of text in a page, which shows the output of an example.
fn output(page: &str) -> String {
    let text = read(page);
    let (_, rest) = text.split_once("```text\n").unwrap();
    rest.split_once("```").unwrap().0.to_owned()
}

#[test]
fn output_in_the_page_about_lists_is_that_of_its_example() {
    let policy = Policy::parse("api", "100/minute token_bucket; 20/hour").unwrap();
    let clock = ManualClock::new(0).unwrap();
    let limiter = Limiter::builder().clock(clock).policy(policy).build().unwrap().blocking();
    let _ = limiter.charge(Request::new("user:42").cost(20)).unwrap();
    let explained = limiter.admin().explain("user:42").unwrap();
    let mut written =
        format!("allowed: {}, again after {:?} us\n", explained.allowed, explained.retry_after_us);
    for quota in &explained.quotas {
        let verdict = if quota.admits { "admits" } else { "denies" };
        writeln!(written, "{}: {} ({verdict})", quota.quota, quota.words).unwrap();
    }
    assert_eq!(output("docs/listing.md"), written);
}

#[test]
fn message_in_the_page_about_documents_is_that_of_its_example() {
    let error = Limiter::builder()
        .document("polylimit = 1\n[policies.api]\nquotas = \"2/minuet\"\n")
        .build()
        .unwrap_err()
        .to_string();
    let shown = output("docs/policies.md");
    assert!(error.ends_with(shown.trim_end()), "docs/policies.md shows\n{shown}the error is\n{error}");
}

/// README.md fits on a screen, and gives a command for each of its figures, which are those of docs/performance.md.
#[test]
fn readme_is_short_and_its_figures_have_commands() {
    let readme = read("README.md");
    assert!(readme.lines().count() <= 80, "README.md has {} lines", readme.lines().count());
    let performance = read("docs/performance.md");
    let measured: Vec<_> =
        performance.split(|letter: char| !(letter.is_ascii_digit() || letter == '.')).collect();
    let (_, figures) = readme.split_once("| figure | command |\n").unwrap();
    let (figures, _) = figures.split_once("\n\n").unwrap();
    let mut compared = 0;
    for row in figures.lines().skip(1) {
        let (figure, command) = row.trim_matches(['|', ' ']).split_once(" | ").unwrap();
        for number in
            figure.split([' ', ',']).filter(|word| word.starts_with(|letter: char| letter.is_ascii_digit()))
        {
            assert!(measured.contains(&number), "docs/performance.md has no {number}: {row}");
            compared += 1;
        }
        let command = command.trim_matches('`');
        let exists = match command.strip_prefix("make ") {
            Some(target) => read("Makefile").contains(&format!("\n{target}: ")),
            None => Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(command).is_file(),
        };
        assert!(exists, "there is no {command}");
    }
    assert!(compared > 5, "only {compared} figures were compared");
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
    collect_core(&mut sources);
    for binding in ["c", "node", "python", "uniffi"] {
        collect_sources(&root.join("bindings").join(binding).join("src"), &mut sources);
    }
    collect_sources(&root.join("tools/server/src"), &mut sources);
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

/// The sources of every crate of the core.
fn collect_core(sources: &mut Vec<PathBuf>) {
    let core = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../core"));
    collect_sources(&core.join("src"), sources);
    let crates = fs::read_dir(core).unwrap().map(|entry| entry.unwrap().path());
    let crates = crates.filter(|folder| folder.join("src").is_dir() && !folder.ends_with("fuzz"));
    crates.for_each(|folder| collect_sources(&folder.join("src"), sources));
}

fn collect_sources(folder: &Path, sources: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let (path, name) = (entry.path(), entry.file_name());
        if path.is_dir() && name != "tests" {
            collect_sources(&path, sources);
        } else if path.extension().is_some_and(|extension| extension == "rs") && name != "tests.rs" {
            sources.push(path);
        }
    }
}

/// A fork copies one thread: a lock of the whole process that another thread holds is never released in the child. The queues of events are
/// locked for a bounded time.
#[test]
fn no_static_has_a_lock_that_a_child_would_wait_for() {
    const BOUNDED: [&str; 2] = ["bindings/python/src/events.rs", "bindings/uniffi/src/event.rs"];
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    let mut sources = Vec::new();
    collect_core(&mut sources);
    for binding in ["c", "python", "uniffi"] {
        collect_sources(&root.join("bindings").join(binding).join("src"), &mut sources);
    }
    let (mut statics, mut locked) = (0, Vec::new());
    for source in sources {
        let path = source.strip_prefix(root).unwrap().to_str().unwrap();
        let text = fs::read_to_string(&source).unwrap();
        let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
        for line in code.lines().map(str::trim_start) {
            let Some((_, declared)) = line.split_once("static ").filter(|(before, _)| before.len() < 12)
            else {
                continue;
            };
            let Some((_, kind)) = declared.split_once(": ") else { continue };
            statics += 1;
            let kind = kind.split(" = ").next().unwrap();
            let has_lock =
                ["Mutex<", "RwLock<", "Lock<RefCell", "LazyLock<"].iter().any(|lock| kind.contains(lock));
            if has_lock && !BOUNDED.contains(&path) {
                locked.push(format!("{path}: {line}"));
            }
        }
    }
    assert!(
        locked.is_empty(),
        "a child that is forked meanwhile would wait for ever:\n{}",
        locked.join("\n")
    );
    assert!(statics > 20, "only {statics} statics were found");
}

/// The code of the examples in Rust that run as tests, in pages and in comments, each with the place where it begins.
fn rust_examples() -> Vec<(String, String)> {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    let mut files = Vec::new();
    collect_core(&mut files);
    let pages = fs::read_dir(root.join("docs")).unwrap().map(|entry| entry.unwrap().path());
    files.extend(pages.filter(|page| page.extension().is_some_and(|extension| extension == "md")));
    files.push(root.join("README.md"));
    let mut examples = Vec::new();
    for file in files {
        let is_page = file.extension().is_some_and(|extension| extension == "md");
        let mut open: Option<(bool, String, String)> = None;
        for (number, line) in fs::read_to_string(&file).unwrap().lines().enumerate() {
            let text = line.trim_start();
            let text = if is_page {
                Some(line)
            } else {
                text.strip_prefix("///").or_else(|| text.strip_prefix("//!"))
            };
            match (text.map(|text| text.trim_start().strip_prefix("```")), &mut open) {
                (None, _) => open = None,
                (Some(Some(_)), Some(_)) => {
                    let (is_rust, place, code) = open.take().unwrap();
                    examples.extend(is_rust.then_some((place, code)));
                }
                (Some(Some(language)), None) => {
                    let is_rust = language.starts_with("rust") || (!is_page && language.is_empty());
                    open = Some((is_rust, format!("{}:{}", file.display(), number + 1), String::new()));
                }
                (Some(None), Some((_, _, code))) => {
                    code.push_str(text.unwrap_or_default());
                    code.push('\n');
                }
                (Some(None), None) => {}
            }
        }
    }
    examples
}

/// On a busy machine a moment of any length passes between two operations of an example. A bucket that refills all the time then shows
/// other numbers, and a window of a second has ended.
#[test]
fn examples_do_not_depend_on_how_fast_they_run() {
    let examples = rust_examples();
    assert!(examples.len() > 60, "only {} examples were found", examples.len());
    let contains = |code: &str, words: &[&str]| words.iter().any(|word| code.contains(word));
    let dependent = examples.iter().filter(|(_, code)| {
        let refills = contains(code, &["token_bucket", "leaky_bucket", "gcra"]);
        let reads_later = contains(code, &["peek(", "explain("]) && code.contains("assert_eq!");
        let is_short = contains(code, &["/second", "/s\"", "/s;", "/s "]);
        let spends_all = code.contains("assert!(!");
        !code.contains("ManualClock") && (refills && reads_later || is_short && spends_all)
    });
    let places: Vec<_> = dependent.map(|(place, _)| place).collect();
    assert!(places.is_empty(), "use a ManualClock or a quota of a minute: {places:#?}");
}

/// Paused time reaches the core through one function, so nothing else may read a clock.
#[test]
fn clocks_are_read_in_one_place() {
    let mut sources = Vec::new();
    collect_core(&mut sources);
    let readers = ["Instant::now(", "SystemTime::now(", ".elapsed()"];
    let allowed = ["runtime/src/monotonic.rs", "runtime/src/clock/system.rs"];
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

/// What a cell has in quotes.
fn quoted(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

/// Whether a file declares a name by one of these words.
fn declares(file: &str, words: &[&str], name: &str) -> bool {
    let code = read(file);
    let is_end = |rest: &str| !rest.starts_with(|letter: char| letter.is_alphanumeric() || letter == '_');
    words.iter().any(|word| code.split(&format!("{word}{name}")).skip(1).any(is_end))
}

/// The files, functions and carriers of docs/internals/request.md exist, and its last sentence counts them.
#[test]
fn files_of_a_request_are_those_of_the_code() {
    let page = read("docs/internals/request.md");
    let (mut files, mut carriers) = (BTreeSet::<&str>::new(), BTreeSet::<(&str, &str)>::new());
    let mut counts = Vec::<usize>::new();
    for section in page.split("\n## ").filter(|section| section.contains("\n| step |")) {
        let mut of_path = BTreeSet::<&str>::new();
        for row in section.lines().filter(|row| row.starts_with("| ") && !row.starts_with("| step |")) {
            let cells: Vec<_> = row.trim_end_matches('|').split(" | ").collect();
            assert_eq!(cells.len(), 4, "{row}");
            // The bar counts as a word.
            assert!(cells[0].split(' ').count() <= 13, "more than 12 words: {row}");
            let file = cells[1].trim_matches('`');
            assert!(of_path.insert(file), "{file} has two rows in one table");
            let word = match file.rsplit_once('.') {
                Some((_, "lua")) => "",
                Some((_, "py")) => "def ",
                _ => "fn ",
            };
            assert!(cells[2].contains('`'), "no function: {row}");
            for name in quoted(cells[2]) {
                assert!(declares(file, &[word], name), "{file} has no {name}");
            }
            let mut names = quoted(cells[3]).peekable();
            while let Some(name) = names.next() {
                // The file of the type, if it is another one.
                let of = names.next_if(|next| next.contains('/')).unwrap_or(file);
                assert!(declares(of, &["struct ", "enum ", "type "], name), "{of} has no type {name}");
                carriers.insert((name, of));
            }
        }
        files.extend(of_path);
        counts.extend([files.len(), carriers.len()]);
    }
    assert_eq!(counts.len(), 4, "the page has two tables");
    let sentence = format!(
        "\nA check passes {} files and {} carriers; a request under a document passes {} files more and \
         {} carriers more.\n",
        counts[0],
        counts[1],
        counts[2] - counts[0],
        counts[3] - counts[1]
    );
    assert!(page.ends_with(&sentence), "the page has to end with:{sentence}");
}
