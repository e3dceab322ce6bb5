//! Limits as configuration: a document with policies, rules and lists, and entries that are set one by one. Everything here is
//! pure: texts and bytes become checked values. Sources of documents, and stores, stand above.

pub(crate) mod model;
