//! The tasks of a follower: one looks at the file, one follows the store.

#[cfg(feature = "redis")]
mod store;

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::time::sleep;

use crate::configuration_source::follower::Follower;
use crate::runtime::driver::Driver;

/// How often the file is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Starts the tasks that the place of the configuration calls for.
pub(crate) fn spawn(follower: &Arc<Follower>, driver: &Driver) {
    if follower.place().file().is_some() {
        driver.spawn(watch_file(Arc::downgrade(follower)));
    }
    #[cfg(feature = "redis")]
    if follower.place().uses_store() {
        driver.spawn(store::follow(Arc::downgrade(follower)));
    }
}

async fn watch_file(follower: Weak<Follower>) {
    while let Some(current) = follower.upgrade() {
        current.look_at_file();
        drop(current);
        sleep(LOOK_EVERY).await;
    }
}
