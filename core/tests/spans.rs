//! Decisions on the caller's span, and the spans of calls to Redis.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex, MutexGuard};

use polylimit::{Limiter, Policy, Request};
use polylimit_test_servers::{Kind, Server};
use tracing::field::{Empty, Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Span, Subscriber, info_span};
use tracing_core::span::Current;

/// A span that was made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Made {
    name: String,
    parent: Option<u64>,
    follows: Vec<u64>,
    fields: BTreeMap<String, String>,
    /// How many handles there are; none once it is closed.
    handles: usize,
}

/// A subscriber that keeps all spans, as `tracing_subscriber::Registry` does, and panics as it does for a parent that is gone.
#[derive(Clone, Default)]
struct Recorder(Arc<Mutex<Vec<(Made, &'static Metadata<'static>)>>>);

thread_local! {
    static ENTERED: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

impl Recorder {
    fn spans(&self) -> MutexGuard<'_, Vec<(Made, &'static Metadata<'static>)>> {
        self.0.lock().unwrap()
    }

    fn of(&self, id: u64) -> Made {
        self.spans()[index(id)].0.clone()
    }

    /// The closed spans of calls, with their numbers.
    fn calls(&self) -> Vec<Made> {
        let spans = self.spans();
        spans.iter().map(|(made, _)| made.clone()).filter(|made| made.name == "polylimit.store").collect()
    }
}

fn index(id: u64) -> usize {
    usize::try_from(id).unwrap() - 1
}

impl Subscriber for Recorder {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, attributes: &Attributes<'_>) -> Id {
        let mut spans = self.spans();
        let parent = match attributes.parent() {
            Some(parent) => Some(parent.into_u64()),
            None if attributes.is_contextual() => ENTERED.with_borrow(|entered| entered.last().copied()),
            None => None,
        };
        if let Some(parent) = parent {
            assert!(spans[index(parent)].0.handles > 0, "the parent of a span is closed");
        }
        let name = attributes.metadata().name().to_owned();
        let mut made = Made { name, parent, handles: 1, ..Made::default() };
        attributes.record(&mut made);
        spans.push((made, attributes.metadata()));
        Id::from_u64(spans.len() as u64)
    }

    fn record(&self, id: &Id, values: &Record<'_>) {
        values.record(&mut self.spans()[index(id.into_u64())].0);
    }

    fn record_follows_from(&self, id: &Id, follows: &Id) {
        self.spans()[index(id.into_u64())].0.follows.push(follows.into_u64());
    }

    fn event(&self, _: &Event<'_>) {}

    fn enter(&self, id: &Id) {
        ENTERED.with_borrow_mut(|entered| entered.push(id.into_u64()));
    }

    fn exit(&self, _: &Id) {
        ENTERED.with_borrow_mut(Vec::pop);
    }

    fn clone_span(&self, id: &Id) -> Id {
        self.spans()[index(id.into_u64())].0.handles += 1;
        id.clone()
    }

    fn try_close(&self, id: Id) -> bool {
        let made = &mut self.spans()[index(id.into_u64())].0;
        made.handles -= 1;
        made.handles == 0
    }

    fn current_span(&self) -> Current {
        let Some(id) = ENTERED.with_borrow(|entered| entered.last().copied()) else { return Current::none() };
        Current::new(Id::from_u64(id), self.spans()[index(id)].1)
    }
}

impl Visit for Made {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.fields.insert(field.name().to_owned(), value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.fields.insert(field.name().to_owned(), format!("{value:?}"));
    }
}

/// A span of a program that wants to know decisions.
fn request() -> Span {
    info_span!(
        "request",
        polylimit.policy = Empty,
        polylimit.allowed = Empty,
        polylimit.source = Empty,
        polylimit.retry_after_us = Empty
    )
}

/// The fields of polylimit, without their prefix and in order.
fn told(recorder: &Recorder, span: &Span) -> String {
    let fields = recorder.of(span.id().unwrap().into_u64()).fields;
    let fields = fields.iter().map(|(name, value)| format!("{}={value}", &name["polylimit.".len()..]));
    fields.collect::<Vec<_>>().join(" ")
}

#[test]
fn the_callers_span_is_told_of_a_decision_in_memory() {
    let recorder = Recorder::default();
    tracing::subscriber::with_default(recorder.clone(), || {
        let policies =
            ["1/day token_bucket", "1/day; 2/week"].map(|quotas| Policy::parse("p", quotas).unwrap());
        for policy in policies {
            let limiter = Limiter::builder().policy(policy).build().unwrap().blocking();
            let (admitted, denied, other) = (request(), request(), info_span!("other"));
            let _ = admitted.in_scope(|| limiter.check("a").unwrap());
            let _ = other.in_scope(|| limiter.check("a").unwrap());
            let _ = denied.in_scope(|| limiter.check("a").unwrap());
            assert_eq!(told(&recorder, &admitted), "allowed=true policy=p source=store");
            let told = told(&recorder, &denied);
            assert!(told.starts_with("allowed=false policy=p retry_after_us="), "{told}");
            assert!(recorder.of(other.id().unwrap().into_u64()).fields.is_empty());
        }
    });
}

#[test]
fn a_call_to_redis_has_a_span_below_that_of_its_first_caller() {
    let server = Server::start(Kind::Redis, &[]);
    let recorder = Recorder::default();
    tracing::subscriber::with_default(recorder.clone(), || {
        let store = format!("{}?deadline=10s", server.url());
        let limiter = Limiter::builder().store(&store).policy(Policy::parse("p", "9/day").unwrap());
        let limiter = limiter.build().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let ready = limiter.ready(std::time::Duration::from_secs(60));
        runtime.block_on(ready).unwrap();
        let before = recorder.calls().len();
        let span = request();
        let id = span.id().unwrap().into_u64();
        runtime.block_on(async {
            let many = [Request::new("a"), Request::new("b"), Request::new("a")];
            let checks = tracing::Instrument::instrument(limiter.check_many(many), span.clone());
            assert!(checks.await.into_iter().all(|decision| decision.unwrap().allowed()));
        });
        assert_eq!(told(&recorder, &span), "allowed=true policy=p source=store");
        let calls = recorder.calls().split_off(before);
        let [call] = &*calls else { panic!("{calls:#?}") };
        let port = server.port().to_string();
        let expected = [
            ("db.operation.batch.size", "3"),
            ("db.operation.name", "EVALSHA"),
            ("db.system.name", "redis"),
            ("otel.kind", "client"),
            ("polylimit.policy", "p"),
            ("server.address", "127.0.0.1"),
            ("server.port", &*port),
        ];
        let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(call.fields, BTreeMap::from(expected));
        assert_eq!((call.parent, &*call.follows, call.handles), (Some(id), &[id, id][..], 0));
        // The caller is gone before the call is sent: its span stays until then.
        server.kill();
        while !runtime.block_on(limiter.check("a")).unwrap().source().is_outage() {}
        for call in recorder.calls() {
            assert_eq!(call.handles, 0, "{call:?}");
        }
        drop(span);
        assert_eq!(recorder.of(id).handles, 0);
    });
}
