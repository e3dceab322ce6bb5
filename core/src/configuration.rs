//! Limits as configuration: a document with policies, rules and lists, and entries that are set individually. This module is
//! pure: it turns texts and bytes into checked values. The sources of documents and the stores are built on top of it.

use std::collections::HashMap;

pub(crate) mod attribute;
pub(crate) mod attributes;
mod canonical;
pub(crate) mod compiled;
pub(crate) mod condition;
pub(crate) mod cost;
pub(crate) mod descriptor;
pub(crate) mod document;
pub(crate) mod effective;
pub(crate) mod entry;
pub(crate) mod key_calendar;
pub(crate) mod key_template;
pub(crate) mod list;
pub(crate) mod lists;
pub(crate) mod matcher;
pub(crate) mod model;
pub(crate) mod network_table;
pub(crate) mod path;
pub(crate) mod request;
pub(crate) mod router_paths;
pub(crate) mod rule;
mod rule_index;
pub(crate) mod schedule;
pub(crate) mod schema;
mod shape;
#[cfg(feature = "testing")]
pub mod testing;
pub(crate) mod time;
mod tree;
mod value_table;

/// The keys come from configurations and clients can only look them up, so the hash need not withstand attacks.
type Map<K, V> = HashMap<K, V, foldhash::fast::RandomState>;
