//! A page with everything in one file: the data, a plot by uPlot, and tables.

use crate::error::SimulationError;
use crate::results::Simulation;

const PAGE: &str = include_str!("html/page.html");
const PAGE_JS: &str = include_str!("html/page.js");
// Version 1.6.32, unchanged; its licence is next to it and in the page.
const UPLOT_JS: &str = include_str!("../vendor/uplot/uPlot.iife.min.js");
const UPLOT_CSS: &str = include_str!("../vendor/uplot/uPlot.min.css");
const UPLOT_LICENCE: &str = include_str!("../vendor/uplot/LICENSE");

/// The page of a simulation.
pub(crate) fn page(simulation: &Simulation) -> Result<String, SimulationError> {
    let data = serde_json::to_string(simulation)
        .map_err(|error| SimulationError::Internal(format!("the page cannot be written: {error}")))?;
    let uplot = format!("/*\n{}\n*/\n{UPLOT_JS}", UPLOT_LICENCE.trim());
    Ok(fill(&[
        ("/*UPLOT_CSS*/", UPLOT_CSS),
        ("/*DATA*/", &escape(&data)),
        ("/*UPLOT_JS*/", &uplot),
        ("/*PAGE_JS*/", PAGE_JS),
    ]))
}

/// Puts parts into the places of the page, in their order; no place is looked for inside of a part.
fn fill(parts: &[(&str, &str)]) -> String {
    let (mut page, mut rest) = (String::new(), PAGE);
    for (place, part) in parts {
        if let Some((before, after)) = rest.split_once(place) {
            page.push_str(before);
            page.push_str(part);
            rest = after;
        }
    }
    page.push_str(rest);
    page
}

/// JSON that no parser of HTML takes for the end of its element, or for the begin of another one: these characters stand only in
/// texts, in which JSON allows escapes.
fn escape(json: &str) -> String {
    json.replace('&', "\\u0026").replace('<', "\\u003c").replace('>', "\\u003e")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_place_is_filled() {
        for place in ["/*UPLOT_CSS*/", "/*DATA*/", "/*UPLOT_JS*/", "/*PAGE_JS*/"] {
            assert_eq!(PAGE.matches(place).count(), 1, "{place}");
        }
        let page = fill(&[
            ("/*UPLOT_CSS*/", "a"),
            ("/*DATA*/", "/*PAGE_JS*/"),
            ("/*UPLOT_JS*/", "c"),
            ("/*PAGE_JS*/", "d"),
        ]);
        assert!(
            page.contains(r#"id="data">/*PAGE_JS*/</script>"#) && page.contains("\nd\n</script>"),
            "{page}"
        );
    }

    #[test]
    fn vendored_scripts_do_not_end_their_elements() {
        for script in [UPLOT_JS, UPLOT_LICENCE, PAGE_JS] {
            assert!(!script.to_lowercase().contains("</script") && !script.contains("<!--"));
        }
        assert!(!UPLOT_LICENCE.contains("*/"));
    }
}
