//! Followers of these tests.

use std::time::Duration;

use polylimit::testing::configuration::Followed;
use polylimit_test_servers::{Server, until};

/// For what happens at once, on a machine that may be busy.
pub(crate) const SOON: Duration = Duration::from_secs(20);

/// A follower of the configuration in a store.
pub(crate) fn follow(url: &str) -> Followed {
    Followed::start(Some(url), "store", None).unwrap()
}

/// A follower that knows the newest version.
pub(crate) fn follow_published(url: &str) -> Followed {
    let followed = follow(url);
    followed.ready(SOON).unwrap();
    followed
}

/// Waits until the follower reports an error with this text.
#[track_caller]
pub(crate) fn until_error(followed: &Followed, about: &str) -> String {
    until(about, SOON, || followed.status().error.filter(|error| error.contains(about)))
}

#[track_caller]
pub(crate) fn until_no_error(followed: &Followed) {
    until("no error is reported", SOON, || followed.status().error.is_none().then_some(()));
}

#[track_caller]
pub(crate) fn until_document(followed: &Followed, text: &str) {
    until(text, SOON, || (followed.document().as_deref() == Some(text)).then_some(()));
}

/// The main key, or one next to it, such as `:log`.
pub(crate) fn key(suffix: &str) -> String {
    format!("polylimit:1:{{configuration}}{suffix}")
}

/// Publishes as an operator without polylimit would: by commands, and without looking at what is there.
pub(crate) fn publish_by_hand(server: &Server, document: &str) {
    let field = |name: &str| server.query::<Option<String>>(&["HGET", &key(""), name]);
    let number = |name: &str| field(name).map_or(1, |text| text.parse::<u64>().unwrap() + 1).to_string();
    let (version, document_version) = (number("version"), number("document_version"));
    let last = field("last").unwrap_or_default();
    let log = key(":log");
    let mut command = vec!["XADD", &log, "*", "version", &version, "after", &last];
    command.extend(["by", "hand", "why", "", "document", "unknown"]);
    let id: String = server.query(&command);
    let head = key("");
    let fields =
        ["version", &version, "last", &id, "document_version", &document_version, "document", document];
    server.command(&[&["HSET", &head][..], &fields].concat());
}
