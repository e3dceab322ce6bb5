//! The address that counts as the client of a request.
//!
//! Any client can write the header in which proxies pass on a client's address. Each proxy appends the address that it
//! was called from, so a header is as trustworthy as the hops that wrote it. The walk starts at the socket peer and goes
//! through the header from the right, as long as the current address is a trusted proxy. The first address that is not
//! trusted is the client. Entries left of it were written by the client and are never read. A header of one address is a
//! walk of one step.

pub(crate) mod address;
mod header;

use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr};

use smallvec::SmallVec;

use address::{Network, normalise, parse_peer};
pub use header::ForwardingHeader;
use polylimit_rules::error::Error;

/// Which proxies are trusted to report for whom they forward a request, and how much of an address is counted as one
/// client.
///
/// The default trusts no proxy: the peer is the client, an IPv4 address is counted by itself and an IPv6 address by its
/// /64.
///
/// ```
/// use polylimit::http::{ClientAddressRules, ForwardingHeader};
///
/// let rules = ClientAddressRules::builder()
///     .trust("10.0.0.0/8")
///     .trust("loopback")
///     .header(ForwardingHeader::XForwardedFor)
///     .build()?;
///
/// // The client made up the first entry; the outer proxy wrote the second, and the peer the third.
/// let lines = [&b"198.51.100.1, 203.0.113.7, 10.0.0.2"[..]];
/// assert_eq!(rules.resolve([10, 0, 0, 1].into(), lines).key(), "203.0.113.7");
/// # Ok::<(), polylimit::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientAddressRules {
    trusted: Box<[Network]>,
    header: Option<ForwardingHeader>,
    ipv4_prefix: u8,
    ipv6_prefix: u8,
}

impl ClientAddressRules {
    /// How many entries of the header are read, from the right.
    pub const MAX_ENTRIES: usize = 32;

    /// How many bytes of the header are read, from the right, with all its lines joined by `", "`.
    pub const MAX_HEADER_BYTES: usize = 4096;

    /// How many networks may be trusted. Each entry is compared with each network.
    pub const MAX_TRUSTED: usize = 1024;

    /// The key of a client whose peer is text that is no address; see [`key_of`](Self::key_of).
    pub const UNKNOWN: &str = "unknown";

    /// Starts rules that trust no proxy yet.
    pub fn builder() -> ClientAddressRulesBuilder {
        ClientAddressRulesBuilder { trusted: Ok(Vec::new()), rules: ClientAddressRules::default() }
    }

    /// The header whose lines [`resolve`](Self::resolve) needs; `None` if no proxy is trusted.
    pub fn header(&self) -> Option<ForwardingHeader> {
        self.header.filter(|_| !self.trusted.is_empty())
    }

    /// The client of a request that came from `peer` with these lines of the header [`header`](Self::header).
    ///
    /// `peer` is the other end of the socket; for a Unix socket, the loopback address. `lines` are the values
    /// of all lines of that header in the order they were received, and are read only if the peer is trusted.
    ///
    /// The walk ends at the first address that is not trusted, which is the client. It ends earlier, at the last trusted
    /// address that it reached, where the header ends, at [`MAX_ENTRIES`](Self::MAX_ENTRIES) or
    /// [`MAX_HEADER_BYTES`](Self::MAX_HEADER_BYTES), and at an entry that names no address: an empty one, `unknown`, an
    /// obfuscated identifier (RFC 7239, section 6) or a malformed one. The hop that wrote such an entry does not report
    /// its caller, so no trusted proxy confirms the entries left of it.
    pub fn resolve<'a>(
        &self,
        peer: IpAddr,
        lines: impl IntoIterator<Item = &'a [u8], IntoIter: DoubleEndedIterator>,
    ) -> ClientAddress {
        let mut address = normalise(peer);
        if let Some(header) = self.header
            && self.trusts(address)
        {
            for entry in header.entries_from_the_right(lines) {
                let Some(written) = header.address_of(entry) else { break };
                address = normalise(written);
                if !self.trusts(address) {
                    break;
                }
            }
        }
        let prefix = if address.is_ipv4() { self.ipv4_prefix } else { self.ipv6_prefix };
        ClientAddress { address, counted: Network::around(address, prefix) }
    }

    /// The key of a request whose peer is text from a web server: the [`key`](ClientAddress::key) of the client that
    /// [`resolve`](Self::resolve) finds. The peer may have a port, brackets or a zone, which are ignored.
    ///
    /// Some servers replace the peer by the text of a header. All text that is no address has one key,
    /// [`UNKNOWN`](Self::UNKNOWN), so that a client gets no new budget for each text that it makes up. Such a peer is not
    /// trusted, so no line is read.
    ///
    /// ```
    /// use polylimit::http::ClientAddressRules;
    ///
    /// let rules = ClientAddressRules::default();
    /// assert_eq!(rules.key_of("192.0.2.1:80", []), "192.0.2.1");
    /// assert_eq!(rules.key_of("made up", []), "unknown");
    /// ```
    pub fn key_of<'a>(
        &self,
        peer: &str,
        lines: impl IntoIterator<Item = &'a [u8], IntoIter: DoubleEndedIterator>,
    ) -> String {
        parse_peer(peer).map_or_else(|| Self::UNKNOWN.to_owned(), |peer| self.resolve(peer, lines).key())
    }

    fn trusts(&self, address: IpAddr) -> bool {
        self.trusted.iter().any(|network| network.contains(address))
    }
}

impl Default for ClientAddressRules {
    fn default() -> Self {
        Self { trusted: Box::default(), header: None, ipv4_prefix: 32, ipv6_prefix: 64 }
    }
}

/// The settings of [`ClientAddressRules`] before they are checked; made by [`ClientAddressRules::builder`].
#[derive(Clone, Debug)]
#[must_use = "a builder makes rules only when `build` is called"]
pub struct ClientAddressRulesBuilder {
    // `build` reports the first text that is no network, like every other mistake.
    trusted: Result<Vec<Network>, Error>,
    /// The other settings.
    rules: ClientAddressRules,
}

impl ClientAddressRulesBuilder {
    /// Trusts the proxies of a network to report the address that called them.
    ///
    /// A network is an address (`192.0.2.1`), an address and a prefix length with no bit set after the prefix
    /// (`10.0.0.0/8`, `2001:db8::/32`), or a name: `loopback` (127.0.0.0/8, `::1`), `link-local`
    /// (169.254.0.0/16, `fe80::/10`) or `private` (10.0.0.0/8, 172.16.0.0/12, 192.168.0.0/16 of RFC 1918,
    /// `fc00::/7` of RFC 4193). An IPv4-mapped or NAT64 network stands for the IPv4 network in it.
    /// `0.0.0.0/0` and `::/0` are refused: if every address were trusted, a client could choose its own address.
    pub fn trust(mut self, network: &str) -> Self {
        if let Ok(trusted) = &mut self.trusted {
            match Network::parse_trusted(network) {
                Ok(mut networks) => trusted.append(&mut networks),
                Err(error) => self.trusted = Err(error),
            }
        }
        self
    }

    /// The one header that the trusted proxies write. It must be the one that they do write: a proxy passes on any other
    /// header as the client sent it. There is no default.
    pub fn header(mut self, header: ForwardingHeader) -> Self {
        self.rules.header = Some(header);
        self
    }

    /// How many leading bits of an IPv4 address are counted as one client, 0 to 32; 32 by default.
    pub fn ipv4_prefix(mut self, bits: u8) -> Self {
        self.rules.ipv4_prefix = bits;
        self
    }

    /// How many leading bits of an IPv6 address are counted as one client, 0 to 128; 64 by default.
    ///
    /// A subscriber is given at least a /64, and often a /56 or a /48 (RFC 6177), and can use any address in it.
    pub fn ipv6_prefix(mut self, bits: u8) -> Self {
        self.rules.ipv6_prefix = bits;
        self
    }

    /// Checks every setting and makes the rules.
    ///
    /// # Errors
    /// `InvalidArgument` with the value and what is allowed: a text that is no
    /// network, more than [`MAX_TRUSTED`](ClientAddressRules::MAX_TRUSTED) networks, networks without a header, a prefix
    /// out of range.
    pub fn build(self) -> Result<ClientAddressRules, Error> {
        let (trusted, rules) = (self.trusted?, self.rules);
        if trusted.len() > ClientAddressRules::MAX_TRUSTED {
            let read = trusted.len();
            return Err(Error::invalid_argument(format!(
                "{read} trusted networks; allowed are at most 1024"
            )));
        }
        if rules.header.is_none() && !trusted.is_empty() {
            return Err(Error::invalid_argument(
                "trusted networks without a header; choose the one that the proxies write, such as \
                 \"x-forwarded-for\" or \"forwarded\"",
            ));
        }
        check_prefix("ipv4_prefix", rules.ipv4_prefix, 32)?;
        check_prefix("ipv6_prefix", rules.ipv6_prefix, 128)?;
        Ok(ClientAddressRules { trusted: trusted.into(), ..rules })
    }
}

fn check_prefix(name: &str, bits: u8, most: u8) -> Result<(), Error> {
    if bits > most {
        return Err(Error::invalid_argument(format!("{name} is {bits}; allowed are 0 to {most} bits")));
    }
    Ok(())
}

/// The address of a client, and the network it is counted with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ClientAddress {
    address: IpAddr,
    counted: Network,
}

impl ClientAddress {
    /// The exact address. IPv4-mapped IPv6 addresses (`::ffff:0:0/96`, RFC 4291) and addresses of the NAT64
    /// well-known prefix (`64:ff9b::/96`, RFC 6052) are given as the IPv4 address in their last 32 bits.
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// The key to limit by: one text for all addresses that are counted together, such as `203.0.113.7` or
    /// `2001:db8:1:2::/64`. IPv6 is written as in RFC 5952; a whole address has no prefix length.
    pub fn key(&self) -> String {
        match self.counted.whole_ipv4() {
            None => self.counted.to_string(),
            Some(address) => {
                let mut text = String::with_capacity("255.255.255.255".len());
                write_dotted(address, |byte| text.push(char::from(byte)));
                text
            }
        }
    }

    /// The same key as bytes, which needs no allocation.
    pub(crate) fn key_bytes(&self) -> SmallVec<[u8; 64]> {
        let mut bytes = SmallVec::new();
        match self.counted.whole_ipv4() {
            // Writing to memory does not fail.
            None => drop(write!(bytes, "{}", self.counted)),
            Some(address) => write_dotted(address, |byte| bytes.push(byte)),
        }
        bytes
    }
}

/// Writes an address; several times as fast as through `Display`.
fn write_dotted(address: Ipv4Addr, mut push: impl FnMut(u8)) {
    for (at, octet) in address.octets().into_iter().enumerate() {
        if at > 0 {
            push(b'.');
        }
        if octet >= 100 {
            push(b'0' + octet / 100);
        }
        if octet >= 10 {
            push(b'0' + octet / 10 % 10);
        }
        push(b'0' + octet % 10);
    }
}

#[cfg(test)]
mod tests;
