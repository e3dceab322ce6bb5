//! Whom to count behind proxies.

use std::ffi::{CString, c_char};

use polylimit::ClientAddressRules;

use crate::failure::{Failure, MessageBuffer, guard_done, guard_quietly};
use crate::options::polylimit_option;
use crate::pointer::{array, bytes, handle, place};
use crate::status::polylimit_status;
use crate::text::{TextBuffer, foreign_text, text};

/// Who is trusted to say for whom a request was forwarded, and how much of an address is counted as one client. Any thread
/// may use it at any time.
pub struct polylimit_address_rules {
    rules: ClientAddressRules,
    header: Option<CString>,
}

/// One line of a header field: any bytes.
#[repr(C)]
pub struct polylimit_line {
    /// Where it starts; may be NULL when it is empty.
    pub start: *const c_char,
    /// How many bytes it has.
    pub length: usize,
}

/// Makes rules of `option_count` settings, by these names:
///
/// - `trust`, any number of times: an address, a network ("10.0.0.0/8"), "loopback", "link-local" or "private", whose
///   proxies are believed.
/// - `header`: the one header that those proxies write, "x-forwarded-for" or "forwarded".
/// - `ipv4_prefix` (0 to 32) and `ipv6_prefix` (0 to 128): how many bits of an address are counted as one client.
///
/// Without settings nobody is trusted, and the peer is the client. Freed by polylimit_address_rules_free.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polylimit_address_rules_new(
    options: *const polylimit_option,
    option_count: usize,
    rules_out: *mut *mut polylimit_address_rules,
    error_buffer: *mut c_char,
    error_capacity: usize,
) -> polylimit_status {
    // SAFETY: the caller owes the buffer.
    guard_done(unsafe { MessageBuffer::new(error_buffer, error_capacity) }, || {
        // SAFETY: the caller owes an array and a place.
        let (options, rules_out) =
            unsafe { (array(options, option_count, "options")?, place(rules_out, "rules_out")?) };
        let mut builder = ClientAddressRules::builder();
        for option in options {
            // SAFETY: the caller owes texts.
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

/// The name of the header field whose lines polylimit_address_rules_key needs; NULL when it needs none. It lives as long as the
/// rules.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polylimit_address_rules_header(
    rules: *const polylimit_address_rules,
) -> *const c_char {
    guard_quietly(std::ptr::null(), || {
        // SAFETY: the caller owes rules, or NULL.
        let header = unsafe { rules.as_ref() }.and_then(|rules| rules.header.as_ref());
        header.map_or(std::ptr::null(), |header| header.as_ptr())
    })
}

/// Writes what to limit a client by: one text for all addresses that are counted together, such as "203.0.113.7" or
/// "2001:db8:1:2::/64".
///
/// `peer` is the address of the other end of the socket, where a port, brackets and a zone are left out; for a Unix socket
/// "127.0.0.1". Text that is no address counts as "unknown", whatever it is, and no line is read then. `lines` are the
/// `line_count` lines of the header that the rules name, in the order in which they came. The length without the NUL goes
/// to `length_out`, which may be NULL, also when the buffer is too small for it; 64 bytes are always enough.
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
    // SAFETY: the caller owes the buffer.
    guard_done(unsafe { MessageBuffer::new(error_buffer, error_capacity) }, || {
        // SAFETY: the caller owes rules, a text and an array.
        let (rules, peer, lines) = unsafe {
            (handle(rules, "rules")?, foreign_text(peer, "peer")?, array(lines, line_count, "lines")?)
        };
        // SAFETY: the caller owes the bytes of each line.
        let lines = lines.iter().map(|line| unsafe { bytes(line.start.cast(), line.length, "a line") });
        let lines = lines.collect::<Result<Vec<&[u8]>, _>>()?;
        let key = rules.rules.key_of(&peer, lines);
        // SAFETY: the caller owes the buffer.
        unsafe { TextBuffer { start: buffer, capacity, length_out }.write(&key) }
    })
}

/// Frees rules. NULL is allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polylimit_address_rules_free(rules: *mut polylimit_address_rules) {
    guard_quietly((), || {
        if !rules.is_null() {
            // SAFETY: the caller owes rules that nobody uses any more.
            drop(unsafe { Box::from_raw(rules) });
        }
    });
}

fn bits(name: &str, value: &str) -> Result<u8, Failure> {
    value.parse().map_err(|_| {
        Failure::invalid(format!("{name} is {}: allowed is a number of bits", value.escape_debug()))
    })
}
