//! The owners of a cluster's slots, as its nodes report them.

use std::fmt;

use redis::Value;

use crate::rules::decision::Degradation;
use crate::store::redis::config::target::Endpoint;
use crate::store::redis::transport::connect::{Address, Connector};
use crate::store::redis::transport::failure::Failure;

const SLOTS: usize = 1 << 14;
const NOBODY: u16 = u16::MAX;

/// The owner of each slot, as an index into a list of nodes.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Slots(Box<[u16]>);

impl Default for Slots {
    fn default() -> Self {
        Self(vec![NOBODY; SLOTS].into())
    }
}

impl Slots {
    pub(crate) fn owner(&self, slot: u16) -> Option<usize> {
        self.0.get(usize::from(slot)).filter(|&&owner| owner != NOBODY).map(|&owner| usize::from(owner))
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
        let owned = self.0.iter().filter(|owner| **owner != NOBODY).count();
        write!(f, "{owned} slots with an owner")
    }
}

/// Reads the owners of all slots from a node.
pub(crate) async fn read(connector: &Connector, node: &Endpoint) -> Result<(Slots, Vec<Endpoint>), Failure> {
    let mut session = connector.session(&Address::Tcp(node.clone())).await?;
    match session.ask::<Vec<Value>>(redis::cmd("CLUSTER").arg("SLOTS")).await {
        Ok(ranges) => understood(&ranges, node).ok_or(Failure::not_applied(Degradation::Protocol)),
        Err(error) => Err(match error.code() {
            Some("NOPERM") => Failure::permanent(Degradation::Auth),
            Some(_) => Failure::permanent(Degradation::ClusterDown),
            None => Failure::not_applied(Degradation::Unreachable),
        }),
    }
}

/// Parses the reply to `CLUSTER SLOTS`: ranges with the primary first. A node that does not know its own host leaves it
/// out; then it is the host of the node that replied.
fn understood(ranges: &[Value], asked: &Endpoint) -> Option<(Slots, Vec<Endpoint>)> {
    let (mut slots, mut nodes) = (Slots::default(), Vec::new());
    for range in ranges {
        let Value::Array(range) = range else { return None };
        let [Value::Int(first), Value::Int(last), Value::Array(primary), ..] = range.as_slice() else {
            return None;
        };
        let [host, Value::Int(port), ..] = primary.as_slice() else { return None };
        let host = match host {
            Value::Nil => asked.host.clone(),
            Value::BulkString(host) if host.is_empty() => asked.host.clone(),
            Value::BulkString(host) => std::str::from_utf8(host).ok()?.into(),
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
            range(10, 16383, Value::BulkString(Vec::new()), 7000),
            range(5, 5, Value::BulkString(b"10.0.0.1".to_vec()), 7001),
        ];
        let (slots, nodes) = understood(&ranges, &asked).unwrap();
        assert_eq!(nodes, [Endpoint { host: "10.0.0.1".into(), port: 7001 }, asked.clone()]);
        assert_eq!([0, 9, 10, 16383].map(|slot| slots.owner(slot)), [Some(0), Some(0), Some(1), Some(1)]);
        assert_eq!(slots.with_owner(10, 0).owner(10), Some(0));
        assert_eq!(Slots::default().owner(0), None);
        for bad in [range(3, 16384, Value::Nil, 1), range(9, 3, Value::Nil, 1), range(0, 1, Value::Nil, -1)] {
            assert!(understood(&[bad], &asked).is_none());
        }
    }
}
