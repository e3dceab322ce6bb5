//! What one node of a cluster says about all of them: CLUSTER NODES, read.

use std::ops::RangeInclusive;

use crate::server::Server;

#[derive(Debug)]
pub(super) struct View(Vec<Line>);

#[derive(Debug)]
pub(super) struct Line {
    id: String,
    flags: Vec<String>,
    slots: Vec<RangeInclusive<u16>>,
}

/// The views of all nodes that answer.
pub(super) fn views(nodes: &[Server]) -> Vec<View> {
    nodes.iter().filter_map(View::of).collect()
}

impl View {
    /// Nothing if the node does not answer.
    pub(super) fn of(node: &Server) -> Option<Self> {
        if !node.is_running() {
            return None;
        }
        let text: String = redis::from_redis_value(node.try_command(&["CLUSTER", "NODES"]).ok()?).ok()?;
        Some(Self(text.lines().map(Line::parse).collect()))
    }

    pub(super) fn myself(&self) -> Option<&Line> {
        self.0.iter().find(|line| line.is("myself"))
    }

    /// Whether it knows `count` nodes, itself included, and has shaken hands with all.
    pub(super) fn knows(&self, count: usize) -> bool {
        self.0.len() == count && self.living() == count
    }

    /// How many nodes it finds alive.
    pub(super) fn living(&self) -> usize {
        let dead = ["fail", "fail?", "handshake", "noaddr"];
        self.0.iter().filter(|line| !dead.iter().any(|flag| line.is(flag))).count()
    }

    /// The owners of slots, in an order that is the same for all nodes.
    pub(super) fn owners(&self) -> Vec<(&str, &[RangeInclusive<u16>])> {
        let owners = self.0.iter().filter(|line| !line.slots.is_empty());
        let mut owners: Vec<_> = owners.map(|line| (line.id.as_str(), line.slots.as_slice())).collect();
        owners.sort_by_key(|(id, _)| *id);
        owners
    }
}

impl Line {
    fn parse(text: &str) -> Self {
        let fields: Vec<&str> = text.split(' ').collect();
        // After eight fields come the slots; one in brackets is being moved and stands among the others as well.
        let slots = fields.iter().skip(8).filter(|slots| !slots.starts_with('['));
        Self {
            id: fields.first().copied().unwrap_or_default().to_owned(),
            flags: fields.get(2).copied().unwrap_or_default().split(',').map(str::to_owned).collect(),
            slots: slots
                .map(|slots| {
                    let (first, last) = slots.split_once('-').unwrap_or((slots, slots));
                    first.parse().expect("a slot")..=last.parse().expect("a slot")
                })
                .collect(),
        }
    }

    fn is(&self, flag: &str) -> bool {
        self.flags.iter().any(|set| set == flag)
    }

    pub(super) fn is_primary(&self) -> bool {
        self.is("master")
    }

    pub(super) fn has(&self, slot: u16) -> bool {
        self.slots.iter().any(|range| range.contains(&slot))
    }

    pub(super) fn slots(&self) -> usize {
        self.slots.iter().map(ExactSizeIterator::len).sum()
    }
}
