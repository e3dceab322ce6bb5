//! Where a list continues: one text for the positions in all nodes.

use polylimit_rules::error::Error;

/// The positions at which the nodes of a store continue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cursor {
    /// Identifies the filter: with a different one, the positions would skip keys.
    filter: u64,
    nodes: Vec<NodePlace>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct NodePlace {
    identity: u64,
    /// `None` when all of the node has been listed.
    at: Option<u64>,
}

/// The prefix of a cursor: the version of its format.
const VERSION: &str = "1";

impl Cursor {
    /// Reads the cursor of a page of the same filter; without one, the list begins.
    pub(super) fn read(text: Option<&str>, filter: u64) -> Result<Self, Error> {
        let Some(text) = text else { return Ok(Self { filter, nodes: Vec::new() }) };
        let read = Self::parse(text).ok_or_else(|| {
            Error::invalid_argument(
                "the cursor cannot be read: pass the cursor of the previous page unchanged",
            )
        })?;
        if read.filter != filter {
            return Err(Error::invalid_argument(
                "the cursor belongs to a list with another filter: begin without a cursor, or pass the same filter",
            ));
        }
        Ok(read)
    }

    fn parse(text: &str) -> Option<Self> {
        let number = |text: &str| u64::from_str_radix(text, 16).ok();
        let mut parts = text.split('.');
        if parts.next()? != VERSION {
            return None;
        }
        let filter = number(parts.next()?)?;
        let nodes = parts.map(|part| {
            let (identity, at) = part.split_once('-')?;
            let at = if at.is_empty() { None } else { Some(number(at)?) };
            Some(NodePlace { identity: number(identity)?, at })
        });
        Some(Self { filter, nodes: nodes.collect::<Option<_>>()? })
    }

    /// The cursor as text; `None` when everything has been listed.
    pub(super) fn text(&self) -> Option<String> {
        self.next()?;
        let nodes = self.nodes.iter().map(|NodePlace { identity, at }| match at {
            Some(at) => format!(".{identity:x}-{at:x}"),
            None => format!(".{identity:x}-"),
        });
        Some(nodes.fold(format!("{VERSION}.{:x}", self.filter), |text, node| text + &node))
    }

    /// Adopts the current nodes, in their order: a node that is new, or has replaced another one, is listed from its start.
    pub(super) fn take_nodes(&mut self, identities: &[u64]) {
        let place = |identity: &u64| {
            let known = self.nodes.iter().find(|node| node.identity == *identity).copied();
            known.unwrap_or(NodePlace { identity: *identity, at: Some(0) })
        };
        self.nodes = identities.iter().map(place).collect();
    }

    /// The first node that has not been listed completely, and its position.
    pub(super) fn next(&self) -> Option<(usize, u64)> {
        self.nodes.iter().enumerate().find_map(|(node, place)| Some((node, place.at?)))
    }

    pub(super) fn advance(&mut self, node: usize, next: Option<u64>) {
        if let Some(place) = self.nodes.get_mut(node) {
            place.at = next;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursor_goes_on_at_nodes_that_are_still_the_same() {
        let mut cursor = Cursor::read(None, 7).unwrap();
        assert_eq!(cursor.text(), None);
        cursor.take_nodes(&[0xA, 0xB, 0xC]);
        assert_eq!(cursor.next(), Some((0, 0)));
        cursor.advance(0, None);
        cursor.advance(1, Some(u64::MAX));
        let text = cursor.text().unwrap();
        assert_eq!(text, "1.7.a-.b-ffffffffffffffff.c-0");
        let mut read = Cursor::read(Some(&text), 7).unwrap();
        assert_eq!(read, cursor);
        // The first node has another identity by now, and the nodes are in another order.
        read.take_nodes(&[0xB, 0xD, 0xC]);
        assert_eq!(
            (read.next(), read.text().unwrap()),
            (Some((0, u64::MAX)), "1.7.b-ffffffffffffffff.d-0.c-0".into())
        );
        for node in 0..3 {
            read.advance(node, None);
        }
        assert_eq!((read.next(), read.text()), (None, None));
    }

    #[test]
    fn what_is_no_cursor_is_refused() {
        for text in ["", "2.7.a-0", "1", "1.x.a-0", "1.7.a", "1.7.a-g", "1.7.-0"] {
            let error = Cursor::read(Some(text), 7).unwrap_err();
            assert!(error.message().starts_with("the cursor cannot be read"), "{text}");
        }
        assert!(Cursor::read(Some("1.8.a-0"), 7).unwrap_err().message().contains("another filter"));
    }
}
