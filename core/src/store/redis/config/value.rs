//! The value of one option, from the URL and from code.

use std::fmt;

use crate::error::{Error, ErrorKind, excerpt};
use crate::store::option::StoreOption;
use crate::store::redis::config::kind::Kind;

/// The origin of a value.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The URL, which may set an option once. Without `show`, the text may be part of a secret.
    Url { show: bool },
    /// A setter; the last call counts.
    Code,
}

/// The given values of one option.
pub(crate) struct Given<K: Kind> {
    url: Option<FromUrl<K::Value>>,
    code: Option<K::Value>,
}

/// A value, and whether it may be shown.
#[derive(Clone)]
struct FromUrl<V> {
    value: V,
    show: bool,
}

impl<K: Kind> Given<K> {
    /// Stores a value from code; [`settle`](Self::settle) checks its range.
    pub(crate) fn put(&mut self, argument: K::Argument) {
        self.code = Some(K::from_argument(argument));
    }

    /// Parses and checks a text.
    pub(crate) fn read(&mut self, row: &StoreOption, text: &str, origin: Origin) -> Result<(), Error> {
        let Some(value) = K::read(text).filter(|value| K::allows(row.allowed, value)) else {
            let show = !K::SECRET && origin != Origin::Url { show: false };
            return Err(out_of_range::<K>(row, show.then(|| excerpt(text))));
        };
        match origin {
            Origin::Code => self.code = Some(value),
            Origin::Url { .. } if self.url.is_some() => {
                let name = row.name;
                return Err(Error::invalid_argument(format!("store URL gives {name} twice: leave one out")));
            }
            Origin::Url { show } => self.url = Some(FromUrl { value, show }),
        }
        Ok(())
    }

    /// The given value, if any; the URL and the code must not differ.
    pub(crate) fn settle(&self, row: &StoreOption) -> Result<Option<K::Value>, Error> {
        if let Some(code) = &self.code {
            if !K::allows(row.allowed, code) {
                return Err(out_of_range::<K>(row, (!K::SECRET).then(|| K::show(code))));
            }
            if let Some(url) = &self.url
                && url.value != *code
            {
                let message = if K::SECRET || !url.show {
                    format!("{} in code differs from the one in the store URL: leave one out", row.name)
                } else {
                    let (code, url) = (K::show(code), K::show(&url.value));
                    format!("{} is {code} in code and {url} in the store URL: leave one out", row.name)
                };
                return Err(Error::invalid_argument(message));
            }
        }
        Ok(self.any().cloned())
    }

    /// The given value, or else the default.
    pub(crate) fn settle_or_default(&self, row: &StoreOption) -> Result<K::Value, Error> {
        let default = || row.default.and_then(K::read);
        self.settle(row)?.or_else(default).ok_or_else(|| {
            Error::new(ErrorKind::Internal, format!("the default of {} cannot be read", row.name))
        })
    }

    pub(crate) fn any(&self) -> Option<&K::Value> {
        self.code.as_ref().or(self.url.as_ref().map(|url| &url.value))
    }

    /// Adds the option to a `Debug` output, if it was given.
    pub(crate) fn debug(&self, row: &StoreOption, out: &mut fmt::DebugStruct<'_, '_>) {
        let shown = match (&self.code, &self.url) {
            (Some(value), _) | (None, Some(FromUrl { value, show: true })) => K::show(value),
            (None, Some(FromUrl { show: false, .. })) => "***".to_owned(),
            (None, None) => return,
        };
        out.field(row.name, &format_args!("{shown}"));
    }
}

fn out_of_range<K: Kind>(row: &StoreOption, read: Option<String>) -> Error {
    let StoreOption { name, allowed, .. } = row;
    let read = read.unwrap_or_else(|| "out of range (not shown)".to_owned());
    Error::invalid_argument(format!("{name} is {read}: allowed is {allowed}{}", K::FORM))
}

// A derive would require the same traits of the kind, which has no values.
impl<K: Kind> Default for Given<K> {
    fn default() -> Self {
        Self { url: None, code: None }
    }
}

impl<K: Kind> Clone for Given<K> {
    fn clone(&self) -> Self {
        Self { url: self.url.clone(), code: self.code.clone() }
    }
}
