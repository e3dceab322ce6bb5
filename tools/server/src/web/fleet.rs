//! What all processes that share the store of this server have reported about themselves.

use axum::body::Body;
use axum::extract::State;
use http::header::HeaderValue;
use http::{Response, StatusCode};
use polylimit::admin::{ProcessReport, top_denied};
use polylimit::metrics::{Family, FamilyKind, SampleValue, TextFormat};
use serde::Serialize;

use crate::web::query::Shared;
use crate::web::refusal::{of_error, with_body};
use crate::web::shown::shown;

/// How many keys are named that the fleet denies most often.
const KEYS: usize = 32;

/// The processes, and the keys that they deny most often together.
#[derive(Serialize)]
struct FleetReport<'a> {
    processes: &'a [ProcessReport],
    denied: Vec<polylimit::admin::DeniedKey>,
}

pub(super) async fn processes(State(app): Shared) -> Response<Body> {
    match app.limiter.admin().fleet().await {
        Ok(processes) => {
            shown(&app, &FleetReport { denied: top_denied(&processes, KEYS), processes: &processes })
        }
        Err(error) => of_error(&error),
    }
}

/// The counts of every process under its name, so that one that starts again is no drop of a sum.
pub(super) async fn metrics(State(app): Shared) -> Response<Body> {
    match app.limiter.admin().fleet().await {
        Ok(processes) => {
            let format = TextFormat::Prometheus;
            let content_type = HeaderValue::from_static(format.content_type());
            with_body(StatusCode::OK, content_type, format.write(&families(&processes)))
        }
        Err(error) => of_error(&error),
    }
}

fn families(processes: &[ProcessReport]) -> Vec<Family> {
    let mut decisions = Family::new(
        "polylimit_fleet_decisions_total",
        FamilyKind::Counter,
        "Decisions of a process that reports, of the policies that decide most there.",
    );
    let mut outage = Family::new(
        "polylimit_fleet_outage_decisions_total",
        FamilyKind::Counter,
        "How many of them the outage policies have made.",
    );
    let gauge = |name, help| Family::new(name, FamilyKind::Gauge, help);
    let mut up = gauge("polylimit_fleet_store_up", "Whether the store answers a process: 1 or 0.");
    let mut version = gauge("polylimit_fleet_policies_version", "The version of the active configuration.");
    let mut reported = gauge("polylimit_fleet_reported_seconds", "When a process has reported, since 1970.");
    for process in processes {
        let (instance, host) = (("process", &*process.instance), ("host", &*process.host));
        for counts in &process.policies {
            let policy = ("policy", &*counts.policy);
            for (result, count) in [("allowed", counts.allowed), ("denied", counts.denied)] {
                decisions.add([instance, host, policy, ("result", result)], SampleValue::Count(count));
            }
            outage.add([instance, host, policy], SampleValue::Count(counts.outage));
        }
        up.add([instance, host], SampleValue::Number(if process.store_up { 1.0 } else { 0.0 }));
        version.add([instance, host], number(process.configuration_version));
        reported.add([instance, host], number(process.at_ms / 1_000));
    }
    vec![decisions, outage, up, version, reported]
}

#[expect(clippy::cast_precision_loss, reason = "versions and seconds are exact up to 2^53")]
fn number(count: u64) -> SampleValue {
    SampleValue::Number(count as f64)
}
