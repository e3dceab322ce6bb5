//! Explanations: why a request would be admitted or denied now. They charge nothing and change nothing.

pub(crate) mod report;

use crate::limiter::configured::in_force::InForce;
use crate::limiter::deadline::in_tokio;
use crate::limiter::explanation::report::{
    ConfigurationExplanation, EntryExplanation, KeyExplanation, PenaltyExplanation, PolicyMode,
    QuotaExplanation, QuotasSource, RequestExplanation,
};
use crate::limiter::listing::page::capacity_of;
use crate::limiter::{Admin, CHECK, Limiter, blocking};
use polylimit_document::effective::QuotasOrigin;
use polylimit_document::key_calendar::split_plan;
use polylimit_document::model::Mode;
use polylimit_document::request::AttributeSource;
use polylimit_rules::decision::Cause;
use polylimit_rules::error::{Error, ErrorKind};
use polylimit_rules::penalty::{BlockRecord, Penalty};
use polylimit_rules::policy::Policy;
use polylimit_rules::quota::calendar::KeyOptions;
use polylimit_rules::request::Request;
use polylimit_rules::transition::PolicyRules;
use polylimit_rules::words::words;
use polylimit_store::charge::{Charge, PolicyId, PreparedQuotas, Wait};
use polylimit_store::scan::{KeyName, KnownHere, Look, LookRequest, StoredKey};

/// A key that is explained, with its effective quotas.
#[derive(Clone, Copy)]
struct Asked<'a> {
    id: PolicyId,
    policy: &'a Policy,
    effective: Option<&'a PreparedQuotas>,
    key: &'a [u8],
    cost: u64,
    headroom: u8,
}

/// A key of a configured policy that is explained.
#[derive(Clone, Copy)]
struct AskedByConfiguration<'a> {
    policy: usize,
    key: &'a [u8],
    cost: u64,
    headroom: u8,
    plan: Option<&'a [u8]>,
    /// The calendar of the key and the group of the request, where the request has them.
    calendar: Option<&'a KeyOptions>,
    now_us: u64,
    /// The rule that applies the policy, and whether the request lacks an attribute of the key.
    rule: Option<(u32, bool)>,
}

impl Admin<'_> {
    /// Explains why a request would be admitted or denied now: the state of each quota, in the words of its algorithm;
    /// blocks and reservations; and what the configuration specifies for the key. It charges nothing, and may be
    /// outdated when the next request arrives.
    ///
    /// ```
    /// use polylimit::{Limiter, Policy};
    ///
    /// let limiter = Limiter::builder().policy(Policy::parse("api", "100/minute; 2/hour")?).build()?.blocking();
    /// for _ in 0..3 {
    ///     let _ = limiter.check("user:42")?;
    /// }
    /// let explained = limiter.admin().explain("user:42")?;
    /// assert!(!explained.allowed && explained.quotas[0].admits && !explained.quotas[1].admits);
    /// assert_eq!(explained.quotas[1].words, "2 of 2 in the last 1h, counted in 10 parts");
    /// # Ok::<(), polylimit::Error>(())
    /// ```
    ///
    /// # Errors
    /// See [`Limiter`]; [`StoreUnavailable`](ErrorKind::StoreUnavailable) when the store does not answer: no outage policy answers in
    /// its place. [`InvalidArgument`](ErrorKind::InvalidArgument) also outside of a tokio runtime, unless the store is in this process
    /// or on this host.
    pub async fn explain<'a>(self, request: impl Into<Request<'a>>) -> Result<KeyExplanation, Error> {
        self.limiter.explain_key(request.into(), Wait::Await).await
    }

    /// Explains why a request, by its attributes, would be admitted or denied by the configuration: the lists, the
    /// rules that match, and each of their policies.
    ///
    /// # Errors
    /// As for [`explain`](Self::explain) and [`matching`](Self::matching).
    pub async fn explain_request(
        self,
        request: &(dyn AttributeSource + Sync),
    ) -> Result<RequestExplanation, Error> {
        self.limiter.explain_attributes(request, Wait::Await).await
    }
}

impl Limiter {
    pub(crate) async fn explain_key(
        &self,
        request: Request<'_>,
        wait: Wait,
    ) -> Result<KeyExplanation, Error> {
        let shared = self.shared();
        shared.registry.check_open()?;
        let request = request.checked()?;
        if !shared.store.is_here() {
            in_tokio("explain")?;
        }
        let Request { key, policy, cost, headroom, plan, .. } = request;
        if shared.registry.is_configured() {
            let in_force = self.wait_for_configuration(wait).await?;
            let index = match policy {
                Some(name) => in_force.configuration.policy_index(name),
                None => Some(0).filter(|_| in_force.configuration.policies().len() == 1),
            };
            if let Some(policy) = index {
                let plan = plan.map(str::as_bytes);
                let now_us = shared.store.clock().now_us();
                let asked = AskedByConfiguration {
                    policy,
                    key,
                    cost,
                    headroom,
                    plan,
                    calendar: None,
                    now_us,
                    rule: None,
                };
                return self.explain_configured(&in_force, asked).await;
            }
        }
        let id = shared.registry.id(policy, &shared.store)?;
        let policy = shared.registry.policy_of(id).ok_or_else(Error::no_answer)?;
        self.look_at(Asked { id, policy: &policy, effective: None, key, cost, headroom }).await
    }

    pub(crate) async fn explain_attributes(
        &self,
        request: &(dyn AttributeSource + Sync),
        wait: Wait,
    ) -> Result<RequestExplanation, Error> {
        let shared = self.shared();
        shared.registry.check_open()?;
        if !shared.store.is_here() {
            in_tokio("explain")?;
        }
        let in_force = self.wait_for_configuration(wait).await?;
        let configuration = &in_force.configuration;
        let now_us = shared.store.clock().now_us();
        let in_total = |allowed, cause, retry_after_us| RequestExplanation {
            allowed,
            cause,
            retry_after_us,
            list_entry: None,
            policies: Vec::new(),
            configuration: self.admin().configuration().map(ConfigurationExplanation::of),
        };
        if !configuration.document().enabled {
            return Ok(in_total(true, Some(Cause::Off), Some(0)));
        }
        let (applied, plan) = {
            let attributes = configuration.attributes(request);
            if let Some(verdict) = configuration.list_verdict(&attributes, now_us) {
                let statement = configuration.request_statement(&attributes, verdict.denies, now_us);
                let decided = if verdict.denies {
                    let retry_after_us = verdict.until_us.map(|until_us| until_us.saturating_sub(now_us));
                    in_total(false, Some(Cause::DenyList), retry_after_us)
                } else {
                    in_total(true, Some(Cause::AllowList), Some(0))
                };
                return Ok(RequestExplanation { list_entry: statement.map(EntryExplanation::of), ..decided });
            }
            let plan = configuration.plan(&attributes).map(<[u8]>::to_vec);
            (configuration.apply_rules(&attributes, now_us)?, plan)
        };
        let mut policies = Vec::with_capacity(applied.len());
        for applied in &applied {
            let asked = AskedByConfiguration {
                policy: applied.policy,
                key: &applied.key,
                cost: applied.cost,
                headroom: applied.headroom,
                plan: plan.as_deref(),
                calendar: applied.calendar.as_deref(),
                now_us,
                rule: Some((applied.rule, applied.is_missing)),
            };
            policies.push(self.explain_configured(&in_force, asked).await?);
        }
        let denials = || policies.iter().filter(|policy| !policy.allowed);
        let cause = denials().filter_map(|denial| denial.cause).min_by_key(|cause| *cause as u8);
        let longest = denials().map(|denial| denial.retry_after_us).reduce(|a, b| Some(a?.max(b?)));
        let in_total = in_total(longest.is_none(), cause, longest.unwrap_or(Some(0)));
        Ok(RequestExplanation { policies, ..in_total })
    }

    /// The steps of a decision about a key of a configured policy, the store's among them.
    async fn explain_configured(
        &self,
        in_force: &InForce,
        asked: AskedByConfiguration<'_>,
    ) -> Result<KeyExplanation, Error> {
        let mut explained = self.explain_by_store(in_force, asked).await?;
        let configuration = &in_force.configuration;
        let AskedByConfiguration { policy, key, cost, now_us, rule, .. } = asked;
        let document = in_force.document(policy);
        let decide = |explained: &mut KeyExplanation, cause, retry_after_us| {
            (explained.allowed, explained.cause) = (retry_after_us == Some(0), Some(cause));
            explained.retry_after_us = retry_after_us;
        };
        if explained.mode == PolicyMode::Off {
            decide(&mut explained, Cause::Off, Some(0));
            return Ok(explained);
        }
        if rule.is_some_and(|(_, is_missing)| is_missing) {
            decide(&mut explained, Cause::MissingKey, None);
        } else if let Some(verdict) = configuration.key_verdict(policy, key, now_us) {
            let statement = configuration.key_statement(policy, key, verdict.denies, now_us);
            explained.list_entry = statement.map(EntryExplanation::of);
            if verdict.denies {
                let retry_after_us = verdict.until_us.map(|until_us| until_us.saturating_sub(now_us).max(1));
                decide(&mut explained, Cause::DenyList, retry_after_us);
            } else {
                decide(&mut explained, Cause::AllowList, Some(0));
                return Ok(explained);
            }
        } else if let (Some(elastic), Some(Cause::Quota), Some(retry_after_us)) =
            (&document.elastic, explained.cause, explained.retry_after_us)
        {
            let (policy, key, headroom) = (elastic.pool, &*elastic.key, elastic.headroom);
            let of_pool = AskedByConfiguration {
                policy,
                key,
                cost,
                headroom,
                plan: None,
                calendar: None,
                now_us,
                rule: None,
            };
            let pool = self.explain_by_store(in_force, of_pool).await?;
            if pool.allowed {
                (explained.allowed, explained.elastic, explained.cause) = (true, true, None);
                explained.retry_after_us = Some(0);
            } else {
                let of_pool = pool.retry_after_us.unwrap_or(u64::MAX);
                explained.retry_after_us = Some(retry_after_us.min(of_pool));
            }
            explained.pool = Some(Box::new(pool));
        }
        if explained.mode == PolicyMode::Shadow && !explained.allowed {
            (explained.allowed, explained.shadowed) = (true, true);
        }
        Ok(explained)
    }

    /// Explains a key of a configured policy by its states in the store and its effective quotas.
    async fn explain_by_store(
        &self,
        in_force: &InForce,
        asked: AskedByConfiguration<'_>,
    ) -> Result<KeyExplanation, Error> {
        let AskedByConfiguration { policy, key, cost, headroom, plan, calendar, now_us, rule } = asked;
        let shared = self.shared();
        let configuration = &in_force.configuration;
        let choice = configuration.effective(policy, key, plan, calendar, now_us)?;
        let (origin, statement) = configuration.quotas_origin(policy, key, plan, now_us);
        let explained = self
            .look_at(Asked {
                id: in_force.policy(policy).id,
                policy: in_force.quotas(policy, choice.set),
                effective: in_force.prepared(policy, choice.set, &shared.store),
                key,
                cost,
                headroom,
            })
            .await?;
        let plan = match origin {
            QuotasOrigin::Plan => plan.map(|plan| String::from_utf8_lossy(split_plan(plan).0).into()),
            _ => statement.as_ref().and_then(|statement| statement.plan.clone()),
        };
        let is_on = configuration.document().enabled;
        let mode = if is_on { in_force.document(policy).mode } else { Mode::Off };
        Ok(KeyExplanation {
            mode: mode.into(),
            rule: rule.map(|(rule, _)| rule),
            quotas_source: match origin {
                QuotasOrigin::Entry | QuotasOrigin::Document => QuotasSource::Override,
                QuotasOrigin::Plan => QuotasSource::Plan,
                QuotasOrigin::Candidate => QuotasSource::Candidate,
                QuotasOrigin::Quotas => QuotasSource::Quotas,
            },
            plan,
            override_entry: statement.map(EntryExplanation::of),
            ..explained
        })
    }

    /// Explains a key by its states.
    async fn look_at(&self, asked: Asked<'_>) -> Result<KeyExplanation, Error> {
        let Asked { id, policy, effective, key, cost, headroom } = asked;
        let shared = self.shared();
        let request = LookRequest { id, key: StoredKey::Plain(key), cost, headroom, effective };
        let looks = [request];
        let looked = shared.closing.unless_closed(shared.store.look_many(&looks)).await?;
        let Look { states, now_us, degraded } = looked.into_iter().next().flatten().ok_or_else(|| {
            Error::new(
                ErrorKind::StoreFailed,
                "the key has a value of another type in Redis, which another program has written: remove it there",
            )
        })?;
        let rules = PolicyRules::new(policy);
        let seen = rules.inspect(&states, now_us, cost, headroom);
        let each = policy.quotas().iter().zip(&rules.quotas).zip(states.iter().zip(&seen.quotas));
        let quotas = each.map(|((quota, numbers), (state, seen))| {
            let usage = (seen.used, seen.usage.reset_after_us);
            QuotaExplanation {
                quota: quota.to_string().into(),
                limit: quota.limit(),
                capacity: capacity_of(quota),
                period_us: quota.period_us(),
                used: seen.used,
                remaining: seen.usage.remaining,
                over: seen.usage.over,
                admits: seen.admits,
                retry_after_us: seen.retry_after_us,
                reset_after_us: seen.usage.reset_after_us,
                words: words(quota, &numbers.rules, state, usage, now_us),
            }
        });
        let check = Charge { headroom, effective, ..Charge::new(id, key, CHECK, cost) };
        let KnownHere { leased_units, denial_cached } = shared.store.known_here(check);
        let (denials, denials_error) = shared.observed_denials(id, key).unzip();
        Ok(KeyExplanation {
            policy: policy.name().into(),
            key: KeyName::Bytes(key.into()),
            cost,
            headroom,
            allowed: seen.allowed,
            cause: seen.cause,
            retry_after_us: seen.retry_after_us,
            elastic: false,
            shadowed: false,
            mode: PolicyMode::On,
            rule: None,
            quotas_source: QuotasSource::Quotas,
            plan: None,
            override_entry: None,
            list_entry: None,
            quotas: quotas.collect(),
            reservations: seen.held.alive,
            reserved_units: seen.held.units,
            reservations_end_after_us: seen.reservations_end_after_us,
            blocked_for_us: seen.blocked_for_us,
            penalty: policy.penalty().map(|penalty| explain_penalty(penalty, &seen.record)),
            expires_after_us: seen.expires_after_us,
            degraded,
            leased_units,
            denial_cached,
            denials,
            denials_error,
            pool: None,
            configuration: self.admin().configuration().map(ConfigurationExplanation::of),
        })
    }
}

fn explain_penalty(penalty: &Penalty, record: &BlockRecord) -> PenaltyExplanation {
    let level = u32::from(record.level.min(BlockRecord::MAX_LEVEL));
    PenaltyExplanation {
        denials: record.count,
        blocks_at: penalty.denials,
        level: record.level,
        next_block_us: penalty.block_us.saturating_mul(1 << level).min(penalty.max_us),
    }
}

impl blocking::Admin<'_> {
    /// See [`Admin::explain`].
    ///
    /// # Errors
    /// See [`Admin::explain`].
    pub fn explain<'a>(self, request: impl Into<Request<'a>>) -> Result<KeyExplanation, Error> {
        let request = request.into();
        self.limiter.block_on(self.limiter.asynchronous().admin().explain(request))?
    }

    /// See [`Admin::explain_request`].
    ///
    /// # Errors
    /// See [`Admin::explain_request`].
    pub fn explain_request(
        self,
        request: &(dyn AttributeSource + Sync),
    ) -> Result<RequestExplanation, Error> {
        self.limiter.block_on(self.limiter.asynchronous().admin().explain_request(request))?
    }
}
