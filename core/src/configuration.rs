//! Limits as configuration: a document with policies, rules and lists, and entries that are set one by one. Everything here is
//! pure: texts and bytes become checked values. Sources of documents, and stores, stand above.

pub(crate) mod attribute;
pub(crate) mod condition;
pub(crate) mod cost;
pub(crate) mod key_template;
pub(crate) mod list;
pub(crate) mod model;
pub(crate) mod path;
pub(crate) mod rule;
pub(crate) mod schedule;
pub(crate) mod time;
