//! Where a limiter keeps its states: the options of each kind of store, and the store that they make.

use std::sync::Arc;

use super::unused::Unused;
use crate::store::Store;
use crate::store::custom::{self, CustomStore};
use crate::store::local::{SharedFileOptions, SharedFileStore};
use crate::store::redis::{RedisOptions, RedisStore};
use polylimit_rules::error::Error;
use polylimit_rules::suggestion::unknown_option;
use polylimit_runtime::clock::Clock;
use polylimit_store::credentials::CredentialsFunction;
use polylimit_store::option::{OptionKind, StoreOption};
use polylimit_store_memory::MemoryStore;

pub(super) const LOCAL_SIZE: StoreOption = StoreOption {
    name: "local_size",
    kind: OptionKind::Text,
    about: "The size of a local store in bytes when it is created. An existing one must have that size.",
    allowed: "1MiB to 64GiB",
    default: Some("16MiB"),
    secret: false,
};

/// Where the limiter keeps its states.
#[derive(Clone, Debug)]
pub(super) enum Place {
    Memory,
    Local(SharedFileOptions),
    Redis(Box<RedisOptions>),
    Custom(Arc<dyn custom::Store>),
}

impl Place {
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Local(_) => "local",
            Self::Redis(_) => "redis",
            Self::Custom(_) => "custom",
        }
    }

    /// Takes credentials from a function, if the store has a server.
    #[cfg_attr(
        not(feature = "redis"),
        expect(unreachable_code, reason = "a store that is left out has no values")
    )]
    pub(super) fn with_credentials(self, function: Option<CredentialsFunction>, unused: &mut Unused) -> Self {
        match (self, function) {
            (Self::Redis(options), Some(function)) => {
                Self::Redis(Box::new(options.with_credentials(function)))
            }
            (place, function) => {
                if function.is_some() {
                    unused.add("credentials");
                }
                place
            }
        }
    }

    /// Sets an option of the store by its name. Returns the place, and whether the option has an effect on it: the settings of
    /// one store are accepted with every other, so that tests and production differ in the URL alone. `known` lists the options
    /// that an error about an unknown name suggests from.
    pub(super) fn set(
        mut self,
        name: &str,
        text: &str,
        known: fn() -> Vec<StoreOption>,
    ) -> Result<(Self, bool), Error> {
        if let Self::Local(options) = &mut self
            && options.set(name, text)?
        {
            return Ok((self, true));
        }
        match self {
            Self::Redis(options) if name != LOCAL_SIZE.name => {
                return Ok((Self::Redis(Box::new(options.set(name, text)?)), true));
            }
            Self::Local(options) if name == LOCAL_SIZE.name => {
                return Ok((Self::Local(options.sized_by(text)?), true));
            }
            _ => {}
        }
        if name == LOCAL_SIZE.name {
            // Without local stores in this build, nothing reads a size.
            if let Ok(options) = SharedFileOptions::parse("local:size") {
                options.sized_by(text)?;
            }
        } else if RedisOptions::ALL.iter().any(|option| option.name == name) {
            let _ = RedisOptions::parse("redis://localhost")?.set(name, text)?;
        } else {
            return Err(unknown_option("", name, known().iter().map(|option| option.name)));
        }
        Ok((self, false))
    }
}

#[cfg_attr(
    not(all(feature = "local", target_os = "linux")),
    expect(unreachable_code, reason = "a store that is left out has no values")
)]
pub(super) fn store_at(
    place: Place,
    local_size: Option<u64>,
    clock: Clock,
    max_keys: usize,
) -> Result<Store, Error> {
    Ok(match place {
        Place::Memory => Store::Memory(MemoryStore::new(max_keys, clock)),
        Place::Local(options) => {
            let options = match local_size {
                Some(bytes) => options.sized(bytes)?,
                None => options,
            };
            Store::Local(Box::new(SharedFileStore::new(options, clock, max_keys)))
        }
        Place::Redis(options) => Store::Redis(Box::new(RedisStore::new(&options, clock, max_keys)?)),
        Place::Custom(store) => Store::Custom(Box::new(CustomStore::new(store, clock, max_keys))),
    })
}
