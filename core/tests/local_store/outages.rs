//! What is decided while the file cannot be used, and what is reported then.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt as _;
use std::process::Command;
use std::time::Duration;

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use polylimit::blocking::Limiter;
use polylimit::clock::ManualClock;
use polylimit::decision::{Degradation, Source};
use polylimit::metrics::DegradedEvent;
use polylimit::storage::Outage;
use polylimit::{Decision, ErrorKind, Policy};

use crate::child::{ChildProcess, QUOTA};
use crate::{Store, skip};

fn origin(decision: &Decision) -> (bool, Source, Option<Degradation>) {
    (decision.allowed(), decision.source(), decision.degraded())
}

/// A store in a directory that does not exist.
fn away() -> (Store, Store) {
    let directory = Store::new();
    let store = Store(directory.0.join("store"));
    (directory, store)
}

#[test]
fn outage_policies_decide_while_there_is_no_file() {
    let (_directory, store) = away();
    let unreachable = Some(Degradation::Unreachable);
    for (parameters, expected) in [
        ("", [(true, Source::Fallback, unreachable), (false, Source::Fallback, unreachable)]),
        ("?outage=allow", [(true, Source::Allow, unreachable); 2]),
        ("?size=1MiB&outage=deny", [(false, Source::Deny, unreachable); 2]),
    ] {
        let limiter = polylimit::Limiter::builder()
            .store(&format!("{}{parameters}", store.url()))
            .policy(Policy::parse("test", "1/day").unwrap())
            .build()
            .unwrap()
            .blocking();
        let decided = [(); 2].map(|()| origin(&limiter.check("key").unwrap()));
        assert_eq!(decided, expected, "{parameters}");
        let stats = limiter.asynchronous().stats();
        assert_eq!((stats.applied, stats.not_applied), (0, 2));
    }
}

#[test]
fn outage_can_be_set_for_each_policy_and_as_an_option() {
    let (_directory, store) = away();
    let policy = |name| Policy::parse(name, "1/day").unwrap();
    let builder =
        || polylimit::Limiter::builder().store(&store.url()).policy(policy("a")).policy(policy("b"));
    let limiter = builder().outage("a", Outage::Deny).option("outage", "allow").build().unwrap().blocking();
    let source = |name| limiter.check(polylimit::Request::new("key").policy(name)).unwrap().source();
    assert_eq!(["a", "b"].map(source), [Source::Deny, Source::Allow]);
    assert!(
        limiter
            .asynchronous()
            .raw()
            .take_events()
            .iter()
            .all(|event| !matches!(event, DegradedEvent::Finding(_)))
    );
    for (option, text) in [("outage", "perhaps"), ("fallback_share", "2"), ("fallback_share", "half")] {
        let error = builder().option(option, text).build().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    }
}

#[test]
fn fallback_admits_its_share() {
    let (_directory, store) = away();
    let limiter = polylimit::Limiter::builder()
        .store(&format!("{}?fallback_share=0.25", store.url()))
        .policy(Policy::parse("test", "8/day").unwrap())
        .build()
        .unwrap()
        .blocking();
    assert_eq!((0..9).filter(|_| limiter.check("key").unwrap().allowed()).count(), 2);
}

/// The document's policies have outage policies as well.
#[test]
fn outage_of_a_document_decides() {
    let (_directory, store) = away();
    let document = r#"{"polylimit": 1, "policies": {"p": {"quotas": "1/day", "outage": "deny"}}}"#;
    let limiter =
        polylimit::Limiter::builder().store(&store.url()).document(document).build().unwrap().blocking();
    let decision = limiter.check(polylimit::Request::new("key").policy("p")).unwrap();
    assert_eq!(origin(&decision), (false, Source::Deny, Some(Degradation::Unreachable)));
}

#[test]
fn reservation_that_was_made_without_the_file_ends_without_it() {
    let (directory, store) = away();
    let limiter = store.limiter("3/day");
    let reservation = limiter.reserve("key", polylimit::reservation::ReserveOptions::default()).unwrap();
    assert!(reservation.allowed());
    fs::create_dir(&directory.0).unwrap();
    assert_eq!(limiter.peek("key").unwrap().degraded(), None);
    let usage = reservation.commit_blocking(1).unwrap();
    assert_eq!((usage.found(), usage.source()), (true, Source::Fallback));
    fs::remove_dir_all(&directory.0).unwrap();
}

/// A log that cannot grow in a full file is decided by policy, and not with an error.
#[test]
fn log_in_a_full_file_is_decided_by_policy() {
    let store = Store::new();
    let clock = ManualClock::new(1_790_000_000_000_000).unwrap();
    let limiter = polylimit::Limiter::builder()
        .store(&format!("{}?size=1MiB", store.url()))
        .policy(Policy::parse("fill", "100/day").unwrap())
        .policy(Policy::parse("log", "20000/day sliding_log").unwrap())
        .outage("log", Outage::Deny)
        .clock(clock.clone())
        .build()
        .unwrap()
        .blocking();
    let fill = |key: u32| limiter.check(polylimit::Request::new(&key.to_string()).policy("fill")).unwrap();
    assert!((0..40_000).any(|key| fill(key).degraded() == Some(Degradation::StoreFull)));
    let decided = (0..20_000).map(|_| {
        clock.advance(Duration::from_micros(10)).unwrap();
        limiter.check(polylimit::Request::new("key").policy("log")).unwrap()
    });
    let denied = decided.map(|decision| origin(&decision)).find(|(allowed, ..)| !allowed);
    assert_eq!(denied, Some((false, Source::Deny, Some(Degradation::StoreFull))));
}

#[test]
fn process_without_descriptors_or_memory_decides_by_policy() {
    for limits in ["ulimit -n 40;", "ulimit -v 400000;"] {
        let store = Store::new();
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("{limits} exec \"$0\" \"$@\"")]).arg(std::env::current_exe().unwrap());
        let size = if limits.contains("-v") { "1GiB" } else { "1MiB" };
        let url = format!("{}?size={size}", store.url());
        let role = if limits.contains("-v") { "once" } else { "no resources" };
        let message = ChildProcess::of(shell, role, &url).receive().unwrap();
        assert!(message.starts_with("fallback no_resources: "), "{limits} {message}");
    }
}

/// Runs in a child process that may open few descriptors.
pub(crate) fn use_without_resources(limiter: &Limiter, send: impl Fn(&str)) {
    let mut opened: Vec<File> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
    let decision = limiter.check("key").unwrap();
    opened.clear();
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, most, most).unwrap();
    while limiter.check("key").unwrap().degraded().is_some() {}
    send(&format!("{} {}: ", decision.source().name(), decision.degraded().unwrap().name()));
}

#[test]
fn removed_file_is_reported_once_to_each_limiter() {
    let store = Store::new();
    let limiters = [(); 2].map(|()| store.limiter(QUOTA));
    let removals = |limiter: &Limiter| {
        let events = limiter.asynchronous().raw().take_events();
        let is_removal = |event: &&DegradedEvent| {
            matches!(event, DegradedEvent::Finding(finding)
                if finding.subject == "local" && finding.message.contains("was removed or replaced"))
        };
        events.iter().filter(is_removal).count()
    };
    for limiter in &limiters {
        assert!(limiter.check("key").unwrap().allowed());
        assert_eq!(removals(limiter), 0);
    }
    for _ in 0..2 {
        fs::remove_file(&store.0).unwrap();
        for limiter in &limiters {
            let mut reported = 0;
            while reported == 0 {
                let _ = limiter.check("key").unwrap();
                reported = removals(limiter);
            }
            let _ = limiter.check("key").unwrap();
            assert_eq!((reported, removals(limiter)), (1, 0));
        }
    }
}

/// A container has 64 MiB of shared memory, which others use as well: here of that only 1 MiB is left.
#[test]
fn named_store_is_made_elsewhere_when_shared_memory_is_full() {
    let name = format!("polylimit-test-{}", std::process::id());
    let mount = "mount -t tmpfs -o size=64m tmpfs /dev/shm || exit 9;";
    let may_mount = Command::new("unshare").args(["-m", "sh", "-c", mount]).status();
    if !may_mount.is_ok_and(|done| done.success()) {
        return skip("this process may not mount a file system");
    }
    let run = |script: &str| {
        let mut command = Command::new("unshare");
        let script = format!("{mount} {script} exec env -u XDG_RUNTIME_DIR \"$0\" \"$@\"");
        command.args(["-m", "sh", "-c", &script]).arg(std::env::current_exe().unwrap());
        ChildProcess::of(command, "once and events", &format!("local:{name}")).receive().unwrap()
    };
    // Next to another store of the default size and what else a container has there.
    let message = run("head -c 40000000 /dev/zero > /dev/shm/other;");
    assert_eq!(message, "store");
    let message = run("head -c 66000000 /dev/zero > /dev/shm/other;");
    let path = format!("/tmp/polylimit-{}-{name}", fs::metadata("/proc/self").unwrap().uid());
    assert!(message.starts_with("store ") && message.contains(&path), "{message}");
    // Found again, although there is space by now.
    let message = run("");
    assert!(message.starts_with("store ") && message.contains(&path), "{message}");
    fs::remove_file(path).unwrap();
}

/// Runs in a child process: the source of a decision, and what was reported.
pub(crate) fn check_and_tell(limiter: &Limiter, send: impl Fn(&str)) {
    let decision = limiter.check("key").unwrap();
    let events: Vec<String> =
        limiter.asynchronous().raw().take_events().iter().map(ToString::to_string).collect();
    send(format!("{} {}", decision.source().name(), events.join("; ")).trim());
}

/// Another user of the host may make a file of that name first: it is refused, and named as what it is.
#[test]
fn file_that_another_user_has_planted_is_refused() {
    let store = Store::new();
    fs::write(&store.0, vec![0; 1 << 20]).unwrap();
    if std::os::unix::fs::chown(&store.0, Some(12_345), None).is_err() {
        return skip("this process may not give files away");
    }
    let limiter = store.limiter(QUOTA);
    let error = limiter.check("key").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StoreFailed);
    assert!(error.message().contains("it belongs to user 12345"), "{error}");
}
