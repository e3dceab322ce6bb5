//! A configuration in the store of the states.

use std::sync::Arc;

use polylimit_store::interface::{
    Change, ConfigurationStore, Decide, Load, Replace, Store, StoreError, StoredConfiguration,
};

/// The names of the version and of the content. Those of states begin with a policy's name, which contains no zero.
const VERSION: &[u8] = b"\0configuration version";
const CONTENT: &[u8] = b"\0configuration";

/// Keeps a configuration as two states.
#[derive(Debug)]
pub(crate) struct StatesAndConfiguration(pub(crate) Arc<dyn Store>);

impl ConfigurationStore for StatesAndConfiguration {
    fn place(&self) -> String {
        self.0.place()
    }

    fn load(&self, known: u64) -> Load<'_> {
        Box::pin(async move {
            if self.read(&[VERSION]).await?.version == known {
                return Ok(None);
            }
            self.read(&[VERSION, CONTENT]).await.map(Some)
        })
    }

    fn replace<'a>(&'a self, expected: u64, next: &'a StoredConfiguration) -> Replace<'a> {
        Box::pin(async move {
            let mut is_replaced = false;
            let decide: Decide<'_> = &mut |states| {
                is_replaced = of(states).version == expected;
                if !is_replaced {
                    return vec![Change::Keep; states.len()];
                }
                let put = |state: &[u8]| Change::Put { state: state.to_vec(), until_us: u64::MAX };
                vec![put(&next.version.to_be_bytes()), put(&next.content)]
            };
            self.0.update(&names(&[VERSION, CONTENT]), decide).await?;
            Ok(is_replaced)
        })
    }

    fn after_fork(&self) -> Arc<dyn ConfigurationStore> {
        Arc::new(Self(self.0.after_fork()))
    }
}

impl StatesAndConfiguration {
    async fn read(&self, of_names: &[&[u8]]) -> Result<StoredConfiguration, StoreError> {
        let mut found = StoredConfiguration::default();
        let decide: Decide<'_> = &mut |states| {
            found = of(states);
            vec![Change::Keep; states.len()]
        };
        self.0.update(&names(of_names), decide).await?;
        Ok(found)
    }
}

fn names(names: &[&[u8]]) -> Vec<Vec<u8>> {
    names.iter().map(|name| name.to_vec()).collect()
}

/// The configuration in the states of the version and, where it was read, of the content.
fn of(states: &[Option<Vec<u8>>]) -> StoredConfiguration {
    let version = states.first().and_then(|state| <[u8; 8]>::try_from(state.as_deref()?).ok());
    let content = states.get(1).cloned().flatten().unwrap_or_default();
    StoredConfiguration { version: version.map_or(0, u64::from_be_bytes), content }
}
