//! A document in a file, alone and with entries in Redis.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use polylimit::testing::configuration::Followed;
use polylimit_test_servers::{Dataset, Kind, Server, until};

use super::support::{SOON, until_document, until_error, until_no_error};

fn start(path: &Path) -> Result<Followed, polylimit::Error> {
    Followed::start(None, &format!("file:{}", path.display()), None)
}

fn replace(path: &Path, text: &str) {
    let next = path.with_extension("next");
    fs::write(&next, text).unwrap();
    fs::rename(next, path).unwrap();
}

#[test]
fn file_is_followed_and_a_bad_one_keeps_the_one_before() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("limits.toml");
    let error = start(&path).err().unwrap();
    assert!(error.message().contains("cannot be read"), "{error}");
    fs::write(&path, "bad").unwrap();
    let error = start(&path).err().unwrap();
    assert!(error.message().starts_with("line 1, column 1"), "{error}");
    fs::write(&path, "one").unwrap();
    let followed = start(&path).unwrap();
    let other = start(&path).unwrap();
    assert!(followed.is_ready());
    assert_eq!((followed.document().as_deref(), followed.status().version), (Some("one"), 1));
    replace(&path, "two");
    until_document(&followed, "two");
    until_document(&other, "two");
    replace(&path, "bad");
    until_error(&followed, "line 1, column 1");
    assert!(start(&path).is_err(), "a bad document at the start");
    assert_eq!((followed.document().as_deref(), followed.status().version), (Some("two"), 2));
    fs::remove_file(&path).unwrap();
    until("the missing file is reported", SOON, || followed.status().error.map(drop));
    fs::write(&path, "three").unwrap();
    until_document(&followed, "three");
    until_no_error(&followed);
}

#[test]
fn torn_file_keeps_the_one_before() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("limits.toml");
    fs::write(&path, "one").unwrap();
    let followed = start(&path).unwrap();
    let applied = followed.applied();
    // Written in place, piece by piece, without a rest.
    let mut text = String::new();
    for piece in 0..40 {
        writeln!(text, "piece {piece}").unwrap();
        fs::write(&path, &text).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    let seen = followed.applied() - applied;
    until_document(&followed, &text);
    println!("{seen} of 40 states were read");
    // A machine that suspends the writer for two looks makes one of them rest.
    assert!(seen <= 2, "{seen}");
    fs::write(&path, b"\xff\xfe").unwrap();
    until_error(&followed, "not UTF-8");
    assert_eq!(followed.document().as_deref(), Some(&*text));
}

/// As the kubelet updates the volume of a `ConfigMap`.
#[test]
fn swapped_symbolic_link_is_followed() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    for (version, text) in [("..1", "one"), ("..2", "two")] {
        fs::create_dir(at(version)).unwrap();
        fs::write(at(version).join("limits.toml"), text).unwrap();
    }
    symlink("..1", at("..data")).unwrap();
    symlink("..data/limits.toml", at("limits.toml")).unwrap();
    let followed = start(&at("limits.toml")).unwrap();
    symlink("..2", at("..data_tmp")).unwrap();
    fs::rename(at("..data_tmp"), at("..data")).unwrap();
    fs::remove_dir_all(at("..1")).unwrap();
    until_document(&followed, "two");
    until_no_error(&followed);
}

#[test]
fn document_from_a_file_with_entries_from_redis() {
    let server = Server::start(Kind::Redis, &[]);
    let folder = tempfile::tempdir().unwrap();
    let (path, copy) = (folder.path().join("limits.toml"), folder.path().join("copy"));
    let place = format!("store+file:{}", path.display());
    let start = || Followed::start(Some(&server.url()), &place, Some(&copy));
    assert!(start().is_err());
    fs::write(&path, "one").unwrap();
    let followed = start().unwrap();
    followed.ready(SOON).unwrap();
    until_no_error(&followed);
    followed.change(&[("deny user a", Some("{}"))]).unwrap();
    assert!(followed.wait_for_version(1, SOON));
    // A document in the store is for others.
    followed.publish("published", 0).unwrap().unwrap();
    assert!(followed.wait_for_version(2, SOON));
    assert_eq!((followed.document().as_deref(), followed.entries().len()), (Some("one"), 1));
    replace(&path, "two");
    until_document(&followed, "two");
    assert_eq!(followed.entries().len(), 1);
    until("the copy is written", SOON, || fs::read_to_string(&copy).unwrap().contains("two").then_some(()));
    drop(followed);
    server.kill();
    let followed = start().unwrap();
    assert!(followed.is_ready(), "the entries are in the copy");
    assert_eq!((followed.document().as_deref(), followed.entries().len()), (Some("two"), 1));
    drop(followed);
    fs::remove_file(&copy).unwrap();
    let followed = start().unwrap();
    assert!(!followed.is_ready(), "the entries are unknown");
    server.restart(Dataset::Empty);
    followed.ready(SOON).unwrap();
}

#[test]
fn copy_serves_while_the_file_is_missing_at_start() {
    let folder = tempfile::tempdir().unwrap();
    let (path, copy) = (folder.path().join("limits.toml"), folder.path().join("copy"));
    let place = format!("file:{}", path.display());
    let start = || Followed::start(None, &place, Some(&copy));
    fs::write(&path, "one").unwrap();
    drop(start().unwrap());
    fs::remove_file(&path).unwrap();
    let followed = start().unwrap();
    assert_eq!(followed.document().as_deref(), Some("one"));
    until_error(&followed, "cannot be read");
    fs::write(&path, "two").unwrap();
    until_document(&followed, "two");
    drop(followed);
    fs::write(&path, "bad").unwrap();
    assert!(start().is_err(), "a bad document is an error, whatever the copy has");
}

#[test]
fn store_needs_redis() {
    for place in ["store", "store+file:/limits.toml"] {
        let error = Followed::start(None, place, None).err().unwrap();
        assert!(error.message().contains("this store keeps no document"), "{error}");
    }
}
