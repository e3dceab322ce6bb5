//! The limit of one layer: its guard, and the functions that read a request for it.

use std::borrow::Cow;
use std::net::IpAddr;

use http::header::{ACCESS_CONTROL_REQUEST_METHOD, ORIGIN};
use http::request::Parts;
use http::{Method, Response, StatusCode, response};

use crate::http::guard::{
    Guard, GuardCheck, KeyPart, MissingKey, OutageReport, RequestFacts, RequestLimits, Verdict,
};
use crate::http::headers::Problem;
use crate::http::tower::User;
use crate::http::tower::body::ResponseBody;
use crate::http::tower::hold::{RequestHold, Spent};
use crate::http::tower::key::{cookie_value, header_value};
use crate::http::tower::response::{allow_origin, denial, failure};
use polylimit_document::request::RequestAttributes;
use polylimit_rules::decision::Decision;
use polylimit_rules::policy::Policy;

/// A request that a layer does not pass on.
#[derive(Debug)]
#[non_exhaustive]
pub struct Denial<'a> {
    /// The policies of this layer, each with its decision; empty when no decision could be made.
    pub outcomes: &'a [(Policy, Decision)],
    /// The default response. Its status is 429, or that of the layer, for a request over its limit; 503 for an outage; 400 for
    /// a request without a key.
    pub problem: &'a Problem,
}

/// The outcome for a request that the store did not decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OnOutage {
    /// The outage policy's decision holds; without one the request is denied.
    ByPolicy,
    /// The request is passed to the service, unless the store itself denies it under another policy.
    Admit,
    /// The request is denied, with status 503.
    Deny,
}

/// A function of a request.
type Of<T> = Box<dyn Fn(&Parts) -> T + Send + Sync>;
type Parameter = Box<dyn Fn(&Parts, &str) -> Option<String> + Send + Sync>;
type Counts = Box<dyn Fn(&response::Parts) -> bool + Send + Sync>;
type Respond<B> = Box<dyn Fn(&Denial<'_>, &Parts) -> Response<B> + Send + Sync>;
type Overrule = Box<dyn Fn(&OutageReport<'_>, &Parts) -> OnOutage + Send + Sync>;

/// The functions of a layer; see [`RateLimitBuilder`](crate::http::tower::RateLimitBuilder).
pub(super) struct Functions<B> {
    pub(super) address: Of<Vec<u8>>,
    pub(super) key: Option<Of<Option<Vec<u8>>>>,
    pub(super) path_parameter: Option<Parameter>,
    /// The other end of the socket, where the configuration decides.
    pub(super) peer: Option<Of<Option<IpAddr>>>,
    /// The route that the router has matched.
    pub(super) route: Option<Of<Option<String>>>,
    /// The whole path, where the configuration decides.
    pub(super) path: Option<Of<Option<String>>>,
    /// Further attributes that the program provides, where the configuration decides.
    pub(super) attributes: Option<Of<Vec<(String, String)>>>,
    pub(super) policies: Option<Of<Option<Vec<String>>>>,
    pub(super) cost: Option<Of<u64>>,
    pub(super) count: Option<Counts>,
    pub(super) spent: Option<Spent>,
    pub(super) skip: Option<Of<bool>>,
    pub(super) on_denied: Option<Respond<B>>,
    pub(super) on_outage: Option<Overrule>,
}

/// The guard of a layer, and its functions.
pub(super) struct Limit<B> {
    pub(super) guard: Guard,
    pub(super) functions: Functions<B>,
}

impl<B> Limit<B> {
    /// The guard's check of a request that proceeds, none when the request is not limited; or the response.
    pub(super) async fn decide(
        &self,
        request: &Parts,
        limits: &RequestLimits,
    ) -> Result<Option<GuardCheck>, Response<ResponseBody<B>>> {
        let of = &self.functions;
        let route = of.route.as_ref().and_then(|route| route(request)).filter(|route| !route.is_empty());
        let route = route.as_deref().map(route_pattern);
        // On a route an `OPTIONS` request runs the handler.
        let requested = if route.is_none() { requested_method(request) } else { None };
        if !self.guard.applies_to(request.method.as_str(), requested)
            || of.skip.as_ref().is_some_and(|skip| skip(request))
        {
            return Ok(None);
        }
        let mut check =
            self.start(request, route.as_deref(), limits).map_err(|error| failure(error, request))?;
        check.run().await;
        let mut error = None;
        if let Some(outage) = check.outage() {
            error = outage.error.cloned();
            match of.on_outage.as_ref().map(|on_outage| on_outage(&outage, request)) {
                None | Some(OnOutage::ByPolicy) => {}
                Some(OnOutage::Admit) => check.overrule(true),
                Some(OnOutage::Deny) => check.overrule(false),
            }
        }
        let problem = match check.conclude() {
            Verdict::Admit => return Ok(Some(check)),
            Verdict::Fail(error) => return Err(failure(error, request)),
            Verdict::Deny(problem) => problem,
        };
        check.run().await;
        let mut response = match &of.on_denied {
            None => denial(&problem, request),
            Some(on_denied) => {
                let denial = Denial { outcomes: &check.outcomes(), problem: &problem };
                on_denied(&denial, request).map(ResponseBody::own)
            }
        };
        allow_origin(response.headers_mut(), &self.guard, request);
        if let Some(error) = error {
            response.extensions_mut().insert(error);
        }
        Err(response)
    }

    /// Ends the check of a request that has a response.
    pub(super) async fn finish<T, E>(
        &self,
        mut check: GuardCheck,
        answered: Result<Response<T>, E>,
    ) -> Result<Response<T>, E> {
        let (counts, answered) = self.counts(answered);
        check.finish(counts);
        check.run().await;
        answered
    }

    /// As [`finish`](Self::finish), for a check that is held until the body of the response is done.
    pub(super) async fn finish_held<T, E>(
        &self,
        hold: &RequestHold,
        answered: Result<Response<T>, E>,
    ) -> Result<Response<T>, E> {
        let (counts, answered) = self.counts(answered);
        let Ok(response) = answered else {
            hold.finish(counts, None).await;
            return answered;
        };
        let (parts, body) = response.into_parts();
        hold.finish(counts, Some(parts.clone())).await;
        Ok(Response::from_parts(parts, body))
    }

    /// Whether a response counts. A service that fails counts like one that answers 500.
    fn counts<T, E>(&self, answered: Result<Response<T>, E>) -> (bool, Result<Response<T>, E>) {
        match (&self.functions.count, answered) {
            (None, answered) => (true, answered),
            (Some(count), Ok(response)) => {
                let (parts, body) = response.into_parts();
                (count(&parts), Ok(Response::from_parts(parts, body)))
            }
            (Some(count), Err(error)) => {
                let (mut parts, ()) = Response::new(()).into_parts();
                parts.status = StatusCode::INTERNAL_SERVER_ERROR;
                (count(&parts), Err(error))
            }
        }
    }

    fn start(
        &self,
        request: &Parts,
        route: Option<&str>,
        limits: &RequestLimits,
    ) -> Result<GuardCheck, crate::Error> {
        let of = &self.functions;
        if self.guard.is_by_configuration() {
            let given = of.attributes.as_ref().map(|attributes| attributes(request)).unwrap_or_default();
            let path = of.path.as_ref().and_then(|path| path(request));
            let mut attributes = attributes_of(request, path.as_deref(), route, &given);
            if let Some(peer) = of.peer.as_ref().and_then(|peer| peer(request)) {
                attributes = attributes.peer(peer);
            }
            return self.guard.start(limits, &RequestFacts::new().attributes(&attributes));
        }
        let key = self.key_of(request);
        let policies = of.policies.as_ref().and_then(|policies| policies(request));
        let policies: Option<Vec<&str>> =
            policies.as_ref().map(|policies| policies.iter().map(String::as_str).collect());
        let mut facts = RequestFacts::new();
        if let Some(key) = &key {
            facts = facts.key(key);
        }
        if let Some(cost) = &of.cost {
            facts = facts.cost(cost(request));
        }
        if let Some(policies) = &policies {
            facts = facts.policies(policies);
        }
        if let Some(route) = route {
            facts = facts.route(route);
        }
        self.guard.start(limits, &facts)
    }

    fn key_of(&self, request: &Parts) -> Option<Vec<u8>> {
        let of = &self.functions;
        let parts = self.guard.key_parts();
        let key = match &of.key {
            Some(key) => key(request),
            None if parts.is_empty() => return Some((of.address)(request)),
            None => {
                let values: Vec<_> = parts.iter().map(|part| self.value_of(part, request)).collect();
                self.guard.join_key(&values)
            }
        };
        // An empty key identifies nothing.
        key.filter(|key| !key.is_empty())
            .or_else(|| (self.guard.missing_key() == MissingKey::Address).then(|| (of.address)(request)))
    }

    fn value_of(&self, part: &KeyPart, request: &Parts) -> Option<Vec<u8>> {
        match part {
            KeyPart::Address => Some((self.functions.address)(request)),
            KeyPart::User => Some(request.extensions.get::<User>()?.0.clone().into()),
            KeyPart::Header(name) => header_value(request, name),
            KeyPart::Cookie(name) => cookie_value(request, name),
            KeyPart::Path(name) => self.functions.path_parameter.as_ref()?(request, name).map(Into::into),
        }
    }
}

/// The attributes by which the configuration decides.
fn attributes_of<'a>(
    request: &'a Parts,
    path: Option<&'a str>,
    route: Option<&'a str>,
    given: &'a [(String, String)],
) -> RequestAttributes<'a> {
    let path = path.unwrap_or_else(|| request.uri.path());
    let mut attributes = RequestAttributes::new().method(request.method.as_str()).path(path);
    for (name, value) in &request.headers {
        attributes = attributes.header(name.as_str(), value.as_bytes());
    }
    if let Some(User(user)) = request.extensions.get::<User>().filter(|User(user)| !user.is_empty()) {
        attributes = attributes.attribute("user", user);
    }
    if let Some(route) = route {
        attributes = attributes.attribute("route", route);
    }
    for (name, value) in given {
        attributes = attributes.attribute(name, value);
    }
    attributes
}

/// A route as rules have it: `/users/:id` and `/files/*path` of axum 0.7 are `/users/{id}` and `/files/{*path}`.
fn route_pattern(route: &str) -> Cow<'_, str> {
    if !route.contains("/:") && !route.contains("/*") {
        return Cow::Borrowed(route);
    }
    let segments = route.split('/').map(|segment| match segment.as_bytes() {
        [b':', _, ..] => Cow::Owned(format!("{{{}}}", &segment[1..])),
        [b'*', _, ..] => Cow::Owned(format!("{{{segment}}}")),
        _ => Cow::Borrowed(segment),
    });
    Cow::Owned(segments.collect::<Vec<_>>().join("/"))
}

/// The method that a preflight asks about.
fn requested_method(request: &Parts) -> Option<&str> {
    if request.method != Method::OPTIONS || !request.headers.contains_key(ORIGIN) {
        return None;
    }
    request.headers.get(ACCESS_CONTROL_REQUEST_METHOD)?.to_str().ok()
}

#[cfg(test)]
mod tests {
    use super::route_pattern;

    #[test]
    fn parameters_of_old_routers_are_written_as_those_of_new_ones() {
        for (route, expected) in [
            ("/users/:id", "/users/{id}"),
            ("/:tenant/files/*path", "/{tenant}/files/{*path}"),
            ("/users/{id}/{*rest}", "/users/{id}/{*rest}"),
            ("/things:batch/*/:", "/things:batch/*/:"),
            ("", ""),
        ] {
            assert_eq!(route_pattern(route), expected);
        }
    }
}
