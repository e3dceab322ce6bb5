//! What operators change over the admin listener: documents, lists, blocks.

use polylimit::Limiter;
use polylimit_server::ServerOptions;
use polylimit_test_servers::{Kind, Server as Redis};
use serde_json::json;

use crate::support::{Running, limiter, started};

const FIRST: &str =
    "polylimit = 1\n[policies.api]\nquotas = \"5/minute\"\n[lists]\ndeny = [\"client 203.0.113.0/24\"]\n";

/// A server with a document in a Redis of its own.
fn published() -> (Redis, Running) {
    let redis = Redis::start(Kind::Redis, &[]);
    let url = format!("{}?deadline=5s", redis.url());
    let limiter = Limiter::builder().store(&url).configuration("store").build().unwrap();
    let server = Running::start(limiter, ServerOptions::default());
    assert_eq!(put(&server, "\"0\"", FIRST), 200);
    (redis, server)
}

fn put(server: &Running, version: &str, document: &str) -> u16 {
    let fields = [("if-match", version)];
    server.admin().send("PUT", "/v1/policies?why=test&by=me", &fields, document.as_bytes()).status
}

#[test]
fn documents_are_checked_compared_and_rolled_back() {
    let (_redis, server) = published();
    let admin = server.admin();
    let send = |path: &str, body: &str| admin.send("POST", path, &[], body.as_bytes());
    let second = FIRST.replace('5', "9");
    assert_eq!(send("/v1/policies/validate", &second).json(), json!({ "valid": true, "error": null }));
    let invalid = send("/v1/policies/validate", &FIRST.replace("5/minute", "often")).json();
    assert!(invalid["valid"] == false && invalid["error"].as_str().unwrap().contains("line 3"), "{invalid}");
    assert_eq!(send("/v1/policies/diff", FIRST).json(), json!({ "equal": true, "difference": "" }));
    let changed = send("/v1/policies/diff", &second).json();
    let difference = changed["difference"].as_str().unwrap();
    assert!(
        changed["equal"] == false && difference.contains("-      \"quotas\": \"5/minute\""),
        "{difference}"
    );
    assert!(difference.contains("+      \"quotas\": \"9/minute\""), "{difference}");
    assert_eq!(send("/v1/policies/diff", "often").status, 400);

    assert_eq!(put(&server, "\"1\"", &second), 200);
    assert_eq!(
        admin.get("/v1/policies?version=1").json()["document"]["policies"]["api"]["quotas"],
        "5/minute"
    );
    assert_eq!(admin.get("/v1/policies?version=9").status, 404);
    let back = admin.post("/v1/rollback", &json!({ "version": 1, "why": "too many", "by": "me" }));
    assert_eq!((back.status, &back.json()["error"]), (200, &json!(null)));
    assert_eq!(admin.get("/v1/policies").json()["document"]["policies"]["api"]["quotas"], "5/minute");
    assert_eq!(admin.get("/v1/history?most=1").json()[0]["why"], "too many");
    for wrong in
        [json!({ "version": 9, "why": "test" }), json!({ "version": 1, "why": " " }), json!({ "version": 1 })]
    {
        assert_eq!(admin.post("/v1/rollback", &wrong).status, 400, "{wrong}");
    }
}

#[test]
fn document_that_has_lost_the_policies_is_not_published() {
    let (_redis, server) = published();
    let admin = server.admin();
    let bare = admin.send("PUT", "/v1/policies?why=test", &[("if-match", "\"1\"")], b"polylimit = 1\n");
    let answer = bare.json();
    assert_eq!((bare.status, &answer["code"]), (400, &json!("invalid_argument")));
    assert!(answer["detail"].as_str().unwrap().contains("it may be incomplete"), "{answer}");
    assert_eq!(admin.get("/v1/policies").json()["document_version"], 1);
    assert_eq!(put(&server, "\"1\"", "polylimit = 1\nenabled = false\n"), 200);
}

#[test]
fn items_of_lists_come_and_go_with_their_reasons() {
    let (_redis, server) = published();
    let admin = server.admin();
    let item = json!({ "list": "deny", "item": "key api mallory", "for_us": 3_600_000_000_u64, "why": "scans", "by": "me" });
    let added = admin.post("/v1/lists/add", &item).json();
    assert_eq!(added, json!({ "entry": "deny key api mallory", "version": 2 }));
    let check = || server.http().post("/v1/check", &json!({ "policy": "api", "key": "mallory" })).json();
    assert_eq!(check()["cause"], "deny_list");
    let lists = admin.get("/v1/lists").json();
    assert_eq!(
        (&lists["deny"][0]["item"], &lists["deny"][0]["origin"], &lists["allow"]),
        (&json!("client 203.0.113.0/24"), &json!("document"), &json!([]))
    );
    let told = &lists["deny"][1];
    assert_eq!(
        (&told["item"], &told["by"], &told["why"]),
        (&json!("key api mallory"), &json!("me"), &json!("scans"))
    );
    assert!(told["until"].as_str().unwrap().ends_with('Z'));

    let remove = json!({ "list": "deny", "item": "key api mallory", "why": "over" });
    assert_eq!(admin.post("/v1/lists/remove", &remove).status, 200);
    assert_eq!(check()["allowed"], true);
    assert_eq!(admin.post("/v1/lists/remove", &remove).json()["code"], "not_found");
    for wrong in [
        json!({ "list": "grey", "item": "client 192.0.2.1", "why": "test" }),
        json!({ "list": "deny", "item": "client 192.0.2.0/33", "why": "test" }),
        json!({ "list": "deny", "item": "key search k", "why": "test" }),
        json!({ "list": "deny", "item": "client 192.0.2.1", "why": " " }),
        json!({ "list": "deny", "item": "client 192.0.2.1" }),
    ] {
        assert_eq!(admin.post("/v1/lists/add", &wrong).json()["code"], "invalid_argument", "{wrong}");
    }
}

#[test]
fn keys_are_blocked_unblocked_and_reset() {
    let server = started();
    let admin = server.admin();
    let check = |key: &str| {
        server.http().post("/v1/check", &json!({ "policy": "api", "key": key, "cost": 3 })).json()["allowed"]
            .clone()
    };
    let block = |key: &str, for_us: u64| {
        admin.post("/v1/block", &json!({ "policy": "api", "key": key, "for_us": for_us })).status
    };
    assert_eq!((check("a"), check("a"), check("b")), (json!(true), json!(false), json!(true)));
    assert_eq!(admin.post("/v1/reset", &json!({ "policy": "api", "key": "a" })).status, 200);
    assert_eq!((block("a", 60_000_000), check("a")), (200, json!(false)));
    let blocked = admin.get("/v1/keys?blocked=true").json();
    assert_eq!((blocked["keys"].as_array().unwrap().len(), &blocked["keys"][0]["key"]), (1, &json!("a")));
    assert_eq!((block("a", 0), check("a")), (200, json!(true)));
    assert_eq!((block("a", 1), block("a", u64::MAX)), (400, 400));
    assert_eq!(admin.post("/v1/block", &json!({ "policy": "api", "for_us": 0 })).status, 400);
}

#[test]
fn server_without_a_document_says_what_it_lacks() {
    let server = Running::start(limiter().0, ServerOptions::default());
    let admin = server.admin();
    for (reply, words) in [
        (admin.get("/v1/lists"), "no configuration"),
        (
            admin
                .post("/v1/lists/add", &json!({ "list": "deny", "item": "client 192.0.2.1", "why": "test" })),
            "no configuration",
        ),
        (admin.post("/v1/rollback", &json!({ "version": 1, "why": "test" })), "no configuration"),
    ] {
        assert!(reply.status == 400 && reply.body.contains(words), "{reply:?}");
    }
}
