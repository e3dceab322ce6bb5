//! Events of a limiter, told to `tracing`.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::fmt::{Debug, Write};
use std::sync::{Arc, Mutex};

use polylimit::{Limiter, Policy};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Keeps what it is told.
#[derive(Clone, Default)]
struct Keeping(Arc<Mutex<Vec<String>>>);

impl Subscriber for Keeping {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "polylimit" && *metadata.level() == Level::WARN
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line::default();
        event.record(&mut line);
        self.0.lock().unwrap().push(line.0);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[derive(Default)]
struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, "{}={value:?};", field.name()).unwrap();
    }
}

#[test]
fn a_full_store_is_told_once() {
    let keeping = Keeping::default();
    let limiter =
        Limiter::builder().policy(Policy::parse("p", "5/hour").unwrap()).max_keys(1).build().unwrap();
    tracing::subscriber::with_default(keeping.clone(), || {
        for key in ["one", "another", "a third"] {
            let _ = limiter.blocking().check(key).unwrap();
        }
    });
    let told = "message=the store is full of keys in use (store_full): new keys share one state a policy;\
                event=\"started\";";
    assert_eq!(*keeping.0.lock().unwrap(), [told]);
}
