//! Events of a limiter as `tracing` events.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::fmt::{Debug, Write};
use std::sync::{Arc, Mutex};

use polylimit::{Limiter, Policy};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// A subscriber that records events.
#[derive(Clone, Default)]
struct Recorder(Arc<Mutex<Vec<String>>>);

impl Subscriber for Recorder {
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
fn full_store_is_reported_once_as_a_tracing_event() {
    let recorder = Recorder::default();
    let limiter =
        Limiter::builder().policy(Policy::parse("p", "5/hour").unwrap()).max_keys(1).build().unwrap();
    tracing::subscriber::with_default(recorder.clone(), || {
        for key in ["one", "another", "a third"] {
            let _ = limiter.blocking().check(key).unwrap();
        }
    });
    let expected = "message=the store is full of keys in use (store_full): new keys share one state a policy;\
                event=\"started\";";
    assert_eq!(*recorder.0.lock().unwrap(), [expected]);
}
