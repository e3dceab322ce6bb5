//! Limits as configuration: a document with policies, rules and lists, and entries that are set individually. This module is
//! pure: it turns texts and bytes into checked values. The sources of documents and the stores are built on top of it.

use std::collections::HashMap;

#[doc(hidden)]
pub mod attribute;
#[doc(hidden)]
pub mod attributes;
mod canonical;
pub mod client_address;
#[doc(hidden)]
pub mod compiled;
#[doc(hidden)]
pub mod condition;
#[doc(hidden)]
pub mod cost;
pub mod descriptor;
pub mod document;
#[doc(hidden)]
pub mod effective;
#[doc(hidden)]
pub mod entry;
#[doc(hidden)]
pub mod key_calendar;
#[doc(hidden)]
pub mod key_template;
#[doc(hidden)]
pub mod list;
#[doc(hidden)]
pub mod lists;
pub mod matcher;
pub mod meter;
#[doc(hidden)]
pub mod model;
#[doc(hidden)]
pub mod network_table;
#[doc(hidden)]
pub mod path;
pub mod request;
pub mod router_paths;
#[doc(hidden)]
pub mod rule;
mod rule_index;
#[doc(hidden)]
pub mod schedule;
pub mod schema;
mod shape;
#[doc(hidden)]
pub mod source;
#[cfg(feature = "testing")]
#[doc(hidden)]
pub mod testing;
mod tree;
mod value_table;

/// The keys come from configurations and clients can only look them up, so the hash need not withstand attacks.
type Map<K, V> = HashMap<K, V, foldhash::fast::RandomState>;
