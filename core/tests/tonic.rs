//! The tower layer in front of servers of tonic, oldest and newest version, with a generated service: `grpc.health.v1.Health`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "an operation that fails has to fail the test"
)]

use std::net::SocketAddr;
use std::time::Duration;

use polylimit::clock::ManualClock;
use polylimit::storage::Outage;
use polylimit::{Limiter, Policy};

const ROUTE: &str = "/grpc.health.v1.Health/Check";
/// How long a call may take on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A limiter whose clock stands still.
fn limiter(quotas: &str) -> Limiter {
    let policy = Policy::parse("api", quotas).unwrap();
    Limiter::builder().policy(policy).clock(ManualClock::new(1_789_948_800_000_000).unwrap()).build().unwrap()
}

fn document() -> Limiter {
    let document = r#"
        polylimit = 1
        client = { trust = ["loopback"], header = "x-forwarded-for" }
        [policies.checks]
        quotas = "1/hour fixed_window"
        [policies.tenants]
        quotas = "1/hour fixed_window"
        [[rules]]
        match = { route = "/grpc.health.v1.Health/Check", header.x-plan = "*" }
        apply = [{ policy = "checks", key = "{account}", missing = "deny" }]
        [[rules]]
        match = { method = "POST", path = "/grpc.health.v1.Health/Check", header.x-tenant = "*" }
        apply = [{ policy = "tenants", key = "{header.x-tenant}" }]
        [[rules]]
        match = { path = "/grpc.health.v1.Health/Check" }
        apply = [{ policy = "checks", key = "{client}" }]
        [lists]
        deny = ["client 192.0.2.66"]
    "#;
    Limiter::builder().document(document).build().unwrap()
}

/// A limiter whose store is out of reach: nothing listens on port 1.
#[cfg(feature = "redis")]
fn unreachable(outage: Outage) -> Limiter {
    let policy = Policy::parse("api", "1/hour fixed_window").unwrap();
    let builder = Limiter::builder().store("redis://127.0.0.1:1?doctor_after=0").policy(policy);
    builder.outage("api", outage).build().unwrap()
}

macro_rules! tests_with {
    ($module:ident, $tonic:ident, $health:ident, $body:ty) => {
        mod $module {
            use http::request::Parts;
            use polylimit::http::ClientAddressRules;
            use polylimit::http::guard::{KeyPart, MissingKey};
            use polylimit::http::tower::{OnOutage, RateLimitBuilder, RateLimitLayer, client_address};
            use tokio::net::TcpListener;
            use tonic_types::StatusExt as _;
            use $health::pb::HealthCheckRequest;
            use $health::pb::health_client::HealthClient;
            use $health::server::health_reporter;
            use $tonic::metadata::MetadataMap;
            use $tonic::service::Routes;
            use $tonic::transport::server::TcpConnectInfo;
            use $tonic::transport::{Channel, Server};
            use $tonic::{Code, Request, Status};

            use super::*;

            fn peer(request: &Parts) -> Option<std::net::IpAddr> {
                Some(request.extensions.get::<TcpConnectInfo>()?.remote_addr()?.ip())
            }

            fn limit<B>(limiter: Limiter) -> RateLimitBuilder<B> {
                let rules = ClientAddressRules::builder().build().unwrap();
                RateLimitLayer::builder(limiter, client_address(rules, peer))
            }

            /// Starts a server behind a layer, and returns a client.
            async fn serve(layer: RateLimitLayer<$body>) -> HealthClient<Channel> {
                connected(|routes, address| {
                    tokio::spawn(Server::builder().layer(layer).add_routes(routes).serve(address));
                })
                .await
            }

            /// A client of the server that this function starts.
            async fn connected(start: impl FnOnce(Routes, SocketAddr)) -> HealthClient<Channel> {
                let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
                let address = listener.local_addr().unwrap();
                drop(listener);
                let (_reporter, service) = health_reporter();
                start(Routes::new(service), address);
                let endpoint = Channel::from_shared(format!("http://{address}")).unwrap().timeout(PATIENCE);
                for _ in 0..2_000 {
                    if let Ok(channel) = endpoint.connect().await {
                        return HealthClient::new(channel);
                    }
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
                panic!("the server at {address} accepts no connection");
            }

            /// Makes a call with these metadata, and returns those of the response.
            async fn check(
                client: &HealthClient<Channel>,
                metadata: &[(&'static str, &'static str)],
            ) -> Result<MetadataMap, Status> {
                let mut request = Request::new(HealthCheckRequest { service: String::new() });
                for (name, value) in metadata {
                    request.metadata_mut().insert(*name, value.parse().unwrap());
                }
                Ok(client.clone().check(request).await?.metadata().clone())
            }

            async fn code(client: &HealthClient<Channel>, metadata: &[(&'static str, &'static str)]) -> Code {
                check(client, metadata).await.err().map_or(Code::Ok, |status| status.code())
            }

            fn field<'a>(metadata: &'a MetadataMap, name: &str) -> Option<&'a str> {
                metadata.get(name).map(|value| value.to_str().unwrap())
            }

            /// The status, as the newest version reads its details.
            fn detailed(status: &Status) -> tonic::Status {
                let details = status.details().to_vec().into();
                tonic::Status::with_details(
                    tonic::Code::from(status.code() as i32),
                    status.message(),
                    details,
                )
            }

            #[tokio::test]
            async fn denial_has_code_details_and_fields() {
                let policies = ["1/hour fixed_window", "5/day fixed_window"];
                let layer = limit(limiter("9/s")).policies(policies).build().unwrap();
                let client = serve(layer).await;
                let admitted = check(&client, &[]).await.unwrap();
                assert!(field(&admitted, "ratelimit").unwrap().contains(";r=4;t=86400"), "{admitted:?}");
                let denied = check(&client, &[]).await.unwrap_err();
                assert_eq!(denied.code(), Code::ResourceExhausted);
                assert_eq!(denied.message(), "Not enough of the quota is left: retry in 3600 s.");
                assert_eq!(field(denied.metadata(), "retry-after"), Some("3600"));
                let status = detailed(&denied);
                let info = status.get_details_retry_info().unwrap();
                assert_eq!(info.retry_delay, Some(Duration::from_secs(3_600)));
                let failure = status.get_details_quota_failure().unwrap();
                assert_eq!(failure.violations.len(), 1, "{failure:?}");
                assert_eq!(failure.violations[0].subject, "1|hour+fixed_window");
                assert_eq!(failure.violations[0].description, denied.message());
            }

            #[tokio::test]
            async fn retry_info_is_exact_and_absent_where_no_wait_helps() {
                let cost = |request: &Parts| if request.headers.contains_key("x-large") { 2 } else { 1 };
                let layer = limit(limiter("4/s token_bucket burst=1")).cost_of(cost).build().unwrap();
                let client = serve(layer).await;
                check(&client, &[]).await.unwrap();
                let status = detailed(&check(&client, &[]).await.unwrap_err());
                let delay = status.get_details_retry_info().unwrap().retry_delay;
                assert_eq!(delay, Some(Duration::from_millis(250)));
                let status = detailed(&check(&client, &[("x-large", "1")]).await.unwrap_err());
                assert!(status.get_details_retry_info().is_none());
                assert!(status.get_details_quota_failure().is_some());
            }

            #[tokio::test]
            async fn stream_holds_its_slot_until_it_ends() {
                let client = serve(limit(limiter("1 concurrent")).build().unwrap()).await;
                let watch = || async {
                    let request = HealthCheckRequest { service: String::new() };
                    client.clone().watch(request).await
                };
                let mut first = watch().await.unwrap().into_inner();
                assert!(first.message().await.unwrap().is_some());
                assert_eq!(watch().await.unwrap_err().code(), Code::ResourceExhausted);
                drop(first);
                for _ in 0..6_000 {
                    if watch().await.is_ok() {
                        return;
                    }
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                panic!("the slot is still taken");
            }

            #[tokio::test]
            async fn document_decides_by_method_metadata_and_client() {
                let route = |request: &Parts| (request.uri.path() == ROUTE).then(|| ROUTE.to_owned());
                let layer = RateLimitLayer::by_configuration(document(), peer).route(route).build().unwrap();
                let client = serve(layer).await;
                for address in ["192.0.2.1", "192.0.2.2"] {
                    assert_eq!(code(&client, &[("x-forwarded-for", address)]).await, Code::Ok);
                    assert_eq!(code(&client, &[("x-forwarded-for", address)]).await, Code::ResourceExhausted);
                }
                let tenant = [("x-tenant", "acme"), ("x-forwarded-for", "192.0.2.3")];
                assert_eq!(code(&client, &tenant).await, Code::Ok);
                assert_eq!(code(&client, &tenant).await, Code::ResourceExhausted);
                assert_eq!(code(&client, &[("x-forwarded-for", "192.0.2.66")]).await, Code::PermissionDenied);
                let without_account = [("x-plan", "free"), ("x-forwarded-for", "192.0.2.4")];
                assert_eq!(code(&client, &without_account).await, Code::InvalidArgument);
            }

            #[tokio::test]
            async fn call_without_a_key_is_invalid() {
                let part = KeyPart::Header("x-tenant".to_owned());
                let layer = limit(limiter("9/s")).key_part(part).missing_key(MissingKey::Refuse).build();
                let client = serve(layer.unwrap()).await;
                assert_eq!(code(&client, &[]).await, Code::InvalidArgument);
                assert_eq!(code(&client, &[("x-tenant", "acme")]).await, Code::Ok);
            }

            #[tokio::test]
            async fn error_of_the_program_is_internal() {
                let layer = limit(limiter("9/s")).cost_of(|_| u64::MAX).build().unwrap();
                let status = check(&serve(layer).await, &[]).await.unwrap_err();
                assert_eq!(
                    (status.code(), status.message()),
                    (Code::Internal, "The call cannot be counted.")
                );
            }

            #[tokio::test]
            async fn denial_by_an_inner_layer_refunds_the_outer_one() {
                let (outer, inner) = (limiter("5/hour fixed_window"), limiter("1/hour fixed_window"));
                let layers = (limit(outer.clone()).build().unwrap(), limit(inner).build().unwrap());
                let client = connected(|routes, address| {
                    // The layer that is added first is the outer one.
                    let server = Server::builder().layer(layers.0).layer(layers.1);
                    tokio::spawn({ server }.add_routes(routes).serve(address));
                });
                let client = client.await;
                for expected in [Code::Ok, Code::ResourceExhausted, Code::ResourceExhausted] {
                    assert_eq!(code(&client, &[]).await, expected);
                }
                let left = outer.peek(polylimit::Request::new("127.0.0.1")).await.unwrap();
                assert_eq!(left.remaining(), 4);
            }

            #[tokio::test]
            async fn count_sees_the_status_of_the_call() {
                let limiter = limiter("1/hour fixed_window");
                let not_found =
                    |response: &http::response::Parts| response.headers.get("grpc-status").is_some();
                let client = serve(limit(limiter).count(not_found).build().unwrap()).await;
                for _ in 0..2 {
                    assert_eq!(code(&client, &[]).await, Code::Ok);
                }
                let unknown = || async {
                    let request = HealthCheckRequest { service: "unknown".to_owned() };
                    client.clone().check(request).await.unwrap_err().code()
                };
                assert_eq!(unknown().await, Code::NotFound);
                assert_eq!(unknown().await, Code::ResourceExhausted);
            }

            #[cfg(feature = "redis")]
            #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
            async fn outage_policy_decides_without_the_store() {
                for (outage, expected) in [
                    (Outage::Allow, [Code::Ok, Code::Ok]),
                    (Outage::Deny, [Code::Unavailable, Code::Unavailable]),
                    (Outage::Fallback, [Code::Ok, Code::ResourceExhausted]),
                ] {
                    let layer = limit(unreachable(outage)).on_outage(|_, _| OnOutage::ByPolicy).build();
                    let client = serve(layer.unwrap()).await;
                    for expected in expected {
                        assert_eq!(code(&client, &[]).await, expected, "{outage:?}");
                    }
                }
            }
        }
    };
}

tests_with!(oldest, tonic_oldest, tonic_health_oldest, tonic_oldest::body::BoxBody);
tests_with!(newest, tonic, tonic_health, tonic::body::Body);
