//! What is known about requests, for the rules of a document.

use polylimit::document::RequestAttributes;

/// A request of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    /// In microseconds since the first request.
    pub(crate) time_us: u64,
    pub(crate) client: u32,
    /// Where the facts are.
    pub(crate) facts: u32,
}

/// What rules can be about.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Facts {
    pub(crate) method: Option<Box<[u8]>>,
    pub(crate) path: Option<Box<[u8]>>,
    pub(crate) address: Option<Box<str>>,
    pub(crate) user: Option<Box<[u8]>>,
    pub(crate) headers: Vec<(Box<str>, Box<[u8]>)>,
    /// What an application knows of a request under other names; no log has them.
    pub(crate) others: Vec<(Box<str>, Box<[u8]>)>,
}

impl Facts {
    /// As a document reads them.
    pub(crate) fn attributes(&self) -> RequestAttributes<'_> {
        let mut attributes = RequestAttributes::new();
        if let Some(method) = &self.method {
            attributes = attributes.method(method);
        }
        if let Some(path) = &self.path {
            attributes = attributes.path(path);
        }
        if let Some(address) = &self.address {
            attributes = attributes.peer(&**address);
        }
        if let Some(user) = &self.user {
            attributes = attributes.attribute("user", user);
        }
        for (name, value) in &self.headers {
            attributes = attributes.header(&**name, value);
        }
        for (name, value) in &self.others {
            attributes = attributes.attribute(name, value);
        }
        attributes
    }
}
