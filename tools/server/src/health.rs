//! gRPC's service of health: a server serves once it is ready, and until it stops.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use futures_util::Stream;
use futures_util::stream::unfold;
use http::{Request, Response};
use tokio::time::timeout;
use tonic::Status;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_server::{Health, HealthServer};
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};
use tower_service::Service;

use crate::app::App;
use crate::life::Stage;
use crate::{grpc, rls};

/// The calls of the service.
pub(crate) const PATHS: [&str; 2] = ["/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/Watch"];
/// How often a caller that watches is notified of a change.
const WATCHED_EVERY: Duration = Duration::from_secs(1);

/// Answers a call of the service.
pub(crate) async fn answer(State(app): State<Arc<App>>, request: Request<Body>) -> Response<Body> {
    let request = match grpc::whole(&app, request).await {
        Ok(request) => request,
        Err(response) => return response,
    };
    let most = app.options.limits.key;
    let mut server = HealthServer::new(Readiness { app }).max_decoding_message_size(most);
    match server.call(request).await {
        Ok(response) => response.map(Body::new),
        Err(never) => match never {},
    }
}

struct Readiness {
    app: Arc<App>,
}

async fn serving(app: &App) -> ServingStatus {
    if app.check_ready().await.is_none() { ServingStatus::Serving } else { ServingStatus::NotServing }
}

fn response(status: ServingStatus) -> HealthCheckResponse {
    HealthCheckResponse { status: status.into() }
}

/// Whether the server has the service; no name means the server itself.
fn is_served(name: &str) -> bool {
    name.is_empty() || rls::SERVICES.contains(&name)
}

#[tonic::async_trait]
impl Health for Readiness {
    type WatchStream = Pin<Box<dyn Stream<Item = Result<HealthCheckResponse, Status>> + Send>>;

    async fn check(
        &self,
        request: tonic::Request<HealthCheckRequest>,
    ) -> Result<tonic::Response<HealthCheckResponse>, Status> {
        if !is_served(&request.get_ref().service) {
            return Err(Status::not_found(format!(
                "there is no such service: ask for one of {}",
                rls::SERVICES.join(", ")
            )));
        }
        Ok(tonic::Response::new(response(serving(&self.app).await)))
    }

    /// Sends the status, and each change of it. The stream ends when the server stops, which would wait for it.
    async fn watch(
        &self,
        request: tonic::Request<HealthCheckRequest>,
    ) -> Result<tonic::Response<Self::WatchStream>, Status> {
        let is_served = is_served(&request.get_ref().service);
        let changes = unfold(Some((Arc::clone(&self.app), None)), move |state| async move {
            let (app, told): (Arc<App>, Option<ServingStatus>) = state?;
            let mut life = app.life.follow();
            loop {
                let status = if is_served { serving(&app).await } else { ServingStatus::ServiceUnknown };
                let is_stopping = life.has_reached(Stage::Draining);
                if told != Some(status) {
                    let next = (!is_stopping).then_some((app, Some(status)));
                    return Some((Ok(response(status)), next));
                }
                if is_stopping {
                    return None;
                }
                let _ = timeout(WATCHED_EVERY, life.reach(Stage::Draining)).await;
            }
        });
        Ok(tonic::Response::new(Box::pin(changes)))
    }
}
