//! The admin listener.

use std::fs;
use std::time::{Duration, Instant};

use polylimit::Limiter;
use polylimit_server::ServerOptions;
use polylimit_test_servers::{Kind, Server as Redis};
use serde_json::json;

use crate::support::{Running, SOON, limiter, started};

#[test]
fn operators_and_callers_see_different_paths() {
    let server = started();
    for path in ["/metrics", "/v1/keys", "/v1/policies", "/v1/stats", "/openapi.json"] {
        assert_eq!(server.http().get(path).status, 404, "{path}");
    }
    assert_eq!(server.admin().post("/v1/check", &json!({ "policy": "api", "key": "k" })).status, 404);
    for client in [server.http(), server.admin()] {
        assert_eq!((client.get("/healthz").status, client.get("/readyz").status), (200, 200));
    }
}

#[test]
fn metrics_count_what_was_answered() {
    let server = started();
    for _ in 0..4 {
        let _ = server.http().post("/v1/check?status", &json!({ "policy": "api", "key": "secret key" }));
    }
    let metrics = server.admin().get("/metrics");
    assert_eq!(metrics.field("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    for line in [
        r#"polylimit_decisions_total{policy="api",result="allowed",source="store"} 3"#,
        r#"polylimit_server_requests_total{protocol="http",code="200"} 3"#,
        r#"polylimit_server_requests_total{protocol="http",code="429"} 1"#,
        r#"polylimit_server_rejected_total{protocol="resp",reason="protocol"} 0"#,
    ] {
        assert!(metrics.body.contains(line), "{line} is not in\n{}", metrics.body);
    }
    assert!(!metrics.body.contains("secret key"));
}

#[test]
fn keys_are_listed_and_explained() {
    let server = started();
    for key in ["user:1", "user:2", "other"] {
        let _ = server.http().post("/v1/take", &json!({ "policy": "api", "key": key, "cost": 3 }));
    }
    let page = server.admin().get("/v1/keys?policy=api&prefix=user%3A&used=50").json();
    assert_eq!(page["keys"].as_array().unwrap().len(), 2);
    let explained = server.admin().post("/v1/explain", &json!({ "policy": "api", "key": "user:1" })).json();
    assert_eq!((&explained["allowed"], &explained["quotas"][0]["admits"]), (&json!(false), &json!(false)));
    assert_eq!(server.admin().get("/v1/top?most=5").json()["counters"], 16);
    assert!(server.admin().get("/v1/stats").json()["applied"].as_u64().unwrap() >= 3);
    for path in
        ["/v1/keys?entries=0", "/v1/keys?used=x", "/v1/keys?none=1", "/v1/keys?cursor=x", "/v1/top?most=0"]
    {
        let refused = server.admin().get(path);
        assert_eq!((refused.status, &refused.json()["code"]), (400, &json!("invalid_argument")), "{path}");
    }
}

#[test]
fn document_is_published_over_the_version_that_was_read() {
    let redis = Redis::start(Kind::Redis, &[]);
    let url = format!("{}?deadline=5s", redis.url());
    let limiter = Limiter::builder().store(&url).configuration("store").build().unwrap();
    let server = Running::start(limiter, ServerOptions::default());
    let admin = server.admin();
    assert_eq!((admin.get("/readyz").status, admin.get("/healthz").status), (503, 200));
    let put = |version: &str, document: &str| {
        admin.send("PUT", "/v1/policies?why=test&by=me", &[("if-match", version)], document.as_bytes())
    };
    let first = "polylimit = 1\n[policies.api]\nquotas = \"5/minute\"\n";
    assert_eq!(put("\"0\"", first).status, 200);
    assert_eq!(admin.get("/readyz").status, 200);
    let read = admin.get("/v1/policies");
    assert_eq!(
        (read.field("etag"), &read.json()["document"]["policies"]["api"]["quotas"]),
        (Some("\"1\""), &json!("5/minute"))
    );
    assert_eq!(
        server.http().post("/v1/check", &json!({ "policy": "api", "key": "k" })).json()["remaining"],
        4
    );

    let second = first.replace('5', "9");
    assert_eq!((put("\"7\"", &second).status, put("*", &second).status), (412, 400));
    assert_eq!(admin.send("PUT", "/v1/policies?why=test", &[], second.as_bytes()).status, 428);
    for without_reason in ["/v1/policies", "/v1/policies?why=", "/v1/policies?why=%20"] {
        let refused = admin.send("PUT", without_reason, &[("if-match", "\"1\"")], second.as_bytes());
        assert_eq!(refused.status, 400, "{without_reason}");
    }
    let bad = put("\"1\"", "polylimit = 1\n[policies.api]\nquotas = \"often\"\n");
    assert!(bad.status == 400 && bad.json()["detail"].as_str().unwrap().contains("line 3"), "{bad:?}");
    assert_eq!(put("\"1\"", &second).status, 200);
    let history = admin.get("/v1/history?most=5").json();
    assert_eq!(
        (&history[0]["document_version"], &history[0]["by"], &history[0]["why"]),
        (&json!(2), &json!("me"), &json!("test"))
    );
}

#[test]
fn bad_file_keeps_the_document_before() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("limits.toml");
    let write = |quotas: &str| {
        let next = folder.path().join("next");
        fs::write(&next, format!("polylimit = 1\n[policies.api]\nquotas = \"{quotas}\"\n")).unwrap();
        fs::rename(&next, &path).unwrap();
    };
    write("5/minute");
    let limiter = Limiter::builder().configuration(&format!("file:{}", path.display())).build().unwrap();
    let mut options = ServerOptions::default();
    options.policies = Some(path.clone());
    let server = Running::start(limiter, options);
    let until = |holds: &dyn Fn() -> bool| {
        let since = Instant::now();
        while !holds() {
            assert!(since.elapsed() < SOON, "the document is not followed");
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    until(&|| server.admin().get("/readyz").status == 200);
    let limit =
        || server.http().post("/v1/peek", &json!({ "policy": "api", "key": "k" })).json()["limit"].clone();
    assert_eq!(limit(), 5);
    write("often");
    until(&|| server.admin().get("/v1/policies").json()["status"]["error"].is_string());
    let read = server.admin().get("/v1/policies");
    assert_eq!((read.status, &read.json()["document"]), (200, &json!(null)));
    assert!(server.admin().get("/metrics").body.contains("polylimit_policies_last_reload_successful 0"));
    let ready = server.admin().get("/readyz");
    assert!(ready.status == 200 && ready.body.contains("see the log"), "{ready:?}");
    assert_eq!(limit(), 5);
    write("7/minute");
    until(&|| limit() == 7);
    let read = server.admin().get("/v1/policies").json();
    assert_eq!(read["document"]["policies"]["api"]["quotas"], "7/minute");
    let put = server.admin().send("PUT", "/v1/policies?why=a", &[("if-match", "\"0\"")], b"polylimit = 1");
    assert_eq!(put.status, 409);
}

#[test]
fn server_without_a_document_says_so() {
    let server = Running::start(limiter().0, ServerOptions::default());
    assert_eq!(server.admin().get("/v1/policies").status, 404);
    assert_eq!(server.admin().get("/v1/history").status, 400);
}
