//! The metrics of a limiter: its counts, and the current state of its store and its configuration.

#[cfg(feature = "opentelemetry")]
pub mod opentelemetry;
mod policies;
mod store;

use crate::limiter::{Limiter, blocking, name_of};
use polylimit_store::families::{Family, FamilyKind, SampleValue, TextFormat};

impl Limiter {
    /// The decisions of this limiter since it was built, and the state of its store and its configuration. They contain no key.
    ///
    /// The families are always the same; those that do not apply to the limiter have no samples. docs/metrics.md
    /// describes each. A forked child counts from 0. The first 1,024 policies have samples of their own; those beyond
    /// are counted together as `other`.
    ///
    /// This adds up the counts of all threads and examines the store in this process: a few microseconds, which no
    /// decision waits for, and about 20 ns for each 1,000 keys in the memory store. Nothing is sent.
    ///
    /// ```
    /// use polylimit::metrics::SampleValue;
    /// use polylimit::{Limiter, Policy};
    ///
    /// let limiter = Limiter::builder().policy(Policy::parse("api", "100/minute")?).build()?;
    /// let _ = limiter.blocking().check("user:42")?;
    /// let families = limiter.metrics();
    /// let decisions = families.iter().find(|family| family.name == "polylimit_decisions_total").expect("a family");
    /// assert!(decisions.samples.iter().any(|sample| sample.value == SampleValue::Count(1)));
    /// # Ok::<(), polylimit::Error>(())
    /// ```
    pub fn metrics(&self) -> Vec<Family> {
        let shared = self.shared();
        let mut families = policies::families(shared);
        families.extend(store::families(shared));
        let mut policies =
            Family::new("polylimit_policies_version_info", FamilyKind::Gauge, "The active configuration.");
        let mut reload = Family::new(
            "polylimit_policies_last_reload_successful",
            FamilyKind::Gauge,
            "1 when the newest document is active; 0 when it was refused, is missing or cannot be read.",
        );
        let mut unreachable = Family::new(
            "polylimit_policies_unreachable_seconds",
            FamilyKind::Gauge,
            "For how long the source of the configuration has been unreachable.",
        );
        if let Some(status) = self.admin().configuration() {
            let version = status.version.to_string();
            let labels = [("source", &*status.source), ("version", &*version), ("digest", &*status.digest)];
            policies.add(labels, SampleValue::Number(1.0));
            let is_newest = shared.configured.followed().is_none_or(|followed| followed.status().is_newest);
            reload.add([], SampleValue::Number(if is_newest { 1.0 } else { 0.0 }));
            unreachable.add([], SampleValue::Number(seconds(status.unreachable_for_us)));
        }
        let mut build = Family::new("polylimit_build_info", FamilyKind::Gauge, "The version of polylimit.");
        let labels = [("version", env!("CARGO_PKG_VERSION")), ("store", name_of(&shared.store))];
        build.add(labels, SampleValue::Number(1.0));
        families.extend([policies, reload, unreachable, build]);
        families
    }

    /// [`metrics`](Self::metrics) as text, for an endpoint that a monitoring system reads.
    ///
    /// ```
    /// use polylimit::metrics::TextFormat;
    /// use polylimit::{Limiter, Policy};
    ///
    /// let limiter = Limiter::builder().policy(Policy::parse("api", "100/minute")?).build()?;
    /// let text = limiter.metrics_text(TextFormat::Prometheus);
    /// assert!(text.contains(r#"polylimit_quota_limit_units{policy="api",quota="100/minute"} 100"#));
    /// # Ok::<(), polylimit::Error>(())
    /// ```
    pub fn metrics_text(&self, format: TextFormat) -> String {
        format.write(&self.metrics())
    }
}

impl blocking::Limiter {
    /// See [`Limiter::metrics`].
    pub fn metrics(&self) -> Vec<Family> {
        self.asynchronous().metrics()
    }

    /// See [`Limiter::metrics_text`].
    pub fn metrics_text(&self, format: TextFormat) -> String {
        self.asynchronous().metrics_text(format)
    }
}

/// A count as a number; a metric need not be exact beyond 2^53.
#[expect(clippy::cast_precision_loss, reason = "the formats have no other numbers")]
fn number(count: u64) -> SampleValue {
    SampleValue::Number(count as f64)
}

#[expect(clippy::cast_precision_loss, reason = "microseconds of 285 years are exact")]
fn seconds(us: u64) -> f64 {
    us as f64 / 1e6
}
