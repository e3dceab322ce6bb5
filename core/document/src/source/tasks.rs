//! The tasks of a follower: one looks at the file, one follows the store.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::time::sleep;

use crate::source::follower::Follower;
use crate::source::origin::{Changes, Ended};
use polylimit_runtime::driver::Driver;

/// How often the file is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// The pause while no limiter has an origin: one is being closed, and another one may have joined.
const PAUSE_WITHOUT_ORIGIN: Duration = Duration::from_millis(500);

/// Starts the tasks that the place of the configuration calls for.
pub(crate) fn spawn(follower: &Arc<Follower>, driver: &Driver) {
    if follower.place().file().is_some() {
        driver.spawn(watch_file(Arc::downgrade(follower)));
    }
    if follower.place().uses_store() {
        driver.spawn(follow_origin(Arc::downgrade(follower)));
    }
}

async fn watch_file(follower: Weak<Follower>) {
    while let Some(current) = follower.upgrade() {
        current.look_at_file();
        drop(current);
        sleep(LOOK_EVERY).await;
    }
}

/// Follows the origin of one of the limiters, a different one after each failure: one of them may have newer credentials.
async fn follow_origin(follower: Weak<Follower>) {
    let mut failed: u32 = 0;
    while let Some(current) = follower.upgrade() {
        let origins = current.origins();
        drop(current);
        let at = (failed as usize).checked_rem(origins.len());
        let Some(origin) = at.and_then(|at| origins.into_iter().nth(at)) else {
            sleep(PAUSE_WITHOUT_ORIGIN).await;
            continue;
        };
        let changes: Weak<dyn Changes> = follower.clone();
        let Ended { has_read, failure, pause } = origin.follow(&changes, failed).await;
        drop(origin);
        failed = if has_read { 0 } else { failed.wrapping_add(1) };
        let Some(current) = follower.upgrade() else { return };
        if let Some(failure) = failure {
            current.missed(&failure.error, failure.is_unreachable);
        }
        drop(current);
        sleep(pause).await;
    }
}
