//! The decisions and charges of all guards of one request.

use std::fmt;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use smallvec::SmallVec;

use crate::http::guard::settlement::{Settlement, Step};
use crate::http::headers::{
    HeaderField, HeaderSettings, HeaderStyle, fields_at, outage_field, push_limits, push_over,
    push_retry_after,
};
use crate::limiter::Limiter;
use crate::limiter::reservation::{AtEnd, Reservation};
use polylimit_rules::decision::{Decision, Usage};
use polylimit_rules::error::Error;
use polylimit_rules::policy::Policy;
use polylimit_rules::request::Request;
use polylimit_runtime::backoff::random;

/// The limits of one request: shared by all guards that it passes, and by the program, which may read the decisions.
/// Clones share everything.
#[derive(Clone, Default)]
pub struct RequestLimits {
    ledger: Arc<Mutex<Ledger>>,
}

/// Most requests have one limit with one policy, which needs no allocation of its own.
type Few<T> = SmallVec<[T; 1]>;

#[derive(Default)]
pub(super) struct Ledger {
    entries: Few<Entry>,
    /// Decisions of the store that no guard has claimed: on other policies of the same list, and for guards that the request
    /// meets later.
    unclaimed: Vec<Unclaimed>,
    /// How many guards have decided.
    guards: u32,
    /// Whether a denial may be followed by another attempt; see [`RequestLimits::with_attempts`].
    has_attempts: bool,
    /// Whether the newest of the guards has denied.
    is_denied: bool,
    /// Why the request was admitted without the store, and the settings of the guard that reports it.
    outage: Option<(&'static str, HeaderSettings)>,
    /// The random bits of `retry-after`, which is the same whenever the fields are written; 0 until they are needed.
    random: u64,
}

/// One policy with one key: its newest decision, and its units and reservations.
struct Entry {
    limiter: Limiter,
    policy: Policy,
    key: Arc<[u8]>,
    decision: Decision,
    /// The highest cost that was admitted and is relied on.
    admitted: u64,
    /// The units of it that the store has spent, which are refunded when no guard relies on them.
    charged: u64,
    /// The units of it that an outage policy admitted, so that no store knows them.
    unknown: u64,
    /// The reservations that are kept until no guard relies on them.
    reservations: Vec<Reservation>,
    /// The most units of a guard that has finished and counts, while others still rely on the charge.
    kept: u64,
    /// The guards that rely on it.
    claims: Few<Claim>,
    headers: HeaderSettings,
    /// Whether the decision appears in the fields.
    is_shown: bool,
    is_dry_run: bool,
}

/// What a guard relies on.
#[derive(Clone, Copy)]
pub(super) struct Claim {
    /// The guard's number.
    pub(super) guard: u32,
    /// The position of the policy among those of the guard.
    pub(super) at: usize,
    pub(super) cost: u64,
    /// Whether it lasts until the response is done, because the charge is known only then.
    pub(super) is_held: bool,
}

/// The units or the reservation that a claim has taken.
pub(super) enum Taken {
    /// These units, spent by a check; 0 where the claim relies on an earlier decision.
    Units(u64),
    /// A reservation.
    Reservation(Box<Reservation>),
}

/// The units that a request has spent, as its program reports when the response is done; from 0 to [`Request::MAX_COST`] units.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub enum Spent<'a> {
    /// As many units as were reserved.
    #[default]
    Reserved,
    /// These units under each policy.
    Units(u64),
    /// Units for each policy, in the order of the policies. For `None`, and for policies beyond the end, what was reserved. The
    /// limits of a configuration have no such order: a guard that decides by one uses the first for all.
    Each(&'a [Option<u64>]),
}

impl From<Option<u64>> for Spent<'_> {
    fn from(units: Option<u64>) -> Self {
        units.map_or(Self::Reserved, Self::Units)
    }
}

impl<'a> From<&'a [Option<u64>]> for Spent<'a> {
    fn from(units: &'a [Option<u64>]) -> Self {
        Self::Each(units)
    }
}

impl Spent<'_> {
    /// The units of the policy at this position; `None` is what was reserved.
    pub(super) fn at(self, at: usize) -> Option<u64> {
        match self {
            Self::Reserved => None,
            Self::Units(units) => Some(units),
            Self::Each(units) => units.get(at).copied().flatten(),
        }
    }

    pub(super) fn checked(self) -> Result<(), Error> {
        let check = |units: u64| Request::new("").cost(units).checked().map(drop);
        match self {
            Self::Reserved => Ok(()),
            Self::Units(units) => check(units),
            Self::Each(units) => units.iter().flatten().try_for_each(|units| check(*units)),
        }
    }
}

/// A decision that no guard relies on yet. Its units are refunded when the guard that asked for it ends.
struct Unclaimed {
    /// The number of the guard that asked.
    asked_by: u32,
    limiter: Limiter,
    policy: Policy,
    key: Arc<[u8]>,
    units: u64,
    decision: Decision,
}

/// A policy that a guard applies to a request, before its decision.
#[derive(Clone, Copy)]
pub(super) struct Charge<'a> {
    pub(super) limiter: &'a Limiter,
    pub(super) policy: &'a Policy,
    pub(super) key: &'a Arc<[u8]>,
}

/// How a decision is reported.
#[derive(Clone, Copy)]
pub(super) struct Report<'a> {
    pub(super) headers: &'a HeaderSettings,
    pub(super) is_shown: bool,
    pub(super) is_dry_run: bool,
}

impl Entry {
    fn is_for(&self, charge: Charge<'_>) -> bool {
        self.policy.name() == charge.policy.name()
            && self.key == *charge.key
            && self.limiter.is_clone_of(charge.limiter)
    }
}

impl RequestLimits {
    /// The limits of a request that may be attempted again after a denial, such as behind a layer that retries. A denial then
    /// refunds nothing of the other guards. All of them must [finish]: those that finish while the newest attempt is denied
    /// refund their units.
    ///
    /// [finish]: crate::http::guard::GuardCheck::finish
    pub fn with_attempts() -> Self {
        let ledger = Ledger { has_attempts: true, ..Ledger::default() };
        Self { ledger: Arc::new(Mutex::new(ledger)) }
    }

    /// Each policy that was applied, with its newest decision, in the order of the first decisions. After a refund a
    /// decision shows what is left.
    pub fn outcomes(&self) -> Vec<(Policy, Decision)> {
        let ledger = self.ledger.lock();
        ledger.entries.iter().map(|entry| (entry.policy.clone(), entry.decision.clone())).collect()
    }

    /// Whether no guard has decided yet.
    pub fn is_empty(&self) -> bool {
        self.ledger.lock().entries.is_empty()
    }

    /// The fields of the response, for all guards so far: each policy in the style of its guard, and one `retry-after` for all.
    /// `now_us` is the time in microseconds since the Unix epoch, and matters only for
    /// [`ResetForm::Epoch`](crate::http::headers::ResetForm::Epoch).
    pub fn fields(&self, now_us: u64) -> Vec<HeaderField> {
        self.fields_at(&|| now_us)
    }

    /// As [`fields`](Self::fields); reads the time only where a field needs it.
    pub(super) fn fields_at(&self, now_us: &dyn Fn() -> u64) -> Vec<HeaderField> {
        let mut ledger = self.ledger.lock();
        ledger.choose_random();
        // Most requests have one limit.
        if let ([only], None) = (&ledger.entries[..], &ledger.outage)
            && only.is_shown
            && !only.is_dry_run
            && ledger.random == 0
        {
            return fields_at(&[only.outcome()], &only.headers, now_us);
        }
        let shown: Few<&Entry> = ledger.entries.iter().filter(|entry| entry.is_shown).collect();
        let mut written: Vec<HeaderField> = Vec::with_capacity(6);
        for style in [HeaderStyle::Ietf, HeaderStyle::Legacy] {
            let of_style = |entry: &Entry| entry.headers.only(style);
            for (at, entry) in shown.iter().enumerate() {
                let Some(settings) = of_style(entry) else { continue };
                if shown[..at].iter().any(|earlier| of_style(earlier).as_ref() == Some(&settings)) {
                    continue;
                }
                let alike = shown.iter().filter(|other| of_style(other).as_ref() == Some(&settings));
                let own: Few<_> = alike.map(|one| one.outcome()).collect();
                push_limits(&mut written, &own, &settings, now_us);
            }
        }
        push_over(&mut written, shown.iter().map(|entry| (entry.outcome().1, &entry.headers)));
        if let Some((source, settings)) = &ledger.outage {
            written.extend(outage_field(source, settings));
        }
        let denying = || shown.iter().filter(|one| !one.is_dry_run);
        let outcomes = denying().map(|one| one.outcome()).collect::<Few<_>>();
        push_retry_after(&mut written, &outcomes, |seconds| ledger.jitter_of(seconds));
        written
    }

    /// Whether the store holds units that no guard has claimed: the response must be finished even if it counts.
    pub fn has_unclaimed(&self) -> bool {
        !self.ledger.lock().unclaimed.is_empty()
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock()
    }
}

impl Unclaimed {
    fn is_for(&self, charge: Charge<'_>) -> bool {
        self.policy.name() == charge.policy.name()
            && self.key == *charge.key
            && self.limiter.is_clone_of(charge.limiter)
    }
}

impl Ledger {
    /// Chooses the random bits, if a denial needs them.
    pub(super) fn choose_random(&mut self) {
        if self.random == 0 && self.entries.iter().any(Entry::is_jittered) {
            self.random = random().max(1);
        }
    }

    /// The seconds that the jitter of the denials adds to a wait: for one wait the same as often as it is asked.
    pub(super) fn jitter_of(&self, seconds: u64) -> u64 {
        let denials = self.entries.iter().filter(|one| one.is_shown && !one.is_dry_run && one.is_jittered());
        let jitters = denials.filter_map(|one| one.headers.jitter);
        jitters.map(|jitter| jitter.extra(seconds, self.random)).max().unwrap_or(0)
    }

    /// The decision that holds for a charge, and the cost that it admitted, if an earlier guard has one.
    pub(super) fn admitted(&self, charge: Charge<'_>) -> Option<(Decision, u64)> {
        let entry = self.entries.iter().find(|entry| !entry.claims.is_empty() && entry.is_for(charge))?;
        Some((entry.decision.clone(), entry.admitted))
    }

    /// The decision that the store made ahead for a charge of these units.
    pub(super) fn decided_ahead(&self, charge: Charge<'_>, units: u64) -> Option<Decision> {
        let found = self.unclaimed.iter().find(|one| one.units == units && one.is_for(charge));
        found.map(|one| one.decision.clone())
    }

    /// Records a decision that the guard with this number asked for, until a guard claims it.
    pub(super) fn hold(&mut self, charge: Charge<'_>, asked_by: u32, units: u64, decision: Decision) {
        let (limiter, policy, key) = (charge.limiter.clone(), charge.policy.clone(), Arc::clone(charge.key));
        self.unclaimed.push(Unclaimed { asked_by, limiter, policy, key, units, decision });
    }

    /// The number of a new guard, which identifies its claims. It starts or continues an attempt.
    pub(super) fn add_guard(&mut self) -> u32 {
        self.is_denied = false;
        self.guards += 1;
        self.guards
    }

    /// Records a new decision on a charge; a newer one replaces an older one of a policy with the same name in the
    /// fields.
    pub(super) fn record(&mut self, charge: Charge<'_>, decision: Decision, report: Report<'_>) {
        let Report { headers, is_shown, is_dry_run } = report;
        let entries = &mut self.entries;
        let mut same = None;
        for (at, entry) in entries.iter_mut().enumerate() {
            if entry.is_for(charge) {
                same = Some(at);
            } else if is_shown && entry.policy.name() == charge.policy.name() {
                entry.is_shown = false;
            }
        }
        match same {
            Some(at) => {
                let entry = &mut entries[at];
                (entry.decision, entry.is_shown, entry.is_dry_run) = (decision, is_shown, is_dry_run);
            }
            None => entries.push(Entry {
                limiter: charge.limiter.clone(),
                policy: charge.policy.clone(),
                key: Arc::clone(charge.key),
                decision,
                admitted: 0,
                charged: 0,
                unknown: 0,
                reservations: Vec::new(),
                kept: 0,
                claims: SmallVec::new(),
                headers: headers.clone(),
                is_shown,
                is_dry_run,
            }),
        }
    }

    /// Records that a guard relies on a charge.
    pub(super) fn claim(&mut self, charge: Charge<'_>, claim: Claim, taken: Taken) {
        if let Taken::Units(units) = taken {
            self.unclaimed.retain(|one| one.units != units || !one.is_for(charge));
        }
        let Some(entry) = self.entries.iter_mut().find(|entry| entry.is_for(charge)) else { return };
        entry.claims.push(claim);
        entry.admitted = entry.admitted.max(claim.cost);
        match taken {
            Taken::Reservation(mut reservation) => {
                // A process that forgets to end it keeps the units, as it would with a check.
                reservation.set_end(AtEnd::Commit(None));
                entry.reservations.push(*reservation);
            }
            Taken::Units(units) if entry.decision.source().is_outage() => entry.unknown += units,
            Taken::Units(units) => entry.charged += units,
        }
    }

    /// Whether the newest guard of the request has denied it.
    pub(super) fn is_denied(&self) -> bool {
        self.is_denied
    }

    /// Whether the newest attempt of a request that may have several is denied, so that its response counts for no guard.
    pub(super) fn is_attempt_denied(&self) -> bool {
        self.has_attempts && self.is_denied
    }

    /// Ends the claims of a guard that has a response, except those that are held until it is done. If the response `counts`,
    /// their units are kept. Returns the settlements.
    pub(super) fn finish(&mut self, guard: u32, counts: bool) -> Vec<Settlement> {
        let ends = |claim: &Claim| claim.guard == guard && !claim.is_held;
        self.release(Some(guard), ends, |claim| counts.then_some(claim.cost))
    }

    /// Ends the claims of a guard whose response is done. It keeps what it has spent; nothing where the response does not count.
    pub(super) fn end(&mut self, guard: u32, counts: bool, spent: Spent<'_>) -> Vec<Settlement> {
        let ends = |claim: &Claim| claim.guard == guard;
        self.release(Some(guard), ends, |claim| counts.then(|| spent.at(claim.at).unwrap_or(claim.cost)))
    }

    /// Ends the claims that a denial by this guard ends: those of all guards, or only its own where another attempt may follow.
    /// Returns the settlements.
    pub(super) fn deny(&mut self, guard: u32) -> Vec<Settlement> {
        self.outage = None;
        self.is_denied = true;
        let denied = self.has_attempts.then_some(guard);
        self.release(denied, |claim| denied.is_none_or(|guard| claim.guard == guard), |_| None)
    }

    /// Ends claims; those for which `keeps` returns units keep them. Returns the settlements for units that no guard relies on
    /// or has kept, and for unclaimed ones that the guard, or any guard, asked for.
    fn release(
        &mut self,
        guard: Option<u32>,
        ends: impl Fn(&Claim) -> bool,
        keeps: impl Fn(&Claim) -> Option<u64>,
    ) -> Vec<Settlement> {
        let mut settlements = Vec::new();
        self.unclaimed.retain(|one| {
            let stays = guard.is_some_and(|guard| one.asked_by != guard);
            if !stays && one.decision.allowed() && !one.decision.source().is_outage() {
                settlements.push(Settlement {
                    limiter: one.limiter.clone(),
                    policy: one.policy.clone(),
                    key: Arc::clone(&one.key),
                    plan: None,
                    step: Step::Refund(one.units),
                });
            }
            stays
        });
        for entry in &mut self.entries {
            let (mut admitted, mut kept) = (0, entry.kept);
            entry.claims.retain(|claim| {
                let stays = !ends(claim);
                if stays {
                    admitted = claim.cost.max(admitted);
                } else if let Some(units) = keeps(claim) {
                    kept = units.max(kept);
                }
                stays
            });
            (entry.admitted, entry.kept) = (admitted, kept);
            entry.settle(&mut settlements);
        }
        settlements
    }

    /// Records what is left after a settlement.
    pub(super) fn settled(&mut self, settlement: &Settlement, left: Usage) {
        let charge =
            Charge { limiter: &settlement.limiter, policy: &settlement.policy, key: &settlement.key };
        if let Some(entry) = self.entries.iter_mut().find(|entry| entry.is_for(charge)) {
            entry.decision = entry.decision.clone().refunded(left);
        }
    }

    /// Records that the request was admitted without the store.
    pub(super) fn set_outage(&mut self, source: &'static str, settings: &HeaderSettings) {
        self.outage = Some((source, settings.clone()));
    }
}

impl Entry {
    /// Whether its denial asks for more than the exact wait.
    fn is_jittered(&self) -> bool {
        self.headers.jitter.is_some() && !self.decision.allowed()
    }

    fn outcome(&self) -> (&Policy, &Decision) {
        (&self.policy, &self.decision)
    }

    /// Adds the settlements after claims have ended. A reservation cannot be reduced, so it stays while a claim relies on it;
    /// when none does, the first one charges what was kept beyond the units that are already spent.
    fn settle(&mut self, settlements: &mut Vec<Settlement>) {
        let (limiter, policy, key) = (&self.limiter, &self.policy, &self.key);
        let mut add = |step| {
            let (limiter, policy, key) = (limiter.clone(), policy.clone(), Arc::clone(key));
            settlements.push(Settlement { limiter, policy, key, plan: None, step });
        };
        if !self.claims.is_empty() && !self.reservations.is_empty() {
            return;
        }
        let excess = self.charged.saturating_sub(self.admitted.max(self.kept));
        if excess > 0 {
            self.charged -= excess;
            add(Step::Refund(excess));
        }
        if !self.claims.is_empty() {
            return;
        }
        let mut rest = self.kept.saturating_sub(self.charged + self.unknown);
        for mut reservation in self.reservations.drain(..) {
            let spent = std::mem::take(&mut rest);
            reservation.set_end(if spent > 0 { AtEnd::Commit(Some(spent)) } else { AtEnd::Cancel });
            add(Step::End(Box::new(reservation)));
        }
        if rest > 0 {
            add(Step::Charge(rest));
        }
        (self.charged, self.unknown, self.kept) = (0, 0, 0);
    }
}

/// `Debug` shows no keys: they may be secrets or people's names.
impl fmt::Debug for RequestLimits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestLimits").field("outcomes", &self.outcomes()).finish_non_exhaustive()
    }
}
