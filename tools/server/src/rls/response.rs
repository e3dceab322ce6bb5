//! The response about a request, made of the decisions of its descriptors.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

use polylimit::decision::{Cause, Degradation, QuotaUsage, Source};
use polylimit::http::headers::{HeaderField, HeaderSettings, Problem, fields, problem, request_problem};
use polylimit::raw::Answer;
use polylimit::{Decision, Policy, Quota};

use crate::rls::decision::{Application, Outcome};
use crate::rls::messages::{Code, DescriptorStatus, HeaderValue, RateLimit, RateLimitResponse, Unit};
use crate::rls::metadata::Metadata;

/// Periods and the units that Envoy knows them by; months and years are those of envoyproxy/ratelimit.
const UNITS: [(Duration, Unit); 7] = [
    (Duration::from_secs(1), Unit::Second),
    (Duration::from_secs(60), Unit::Minute),
    (Duration::from_secs(3_600), Unit::Hour),
    (Duration::from_secs(86_400), Unit::Day),
    (Duration::from_secs(7 * 86_400), Unit::Week),
    (Duration::from_secs(30 * 86_400), Unit::Month),
    (Duration::from_secs(365 * 86_400), Unit::Year),
];

/// The unit by which Envoy knows a quota's period, or its windows by the calendar.
fn unit_of(quota: &Quota) -> Unit {
    let Some(calendar) = quota.calendar() else {
        return UNITS
            .iter()
            .find(|(period, _)| *period == quota.period())
            .map_or(Unit::Unknown, |(_, unit)| *unit);
    };
    match calendar.to_string().split(' ').next() {
        Some("day") => Unit::Day,
        Some("week") => Unit::Week,
        Some("month") => Unit::Month,
        Some("year") => Unit::Year,
        _ => Unit::Unknown,
    }
}

impl Outcome {
    pub(super) fn response(&self) -> RateLimitResponse {
        let statuses = (0..self.descriptors).map(|at| self.status(at)).collect();
        let mut headers = fields(&self.shown(), &HeaderSettings::default(), 0);
        let problem = self.problem().filter(|problem| problem.status() == 429);
        if problem.is_some() {
            let value = Problem::JSON_TYPE.to_owned();
            headers.push(HeaderField { name: "content-type".into(), value });
        }
        let header = |HeaderField { name, value }| HeaderValue { key: name.into_owned(), value };
        RateLimitResponse {
            overall_code: code(!self.is_denied),
            statuses,
            response_headers_to_add: headers.into_iter().map(header).collect(),
            raw_body: problem.map(|problem| problem.json().into_bytes()).unwrap_or_default(),
            dynamic_metadata: self.metadata(),
        }
    }

    /// The status of a descriptor: that of its policy that denies, or has least left.
    fn status(&self, at: usize) -> DescriptorStatus {
        let own = self.applications.iter().filter(|application| application.descriptor == at);
        if let Some(application) = own.min_by_key(|application| application.rank()) {
            return application.status();
        }
        let decided = self.decided.iter().find(|(descriptor, _)| *descriptor == at);
        let allowed = decided.is_none_or(|(_, decided)| decided.allowed);
        let limit_remaining = if allowed { u32::MAX } else { 0 };
        let (current_limit, duration_until_reset) = (None, None);
        DescriptorStatus { code: code(allowed), current_limit, limit_remaining, duration_until_reset }
    }

    /// What fields of the response show: one decision of each policy, none of those in shadow, and no denial that does not count.
    fn shown(&self) -> Vec<(&Policy, &Decision)> {
        let mut shown: BTreeMap<&str, &Application> = BTreeMap::new();
        let mut names = Vec::new();
        for application in &self.applications {
            let is_from_store = |decision: &Decision| decision.source() != Source::Configuration;
            let counts = self.is_denied || !application.denies();
            if !(application.is_on && counts && application.decision().is_some_and(is_from_store)) {
                continue;
            }
            let name = &*application.policy;
            match shown.get(name) {
                Some(other) if other.rank() <= application.rank() => continue,
                Some(_) => {}
                None => names.push(name),
            }
            shown.insert(name, application);
        }
        let in_order = names.into_iter().filter_map(|name| shown.get(name));
        in_order.filter_map(|one| Some((&one.effective_policy, one.decision()?))).collect()
    }

    /// Why the request is denied, for its client.
    fn problem(&self) -> Option<Problem> {
        if !self.is_denied {
            return None;
        }
        if let Some((_, decided)) = self.decided.iter().find(|(_, decided)| !decided.allowed) {
            return request_problem(decided);
        }
        let denials = self.applications.iter().filter(|application| application.denies());
        problem(&self.shown(), denials.map(|denial| denial.units).max().unwrap_or(1))
    }

    /// What filters of Envoy and its access log can read: the policy that decides, its quota, which part of polylimit decided and
    /// whether it did so without the store, and the policies in shadow that would have denied.
    fn metadata(&self) -> Vec<u8> {
        let asked = || self.applications.iter().filter(|application| application.decision().is_some());
        let deciding = asked().filter(|one| one.is_on && (self.is_denied || !one.denies()));
        let deciding = deciding.min_by_key(|application| application.rank());
        let shadow = asked().filter(|one| one.decision().is_some_and(Decision::shadowed));
        let mut metadata = Metadata::new();
        if let Some((application, decision)) = deciding.and_then(|one| Some((one, one.decision()?))) {
            let quota =
                application.effective_policy.quotas().get(reported_quota(decision)).map(ToString::to_string);
            metadata.add("policy", Some(&application.policy));
            metadata.add("quota", quota.as_deref());
            metadata.add("source", Some(decision.source().name()));
            metadata.add("degraded", decision.degraded().map(Degradation::name));
            metadata.add("cause", decision.cause().map(Cause::name));
        } else if let Some((_, decided)) = self.decided.iter().min_by_key(|(_, decided)| decided.allowed) {
            metadata.add("source", Some(Source::Configuration.name()));
            metadata.add("cause", decided.cause.map(Cause::name));
        } else if asked().next().is_none() {
            return Vec::new();
        }
        metadata.add_list("shadow", shadow.map(|one| &*one.policy));
        metadata.encoded()
    }
}

impl Application {
    /// Lower for what denies, and then for what has less left.
    fn rank(&self) -> (bool, u64) {
        match &self.answer {
            Some(Answer::Decision(decision)) => (decision.allowed(), decision.remaining()),
            Some(Answer::Usage(usage)) => (true, usage.remaining()),
            _ => (true, u64::MAX),
        }
    }

    fn status(&self) -> DescriptorStatus {
        match &self.answer {
            Some(Answer::Decision(decision)) => {
                let (usages, at) = (decision.quotas(), reported_quota(decision));
                let reset = usages.get(at).map(|usage| usage.reset_after_us);
                let until_us = if decision.allowed() { reset } else { decision.retry_after_us() };
                self.status_of(decision.allowed(), usages, at, until_us)
            }
            Some(Answer::Usage(usage)) => {
                let (usages, at) = (usage.quotas(), tightest(usage.quotas()));
                self.status_of(true, usages, at, usages.get(at).map(|usage| usage.reset_after_us))
            }
            _ => DescriptorStatus { code: code(true), ..DescriptorStatus::default() },
        }
    }

    /// A status; `until_us` is the wait of a denial, where it is not for ever, or the time until nothing counts as used.
    fn status_of(
        &self,
        allowed: bool,
        usages: &[QuotaUsage],
        at: usize,
        until_us: Option<u64>,
    ) -> DescriptorStatus {
        let Some(usage) = usages.get(at) else { return DescriptorStatus::default() };
        let quota = self.effective_policy.quotas().get(at).filter(|quota| quota.limit() == usage.limit);
        let current_limit = RateLimit {
            requests_per_unit: capped(usage.limit),
            unit: quota.map_or(Unit::Unknown, unit_of).into(),
            name: (*self.policy).to_owned(),
        };
        DescriptorStatus {
            code: code(allowed),
            current_limit: Some(current_limit),
            limit_remaining: capped(usage.remaining),
            duration_until_reset: until_us.and_then(|us| Duration::from_micros(us).try_into().ok()),
        }
    }
}

/// The quota by which a decision is reported: of those that deny, the one that does so for longest; otherwise the one with least left.
fn reported_quota(decision: &Decision) -> usize {
    let denying = decision.verdicts().enumerate().filter(|(_, verdict)| !verdict.allowed);
    let longest = denying.max_by_key(|(_, verdict)| verdict.retry_after_us.unwrap_or(u64::MAX));
    longest.map_or_else(|| tightest(decision.quotas()), |(at, _)| at)
}

fn tightest(usages: &[QuotaUsage]) -> usize {
    let ranked = usages.iter().map(|usage| (usage.remaining, Reverse(usage.reset_after_us))).enumerate();
    ranked.min_by_key(|(_, rank)| *rank).map_or(0, |(at, _)| at)
}

fn code(allowed: bool) -> i32 {
    if allowed { Code::Ok } else { Code::OverLimit }.into()
}

fn capped(units: u64) -> u32 {
    u32::try_from(units).unwrap_or(u32::MAX)
}
