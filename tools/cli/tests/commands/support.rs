//! Runs the program with a store of its own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use polylimit_test_servers::{Kind, Server};
use serde_json::Value;
use tempfile::TempDir;

pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_polylimit");

/// A folder in which the program runs, and the environment that it gets.
pub(crate) struct Shell {
    folder: TempDir,
    store: Option<String>,
    server: Option<Server>,
}

/// What the program has written, and how it ended.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) status: i32,
    pub(crate) output: String,
    pub(crate) errors: String,
}

impl Shell {
    /// Without a store.
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), store: None, server: None }
    }

    /// With this store.
    pub(crate) fn with_store(url: &str) -> Self {
        Self { store: Some(url.to_owned()), ..Self::new() }
    }

    /// With a Redis server.
    pub(crate) fn with_redis() -> Self {
        let server = Server::start(Kind::Redis, &[]);
        // A loaded machine may take longer than the default deadline.
        let store = format!("{}?deadline=5s", server.url());
        Self { store: Some(store), server: Some(server), ..Self::new() }
    }

    pub(crate) fn server(&self) -> &Server {
        self.server.as_ref().unwrap()
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The same folder and server, with another URL.
    pub(crate) fn of_user(mut self, user_info: &str) -> Self {
        self.store = Some(format!("redis://{user_info}@127.0.0.1:{}?deadline=5s", self.server().port()));
        self
    }

    /// Writes a file.
    pub(crate) fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.folder().join(name);
        fs::write(&path, text).unwrap();
        path
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(PROGRAM);
        command.args(arguments).current_dir(self.folder()).stdin(Stdio::null());
        for name in ["POLYLIMIT_STORE", "POLYLIMIT_POLICIES", "POLYLIMIT_AUDIT_LOG", "NO_COLOR"] {
            command.env_remove(name);
        }
        command.env("USER", "tester").envs(self.store.iter().map(|url| ("POLYLIMIT_STORE", url)));
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Ran {
        Ran::of(self.command(arguments).output().unwrap())
    }

    /// Runs it with `--json`, and checks each line by a definition of the schema.
    pub(crate) fn json(&self, definition: &str, arguments: &[&str]) -> (i32, Vec<Value>) {
        let ran = self.run(&[arguments, &["--json"]].concat());
        let lines: Vec<Value> = ran
            .output
            .lines()
            .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
            .collect();
        let validator = validator(definition);
        for line in &lines {
            let mistakes: Vec<_> = validator.iter_errors(line).map(|error| error.to_string()).collect();
            assert!(mistakes.is_empty(), "{arguments:?}: {mistakes:?}\n{line:#}");
        }
        assert!(!lines.is_empty() || ran.status != 0, "{arguments:?}: {ran:?}");
        (ran.status, lines)
    }

    /// As [`json`](Self::json), of one line.
    pub(crate) fn object(&self, definition: &str, arguments: &[&str]) -> (i32, Value) {
        let (status, mut lines) = self.json(definition, arguments);
        assert_eq!(lines.len(), 1, "{arguments:?}");
        (status, lines.remove(0))
    }
}

impl Ran {
    pub(crate) fn of(output: Output) -> Self {
        Self {
            status: output.status.code().unwrap_or(-1),
            output: String::from_utf8(output.stdout).unwrap(),
            errors: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// Asserts the exit status, and that the message has a text.
    #[track_caller]
    pub(crate) fn fails(&self, status: i32, about: &str) {
        assert_eq!(self.status, status, "{self:?}");
        assert!(self.errors.contains(about) && self.output.is_empty(), "{self:?}");
        assert!(!self.errors.contains("panicked"), "{self:?}");
    }

    /// Asserts that it ended well, and returns its output.
    #[track_caller]
    pub(crate) fn fine(self) -> String {
        assert_eq!((self.status, &*self.errors), (0, ""), "{self:?}");
        self.output
    }
}

/// Checks values by a definition of the schema.
fn validator(definition: &str) -> jsonschema::Validator {
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("output.schema.json")).unwrap();
    let schema: Value = serde_json::from_str(&text).unwrap();
    assert!(schema["$defs"].get(definition).is_some(), "no definition of {definition}");
    let schema = serde_json::json!({ "$ref": format!("#/$defs/{definition}"), "$defs": schema["$defs"] });
    jsonschema::validator_for(&schema).unwrap()
}
