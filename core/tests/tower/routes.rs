//! Layers that know the route, the whole path, methods and origins, with the oldest and the newest axum.

use polylimit::Limiter;
use polylimit::http::guard::MissingKey;
use polylimit::http::tower::RateLimitLayer;

/// A limiter in memory without policies of its own.
fn limiter() -> Limiter {
    Limiter::builder().build().unwrap()
}

const DOCUMENT: &str = r#"
polylimit = 1
[policies.user]
quotas = "2/day fixed_window"
[policies.file]
quotas = "1/day fixed_window"
[policies.report]
quotas = "2/day fixed_window"
[[rules]]
match = { method = "get", route = "/v1/users/{id}" }
apply = [{ policy = "user", key = "{route}" }]
[[rules]]
match = { path = "/v1/files/{*rest}" }
apply = [{ policy = "file", key = "{path.rest}" }]
[[rules]]
match = { method = "GET", path = "/report" }
apply = [{ policy = "report", key = "all" }]
"#;

macro_rules! routes_with {
    ($version:ident, $axum:ident, $id:literal, $rest:literal) => {
        mod $version {
            use tower_http::cors::{AllowOrigin, CorsLayer};
            use tower_service::Service;
            use $axum::Router;
            use $axum::body::Body;
            use $axum::extract::{MatchedPath, OriginalUri};
            use $axum::http::{HeaderMap, Request};
            use $axum::routing::{any, get};

            use super::*;

            type Layer = RateLimitLayer<Body>;

            fn route(request: &$axum::http::request::Parts) -> Option<String> {
                Some(request.extensions.get::<MatchedPath>()?.as_str().to_owned())
            }

            fn respond(app: &Router, method: &str, uri: &str, fields: &[(&str, &str)]) -> (u16, HeaderMap) {
                let mut request = Request::builder().method(method).uri(uri);
                for (name, value) in fields {
                    request = request.header(*name, *value);
                }
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                let response =
                    runtime.block_on(app.clone().call(request.body(Body::empty()).unwrap())).unwrap();
                (response.status().as_u16(), response.headers().clone())
            }

            fn statuses(app: &Router, requests: &[(&str, &str)]) -> Vec<u16> {
                requests.iter().map(|(method, uri)| respond(app, method, uri, &[]).0).collect()
            }

            #[test]
            fn quotas_without_a_name_have_a_budget_for_each_route() {
                let limit: Layer = RateLimitLayer::builder(limiter(), |_| "all")
                    .policy("1/hour fixed_window")
                    .route(route)
                    .build()
                    .unwrap();
                let users = Router::new().route($id, any(|| async {}));
                let inner = Router::new().route($id, any(|| async {}).layer(limit.clone()));
                let app = Router::new()
                    .nest("/v1/users", users.clone())
                    .nest("/v2/users", users)
                    .route("/a", get(|| async {}))
                    .layer(limit)
                    .nest("/v3", inner.clone())
                    .nest("/v4", inner);
                let requests =
                    ["/v1/users/1", "/v1/users/2", "/v2/users/1", "/a", "/a", "/v3/1", "/v3/2", "/v4/1"];
                let found = statuses(&app, &requests.map(|uri| ("GET", uri)));
                assert_eq!(found, [200, 429, 200, 200, 429, 200, 429, 200]);
                // A scope wins.
                let limit: Layer = RateLimitLayer::builder(limiter(), |_| "all")
                    .policy("1/hour fixed_window")
                    .route(route)
                    .scope("all")
                    .build()
                    .unwrap();
                let app =
                    Router::new().route("/a", get(|| async {})).route("/b", get(|| async {})).layer(limit);
                assert_eq!(statuses(&app, &[("GET", "/a"), ("GET", "/b")]), [200, 429]);
            }

            #[test]
            fn rules_see_the_route_and_the_whole_path_of_a_nested_router() {
                let limiter = Limiter::builder().document(DOCUMENT).build().unwrap();
                let limit: Layer = RateLimitLayer::by_configuration(limiter, |_| None)
                    .route(route)
                    .path(|request| Some(request.extensions.get::<OriginalUri>()?.path().to_owned()))
                    .build()
                    .unwrap();
                let nested = Router::new()
                    .route(concat!("/users", $id), get(|| async {}))
                    .route(concat!("/files", $rest), get(|| async {}))
                    .layer(limit);
                let app = Router::new().nest("/v1", nested.clone()).nest("/v2", nested);
                let users = [
                    "/v1/users/1",
                    "/v1/users/2",
                    "/v1/users/3",
                    "/v2/users/1",
                    "/v2/users/1",
                    "/v2/users/1",
                ];
                assert_eq!(statuses(&app, &users.map(|uri| ("GET", uri))), [200, 200, 429, 200, 200, 200]);
                let files = [
                    "/v1/files/a/b",
                    "http://h/v1/files/a/b",
                    "/v1/files/a/%62",
                    "/v1/files/c",
                    "/v2/files/a/b",
                ];
                assert_eq!(statuses(&app, &files.map(|uri| ("GET", uri))), [200, 429, 429, 200, 200]);
            }

            #[test]
            fn limit_on_get_has_head() {
                let by_rule: Layer = RateLimitLayer::by_configuration(
                    Limiter::builder().document(DOCUMENT).build().unwrap(),
                    |_| None,
                )
                .build()
                .unwrap();
                let by_method: Layer = RateLimitLayer::builder(limiter(), |_| "all")
                    .policy("2/hour fixed_window")
                    .method("get")
                    .build()
                    .unwrap();
                let requests = ["HEAD", "GET", "HEAD", "GET"].map(|method| (method, "/report"));
                for limit in [by_rule, by_method] {
                    let app = Router::new().route("/report", get(|| async {})).layer(limit);
                    assert_eq!(statuses(&app, &requests), [200, 200, 429, 429]);
                }
                let separate: Layer = RateLimitLayer::builder(limiter(), |_| "all")
                    .policy("1/hour fixed_window")
                    .method("GET")
                    .separate_head(true)
                    .build()
                    .unwrap();
                let app = Router::new().route("/report", get(|| async {})).layer(separate);
                assert_eq!(statuses(&app, &requests), [200, 200, 200, 429]);
            }

            const APP: &str = "https://app.example";
            const PREFLIGHT: [(&str, &str); 2] = [("origin", APP), ("access-control-request-method", "GET")];

            #[test]
            fn preflights_count_only_on_routes_and_where_the_program_says_so() {
                let builder =
                    || RateLimitLayer::<Body>::builder(limiter(), |_| "all").policy("1/hour fixed_window");
                for (limit, expected) in [
                    (builder(), [200, 200]),
                    (builder().method("GET"), [200, 200]),
                    (builder().method("options"), [200, 429]),
                    (builder().count_preflights(true), [200, 429]),
                    (builder().route(route), [200, 429]),
                ] {
                    let app = Router::new().route("/", any(|| async {})).layer(limit.build().unwrap());
                    assert_eq!([(); 2].map(|()| respond(&app, "OPTIONS", "/", &PREFLIGHT).0), expected);
                }
                // These are no preflights.
                for fields in [&PREFLIGHT[..1], &PREFLIGHT[1..]] {
                    let app = Router::new().route("/", any(|| async {})).layer(builder().build().unwrap());
                    assert_eq!([(); 2].map(|()| respond(&app, "OPTIONS", "/", fields).0), [200, 429]);
                }
            }

            #[test]
            fn page_reads_a_denial_with_a_cors_layer_in_both_orders() {
                let limit = |origins: &[&str]| {
                    let layer =
                        RateLimitLayer::<Body>::builder(limiter(), |_| "all").policy("1/hour fixed_window");
                    layer.cors_origins(origins.iter().copied()).build().unwrap()
                };
                let cors = || CorsLayer::new().allow_origin(AllowOrigin::exact(APP.parse().unwrap()));
                let app = || Router::new().route("/", get(|| async {}));
                for app in [app().layer(limit(&[])).layer(cors()), app().layer(cors()).layer(limit(&[APP]))] {
                    let get = || respond(&app, "GET", "/", &[("origin", APP)]);
                    assert_eq!(respond(&app, "OPTIONS", "/", &PREFLIGHT).0, 200);
                    assert_eq!((get().0, respond(&app, "OPTIONS", "/", &PREFLIGHT).0), (200, 200));
                    let (status, fields) = get();
                    let allowed = fields.get_all("access-control-allow-origin");
                    let allowed: Vec<_> = allowed.iter().map(|origin| origin.to_str().unwrap()).collect();
                    assert_eq!((status, allowed), (429, vec![APP]));
                }
                let outside = app().layer(cors()).layer(limit(&[APP]));
                respond(&outside, "GET", "/", &[]);
                let (_, fields) = respond(&outside, "GET", "/", &[("origin", APP)]);
                assert!(fields["access-control-expose-headers"].to_str().unwrap().contains("retry-after"));
                assert!(fields.get_all("vary").iter().any(|vary| vary == "origin"));
                let (status, fields) = respond(&outside, "GET", "/", &[("origin", "https://other.example")]);
                assert_eq!((status, fields.get("access-control-allow-origin")), (429, None));
            }
        }
    };
}

routes_with!(newest, axum, "/{id}", "/{*rest}");
routes_with!(oldest, axum_oldest, "/:id", "/*rest");

#[test]
fn option_that_cannot_be_meant_is_refused() {
    let builder = || RateLimitLayer::<axum::body::Body>::builder(limiter(), |_| "all").policy("1/hour");
    for (limit, about) in [
        (builder().method("G T"), "no client can send"),
        (builder().cors_origins(["app.example"]), "CORS origin"),
        (builder().path(|_| None), "path is given to a layer with policies"),
    ] {
        let refused = limit.build().unwrap_err();
        assert!(refused.message().contains(about), "{refused}");
    }
}

#[tokio::test]
async fn empty_key_is_a_missing_key() {
    use axum::Router;
    use axum::body::Body;
    use axum::http::Request;
    use tower_service::Service;

    let layer =
        || RateLimitLayer::builder(limiter(), |_| "all").policy("1/hour").missing_key(MissingKey::Refuse);
    let user = polylimit::http::tower::User(String::new());
    for limit in [
        layer().key(|_| Some("")),
        layer().key_part("header:x-key".parse().unwrap()),
        layer().key_part("user".parse().unwrap()),
    ] {
        let mut app = Router::new().route("/", axum::routing::get(|| async {})).layer(limit.build().unwrap());
        let mut request = Request::builder().uri("/").header("x-key", "").body(Body::empty()).unwrap();
        request.extensions_mut().insert(user.clone());
        assert_eq!(app.call(request).await.unwrap().status(), 400);
    }
}
