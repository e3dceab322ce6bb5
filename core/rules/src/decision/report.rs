//! Decisions and usages as reports, for the command line and the server.

use serde::de::{self, Deserialize, Deserializer};
use serde::ser::{Serialize, SerializeStruct, Serializer};

use crate::decision::{Cause, Decision, DecisionParts, Degradation, QuotaUsage, QuotaVerdict, Source, Usage};

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
