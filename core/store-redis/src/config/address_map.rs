//! Addresses that a cluster or sentinels announce, and where clients reach them: behind NAT, forwarded ports and proxies, servers
//! know addresses of their own network only.

use crate::config::target::Endpoint;
use crate::config::url::host_and_port;

/// The maximum number of pairs in a map.
const MAX_PAIRS: usize = 1_024;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct AddressMap(Box<[Pair]>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Pair {
    announced: Place,
    reached: Place,
}

/// A host and a port, or every port of a host.
type Place = (Box<str>, Option<u16>);

impl AddressMap {
    /// Parses pairs `announced=reached` with commas between them; `None` when the text has another form or has a duplicate announced
    /// address.
    pub(crate) fn read(text: &str) -> Option<Self> {
        let read = |pair: &str| {
            let (announced, reached) = pair.split_once('=')?;
            Some(Pair { announced: place(announced)?, reached: place(reached)? })
        };
        let pairs: Box<[Pair]> = text.split(',').map(read).collect::<Option<_>>()?;
        let is_new = |at: usize| pairs[..at].iter().all(|pair| pair.announced != pairs[at].announced);
        (pairs.len() <= MAX_PAIRS && (0..pairs.len()).all(is_new)).then_some(Self(pairs))
    }

    /// The reachable address of an announced one. A pair with a port takes precedence over one for every port of the host.
    pub(crate) fn reached(&self, announced: &Endpoint) -> Endpoint {
        let find = |port| {
            let is_it = |pair: &&Pair| *pair.announced.0 == *announced.host && pair.announced.1 == port;
            self.0.iter().find(is_it)
        };
        match find(Some(announced.port)).or_else(|| find(None)) {
            Some(Pair { reached: (host, port), .. }) => {
                Endpoint { host: host.clone(), port: port.unwrap_or(announced.port) }
            }
            None => announced.clone(),
        }
    }
}

fn place(text: &str) -> Option<Place> {
    let (host, port) = host_and_port(text).ok()?;
    Some((host.to_ascii_lowercase().into(), port))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(host: &str, port: u16) -> Endpoint {
        Endpoint { host: host.into(), port }
    }

    #[test]
    fn pair_with_a_port_precedes_one_for_the_host() {
        let map = "172.18.0.2:6379=127.0.0.1:7001,172.18.0.2=gate.example,[fd00::1]=[::1]:7002,Inner=outer";
        let map = AddressMap::read(map).unwrap();
        for (announced, reached) in [
            (endpoint("172.18.0.2", 6379), endpoint("127.0.0.1", 7001)),
            (endpoint("172.18.0.2", 6380), endpoint("gate.example", 6380)),
            (endpoint("fd00::1", 1), endpoint("::1", 7002)),
            (endpoint("inner", 5), endpoint("outer", 5)),
            (endpoint("other", 6379), endpoint("other", 6379)),
        ] {
            assert_eq!(map.reached(&announced), reached);
        }
    }

    #[test]
    fn text_of_another_form_is_refused() {
        for text in
            ["", "a", "a=", "=b", "a=b,", "a=b,a=c", "a:1=b,a:1=b", "a:0=b", "a=b:x", "a b=c", "a=b=c"]
        {
            assert_eq!(AddressMap::read(text), None, "{text:?}");
        }
    }
}
