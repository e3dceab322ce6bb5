//! The store keeps the contract, survives restarts and forgets what has expired.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use polylimit::admin::PublishOptions;
use polylimit::decision::{Degradation, Source};
use polylimit::{Limiter, Policy, blocking, storage};
use polylimit_example_store_sqlite::SqliteStore;

type Failure = Box<dyn std::error::Error>;

fn limiter(path: &Path, quotas: &str) -> Result<blocking::Limiter, Failure> {
    let builder = Limiter::builder().custom_store(SqliteStore::open(path)?);
    Ok(builder.policy(Policy::parse("api", quotas)?).build()?.blocking())
}

#[test]
fn contract_is_kept() -> Result<(), Failure> {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("limits.db");
    drop(SqliteStore::open(&path)?);
    let connect = || SqliteStore::open(&path).map_err(|error| error.to_string());
    connect()?;
    // A panic of a thread would be reported, too.
    Ok(storage::contract(|| connect().unwrap_or_else(|error| panic!("{error}")))?)
}

#[test]
fn states_survive_restarts() -> Result<(), Failure> {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("limits.db");
    for remaining in (0..5).rev() {
        let limiter = limiter(&path, "5/day fixed_window")?;
        assert_eq!(limiter.check("user:42")?.remaining(), remaining);
    }
    assert!(!limiter(&path, "5/day fixed_window")?.check("user:42")?.allowed());
    // Other numbers, the same use.
    assert_eq!(limiter(&path, "8/day fixed_window")?.peek("user:42")?.remaining(), 3);
    Ok(())
}

#[test]
fn documents_are_published_to_the_same_file() -> Result<(), Failure> {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("limits.db");
    let limiter = || -> Result<blocking::Limiter, Failure> {
        let builder = Limiter::builder().custom_store(SqliteStore::open(&path)?);
        Ok(builder.configuration("store").build()?.blocking())
    };
    let (author, other) = (limiter()?, limiter()?);
    let document = "polylimit = 1\n[policies.api]\nquotas = \"5/day fixed_window\"\n";
    let published = author.admin().publish(document, PublishOptions::default())?;
    other.admin().wait_for_version(published.version, Duration::from_secs(60))?;
    assert_eq!(author.check("user:42")?.remaining(), 4);
    assert_eq!(other.check("user:42")?.remaining(), 3);
    author.admin().set_entry("override api user:7", r#"{"numbers": "9/day fixed_window"}"#)?;
    // A limiter that starts later finds document and entries.
    let later = limiter()?;
    later.ready(Duration::from_secs(60))?;
    assert_eq!(later.check("user:42")?.remaining(), 2);
    assert_eq!(later.check("user:7")?.remaining(), 8);
    Ok(())
}

#[test]
fn expired_states_are_removed() -> Result<(), Failure> {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("limits.db");
    let limiter = limiter(&path, "10/10ms token_bucket")?;
    for number in 0..100 {
        assert!(limiter.check(&format!("user:{number}"))?.allowed());
    }
    let states = || -> Result<i64, Failure> {
        let connection = rusqlite::Connection::open(&path)?;
        Ok(connection.query_row("SELECT count(*) FROM states", [], |row| row.get(0))?)
    };
    let started = Instant::now();
    while states()? > 10 {
        assert!(started.elapsed() < Duration::from_secs(60), "{} states are left", states()?);
        thread::sleep(Duration::from_millis(1));
        let _ = limiter.check("user:next")?;
    }
    Ok(())
}

#[test]
fn outage_policy_answers_while_the_file_is_locked() -> Result<(), Failure> {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("limits.db");
    let limiter = limiter(&path, "5/day")?;
    assert_eq!(limiter.check("user:42")?.source(), Source::Store);
    let other = rusqlite::Connection::open(&path)?;
    other.execute_batch("BEGIN IMMEDIATE")?;
    let decision = limiter.check("user:42")?;
    assert_eq!((decision.source(), decision.degraded()), (Source::Fallback, Some(Degradation::Unreachable)));
    let error = limiter.ready(Duration::from_secs(1)).unwrap_err();
    assert!(
        error.message().starts_with("the store sqlite:") && error.message().ends_with("database is locked"),
        "{error}"
    );
    assert!(std::error::Error::source(&error).is_some_and(<dyn std::error::Error>::is::<rusqlite::Error>));
    other.execute_batch("ROLLBACK")?;
    assert_eq!(limiter.check("user:42")?.source(), Source::Store);
    Ok(())
}
