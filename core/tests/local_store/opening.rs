//! What is found when the file is opened, and where.

use std::fs::{self, OpenOptions, Permissions};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::process::Command;

use polylimit::{Error, ErrorKind, Limiter, Policy};

use super::Store;
use super::child::{Other, QUOTA};

fn refusal(store: &Store) -> Error {
    let limiter = store.limiter(QUOTA);
    let error = limiter.check("key").unwrap_err();
    assert_eq!(limiter.check("key").unwrap_err(), error);
    error
}

#[track_caller]
fn assert_refused(store: &Store, kind: ErrorKind, said: &str) {
    let error = refusal(store);
    assert_eq!(error.kind(), kind, "{error}");
    assert!(error.to_string().contains(said), "{error}");
}

#[test]
fn it_is_the_owners_alone_and_all_of_its_space_is_there() {
    let store = Store::new();
    let _ = store.limiter(QUOTA).check("key").unwrap();
    let found = fs::metadata(&store.0).unwrap();
    assert_eq!((found.mode() & 0o7777, found.len()), (0o600, 1 << 20));
    assert!(found.blocks() * 512 >= 1 << 20);
}

#[test]
fn a_name_is_a_file_in_shared_memory() {
    let name = format!("test-{}", std::process::id());
    let limiter = Limiter::builder().store(&format!("local:{name}?size=1MiB"));
    let limiter = limiter.policy(Policy::parse("test", QUOTA).unwrap()).build().unwrap().blocking();
    let _ = limiter.check("key").unwrap();
    let owner = fs::metadata(std::env::current_exe().unwrap()).unwrap().uid();
    let store = Store(format!("/dev/shm/polylimit-{owner}-{name}").into());
    assert_eq!(store.limiter(QUOTA).check("key").unwrap().remaining(), 98);
}

#[test]
fn what_is_not_the_owners_alone_is_refused() {
    let store = Store::new();
    let _ = store.limiter(QUOTA).check("key").unwrap();
    fs::set_permissions(&store.0, Permissions::from_mode(0o640)).unwrap();
    assert_refused(&store, ErrorKind::StoreFailed, "its mode is 0640: allowed is 0600");
    fs::set_permissions(&store.0, Permissions::from_mode(0o600)).unwrap();
    // Only root can give a file away.
    if std::os::unix::fs::chown(&store.0, Some(12_345), None).is_ok() {
        assert_refused(&store, ErrorKind::StoreFailed, "it belongs to user 12345");
    }
}

#[test]
fn what_is_no_store_is_left_alone() {
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
fn another_version_is_refused() {
    let store = Store::new();
    let _ = store.limiter(QUOTA).check("key").unwrap();
    let file = OpenOptions::new().write(true).open(&store.0).unwrap();
    file.write_all_at(&7_u64.to_ne_bytes(), 8).unwrap();
    assert_refused(&store, ErrorKind::StoreFailed, "it has version 7 and this is a polylimit of version 1");
}

#[test]
fn another_size_is_refused() {
    let store = Store::new();
    let _ = store.limiter(QUOTA).check("key").unwrap();
    let limiter = store.builder(QUOTA).local_size(2 << 20).build().unwrap().blocking();
    let error = limiter.check("key").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.to_string().contains("was made with 1048576 bytes and 2097152 are asked for"), "{error}");
    assert_eq!(store.limiter_of_any_size(QUOTA).check("key").unwrap().remaining(), 98);
}

#[test]
fn what_is_not_allowed_is_refused_before_anything_is_opened() {
    let refusal = |builder: polylimit::LimiterBuilder| {
        builder.policy(Policy::parse("test", QUOTA).unwrap()).build().unwrap_err().to_string()
    };
    let local = |url| Limiter::builder().store(url);
    assert!(refusal(local("local:a/b")).contains("letters, digits and -_."));
    assert!(refusal(local("local:a?size=2MiB").local_size(1 << 21 | 1)).contains("give it once"));
    assert!(refusal(local("memory:").local_size(1 << 20)).contains("the store is not local"));
    assert!(refusal(local("local:a").local_size(5)).contains("1MiB to 64GiB"));
}

#[test]
fn threads_that_ask_at_once_open_it_once() {
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
fn a_missing_directory_is_named_and_may_appear() {
    let directory = Store::new();
    let store = Store(directory.0.join("store"));
    let limiter = store.limiter(QUOTA);
    let error = limiter.check("key").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StoreUnavailable);
    assert!(error.to_string().contains("its directory does not exist: make it"), "{error}");
    fs::create_dir(&directory.0).unwrap();
    assert!(limiter.check("key").unwrap().allowed());
    fs::remove_dir_all(&directory.0).unwrap();
}

/// In a file system of half of the least size, in a process that may mount one: root's, or one with names of its own.
#[test]
fn a_full_file_system_is_an_error_and_leaves_nothing_behind() {
    let directory = Store::new();
    fs::create_dir(&directory.0).unwrap();
    let path = directory.0.to_str().unwrap();
    let mount = format!("mount -t tmpfs -o size=512k tmpfs {path} || exit 9;");
    let may_mount = |how: &[&str]| {
        let mut trying = Command::new(how[0]);
        trying.args(&how[1..]).args(["sh", "-c", &mount]);
        trying.output().is_ok_and(|output| output.status.success())
    };
    let ways: [&[&str]; 2] = [&["unshare", "-m"], &["unshare", "-rm"]];
    let url = format!("file://{path}/store?size=1MiB");
    if let Some(way) = ways.into_iter().find(|way| may_mount(way)) {
        let mut command = Command::new(way[0]);
        command.args(&way[1..]).args(["sh", "-c", &format!("{mount} exec \"$0\" \"$@\"")]);
        command.arg(std::env::current_exe().unwrap());
        let mut other = Other::of(command, "full", &url);
        let said = other.hear().unwrap();
        assert!(said.starts_with("store_unavailable"), "{said}");
        assert!(said.contains("there is no space for its 1048576 bytes: free some"), "{said}");
        assert_eq!(other.hear().as_deref(), Some("nothing is left behind"));
        assert_eq!(other.hear().as_deref(), Some("an empty file of others is left alone"));
    } else {
        eprintln!("no file system can be mounted here: the limit on the size of files alone is looked at");
    }
    fs::remove_dir(&directory.0).unwrap();
}

/// Runs in a process of its own, where there is no space.
pub(crate) fn full(url: &str, limiter: &polylimit::blocking::Limiter, said: impl Fn(&str)) {
    let path = std::path::Path::new(url.strip_prefix("file://").unwrap().split_once('?').unwrap().0);
    let error = limiter.check("key").unwrap_err();
    said(&format!("{}: {error}", error.kind()));
    assert_eq!(limiter.check("key").unwrap_err(), error);
    assert!(fs::read_dir(path.parent().unwrap()).unwrap().next().is_none());
    said("nothing is left behind");
    fs::write(path, "").unwrap();
    fs::set_permissions(path, Permissions::from_mode(0o600)).unwrap();
    assert_eq!(limiter.check("key").unwrap_err(), error);
    assert_eq!(fs::metadata(path).unwrap().len(), 0);
    said("an empty file of others is left alone");
}

#[test]
fn a_limit_on_the_size_of_files_is_an_error_and_leaves_nothing_behind() {
    let store = Store::new();
    let mut shell = Command::new("sh");
    // In units of 512 or 1024 bytes, as the shell has it.
    shell.args(["-c", "ulimit -f 512; exec \"$0\" \"$@\""]).arg(std::env::current_exe().unwrap());
    let said = Other::of(shell, "once", &format!("{}?size=1MiB", store.url())).hear().unwrap();
    assert!(
        said.starts_with("store_unavailable") && said.contains("this process may write files of"),
        "{said}"
    );
    assert!(!store.0.exists());
}

#[test]
fn a_file_that_is_removed_is_made_again() {
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
fn several_limiters_of_a_process_share_it() {
    let store = Store::new();
    let limiters: Vec<_> = (0..10).map(|_| store.limiter(QUOTA)).collect();
    for (round, limiter) in limiters.iter().enumerate() {
        assert_eq!(limiter.check("key").unwrap().remaining(), 99 - round as u64);
    }
    drop(limiters);
    // What was used is still used when all have closed it.
    assert_eq!(store.limiter(QUOTA).check("key").unwrap().remaining(), 89);
}

/// Whoever makes it may be killed before it is whole.
#[test]
fn one_that_was_never_made_whole_is_made_again() {
    let store = Store::new();
    let _ = store.limiter(QUOTA).check("key").unwrap();
    let whole = fs::read(&store.0).unwrap();
    // The words of the header, of which the first is written last.
    for written in 0..12 {
        let mut part = vec![0; whole.len()];
        // The size comes before everything else.
        for word in [2, 1, 4, 5, 6, 7, 8, 9, 10, 11].into_iter().take(written) {
            part[word * 8..][..8].copy_from_slice(&whole[word * 8..][..8]);
        }
        fs::write(&store.0, &part).unwrap();
        assert_eq!(store.limiter(QUOTA).check("key").unwrap().remaining(), 99, "{written} words");
    }
}
