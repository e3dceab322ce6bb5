//! The operations over HTTP.

use std::io::{Read, Write};

use polylimit::{Limiter, Request};
use polylimit_server::ServerOptions;
use polylimit_test_servers::Row;
use serde_json::{Value, json};

use crate::security::with_tokens;
use crate::support::{Running, command, exchange, limiter, started};

#[test]
fn check_is_answered_as_the_library_serialises_it() {
    let (limiter, _clock) = limiter();
    let server = Running::start(limiter.clone(), ServerOptions::default());
    for _ in 0..4 {
        let expected = limiter.blocking().peek(Request::new("same").policy("api")).unwrap();
        let peeked = server.http().post("/v1/peek", &json!({ "policy": "api", "key": "same" }));
        assert_eq!((peeked.status, peeked.field("content-type")), (200, Some("application/json")));
        assert_eq!(peeked.body, polylimit::raw::report_json(&expected));
        let checked = server.http().post("/v1/check", &json!({ "policy": "api", "key": "same" })).json();
        assert_eq!(checked["allowed"], json!(expected.allowed()));
    }
}

#[test]
fn every_operation_does_what_it_says() {
    let server = started();
    let ask = |path: &str, more: Value| {
        let mut body = json!({ "policy": "api", "key": "k" });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let reply = server.http().post(path, &body);
        assert_eq!(reply.status, 200, "{reply:?}");
        reply.json()
    };
    assert_eq!(ask("/v1/take", json!({ "cost": 5 }))["taken"], 3);
    assert_eq!(ask("/v1/refund", json!({ "cost": 2 }))["remaining"], 2);
    assert_eq!(ask("/v1/charge", json!({}))["remaining"], 1);
    assert_eq!(ask("/v1/reset", json!({}))["remaining"], 3);
    assert_eq!(ask("/v1/check", json!({ "headroom": 99 }))["allowed"], false);
    assert_eq!(ask("/v1/check", json!({ "key": "k" }))["remaining"], 2);

    let reserved = ask("/v1/reserve", json!({ "policy": "model", "cost": 40 }));
    let id = reserved["id"].as_str().unwrap();
    assert_eq!((&reserved["allowed"], id.len()), (&json!(true), 32));
    let renewed = ask("/v1/renew", json!({ "policy": "model", "id": id, "ttl_us": 60_000_000 }));
    assert_eq!(renewed["found"], true);
    let committed = ask("/v1/commit", json!({ "policy": "model", "id": id, "spent": 10 }));
    assert_eq!((&committed["found"], &committed["remaining"]), (&json!(true), &json!(90)));
    let _ = ask("/v1/reserve", json!({ "policy": "model", "id": "mine", "ttl_us": 1_000_000 }));
    assert_eq!(ask("/v1/cancel", json!({ "policy": "model", "id": "mine" }))["found"], true);
    assert_eq!(ask("/v1/cancel", json!({ "policy": "model", "id": "mine" }))["found"], false);
}

#[test]
fn key_of_bytes_is_another_one_than_its_base64() {
    let (limiter, _clock) = limiter();
    let server = Running::start(limiter.clone(), ServerOptions::default());
    let reply = server.http().post("/v1/charge", &json!({ "policy": "api", "key_base64": "/wA=" }));
    assert_eq!(reply.json()["remaining"], 2);
    let left = limiter.blocking().peek(Request::new(&b"\xFF\0"[..]).policy("api")).unwrap();
    assert_eq!(left.remaining(), 2);
}

#[test]
fn many_requests_are_answered_in_order() {
    let server = started();
    let one = |policy: &str| json!({ "policy": policy, "key": "k" });
    let many = json!({ "requests": [one("login"), one("login"), one("none"), one("api")] });
    let results = server.http().post("/v1/check", &many).json()["results"].clone();
    let allowed: Vec<_> = (0..4).map(|at| &results[at]["allowed"]).collect();
    assert_eq!(allowed, [&json!(true), &json!(false), &json!(null), &json!(true)]);
    assert_eq!(results[2]["error"]["code"], "invalid_argument");

    let many = json!({ "requests": [one("api"), one("api")] });
    let results = server.http().post("/v1/charge", &many).json()["results"].clone();
    assert_eq!((&results[0]["remaining"], &results[1]["remaining"]), (&json!(1), &json!(0)));
}

#[test]
fn one_wrong_request_of_many_is_an_error_in_its_place() {
    let server = started();
    let wrong = [
        json!({ "policy": "5/fortnight", "key": "k" }),
        json!({ "policy": "api" }),
        json!({ "policy": "api", "key_base64": "?" }),
        json!({ "policy": "api", "key": "k", "spent": 1 }),
        json!({ "policy": "api", "key": "k".repeat(8 << 10) }),
    ];
    for path in ["/v1/check", "/v1/charge"] {
        let many = |together: bool| {
            let mut requests = vec![json!({ "policy": "api", "key": path })];
            for request in &wrong {
                requests.push(request.clone());
                requests.push(json!({ "policy": "5/day", "key": path }));
            }
            let mut many = json!({ "requests": requests });
            if together {
                many["together"] = json!(true);
            }
            many
        };
        let reply = server.http().post(path, &many(false));
        assert_eq!(reply.status, 200);
        let results = reply.json()["results"].clone();
        assert_eq!(results.as_array().unwrap().len(), 1 + 2 * wrong.len());
        assert_eq!(results[0]["remaining"], 2);
        for at in 0..wrong.len() {
            let code = if at == 4 { "too_large" } else { "invalid_argument" };
            assert_eq!(results[2 * at + 1]["error"]["code"], code, "{results}");
            assert_eq!(results[2 * at + 2]["remaining"], 4 - at, "{results}");
        }
        assert!(results[1]["error"]["detail"].as_str().unwrap().contains("fortnight"), "{results}");
        // Requests that are decided together are refused together, and nothing is spent.
        if path == "/v1/check" {
            assert_eq!(server.http().post(path, &many(true)).status, 400);
            let left = server.http().post("/v1/peek", &json!({ "policy": "api", "key": path })).json();
            assert_eq!(left["remaining"], 2);
        }
    }
}

#[test]
fn together_spends_for_all_or_for_none() {
    let server = started();
    let both = json!({
        "requests": [{ "policy": "api", "key": "k" }, { "policy": "login", "key": "k" }], "together": true
    });
    let ask = || server.http().post("/v1/check", &both).json()["results"].clone();
    assert_eq!((&ask()[1]["allowed"], &ask()[1]["allowed"]), (&json!(true), &json!(false)));
    let left = server.http().post("/v1/peek", &json!({ "policy": "api", "key": "k" })).json();
    assert_eq!(left["remaining"], 2);
}

#[test]
fn peek_together_spends_nothing() {
    let server = started();
    let both = json!({
        "requests": [{ "policy": "api", "key": "k", "cost": 2 }, { "policy": "login", "key": "k" }], "together": true
    });
    let ask = |path: &str| server.http().post(path, &both).json()["results"].clone();
    for _ in 0..2 {
        let peeked = ask("/v1/peek");
        assert_eq!((&peeked[0]["remaining"], &peeked[1]["allowed"]), (&json!(3), &json!(true)));
    }
    assert_eq!(ask("/v1/check")[1]["allowed"], true);
    let peeked = ask("/v1/peek");
    assert_eq!((&peeked[0]["allowed"], &peeked[1]["allowed"]), (&json!(false), &json!(false)));
}

#[test]
fn reserve_together_reserves_for_all_or_for_none() {
    let server = started();
    let post = |path: &str, body: &Value| server.http().post(path, body).json();
    let both = |more: Value| {
        let mut body = json!({
            "requests": [{ "policy": "model", "key": "k", "cost": 4 }, { "policy": "api", "key": "k" }], "together": true
        });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body
    };
    let first = post("/v1/reserve", &both(json!({})));
    let id = first["id"].as_str().unwrap();
    assert_eq!(
        (id.len(), &first["results"][0]["allowed"], &first["results"][1]["remaining"]),
        (32, &json!(true), &json!(2))
    );
    let cancelled = post("/v1/cancel", &json!({ "policy": "model", "key": "k", "id": id }));
    assert_eq!(cancelled["found"], true);
    let left = || post("/v1/peek", &json!({ "policy": "api", "key": "k" }))["remaining"].clone();
    for run in 0..2 {
        let job = post(
            "/v1/reserve",
            &both(json!({ "id": "job", "ttl_us": 60_000_000, "remember_us": 60_000_000 })),
        );
        assert_eq!((&job["id"], &job["results"][0]["allowed"]), (&json!("job"), &json!(true)), "{job}");
        let usage = post("/v1/commit", &json!({ "policy": "model", "key": "k", "id": "job", "spent": 1 }));
        assert_eq!((&usage["found"], &usage["repeated"]), (&json!(true), &json!(run == 1)));
    }
    assert_eq!(left(), 0);
    // The other policy has nothing left: no slot is taken.
    let slots = || post("/v1/peek", &json!({ "policy": "model", "key": "k" }))["quotas"].clone();
    let before = slots();
    let denied = post("/v1/reserve", &both(json!({})));
    assert_eq!(
        (&denied["results"][0]["allowed"], &denied["results"][1]["allowed"]),
        (&json!(true), &json!(false))
    );
    assert_eq!(slots(), before);
}

#[test]
fn status_makes_a_response_of_a_denial() {
    let server = started();
    let ask = || server.http().post("/v1/check?status", &json!({ "policy": "login", "key": "k" }));
    let admitted = ask();
    assert_eq!((admitted.status, admitted.json()["allowed"].clone()), (200, json!(true)));
    assert_eq!(admitted.field("ratelimit"), Some(r#""login:1";r=0;t=3600, "login:2";r=4;t=95040"#));
    let denied = ask();
    assert_eq!((denied.status, denied.field("content-type")), (429, Some("application/problem+json")));
    assert_eq!(denied.field("retry-after"), Some("3600"));
    assert_eq!(denied.json()["violated-policies"], json!(["login:1"]));
}

#[test]
fn outage_is_503_with_status() {
    // Nothing listens on port 1.
    let limiter = Limiter::builder().store("redis://127.0.0.1:1?outage=deny&deadline=100ms").build().unwrap();
    let server = Running::start(limiter, ServerOptions::default());
    let reply = server.http().post("/v1/check?status", &json!({ "policy": "5/s", "key": "k" }));
    assert_eq!(reply.status, 503, "{reply:?}");
    assert!(reply.json()["type"].as_str().unwrap().ends_with("temporary-reduced-capacity"));
    let plain = server.http().post("/v1/check", &json!({ "policy": "5/s", "key": "k" }));
    assert_eq!((plain.status, &plain.json()["source"]), (200, &json!("deny")));
}

#[test]
fn rules_of_the_document_decide_about_attributes() {
    let document = r#"
        polylimit = 1
        [policies.api]
        quotas = "1/hour"
        [[rules]]
        match = { method = "POST", path = "/v1/{*rest}", header.x-plan = "free" }
        apply = [{ policy = "api", key = "{user}", missing = "deny" }]
        [lists]
        deny = ["user mallory"]
    "#;
    let limiter = Limiter::builder().document(document).build().unwrap();
    let server = Running::start(limiter, ServerOptions::default());
    let ask = |user: &str| {
        let body = json!({
            "method": "POST", "path": "/v1/a?b", "peer": "192.0.2.1", "headers": [["X-Plan", "free"]],
            "attributes": { "user": user }
        });
        server.http().post("/v1/decide?status", &body)
    };
    let admitted = ask("alice").json();
    let made = &admitted["decisions"][0];
    assert_eq!(
        (&admitted["allowed"], &made["policy"], &made["key"], &made["decision"]["remaining"]),
        (&json!(true), &json!("api"), &json!("alice"), &json!(0))
    );
    let denied = ask("alice");
    assert_eq!((denied.status, denied.field("retry-after").is_some()), (429, true));
    assert_eq!((ask("mallory").status, ask("").status), (403, 400));
    let other = server.http().post("/v1/decide", &json!({ "method": "GET", "path": "/" })).json();
    assert_eq!((&other["allowed"], &other["decisions"]), (&json!(true), &json!([])));
}

#[test]
fn decision_about_attributes_remembers_the_commit() {
    let document = r#"
        polylimit = 1
        [policies.slots]
        quotas = "1 concurrent"
        [[rules]]
        apply = [{ policy = "slots", key = "{user}" }]
    "#;
    let limiter = Limiter::builder().document(document).build().unwrap();
    let server = Running::start(limiter, ServerOptions::default());
    let body = json!({ "attributes": { "user": "alice" }, "id": "job", "remember_us": 60_000_000 });
    for run in 0..2 {
        let made = server.http().post("/v1/decide", &body).json();
        assert_eq!(made["decisions"][0]["reservation"], "job");
        let commit = json!({ "policy": "slots", "key": "alice", "id": "job" });
        let usage = server.http().post("/v1/commit", &commit).json();
        assert_eq!((&usage["found"], &usage["repeated"]), (&json!(true), &json!(run == 1)));
    }
}

/// The caller's router is not known: a path counts under each way to read it, whatever form its target has.
#[test]
fn every_reading_of_a_path_counts_under_its_rule() {
    let document = r#"
        polylimit = 1
        [policies.page]
        quotas = "1/hour"
        [[rules]]
        match = { path = "/v1/page" }
        apply = [{ policy = "page", key = "{user}" }]
    "#;
    let limiter = Limiter::builder().document(document).build().unwrap();
    let server = Running::start(limiter, ServerOptions::default());
    let allows = |user: &str, path: &str| {
        let body = json!({ "method": "GET", "path": path, "attributes": { "user": user } });
        server.http().post("/v1/decide", &body).json()["allowed"].clone()
    };
    for path in ["/v1%2fpage", "http://h/v1/page", "/x%2F../v1/page", "/v1/page/", "/v1/%70age#a"] {
        assert_eq!((allows(path, path), allows(path, "/v1/page")), (json!(true), json!(false)), "{path}");
    }
    assert_eq!((allows("bob", "/v1/other"), allows("bob", "/v1/page")), (json!(true), json!(true)));
}

#[test]
fn mistakes_are_told_as_problems() {
    let server = started();
    let ask = |path: &str, body: &str| server.http().send("POST", path, &[], body.as_bytes());
    for (path, body, detail) in [
        ("/v1/check", "", "the body cannot be read"),
        ("/v1/check", "[]", "the body cannot be read"),
        ("/v1/check", r#"{"policy": "api"}"#, "no key"),
        ("/v1/check", r#"{"key": "a", "key_base64": "YQ=="}"#, "give one of them"),
        ("/v1/check", r#"{"policy": "api", "key_base64": "?"}"#, "base64 with padding"),
        ("/v1/check", r#"{"policy": "api", "key": "a", "costs": 1}"#, "unknown field `costs`"),
        ("/v1/check", r#"{"policy": "api", "key": "a", "cost": -1}"#, "the body cannot be read"),
        (
            "/v1/check",
            r#"{"policy": "api", "key": "a", "cost": 1000000000001}"#,
            "allowed is 0 to 1000000000000",
        ),
        ("/v1/check", r#"{"policy": "other", "key": "a"}"#, "other"),
        ("/v1/check", r#"{"policy": "5/never", "key": "a"}"#, "read \"never\""),
        ("/v1/check", r#"{"policy": "api", "key": "a", "id": "1"}"#, "leave it out"),
        ("/v1/commit", r#"{"policy": "model", "key": "a"}"#, "needs the id"),
        ("/v1/check", r#"{"requests": []}"#, "1 to 1000"),
        (
            "/v1/charge",
            r#"{"requests": [{"policy": "api", "key": "a"}], "together": true}"#,
            "only /v1/check",
        ),
        (
            "/v1/check",
            r#"{"requests": [{"policy": "api", "key": "a"}], "together": true, "id": "a"}"#,
            "leave it out",
        ),
        ("/v1/reserve", r#"{"requests": [{"policy": "api", "key": "a"}], "ttl_us": 5000}"#, "with together"),
        (
            "/v1/reserve",
            r#"{"requests": [{"policy": "api", "key": "a", "id": "a"}], "together": true}"#,
            "next to requests",
        ),
        (
            "/v1/reserve",
            r#"{"requests": [{"policy": "api", "key": "a"}], "together": true, "remember_us": 999}"#,
            "remembered for",
        ),
        ("/v1/check?status", r#"{"requests": [{"policy": "api", "key": "a"}]}"#, "single request"),
        ("/v1/decide", r#"{"method": "GET"}"#, "no configuration"),
    ] {
        let reply = ask(path, body);
        assert_eq!(
            (reply.status, reply.field("content-type")),
            (400, Some("application/problem+json")),
            "{body}"
        );
        let problem = reply.json();
        assert_eq!((&problem["status"], &problem["code"]), (&json!(400), &json!("invalid_argument")));
        assert!(problem["detail"].as_str().unwrap().contains(detail), "{body}: {problem}");
    }
    assert_eq!(ask("/v1/none", "{}").status, 404);
    assert_eq!(server.http().get("/v1/check").status, 405);
    // A key may contain the name of a field.
    let odd = ask("/v1/check", r#"{"policy": "api", "key": "\"requests\""}"#);
    assert_eq!(odd.status, 200, "{odd:?}");
}

#[test]
fn quotas_as_text_are_bounded() {
    let mut options = ServerOptions::default();
    options.limits.one_off_policies = 2;
    let server = Running::start(limiter().0, options);
    let ask = |quotas: &str| server.http().post("/v1/check", &json!({ "policy": quotas, "key": "k" })).status;
    assert_eq!((ask("5/s"), ask("6/s"), ask("7/s"), ask("5/s")), (200, 200, 400, 200));
    // The bound is one for all interfaces.
    exchange(
        &mut server.resp(),
        &["CL.THROTTLE k 1 1 1"],
        "-Cell error: callers have used 2 different quotas",
    );
    exchange(&mut server.resp(), &["POLYLIMIT.CHECK 5/s k"], "*9\r\n:1\r\n");
}

#[test]
fn one_caller_does_not_use_up_the_quotas_as_text_for_all() {
    let folder = tempfile::tempdir().unwrap();
    let mut options = with_tokens(folder.path());
    options.limits.one_off_policies = 8;
    let server = Running::start(limiter().0, options);
    let ask = |token: &str, quotas: &str| {
        let body = json!({ "policy": quotas, "key": "k" }).to_string();
        let token = format!("Bearer {token}");
        server.http().send("POST", "/v1/check", &[("authorization", &token)], body.as_bytes())
    };
    assert_eq!((ask("check", "5/s").status, ask("check", "6/s").status), (200, 200));
    let refused = ask("check", "7/s");
    assert!(
        refused.status == 400 && refused.body.contains("this caller has used 2 different"),
        "{refused:?}"
    );
    let mut stream = server.resp();
    exchange(
        &mut stream,
        &["AUTH check", "CL.THROTTLE k 1 1 1"],
        "+OK\r\n-Cell error: this caller has used 2",
    );
    // What it has used goes on, also for it; others have room.
    assert_eq!(
        (ask("check", "5/s").status, ask("read", "7/s").status, ask("check", "7/s").status),
        (200, 200, 200)
    );
}

#[test]
fn http_2_is_spoken_by_prior_knowledge() {
    let server = started();
    let address = server.address(0);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let stream = tokio::net::TcpStream::connect(address).await.unwrap();
        let (sender, connection) = h2::client::handshake(stream).await.unwrap();
        let connection = tokio::spawn(connection);
        let mut sender = sender.ready().await.unwrap();
        let request = http::Request::post("http://limits/v1/check").body(()).unwrap();
        let (response, mut body) = sender.send_request(request, false).unwrap();
        body.send_data(r#"{"policy": "api", "key": "h2"}"#.into(), true).unwrap();
        let mut response = response.await.unwrap();
        assert_eq!((response.status().as_u16(), response.version()), (200, http::Version::HTTP_2));
        let body = response.body_mut().data().await.unwrap().unwrap();
        assert_eq!(serde_json::from_slice::<Value>(&body).unwrap()["remaining"], 2);
        connection.abort();
    });
}

#[test]
fn cost_that_is_no_number_of_units_is_refused() {
    let server = started();
    let costs = ["-1", "NaN", "1e308", "18446744073709551616", "1000000000001", "0.5", "\"1\"", "[]"];
    for cost in costs {
        for operation in ["check", "peek", "take", "charge", "refund"] {
            let body = format!(r#"{{"policy": "api", "key": "k", "cost": {cost}}}"#);
            let path = format!("/v1/{operation}");
            let reply = server.http().send("POST", &path, &[], body.as_bytes());
            assert_eq!(
                (reply.status, &reply.json()["code"]),
                (400, &json!("invalid_argument")),
                "{cost}: {reply:?}"
            );
        }
    }
    let mut stream = server.resp();
    for cost in ["-1", "NaN", "1e308", "18446744073709551616", "1000000000001", "0.5", "x"] {
        stream.write_all(&command(&[b"POLYLIMIT.CHECK", b"api", b"k", cost.as_bytes()])).unwrap();
        let (mut reply, mut byte) = (Vec::new(), [0]);
        while byte != *b"\n" {
            stream.read_exact(&mut byte).unwrap();
            reply.extend(byte);
        }
        assert!(reply.starts_with(b"-INVALID_ARGUMENT "), "{cost}: {}", reply.escape_ascii());
    }
    let left = server.http().post("/v1/peek", &json!({ "policy": "api", "key": "k" })).json();
    assert_eq!(left["remaining"], 3, "nothing was spent");
    Row::new("S4", "the server").measured(format!("{} costs: invalid_argument", costs.len())).record();
}
