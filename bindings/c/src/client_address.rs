//! The rules that find a client's address behind trusted proxies.

use std::ffi::{CString, c_char};

use polylimit::http::ClientAddressRules;

use crate::arguments::{TextBuffer, array, bytes, foreign_text, handle, out_param, text};
use crate::error::{Failure, MessageBuffer, guard_or, guard_unit, polylimit_status};
use crate::options::polylimit_option;

/// Rules that say which proxies are trusted to report a client's address, and how much of an address identifies one client.
/// Any thread may use them at any time.
pub struct polylimit_address_rules {
    rules: ClientAddressRules,
    header: Option<CString>,
}

/// One line of a header field: any bytes.
#[repr(C)]
pub struct polylimit_line {
    /// The first byte; may be NULL when the line is empty.
    pub start: *const c_char,
    /// The number of bytes.
    pub length: usize,
}

/// Creates rules from `option_count` settings with these names:
///
/// - `trust`, any number of times: the trusted proxies as an address, a network ("10.0.0.0/8"), "loopback", "link-local" or
///   "private".
/// - `header`: the one header that those proxies write, "x-forwarded-for" or "forwarded", or one of a single address,
///   "cf-connecting-ip", "true-client-ip", "x-real-ip" or "fly-client-ip", where nothing reaches the service around the proxy.
/// - `ipv4_prefix` (0 to 32) and `ipv6_prefix` (0 to 128): the number of leading bits of an address that identify a client.
///
/// Without settings no proxy is trusted, and the peer is the client. Freed by polylimit_address_rules_free.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polylimit_address_rules_new(
    options: *const polylimit_option,
    option_count: usize,
    rules_out: *mut *mut polylimit_address_rules,
    error_buffer: *mut c_char,
    error_capacity: usize,
) -> polylimit_status {
    // SAFETY: the caller guarantees the buffer.
    guard_unit(unsafe { MessageBuffer::new(error_buffer, error_capacity) }, || {
        // SAFETY: the caller guarantees an array and an out-parameter.
        let (options, rules_out) =
            unsafe { (array(options, option_count, "options")?, out_param(rules_out, "rules_out")?) };
        let mut builder = ClientAddressRules::builder();
        for option in options {
            // SAFETY: the caller guarantees texts.
            let (name, value) = unsafe {
                (text(option.name, "the name of an option")?, text(option.value, "the value of an option")?)
            };
            builder = match name {
                "trust" => builder.trust(value),
                "header" => builder.header(value.parse()?),
                "ipv4_prefix" => builder.ipv4_prefix(bits(name, value)?),
                "ipv6_prefix" => builder.ipv6_prefix(bits(name, value)?),
                _ => {
                    return Err(Failure::invalid(format!(
                        "option {} is not known: allowed are trust, header, ipv4_prefix, ipv6_prefix",
                        name.escape_debug()
                    )));
                }
            };
        }
        let rules = builder.build()?;
        let header = rules.header().and_then(|header| CString::new(header.name()).ok());
        *rules_out = Box::into_raw(Box::new(polylimit_address_rules { rules, header }));
        Ok(())
    })
}

/// The name of the header field whose lines polylimit_address_rules_key needs; NULL when it needs none. Valid until the rules
/// are freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polylimit_address_rules_header(
    rules: *const polylimit_address_rules,
) -> *const c_char {
    guard_or(std::ptr::null(), || {
        // SAFETY: the caller guarantees rules, or NULL.
        let header = unsafe { rules.as_ref() }.and_then(|rules| rules.header.as_ref());
        header.map_or(std::ptr::null(), |header| header.as_ptr())
    })
}

/// Writes the key of a client: the same text for all addresses of one client, such as "203.0.113.7" or "2001:db8:1:2::/64".
///
/// `peer` is the address at the other end of the socket; a port, brackets and a zone are ignored. For a Unix socket it is
/// "127.0.0.1". For any text that is not an address the key is "unknown", and no line is read. `lines` are the `line_count`
/// lines of the header that the rules name, in the order in which they arrived. The length without the NUL is written to
/// `length_out`, which may be NULL, even if the buffer is too small; 64 bytes are always enough.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polylimit_address_rules_key(
    rules: *const polylimit_address_rules,
    peer: *const c_char,
    lines: *const polylimit_line,
    line_count: usize,
    buffer: *mut c_char,
    capacity: usize,
    length_out: *mut usize,
    error_buffer: *mut c_char,
    error_capacity: usize,
) -> polylimit_status {
    // SAFETY: the caller guarantees the buffer.
    guard_unit(unsafe { MessageBuffer::new(error_buffer, error_capacity) }, || {
        // SAFETY: the caller guarantees rules, a text and an array.
        let (rules, peer, lines) = unsafe {
            (handle(rules, "rules")?, foreign_text(peer, "peer")?, array(lines, line_count, "lines")?)
        };
        // SAFETY: the caller guarantees the bytes of each line.
        let lines = lines.iter().map(|line| unsafe { bytes(line.start.cast(), line.length, "a line") });
        let lines = lines.collect::<Result<Vec<&[u8]>, _>>()?;
        let key = rules.rules.key_of(&peer, lines);
        // SAFETY: the caller guarantees the buffer.
        unsafe { TextBuffer { start: buffer, capacity, length_out }.write(&key) }
    })
}

/// Frees rules. NULL is allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polylimit_address_rules_free(rules: *mut polylimit_address_rules) {
    guard_or((), || {
        if !rules.is_null() {
            // SAFETY: the caller guarantees rules that no thread uses any more.
            drop(unsafe { Box::from_raw(rules) });
        }
    });
}

fn bits(name: &str, value: &str) -> Result<u8, Failure> {
    value.parse().map_err(|_| {
        Failure::invalid(format!("{name} is {}: allowed is a number of bits", value.escape_debug()))
    })
}
