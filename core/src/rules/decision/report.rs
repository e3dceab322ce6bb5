//! Decisions and usages as reports, for the command line and the server.

use serde::de::{self, Deserialize, Deserializer};
use serde::ser::{Serialize, SerializeStruct, Serializer};

use crate::rules::decision::{
    Cause, Decision, DecisionParts, Degradation, QuotaUsage, QuotaVerdict, Source, Usage,
};

/// One quota of a decision or of a usage.
struct QuotaReport {
    usage: QuotaUsage,
    /// None for a usage, which judges no request.
    verdict: Option<QuotaVerdict>,
}

impl Serialize for QuotaReport {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("Quota", if self.verdict.is_some() { 6 } else { 4 })?;
        put_usage(&self.usage, &mut fields)?;
        if let Some(verdict) = self.verdict {
            fields.serialize_field("allowed", &verdict.allowed)?;
            fields.serialize_field("retry_after_us", &verdict.retry_after_us)?;
        }
        fields.end()
    }
}

fn put_usage<S: SerializeStruct>(usage: &QuotaUsage, fields: &mut S) -> Result<(), S::Error> {
    fields.serialize_field("limit", &usage.limit)?;
    fields.serialize_field("remaining", &usage.remaining)?;
    fields.serialize_field("over", &usage.over)?;
    fields.serialize_field("reset_after_us", &usage.reset_after_us)
}

/// Every accessor under its name; times in microseconds.
impl Serialize for Decision {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("Decision", 14)?;
        fields.serialize_field("allowed", &self.allowed)?;
        fields.serialize_field("cause", &self.cause)?;
        fields.serialize_field("retry_after_us", &self.retry_after_us())?;
        fields.serialize_field("delay_us", &self.delay_us())?;
        fields.serialize_field("crossed", &self.crossed)?;
        fields.serialize_field("elastic", &self.elastic)?;
        fields.serialize_field("shadowed", &self.shadowed)?;
        put_usage(&self.total, &mut fields)?;
        fields.serialize_field("source", &self.source)?;
        fields.serialize_field("degraded", &self.degraded)?;
        let each = self.quotas().iter().zip(self.verdicts());
        let quotas: smallvec::SmallVec<[QuotaReport; 4]> =
            each.map(|(usage, verdict)| QuotaReport { usage: *usage, verdict: Some(verdict) }).collect();
        fields.serialize_field("quotas", &*quotas)?;
        fields.end()
    }
}

/// From what the decision was serialized as; fields that follow from others are not read.
impl<'de> Deserialize<'de> for Decision {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(serde::Deserialize)]
        #[serde(rename = "Quota")]
        struct OfQuota {
            limit: u64,
            remaining: u64,
            over: u64,
            reset_after_us: u64,
            retry_after_us: Option<u64>,
        }
        #[derive(serde::Deserialize)]
        #[serde(rename = "Decision")]
        #[expect(clippy::struct_excessive_bools, reason = "they are the decision's")]
        struct Fields {
            allowed: bool,
            cause: Option<Cause>,
            retry_after_us: Option<u64>,
            delay_us: u64,
            crossed: bool,
            elastic: bool,
            shadowed: bool,
            remaining: u64,
            source: Source,
            degraded: Option<Degradation>,
            quotas: Vec<OfQuota>,
        }
        let fields = Fields::deserialize(deserializer)?;
        let Fields { allowed, cause, crossed, elastic, shadowed, remaining, source, degraded, .. } = fields;
        let usage = |OfQuota { limit, remaining, over, reset_after_us, .. }: &OfQuota| QuotaUsage {
            limit: *limit,
            remaining: *remaining,
            reset_after_us: *reset_after_us,
            over: *over,
        };
        let quotas: Vec<_> = fields.quotas.iter().map(usage).collect();
        let quota_waits_us: Vec<_> = fields.quotas.iter().map(|quota| quota.retry_after_us).collect();
        let wait_us = if allowed && !shadowed { Some(fields.delay_us) } else { fields.retry_after_us };
        let parts = DecisionParts {
            allowed,
            wait_us,
            source,
            degraded,
            cause,
            crossed,
            elastic,
            shadowed,
            remaining,
            quotas: &quotas,
            quota_waits_us: &quota_waits_us,
        };
        Self::from_parts(parts).map_err(de::Error::custom)
    }
}

/// Every accessor under its name; times in microseconds.
impl Serialize for Usage {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("Usage", 10)?;
        fields.serialize_field("taken", &self.taken)?;
        fields.serialize_field("found", &self.found)?;
        fields.serialize_field("repeated", &self.repeated)?;
        put_usage(&self.total, &mut fields)?;
        fields.serialize_field("source", &self.source)?;
        fields.serialize_field("degraded", &self.degraded)?;
        let quotas: smallvec::SmallVec<[QuotaReport; 4]> =
            self.quotas().iter().map(|usage| QuotaReport { usage: *usage, verdict: None }).collect();
        fields.serialize_field("quotas", &*quotas)?;
        fields.end()
    }
}

#[cfg(test)]
mod tests {
    use crate::clock::ManualClock;
    use crate::raw::report_json;
    use crate::{Limiter, Policy, Request};

    #[test]
    fn decision_and_usage_are_told_with_every_field() {
        let clock = ManualClock::new(0).unwrap();
        let policy = Policy::parse("api", "2/minute token_bucket; 3/hour").unwrap();
        let limiter = Limiter::builder().policy(policy).clock(clock).build().unwrap().blocking();
        let usage = limiter.take(Request::new("a").cost(3)).unwrap();
        assert_eq!(
            report_json(&usage),
            r#"{"taken":2,"found":true,"repeated":false,"limit":2,"remaining":0,"over":0,"reset_after_us":3960000000,"source":"store","degraded":null,"quotas":[{"limit":2,"remaining":0,"over":0,"reset_after_us":60000000},{"limit":3,"remaining":1,"over":0,"reset_after_us":3960000000}]}"#
        );
        let decision = limiter.check("a").unwrap();
        assert_eq!(
            report_json(&decision),
            r#"{"allowed":false,"cause":"quota","retry_after_us":30000000,"delay_us":0,"crossed":false,"elastic":false,"shadowed":false,"limit":2,"remaining":0,"over":0,"reset_after_us":3960000000,"source":"store","degraded":null,"quotas":[{"limit":2,"remaining":0,"over":0,"reset_after_us":60000000,"allowed":false,"retry_after_us":30000000},{"limit":3,"remaining":1,"over":0,"reset_after_us":3960000000,"allowed":true,"retry_after_us":0}]}"#
        );
    }
}
