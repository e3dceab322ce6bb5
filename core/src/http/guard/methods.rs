//! Which methods a guard limits.

use std::borrow::Cow;

use polylimit_document::condition::{is_method, refuse_method};
use polylimit_rules::error::Error;

/// The methods of a guard.
#[derive(Clone, Debug, Default)]
pub(super) struct Methods {
    /// The limited methods; all if empty.
    names: Vec<String>,
    pub(super) is_head_separate: bool,
    pub(super) counts_preflights: bool,
}

impl Methods {
    pub(super) fn add(&mut self, name: String) {
        self.names.push(name);
    }

    /// Validates the names and converts them to upper case: methods are case-sensitive, and all that clients send are in upper case.
    pub(super) fn checked(mut self) -> Result<Self, Error> {
        for name in &mut self.names {
            if !is_method(name) {
                return Err(refuse_method("methods has", name));
            }
            name.make_ascii_uppercase();
        }
        Ok(self)
    }

    /// See [`Guard::applies_to`](crate::http::guard::Guard::applies_to).
    pub(super) fn apply_to(&self, method: &str, requested_method: Option<&str>) -> bool {
        let is_among = |method: &str| self.names.iter().any(|name| name == method);
        let is_head = method == "HEAD" && !self.is_head_separate;
        let applies = self.names.is_empty() || is_among(method) || is_head && is_among("GET");
        let is_preflight = method == "OPTIONS" && requested_method.is_some_and(|method| !method.is_empty());
        applies && (!is_preflight || self.counts_preflights || is_among(method))
    }

    /// The route with `GET` in place of `HEAD`, because the handler of `GET` responds to both.
    pub(super) fn route_with_get<'a>(&self, route: &'a str) -> Cow<'a, str> {
        match route.strip_prefix("HEAD ") {
            Some(path) if !self.is_head_separate => Cow::Owned(format!("GET {path}")),
            _ => Cow::Borrowed(route),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn methods(names: &[&str]) -> Methods {
        let mut methods = Methods::default();
        for name in names {
            methods.add((*name).to_owned());
        }
        methods.checked().unwrap()
    }

    #[test]
    fn get_has_head_unless_they_are_separate() {
        let only = methods(&["get", "Post"]);
        let apply =
            |methods: &Methods| ["GET", "HEAD", "POST", "PUT", "get"].map(|one| methods.apply_to(one, None));
        assert_eq!(apply(&only), [true, true, true, false, false]);
        assert_eq!(only.route_with_get("HEAD /x"), "GET /x");
        let separate = Methods { is_head_separate: true, ..only };
        assert_eq!(apply(&separate), [true, false, true, false, false]);
        assert_eq!(separate.route_with_get("HEAD /x"), "HEAD /x");
        assert_eq!(apply(&methods(&[])), [true; 5]);
        assert!(methods(&["HEAD"]).apply_to("HEAD", None) && !methods(&["POST"]).apply_to("HEAD", None));
    }

    #[test]
    fn preflights_count_only_where_the_program_says_so() {
        let all = methods(&[]);
        assert!(!all.apply_to("OPTIONS", Some("POST")));
        // These are not preflights.
        assert!(
            all.apply_to("OPTIONS", None)
                && all.apply_to("OPTIONS", Some(""))
                && all.apply_to("POST", Some("POST"))
        );
        assert!(methods(&["OPTIONS"]).apply_to("OPTIONS", Some("POST")));
        let counting = Methods { counts_preflights: true, ..all };
        assert!(counting.apply_to("OPTIONS", Some("POST")));
    }

    #[test]
    fn method_that_no_client_can_send_is_refused() {
        for name in ["", "G T", "GET/", "g\u{e9}t", "GET\n"] {
            let mut methods = Methods::default();
            methods.add(name.to_owned());
            let message = methods.checked().unwrap_err().message().to_owned();
            assert!(
                message.starts_with(&format!("methods has {name:?}, which no client can send")),
                "{message}"
            );
        }
    }
}
