//! A table of networks: an address finds all that contain it, and the lookup does not slow down with their number.

use std::net::IpAddr;

use crate::Map;
use crate::client_address::address::Network;

/// Values by networks. A lookup costs one probe for each prefix length that occurs.
#[derive(Clone, Debug)]
pub(crate) struct NetworkTable<T> {
    networks: Map<Network, T>,
    /// The prefix lengths that occur, from the longest to the shortest.
    ipv4_prefixes: Vec<u8>,
    ipv6_prefixes: Vec<u8>,
}

impl<T> Default for NetworkTable<T> {
    fn default() -> Self {
        Self { networks: Map::default(), ipv4_prefixes: Vec::new(), ipv6_prefixes: Vec::new() }
    }
}

impl<T> NetworkTable<T> {
    pub(crate) fn is_empty(&self) -> bool {
        self.networks.is_empty()
    }

    /// The value of exactly this network.
    pub(crate) fn entry(&mut self, network: Network) -> &mut T
    where
        T: Default,
    {
        let prefixes = if network.is_ipv4() { &mut self.ipv4_prefixes } else { &mut self.ipv6_prefixes };
        let prefix = network.prefix();
        if let Err(at) = prefixes.binary_search_by(|other| prefix.cmp(other)) {
            prefixes.insert(at, prefix);
        }
        self.networks.entry(network).or_default()
    }

    /// The networks that contain an address, from the longest prefix to the shortest.
    pub(crate) fn containing(&self, address: IpAddr) -> impl Iterator<Item = (u8, &T)> {
        let prefixes = if address.is_ipv4() { &self.ipv4_prefixes } else { &self.ipv6_prefixes };
        prefixes
            .iter()
            .filter_map(move |&prefix| Some((prefix, self.networks.get(&Network::around(address, prefix))?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_finds_its_networks_from_the_longest_prefix_to_the_shortest() {
        let mut table = NetworkTable::<&str>::default();
        for network in [
            "10.0.0.0/8",
            "10.1.0.0/16",
            "10.1.2.3",
            "0.0.0.0/0",
            "2001:db8::/32",
            "::/0",
            "::ffff:10.1.2.0/120",
        ] {
            *table.entry(Network::parse(network).unwrap()) = network;
        }
        for (address, expected) in [
            ("10.1.2.3", &["10.1.2.3", "::ffff:10.1.2.0/120", "10.1.0.0/16", "10.0.0.0/8", "0.0.0.0/0"][..]),
            ("10.1.3.3", &["10.1.0.0/16", "10.0.0.0/8", "0.0.0.0/0"]),
            ("192.0.2.1", &["0.0.0.0/0"]),
            ("2001:db8::1", &["2001:db8::/32", "::/0"]),
            ("2001:db9::1", &["::/0"]),
        ] {
            let found: Vec<_> =
                table.containing(address.parse().unwrap()).map(|(_, network)| *network).collect();
            assert_eq!(found, expected, "{address}");
        }
    }

    #[test]
    fn table_agrees_with_each_network_for_random_addresses() {
        let mut state = 1_u64;
        let mut random = move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            u32::try_from(state >> 32).unwrap()
        };
        // Few distinct leading bits, so that many networks contain an address.
        let mut address = move || {
            let bits = random() & 0xc003_0003;
            if random() % 2 == 0 {
                IpAddr::from(bits.to_be_bytes())
            } else {
                IpAddr::from((u128::from(bits) << 96).to_be_bytes())
            }
        };
        let mut table = NetworkTable::<u8>::default();
        let mut networks = Vec::new();
        for prefix in (0..=32).cycle().take(400) {
            let network = Network::around(address(), prefix);
            *table.entry(network) = prefix;
            networks.push(network);
        }
        networks.sort_by_key(|network| std::cmp::Reverse(network.prefix()));
        networks.dedup();
        for _ in 0..2_000 {
            let address = address();
            let mut expected: Vec<u8> = networks
                .iter()
                .filter(|network| network.contains(address))
                .map(|network| network.prefix())
                .collect();
            expected.dedup();
            let found: Vec<u8> = table.containing(address).map(|(prefix, _)| prefix).collect();
            assert_eq!(found, expected, "{address}");
        }
    }
}
