//! `ClientAddressRules`: whom to count behind proxies.

use std::net::IpAddr;

use polylimit::{ClientAddress, ClientAddressRules, ForwardingHeader};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;

use crate::error::{guarded, invalid_argument};
use crate::key;

/// Who is trusted to say for whom a request was forwarded, and how much of an address is counted as one client.
///
/// Parameters
/// ----------
/// trusted
///     The networks of the proxies: addresses, networks such as ``"10.0.0.0/8"``, and the names ``"loopback"``,
///     ``"link-local"`` and ``"private"``. Nobody unless told otherwise: then the other end of the socket is the client.
/// header
///     The one header that they write: ``"x-forwarded-for"`` or ``"forwarded"``.
/// ipv4_prefix, ipv6_prefix
///     How many leading bits of an address are counted as one client; 32 and 64 unless told otherwise.
///
/// Raises
/// ------
/// InvalidArgumentError
///     When a network is none, a prefix is out of range, or networks are trusted without a header.
#[pyclass(name = "ClientAddressRules", module = "polylimit", frozen)]
pub(crate) struct PyClientAddressRules(ClientAddressRules);

#[pymethods]
impl PyClientAddressRules {
    #[new]
    #[pyo3(signature = (trusted = Vec::new(), header = None, *, ipv4_prefix = None, ipv6_prefix = None), text_signature = "(trusted=(), header=None, *, ipv4_prefix=None, ipv6_prefix=None)")]
    fn new(
        py: Python<'_>,
        trusted: Vec<String>,
        header: Option<&str>,
        ipv4_prefix: Option<&Bound<'_, PyAny>>,
        ipv6_prefix: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let ipv4_prefix = ipv4_prefix.map(|bits| key::whole("ipv4_prefix", bits)).transpose()?;
        let ipv6_prefix = ipv6_prefix.map(|bits| key::whole("ipv6_prefix", bits)).transpose()?;
        let build = || {
            let mut rules =
                trusted.iter().fold(ClientAddressRules::builder(), |rules, network| rules.trust(network));
            if let Some(header) = header {
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
        guarded(py, build).map(Self)
    }

    /// The header whose lines ``resolve`` needs; ``None`` if nobody is trusted to write one.
    #[getter]
    fn header(&self) -> Option<&'static str> {
        self.0.header().map(ForwardingHeader::name)
    }

    /// The client of a request that came from ``peer`` with these lines of the header, in the order they were received.
    ///
    /// ``peer`` is the other end of the socket; for a Unix socket, ``"127.0.0.1"``.
    #[pyo3(signature = (peer, lines = Vec::new()), text_signature = "($self, peer, lines=())")]
    fn resolve(&self, py: Python<'_>, peer: &str, lines: Vec<PyBackedBytes>) -> PyResult<PyClientAddress> {
        // The zone of a link-local address says on which of our own links it is.
        let peer: IpAddr = peer.split('%').next().unwrap_or(peer).parse().map_err(|_| {
            invalid_argument(py, "peer is no IP address: allowed are 192.0.2.1 and 2001:db8::1")
        })?;
        guarded(py, || Ok(self.0.resolve(peer, lines.iter().map(|line| &**line)))).map(PyClientAddress)
    }

    /// What to limit a request by whatever text stands for its peer: the ``key`` of what ``resolve`` gives.
    ///
    /// A port, brackets and a zone are left out. Text that is no address is counted by ``"unknown"``, whatever it is, and
    /// no line is read then.
    #[pyo3(signature = (peer, lines = Vec::new()), text_signature = "($self, peer, lines=())")]
    fn key(&self, py: Python<'_>, peer: &str, lines: Vec<PyBackedBytes>) -> PyResult<String> {
        guarded(py, || Ok(self.0.key_of(peer, lines.iter().map(|line| &**line))))
    }
}

impl PyClientAddressRules {
    pub(crate) fn rules(&self) -> &ClientAddressRules {
        &self.0
    }
}

/// The address of a client, and what it is counted by.
#[pyclass(name = "ClientAddress", module = "polylimit", frozen, eq, hash)]
#[derive(PartialEq, Eq, Hash)]
pub(crate) struct PyClientAddress(ClientAddress);

#[pymethods]
impl PyClientAddress {
    /// The exact address.
    #[getter]
    fn address(&self) -> String {
        self.0.address().to_string()
    }

    /// What to limit by: one text for all addresses that are counted together, such as ``2001:db8:1:2::/64``.
    #[getter]
    fn key(&self) -> String {
        self.0.key()
    }

    fn __repr__(&self) -> String {
        format!("ClientAddress(key='{}')", self.0.key())
    }
}
