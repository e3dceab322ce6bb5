//! Kuadrant's calls that hold units while a request is under way: `Reserve` before it, and `Commit` once its usage is known. RFC 0021 of
//! Kuadrant, "Token Rate Limit Reservations", describes them.

use std::time::Duration;

use futures_util::future::join_all;
use polylimit::raw::{Answer, ReservationTerms};
use polylimit::reservation::ReservationId;
use polylimit::{Decision, Request};
use tonic::Status;

use crate::access::Identity;
use crate::app::App;
use crate::rls::decision::{Application, Outcome, are_denied, matched, status_of};
use crate::rls::descriptor::{Descriptor, Hits};
use crate::rls::kuadrant::{CommitRequest, CommitResponse, ReserveRequest, ReserveResponse};
use crate::rls::messages::{Code, RateLimitDescriptor};

/// How long units are held where a call does not say.
const DEFAULT_TTL: Duration = Duration::from_secs(60);
/// How long a repeated `Commit` charges nothing.
const REMEMBERED: Duration = Duration::from_secs(60);

/// Holds this amount under each policy of each descriptor, or nothing.
pub(super) async fn reserve(
    app: &App,
    caller: Option<&Identity>,
    request: &ReserveRequest,
) -> Result<ReserveResponse, Status> {
    let terms = ReservationTerms {
        id: ReservationId::random().map_err(|error| status_of(&error))?,
        ttl: ttl_of(request.ttl.as_ref())?,
        timeout: Duration::ZERO,
        remember: REMEMBERED,
    };
    // An amount of 0 asks whether anything is left, and a quota of concurrency counts the request whatever its amount is.
    let hits = checked("amount", request.amount)?.max(1);
    let mut outcome = find(app, caller, &request.domain, &request.descriptors, hits).await?;
    outcome.is_denied = outcome.decided.iter().any(|(_, decided)| !decided.allowed);
    if !outcome.is_denied {
        hold(app, &mut outcome, &terms).await?;
    }
    let code = if outcome.is_denied { Code::OverLimit } else { Code::Ok };
    let reservation_id = if outcome.is_denied { String::new() } else { terms.id.to_string() };
    Ok(ReserveResponse { code: code.into(), reservation_id })
}

/// Reserves under all policies in one step. A denial in quota mode decides only together with others, so these are asked one by one, and
/// end again where the request is denied.
async fn hold(app: &App, outcome: &mut Outcome, terms: &ReservationTerms) -> Result<(), Status> {
    let applications = &mut outcome.applications;
    applications.sort_by_key(|application| application.is_in_quota_mode);
    let together = applications.iter().take_while(|application| !application.is_in_quota_mode).count();
    let mut failed = Ok(());
    let (first, others) = applications.split_at_mut(together);
    for asked in std::iter::once(first).chain(others.chunks_mut(1)).filter(|asked| !asked.is_empty()) {
        let requests: Vec<_> = asked.iter().map(|application| application.request().reserved()).collect();
        match app.limiter.reserve_together(&requests, terms).await {
            Ok(decisions) => {
                for (application, decision) in asked.iter_mut().zip(decisions) {
                    application.answer = Some(Answer::Decision(decision));
                }
            }
            Err(error) => failed = Err(status_of(&error)),
        }
    }
    outcome.is_denied = are_denied(applications);
    if failed.is_err() || outcome.is_denied {
        let is_held = |one: &&Application| one.decision().is_some_and(Decision::allowed);
        let held = applications.iter().filter(is_held);
        // What cannot be ended now ends by itself.
        join_all(held.map(|application| app.limiter.cancel(application.request(), terms.id))).await;
    }
    failed
}

/// Ends what `Reserve` has held and charges the actual amount, whether it fits or not. What is no longer held is charged as `Report` does.
pub(super) async fn commit(
    app: &App,
    caller: Option<&Identity>,
    request: &CommitRequest,
) -> Result<CommitResponse, Status> {
    let hits = checked("actual_amount", request.actual_amount)?;
    let id = match &*request.reservation_id {
        "" => None,
        id => Some(ReservationId::new(id).map_err(|error| status_of(&error))?),
    };
    let outcome = find(app, caller, &request.domain, &request.descriptors, hits).await?;
    // An error under one policy keeps none of the others from being charged.
    let ended = join_all(outcome.applications.iter().map(|application| end(app, application, id))).await;
    let were_held = ended.into_iter().collect::<Result<Vec<bool>, Status>>()?;
    Ok(CommitResponse { reservation_released: were_held.contains(&true) })
}

/// Charges what was used under a policy; returns whether units were held for it.
async fn end(app: &App, application: &Application, id: Option<ReservationId>) -> Result<bool, Status> {
    let request = application.request();
    if let Some(id) = id {
        let committed = app.limiter.commit(request, id, Some(application.units)).await;
        let committed = committed.map_err(|error| status_of(&error))?;
        if committed.found() || committed.repeated() {
            return Ok(committed.found());
        }
    }
    if application.units > 0 && !application.effective_policy.is_only_reserved() {
        let _ = app.limiter.charge(request).await.map_err(|error| status_of(&error))?;
    }
    Ok(false)
}

/// The policies of each descriptor. Hits of the descriptors themselves do not count.
async fn find(
    app: &App,
    caller: Option<&Identity>,
    domain: &str,
    descriptors: &[RateLimitDescriptor],
    hits: u64,
) -> Result<Outcome, Status> {
    let mut descriptors = Descriptor::read_all(app, domain, descriptors, hits)?;
    for descriptor in &mut descriptors {
        descriptor.hits = Hits::Spend(hits);
    }
    let mut outcome = matched(app, caller, &descriptors).await?;
    outcome.applications = merged(outcome.applications)?;
    Ok(outcome)
}

/// One application for each key of a policy: two descriptors with the same key hold under one id, which is committed once.
fn merged(applications: Vec<Application>) -> Result<Vec<Application>, Status> {
    let mut merged: Vec<Application> = Vec::with_capacity(applications.len());
    for application in applications {
        let same =
            merged.iter_mut().find(|one| one.policy == application.policy && one.key == application.key);
        let Some(same) = same else {
            merged.push(application);
            continue;
        };
        same.units =
            checked("the cost of the hits under one key", same.units.saturating_add(application.units))?;
        same.is_in_quota_mode &= application.is_in_quota_mode;
    }
    Ok(merged)
}

fn checked(name: &str, amount: u64) -> Result<u64, Status> {
    if amount > Request::MAX_COST {
        let most = Request::MAX_COST;
        return Err(Status::invalid_argument(format!("{name} is {amount}: allowed is 0 to {most}")));
    }
    Ok(amount)
}

fn ttl_of(sent: Option<&prost_types::Duration>) -> Result<Duration, Status> {
    let Some(sent) = sent else { return Ok(DEFAULT_TTL) };
    Duration::try_from(*sent).map_err(|_| {
        Status::invalid_argument(format!(
            "ttl is {} s and {} ns: allowed is 1 ms to 48 h",
            sent.seconds, sent.nanos
        ))
    })
}
