//! The shared-file store on systems other than Linux and without the cargo feature `local`: its URL is refused.

use crate::error::Error;
use crate::rules::policy::Policy;
use crate::runtime::clock::Clock;
use crate::store::request::{Answer, PolicyId, StoreRequest};

#[derive(Clone, Debug)]
pub(crate) enum SharedFileOptions {}

#[derive(Debug)]
pub(crate) enum SharedFileStore {}

impl SharedFileOptions {
    pub(crate) fn is_local(url: &str) -> bool {
        url.starts_with("local:") || url.starts_with("file:")
    }

    pub(crate) fn parse(_url: &str) -> Result<Self, Error> {
        Err(Error::invalid_argument(
            "the local store needs Linux and polylimit's feature local: use memory: or Redis",
        ))
    }

    pub(crate) fn sized(self, _bytes: u64) -> Result<Self, Error> {
        match self {}
    }

    pub(crate) fn sized_by(self, _text: &str) -> Result<Self, Error> {
        match self {}
    }
}

impl SharedFileStore {
    pub(crate) fn new(options: SharedFileOptions, _clock: Clock) -> Self {
        match options {}
    }

    pub(crate) fn after_fork(&self) -> Self {
        match *self {}
    }

    pub(crate) fn clock(&self) -> &Clock {
        match *self {}
    }

    pub(crate) fn set_policy(&self, _id: PolicyId, _policy: &Policy) {
        match *self {}
    }

    pub(crate) fn ready(&self) -> Result<(), Error> {
        match *self {}
    }

    pub(crate) fn close(&self) {
        match *self {}
    }

    pub(crate) fn keys(&self) -> Option<usize> {
        match *self {}
    }

    pub(crate) fn answer(&self, _request: StoreRequest<'_>) -> Result<Answer, Error> {
        match *self {}
    }
}
