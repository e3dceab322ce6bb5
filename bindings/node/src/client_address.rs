//! The rules that find a client's address behind trusted proxies.

use std::ffi::CStr;

use napi::bindgen_prelude::Unknown;
use napi::{Env, sys};
use napi_derive::napi;
use polylimit::http::{ClientAddressRules, ForwardingHeader};

use crate::error::{Code, Result, catch_panic, invalid_argument, to_js_error};
use crate::function::{self, ARGUMENT_COUNT, NativeFunction};
use crate::number::whole;
use crate::text::{self, TextBuffer};

/// The settings of the rules, not yet checked.
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
        catch_panic(|| {
            let builder = ClientAddressRules::builder();
            let mut builder = settings.trust.iter().fold(builder, |builder, network| builder.trust(network));
            if let Some(header) = settings.header {
                builder = builder.header(header.parse::<ForwardingHeader>().map_err(to_js_error)?);
            }
            if let Some(bits) = settings.ipv4_prefix {
                builder = builder.ipv4_prefix(prefix("ipv4Prefix", bits, "0 to 32 bits")?);
            }
            if let Some(bits) = settings.ipv6_prefix {
                builder = builder.ipv6_prefix(prefix("ipv6Prefix", bits, "0 to 128 bits")?);
            }
            Ok(Self { rules: builder.build().map_err(to_js_error)? })
        })
    }

    /// The header whose lines `resolve` needs.
    #[napi]
    pub fn header(&self) -> Option<&'static str> {
        self.rules.header().map(ForwardingHeader::name)
    }

    /// Finds the client of a request from `peer`, which is `None` for a Unix socket.
    #[napi]
    pub fn resolve(&self, peer: Option<String>, lines: Vec<String>) -> Result<NativeClient> {
        catch_panic(|| {
            // The zone of a link-local address names one of this host's own links, and is not part of the address.
            let peer = peer.as_deref().unwrap_or(THIS_HOST).split('%').next().unwrap_or_default();
            let peer = peer.parse().map_err(|_| invalid_peer())?;
            let client = self.rules.resolve(peer, lines.iter().map(String::as_bytes));
            Ok(NativeClient { address: client.address().to_string(), key: client.key() })
        })
    }

    /// Creates the function that returns only the key of a client. `line` is all lines of the header, joined. All peers that
    /// are not addresses count as one client.
    #[napi(ts_return_type = "(peer?: string, line?: string) => string")]
    pub fn key_function(&self, env: Env) -> Result<Unknown<'_>> {
        catch_panic(|| function::create(env, KeyFunction { rules: self.rules.clone() }))
    }
}

/// Stands for the peer of a Unix socket.
const THIS_HOST: &str = "127.0.0.1";

/// `(peer, line) => string`.
struct KeyFunction {
    rules: ClientAddressRules,
}

impl NativeFunction for KeyFunction {
    const NAME: &'static CStr = c"keyOf";

    unsafe fn call(
        &self,
        env: sys::napi_env,
        [peer, line, _]: [sys::napi_value; ARGUMENT_COUNT],
    ) -> Result<sys::napi_value> {
        let (mut peer_text, mut line_text) = (TextBuffer::new(), TextBuffer::new());
        // SAFETY: the caller guarantees it.
        let peer = unsafe { peer_text.optional_text(env, peer, invalid_peer)? };
        // SAFETY: the caller guarantees it.
        let line = unsafe { line_text.optional_text(env, line, invalid_line)? };
        let key = self.rules.key_of(peer.unwrap_or(THIS_HOST), line.map(str::as_bytes));
        // SAFETY: the caller guarantees it.
        unsafe { text::string(env, &key) }
    }
}

fn invalid_peer() -> napi::Error<Code> {
    invalid_argument("peer is not an address: allowed is an IPv4 or IPv6 address without a port")
}

fn invalid_line() -> napi::Error<Code> {
    invalid_argument("a line of the header is not a string")
}

fn prefix(name: &str, bits: f64, allowed: &str) -> Result<u8> {
    Ok(u8::try_from(whole(name, bits, allowed)?).unwrap_or(u8::MAX))
}
