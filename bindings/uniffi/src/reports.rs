//! Reports: lists of keys, explanations, counters of keys, and metrics.
//!
//! The core serialises each report under the names of its fields (`report_json`), and the records here are read from that: a new
//! field of a report is a field of its record, and needs no other code. Times are microseconds, as the names of the fields say.

mod listing;
mod metrics;
mod operations;
mod records;

pub use listing::ListOptions;
pub(crate) use listing::most;
pub use metrics::{MetricBucket, MetricFamily, MetricSample, MetricValue};
pub use records::{
    ConfigurationExplanation, EntryExplanation, KeyExplanation, KeyName, KeyPage, ListedKey, ListedQuota,
    PenaltyExplanation, QuotaExplanation, RequestExplanation, ResetPage, TopKey, TopKeys,
};

use polylimit::raw::report_json;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::{PolylimitError, Result};

/// The record of a report.
pub(crate) fn record<T: DeserializeOwned>(report: &impl Serialize) -> Result<T> {
    serde_json::from_str(&report_json(report))
        .map_err(|error| PolylimitError::Internal(format!("a report cannot be read: {error}")))
}
