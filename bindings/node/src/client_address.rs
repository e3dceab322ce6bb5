//! Whom to count behind proxies.

use std::net::{IpAddr, Ipv4Addr};

use napi_derive::napi;
use polylimit::{ClientAddressRules, ForwardingHeader};

use crate::failure::{Result, failure, guarded, invalid_argument};
use crate::number::whole;

/// Rules before they are checked.
#[napi(object, object_to_js = false)]
pub struct AddressSettings {
    pub trust: Vec<String>,
    pub header: Option<String>,
    pub ipv4_prefix: Option<f64>,
    pub ipv6_prefix: Option<f64>,
}

/// The client of a request.
#[napi(object, object_from_js = false)]
pub struct NativeClient {
    pub address: String,
    pub key: String,
}

/// Checked rules.
#[napi]
pub struct NativeAddressRules {
    rules: ClientAddressRules,
}

#[napi]
impl NativeAddressRules {
    #[napi(constructor)]
    pub fn new(settings: AddressSettings) -> Result<Self> {
        guarded(|| {
            let builder = ClientAddressRules::builder();
            let mut builder = settings.trust.iter().fold(builder, |builder, network| builder.trust(network));
            if let Some(header) = settings.header {
                builder = builder.header(header.parse::<ForwardingHeader>().map_err(failure)?);
            }
            if let Some(bits) = settings.ipv4_prefix {
                builder = builder.ipv4_prefix(prefix("ipv4Prefix", bits, "0 to 32 bits")?);
            }
            if let Some(bits) = settings.ipv6_prefix {
                builder = builder.ipv6_prefix(prefix("ipv6Prefix", bits, "0 to 128 bits")?);
            }
            Ok(Self { rules: builder.build().map_err(failure)? })
        })
    }

    /// The header that `resolve` wants the lines of.
    #[napi]
    pub fn header(&self) -> Option<&'static str> {
        self.rules.header().map(ForwardingHeader::name)
    }

    /// The client of a request from `peer`, which no address stands for a Unix socket.
    #[napi]
    pub fn resolve(&self, peer: Option<String>, lines: Vec<String>) -> Result<NativeClient> {
        guarded(|| {
            let peer = match peer {
                None => IpAddr::from(Ipv4Addr::LOCALHOST),
                // The zone of a link-local address says on which of our own links it is.
                Some(text) => text.split('%').next().unwrap_or_default().parse().map_err(|_| {
                    invalid_argument("peer is no address: allowed is one of IPv4 or IPv6, without a port")
                })?,
            };
            let lines: Vec<_> = lines.iter().map(String::as_bytes).collect();
            let client = self.rules.resolve(peer, lines);
            Ok(NativeClient { address: client.address().to_string(), key: client.key() })
        })
    }
}

fn prefix(name: &str, bits: f64, allowed: &str) -> Result<u8> {
    Ok(u8::try_from(whole(name, bits, allowed)?).unwrap_or(u8::MAX))
}
