//! What limiters read of the configuration in Redis.

use std::time::Duration;

use polylimit::admin::PublishOptions;
use polylimit::blocking::Limiter;
use polylimit::raw::canonical_document;
use polylimit::{ErrorKind, Limiter as AsyncLimiter};
use polylimit_test_servers::{Kind, Server};

const DOCUMENT: &str = "# Of the shop.\npolylimit = 1\n[policies.p]\nquotas = '2/hour'\n";

fn limiter(url: &str, configuration: &str) -> Limiter {
    let builder = AsyncLimiter::builder().store(url).configuration(configuration);
    builder.build().expect("a limiter").blocking()
}

#[test]
fn documents_and_entries_are_read_as_they_were_published() {
    let server = Server::start(Kind::Redis, &[]);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let limiter = limiter(&server.url(), "store");
    assert_eq!(limiter.admin().published_document(None), Ok(None));
    assert!(limiter.admin().configuration_entries().unwrap().entries.is_empty());
    let first = limiter.admin().publish(DOCUMENT, PublishOptions::default()).unwrap();
    let _ = limiter.admin().publish(&DOCUMENT.replace("2/", "3/"), PublishOptions::default()).unwrap();
    let published = limiter.admin().published_document(Some(1)).unwrap().unwrap();
    assert_eq!((published.document_version, &published.digest), (1, &first.digest));
    assert_eq!(Ok(published.document), canonical_document(DOCUMENT));
    assert_eq!(&*published.text, DOCUMENT);
    let newest = limiter.admin().published_document(None).unwrap().unwrap();
    assert_eq!(newest.document_version, 2);
    assert_eq!(&*newest.text, DOCUMENT.replace("2/", "3/"));
    assert_eq!(limiter.admin().published_document(Some(3)), Ok(None));

    let value = r#"{"by":"anna","why":"scan"}"#;
    let set = limiter.admin().change_entry("deny user mallory", Some(value), "bert", "ticket 7").unwrap();
    assert_eq!(set.version, 3);
    let _ = limiter.admin().set_entry("allow user alice", value).unwrap();
    let entries = limiter.admin().configuration_entries().unwrap();
    assert_eq!(entries.version, 4);
    let told: Vec<_> = entries.entries.iter().map(|entry| (&*entry.entry, &*entry.value)).collect();
    assert_eq!(told, [("allow user alice", value), ("deny user mallory", value)]);
    let _ = runtime.block_on(limiter.asynchronous().admin().rollback(1, PublishOptions::default())).unwrap();
    let back = limiter.admin().published_document(None).unwrap().unwrap();
    assert_eq!((back.document_version, &*back.text), (3, DOCUMENT));
    let _ = limiter.admin().change_entry("deny user mallory", None, "carl", "over").unwrap();
    assert_eq!(limiter.admin().configuration_entries().unwrap().entries.len(), 1);
    let error = limiter.admin().change_entry("deny key q k", Some("{}"), "", "").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    let error = limiter.admin().change_entry("deny user x", Some("{}"), "", &"x".repeat(1_025)).unwrap_err();
    assert!(error.message().contains("why has 1025 bytes"), "{error}");

    let history = runtime.block_on(limiter.asynchronous().admin().configuration_history(9)).unwrap();
    let authors: Vec<_> = history.iter().map(|change| (&*change.by, &*change.why)).collect();
    assert_eq!(authors[..4], [("carl", "over"), ("", ""), ("anna", "scan"), ("bert", "ticket 7")]);
}

#[test]
fn sources_tell_what_they_do_not_have() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("limits.toml");
    std::fs::write(&path, DOCUMENT).unwrap();
    let of_file = limiter("memory:", &format!("file:{}", path.display()));
    for error in [
        of_file.admin().published_document(None).unwrap_err(),
        of_file.admin().configuration_entries().unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    }
    let own = AsyncLimiter::builder().document(DOCUMENT).build().unwrap().blocking();
    let _ = own.admin().set_entry("deny user mallory", "{}").unwrap();
    assert_eq!(&*own.admin().configuration_entries().unwrap().entries[0].entry, "deny user mallory");
    assert!(own.admin().published_document(None).is_err());
}

#[test]
fn missing_right_is_told_apart() {
    let server = Server::start(Kind::Redis, &[]);
    server.command(&["ACL", "SETUSER", "limits", "on", ">secret", "~*", "+@all", "-hmget"]);
    let limiter_of =
        |password: &str| limiter(&format!("redis://limits:{password}@127.0.0.1:{}", server.port()), "store");
    let limiter = limiter_of("secret");
    let error = limiter.admin().published_document(None).unwrap_err();
    assert!(error.lacks_right() && error.kind() == ErrorKind::StoreFailed, "{error:?}");
    assert!(limiter_of("wrong").admin().published_document(None).unwrap_err().lacks_right());
    server.kill();
    let error = limiter.admin().published_document(None).unwrap_err();
    assert!(!error.lacks_right() && error.kind() == ErrorKind::StoreUnavailable, "{error:?}");
    let closed = limiter.admin().wait_for_version(1, Duration::ZERO).unwrap_err();
    assert!(!closed.lacks_right());
}
