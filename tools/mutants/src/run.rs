//! Runs, for each mutant, the tests that reach its place.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::build::Program;
use crate::list::Mutant;
use crate::report::Fate;

/// One test of one program, and the places that it reaches.
struct Test<'a> {
    program: &'a Program,
    name: String,
    takes: Duration,
    reaches: BTreeSet<u32>,
}

/// How a process ends that has used up its processor time.
const SIGXCPU: i32 = 24;
const SIGKILL: i32 = 9;

/// Tests of less time share a process; the others each have one, after these.
const SHORT: Duration = Duration::from_millis(500);

/// The most memory of a test, in KiB: a mutant may allocate without end.
const MEMORY_KIB: u64 = 4 << 20;

/// The processor time of a test that a mutant makes run without end, in seconds, in addition to three times what it takes otherwise. A
/// loaded machine does not end a test early by it.
const MORE_SECONDS: u64 = 5;

/// When a test is ended that waits for ever: on a loaded machine others take long as well.
const LONGEST_WAIT: Duration = Duration::from_secs(120);

/// What becomes of each mutant; `places` has the place of each.
pub(crate) fn run(
    programs: &[Program],
    all: &[Mutant],
    places: &BTreeMap<u32, u32>,
    jobs: usize,
    scratch: &Path,
) -> Result<BTreeMap<u32, Fate>> {
    let tests = reached(programs, scratch, jobs)?;
    let mutants: Vec<(u32, u32)> = places.iter().map(|(mutant, place)| (*mutant, *place)).collect();
    let (next, fates) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
    let started = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                while let Some((mutant, place)) = mutants.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let fate = fate(&tests, *mutant, *place);
                    let mut fates = fates.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                    println!("{fate:?}\t{}", all[*mutant as usize - 1].name);
                    fates.insert(*mutant, fate);
                    if fates.len() % 200 == 0 {
                        eprintln!(
                            "{} of {} mutants after {} s",
                            fates.len(),
                            mutants.len(),
                            started.elapsed().as_secs()
                        );
                    }
                }
            });
        }
    });
    Ok(fates.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner))
}

/// Every test that passes without a mutant, with the places that it reaches; but for those whose names begin as `SKIPPED` says.
fn reached<'a>(programs: &'a [Program], scratch: &Path, jobs: usize) -> Result<Vec<Test<'a>>> {
    let skipped = std::env::var("SKIPPED").unwrap_or_default();
    let mut named = Vec::new();
    for program in programs {
        let listed = command(program, 0, 600)
            .args(["--list", "--format", "terse"])
            .output()
            .context("listing tests")?;
        let text = String::from_utf8_lossy(&listed.stdout).into_owned();
        let tests = text.lines().filter_map(|it| it.strip_suffix(": test"));
        let tests = tests.filter(|name| !skipped.split_whitespace().any(|it| name.starts_with(it)));
        named.extend(tests.map(|name| (program, name.to_owned())));
    }
    let (next, tests, failed) = (AtomicUsize::new(0), Mutex::new(Vec::new()), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for job in 0..jobs {
            let (named, next, tests, failed) = (&named, &next, &tests, &failed);
            scope.spawn(move || {
                let path = scratch.join(format!("reached-{job}"));
                while let Some((program, name)) = named.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let _ = std::fs::remove_file(&path);
                    let started = Instant::now();
                    let mut command = command(program, 0, 600);
                    command.env("POLYLIMIT_REACHED", &path).args(["--exact", name]).stdout(Stdio::null());
                    let passed = command.stderr(Stdio::null()).status().is_ok_and(|it| it.success());
                    let written = std::fs::read_to_string(&path).unwrap_or_default();
                    let reaches = written.lines().filter_map(|it| it.parse().ok()).collect();
                    let ran = Test { program, name: name.clone(), takes: started.elapsed(), reaches };
                    let into = if passed { tests } else { failed };
                    into.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(ran);
                }
            });
        }
    });
    for test in failed.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner) {
        println!("left out, since it fails without a mutant: {}", test.name);
    }
    let mut tests: Vec<Test<'_>> = tests.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    tests.sort_by_key(|it| it.takes);
    let seconds: f64 = tests.iter().map(|it| it.takes.as_secs_f64()).sum();
    eprintln!("{} tests take {seconds:.1} s one by one", tests.len());
    for test in tests.iter().rev().take(12) {
        eprintln!("  {:.2} s {}", test.takes.as_secs_f64(), test.name);
    }
    Ok(tests)
}

fn fate(tests: &[Test<'_>], mutant: u32, place: u32) -> Fate {
    let reaching: Vec<&Test<'_>> = tests.iter().filter(|it| it.reaches.contains(&place)).collect();
    if reaching.is_empty() {
        return Fate::Unreached;
    }
    let mut short: BTreeMap<&PathBuf, Vec<&Test<'_>>> = BTreeMap::new();
    for test in reaching.iter().filter(|it| it.takes < SHORT) {
        short.entry(&test.program.path).or_default().push(test);
    }
    let long = reaching.iter().filter(|it| it.takes >= SHORT).map(|it| vec![*it]);
    for group in short.into_values().chain(long) {
        let takes: Duration = group.iter().map(|it| it.takes).sum();
        let mut command = command(group[0].program, mutant, MORE_SECONDS + 3 * takes.as_secs());
        command
            .arg("--exact")
            .args(group.iter().map(|it| &it.name))
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let Ok(child) = command.spawn() else { return Fate::Survived };
        match watch(child) {
            Fate::Survived => {}
            noticed => return noticed,
        }
    }
    Fate::Survived
}

/// Waits for the first test that fails, or for the end.
fn watch(mut child: Child) -> Fate {
    let Some(output) = child.stdout.take() else { return Fate::Survived };
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let failed =
            BufReader::new(output).lines().map_while(Result::ok).any(|it| it.ends_with("... FAILED"));
        let _ = sender.send(failed);
    });
    let failed = receiver.recv_timeout(LONGEST_WAIT);
    if failed != Ok(false) {
        let _ = child.kill();
    }
    let status = child.wait().ok();
    let used_up = status.and_then(|it| it.signal()).is_some_and(|it| it == SIGXCPU || it == SIGKILL);
    match failed {
        Err(_) => Fate::Endless,
        Ok(false) if used_up => Fate::Endless,
        Ok(false) if status.is_some_and(|it| it.success()) => Fate::Survived,
        Ok(_) => Fate::Caught,
    }
}

/// A program of tests with one mutant on, in its package's folder, as cargo starts it. Random tests try the same cases for
/// every mutant.
fn command(program: &Program, mutant: u32, seconds: u64) -> Command {
    let mut command = Command::new("sh");
    let limits = format!("ulimit -v {MEMORY_KIB}; ulimit -t {seconds}; exec \"$@\"");
    command.args(["-c", &limits, "sh"]).arg(&program.path);
    command.current_dir(&program.folder).env("CARGO_MANIFEST_DIR", &program.folder);
    command.env("POLYLIMIT_MUTANT", mutant.to_string()).env("RUST_BACKTRACE", "0");
    command.env("PROPTEST_DISABLE_FAILURE_PERSISTENCE", "true").env("PROPTEST_MAX_SHRINK_ITERS", "0");
    command.env("PROPTEST_RNG_SEED", "1");
    command
}
