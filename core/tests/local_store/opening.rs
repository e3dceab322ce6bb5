//! Opening the file: its place, owner, mode, version and size, and missing space.

use std::fs::{self, OpenOptions, Permissions};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::process::Command;
use std::time::Duration;

use polylimit::decision::{Degradation, Source};
use polylimit::{Error, ErrorKind, Limiter, Policy};

use super::child::{ChildProcess, QUOTA};
use super::{Store, skip};

fn refusal(store: &Store) -> Error {
    let limiter = store.limiter(QUOTA);
    let error = limiter.check("key").unwrap_err();
    assert_eq!(limiter.check("key").unwrap_err(), error);
    error
}

#[track_caller]
fn assert_refused(store: &Store, kind: ErrorKind, words: &str) {
    let error = refusal(store);
    assert_eq!(error.kind(), kind, "{error}");
    assert!(error.to_string().contains(words), "{error}");
}

#[test]
fn new_file_is_private_and_fully_allocated() {
    let store = Store::new();
    let _ = store.limiter(QUOTA).check("key").unwrap();
    let found = fs::metadata(&store.0).unwrap();
    assert_eq!((found.mode() & 0o7777, found.len()), (0o600, 1 << 20));
    assert!(found.blocks() * 512 >= 1 << 20);
}

#[test]
fn store_name_is_a_file_in_shared_memory() {
    let name = format!("test-{}", std::process::id());
    let limiter = Limiter::builder().store(&format!("local:{name}?size=1MiB"));
    let limiter = limiter.policy(Policy::parse("test", QUOTA).unwrap()).build().unwrap().blocking();
    let _ = limiter.check("key").unwrap();
    let owner = fs::metadata(std::env::current_exe().unwrap()).unwrap().uid();
    let store = Store(format!("/dev/shm/polylimit-{owner}-{name}").into());
    assert_eq!(store.limiter(QUOTA).check("key").unwrap().remaining(), 98);
}

#[test]
fn file_with_other_mode_is_refused() {
    let store = Store::new();
    let _ = store.limiter(QUOTA).check("key").unwrap();
    fs::set_permissions(&store.0, Permissions::from_mode(0o640)).unwrap();
    assert_refused(&store, ErrorKind::StoreFailed, "its mode is 0640: allowed is 0600");
}

#[test]
fn file_of_other_owner_is_refused() {
    let store = Store::new();
    let _ = store.limiter(QUOTA).check("key").unwrap();
    if std::os::unix::fs::chown(&store.0, Some(12_345), None).is_err() {
        skip("only root can give a file to another user");
        return;
    }
    assert_refused(&store, ErrorKind::StoreFailed, "it belongs to user 12345");
}

#[test]
fn file_that_is_no_store_is_refused_and_unchanged() {
    let store = Store::new();
    for content in [vec![b'x'; 3], vec![b'x'; 1 << 20], b"plylimit".to_vec(), b"plylimit\x02".repeat(100)] {
        fs::write(&store.0, &content).unwrap();
        fs::set_permissions(&store.0, Permissions::from_mode(0o600)).unwrap();
        assert_eq!(refusal(&store).kind(), ErrorKind::StoreFailed);
        assert_eq!(fs::read(&store.0).unwrap(), content);
    }
    fs::remove_file(&store.0).unwrap();
    fs::create_dir(&store.0).unwrap();
    assert_refused(&store, ErrorKind::StoreFailed, "it is a directory");
    fs::remove_dir(&store.0).unwrap();
    std::os::unix::fs::symlink("/dev/null", &store.0).unwrap();
    assert_refused(&store, ErrorKind::StoreFailed, "it is a symbolic link");
}

#[test]
fn file_of_another_version_is_refused() {
    let store = Store::new();
    let _ = store.limiter(QUOTA).check("key").unwrap();
    let file = OpenOptions::new().write(true).open(&store.0).unwrap();
    file.write_all_at(&7_u64.to_ne_bytes(), 8).unwrap();
    assert_refused(&store, ErrorKind::StoreFailed, "it has version 7 and this is a polylimit of version 1");
}

#[test]
fn file_of_another_size_is_refused() {
    let store = Store::new();
    let _ = store.limiter(QUOTA).check("key").unwrap();
    let limiter = store.builder(QUOTA).local_size(2 << 20).build().unwrap().blocking();
    let error = limiter.check("key").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.to_string().contains("was created with 1048576 bytes, not 2097152"), "{error}");
    assert_eq!(store.limiter_of_any_size(QUOTA).check("key").unwrap().remaining(), 98);
}

#[test]
fn invalid_url_or_size_is_refused_before_the_file_is_opened() {
    let refusal = |builder: polylimit::LimiterBuilder| {
        builder.policy(Policy::parse("test", QUOTA).unwrap()).build().unwrap_err().to_string()
    };
    let local = |url| Limiter::builder().store(url);
    assert!(refusal(local("local:a/b")).contains("letters, digits and -_."));
    assert!(refusal(local("local:a?size=2MiB").local_size(1 << 21 | 1)).contains("set it once"));
    // Another store has no use for a size, which is checked nevertheless.
    assert!(refusal(local("memory:").local_size(5)).contains("1MiB to 64GiB"));
    assert!(refusal(local("local:a").local_size(5)).contains("1MiB to 64GiB"));
}

#[test]
fn concurrent_threads_open_the_file_once() {
    let store = Store::new();
    let limiter = store.limiter(QUOTA);
    std::thread::scope(|scope| {
        for _ in 0..50 {
            scope.spawn(|| assert!(limiter.check("key").unwrap().allowed()));
        }
    });
    assert_eq!(limiter.peek("key").unwrap().remaining(), 50);
}

#[test]
fn missing_directory_is_reported_and_may_be_created_later() {
    let directory = Store::new();
    let store = Store(directory.0.join("store"));
    let limiter = store.limiter(QUOTA);
    let decision = limiter.check("key").unwrap();
    assert_eq!((decision.source(), decision.degraded()), (Source::Fallback, Some(Degradation::Unreachable)));
    let error = limiter.ready(Duration::from_secs(1)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StoreUnavailable);
    assert!(error.to_string().contains("its directory does not exist: make it"), "{error}");
    let cause = std::error::Error::source(&error).and_then(|cause| cause.downcast_ref::<std::io::Error>());
    assert_eq!(cause.map(std::io::Error::kind), Some(std::io::ErrorKind::NotFound));
    fs::create_dir(&directory.0).unwrap();
    assert!(limiter.check("key").unwrap().allowed());
    fs::remove_dir_all(&directory.0).unwrap();
}

/// Uses a file system of half of the smallest size, if this process may mount one: as root, or in a user namespace.
#[test]
fn full_file_system_is_an_error_and_leaves_no_file() {
    let directory = Store::new();
    fs::create_dir(&directory.0).unwrap();
    let path = directory.0.to_str().unwrap();
    let mount = format!("mount -t tmpfs -o size=512k tmpfs {path} || exit 9;");
    let may_mount = |wrapper: &[&str]| {
        let mut command = Command::new(wrapper[0]);
        command.args(&wrapper[1..]).args(["sh", "-c", &mount]);
        command.output().is_ok_and(|output| output.status.success())
    };
    let wrappers: [&[&str]; 2] = [&["unshare", "-m"], &["unshare", "-rm"]];
    let url = format!("file://{path}/store?size=1MiB");
    if let Some(wrapper) = wrappers.into_iter().find(|wrapper| may_mount(wrapper)) {
        let mut command = Command::new(wrapper[0]);
        command.args(&wrapper[1..]).args(["sh", "-c", &format!("{mount} exec \"$0\" \"$@\"")]);
        command.arg(std::env::current_exe().unwrap());
        let mut other = ChildProcess::of(command, "full", &url);
        let message = other.receive().unwrap();
        assert!(message.starts_with("store_unavailable"), "{message}");
        assert!(message.contains("there is no space for its 1048576 bytes: free some"), "{message}");
        assert_eq!(other.receive().as_deref(), Some("no file is left"));
        assert_eq!(other.receive().as_deref(), Some("an empty file of another program is unchanged"));
    } else {
        skip("this process may not mount a file system");
    }
    fs::remove_dir(&directory.0).unwrap();
}

/// Runs in a child process on the full file system.
pub(crate) fn use_full_file_system(url: &str, limiter: &polylimit::blocking::Limiter, send: impl Fn(&str)) {
    let path = std::path::Path::new(url.strip_prefix("file://").unwrap().split_once('?').unwrap().0);
    let ready = || limiter.ready(Duration::from_secs(1)).unwrap_err();
    let error = ready();
    send(&format!("{}: {error}", error.kind()));
    assert_eq!(limiter.check("key").unwrap().degraded(), Some(Degradation::NoResources));
    assert!(fs::read_dir(path.parent().unwrap()).unwrap().next().is_none());
    send("no file is left");
    fs::write(path, "").unwrap();
    fs::set_permissions(path, Permissions::from_mode(0o600)).unwrap();
    // An attempt that took long is not repeated at once.
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(ready(), error);
    assert_eq!(fs::metadata(path).unwrap().len(), 0);
    send("an empty file of another program is unchanged");
}

#[test]
fn file_size_limit_is_an_error_and_leaves_no_file() {
    let store = Store::new();
    let mut shell = Command::new("sh");
    // The unit is 512 or 1024 bytes, depending on the shell.
    shell.args(["-c", "ulimit -f 512; exec \"$0\" \"$@\""]).arg(std::env::current_exe().unwrap());
    let message = ChildProcess::of(shell, "once", &format!("{}?size=1MiB", store.url())).receive().unwrap();
    assert!(
        message.starts_with("fallback no_resources") && message.contains("this process may write files of"),
        "{message}"
    );
    assert!(!store.0.exists());
}

#[test]
fn removed_file_is_created_again() {
    let store = Store::new();
    let limiter = store.limiter(QUOTA);
    let _ = limiter.check("key").unwrap();
    fs::remove_file(&store.0).unwrap();
    let other = store.limiter(QUOTA);
    assert_eq!(other.check("key").unwrap().remaining(), 99);
    std::thread::sleep(std::time::Duration::from_millis(1_100));
    let _ = limiter.check("key").unwrap();
    assert_eq!(limiter.check("key").unwrap().remaining(), 98);
    assert_eq!(other.check("key").unwrap().remaining(), 97);
}

#[test]
fn limiters_of_a_process_share_the_file() {
    let store = Store::new();
    let limiters: Vec<_> = (0..10).map(|_| store.limiter(QUOTA)).collect();
    for (round, limiter) in limiters.iter().enumerate() {
        assert_eq!(limiter.check("key").unwrap().remaining(), 99 - round as u64);
    }
    drop(limiters);
    // The usage is kept when all limiters are dropped.
    assert_eq!(store.limiter(QUOTA).check("key").unwrap().remaining(), 89);
}

/// The process that creates the file may be killed before the header is complete.
#[test]
fn partly_initialized_file_is_initialized_again() {
    let store = Store::new();
    let _ = store.limiter(QUOTA).check("key").unwrap();
    let whole = fs::read(&store.0).unwrap();
    // The words of the header. The first one is written last.
    for written in 0..12 {
        let mut part = vec![0; whole.len()];
        // The size is written before the other words.
        for word in [2, 1, 4, 5, 6, 7, 8, 9, 10, 11].into_iter().take(written) {
            part[word * 8..][..8].copy_from_slice(&whole[word * 8..][..8]);
        }
        fs::write(&store.0, &part).unwrap();
        assert_eq!(store.limiter(QUOTA).check("key").unwrap().remaining(), 99, "{written} words");
    }
}
