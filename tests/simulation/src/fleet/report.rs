//! What a run of the fleet has shown, as a table and as JSON.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde::Serialize;

/// The figures of a run. Times end in their unit; percentages of the server are of one core.
#[derive(Clone, Debug, Serialize)]
#[expect(missing_docs, reason = "docs/fleet.md explains the figures, and their names say what they are")]
pub struct Report {
    pub processes: usize,
    pub seconds: f64,
    pub wall_seconds: f64,
    pub decisions: u64,
    pub sources: BTreeMap<String, u64>,
    pub excess_units: u64,
    pub most_excess_units: u64,
    pub leased_idle_mean: f64,
    pub leased_idle_most: u64,
    pub latency_p50_us: u64,
    pub latency_p99_us: u64,
    pub latency_max_us: u64,
    pub server_cpu_percent: f64,
    pub formula_cpu_percent: f64,
    pub one_channel_cpu_percent: f64,
    pub decision_server_us: f64,
    pub calls: u64,
    pub entries: u64,
    pub other_commands: u64,
    pub published: u64,
    pub messages: u64,
    pub connections_most: u64,
    pub connections_opened: u64,
    pub listeners_most: u64,
    pub admitted_units: Shares,
    pub requests: Shares,
    pub recovered_after_ms: Vec<f64>,
}

/// How a sum is divided among the processes.
#[derive(Clone, Copy, Debug, Serialize)]
#[expect(missing_docs, reason = "the names say what they are")]
pub struct Shares {
    pub sum: u64,
    pub least: u64,
    pub median: u64,
    pub most: u64,
}

impl Shares {
    pub(super) fn of(each: &[u64]) -> Self {
        let mut sorted = each.to_vec();
        sorted.sort_unstable();
        let at = |place: usize| sorted.get(place).copied().unwrap_or(0);
        Self {
            sum: each.iter().sum(),
            least: at(0),
            median: at(sorted.len() / 2),
            most: at(sorted.len().saturating_sub(1)),
        }
    }
}

impl Report {
    /// The part of the decisions that a source made, in percent.
    pub fn percent(&self, source: &str) -> f64 {
        self.sources.get(source).map_or(0.0, |count| *count as f64 * 100.0 / self.decisions.max(1) as f64)
    }

    fn rows(&self) -> Vec<(String, String)> {
        let mut rows: Vec<(&str, String)> = vec![
            ("processes", self.processes.to_string()),
            ("seconds simulated / taken", format!("{:.0} / {:.1}", self.seconds, self.wall_seconds)),
            ("decisions a second", format!("{:.0}", self.decisions as f64 / self.seconds)),
        ];
        let sources = ["store", "denial_cache", "lease", "fallback", "allow", "deny"];
        let names =
            ["  by the store", "  by the denial cache", "  by leases", "  by fallback", "  allow", "  deny"];
        for (source, name) in sources.iter().zip(names) {
            rows.push((name, format!("{:.2} %", self.percent(source))));
        }
        let recovered: Vec<String> = self.recovered_after_ms.iter().map(|ms| format!("{ms:.0} ms")).collect();
        let shares = |it: &Shares| format!("{} / {} / {}", it.least, it.median, it.most);
        rows.extend([
            ("excess units / at most", format!("{} / {}", self.excess_units, self.most_excess_units)),
            (
                "units idle in leases, mean / most",
                format!("{:.0} / {}", self.leased_idle_mean, self.leased_idle_most),
            ),
            (
                "latency p50 / p99 / most",
                format!("{} / {} / {} us", self.latency_p50_us, self.latency_p99_us, self.latency_max_us),
            ),
            ("server CPU", format!("{:.2} % of a core", self.server_cpu_percent)),
            ("  by the formula", format!("{:.2} %", self.formula_cpu_percent)),
            ("  if all listened to one channel", format!("{:.2} %", self.one_channel_cpu_percent)),
            ("server CPU of a decision", format!("{:.2} us", self.decision_server_us)),
            ("script calls a second", format!("{:.0}", self.calls as f64 / self.seconds)),
            ("decisions of a call", format!("{:.2}", self.entries as f64 / self.calls.max(1) as f64)),
            ("published a second", format!("{:.1}", self.published as f64 / self.seconds)),
            ("messages a second", format!("{:.1}", self.messages as f64 / self.seconds)),
            (
                "connections, most / opened",
                format!("{} / {}", self.connections_most, self.connections_opened),
            ),
            ("  that listen, most", self.listeners_most.to_string()),
            ("requests of a process, least / median / most", shares(&self.requests)),
            ("units admitted by a process", shares(&self.admitted_units)),
            ("recovered after", if recovered.is_empty() { "-".into() } else { recovered.join(", ") }),
        ]);
        rows.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }
}

/// A table with a column for each run.
pub fn table(reports: &[Report]) -> String {
    let columns: Vec<Vec<(String, String)>> = reports.iter().map(Report::rows).collect();
    let Some(first) = columns.first() else { return String::new() };
    let mut text = String::new();
    let longest = first.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let widths: Vec<usize> =
        columns.iter().map(|rows| rows.iter().map(|(_, value)| value.len()).max().unwrap_or(0)).collect();
    for (row, (name, _)) in first.iter().enumerate() {
        let _ = write!(text, "{name:longest$}");
        for (rows, width) in columns.iter().zip(&widths) {
            let _ = write!(text, "  {:>width$}", rows[row].1);
        }
        text.push('\n');
    }
    text
}
