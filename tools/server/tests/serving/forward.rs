//! Forward authentication.

use polylimit::Limiter;
use polylimit::http::ClientAddressRules;
use polylimit_server::ServerOptions;
use serde_json::json;

use crate::support::{Reply, Running, limiter};

fn behind_a_proxy() -> Running {
    let mut options = ServerOptions::default();
    options.client_address = ClientAddressRules::builder()
        .trust("127.0.0.0/8")
        .header("x-forwarded-for".parse().unwrap())
        .build()
        .unwrap();
    Running::start(limiter().0, options)
}

#[test]
fn client_is_counted_and_not_its_proxy() {
    let server = behind_a_proxy();
    let ask =
        |client: &str| server.http().send("GET", "/v1/forward/login", &[("x-forwarded-for", client)], b"");
    let admitted = ask("192.0.2.1");
    assert_eq!((admitted.status, &*admitted.body), (200, ""));
    assert!(admitted.field("ratelimit").is_some());
    let denied = ask("192.0.2.1");
    assert_eq!((denied.status, denied.field("retry-after")), (429, Some("3600")));
    assert_eq!(denied.field("content-type"), Some("application/problem+json"));
    assert_eq!(ask("192.0.2.2").status, 200);
}

#[test]
fn key_is_a_header_or_a_cookie() {
    let server = behind_a_proxy();
    let ask = |query: &str, field: (&str, &str)| {
        server.http().send("GET", &format!("/v1/forward/login?{query}"), &[field], b"").status
    };
    let (a, b) = (("x-api-key", "a"), ("x-api-key", "b"));
    assert_eq!(
        (ask("key=header:X-Api-Key", a), ask("key=header:x-api-key", a), ask("key=header:x-api-key", b)),
        (200, 429, 200)
    );
    let (c, d) = (("cookie", "x=1; session=c"), ("cookie", "session=d"));
    assert_eq!(
        (ask("key=cookie:session", c), ask("key=cookie:session", c), ask("key=cookie:session", d)),
        (200, 429, 200)
    );
    assert_eq!(ask("key=header:x-api-key&denied=403", a), 403);
    assert_eq!(
        (ask("key=path:a", a), ask("key=user", a), ask("denied=200", a), ask("cost=x", a)),
        (400, 400, 400, 400)
    );
    for path in ["/v1/forward/none", "/v1/forward/%ff"] {
        let refused = server.http().get(path);
        assert_eq!((refused.status, &refused.json()["code"]), (400, &json!("invalid_argument")), "{path}");
    }
}

#[test]
fn any_method_asks_and_the_body_is_not_read() {
    let server = behind_a_proxy();
    let reply =
        server.http().send("POST", "/v1/forward/api?cost=2", &[("x-forwarded-for", "192.0.2.9")], b"body");
    assert_eq!((reply.status, reply.field("ratelimit")), (200, Some(r#""api";r=1;t=40"#)));
}

#[test]
fn rules_decide_by_the_request_that_the_proxy_describes() {
    let document = r#"
        polylimit = 1
        [client]
        trust = ["127.0.0.0/8"]
        header = "x-forwarded-for"
        [policies.login]
        quotas = "1/hour"
        [[rules]]
        match = { method = "POST", path = "/login" }
        apply = [{ policy = "login", key = "{client}" }]
        [lists]
        deny = ["client 203.0.113.0/24"]
    "#;
    let limiter = Limiter::builder().document(document).build().unwrap();
    let server = Running::start(limiter, ServerOptions::default());
    let ask = |client: &str, method: &str, uri: &str| {
        let fields = [("x-forwarded-for", client), ("x-forwarded-method", method), ("x-forwarded-uri", uri)];
        server.http().send("GET", "/v1/forward", &fields, b"").status
    };
    assert_eq!((ask("192.0.2.1", "POST", "/login?a"), ask("192.0.2.1", "POST", "/login")), (200, 429));
    assert_eq!((ask("192.0.2.2", "POST", "/login"), ask("192.0.2.1", "GET", "/login")), (200, 200));
    assert_eq!(ask("203.0.113.5", "GET", "/"), 403);
    assert_eq!((ask("192.0.2.1", "no method", "/"), server.http().get("/v1/forward").status), (400, 400));
}

/// Behind a proxy, the service's router is not known: a path counts under each way to read it.
#[test]
fn every_spelling_of_a_path_and_head_count_as_one_budget() {
    let document = r#"
        polylimit = 1
        [paths]
        ignore_case = true
        parameters = "drop"
        [policies.page]
        quotas = "3/hour"
        [[rules]]
        match = { method = "GET", path = "/v1/page" }
        apply = [{ policy = "page", key = "{header.x-client}" }]
    "#;
    let limiter = Limiter::builder().document(document).build().unwrap();
    let server = Running::start(limiter, ServerOptions::default());
    let ask = |client: &str, method: &str, uri: &str| {
        let fields = [("x-client", client), ("x-forwarded-method", method), ("x-forwarded-uri", uri)];
        server.http().send("GET", "/v1/forward", &fields, b"").status
    };
    let spellings = [
        ("HEAD", "/v1/page"),
        ("GET", "/V1/page;a=1"),
        ("GET", "http://h/v1/page"),
        ("GET", "/v1%2Fpage"),
        ("GET", "/x%2F../v1/page"),
        ("GET", "/v1/./page//?a#b"),
    ];
    for (method, uri) in spellings {
        let asked = [("GET", "/v1/page"), (method, uri), ("GET", "/v1/page"), (method, uri)];
        let statuses = asked.map(|(method, asked)| ask(uri, method, asked));
        assert_eq!(statuses, [200, 200, 200, 429], "{method} {uri}");
    }
}

/// Of two lines one can be the client's own.
#[test]
fn lines_that_the_proxy_has_not_replaced_are_refused() {
    let limiter = Limiter::builder().document("polylimit = 1").build().unwrap();
    let server = Running::start(limiter, ServerOptions::default());
    let ask = |fields: &[(&str, &str)]| server.http().send("GET", "/v1/forward", fields, b"");
    let paths = ask(&[("x-forwarded-uri", "/a"), ("x-forwarded-uri", "/b")]);
    assert_eq!(paths.status, 400);
    assert!(paths.body.contains("x-forwarded-uri occurs more than once"), "{paths:?}");
    let methods =
        ask(&[("x-forwarded-method", "GET"), ("x-forwarded-method", "PUT"), ("x-forwarded-uri", "/")]);
    assert_eq!(methods.status, 400);
    assert!(methods.body.contains("x-forwarded-method occurs more than once"), "{methods:?}");
    assert_eq!(ask(&[("x-forwarded-method", "G\u{e9}T"), ("x-forwarded-uri", "/")]).status, 400);
    assert_eq!(ask(&[("x-forwarded-method", "GET"), ("x-forwarded-uri", "/caf\u{e9}")]).status, 200);
}

/// What Traefik 3 sends for a client's request, by the source of its middleware `forwardAuth`: a GET without a body, with the fields of
/// the client and five of its own in place of those that the client has sent.
fn as_traefik(server: &Running, client: &str, method: &str, uri: &str) -> Reply {
    let file = include_str!("../../../../deploy/proxies/traefik.yaml");
    let address = file.lines().find_map(|line| line.trim().strip_prefix("address: ")).unwrap();
    let path = address.strip_prefix("http://127.0.0.1:8180").unwrap();
    let fields = [
        ("accept-encoding", "gzip"),
        ("authorization", "Bearer of the client, for the service"),
        ("cookie", "session=a"),
        ("user-agent", "client/1"),
        ("x-forwarded-for", client),
        ("x-forwarded-host", "shop.example"),
        ("x-forwarded-method", method),
        ("x-forwarded-port", "80"),
        ("x-forwarded-proto", "http"),
        ("x-forwarded-server", "proxy"),
        ("x-forwarded-uri", uri),
        ("x-real-ip", client),
    ];
    server.http().send("GET", path, &fields, b"")
}

#[test]
fn traefik_gets_an_answer_for_each_client() {
    let server = behind_a_proxy();
    // The client's own query chooses neither key nor cost.
    for (client, uri) in [("192.0.2.1", "/orders?cost=0&key=header:x"), ("2001:db8::1", "/")] {
        for left in ["2", "1", "0"] {
            let admitted = as_traefik(&server, client, "POST", uri);
            assert_eq!((admitted.status, &*admitted.body), (200, ""), "{admitted:?}");
            let told = admitted.field("ratelimit").unwrap();
            assert!(told.starts_with(&format!("\"api\";r={left};t=")), "{told}");
            assert!(admitted.field("ratelimit-policy").is_some());
        }
        let denied = as_traefik(&server, client, "POST", uri);
        assert_eq!((denied.status, denied.field("retry-after")), (429, Some("20")), "{denied:?}");
        assert_eq!(denied.field("content-type"), Some("application/problem+json"));
    }
}

#[test]
fn traefik_describes_requests_to_the_rules_of_a_document() {
    let document = r#"
        polylimit = 1
        [client]
        trust = ["127.0.0.0/8"]
        header = "x-forwarded-for"
        [policies.login]
        quotas = "1/hour"
        [[rules]]
        match = { method = "POST", path = "/login", "header.x-forwarded-host" = "shop.example" }
        apply = [{ policy = "login", key = "{client}" }]
    "#;
    let limiter = Limiter::builder().document(document).build().unwrap();
    let server = Running::start(limiter, ServerOptions::default());
    let ask = |method: &str, uri: &str| {
        let fields = [
            ("x-forwarded-for", "192.0.2.1"),
            ("x-forwarded-host", "shop.example"),
            ("x-forwarded-method", method),
            ("x-forwarded-uri", uri),
        ];
        server.http().send("GET", "/v1/forward", &fields, b"").status
    };
    assert_eq!((ask("POST", "/login?next=/"), ask("GET", "/login"), ask("POST", "/login")), (200, 200, 429));
}
