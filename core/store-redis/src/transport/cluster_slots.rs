//! The slots of a Redis Cluster: the slot of a key, and the owners of the slots, as the nodes report them.
//!
//! The slot of a key is the CRC16 (XMODEM: polynomial 0x1021, initial value 0, not reflected) of the hash tag, modulo 16384. The
//! hash tag is the text between the first `{` and the next `}`, unless it is empty; otherwise it is the whole key.

use std::fmt;

use redis::Value;

use crate::config::target::Endpoint;
use crate::transport::connect::{Address, Connector};
use crate::transport::failure::Failure;
use polylimit_rules::decision::Degradation;

const SLOTS: u16 = 16_384;
const NO_OWNER: u16 = u16::MAX;

/// The owner of each slot, as an index into a list of nodes.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Slots(Box<[u16]>);

impl Default for Slots {
    fn default() -> Self {
        Self(vec![NO_OWNER; SLOTS.into()].into())
    }
}

impl Slots {
    pub(crate) fn owner(&self, slot: u16) -> Option<usize> {
        self.0.get(usize::from(slot)).filter(|&&owner| owner != NO_OWNER).map(|&owner| usize::from(owner))
    }

    /// Every slot that has an owner, with its owner.
    pub(crate) fn owners(&self) -> impl Iterator<Item = (u16, usize)> {
        (0..SLOTS).filter_map(|slot| Some((slot, self.owner(slot)?)))
    }

    /// A copy with another owner of one slot.
    pub(crate) fn with_owner(&self, slot: u16, owner: usize) -> Self {
        let mut slots = self.clone();
        if let (Some(slot), Ok(owner)) = (slots.0.get_mut(usize::from(slot)), u16::try_from(owner)) {
            *slot = owner;
        }
        slots
    }
}

impl fmt::Debug for Slots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let owned = self.0.iter().filter(|owner| **owner != NO_OWNER).count();
        write!(f, "{owned} slots with an owner")
    }
}

/// Reads the owners of all slots from a node.
pub(crate) async fn read(connector: &Connector, node: &Endpoint) -> Result<(Slots, Vec<Endpoint>), Failure> {
    let mut session = connector.session(&Address::Tcp(node.clone())).await?;
    match session.ask::<Vec<Value>>(redis::cmd("CLUSTER").arg("SLOTS")).await {
        Ok(ranges) => read_ranges(&ranges, node).ok_or(Failure::not_applied(Degradation::Protocol)),
        Err(error) => Err(match error.code() {
            Some("NOPERM") => Failure::permanent(Degradation::Auth),
            Some(_) => {
                let server = Address::Tcp(node.clone()).describe();
                let (reason, refusal) = (Degradation::ClusterDown, &connector.refusal);
                refusal.describe(reason, &mut session, &server, &error).await;
                Failure::permanent(Degradation::ClusterDown)
            }
            None => Failure::not_applied(Degradation::Unreachable),
        }),
    }
}

/// The host that a node names, or else that of the node that replied: a node that does not know a host leaves it out or writes
/// `?`.
pub(crate) fn known_host(named: &str, asked: &Endpoint) -> Box<str> {
    if matches!(named, "" | "?") { asked.host.clone() } else { named.into() }
}

/// Parses the reply to `CLUSTER SLOTS`: ranges with the primary first.
fn read_ranges(ranges: &[Value], asked: &Endpoint) -> Option<(Slots, Vec<Endpoint>)> {
    let (mut slots, mut nodes) = (Slots::default(), Vec::new());
    for range in ranges {
        let Value::Array(range) = range else { return None };
        let [Value::Int(first), Value::Int(last), Value::Array(primary), ..] = range.as_slice() else {
            return None;
        };
        let [host, Value::Int(port), ..] = primary.as_slice() else { return None };
        let host = match host {
            Value::Nil => asked.host.clone(),
            Value::BulkString(host) => known_host(std::str::from_utf8(host).ok()?, asked),
            _ => return None,
        };
        let node = Endpoint { host, port: u16::try_from(*port).ok()? };
        let owner = nodes.iter().position(|known| *known == node).unwrap_or_else(|| {
            nodes.push(node);
            nodes.len() - 1
        });
        let range = usize::try_from(*first).ok()?..=usize::try_from(*last).ok()?;
        slots.0.get_mut(range)?.fill(u16::try_from(owner).ok()?);
    }
    Some((slots, nodes))
}

pub(crate) fn slot(key: &[u8]) -> u16 {
    crc16(hash_tag(key)) % SLOTS
}

fn hash_tag(key: &[u8]) -> &[u8] {
    let tag = || {
        let start = key.iter().position(|&byte| byte == b'{')? + 1;
        let length = key[start..].iter().position(|&byte| byte == b'}')?;
        (length > 0).then(|| &key[start..start + length])
    };
    tag().unwrap_or(key)
}

fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| (crc << 8) ^ CRC16[usize::from((crc >> 8) as u8 ^ byte)])
}

const CRC16: [u16; 256] = {
    let mut table = [0; 256];
    let mut byte: u16 = 0;
    while byte < 256 {
        let mut crc = byte << 8;
        let mut bit = 0;
        while bit < 8 {
            let carry = if crc & 0x8000 == 0 { 0 } else { 0x1021 };
            crc = (crc << 1) ^ carry;
            bit += 1;
        }
        table[byte as usize] = crc;
        byte += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    fn range(first: i64, last: i64, host: Value, port: i64) -> Value {
        let primary = Value::Array(vec![host, Value::Int(port), Value::BulkString(b"id".to_vec())]);
        Value::Array(vec![Value::Int(first), Value::Int(last), primary])
    }

    #[test]
    fn ranges_name_their_owner() {
        let asked = Endpoint { host: "10.0.0.9".into(), port: 7000 };
        let ranges = [
            range(0, 9, Value::BulkString(b"10.0.0.1".to_vec()), 7001),
            range(10, 999, Value::BulkString(Vec::new()), 7000),
            range(1_000, 16383, Value::BulkString(b"?".to_vec()), 7000),
            range(5, 5, Value::BulkString(b"10.0.0.1".to_vec()), 7001),
        ];
        let (slots, nodes) = read_ranges(&ranges, &asked).unwrap();
        assert_eq!(nodes, [Endpoint { host: "10.0.0.1".into(), port: 7001 }, asked.clone()]);
        assert_eq!([0, 9, 10, 16383].map(|slot| slots.owner(slot)), [Some(0), Some(0), Some(1), Some(1)]);
        assert_eq!(slots.with_owner(10, 0).owner(10), Some(0));
        assert_eq!(Slots::default().owner(0), None);
        for bad in [range(3, 16384, Value::Nil, 1), range(9, 3, Value::Nil, 1), range(0, 1, Value::Nil, -1)] {
            assert!(read_ranges(&[bad], &asked).is_none());
        }
    }

    #[test]
    fn crc_has_the_published_check_value() {
        assert_eq!(crc16(b"123456789"), 0x31C3);
        assert_eq!(crc16(b""), 0);
    }

    #[test]
    fn slots_equal_the_reply_of_a_server_to_cluster_keyslot() {
        let told: [(&[u8], u16); 10] = [
            (b"foo", 12182),
            (b"bar", 5061),
            (b"hello", 866),
            (b"123456789", 12739),
            (b"{user1000}.following", 3443),
            (b"foo{}{bar}", 8363),
            (b"foo{{bar}}zap", 4015),
            (b"foo{bar}{zap}", 5061),
            (b"polylimit:1:api:{user:42}", 15880),
            (b"polylimit:1:api:{%}", 13511),
        ];
        for (key, there) in told {
            assert_eq!(slot(key), there, "{}", String::from_utf8_lossy(key));
        }
    }

    #[test]
    fn only_the_first_pair_of_braces_counts() {
        assert_eq!(hash_tag(b"{user1000}.following"), b"user1000");
        assert_eq!(hash_tag(b"foo{}{bar}"), b"foo{}{bar}");
        assert_eq!(hash_tag(b"foo{{bar}}zap"), b"{bar");
        assert_eq!(hash_tag(b"foo{bar}{zap}"), b"bar");
        assert_eq!(hash_tag(b"}foo{bar"), b"}foo{bar");
    }
}
