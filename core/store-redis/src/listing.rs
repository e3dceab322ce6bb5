//! Lists keys in Redis by SCAN on each primary, and reads their states.
//!
//! SCAN runs over its own connections, so that decisions do not wait behind it. A cursor of SCAN is valid at one server only, until that
//! restarts, and for the slots that it owned: a node's identity covers all this, and a node with a new identity is scanned from the start.

use std::sync::Arc;
use std::time::Duration;

use redis::{InfoDict, RedisError};
use tokio::time::sleep;

use crate::RedisStore;
use crate::config::target::{Endpoint, Endpoints};
use crate::keys::{KeyEncoder, is_hashed};
use crate::pipeline::pending::{OperationResult, PendingReply};
use crate::pipeline::server::Context;
use crate::policies::RedisQuotas;
use crate::routing::hub::Until;
use crate::routing::runtimes::Topology;
use crate::transport::CONNECT_TIMEOUT;
use crate::transport::cluster_slots::{self, Slots};
use crate::transport::connect::Address;
use crate::transport::failure::Failure;
use crate::transport::server_time::ServerTime;
use crate::transport::session::Session;
use polylimit_rules::decision::Degradation;
use polylimit_rules::error::{Error, ErrorKind};
use polylimit_rules::transition::Operation;
use polylimit_runtime::close_signal::closed;
use polylimit_runtime::monotonic;
use polylimit_store::charge::{Action, Charge, PreparedQuotas};
use polylimit_store::scan::{
    FoundKey, FoundPolicy, KeyName, KnownHere, Look, LookRequest, ScanFilter, ScanStep,
};

/// How long a look may take. Decisions with earlier deadlines are sent before it.
const LOOK_TIMEOUT: Duration = Duration::from_secs(2);
/// How often an unanswered look is repeated, and the pause before each attempt.
const ATTEMPTS: usize = 3;
const PAUSE: Duration = Duration::from_millis(20);
const PEEK: Action = Action::Apply(Operation::Peek);

/// A scan of the servers of a store.
pub struct RedisScan {
    context: Arc<Context>,
    keys: KeyEncoder,
    endpoints: Endpoints,
    nodes: Vec<ScanNode>,
}

struct ScanNode {
    identity: u64,
    session: Session,
}

impl RedisStore {
    /// Connects to every primary.
    pub async fn scan(&self) -> Result<RedisScan, Error> {
        let context = Arc::clone(&self.access.hub()?.context);
        let endpoints = self.access.settings().target.endpoints.clone();
        let mut scan = RedisScan { context, keys: self.keys.clone(), endpoints, nodes: Vec::new() };
        scan.refresh().await?;
        Ok(scan)
    }

    /// Reads the states of keys; `None` where the key has a value of another type.
    pub async fn look_many(&self, requests: &[LookRequest<'_>]) -> Result<Vec<Option<Look>>, Error> {
        let topology = self.access.hub()?.runtimes.here()?;
        let submitted: Vec<PendingReply> = requests
            .iter()
            .map(|request| self.submit_stored(&topology, *request, PEEK))
            .collect::<Result<_, _>>()?;
        let mut looks = Vec::with_capacity(requests.len());
        for (request, submitted) in requests.iter().zip(submitted) {
            let mut reply = submitted.await;
            for _ in 1..ATTEMPTS {
                if !may_answer_later(&reply) {
                    break;
                }
                sleep(PAUSE).await;
                reply = self.submit_stored(&topology, *request, PEEK)?.await;
            }
            looks.push(match reply {
                Ok(decided) => {
                    let seen = decided.seen.ok_or_else(Error::no_answer)?;
                    Some(Look { states: seen.states.clone(), now_us: seen.now_us, degraded: None })
                }
                Err(Failure { reason: Degradation::WrongType, .. }) => None,
                Err(failure) => return Err(self.failed(failure)),
            });
        }
        Ok(looks)
    }

    /// Resets a key of which only the digest is known.
    pub async fn forget_digest(&self, request: LookRequest<'_>) -> Result<(), Error> {
        let topology = self.access.hub()?.runtimes.here()?;
        let reply = self.submit_stored(&topology, request, Action::Reset)?.await;
        self.denial_cache.forget_where(is_hashed);
        reply.map(drop).map_err(|failure| self.failed(failure))
    }

    /// The leased units and the cached denial of a key in this process.
    pub fn known_here(&self, request: Charge<'_>) -> KnownHere {
        KnownHere {
            leased_units: self.leases.units(request),
            denial_cached: self.denial_cache.denies(request),
        }
    }

    fn submit_stored(
        &self,
        topology: &Topology,
        request: LookRequest<'_>,
        action: Action,
    ) -> Result<PendingReply, Error> {
        let effective = request.effective.and_then(PreparedQuotas::of::<RedisQuotas>);
        let policy = match effective {
            Some(effective) => Arc::clone(&effective.policy),
            None => self.policies.known(request.id)?,
        };
        let mut key = Vec::new();
        self.keys.write_stored(&policy.key_prefix, request.key, &mut key);
        let until = Until::DeadlineOrFirst(monotonic::now() + LOOK_TIMEOUT);
        let what = (action, request.cost, request.headroom, None);
        Ok(self.access.submit(topology, &policy.call, key, what, until))
    }

    fn failed(&self, failure: Failure) -> Error {
        if self.access.member.is_closed() { closed() } else { no_answer(failure) }
    }
}

/// A peek changes nothing, so one without an answer can be repeated.
fn may_answer_later(reply: &OperationResult) -> bool {
    !matches!(reply, Ok(_) | Err(Failure { reason: Degradation::WrongType | Degradation::Auth, .. }))
}

fn no_answer(Failure { reason, .. }: Failure) -> Error {
    let name = reason.name();
    match reason {
        Degradation::Auth => Error::new(
            ErrorKind::StoreFailed,
            "the server refuses the user, the password or a right: doctor names the rights that are needed",
        ),
        _ => Error::new(
            ErrorKind::StoreUnavailable,
            format!("the store did not answer ({name}): run the doctor"),
        ),
    }
}

impl RedisScan {
    /// The identities of the nodes.
    pub fn nodes(&self) -> Vec<u64> {
        self.nodes.iter().map(|node| node.identity).collect()
    }

    /// Finds the current nodes.
    pub async fn refresh(&mut self) -> Result<(), Error> {
        let mut nodes = Vec::new();
        for (address, slots) in self.primaries().await.map_err(no_answer)? {
            nodes.push(self.connect(&address, slots).await?);
        }
        self.nodes = nodes;
        Ok(())
    }

    /// Every primary, with a number for the slots that it owns.
    async fn primaries(&self) -> Result<Vec<(Address, u64)>, Failure> {
        let seeds = match Address::of(&self.endpoints) {
            Ok(address) => return Ok(vec![(address, 0)]),
            Err(seeds) => seeds,
        };
        let mut failure = Failure::not_applied(Degradation::Unreachable);
        for seed in seeds {
            match cluster_slots::read(&self.context.connector, seed).await {
                Ok((slots, nodes)) => return Ok(with_slots(&slots, nodes)),
                Err(failed) => failure = failed,
            }
        }
        Err(failure)
    }

    async fn connect(&self, address: &Address, slots: u64) -> Result<ScanNode, Error> {
        let time = ServerTime::default();
        let connector = &self.context.connector;
        let connected = connector.connect(address, None, &time, CONNECT_TIMEOUT).await.map_err(no_answer)?;
        let mut session = Session::new(connected.stream);
        // Without the permission for `INFO`, listing continues; a restart of the server in between may then hide keys.
        let info = session.ask::<InfoDict>(redis::cmd("INFO").arg("server")).await;
        let run_id = match info {
            Ok(info) => info.get::<String>("run_id").unwrap_or_default(),
            Err(error) if error.code().is_some() => String::new(),
            Err(error) => return Err(refused(&error)),
        };
        let address = format!("{address:?} {:?} {run_id}", connected.primary);
        Ok(ScanNode { identity: fnv(slots, address.as_bytes()), session })
    }

    /// One step of SCAN on a node.
    pub async fn step(
        &mut self,
        node: usize,
        filter: ScanFilter<'_>,
        at: u64,
        count: usize,
    ) -> Result<ScanStep, Error> {
        let Some(ScanNode { session, .. }) = self.nodes.get_mut(node) else {
            return Ok(ScanStep { found: Vec::new(), examined: 0, next: None });
        };
        let pattern = self.keys.pattern(filter);
        let mut command = redis::cmd("SCAN");
        command.arg(at).arg("MATCH").arg(pattern).arg("COUNT").arg(count);
        let scanned: Result<(u64, Vec<Vec<u8>>), _> = session.ask(&command).await;
        let (next, names) = scanned.map_err(|error| refused(&error))?;
        let found = names.iter().filter_map(|name| {
            let (policy, key) = self.keys.read_stored(name)?;
            // A name of the pattern may belong to another policy: that has a colon, and no policy of a limiter has one.
            let is_wanted = filter.takes_policy(policy) && filter.takes_key(key.stored());
            let policy = FoundPolicy::Named(policy.into());
            is_wanted.then_some(FoundKey { policy, key, expires_after_us: None })
        });
        Ok(ScanStep {
            found: found.collect(),
            examined: count as u64,
            next: Some(next).filter(|next| *next > 0),
        })
    }

    /// How long the server keeps keys; `None` for a key that does not expire, and where the user lacks the permission.
    pub async fn expiries(
        &mut self,
        node: usize,
        keys: &[(&str, &KeyName)],
    ) -> Result<Vec<Option<u64>>, Error> {
        let Some(ScanNode { session, .. }) = self.nodes.get_mut(node) else {
            return Ok(vec![None; keys.len()]);
        };
        let mut commands = redis::pipe();
        for (policy, key) in keys {
            let mut name = Vec::new();
            self.keys.write_stored(&self.keys.policy_prefix(policy), key.stored(), &mut name);
            commands.cmd("PTTL").arg(name);
        }
        session.send(&commands.get_packed_pipeline()).await.map_err(|error| refused(&error.into()))?;
        let mut expiries = Vec::with_capacity(keys.len());
        for _ in keys {
            expiries.push(match session.reply::<i64>().await {
                Ok(ms) => u64::try_from(ms).ok().map(|ms| ms.saturating_mul(1_000)),
                Err(error) if error.code().is_some() => None,
                Err(error) => return Err(refused(&error)),
            });
        }
        Ok(expiries)
    }
}

/// The nodes, each with a number that changes when it owns other slots.
fn with_slots(slots: &Slots, nodes: Vec<Endpoint>) -> Vec<(Address, u64)> {
    let mut owned = vec![0; nodes.len()];
    for (slot, owner) in slots.owners() {
        if let Some(number) = owned.get_mut(owner) {
            *number = fnv(*number, &slot.to_be_bytes());
        }
    }
    nodes.into_iter().map(Address::Tcp).zip(owned).collect()
}

/// A hash that is the same in every process: FNV-1a (Fowler, Noll, Vo).
fn fnv(start: u64, bytes: &[u8]) -> u64 {
    let start = start ^ 0xCBF2_9CE4_8422_2325;
    bytes.iter().fold(start, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3))
}

fn refused(error: &RedisError) -> Error {
    let refused = match error.code() {
        Some("NOPERM") => Error::new(
            ErrorKind::StoreFailed,
            "the user may not list keys: grant +scan, and +pttl to see how long keys of unknown policies stay",
        )
        .of_missing_right(),
        Some(code) => {
            Error::new(ErrorKind::StoreUnavailable, format!("the server does not list its keys ({code})"))
        }
        None => {
            Error::new(ErrorKind::StoreUnavailable, "the connection over which keys are listed has ended")
        }
    };
    refused.caused_by(error.clone())
}
