//! Policies by small numbers, so that their names need not be read again with each request.

use polylimit::Limiter;

use crate::failure::{Result, internal};

/// No more than so many: names beyond are read each time.
const MOST: usize = 256;

/// The texts by which requests have named policies that there are. The core never forgets a policy.
#[derive(Default)]
pub(crate) struct PolicyPlaces {
    names: Vec<Box<str>>,
}

impl PolicyPlaces {
    /// The text at a place.
    #[inline]
    pub(crate) fn name(&self, place: usize) -> Result<&str> {
        self.names.get(place).map(|name| &**name).ok_or_else(|| internal("no policy has this place"))
    }

    /// The place of a text, which it gets once the limiter knows what it means.
    pub(crate) fn place_of(&mut self, name: &str, limiter: &Limiter) -> Option<usize> {
        if let Some(place) = self.names.iter().position(|known| **known == *name) {
            return Some(place);
        }
        if self.names.len() == MOST || limiter.policy_for(Some(name), None).is_err() {
            return None;
        }
        self.names.push(name.into());
        Some(self.names.len() - 1)
    }
}
