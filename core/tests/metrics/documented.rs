//! docs/metrics.md names every family with its labels.

use std::collections::BTreeSet;

use polylimit::Limiter;

#[test]
fn every_family_is_documented() {
    let page = include_str!("../../../docs/metrics.md");
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `polylimit_")?.split('`').next());
    let documented: BTreeSet<_> = rows.map(|name| format!("polylimit_{name}")).collect();
    let limiter = Limiter::builder().build().unwrap();
    let known: BTreeSet<_> = limiter.metrics().iter().map(|family| family.name.to_owned()).collect();
    assert_eq!(documented, known);
}
