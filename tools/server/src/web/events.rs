//! What happens, as server-sent events: counts each second, points of the traffic, other configurations, and outages of the store.

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::sync::{Arc, Weak};
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use bytes::Bytes;
use futures_util::stream;
use http::header::{CACHE_CONTROL, HeaderValue};
use http::{Response, StatusCode};
use polylimit::admin::{ConfigurationStatus, TopKey};
use polylimit::metrics::{Family, SampleValue, Stats};
use serde::Serialize;
use tokio::time::{Interval, MissedTickBehavior, interval};

use crate::app::App;
use crate::traffic::{ByPolicy, DeniedNow, EVERY, Point, by_policy, now_ms};
use crate::web::query::Shared;
use crate::web::refusal::{json, refuse, with_body};
use crate::web::shown::shown_value;

/// The time between two snapshots.
const PAUSE: Duration = Duration::from_secs(1);
/// How many listeners there may be at a time.
const LISTENERS: usize = 64;

/// Takes the points of the traffic, for as long as the server lives.
pub(super) fn take_points(app: &Arc<App>) {
    let app: Weak<App> = Arc::downgrade(app);
    tokio::spawn(async move {
        let mut ticks = ticks(EVERY);
        loop {
            ticks.tick().await;
            let Some(app) = app.upgrade() else { return };
            app.traffic.take(&app.limiter);
        }
    });
}

fn ticks(every: Duration) -> Interval {
    let mut ticks = interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

/// The traffic of the last two hours.
#[derive(Serialize)]
struct TrafficReport<'a> {
    every_ms: u64,
    points: Vec<&'a Point>,
}

pub(super) async fn traffic(State(app): Shared) -> Response<Body> {
    let every_ms = u64::try_from(EVERY.as_millis()).unwrap_or(u64::MAX);
    let points = app.traffic.points();
    json(&TrafficReport { every_ms, points: points.iter().map(Arc::as_ref).collect() })
}

/// What the server has counted since it started.
#[derive(Serialize)]
struct Snapshot {
    at_ms: u64,
    policies: ByPolicy,
    /// What policies in shadow would have denied, of those that have.
    shadowed: BTreeMap<Box<str>, u64>,
    quotas: Vec<PolicyQuotas>,
    /// The keys that are being denied, most often first.
    denied: serde_json::Value,
    store_up: Option<bool>,
    stats: Stats,
}

/// The quotas of an active policy.
#[derive(Serialize)]
struct PolicyQuotas {
    policy: String,
    quotas: Vec<String>,
}

impl Snapshot {
    fn of(app: &App, families: &[Family]) -> Self {
        let up = families.iter().find(|family| family.name == "polylimit_store_up");
        let up = up.and_then(|family| family.samples.first()).map(|sample| &sample.value);
        let quotas = app.limiter.policies().into_iter().filter(|policy| !policy.name().contains('~'));
        let quotas = quotas.map(|policy| PolicyQuotas {
            policy: policy.name().to_owned(),
            quotas: policy.quotas().iter().map(ToString::to_string).collect(),
        });
        let denied = app.traffic.denied().into_iter();
        let denied = denied.map(|DeniedNow { denied, since_ms, .. }| DeniedReport { denied, since_ms });
        Self {
            at_ms: now_ms(),
            policies: by_policy(&app.limiter),
            shadowed: shadowed(families),
            denied: shown_value(app, &denied.collect::<Vec<_>>()),
            quotas: quotas.collect(),
            store_up: up.map(|value| *value == SampleValue::Number(1.0)),
            stats: app.limiter.stats(),
        }
    }
}

/// A key that is being denied.
#[derive(Serialize)]
struct DeniedReport {
    #[serde(flatten)]
    denied: TopKey,
    since_ms: u64,
}

fn shadowed(families: &[Family]) -> BTreeMap<Box<str>, u64> {
    let samples = families.iter().filter(|family| family.name == "polylimit_shadowed_total");
    let counted = samples.flat_map(|family| &family.samples).filter_map(|sample| match sample.value {
        SampleValue::Count(count) if count > 0 => Some((sample.labels.first()?.1.clone(), count)),
        _ => None,
    });
    counted.collect()
}

/// Whether the store decides.
#[derive(Serialize)]
struct StoreEvent {
    up: bool,
}

/// What was sent about the configuration.
#[derive(PartialEq)]
enum Sent {
    Nothing,
    Configuration(Option<ConfigurationStatus>),
}

/// What one listener has heard.
struct Listener {
    app: Arc<App>,
    ticks: Interval,
    pending: VecDeque<Bytes>,
    /// The last one that was sent; `Sent::Nothing` at first.
    configuration: Sent,
    store_up: Option<bool>,
    point_at_ms: Option<u64>,
    _place: Place,
}

/// One of the listeners that there may be.
struct Place(Arc<App>);

impl Place {
    fn take(app: &Arc<App>) -> Option<Self> {
        let place = app.listeners.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let taken = Self(Arc::clone(app));
        (place < LISTENERS).then_some(taken)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.listeners.fetch_sub(1, std::sync::atomic::Ordering::Relaxed);
    }
}

pub(super) async fn events(State(app): Shared) -> Response<Body> {
    let Some(place) = Place::take(&app) else {
        let detail = format!("there are {LISTENERS} listeners already: end one of them");
        return refuse(StatusCode::SERVICE_UNAVAILABLE, "too_many_listeners", &detail);
    };
    let listener = Listener {
        point_at_ms: app.traffic.newest().map(|point| point.at_ms),
        app,
        ticks: ticks(PAUSE),
        pending: VecDeque::new(),
        configuration: Sent::Nothing,
        store_up: None,
        _place: place,
    };
    let events = stream::unfold(listener, |mut listener| async move {
        let event = listener.next().await?;
        Some((Ok::<_, Infallible>(event), listener))
    });
    let body = Body::from_stream(events);
    let mut response = with_body(StatusCode::OK, HeaderValue::from_static("text/event-stream"), body);
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

impl Listener {
    /// The next event; `None` once the server stops, so that the connection can end.
    async fn next(&mut self) -> Option<Bytes> {
        while self.pending.is_empty() {
            self.ticks.tick().await;
            if self.app.is_stopping() {
                return None;
            }
            self.look();
        }
        self.pending.pop_front()
    }

    fn look(&mut self) {
        let configuration = self.app.limiter.admin().configuration();
        // For how long the source is unreachable changes all the time.
        let known = configuration.clone().map(|mut status| {
            status.unreachable_for_us = u64::from(status.unreachable_for_us > 0);
            status
        });
        let known = Sent::Configuration(known);
        if self.configuration != known {
            self.push("configuration", &configuration);
            self.configuration = known;
        }
        let families = self.app.limiter.metrics();
        let snapshot = Snapshot::of(&self.app, &families);
        if self.store_up != snapshot.store_up {
            self.store_up = snapshot.store_up;
            self.push("store", &StoreEvent { up: snapshot.store_up.unwrap_or(false) });
        }
        if let Some(point) = self.app.traffic.newest().filter(|point| Some(point.at_ms) != self.point_at_ms) {
            self.point_at_ms = Some(point.at_ms);
            self.push("point", &*point);
        }
        self.push("snapshot", &snapshot);
    }

    fn push(&mut self, event: &str, value: &impl Serialize) {
        if let Ok(data) = serde_json::to_string(value) {
            self.pending.push_back(format!("event: {event}\ndata: {data}\n\n").into());
        }
    }
}
