//! Options without effect: those of one store are accepted with every other, so that tests and production differ in the URL alone.

use polylimit_store::finding::{Finding, Severity};

/// Options that are accepted and have no effect on the limiter's store.
#[derive(Default)]
pub(super) struct Unused {
    names: Vec<String>,
}

impl Unused {
    pub(super) fn add(&mut self, name: impl Into<String>) {
        let name = name.into();
        if !self.names.contains(&name) {
            self.names.push(name);
        }
    }

    /// The finding that reports them, once for each limiter.
    pub(super) fn finding(&self, store: &str) -> Option<Finding> {
        let (are, have) = if self.names.len() == 1 { ("option", "has") } else { ("options", "have") };
        let (names, last) = (&self.names, self.names.last()?);
        let listed = match names.len() {
            1 => last.clone(),
            length => format!("{} and {last}", names[..length - 1].join(", ")),
        };
        let message = format!("{are} {listed} {have} no effect on the {store} store");
        Some(Finding::new(Severity::Fine, "options", message))
    }
}
