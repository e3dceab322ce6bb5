//! Connections and the protocol: finding a server, sockets, TLS, the handshake, and the meaning of replies.

pub(crate) mod cause;
pub(crate) mod cluster_slots;
pub(crate) mod connect;
pub(crate) mod failure;
pub(crate) mod login;
pub(crate) mod refused;
pub(crate) mod resp;
pub(crate) mod sentinel;
pub(crate) mod server_time;
pub(crate) mod session;
pub(crate) mod stream;

use std::sync::OnceLock;
use std::time::Duration;

use polylimit_runtime::driver::Driver;

/// The time limit of one attempt to connect; another attempt follows.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// The time limit of a query to a sentinel.
pub(crate) const SENTINEL_TIMEOUT: Duration = Duration::from_millis(250);

/// The runtime of background connections, created on first use, with its thread; `None` when the system provides none.
pub(crate) fn background_thread(driver: &OnceLock<Driver>) -> Option<&Driver> {
    let driver = if let Some(driver) = driver.get() {
        driver
    } else {
        let created = Driver::new().ok()?;
        driver.get_or_init(|| created)
    };
    driver.run_for_good().ok().map(|()| driver)
}
