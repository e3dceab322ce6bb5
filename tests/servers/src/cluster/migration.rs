//! Moving a slot from one primary to another, as a resharding tool does, with room to act between the steps.

use super::Cluster;

/// What has just been done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MigrationStage {
    /// The target imports the slot: it serves it to clients that are sent there (ASKING).
    Importing,
    /// The source migrates the slot: for a key that it does not have it sends clients to the target (ASK).
    Migrating,
    /// One key was moved; this many remain. While some keys of a request are here and some there: TRYAGAIN.
    KeyMoved {
        /// How many keys of the slot the source still has.
        remaining: usize,
    },
    /// The target owns the slot; the source does not know it yet.
    TargetOwns,
    /// The source knows it too, and sends clients to the target for good (MOVED).
    SourceKnows,
}

impl Cluster {
    /// Moves `slot` with its keys from node `from` to node `to`, both primaries. `between` is called after each step; the
    /// next one waits until it returns.
    pub fn migrate_slot(&self, slot: u16, from: usize, to: usize, mut between: impl FnMut(MigrationStage)) {
        let (source, target) = (self.node(from), self.node(to));
        let (source_id, target_id) = (self.id(from), self.id(to));
        let slot = slot.to_string();
        target.command(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &source_id]);
        between(MigrationStage::Importing);
        source.command(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &target_id]);
        between(MigrationStage::Migrating);
        let port = target.port().to_string();
        loop {
            let keys: Vec<Vec<u8>> = source.query(&["CLUSTER", "GETKEYSINSLOT", &slot, "1"]);
            let Some(key) = keys.first() else { break };
            // NOKEY, where it has expired in between, is as good.
            source.command(&[b"MIGRATE".as_slice(), b"127.0.0.1", port.as_bytes(), key, b"0", b"5000"]);
            let remaining = source.query(&["CLUSTER", "COUNTKEYSINSLOT", &slot]);
            between(MigrationStage::KeyMoved { remaining });
        }
        target.command(&["CLUSTER", "SETSLOT", &slot, "NODE", &target_id]);
        between(MigrationStage::TargetOwns);
        source.command(&["CLUSTER", "SETSLOT", &slot, "NODE", &target_id]);
        for i in self.primaries() {
            if i != from && i != to {
                self.node(i).command(&["CLUSTER", "SETSLOT", &slot, "NODE", &target_id]);
            }
        }
        between(MigrationStage::SourceKnows);
    }
}
