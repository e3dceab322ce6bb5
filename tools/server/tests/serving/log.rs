//! The log: outages, documents, sign-ins, and the callers of changes.

use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};

use polylimit::Limiter;
use polylimit_server::{Level, ServerOptions};
use polylimit_test_servers::{Kind, Server as Redis};
use serde_json::{Value, json};

use crate::security::with_tokens;
use crate::support::{Running, exchange, limiter, wait_until};

/// The records of a server.
#[derive(Clone, Default)]
struct Records(Arc<Mutex<Vec<Value>>>);

impl Records {
    fn of(options: &mut ServerOptions) -> Self {
        let records = Self::default();
        let kept = records.clone();
        options.log = Arc::new(move |record| {
            let mut json: Value = serde_json::from_str(&record.json()).unwrap();
            assert!(json["time"].as_str().unwrap().ends_with('Z') && Level::ALL.contains(&record.level()));
            json.as_object_mut().unwrap().remove("time");
            kept.0.lock().unwrap().push(json);
        });
        records
    }

    /// The first record of an event, once there is one.
    fn wait(&self, event: &str) -> Value {
        let found = || self.0.lock().unwrap().iter().find(|record| record["event"] == event).cloned();
        wait_until(|| found().is_some());
        found().unwrap()
    }

    fn all(&self, event: &str) -> Vec<Value> {
        self.0.lock().unwrap().iter().filter(|record| record["event"] == event).cloned().collect()
    }
}

#[test]
fn changes_of_keys_name_author_reason_and_peer() {
    let folder = tempfile::tempdir().unwrap();
    let mut options = with_tokens(folder.path());
    let records = Records::of(&mut options);
    let server = Running::start(limiter().0, options);
    let send = |admin: bool, path: &str, body: Value| {
        let client = if admin { server.admin() } else { server.http() };
        client.send("POST", path, &[("authorization", "Bearer admin")], body.to_string().as_bytes()).status
    };
    assert_eq!(
        send(
            true,
            "/v1/block",
            json!({ "policy": "api", "key": "k\n", "for_us": 60_000_000, "why": "scrapes", "by": "anna" })
        ),
        200
    );
    assert_eq!(send(true, "/v1/block", json!({ "policy": "api", "key": "k", "for_us": 0 })), 200);
    assert_eq!(send(true, "/v1/reset", json!({ "policy": "api", "key": "k", "why": "was wrong" })), 200);
    assert_eq!(send(false, "/v1/reset", json!({ "requests": [{ "policy": "api", "key": "k" }] })), 200);
    assert_eq!(send(false, "/v1/check", json!({ "policy": "api", "key": "k", "why": "a" })), 400);
    assert_eq!(
        send(
            true,
            "/v1/block",
            json!({ "policy": "api", "key": "k", "for_us": 0, "why": "a".repeat(1_025) })
        ),
        400
    );
    let mut stream = server.resp();
    exchange(&mut stream, &["AUTH admin", "POLYLIMIT.RESET api k"], "+OK\r\n*10\r\n");
    assert_eq!(
        records.wait("key_blocked"),
        json!({
            "level": "info", "event": "key_blocked", "message": "a key was blocked", "policy": "api", "key": "k\n", "for_us": "60000000",
            "by": "a-admin (anna)", "why": "scrapes", "peer": "127.0.0.1"
        })
    );
    assert_eq!(records.wait("key_unblocked")["by"], "a-admin");
    assert_eq!(records.wait("key_reset")["why"], "was wrong");
    wait_until(|| records.all("key_reset").len() == 3);
    assert!(records.all("key_reset").iter().all(|record| record["by"] == "a-admin" && record["key"] == "k"));
}

#[test]
fn failed_sign_ins_are_recorded_together() {
    let folder = tempfile::tempdir().unwrap();
    let mut options = with_tokens(folder.path());
    options.limits.sign_in_delay = std::time::Duration::from_millis(1);
    let records = Records::of(&mut options);
    let server = Running::start(limiter().0, options);
    let guess = |token: &str| {
        server
            .http()
            .send("POST", "/v1/check", &[("authorization", &format!("Bearer {token}"))], b"{}")
            .status
    };
    assert_eq!(["a", "b", "check"].map(guess), [401, 401, 400]);
    exchange(&mut server.resp(), &["AUTH guess"], "-WRONGPASS");
    let failed = records.all("sign_in_failed");
    assert!(
        failed.len() == 1 && failed[0]["message"] == "1 sign-in with a token that is not known",
        "{failed:?}"
    );
    assert_eq!(failed[0]["last_peer"], "127.0.0.1");
}

fn write(path: &Path, text: &str) {
    let next = path.with_extension("next");
    fs::write(&next, text).unwrap();
    fs::rename(&next, path).unwrap();
}

#[test]
fn refused_and_missing_documents_are_recorded() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("limits.toml");
    let document = "polylimit = 1\n[policies.api]\nquotas = \"5/minute\"\n";
    write(&path, document);
    let limiter = Limiter::builder().configuration(&format!("file:{}", path.display())).build().unwrap();
    let mut options = ServerOptions::default();
    let records = Records::of(&mut options);
    let server = Running::start(limiter, options);
    let _ = records.wait("document_applied");
    let findings = || records.all("finding");
    write(&path, "broken [");
    wait_until(|| findings().len() == 1);
    let refused = findings()[0]["message"].as_str().unwrap().to_owned();
    assert!(refused.contains("line 1") && refused.ends_with("the previous limits stay active"), "{refused}");
    fs::remove_file(&path).unwrap();
    wait_until(|| findings().len() == 2);
    assert!(!server.admin().get("/metrics").body.contains("polylimit_policies_unreachable_seconds 0\n"));
    write(&path, document);
    wait_until(|| findings().len() == 3);
    assert_eq!(findings()[2]["level"], "info");
    assert!(server.admin().get("/metrics").body.contains("polylimit_policies_last_reload_successful 1"));
    assert_eq!(records.all("document_applied").len(), 1);
}

#[test]
fn store_that_goes_and_comes_back_is_recorded_and_its_password_is_read_again() {
    let redis = Redis::start(Kind::Redis, &[]);
    let mut admin = redis::Client::open(redis.url()).unwrap().get_connection().unwrap();
    let set = |admin: &mut redis::Connection, password: &str| {
        let rules = ["on", "resetpass", password, "~*", "&*", "+@all"];
        redis::cmd("ACL").arg("SETUSER").arg("app").arg(&rules).exec(admin).unwrap();
    };
    set(&mut admin, ">old");
    let url = format!("redis://app:old@127.0.0.1:{}?deadline=5s", redis.port());
    let limiter = Limiter::builder().store(&url).build().unwrap();
    let mut options = ServerOptions::default();
    let records = Records::of(&mut options);
    let password = Arc::new(Mutex::new("old".to_owned()));
    let read = Arc::clone(&password);
    options.store_login = Some(Arc::new(move || {
        let mut login = polylimit_server::StoreLogin::default();
        (login.username, login.password) = (Some("app".to_owned()), read.lock().unwrap().clone());
        Ok(Some(login))
    }));
    let server = Running::start(limiter, options);
    let source = || {
        server.http().post("/v1/check", &json!({ "policy": "9/minute", "key": "k" })).json()["source"].clone()
    };
    assert_eq!(source(), "store");
    set(&mut admin, ">new");
    let _: usize = redis::cmd("CLIENT").arg("KILL").arg("USER").arg("app").query(&mut admin).unwrap();
    *password.lock().unwrap() = "new".to_owned();
    wait_until(|| source() != "store");
    // By the connection that was lost, or by the next one.
    let reason = records.wait("store_away")["reason"].clone();
    assert!(reason == "auth" || reason == "connection_lost", "{reason}");
    let _ = records.wait("store_login_changed");
    wait_until(|| source() == "store");
}
