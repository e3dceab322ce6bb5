//! The response to a request that a configuration has decided.

use crate::http::headers::{HeaderField, HeaderSettings, Outcome, Problem, fields, problem_by_costs};
use crate::limiter::configured::request_decision::RequestDecision;

/// The fields of the response to a request; see [`fields`]. Policies that are off or in shadow, and decisions without the store, are
/// not reported.
pub fn request_fields(decided: &RequestDecision, settings: &HeaderSettings, now_us: u64) -> Vec<HeaderField> {
    let reported = decided.decisions.iter().filter(|made| made.is_reported);
    let outcomes: Vec<Outcome<'_>> = reported.map(|made| (&made.effective, &made.decision)).collect();
    fields(&outcomes, settings, now_us)
}

/// The problem of a request that a configuration denies; `None` when it is admitted. The status is 403 for a deny list, 400 for a
/// missing key, 503 for an outage, and otherwise 429.
///
/// ```
/// use polylimit::http::headers::request_problem;
/// use polylimit::document::RequestAttributes;
/// use polylimit::reservation::ReserveOptions;
/// use polylimit::Limiter;
///
/// let document = r#"{"polylimit": 1, "policies": {}, "lists": {"deny": ["user mallory"]}}"#;
/// let limiter = Limiter::builder().document(document).build()?.blocking();
/// let request = RequestAttributes::new().attribute("user", "mallory");
/// let decided = limiter.decide(&request, &ReserveOptions::default().terms()?)?;
/// assert_eq!(request_problem(&decided).map(|problem| problem.status()), Some(403));
/// # Ok::<(), polylimit::Error>(())
/// ```
pub fn request_problem(decided: &RequestDecision) -> Option<Problem> {
    Some(match decided.status()? {
        403 => Problem::refused(),
        400 => Problem::without_key(&[""; 0]),
        _ => {
            let outcomes: Vec<Outcome<'_>> =
                decided.decisions.iter().map(|made| (&made.effective, &made.decision)).collect();
            let cost = |at: usize| decided.decisions.get(at).map_or(1, |made| made.cost);
            problem_by_costs(&outcomes, cost).unwrap_or_else(Problem::unavailable)
        }
    })
}
