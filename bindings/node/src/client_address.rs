//! Whom to count behind proxies.

use std::ffi::CStr;

use napi::bindgen_prelude::Unknown;
use napi::{Env, sys};
use napi_derive::napi;
use polylimit::{ClientAddressRules, ForwardingHeader};

use crate::callback::{self, ARGUMENTS, Callback};
use crate::failure::{Code, Result, failure, guarded, invalid_argument};
use crate::number::whole;
use crate::text::{self, Text};

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
            // The zone of a link-local address says on which of our own links it is.
            let peer = peer.as_deref().unwrap_or(THIS_HOST).split('%').next().unwrap_or_default();
            let peer = peer.parse().map_err(|_| no_address())?;
            let client = self.rules.resolve(peer, lines.iter().map(String::as_bytes));
            Ok(NativeClient { address: client.address().to_string(), key: client.key() })
        })
    }

    /// The function that tells only what to limit by; `line` is all lines of the header, joined. All peers that are no address
    /// are one client.
    #[napi(ts_return_type = "(peer?: string, line?: string) => string")]
    pub fn key_of(&self, env: Env) -> Result<Unknown<'_>> {
        guarded(|| callback::unknown(env, KeyOf { rules: self.rules.clone() }))
    }
}

/// The peer of a Unix socket.
const THIS_HOST: &str = "127.0.0.1";

/// `(peer, line) => string`.
struct KeyOf {
    rules: ClientAddressRules,
}

impl Callback for KeyOf {
    const NAME: &'static CStr = c"keyOf";

    unsafe fn call(
        &self,
        env: sys::napi_env,
        [peer, line]: [sys::napi_value; ARGUMENTS],
    ) -> Result<sys::napi_value> {
        let (mut peer_text, mut line_text) = (Text::new(), Text::new());
        // SAFETY: as the caller's.
        let peer = unsafe { peer_text.optional(env, peer, no_address)? };
        // SAFETY: as the caller's.
        let line = unsafe { line_text.optional(env, line, no_line)? };
        let key = self.rules.key_of(peer.unwrap_or(THIS_HOST), line.map(str::as_bytes));
        // SAFETY: as the caller's.
        unsafe { text::string(env, &key) }
    }
}

fn no_address() -> napi::Error<Code> {
    invalid_argument("peer is no address: allowed is one of IPv4 or IPv6, without a port")
}

fn no_line() -> napi::Error<Code> {
    invalid_argument("a line of the header is no text")
}

fn prefix(name: &str, bits: f64, allowed: &str) -> Result<u8> {
    Ok(u8::try_from(whole(name, bits, allowed)?).unwrap_or(u8::MAX))
}
