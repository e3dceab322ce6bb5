//! The table `client`.

use crate::client_address::{ClientAddressRules, ForwardingHeader};
use crate::tree::{Node, Refusal};

pub(super) fn read(node: Option<&Node<'_>>) -> Result<ClientAddressRules, Refusal> {
    let Some(node) = node else { return Ok(ClientAddressRules::default()) };
    let mut rules = ClientAddressRules::builder();
    let header = node
        .get("header")
        .and_then(Node::text)
        .and_then(|name| ForwardingHeader::ALL.into_iter().find(|header| header.name() == name));
    if let Some(header) = header {
        rules = rules.header(header);
    }
    for network in node.get("trust").map_or(&[][..], Node::elements) {
        // One network at a time, so that an error is reported at its line.
        network.read(|text| {
            ClientAddressRules::builder().header(ForwardingHeader::Forwarded).trust(text).build()
        })?;
        rules = rules.trust(network.text().unwrap_or_default());
    }
    rules.build().map_err(|error| Refusal::of(node.at, &error))
}
