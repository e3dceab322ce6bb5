//! What differs from the tower layer: routes, clients, nested middlewares, errors and extensions.

use std::net::SocketAddr;

use actix_web::body::{BoxBody, MessageBody, to_bytes};
use actix_web::dev::{Service, ServiceRequest, ServiceResponse};
use actix_web::error::ErrorUnauthorized;
use actix_web::middleware::{Next, from_fn};
use actix_web::test::{TestRequest, init_service, try_call_service};
use actix_web::web::{ReqData, get, resource, scope};
use actix_web::{App, Error, HttpMessage as _, HttpResponse};
use polylimit::http::ClientAddressRules;
use polylimit::http::actix::{RateLimitMiddleware, peer, route};
use polylimit::http::guard::{KeyPart, RequestLimits};
use polylimit::http::tower::{RateLimitBuilder, User, client_address};
use polylimit::{Limiter, Policy, Request};

fn limiter(quotas: &str) -> Limiter {
    Limiter::builder().policy(Policy::parse("api", quotas).unwrap()).build().unwrap()
}

fn limit(limiter: Limiter) -> RateLimitBuilder<BoxBody> {
    let rules = ClientAddressRules::builder().build().unwrap();
    RateLimitMiddleware::builder(limiter, client_address(rules, peer))
}

fn from(address: &str, path: &str) -> TestRequest {
    TestRequest::get().uri(path).peer_addr(SocketAddr::new(address.parse().unwrap(), 1))
}

/// The status of a response, also where a middleware has failed.
async fn status<R, B: MessageBody>(
    app: &impl Service<R, Response = ServiceResponse<B>, Error = Error>,
    request: R,
) -> u16 {
    match try_call_service(app, request).await {
        Ok(response) => response.status().as_u16(),
        Err(error) => error.as_response_error().status_code().as_u16(),
    }
}

#[actix_web::test]
async fn routes_have_budgets_of_their_own_and_clients_keys() {
    let limit = limit(limiter("9/s")).policy("1/hour fixed_window").route(route).build().unwrap();
    let users = || scope("/v1").service(resource("/users/{id}").route(get().to(HttpResponse::Ok)));
    let app = App::new().service(users()).service(scope("/v2").service(users()));
    let app = init_service(app.wrap(limit)).await;
    for path in ["/v1/users/1", "/v2/v1/users/1"] {
        for address in ["192.0.2.1", "192.0.2.2"] {
            assert_eq!(status(&app, from(address, path).to_request()).await, 200, "{path} {address}");
            assert_eq!(status(&app, from(address, path).to_request()).await, 429, "{path} {address}");
        }
    }
    assert_eq!(status(&app, from("192.0.2.1", "/v1/users/2").to_request()).await, 429);
}

#[actix_web::test]
async fn nested_middlewares_share_a_request_and_handlers_see_it() {
    let (outer, inner) = (limiter("5/hour fixed_window"), limiter("1/hour fixed_window"));
    let handler = |limits: ReqData<RequestLimits>| async move {
        let remaining: Vec<_> = limits.outcomes().iter().map(|(_, decision)| decision.remaining()).collect();
        HttpResponse::Ok().body(format!("{remaining:?}"))
    };
    let app = App::new().route("/", get().to(handler));
    let app = app.wrap(limit(inner).build().unwrap()).wrap(limit(outer.clone()).build().unwrap());
    let app = init_service(app).await;
    let request = || from("192.0.2.1", "/").to_request();
    let admitted = try_call_service(&app, request()).await.unwrap();
    assert_eq!(admitted.headers().get_all("ratelimit").count(), 1);
    assert_eq!(to_bytes(admitted.into_body()).await.unwrap(), "[4, 0]");
    let denied = try_call_service(&app, request()).await.unwrap();
    assert_eq!(denied.status().as_u16(), 429);
    assert_eq!(denied.headers().get("content-type").unwrap(), "application/problem+json");
    assert!(denied.headers().contains_key("retry-after"));
    let left = outer.peek(Request::new("192.0.2.1")).await.unwrap();
    assert_eq!(left.remaining(), 4);
}

#[actix_web::test]
async fn error_of_an_inner_middleware_counts_by_its_status() {
    let limiter = limiter("1/hour fixed_window");
    let limit = limit(limiter).count(|response| response.status == 401).build().unwrap();
    let app = App::new().route("/", get().to(HttpResponse::Ok));
    let app = app.wrap(from_fn(|request: ServiceRequest, next: Next<BoxBody>| async move {
        if request.headers().contains_key("x-wrong") {
            return Err(ErrorUnauthorized("wrong"));
        }
        next.call(request).await
    }));
    let app = init_service(app.wrap(limit)).await;
    let wrong = || from("192.0.2.1", "/").insert_header(("x-wrong", "1")).to_request();
    for expected in [200, 200] {
        assert_eq!(status(&app, from("192.0.2.1", "/").to_request()).await, expected);
    }
    assert_eq!(status(&app, wrong()).await, 401);
    assert_eq!(status(&app, wrong()).await, 429);
}

#[actix_web::test]
async fn user_and_extensions_reach_the_functions() {
    #[derive(Clone)]
    struct Unlimited;
    let limit = limit(limiter("1/hour fixed_window"))
        .key_part(KeyPart::User)
        .skip(|request| request.extensions.get::<Unlimited>().is_some());
    let app = App::new().route("/", get().to(HttpResponse::Ok)).wrap(limit.build().unwrap());
    let app = init_service(app).await;
    let request = |user: &str, is_unlimited| {
        let request = from("192.0.2.1", "/").to_request();
        request.extensions_mut().insert(User(user.to_owned()));
        let mut extensions = http::Extensions::new();
        if is_unlimited {
            extensions.insert(Unlimited);
        }
        request.extensions_mut().insert(extensions);
        request
    };
    for (user, is_unlimited, expected) in
        [("a", false, 200), ("a", false, 429), ("b", false, 200), ("b", true, 200)]
    {
        let response = try_call_service(&app, request(user, is_unlimited)).await.unwrap();
        assert_eq!(response.status().as_u16(), expected, "{user}");
    }
}
