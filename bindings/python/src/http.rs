//! HTTP: the address of a client, the header fields of a response, and the response to a denied request.

use std::borrow::Cow;
use std::net::IpAddr;
use std::time::{SystemTime, UNIX_EPOCH};

use polylimit::http::headers::{self, HeaderSettings, Problem};
use polylimit::http::{ClientAddress, ClientAddressRules, ForwardingHeader};
use polylimit::{Decision, Policy};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;

use crate::convert::{Utf8Text, read_cost, read_integer, read_items, wrong_type};
use crate::decision::PyDecision;
use crate::error::{call_core, invalid_argument};
use crate::policy::PyPolicy;
use crate::value::immutable;

/// Finds the client of a request: which proxies are trusted to name it, and how much of an address counts as one client.
///
/// Parameters
/// ----------
/// trusted
///     The networks of the proxies: addresses, networks such as ``"10.0.0.0/8"``, and the names ``"loopback"``,
///     ``"link-local"`` and ``"private"``. By default no proxy is trusted, and the peer of the socket is the client.
/// header
///     The one header that the proxies write: ``"x-forwarded-for"`` or ``"forwarded"``, or one of a single address,
///     ``"cf-connecting-ip"``, ``"true-client-ip"``, ``"x-real-ip"`` or ``"fly-client-ip"``, where nothing reaches the service
///     around the proxy.
/// ipv4_prefix, ipv6_prefix
///     How many leading bits of an address count as one client; the defaults are 32 and 64.
///
/// Raises
/// ------
/// InvalidArgumentError
///     When a network cannot be read, a prefix is out of range, or networks are trusted without a header.
#[pyclass(name = "ClientAddressRules", module = "polylimit", frozen, weakref)]
pub(crate) struct PyClientAddressRules(ClientAddressRules);

#[pymethods]
impl PyClientAddressRules {
    #[new]
    #[pyo3(signature = (trusted = None, header = None, *, ipv4_prefix = None, ipv6_prefix = None), text_signature = "(trusted=(), header=None, *, ipv4_prefix=None, ipv6_prefix=None)")]
    fn new(
        py: Python<'_>,
        trusted: Option<&Bound<'_, PyAny>>,
        header: Option<&Bound<'_, PyAny>>,
        ipv4_prefix: Option<&Bound<'_, PyAny>>,
        ipv6_prefix: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let networks = trusted.map(|trusted| {
            read_items("trusted", trusted, "a list of networks as str", |network| {
                Utf8Text::read(&network, "an item of trusted")
            })
        });
        let trusted = networks.transpose()?.unwrap_or_default();
        let header = header.map(|header| Utf8Text::read(header, "header")).transpose()?;
        let ipv4_prefix = ipv4_prefix.map(|bits| read_integer("ipv4_prefix", bits)).transpose()?;
        let ipv6_prefix = ipv6_prefix.map(|bits| read_integer("ipv6_prefix", bits)).transpose()?;
        let build = || {
            let mut rules =
                trusted.iter().fold(ClientAddressRules::builder(), |rules, network| rules.trust(network));
            if let Some(header) = &header {
                rules = rules.header(header.parse::<ForwardingHeader>()?);
            }
            if let Some(bits) = ipv4_prefix {
                rules = rules.ipv4_prefix(bits);
            }
            if let Some(bits) = ipv6_prefix {
                rules = rules.ipv6_prefix(bits);
            }
            rules.build()
        };
        call_core(py, build).map(Self)
    }

    /// The header whose lines ``resolve`` needs; ``None`` if no proxy is trusted.
    #[getter]
    fn header(&self) -> Option<&'static str> {
        self.0.header().map(ForwardingHeader::name)
    }

    fn __repr__(&self) -> String {
        match self.header() {
            Some(header) => format!("ClientAddressRules(header='{header}')"),
            None => "ClientAddressRules()".to_owned(),
        }
    }

    /// The client of a request that came from ``peer`` with these lines of the header, in the order they were received.
    ///
    /// ``peer`` is the address of the peer of the socket; for a Unix socket, ``"127.0.0.1"``.
    #[pyo3(signature = (peer, lines = None), text_signature = "($self, peer, lines=())")]
    fn resolve(
        &self,
        py: Python<'_>,
        peer: &Bound<'_, PyAny>,
        lines: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<PyClientAddress> {
        let (peer, lines) = (Utf8Text::read(peer, "peer")?, read_lines(lines)?);
        // A link-local address may end in a zone such as `%eth0`, which names an interface of this host.
        let peer: IpAddr = peer.split('%').next().unwrap_or(&peer).parse().map_err(|_| {
            invalid_argument(py, "peer is no IP address: allowed are 192.0.2.1 and 2001:db8::1")
        })?;
        call_core(py, || Ok(self.0.resolve(peer, lines.iter().map(|line| &**line)))).map(PyClientAddress)
    }

    /// The ``key`` of the client that ``resolve`` returns, for a peer that may be any text.
    ///
    /// A port, brackets and a zone are ignored. Text that is no address counts as ``"unknown"``, and then no line is read.
    #[pyo3(signature = (peer, lines = None), text_signature = "($self, peer, lines=())")]
    fn key(
        &self,
        py: Python<'_>,
        peer: &Bound<'_, PyAny>,
        lines: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<String> {
        let (peer, lines) = (Utf8Text::read(peer, "peer")?, read_lines(lines)?);
        call_core(py, || Ok(self.0.key_of(&peer, lines.iter().map(|line| &**line))))
    }
}

/// Reads the lines of a header.
fn read_lines(lines: Option<&Bound<'_, PyAny>>) -> PyResult<Vec<PyBackedBytes>> {
    let read = |line: Bound<'_, PyAny>| {
        line.extract().map_err(|_| wrong_type("an item of lines", &line, "allowed is bytes"))
    };
    lines.map_or_else(|| Ok(Vec::new()), |lines| read_items("lines", lines, "a list of bytes", read))
}

impl PyClientAddressRules {
    pub(crate) fn rules(&self) -> &ClientAddressRules {
        &self.0
    }
}

/// The address of a client, and the key that it counts by.
#[pyclass(name = "ClientAddress", module = "polylimit", frozen, eq, hash, weakref)]
#[derive(PartialEq, Eq, Hash)]
pub(crate) struct PyClientAddress(ClientAddress);

#[pymethods]
impl PyClientAddress {
    /// The exact address.
    #[getter]
    fn address(&self) -> String {
        self.0.address().to_string()
    }

    /// The key to limit by: the same text for all addresses that count together, such as ``2001:db8:1:2::/64``.
    #[getter]
    fn key(&self) -> String {
        self.0.key()
    }

    fn __repr__(&self) -> String {
        format!("ClientAddress(key='{}')", self.0.key())
    }
}

/// The fields of a response, pairs of a name and a value.
pub(crate) type Fields = Vec<(Cow<'static, str>, String)>;

/// A list of pairs of a policy and its decision.
pub(crate) type PyOutcomes = Vec<(PyPolicy, PyDecision)>;

pub(crate) fn outcomes_to_python(outcomes: Vec<(Policy, Decision)>) -> PyOutcomes {
    outcomes.into_iter().map(|(policy, decision)| (PyPolicy(policy), PyDecision(decision))).collect()
}

type Outcomes<'py> = Vec<(Bound<'py, PyPolicy>, Bound<'py, PyDecision>)>;

fn read_outcomes<'py>(outcomes: &Bound<'py, PyAny>) -> PyResult<Outcomes<'py>> {
    read_items("outcomes", outcomes, "a list of pairs of a Policy and its Decision", |pair| {
        let allowed = "allowed is a pair of a Policy and its Decision";
        pair.extract().map_err(|_| wrong_type("an item of outcomes", &pair, allowed))
    })
}

fn with_outcomes<R>(outcomes: &Outcomes<'_>, use_them: impl FnOnce(&[headers::Outcome<'_>]) -> R) -> R {
    let outcomes: Vec<_> =
        outcomes.iter().map(|(policy, decision)| (&policy.get().0, &decision.get().0)).collect();
    use_them(&outcomes)
}

/// The fields of the response to a request, as pairs of a lower-case name and a value.
///
/// Parameters
/// ----------
/// outcomes
///     Pairs of a policy and its decision.
/// headers
///     Words in any order, separated by spaces: ``ietf`` for ``ratelimit`` and ``ratelimit-policy``, ``legacy`` for
///     ``x-ratelimit-*``, ``both`` or ``none``; whether ``x-ratelimit-reset`` is in ``seconds`` from now or since the ``epoch``;
///     and other names of fields, such as ``ratelimit=x-quota``. A denial has ``retry-after`` in any case, unless the request can
///     never be admitted.
#[pyfunction]
#[pyo3(signature = (outcomes, *, headers = None), text_signature = "(outcomes, *, headers='ietf seconds')")]
pub(crate) fn header_fields(
    py: Python<'_>,
    outcomes: &Bound<'_, PyAny>,
    headers: Option<&Bound<'_, PyAny>>,
) -> PyResult<Fields> {
    let outcomes = read_outcomes(outcomes)?;
    let text = headers.map(|headers| Utf8Text::read(headers, "headers")).transpose()?;
    let settings: HeaderSettings = call_core(py, || text.as_deref().unwrap_or_default().parse())?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now_us = u64::try_from(now.as_micros()).unwrap_or(u64::MAX);
    let fields = call_core(py, || {
        Ok(with_outcomes(&outcomes, |outcomes| headers::fields(outcomes, &settings, now_us)))
    })?;
    Ok(fields.into_iter().map(|field| (field.name, field.value)).collect())
}

/// The response to a request that at least one of these policies denied; ``None`` when all admit it.
///
/// Parameters
/// ----------
/// outcomes
///     Pairs of a policy and its decision.
/// cost
///     The units that the request asked for.
#[pyfunction]
#[pyo3(signature = (outcomes, *, cost = None))]
pub(crate) fn problem(
    py: Python<'_>,
    outcomes: &Bound<'_, PyAny>,
    cost: Option<&Bound<'_, PyAny>>,
) -> PyResult<Option<PyProblem>> {
    let outcomes = read_outcomes(outcomes)?;
    let cost = cost.map_or(Ok(1), read_cost)?;
    call_core(py, || Ok(with_outcomes(&outcomes, |outcomes| headers::problem(outcomes, cost)).map(PyProblem)))
}

/// The response to a denied request: a problem document (RFC 9457), or its text.
#[pyclass(name = "Problem", module = "polylimit", frozen, eq, weakref)]
#[derive(PartialEq)]
pub(crate) struct PyProblem(Problem);

impl PyProblem {
    pub(crate) fn from_core(problem: Problem) -> Self {
        Self(problem)
    }
}

#[pymethods]
impl PyProblem {
    /// The status of the response: 429 or the one that a limit was given, 503 when an outage is the cause, and 400 for a request
    /// without a key.
    #[getter]
    fn status(&self) -> u16 {
        self.0.status()
    }

    /// The title of the problem type.
    #[getter]
    fn title(&self) -> &'static str {
        self.0.title()
    }

    /// One sentence for people: why the request was denied and what to do.
    #[getter]
    fn detail(&self) -> &str {
        self.0.detail()
    }

    /// The quotas that were exceeded, by their names in ``ratelimit-policy``.
    #[getter]
    fn violated(&self) -> Vec<String> {
        self.0.violated().to_vec()
    }

    /// The problem document.
    #[getter]
    fn json(&self) -> String {
        self.0.json()
    }

    /// The detail and a line feed, for clients that prefer text.
    #[getter]
    fn text(&self) -> String {
        self.0.text()
    }

    /// The content type and the body that a client with this ``Accept`` field prefers; without one, the problem document.
    #[pyo3(signature = (accept = None))]
    fn body(&self, accept: Option<&Bound<'_, PyAny>>) -> PyResult<(&'static str, String)> {
        let accept = accept.map(|accept| Utf8Text::read(accept, "accept")).transpose()?;
        Ok(self.0.body(accept.as_deref()))
    }

    /// The status, the header fields and the body of the response to a client with this ``Accept`` field. With ``"application/grpc"``
    /// the fields have the status of a call of gRPC, too.
    #[pyo3(signature = (accept = None))]
    fn response(&self, accept: Option<&Bound<'_, PyAny>>) -> PyResult<(u16, Fields, String)> {
        let accept = accept.map(|accept| Utf8Text::read(accept, "accept")).transpose()?;
        let response = self.0.response(accept.as_deref());
        let fields = response.fields.into_iter().map(|field| (field.name, field.value));
        Ok((response.status, fields.collect(), response.body))
    }

    fn __repr__(&self) -> String {
        format!("Problem(status={}, detail='{}')", self.0.status(), self.0.detail())
    }
}

immutable!(PyClientAddressRules, PyClientAddress, PyProblem);
