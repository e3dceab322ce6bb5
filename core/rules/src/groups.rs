//! Groups of callers that share the quotas of a policy: what each is guaranteed, what it may borrow, and who borrows first.
//!
//! `docs/internals/fair-shares.md` defines the meaning; [`algorithm::grouped`](crate::algorithm::grouped) has the arithmetic.

use std::sync::Arc;

use crate::error::{Error, excerpt};
use crate::quota::tick::gcd;
use crate::report::sha256;

/// A group, in percent of every quota of its policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    pub name: Arc<str>,
    /// The part of what is lent that the group gets, relative to the weights of the others that want it: 1 to 100.
    pub weight: u8,
    /// What the group always gets, 0 to 100 percent.
    pub minimum: u8,
    /// The most that the group gets, 1 to 100 percent.
    pub maximum: u8,
}

/// The first bytes of the SHA-256 of a group's name, by which stored states name the group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupTag(pub [u8; 4]);

impl GroupTag {
    fn of(name: &str) -> Self {
        let digest = sha256(name.as_ref());
        Self([digest[0], digest[1], digest[2], digest[3]])
    }
}

/// All groups of a policy.
#[derive(Debug, PartialEq, Eq)]
pub struct GroupTable {
    groups: Box<[Group]>,
    tags: Box<[GroupTag]>,
    others: usize,
    scale: u64,
}

impl GroupTable {
    /// The group of requests that name none of the other groups.
    pub const OTHERS: &str = "*";
    /// The most groups of one policy, `*` included.
    pub const MAX_GROUPS: usize = 64;
    /// The longest name, in bytes.
    const MAX_NAME_LENGTH: usize = 64;
    /// The largest weight.
    pub const MAX_WEIGHT: u8 = 100;

    /// The groups, with a group `*` of weight 1 if there is none.
    ///
    /// # Errors
    /// Invalid argument: more than 64 groups, a name that is empty, too long or has spaces, minimums of more than 100 percent together, or a
    /// maximum below its minimum.
    pub fn new(groups: impl IntoIterator<Item = Group>) -> Result<Self, Error> {
        let mut groups: Vec<Group> = groups.into_iter().collect();
        if !groups.iter().any(|group| &*group.name == Self::OTHERS) {
            groups.push(Group { name: Self::OTHERS.into(), weight: 1, minimum: 0, maximum: 100 });
        }
        let invalid = |message: String| Err(Error::invalid_argument(message));
        if groups.len() > Self::MAX_GROUPS {
            return invalid(format!("groups has {} groups: allowed are up to 64, * included", groups.len()));
        }
        for Group { name, minimum, maximum, .. } in &groups {
            if !(1..=Self::MAX_NAME_LENGTH).contains(&name.len()) || name.contains(char::is_whitespace) {
                return invalid(format!(
                    "group is {}: allowed are names of 1 to 64 bytes without spaces",
                    excerpt(name)
                ));
            }
            if minimum > maximum {
                return invalid(format!(
                    "group {} has a minimum of {minimum}% and a maximum of {maximum}%: allowed is a maximum from its minimum to 100%",
                    excerpt(name)
                ));
            }
        }
        let minimums: u32 = groups.iter().map(|group| u32::from(group.minimum)).sum();
        if minimums > 100 {
            return invalid(format!(
                "the minimums of the groups are {minimums}% together: allowed are up to 100%"
            ));
        }
        let tags: Box<[GroupTag]> = groups.iter().map(|group| GroupTag::of(&group.name)).collect();
        if let Some(at) = (1..tags.len()).find(|at| tags[..*at].contains(&tags[*at])) {
            return invalid(format!(
                "group {} cannot be distinguished from another one in stored states: give it another name",
                excerpt(&groups[at].name)
            ));
        }
        let others = groups.iter().position(|group| &*group.name == Self::OTHERS).unwrap_or(0);
        let scale = groups.iter().try_fold(1_u64, |scale, group| {
            let weight = u64::from(group.weight.max(1));
            scale.checked_mul(weight / gcd(scale, weight))
        });
        // Weights whose multiple is that large are refused with the quota that they are for.
        Ok(Self { groups: groups.into(), tags, others, scale: scale.unwrap_or(u64::MAX) })
    }

    pub fn groups(&self) -> &[Group] {
        &self.groups
    }

    pub fn tags(&self) -> &[GroupTag] {
        &self.tags
    }

    /// What one unit moves a group of weight 1 back in the order: the least common multiple of the weights.
    pub fn scale(&self) -> u64 {
        self.scale
    }

    /// The place of the group `*`.
    pub fn others(&self) -> usize {
        self.others
    }

    /// The place of a group with this name.
    pub fn named(&self, name: &str) -> Option<usize> {
        self.groups.iter().position(|group| &*group.name == name)
    }

    /// The place of the group with this tag; that of `*` for a group that the policy no longer has.
    pub(crate) fn tagged(&self, tag: GroupTag) -> usize {
        self.tags.iter().position(|known| *known == tag).unwrap_or(self.others)
    }
}

/// The groups of a policy, and the one that a request is in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Groups {
    pub table: Arc<GroupTable>,
    pub own: usize,
}

impl Groups {
    /// For requests of no named group.
    pub fn new(table: Arc<GroupTable>) -> Self {
        let own = table.others;
        Self { table, own }
    }

    /// The same groups for requests of this one; for those of `*` where there is no such group.
    #[must_use]
    pub fn of(&self, name: Option<&str>) -> Self {
        let own = name.and_then(|name| self.table.named(name)).unwrap_or(self.table.others);
        Self { table: Arc::clone(&self.table), own }
    }

    /// The name of the requests' group.
    pub fn name(&self) -> &str {
        &self.table.groups[self.own].name
    }

    pub(crate) fn tag(&self) -> GroupTag {
        self.table.tags[self.own]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quota::{Quota, shares};

    fn group(name: &str, weight: u8, minimum: u8, maximum: u8) -> Group {
        Group { name: name.into(), weight, minimum, maximum }
    }

    #[test]
    fn everyone_is_in_a_group() {
        let table = Arc::new(GroupTable::new([group("a", 6, 50, 100), group("b", 4, 0, 80)]).unwrap());
        assert_eq!((table.groups().len(), table.scale()), (3, 12));
        let groups = Groups::new(table);
        assert_eq!(groups.name(), "*");
        assert_eq!(
            (groups.of(Some("b")).name(), groups.of(Some("c")).name(), groups.of(None).name()),
            ("b", "*", "*")
        );
        assert_eq!(groups.table.tagged(GroupTag::of("a")), 0);
        assert_eq!(groups.table.tagged(GroupTag::of("gone")), 2);
    }

    #[test]
    fn shares_of_groups_without_a_minimum_lend_everything() {
        let table = GroupTable::new([group("a", 1, 50, 100), group("b", 1, 0, 80)]).unwrap();
        let bucket: Quota = "100/s token_bucket burst=40".parse().unwrap();
        let shares = shares::shares_of(&bucket, &table);
        assert_eq!([shares[0].rate, shares[0].burst], [50, 10]);
        assert_eq!(
            [shares[1].rate, shares[1].burst, shares[1].top_rate, shares[1].top_burst],
            [0, 0, 80, 32]
        );
        for (quotas, about) in [
            ("1/s token_bucket burst=40", "the minimum of group a is 50%"),
            ("100/s fixed_window", "groups cannot share"),
            ("100/s token_bucket excess=5", "groups cannot share"),
            ("100/s token_bucket count_denied", "groups cannot share"),
            ("100/s token_bucket step=10", "groups cannot share"),
        ] {
            let Ok(quota) = quotas.parse::<Quota>() else { panic!("{quotas}") };
            let refused = quota.grouped(&table).unwrap_err().to_string();
            assert!(refused.contains(about), "{quotas}: {refused}");
        }
        let narrow = GroupTable::new([group("a", 1, 0, 1)]).unwrap();
        let refused = "10/s token_bucket".parse::<Quota>().unwrap().grouped(&narrow).unwrap_err().to_string();
        assert!(refused.contains("the maximum of group a is 1%"), "{refused}");
    }

    /// The farthest place in the order is 2^45.
    #[test]
    fn units_times_weights_are_bounded() {
        let table = GroupTable::new([group("a", 64, 0, 100)]).unwrap();
        let grouped = |units: u64| {
            let quota: Quota = format!("{units}/s token_bucket").parse().unwrap();
            quota.grouped(&table).map(|quota| quota.limit()).map_err(|error| error.to_string())
        };
        assert_eq!(grouped(1 << 39), Ok(1 << 39));
        assert!(grouped((1 << 39) + 1).unwrap_err().contains("common multiple 64"));
    }

    #[test]
    fn impossible_groups_are_refused() {
        for (groups, about) in [
            (vec![group("a", 1, 60, 100), group("b", 1, 41, 100)], "101% together"),
            (vec![group("a", 1, 60, 59)], "minimum of 60% and a maximum of 59%"),
            (vec![group("a b", 1, 0, 100)], "without spaces"),
            (vec![group("", 1, 0, 100)], "1 to 64 bytes"),
            ((0..64).map(|at| group(&at.to_string(), 1, 0, 100)).collect(), "65 groups"),
        ] {
            let refused = GroupTable::new(groups).unwrap_err().to_string();
            assert!(refused.contains(about), "{refused}");
        }
    }
}
