//! The deny and allow lists of a configuration, as operators see and change them.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::limiter::configured::status::ConfigurationStatus;
use crate::limiter::{Admin, blocking};
use polylimit_document::entry::Entry;
use polylimit_rules::error::Error;
use polylimit_rules::names::named_enum;
use polylimit_rules::time::time_text;
use polylimit_rules::units::micros;
use polylimit_runtime::clock::Clock;

named_enum! {
    /// A list of a configuration.
    ListName, parsed as "list" {
        /// Clients, attributes and keys that are denied regardless of their quotas.
        Deny = "deny",
        /// Clients, attributes and keys that are admitted regardless of their quotas.
        Allow = "allow",
    }
}

/// An item of a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ListedItem {
    /// `client NETWORK`, `ATTRIBUTE VALUE` or `key POLICY KEY`, with %20 for a space in a value.
    pub item: Box<str>,
    /// `document` for an item of the active document, `entry` for one that was added as an entry.
    pub origin: &'static str,
    /// The time from which it has no effect, as RFC 3339; `None` when it has no end.
    pub until: Option<Box<str>>,
    /// The author's name, if known.
    pub by: Option<Box<str>>,
    /// The reason, if given.
    pub why: Option<Box<str>>,
}

/// Details that are recorded with an item that is added to a list or removed from it.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct ListOptions<'a> {
    /// For how long an added item has an effect, to the next whole second; `None`: until it is removed.
    pub lasts: Option<Duration>,
    /// The author's name, up to 256 bytes.
    pub by: &'a str,
    /// The reason, up to 1,024 bytes.
    pub why: &'a str,
}

impl<'a> ListOptions<'a> {
    /// For how long an added item has an effect.
    #[must_use]
    pub fn lasts(mut self, lasts: Duration) -> Self {
        self.lasts = Some(lasts);
        self
    }

    /// The author's name, up to 256 bytes.
    #[must_use]
    pub fn by(mut self, by: &'a str) -> Self {
        self.by = by;
        self
    }

    /// The reason, up to 1,024 bytes.
    #[must_use]
    pub fn why(mut self, why: &'a str) -> Self {
        self.why = why;
        self
    }

    /// The value of an entry that begins now.
    fn value(&self) -> String {
        let mut value = Map::new();
        let now_us = Clock::system().now_us();
        let until = self.lasts.map(|lasts| {
            time_text(
                now_us.saturating_add(micros(lasts)).checked_next_multiple_of(1_000_000).unwrap_or(u64::MAX),
            )
        });
        for (name, text) in [("until", until.as_deref()), ("by", Some(self.by)), ("why", Some(self.why))] {
            if let Some(text) = text.filter(|text| !text.is_empty()) {
                value.insert(name.to_owned(), Value::from(text));
            }
        }
        Value::Object(value).to_string()
    }
}

/// The value of an entry.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Note {
    until: Option<Box<str>>,
    by: Option<Box<str>>,
    why: Option<Box<str>>,
}

impl Admin<'_> {
    /// The items of a list: first those of the active document, then those that were added as entries.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) when the source of the configuration has no entries;
    /// [`StoreUnavailable`](crate::ErrorKind::StoreUnavailable) when no configuration is active yet, or the store does not answer.
    pub async fn list_items(self, list: ListName) -> Result<Vec<ListedItem>, Error> {
        let entries = self.configuration_entries().await?.entries;
        let in_force = self.limiter.in_force()?;
        let canonical = in_force.configuration.document().canonical();
        let document: Value = serde_json::from_str(canonical).unwrap_or_default();
        let of_document = document["lists"][list.name()].as_array().into_iter().flatten();
        let of_document = of_document.filter_map(Value::as_str).map(|text| {
            let (item, until) =
                text.rsplit_once(" until ").map_or((text, None), |(item, until)| (item, Some(until)));
            ListedItem {
                item: item.into(),
                origin: "document",
                until: until.map(Into::into),
                by: None,
                why: None,
            }
        });
        let prefix = format!("{} ", list.name());
        let of_entries = entries.iter().filter_map(|entry| {
            let item = entry.entry.strip_prefix(&prefix)?;
            let Note { until, by, why } = serde_json::from_str(&entry.value).unwrap_or_default();
            Some(ListedItem { item: item.into(), origin: "entry", until, by, why })
        });
        Ok(of_document.chain(of_entries).collect())
    }

    /// Adds an item to a list, in addition to the document, and waits until it is active in this process. An existing
    /// item gets the new end and the new reason.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) when the item cannot be read or does not fit the active document, or the
    /// source has no entries; [`StoreUnavailable`](crate::ErrorKind::StoreUnavailable) when the store does not answer: the item may have been
    /// added.
    pub async fn add_list_item(
        self,
        list: ListName,
        item: &str,
        options: ListOptions<'_>,
    ) -> Result<ConfigurationStatus, Error> {
        let entry = format!("{} {item}", list.name());
        self.change_entry(&entry, Some(&options.value()), options.by, options.why).await
    }

    /// Removes an item that was added in addition to the document, and waits until that is active in this process;
    /// `None` when there is no such item.
    ///
    /// # Errors
    /// As for [`add_list_item`](Self::add_list_item).
    pub async fn remove_list_item(
        self,
        list: ListName,
        item: &str,
        options: ListOptions<'_>,
    ) -> Result<Option<ConfigurationStatus>, Error> {
        let entry = format!("{} {item}", list.name());
        let canonical = Entry::canonical_text(&entry);
        let canonical = canonical.as_deref().unwrap_or(&entry);
        let entries = self.configuration_entries().await?.entries;
        if !entries.iter().any(|there| *there.entry == *canonical) {
            return Ok(None);
        }
        self.change_entry(&entry, None, options.by, options.why).await.map(Some)
    }
}

impl blocking::Admin<'_> {
    /// See [`Admin::list_items`].
    ///
    /// # Errors
    /// See [`Admin::list_items`].
    pub fn list_items(self, list: ListName) -> Result<Vec<ListedItem>, Error> {
        self.limiter.block_on(self.limiter.asynchronous().admin().list_items(list))?
    }

    /// See [`Admin::add_list_item`].
    ///
    /// # Errors
    /// See [`Admin::add_list_item`].
    pub fn add_list_item(
        self,
        list: ListName,
        item: &str,
        options: ListOptions<'_>,
    ) -> Result<ConfigurationStatus, Error> {
        self.limiter.block_on(self.limiter.asynchronous().admin().add_list_item(list, item, options))?
    }

    /// See [`Admin::remove_list_item`].
    ///
    /// # Errors
    /// See [`Admin::remove_list_item`].
    pub fn remove_list_item(
        self,
        list: ListName,
        item: &str,
        options: ListOptions<'_>,
    ) -> Result<Option<ConfigurationStatus>, Error> {
        self.limiter.block_on(self.limiter.asynchronous().admin().remove_list_item(list, item, options))?
    }
}
