//! Processes of both builds, and what has to hold.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Lines, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, ExitCode, Stdio};

use polylimit_test_servers::Server;

use crate::work::{Answer, Command, Setup};

/// The URL of a server whose limiters wait until it answers: a busy machine must not turn a decision into one of an outage.
pub(crate) fn patient(server: &Server) -> String {
    format!("{}?deadline=30s", server.url())
}

/// Which build a process runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Build {
    /// This tree.
    Older,
    /// With `newer.patch`.
    Newer,
}

/// What has been examined, with what was wrong.
#[derive(Debug)]
pub(crate) struct Trial {
    newer: String,
    passed: usize,
    failed: usize,
}

impl Trial {
    pub(crate) fn new(newer: String) -> Self {
        Self { newer, passed: 0, failed: 0 }
    }

    /// Starts a process. `file_version` is the version of local files that the newer build writes.
    pub(crate) fn start(&self, build: Build, setup: &Setup, file_version: u64) -> Process {
        let program = match build {
            Build::Older => std::env::current_exe().unwrap(),
            Build::Newer => self.newer.clone().into(),
        };
        let mut child = std::process::Command::new(program)
            .arg("work")
            .env("POLYLIMIT_FILE_VERSION", file_version.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let mut process = Process { build, child, input, output: BufReader::new(output).lines() };
        process.write(&serde_json::to_string(setup).unwrap());
        process
    }

    /// Notes whether a case holds.
    pub(crate) fn case(&mut self, name: &str, holds: bool, seen: impl FnOnce() -> String) {
        if holds {
            self.passed += 1;
            println!("{name}: ok");
        } else {
            self.failed += 1;
            println!("FAILED: {name}: {}", seen());
        }
    }

    pub(crate) fn report(&self) -> ExitCode {
        let word = if self.failed == 0 { "ok" } else { "FAILED" };
        println!("test result: {word}. {} passed; {} failed;", self.passed, self.failed);
        ExitCode::from(u8::from(self.failed > 0))
    }
}

/// A process that decides. It ends when this is dropped.
pub(crate) struct Process {
    pub(crate) build: Build,
    child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl Process {
    fn write(&mut self, line: &str) {
        writeln!(self.input, "{line}").unwrap();
        self.input.flush().unwrap();
    }

    pub(crate) fn send(&mut self, command: &Command) {
        self.write(&serde_json::to_string(command).unwrap());
    }

    pub(crate) fn answer(&mut self) -> Answer {
        let Some(line) = self.output.next() else {
            panic!("a process of the {:?} build has ended", self.build)
        };
        serde_json::from_str(&line.unwrap()).unwrap()
    }

    pub(crate) fn ask(&mut self, command: &Command) -> Answer {
        self.send(command);
        self.answer()
    }

    /// Ends the process; panics if it has panicked.
    pub(crate) fn end(self) {
        let Self { build, mut child, input, .. } = self;
        drop(input);
        let status = child.wait().unwrap();
        assert!(status.success(), "a process of the {build:?} build has ended with {status}");
    }
}

/// What the processes of each build have answered together.
#[derive(Debug, Default)]
pub(crate) struct Totals {
    pub(crate) older: Answer,
    pub(crate) newer: Answer,
}

impl Totals {
    /// Lets processes decide at the same time.
    pub(crate) fn decide(&mut self, processes: &mut [&mut Process], command: &Command) {
        for process in processes.iter_mut() {
            process.send(command);
        }
        for process in processes {
            self.take(process);
        }
    }

    /// Takes the answer of a process.
    pub(crate) fn take(&mut self, process: &mut Process) {
        let answer = process.answer();
        let total = if process.build == Build::Older { &mut self.older } else { &mut self.newer };
        add(&mut total.admitted, answer.admitted);
        add(&mut total.degraded, answer.degraded);
        add(&mut total.errors, answer.errors);
    }

    /// The errors of both builds.
    pub(crate) fn all_errors(&self) -> Vec<&String> {
        self.older.errors.keys().chain(self.newer.errors.keys()).collect()
    }

    /// The units that both builds have admitted, by policy and key.
    pub(crate) fn admitted(&self) -> BTreeMap<String, u64> {
        let mut admitted = self.older.admitted.clone();
        add(&mut admitted, self.newer.admitted.clone());
        admitted
    }
}

fn add(total: &mut BTreeMap<String, u64>, more: BTreeMap<String, u64>) {
    for (name, number) in more {
        *total.entry(name).or_default() += number;
    }
}
