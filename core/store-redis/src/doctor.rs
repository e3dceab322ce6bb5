//! The doctor: examines the servers for problems and recommends what to do about them.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use redis::{InfoDict, RedisResult, Value};

use crate::RedisStore;
use crate::config::target::{Endpoints, Tls, Trust};
use crate::keys::channel::Channel;
use crate::pipeline::server::Context;
use crate::transport::cluster_slots;
use crate::transport::connect::{Address, MODULE_PROTOCOL, MODULE_VERSION, server_us};
use crate::transport::failure::Failure;
use crate::transport::refused::{Identity, NEEDED, printable, words};
use crate::transport::session::Session;
use polylimit_rules::decision::Degradation;
use polylimit_rules::error::Error;
use polylimit_rules::transition::Operation;
use polylimit_runtime::clock::Clock;
use polylimit_runtime::close_signal::closed;
use polylimit_runtime::monotonic;
use polylimit_store::charge::{Action, PolicyId};
use polylimit_store::finding::Finding;
use polylimit_store::finding::Severity::{self, Advice, Fine, Problem};
use polylimit_store::policy_table::OfPolicy;

const TIMED: usize = 9;
/// A clock difference above this is reported.
const CLOCK_OFF_US: u64 = 1_000_000;

#[derive(Default)]
struct Findings(Vec<Finding>);

impl Findings {
    fn add(&mut self, severity: Severity, subject: &'static str, message: impl Into<String>) {
        self.0.push(Finding::new(severity, subject, message));
    }
}

impl RedisStore {
    /// Examines the servers, and the permissions of the store's user.
    pub async fn examine(&self) -> Result<Vec<Finding>, Error> {
        let doctor = self.doctor().ok_or_else(closed)?;
        let mut findings = Findings(doctor.examine_servers(Extent::Whole).await);
        self.examine_rights(&mut findings).await?;
        Ok(findings.0)
    }

    /// The doctor for all limiters that share connections, so that only one of them examines the servers; `None` if
    /// another limiter does or did so.
    pub fn doctor_for_all(&self) -> Option<DoctorForAll> {
        let doctor = self.doctor()?;
        let is_first = !doctor.context.examined.swap(true, Ordering::Relaxed);
        // Created for the first caller only: dropping an unfinished `DoctorForAll` allows another limiter to examine.
        is_first.then(|| DoctorForAll { doctor, has_looked: false })
    }

    fn doctor(&self) -> Option<Doctor> {
        let hub = self.access.hub().ok()?;
        Some(Doctor {
            context: Arc::clone(&hub.context),
            deadline: self.access.deadline,
            endpoints: self.access.settings().target.endpoints.clone(),
            prefix: self.access.settings().prefix.clone(),
            channel: self.keys.channel_name(Channel::FIRST),
        })
    }

    /// Decides by a policy of each kind in use, and resets its key.
    async fn examine_rights(&self, findings: &mut Findings) -> Result<(), Error> {
        let mut is_fine = true;
        for (id, name) in self.kinds() {
            let of_policy = name.map(|name| format!(" of policy {name}")).unwrap_or_default();
            for action in [Action::Apply(Operation::Check), Action::Reset] {
                let Err(Failure { reason, .. }) = self.try_out(id, action).await? else { continue };
                let mut message = format!("a decision{of_policy} could not be made ({})", reason.name());
                if reason == Degradation::Auth {
                    message = format!("{message}; the user needs {}", self.least_rights());
                }
                if matches!(reason, Degradation::Refused | Degradation::ClusterDown)
                    && let Some(cause) = self.cause(reason)
                {
                    message = format!("{message}: {cause}");
                }
                findings.add(Problem, "decision", message);
                is_fine = false;
                break;
            }
        }
        if is_fine {
            findings.add(Fine, "decision", "a decision was made and forgotten");
            self.examine_configuration(findings).await;
        }
        Ok(())
    }

    /// One policy of each kind: those with the same algorithms need the same commands. `None` if there is no policy.
    fn kinds(&self) -> Vec<(Option<PolicyId>, Option<String>)> {
        let (policies, mut seen, mut kinds) = (self.policies.all(), Vec::new(), Vec::new());
        for policy in &policies {
            let quotas = policy.policy.quotas().iter();
            let kind: Vec<_> = quotas.map(|quota| (quota.algorithm(), quota.count_denied())).collect();
            if !seen.contains(&kind) {
                seen.push(kind);
                kinds.push((Some(policy.id()), Some(policy.policy.name().to_owned())));
            }
        }
        if kinds.is_empty() { vec![(None, None)] } else { kinds }
    }

    /// Reads the configuration, if the limiter takes it from this store.
    async fn examine_configuration(&self, findings: &mut Findings) {
        if !self.access.follows_configuration.load(Ordering::Relaxed) {
            return;
        }
        match self.configuration().try_out().await {
            Ok(()) => findings.add(Fine, "configuration", "the user may read the configuration"),
            Err(failure) => {
                let rights = self.least_rights();
                let message = format!("{}; altogether the user needs {rights}", failure.error);
                findings.add(Problem, "configuration", message);
            }
        }
    }

    /// A warning about the options, for operators.
    pub fn warning(&self) -> Option<Finding> {
        let settings = self.access.settings();
        matches!(&settings.target.tls, Some(Tls { trust: Trust::Any, .. })).then(insecure)
    }

    /// Why the store does not decide, in the doctor's words, as far as it is known without examining anything.
    pub fn cause(&self, reason: Degradation) -> Option<Arc<str>> {
        match reason {
            Degradation::Unreachable
            | Degradation::Auth
            | Degradation::MaxClients
            | Degradation::NoResources
            | Degradation::ClusterDown
            | Degradation::Refused => {}
            _ => return None,
        }
        let hub = self.access.hub().ok()?;
        match (hub.context.connector.failed(), reason) {
            (Some(failed), _) => Some(failed.as_str().into()),
            (None, Degradation::Auth) => {
                Some(format!("the server refuses a command: the user needs {}", self.least_rights()).into())
            }
            (None, reason) => hub.context.connector.refusal.text(reason).map(Into::into),
        }
    }

    /// The permissions that the store's user needs, as `ACL SETUSER` takes them.
    fn least_rights(&self) -> String {
        let settings = self.access.settings();
        let selects = if settings.target.database > 0 { " +select" } else { "" };
        let is_cluster = matches!(settings.target.endpoints, Endpoints::Cluster { .. });
        let routes = if is_cluster { " +cluster|slots +asking" } else { "" };
        let follows = self.access.follows_configuration.load(Ordering::Relaxed);
        let (reads, keys) = if follows {
            (" +xread +hmget +hscan", format!("%R~{}:1:{{configuration}}* ", settings.prefix))
        } else {
            ("", String::new())
        };
        format!(
            "{keys}~{0}:1:[^{{]* resetchannels &{0}:* -@all +evalsha +eval +time +get +mget +set +setrange +del +getrange +strlen \
             +append +pexpireat +publish +subscribe +client|setname{reads}{selects}{routes}",
            settings.prefix
        )
    }
}

/// The extent of an examination.
#[derive(Clone, Copy, Debug)]
enum Extent {
    Whole,
    /// Only what can be a [`Severity::Problem`] in normal operation: this takes the fewest commands and permissions.
    Problems,
}

/// The doctor for all limiters of a hub. If it is dropped before it finishes, another limiter may examine.
#[derive(Debug)]
pub struct DoctorForAll {
    doctor: Doctor,
    has_looked: bool,
}

impl DoctorForAll {
    /// The findings that can be a [`Severity::Problem`].
    pub async fn examine(&mut self) -> Vec<Finding> {
        let findings = self.doctor.examine_servers(Extent::Problems).await;
        self.has_looked = true;
        findings
    }
}

impl Drop for DoctorForAll {
    fn drop(&mut self) {
        if !self.has_looked {
            self.doctor.context.examined.store(false, Ordering::Relaxed);
        }
    }
}

#[derive(Debug)]
struct Doctor {
    context: Arc<Context>,
    deadline: Duration,
    endpoints: Endpoints,
    prefix: Box<str>,
    channel: String,
}

impl Doctor {
    /// Examines the server, or every known node of a cluster.
    async fn examine_servers(&self, extent: Extent) -> Vec<Finding> {
        let mut findings = Findings::default();
        for address in self.addresses().await {
            if let Address::Service { service, sentinels } = &address
                && let Err(error) = self.context.connector.primary(service, sentinels).await
            {
                let message = format!(
                    "no sentinel names the primary, and the last known one stays in use, so that a failover would not be followed: {}",
                    error.cause()
                );
                findings.add(Problem, "sentinels", message);
            }
            match self.context.connector.session_or_cause(&address).await {
                Ok(mut session) => {
                    if let Err(error) = self.examine_server(&mut session, extent, &mut findings).await {
                        let message = format!("the server was reached and then answered no more: {error}");
                        findings.add(Problem, "connection", message);
                    }
                }
                Err(cause) => {
                    let announced = if self.is_announced(&address) {
                        ", an address that the cluster announces,"
                    } else {
                        ""
                    };
                    let server = address.describe();
                    let mapped = if announced.is_empty() {
                        ""
                    } else {
                        "; if it is reached at another address, name both by address_map"
                    };
                    let message = format!("{server}{announced} cannot be used: {cause}{mapped}");
                    findings.add(Problem, "connection", message);
                }
            }
        }
        if let Some((_, Tls { trust: Trust::Any, .. })) = &self.context.connector.tls {
            findings.0.push(insecure());
        }
        findings.0
    }

    /// Whether an address was announced, rather than configured by the user.
    fn is_announced(&self, address: &Address) -> bool {
        match (&self.endpoints, address) {
            (Endpoints::Cluster { seeds }, Address::Tcp(endpoint)) => !seeds.contains(endpoint),
            _ => false,
        }
    }

    async fn addresses(&self) -> Vec<Address> {
        let seeds = match Address::of(&self.endpoints) {
            Ok(address) => return vec![address],
            Err(seeds) => seeds,
        };
        for seed in seeds {
            if let Ok((_, nodes)) = cluster_slots::read(&self.context.connector, seed).await {
                return nodes.into_iter().map(Address::Tcp).collect();
            }
        }
        seeds.iter().cloned().map(Address::Tcp).collect()
    }

    async fn examine_server(
        &self,
        session: &mut Session,
        extent: Extent,
        findings: &mut Findings,
    ) -> RedisResult<()> {
        self.examine_latency(session, findings).await?;
        examine_info(session, findings).await?;
        match extent {
            Extent::Whole => {
                self.examine_module(session, findings).await?;
                examine_time_in_scripts(session, findings).await?;
                self.examine_channel(session, findings).await
            }
            Extent::Problems => Ok(()),
        }
    }

    /// Says that the module decides on a server that has it, or why it does not. Elsewhere scripts decide.
    async fn examine_module(&self, session: &mut Session, findings: &mut Findings) -> RedisResult<()> {
        if !self.context.connector.asks_for_module() {
            return Ok(());
        }
        match session.ask::<u64>(&redis::cmd(MODULE_VERSION)).await {
            Ok(MODULE_PROTOCOL) => {
                findings.add(Fine, "module", "polylimit's module decides; scripts decide what it does not");
            }
            Ok(protocol) => {
                let message = format!(
                    "scripts decide: the server's module speaks protocol {protocol}, and this version {MODULE_PROTOCOL}; load \
                     the module of this version"
                );
                findings.add(Advice, "module", message);
            }
            Err(error) if error.code().is_none() => return Err(error),
            Err(error) if error.code() == Some("NOPERM") => {
                let message = "scripts decide, although the server has polylimit's module: grant the user \
                               +polylimit.version +polylimit.decide";
                findings.add(Advice, "module", message);
            }
            Err(_) => {}
        }
        Ok(())
    }

    /// Tests publishing and subscribing on one of the invalidation channels, for all of which the user has the same rights. The session
    /// cannot be used for anything else afterwards.
    async fn examine_channel(&self, session: &mut Session, findings: &mut Findings) -> RedisResult<()> {
        let channel = &self.channel;
        let mut tried = session.ask::<Value>(redis::cmd("PUBLISH").arg(channel).arg("")).await;
        if tried.is_ok() {
            tried = session.ask::<Value>(redis::cmd("SUBSCRIBE").arg(channel)).await;
        }
        match tried {
            Ok(_) => findings.add(
                Fine,
                "channel",
                format!("refunds and resets are published to {}:1:invalidations:*", self.prefix),
            ),
            Err(error) if error.code().is_none() => return Err(error),
            Err(error) => {
                let (reason, prefix) = (error.detail().unwrap_or_default(), &self.prefix);
                let message = format!(
                    "refunds and resets are not published, and other processes see them after denial_cache_max \
                     ({reason}): grant the user &{prefix}:* +publish +subscribe"
                );
                findings.add(Advice, "channel", message);
            }
        }
        Ok(())
    }

    /// Measures round trips, and compares clocks.
    async fn examine_latency(&self, session: &mut Session, findings: &mut Findings) -> RedisResult<()> {
        let (mut round_trips, mut off_us) = (Vec::new(), u64::MAX);
        for _ in 0..TIMED {
            let started = monotonic::now();
            let server_us = match session.ask(&redis::cmd("TIME")).await {
                Ok(time) => server_us(time),
                Err(error) if error.code().is_some() => None,
                Err(error) => return Err(error),
            };
            let Some(server_us) = server_us else { break };
            off_us = off_us.min(Clock::system().now_us().abs_diff(server_us));
            round_trips.push(monotonic::now().saturating_duration_since(started));
        }
        round_trips.sort_unstable();
        let Some(&median) = round_trips.get(TIMED / 2) else {
            findings.add(Problem, "latency", "the server did not return the time: grant the user +time");
            return Ok(());
        };
        let (deadline, micros) = (self.deadline, median.as_micros());
        if median > deadline / 2 {
            let message = format!(
                "a round trip takes {micros} us of the {} us that a decision may take: come closer to the server, or \
                 raise the option deadline",
                deadline.as_micros()
            );
            findings.add(Problem, "latency", message);
        } else {
            findings.add(Fine, "latency", format!("a round trip takes {micros} us"));
        }
        if off_us > CLOCK_OFF_US {
            let message = format!(
                "the server's clock and this host's differ by {} ms: decisions follow the server's, but the times in logs \
                 will not agree; synchronize both by NTP",
                off_us / 1_000
            );
            findings.add(Advice, "clock", message);
        } else {
            findings.add(Fine, "clock", format!("within {} ms of this host's", off_us / 1_000 + 1));
        }
        Ok(())
    }
}

/// Reads the time in a script, which some services refuse.
async fn examine_time_in_scripts(session: &mut Session, findings: &mut Findings) -> RedisResult<()> {
    let mut script = redis::cmd("EVAL");
    script.arg("return redis.pcall('TIME').err or ''").arg(0);
    match session.ask::<String>(&script).await {
        Ok(refusal) if !refusal.is_empty() => {
            let message = format!(
                "scripts may not ask for the time ({}): decisions follow this host's clock, corrected by the server's every second",
                printable(&refusal)
            );
            findings.add(Advice, "clock", message);
        }
        Err(error) if error.code().is_none() => return Err(error),
        _ => {}
    }
    Ok(())
}

/// The finding about `tls_insecure`, for the doctor and the event at a limiter's creation.
pub(crate) fn insecure() -> Finding {
    let message = "tls_insecure is set, so any certificate is accepted, and anything on the way to the server can read and change \
                   all that is sent: for development only; verify the server by tls_ca or tls_fingerprint";
    Finding::new(Problem, "tls", message)
}

async fn examine_info(session: &mut Session, findings: &mut Findings) -> RedisResult<()> {
    let info: InfoDict = match session.ask(&redis::cmd("INFO")).await {
        Ok(info) => info,
        Err(error) if error.code() == Some("NOPERM") => {
            let message =
                "the user may not read what the server says of itself: grant +info to have it looked at";
            findings.add(Advice, "version", message);
            return Ok(());
        }
        Err(error) if error.code().is_some() => {
            let message = format!(
                "the server does not say what it is ({}): where a decision can be made, it is fit for use; otherwise {NEEDED}",
                words(&error)
            );
            findings.add(Advice, "version", message);
            let answered = session.ask::<Value>(&redis::cmd("PING")).await;
            if answered.is_err_and(|error| error.code().is_none()) {
                let message = format!(
                    "the server ends each connection on which it refuses a command, such as a script that it is to load: {NEEDED}"
                );
                findings.add(Problem, "version", message);
            }
            return Ok(());
        }
        Err(error) => return Err(error),
    };
    let field = |name| info.get::<String>(name);
    match Identity::of_info(&info) {
        Some(identity) if identity.is_too_old() => {
            findings.add(Problem, "version", format!("{identity} is too old: {NEEDED}"));
        }
        Some(identity) => findings.add(Fine, "version", identity.to_string()),
        None => findings.add(
            Advice,
            "version",
            format!("the server reports no version of Redis or Valkey: {NEEDED}"),
        ),
    }
    match (field("maxmemory").as_deref(), field("maxmemory_policy").as_deref()) {
        (Some("0"), _) => {
            let message =
                "the server's memory has no bound, so it forgets no key; set maxmemory to protect its host";
            findings.add(Advice, "memory", message);
        }
        (_, None) => {
            let message = "the server does not report its maxmemory-policy: it has to be noeviction";
            findings.add(Advice, "memory", message);
        }
        (_, Some("noeviction")) => {
            findings.add(Fine, "memory", "noeviction: when memory is full, the outage policies answer");
        }
        (_, Some(policy)) => {
            let message = format!(
                "maxmemory-policy is {policy}: when memory is full, the server forgets keys that are in use, and more is \
                 admitted; use noeviction"
            );
            findings.add(Problem, "memory", message);
        }
    }
    if field("role").is_some_and(|role| role != "master") {
        let message =
            "this is a replica, which refuses to write: point the URL at the primary, or use Sentinel";
        findings.add(Problem, "role", message);
    }
    Ok(())
}
