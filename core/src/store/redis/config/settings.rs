//! The checked settings of a Redis store.

use std::time::Duration;

use crate::error::Error;
use crate::store::duration;
use crate::store::outage::Outage;
use crate::store::redis::config::secret::Secret;
use crate::store::redis::config::table::{Settled, Values};
use crate::store::redis::config::target::{Credentials, Endpoints, Identity, Location, Target, Tls};

/// All settings. Their meaning is documented at the setters of [`RedisOptions`](crate::RedisOptions), which also know
/// which values are secret: so there is no `Debug` here.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct Settings {
    pub(crate) target: Target,
    pub(crate) deadline: Duration,
    /// Zero: no longer than the deadline.
    pub(crate) first_connect_max: Duration,
    pub(crate) outage: Outage,
    /// Parts per million, 1 to 1,000,000.
    pub(crate) fallback_share_ppm: u32,
    pub(crate) denial_cache_max: Duration,
    pub(crate) prefix: Box<str>,
    pub(crate) key_secret: Option<Secret>,
    pub(crate) client_name: Box<str>,
    pub(crate) max_in_flight: u32,
    pub(crate) max_outstanding_bytes: usize,
    /// `None`: no maximum age.
    pub(crate) max_connection_age: Option<Duration>,
    pub(crate) breaker_failures: u32,
    pub(crate) reconnect_min: Duration,
    pub(crate) reconnect_max: Duration,
    pub(crate) keepalive: Duration,
    /// `None`: never.
    pub(crate) doctor_after: Option<Duration>,
    pub(crate) topology_refresh: Duration,
}

impl Settings {
    /// Checks the given values, individually and together, and adds the defaults.
    pub(crate) fn new(location: &Location, values: &Values) -> Result<Self, Error> {
        let mut settled = values.settle()?;
        check_needs(location, values)?;
        if settled.reconnect_min > settled.reconnect_max {
            let [least, most] = [settled.reconnect_min, settled.reconnect_max].map(duration::write);
            return Err(Error::invalid_argument(format!(
                "reconnect_min is {least} and reconnect_max is {most}: allowed is a reconnect_max that is not shorter"
            )));
        }
        let target = Target {
            endpoints: location.endpoints.clone(),
            tls: tls(location, &mut settled)?,
            credentials: credentials(settled.username, settled.password, ["username", "password"])?,
            sentinel_credentials: credentials(
                settled.sentinel_username,
                settled.sentinel_password,
                ["sentinel_username", "sentinel_password"],
            )?,
            database: settled.db,
        };
        Ok(Self {
            target,
            deadline: settled.deadline,
            first_connect_max: settled.first_connect_max,
            outage: settled.outage,
            fallback_share_ppm: settled.fallback_share,
            denial_cache_max: settled.denial_cache_max,
            prefix: settled.prefix,
            key_secret: settled.key_secret,
            client_name: settled.client_name,
            max_in_flight: settled.max_in_flight,
            max_outstanding_bytes: settled.max_outstanding_bytes,
            max_connection_age: Some(settled.max_connection_age).filter(|age| !age.is_zero()),
            breaker_failures: settled.breaker_failures,
            reconnect_min: settled.reconnect_min,
            reconnect_max: settled.reconnect_max,
            keepalive: settled.keepalive,
            doctor_after: Some(settled.doctor_after).filter(|after| !after.is_zero()),
            topology_refresh: settled.topology_refresh,
        })
    }
}

/// What the URL must have for an option to apply.
#[derive(Clone, Copy)]
enum Needs {
    Tls,
    Sentinel,
    SeveralServers,
    Databases,
}

/// The options that do not apply to every URL.
const NEEDS: [(&str, Needs); 8] = [
    ("db", Needs::Databases),
    ("topology_refresh", Needs::SeveralServers),
    ("tls_ca", Needs::Tls),
    ("tls_cert", Needs::Tls),
    ("tls_key", Needs::Tls),
    ("tls_server_name", Needs::Tls),
    ("sentinel_username", Needs::Sentinel),
    ("sentinel_password", Needs::Sentinel),
];

impl Needs {
    fn are_met(self, location: &Location) -> bool {
        let Location { endpoints, tls } = location;
        match self {
            Self::Tls => *tls,
            Self::Sentinel => matches!(endpoints, Endpoints::Sentinel { .. }),
            Self::SeveralServers => {
                matches!(endpoints, Endpoints::Sentinel { .. } | Endpoints::Cluster { .. })
            }
            Self::Databases => !matches!(endpoints, Endpoints::Cluster { .. }),
        }
    }

    const fn advice(self) -> &'static str {
        match self {
            Self::Tls => {
                "is only for TLS: use rediss://, rediss-sentinel:// or rediss-cluster://, or leave it out"
            }
            Self::Sentinel => {
                "is only for Sentinel: use redis-sentinel:// or rediss-sentinel://, or leave it out"
            }
            Self::SeveralServers => "is only for Sentinel and clusters: leave it out",
            Self::Databases => "is not for clusters, which have only database 0: leave it out",
        }
    }
}

/// Refuses options that do not apply to the URL.
fn check_needs(location: &Location, values: &Values) -> Result<(), Error> {
    for (name, needs) in NEEDS {
        if values.is_given(name) && !needs.are_met(location) {
            return Err(Error::invalid_argument(format!("{name} {}", needs.advice())));
        }
    }
    Ok(())
}

fn credentials(
    username: Option<Secret>,
    password: Option<Secret>,
    [username_name, password_name]: [&str; 2],
) -> Result<Option<Credentials>, Error> {
    match (username, password) {
        (username, Some(password)) => Ok(Some(Credentials { username, password })),
        (None, None) => Ok(None),
        (Some(_), None) => Err(Error::invalid_argument(format!(
            "{username_name} is given without {password_name}: give both, or only the password"
        ))),
    }
}

fn tls(location: &Location, settled: &mut Settled) -> Result<Option<Tls>, Error> {
    let identity = match (settled.tls_cert.take(), settled.tls_key.take()) {
        (Some(certificate), Some(key)) => Some(Identity { certificate, key }),
        (None, None) => None,
        (Some(_), None) => {
            return Err(Error::invalid_argument("tls_cert is given without tls_key: give both"));
        }
        (None, Some(_)) => {
            return Err(Error::invalid_argument("tls_key is given without tls_cert: give both"));
        }
    };
    let (ca, server_name) = (settled.tls_ca.take(), settled.tls_server_name.take());
    Ok(location.tls.then_some(Tls { ca, identity, server_name }))
}
