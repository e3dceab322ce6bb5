//! Records of the rows of `docs/faults.md`. A test that has injected the fault of a row writes down what it measured.

use std::fs::OpenOptions;
use std::io::Write;
use std::panic::Location;
use std::time::Duration;

use serde_json::{Map, Value};

/// Names the file that records are appended to. While it is set, tests run in their long forms.
const FILE: &str = "POLYLIMIT_FAULTS";

/// What a test measured in one case of a row. [`record`](Self::record) is called last: a case with a record has passed.
#[derive(Clone, Debug)]
#[must_use = "a row is written by `record`"]
pub struct Row(Map<String, Value>);

impl Row {
    /// Whether tests run in their long forms, which take minutes, because `make faults` records them.
    pub fn is_long() -> bool {
        std::env::var_os(FILE).is_some()
    }

    /// A record without measurements for the row of this id, such as `F20`, and a case of it in some words.
    #[track_caller]
    pub fn new(id: &str, case: impl Into<String>) -> Self {
        // The path is relative to the workspace, since cargo compiles its members there.
        let file = Location::caller().file();
        Self(Map::new()).with("row", id).with("case", case.into()).with("file", file)
    }

    /// How many decisions callers received.
    pub fn decisions(self, count: u64) -> Self {
        self.with("decisions", count)
    }

    /// How many requests were admitted, by the store or the outage policy.
    pub fn admitted(self, count: u64) -> Self {
        self.with("admitted", count)
    }

    /// How many requests of the key with the most were admitted, and the most that the formula of the row allows for a key.
    pub fn bound(self, of_key: u64, most: u64) -> Self {
        self.with("admitted_of_key", of_key).with("bound", most)
    }

    /// How many units the server has stored afterwards, of those that the store admitted.
    pub fn stored(self, stored: u64, admitted_by_store: u64) -> Self {
        self.with("stored", stored).with("admitted_by_store", admitted_by_store)
    }

    /// The longest time that a decision took, and the deadline of decisions.
    pub fn slowest(self, slowest: Duration, deadline: Duration) -> Self {
        self.with("slowest_us", micros(slowest)).with("deadline_us", micros(deadline))
    }

    /// How long the system delayed threads meanwhile, which a check of a deadline allows for.
    pub fn noise(self, noise: Duration) -> Self {
        self.with("noise_us", micros(noise))
    }

    /// How many operations the server may have applied or not.
    pub fn unknown(self, count: u64) -> Self {
        self.with("unknown", count)
    }

    /// How long after the end of the fault the store decided again.
    pub fn recovered(self, after: Duration) -> Self {
        self.with("recovered_us", micros(after))
    }

    /// What else was measured, in some words.
    pub fn measured(self, text: impl Into<String>) -> Self {
        self.with("measured", text.into())
    }

    /// Appends the record to the file, if there is one.
    ///
    /// # Panics
    ///
    /// When the file cannot be written.
    pub fn record(self) {
        let Some(file) = std::env::var_os(FILE) else { return };
        let mut file = OpenOptions::new().create(true).append(true).open(file).expect("the file of records");
        // One write, since other processes append to the file as well.
        let line = format!("{}\n", Value::Object(self.0));
        file.write_all(line.as_bytes()).expect("the file of records");
    }

    fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.0.insert(name.into(), value.into());
        self
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
