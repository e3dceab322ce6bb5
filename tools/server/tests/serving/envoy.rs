//! Envoy's rate limit service, asked with a client of tonic.

use std::collections::BTreeMap;
use std::time::Duration;

use polylimit::Limiter;
use polylimit::clock::ManualClock;
use polylimit_server::ServerOptions;
use prost::Message;
use prost_types::Struct;
use prost_types::value::Kind;
use serde_json::json;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::Channel;
use tonic::{Code as GrpcCode, Request, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_prost::ProstCodec;

use crate::messages::{
    Code, DescriptorStatus, Entry, RateLimitDescriptor, RateLimitOverride, RateLimitRequest,
    RateLimitResponse, Unit,
};
use crate::security::with_tokens;
use crate::support::{Running, SOON};

const PATH: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
const SERVICE: &str = "envoy.service.ratelimit.v3.RateLimitService";
/// A time at which a minute begins.
const NOW_US: u64 = 1_789_948_800_000_000;

/// As `polylimit policies import` writes it, and a list.
const DOCUMENT: &str = r#"
polylimit = 1
[policies.path]
quotas = "5/minute fixed_window aligned"
[policies.user]
quotas = "2/hour fixed_window aligned; 100/30d"
[policies.other]
quotas = "3/minute"
[policies.tried]
quotas = "1/day"
mode = "shadow"
[policies."replaces.user"]
quotas = "0/second"
mode = "off"
[policies.quota_mode]
quotas = "0/second"
mode = "off"
[[rules]]
match = { domain = "shop", descriptor = "path" }
apply = [{ policy = "path", key = "{entry_path}" }]
[[rules]]
match = { domain = "shop", descriptor = "user" }
apply = [{ policy = "user", key = "{user}" }, { policy = "tried", key = "{user}" }]
[[rules]]
match = { domain = "shop", descriptor = "plan" }
apply = [{ policy = "replaces.user", key = "" }]
[[rules]]
match = { domain = "shop", descriptor = "team" }
apply = [{ policy = "other", key = "{team}" }, { policy = "quota_mode", key = "" }]
[policies.fleet]
quotas = "9/minute fixed_window"
[policies.guest]
quotas = "1/minute fixed_window"
elastic = { policy = "fleet", key = "all", counts = "elastic" }
[[rules]]
match = { domain = "shop", descriptor = "guest" }
apply = [{ policy = "guest", key = "{guest}" }]
[[rules]]
match = { domain = "shop", descriptor = "tenant" }
apply = [{ policy = "other", key = "t{tenant}", missing = "deny" }]
[policies.billed]
quotas = "2/month"
zone = "{zone}"
from = "{billing_day}"
[[rules]]
match = { domain = "shop", descriptor = "customer,zone,billing_day" }
apply = [{ policy = "billed", key = "{customer}" }]
[policies.tokens]
quotas = "1000/hour fixed_window"
[[rules]]
match = { domain = "shop", descriptor = "model" }
apply = [{ policy = "tokens", key = "{model}", spend = "always" }]
[lists]
deny = ["user mallory"]
"#;

fn served(set: impl FnOnce(&mut ServerOptions)) -> Running {
    let clock = ManualClock::new(NOW_US).unwrap();
    let limiter = Limiter::builder().document(DOCUMENT).clock(clock).build().unwrap();
    let mut options = ServerOptions::default();
    set(&mut options);
    Running::start(limiter, options)
}

fn descriptor(key: &str, value: &str) -> RateLimitDescriptor {
    let entries = vec![Entry { key: key.to_owned(), value: value.to_owned() }];
    RateLimitDescriptor { entries, ..RateLimitDescriptor::default() }
}

fn request(descriptors: &[RateLimitDescriptor]) -> RateLimitRequest {
    RateLimitRequest { domain: "shop".to_owned(), descriptors: descriptors.to_vec(), hits_addend: 0 }
}

/// Runs a client's work.
fn run<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(SOON, work).await.expect("an answer") })
}

async fn channel(server: &Running) -> Channel {
    let uri = format!("http://{}", server.address(0));
    Channel::from_shared(uri).unwrap().connect().await.unwrap()
}

async fn call(
    channel: Channel,
    message: RateLimitRequest,
    token: Option<&str>,
) -> Result<RateLimitResponse, Status> {
    let mut client = tonic::client::Grpc::new(channel);
    client.ready().await.unwrap();
    let mut request = Request::new(message);
    if let Some(token) = token {
        request.metadata_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
    }
    let path = PathAndQuery::from_static(PATH);
    let answer = client.unary(request, path, ProstCodec::default()).await;
    answer.map(tonic::Response::into_inner)
}

fn ask(server: &Running, message: RateLimitRequest) -> Result<RateLimitResponse, Status> {
    run(async { call(channel(server).await, message, None).await })
}

/// The overall code, and those of the descriptors.
fn codes(server: &Running, descriptors: &[RateLimitDescriptor]) -> (Code, Vec<Code>) {
    let response = ask(server, request(descriptors)).unwrap();
    (response.overall_code(), response.statuses.iter().map(DescriptorStatus::code).collect())
}

fn left(server: &Running, policy: &str, key: &str) -> u64 {
    let peeked = server.http().post("/v1/peek", &json!({ "policy": policy, "key": key }));
    peeked.json()["remaining"].as_u64().unwrap()
}

#[test]
fn response_tells_the_limit_the_wait_the_fields_and_the_problem() {
    let server = served(|_| ());
    let message = RateLimitRequest { hits_addend: 2, ..request(&[descriptor("user", "alice")]) };
    let admitted = ask(&server, message.clone()).unwrap();
    assert_eq!(admitted.overall_code(), Code::Ok);
    let status = &admitted.statuses[0];
    let limit = status.current_limit.as_ref().unwrap();
    assert_eq!((&*limit.name, limit.requests_per_unit, limit.unit()), ("user", 2, Unit::Hour));
    let reset = status.duration_until_reset.unwrap();
    assert_eq!((status.limit_remaining, reset.seconds, reset.nanos), (0, 3_600, 0));
    assert!(admitted.raw_body.is_empty());
    let header = |response: &RateLimitResponse, name: &str| {
        let found = response.response_headers_to_add.iter().find(|header| header.key == name);
        found.map(|header| header.value.clone())
    };
    let policies = r#""user:1";q=2;w=3600, "user:2";q=100;w=2592000"#;
    assert_eq!(header(&admitted, "ratelimit-policy").as_deref(), Some(policies));
    assert_eq!(header(&admitted, "retry-after"), None);

    let denied = ask(&server, message).unwrap();
    assert_eq!((denied.overall_code(), denied.statuses[0].code()), (Code::OverLimit, Code::OverLimit));
    assert_eq!(denied.statuses[0].duration_until_reset.unwrap().seconds, 3_600);
    assert_eq!(header(&denied, "retry-after").as_deref(), Some("3600"));
    assert_eq!(header(&denied, "content-type").as_deref(), Some("application/problem+json"));
    let problem: serde_json::Value = serde_json::from_slice(&denied.raw_body).unwrap();
    assert_eq!((&problem["status"], &problem["violated-policies"]), (&json!(429), &json!(["user:1"])));
    let metadata: BTreeMap<_, _> = Struct::decode(&*denied.dynamic_metadata).unwrap().fields;
    let text = |name: &str| match metadata[name].kind.as_ref() {
        Some(Kind::StringValue(text)) => text.clone(),
        other => format!("{other:?}"),
    };
    assert_eq!(
        [text("policy"), text("quota"), text("source"), text("cause")],
        ["user", "2/hour fixed_window aligned", "store", "quota"]
    );
    assert!(text("degraded").contains("NullValue"));
    // The policy in shadow would have denied both requests, which cost more than it ever admits.
    assert!(text("shadow").contains("tried"), "{metadata:?}");
}

#[test]
fn denial_of_one_descriptor_spends_nothing_for_any() {
    for (count_all, expected) in [(false, 4), (true, 3)] {
        let server = served(|options| options.rls.count_all = count_all);
        let both = [descriptor("user", "alice"), descriptor("path", "/")];
        let of_user = RateLimitRequest { hits_addend: 2, ..request(&both[..1]) };
        assert_eq!(ask(&server, of_user).unwrap().overall_code(), Code::Ok);
        assert_eq!(codes(&server, &both[1..]), (Code::Ok, vec![Code::Ok]));
        assert_eq!(codes(&server, &both), (Code::OverLimit, vec![Code::OverLimit, Code::Ok]));
        assert_eq!(left(&server, "path", "/"), expected, "{count_all}");
        assert_eq!(left(&server, "user", "alice"), 0);
        // What was denied is counted, too, if everything is: a refund of two units shows it.
        let back = RateLimitDescriptor {
            hits_addend: Some(2),
            is_negative_hits: true,
            ..descriptor("user", "alice")
        };
        assert_eq!(codes(&server, &[back]).0, Code::Ok);
        assert_eq!(left(&server, "user", "alice"), if count_all { 1 } else { 2 });
    }
}

/// One step of the store decides: nothing is spent and given back, neither of a policy nor of a pool.
#[test]
fn denied_request_gives_nothing_back() {
    let server = served(|_| ());
    let user = descriptor("user", "alice");
    let of_user = RateLimitRequest { hits_addend: 2, ..request(std::slice::from_ref(&user)) };
    assert_eq!(ask(&server, of_user).unwrap().overall_code(), Code::Ok);
    let all = [descriptor("guest", "bob"), descriptor("path", "/"), user];
    assert_eq!(codes(&server, &all[..1]), (Code::Ok, vec![Code::Ok]));
    assert_eq!(codes(&server, &all), (Code::OverLimit, vec![Code::Ok, Code::Ok, Code::OverLimit]));
    assert_eq!((left(&server, "fleet", "all"), left(&server, "path", "/")), (9, 5));
    assert_eq!(codes(&server, &all[..2]), (Code::Ok, vec![Code::Ok; 2]));
    assert_eq!((left(&server, "fleet", "all"), left(&server, "path", "/")), (8, 4));
    let metrics = server.admin().get("/metrics").body;
    let of_path =
        |operation| format!(r#"polylimit_operations_total{{policy="path",operation="{operation}"}}"#);
    assert!(metrics.contains(&of_path("check")), "{metrics}");
    assert!(
        !metrics.contains(&of_path("refund")) || metrics.contains(&format!("{} 0", of_path("refund"))),
        "{metrics}"
    );
}

#[test]
fn hits_of_a_descriptor_come_before_those_of_the_request() {
    let server = served(|_| ());
    let hits = |hits: Option<u64>, is_negative_hits: bool| {
        let own = RateLimitDescriptor { hits_addend: hits, is_negative_hits, ..descriptor("path", "/a") };
        let response = ask(&server, RateLimitRequest { hits_addend: 2, ..request(&[own]) }).unwrap();
        (response.overall_code(), response.statuses[0].limit_remaining)
    };
    assert_eq!(hits(None, false), (Code::Ok, 3));
    assert_eq!(hits(Some(0), false), (Code::Ok, 3));
    assert_eq!(hits(Some(3), false), (Code::Ok, 0));
    assert_eq!(hits(Some(0), false), (Code::OverLimit, 0));
    assert_eq!(hits(Some(1), true), (Code::Ok, 1));
    assert_eq!(hits(None, true), (Code::Ok, 3));
    assert_eq!(hits(Some(9), true), (Code::Ok, 5));
    assert_eq!(hits(Some(6), false), (Code::OverLimit, 5));
    // A request says nothing of it by 0.
    assert_eq!(ask(&server, request(&[descriptor("path", "/b")])).unwrap().statuses[0].limit_remaining, 4);
}

#[test]
fn limits_of_descriptors_count_only_where_the_options_say_so() {
    let limit = RateLimitOverride { requests_per_unit: 1, unit: Unit::Minute.into() };
    let own = |entry: &str| RateLimitDescriptor { limit: Some(limit), ..descriptor("path", entry) };
    let server = served(|_| ());
    assert_eq!(ask(&server, request(&[own("/")])).unwrap().statuses[0].limit_remaining, 4);
    let server = served(|options| options.rls.overrides = true);
    let first = ask(&server, request(&[own("/"), own("/|path")])).unwrap();
    let told = first.statuses[0].current_limit.as_ref().unwrap();
    assert_eq!((told.requests_per_unit, told.unit()), (1, Unit::Minute));
    assert_eq!((first.overall_code(), first.statuses[1].limit_remaining), (Code::Ok, 0));
    assert_eq!(codes(&server, &[own("/")]).0, Code::OverLimit);
    assert_eq!(left(&server, "path", "/"), 5);
    let without_unit = RateLimitOverride { requests_per_unit: 1, unit: 0 };
    let bad = RateLimitDescriptor { limit: Some(without_unit), ..descriptor("path", "/") };
    assert_eq!(ask(&server, request(&[bad])).unwrap_err().code(), GrpcCode::InvalidArgument);
}

#[test]
fn entries_of_a_descriptor_have_the_billing_day_of_a_customer() {
    let server = served(|_| ());
    let entry = |key: &str, value: &str| Entry { key: key.to_owned(), value: value.to_owned() };
    let of = |zone: &str| {
        let entries = vec![entry("customer", "ann"), entry("zone", zone), entry("billing_day", "20")];
        RateLimitDescriptor { entries, ..RateLimitDescriptor::default() }
    };
    let status = || ask(&server, request(&[of("Asia/Tokyo")])).unwrap().statuses.remove(0);
    let first = status();
    let limit = first.current_limit.clone().unwrap();
    assert_eq!((limit.requests_per_unit, limit.unit()), (2, Unit::Month));
    // From 2026-09-21 09:00 in Tokyo to 20 October there.
    let to_october = (28 * 24 + 15) * 3_600;
    assert_eq!((first.limit_remaining, first.duration_until_reset.unwrap().seconds), (1, to_october));
    assert_eq!((status().code(), status().code()), (Code::Ok, Code::OverLimit));
    // What is given back goes to the same window.
    let back = RateLimitDescriptor { hits_addend: Some(1), is_negative_hits: true, ..of("Asia/Tokyo") };
    assert_eq!(ask(&server, request(&[back])).unwrap().statuses[0].limit_remaining, 1);
    assert_eq!((status().code(), status().code()), (Code::Ok, Code::OverLimit));
    let unknown = ask(&server, request(&[of("Asia/Tokio")])).unwrap_err();
    assert_eq!(unknown.code(), GrpcCode::InvalidArgument);
    assert!(unknown.message().contains("did you mean Asia/Tokyo?"), "{}", unknown.message());
}

/// What Envoy sends with `apply_on_stream_done`: a request with 0 hits before the model answers, and the tokens once it has.
#[test]
fn usage_that_is_reported_afterwards_is_spent_whether_it_fits_or_not() {
    let server = served(|_| ());
    let report = |hits: u64| {
        let sent = RateLimitDescriptor { hits_addend: Some(hits), ..descriptor("model", "gpt") };
        let status = ask(&server, request(&[sent])).unwrap().statuses.remove(0);
        (status.code(), status.limit_remaining)
    };
    assert_eq!(report(0), (Code::Ok, 1_000));
    assert_eq!(report(901), (Code::Ok, 99));
    assert_eq!(report(0), (Code::Ok, 99));
    for _ in 0..3 {
        assert_eq!(report(1_200), (Code::OverLimit, 0));
    }
    assert_eq!(report(0), (Code::OverLimit, 0));
    assert_eq!(left(&server, "tokens", "gpt"), 0);
    // 901 and three times 1,200 of which 5,000 are given back, so that 499 remain.
    let back = RateLimitDescriptor {
        hits_addend: Some(4_000),
        is_negative_hits: true,
        ..descriptor("model", "gpt")
    };
    assert_eq!(ask(&server, request(&[back])).unwrap().statuses[0].limit_remaining, 499);
}

#[test]
fn marks_of_an_import_are_honoured() {
    let server = served(|_| ());
    // A user with a plan is not counted as a user.
    let [user, plan] = [descriptor("user", "bob"), descriptor("plan", "gold")];
    for _ in 0..3 {
        assert_eq!(codes(&server, &[user.clone(), plan.clone()]).0, Code::Ok);
    }
    assert_eq!(left(&server, "user", "bob"), 2);
    // Descriptors in quota mode deny only together.
    let [a, b] = ["a", "b"].map(|name| descriptor("team", name));
    for _ in 0..3 {
        assert_eq!(codes(&server, std::slice::from_ref(&a)).0, Code::Ok);
    }
    assert_eq!(codes(&server, &[a.clone(), b.clone()]), (Code::Ok, vec![Code::OverLimit, Code::Ok]));
    assert_eq!(left(&server, "other", "b"), 2);
    let response = ask(&server, request(&[a.clone(), b.clone()])).unwrap();
    assert!(response.response_headers_to_add.iter().all(|header| header.key != "retry-after"));
    assert_eq!(codes(&server, &[a.clone(), b.clone()]).0, Code::Ok);
    assert_eq!(codes(&server, &[a.clone(), b.clone()]).0, Code::OverLimit);
    // One that denies by itself does so next to them, and gives back what they have spent.
    let [c, path] = [descriptor("team", "c"), descriptor("path", "/full")];
    let full = RateLimitRequest { hits_addend: 5, ..request(std::slice::from_ref(&path)) };
    assert_eq!(ask(&server, full).unwrap().overall_code(), Code::Ok);
    assert_eq!(codes(&server, &[c, path]), (Code::OverLimit, vec![Code::Ok, Code::OverLimit]));
    assert_eq!(left(&server, "other", "c"), 3);
}

#[test]
fn lists_and_missing_keys_deny_and_what_no_rule_matches_is_admitted() {
    let server = served(|_| ());
    let unknown = ask(&server, request(&[descriptor("nothing", "x")])).unwrap();
    assert_eq!((unknown.overall_code(), unknown.statuses[0].limit_remaining), (Code::Ok, u32::MAX));
    assert!(unknown.statuses[0].current_limit.is_none() && unknown.dynamic_metadata.is_empty());
    for denied in [descriptor("user", "mallory"), descriptor("tenant", "")] {
        let path = descriptor("path", "/listed");
        assert_eq!(codes(&server, &[path, denied]), (Code::OverLimit, vec![Code::Ok, Code::OverLimit]));
        assert_eq!(left(&server, "path", "/listed"), 5);
    }
}

#[test]
fn outage_policies_answer_and_no_call_fails() {
    for (outage, expected) in [("deny", Code::OverLimit), ("allow", Code::Ok)] {
        let nothing_listens = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let document = format!(
            "polylimit = 1\n[policies.p]\nquotas = \"5/minute\"\noutage = \"{outage}\"\n\
             [[rules]]\napply = [{{ policy = \"p\", key = \"{{user}}\" }}]\n"
        );
        let url = format!("redis://{nothing_listens}");
        let limiter = Limiter::builder().store(&url).document(&document).build().unwrap();
        let server = Running::start(limiter, ServerOptions::default());
        let response = ask(&server, request(&[descriptor("user", "a")])).unwrap();
        assert_eq!(response.overall_code(), expected);
        let metadata = Struct::decode(&*response.dynamic_metadata).unwrap();
        let source = Some(Kind::StringValue(outage.to_owned()));
        assert_eq!(metadata.fields["source"].kind, source);
        assert!(matches!(metadata.fields["degraded"].kind, Some(Kind::StringValue(_))));
        // Envoy answers with its own status, so there is no body that names another one.
        assert!(response.raw_body.is_empty());
    }
}

#[test]
fn what_is_wrong_or_too_large_is_refused() {
    let server = served(|options| options.limits.requests = 2);
    let of = |message: RateLimitRequest| ask(&server, message).unwrap_err();
    let one = descriptor("path", "/");
    let many = RateLimitDescriptor { entries: vec![one.entries[0].clone(); 65], ..one.clone() };
    for (message, about) in [
        (
            RateLimitRequest { domain: String::new(), ..request(std::slice::from_ref(&one)) },
            "domain is empty",
        ),
        (request(&[]), "no descriptor"),
        (request(&[RateLimitDescriptor::default()]), "no entry"),
        (request(&vec![one.clone(); 3]), "3 descriptors: allowed are up to 2"),
        (request(&[many]), "65 entries: allowed are up to 64"),
        (request(&[descriptor("path", &"x".repeat(5_000))]), "allowed are up to 4096"),
        (
            request(&[RateLimitDescriptor { hits_addend: Some(u64::MAX), ..one.clone() }]),
            "hits_addend is 18446744073709551615",
        ),
    ] {
        let status = of(message);
        assert_eq!(status.code(), GrpcCode::InvalidArgument);
        assert!(status.message().contains(about), "{about}: {}", status.message());
    }
    let large = request(&[descriptor("path", &"x".repeat(2 << 20))]);
    assert_eq!(of(large).code(), GrpcCode::ResourceExhausted);
    let without_document = Running::start(crate::support::limiter().0, ServerOptions::default());
    let status = ask(&without_document, request(&[one])).unwrap_err();
    assert_eq!(status.code(), GrpcCode::InvalidArgument, "{status:?}");
    let http = server.http().send("POST", PATH, &[("content-type", "application/json")], b"{}");
    assert_eq!(http.status, 415);
    let metrics = server.admin().get("/metrics").body;
    for line in [
        r#"polylimit_server_requests_total{protocol="grpc",code="INVALID_ARGUMENT"} 7"#,
        r#"polylimit_server_rejected_total{protocol="grpc",reason="too_large"} 4"#,
        r#"polylimit_server_request_duration_seconds_count{protocol="grpc",code="RESOURCE_EXHAUSTED"} 1"#,
    ] {
        assert!(metrics.contains(line), "{line} is not in\n{metrics}");
    }
}

#[test]
fn token_in_the_metadata_gives_the_role() {
    let folder = tempfile::tempdir().unwrap();
    let server = served(|options| options.tokens = with_tokens(folder.path()).tokens);
    let code = |token| {
        let message = request(&[descriptor("path", "/")]);
        run(async { call(channel(&server).await, message, token).await }).err().map(|status| status.code())
    };
    assert_eq!([code(None), code(Some("wrong"))], [Some(GrpcCode::Unauthenticated); 2]);
    assert_eq!([code(Some("check")), code(Some("admin"))], [None; 2]);
    // Health needs no token, as over HTTP.
    let health = run(async {
        let mut client = HealthClient::new(channel(&server).await);
        client.check(HealthCheckRequest { service: String::new() }).await
    });
    assert_eq!(health.unwrap().into_inner().status(), ServingStatus::Serving);
    let metrics = server.admin().send("GET", "/metrics", &[("authorization", "Bearer read")], b"").body;
    assert!(metrics.contains(r#"rejected_total{protocol="grpc",reason="unauthenticated"} 2"#), "{metrics}");
}

#[test]
fn health_follows_the_server_to_its_end() {
    let server = served(|_| ());
    run(async {
        let mut client = HealthClient::new(channel(&server).await);
        let check = |service: &str| HealthCheckRequest { service: service.to_owned() };
        for service in ["", SERVICE] {
            assert_eq!(
                client.check(check(service)).await.unwrap().into_inner().status(),
                ServingStatus::Serving
            );
        }
        assert_eq!(client.check(check("other")).await.unwrap_err().code(), GrpcCode::NotFound);
        let mut unknown = client.watch(check("other")).await.unwrap().into_inner();
        assert_eq!(unknown.message().await.unwrap().unwrap().status(), ServingStatus::ServiceUnknown);
        drop(unknown);
        let mut watched = client.watch(check(SERVICE)).await.unwrap().into_inner();
        assert_eq!(watched.message().await.unwrap().unwrap().status(), ServingStatus::Serving);
        server.handle.stop();
        assert_eq!(watched.message().await.unwrap().unwrap().status(), ServingStatus::NotServing);
        // The stream ends, so that the server can.
        assert!(watched.message().await.unwrap().is_none());
    });
    assert!(server.stop());
}

#[test]
fn call_that_has_begun_is_answered_after_the_stop() {
    let server = served(|_| ());
    run(async {
        let stream = tokio::net::TcpStream::connect(server.address(0)).await.unwrap();
        let (sender, connection) = h2::client::handshake(stream).await.unwrap();
        let connection = tokio::spawn(connection);
        let mut sender = sender.ready().await.unwrap();
        let head = http::Request::post(format!("http://limits{PATH}"))
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .body(())
            .unwrap();
        let (response, mut body) = sender.send_request(head, false).unwrap();
        let message = prost::Message::encode_to_vec(&request(&[descriptor("path", "/late")]));
        let length = u32::try_from(message.len()).unwrap().to_be_bytes();
        body.send_data([&[0][..], &length].concat().into(), false).unwrap();
        // The server has the head once it has answered a later request of the same connection.
        let probe = http::Request::get("http://limits/healthz").body(()).unwrap();
        assert_eq!(sender.send_request(probe, true).unwrap().0.await.unwrap().status(), 200);
        server.handle.stop();
        tokio::time::sleep(Duration::from_millis(100)).await;
        body.send_data(message.into(), true).unwrap();
        let mut answer = response.await.unwrap().into_body();
        let mut bytes = Vec::new();
        while let Some(data) = answer.data().await {
            bytes.extend_from_slice(&data.unwrap());
        }
        let answered: RateLimitResponse = prost::Message::decode(&bytes[5..]).unwrap();
        assert_eq!((answered.overall_code(), answered.statuses[0].limit_remaining), (Code::Ok, 4));
        assert_eq!(answer.trailers().await.unwrap().unwrap()["grpc-status"], "0");
        drop(sender);
        connection.await.unwrap().unwrap();
    });
    assert!(server.stop());
}

#[test]
fn other_methods_than_post_are_refused_with_the_one_that_is_allowed() {
    let server = crate::support::started();
    for path in [PATH, "/v1/check"] {
        let refused = server.http().get(path);
        assert_eq!((refused.status, refused.field("allow")), (405, Some("POST")), "{path}");
        assert_eq!(refused.json()["code"], "method_not_allowed", "{path}");
    }
}
