//! The compiled deny and allow lists, and their verdicts on requests and keys.
//!
//! Of the networks that contain a client, only the one with the longest prefix counts; among the remaining items, allowing
//! wins. Expired items are ignored.

use smallvec::SmallVec;

use crate::attributes::{Attributes, Client, Reference};
use crate::client_address::address::Network;
use crate::network_table::NetworkTable;
use crate::value_table::ValueTable;

/// The verdict of the lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListVerdict {
    pub denies: bool,
    /// For a denial, the time from which no list denies; `None`: never.
    pub until_us: Option<u64>,
}

/// Until when an item denies and until when it allows, both exclusive: 0 means not at all, `u64::MAX` always.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Listing {
    deny_until_us: u64,
    allow_until_us: u64,
}

/// The lists of attributes.
#[derive(Clone, Debug, Default)]
pub(crate) struct AttributeLists {
    networks: NetworkTable<Listing>,
    values: ValueTable<Listing>,
}

impl Listing {
    pub(crate) fn add(&mut self, denies: bool, until_us: Option<u64>) {
        let until = if denies { &mut self.deny_until_us } else { &mut self.allow_until_us };
        *until = (*until).max(until_us.unwrap_or(u64::MAX));
    }

    /// Whether it denies at a time; `None` when it neither denies nor allows.
    fn denies(self, at_us: u64) -> Option<bool> {
        if at_us < self.allow_until_us { Some(false) } else { (at_us < self.deny_until_us).then_some(true) }
    }

    /// The verdict of this listing alone.
    pub(crate) fn verdict(self, now_us: u64) -> Option<ListVerdict> {
        let denies = self.denies(now_us)?;
        Some(ListVerdict { denies, until_us: until(denies.then_some(self.deny_until_us)) })
    }
}

fn until(until_us: Option<u64>) -> Option<u64> {
    until_us.filter(|until_us| *until_us != u64::MAX)
}

impl AttributeLists {
    /// The listing of a network.
    pub(crate) fn network(&mut self, network: Network) -> &mut Listing {
        self.networks.entry(network)
    }

    /// The listing of a value of an attribute.
    pub(crate) fn value(&mut self, reference: &Reference, value: &[u8]) -> &mut Listing {
        self.values.entry(reference, value)
    }

    /// The verdict of the items that concern this request.
    pub(crate) fn verdict(&self, request: &Attributes<'_>, now_us: u64) -> Option<ListVerdict> {
        let mut found =
            Found { values: self.values.of(request).copied().collect(), networks: SmallVec::new() };
        if !self.networks.is_empty()
            && let Some(address) = request.client().and_then(Client::address)
        {
            found.networks.extend(self.networks.containing(address).map(|(_, listing)| *listing));
        }
        found.verdict(now_us)
    }
}

/// The listings that concern one request.
struct Found {
    values: SmallVec<[Listing; 4]>,
    /// From the longest prefix to the shortest.
    networks: SmallVec<[Listing; 4]>,
}

impl Found {
    fn verdict(&self, now_us: u64) -> Option<ListVerdict> {
        let denies = self.denies(now_us)?;
        let until_us = if denies { until(Some(self.denied_until_us(now_us))) } else { None };
        Some(ListVerdict { denies, until_us })
    }

    fn denies(&self, at_us: u64) -> Option<bool> {
        let network = self.networks.iter().find_map(|listing| listing.denies(at_us));
        let values = self.values.iter().filter_map(|listing| listing.denies(at_us));
        // Allowing is `false`, which sorts first.
        values.chain(network).min()
    }

    /// The first time at which nothing denies. The verdict can change only when an item expires.
    fn denied_until_us(&self, now_us: u64) -> u64 {
        let mut at_us = now_us;
        while self.denies(at_us) == Some(true) {
            let ends = self.values.iter().chain(&self.networks);
            let ends = ends.flat_map(|listing| [listing.deny_until_us, listing.allow_until_us]);
            let Some(next_us) = ends.filter(|end_us| *end_us > at_us).min() else { break };
            if next_us == u64::MAX {
                return u64::MAX;
            }
            at_us = next_us;
        }
        at_us
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attributes::AttributeTable;
    use crate::client_address::ClientAddressRules;
    use crate::list::ListItem;
    use crate::request::RequestAttributes;
    use crate::router_paths::RouterPaths;

    fn lists(items: &[(&str, &str)]) -> (AttributeLists, AttributeTable) {
        let (mut lists, mut table) = (AttributeLists::default(), AttributeTable::default());
        for (list, text) in items {
            let (item, until_us) = ListItem::parse_with_until(text).unwrap();
            let listing = match &item {
                ListItem::Client(network) => lists.network(*network),
                ListItem::Attribute(attribute, value) => lists.value(&table.refer(attribute), value),
                ListItem::Key { .. } => panic!("{text}"),
            };
            listing.add(*list == "deny", until_us);
        }
        (lists, table)
    }

    const T_US: u64 = 1_789_948_800_000_000;
    const S: u64 = 1_000_000;

    fn verdict(
        items: &[(&str, &str)],
        request: &RequestAttributes<'_>,
        t_us: u64,
    ) -> Option<(bool, Option<u64>)> {
        let (lists, table) = lists(items);
        let rules = ClientAddressRules::default();
        let verdict =
            lists.verdict(&Attributes::new(request, &table, &rules, RouterPaths::new()), T_US + t_us)?;
        Some((verdict.denies, verdict.until_us.map(|until_us| until_us - T_US)))
    }

    #[test]
    fn longest_prefix_counts_and_then_allowing_wins() {
        let items = [
            ("deny", "client 203.0.113.0/24"),
            ("deny", "client 198.51.100.0/24"),
            ("deny", "client 2001:db8::/32"),
            ("deny", "client 192.0.2.8"),
            ("allow", "client 203.0.113.7"),
            ("allow", "client 198.51.100.0/24"),
            ("allow", "client 2001:db8:1::/48"),
            ("allow", "client 192.0.0.0/16"),
        ];
        for (peer, denies) in [
            ("203.0.113.9", Some(true)),
            ("203.0.113.7", Some(false)),
            ("198.51.100.1", Some(false)),
            ("192.0.2.8", Some(true)),
            ("192.0.2.9", Some(false)),
            ("192.1.2.9", None),
            ("2001:db8:2::1", Some(true)),
            ("2001:db8:1::1", Some(false)),
            ("::ffff:203.0.113.9", Some(true)),
            ("unix:", None),
        ] {
            let request = RequestAttributes::new().peer(peer);
            assert_eq!(verdict(&items, &request, 0).map(|(denies, _)| denies), denies, "{peer}");
        }
        assert_eq!(verdict(&items, &RequestAttributes::new(), 0), None);
    }

    #[test]
    fn any_allowed_value_wins_over_denied_ones() {
        let items = [
            ("deny", "country KP"),
            ("deny", "header.x-api-key leaked%20key"),
            ("deny", "path /admin"),
            ("allow", "user root"),
            ("allow", "method OPTIONS"),
            ("deny", "client 192.0.2.0/24"),
            ("deny", "plan %"),
        ];
        let request = || RequestAttributes::new().method("GET");
        for (request, denies) in [
            (request(), None),
            (request().attribute("country", "KP"), Some(true)),
            (request().attribute("country", "KR"), None),
            (request().attribute("country", "KP").attribute("user", "root"), Some(false)),
            (request().header("X-API-Key", "leaked key"), Some(true)),
            (request().header("X-API-Key", "leaked").header("x-api-key", "key"), None),
            (request().header("X-API-Key", "leaked key").method("OPTIONS"), Some(false)),
            (request().path("//admin/"), Some(true)),
            (request().peer("192.0.2.1"), Some(true)),
            (request().peer("192.0.2.1").attribute("user", "root"), Some(false)),
            // An empty value counts as absent.
            (request().attribute("plan", ""), None),
        ] {
            assert_eq!(verdict(&items, &request, 0).map(|(denies, _)| denies), denies, "{request:?}");
        }
    }

    #[test]
    fn denial_lasts_until_nothing_denies() {
        let items = [
            ("deny", "client 203.0.113.0/24 until 2026-09-21T00:00:20Z"),
            ("deny", "client 203.0.113.9 until 2026-09-21T00:00:10Z"),
            ("deny", "client 198.51.100.8 until 2026-09-21T00:00:10Z"),
            ("allow", "client 198.51.100.0/24 until 2026-09-21T00:00:20Z"),
            ("deny", "client 198.51.0.0/16 until 2026-09-21T00:00:30Z"),
            ("deny", "client 192.0.2.0/24"),
            ("deny", "user a until 2026-09-21T00:00:10Z"),
            ("deny", "user a until 2026-09-21T00:00:05Z"),
        ];
        let denied = |until_s: u64| Some((true, Some(until_s * S)));
        for (peer, user, t_us, expected) in [
            ("203.0.113.9", "", 0, denied(20)),
            ("203.0.113.9", "", 20 * S - 1, denied(20)),
            ("203.0.113.9", "", 20 * S, None),
            // Allowed in between, and denied again.
            ("198.51.100.8", "", 0, denied(10)),
            ("198.51.100.8", "", 10 * S, Some((false, None))),
            ("198.51.100.8", "", 20 * S, denied(30)),
            ("192.0.2.1", "a", 0, Some((true, None))),
            ("203.0.113.9", "a", 0, denied(20)),
            ("192.0.3.1", "a", 5 * S, denied(10)),
            ("192.0.3.1", "a", 10 * S, None),
        ] {
            let request = RequestAttributes::new().peer(peer).attribute("user", user);
            assert_eq!(verdict(&items, &request, t_us), expected, "{peer} {user} at {t_us}");
        }
    }

    #[test]
    fn listing_of_a_key_keeps_the_latest_end() {
        let mut listing = Listing::default();
        assert_eq!(listing.verdict(0), None);
        listing.add(true, Some(10));
        listing.add(true, Some(5));
        assert_eq!(listing.verdict(9), Some(ListVerdict { denies: true, until_us: Some(10) }));
        assert_eq!(listing.verdict(10), None);
        listing.add(true, None);
        listing.add(false, Some(5));
        assert_eq!(listing.verdict(4), Some(ListVerdict { denies: false, until_us: None }));
        assert_eq!(listing.verdict(5), Some(ListVerdict { denies: true, until_us: None }));
    }
}
