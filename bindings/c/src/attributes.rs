//! The attributes of a request: what a configuration finds its limits by.

use polylimit::document::{RequestAttributes, RouterPaths};

use crate::arguments::{Sized32, array, bytes, sized};
use crate::client_address::polylimit_line;
use crate::error::Failure;

/// The router ignores the case of letters, so that `/LOGIN` is `/login`.
pub const POLYLIMIT_PATHS_IGNORE_CASE: u32 = 1;
/// The router drops what follows a `;` in each segment, as in `/login;jsessionid=1`.
pub const POLYLIMIT_PATHS_DROP_PARAMETERS: u32 = 2;
/// The router accepts a format after the path, as in `/login.json`.
pub const POLYLIMIT_PATHS_DROP_SUFFIX: u32 = 4;
/// How the router treats dot segments and escaped slashes is not known: a request counts under the rules for each way to read its path.
/// A guard that decides by the configuration always does so.
pub const POLYLIMIT_PATHS_EVERY_READING: u32 = 8;

/// A name with its value, such as a line of a header: any bytes.
#[repr(C)]
pub struct polylimit_pair {
    /// The name.
    pub name: polylimit_line,
    /// The value.
    pub value: polylimit_line,
}

/// What a program says about a request, so that the configuration finds the limits of it. An empty value is the same as none.
#[repr(C)]
pub struct polylimit_attributes {
    /// sizeof(polylimit_attributes), set by the caller.
    pub size: u32,
    /// How the router reads paths, where it does not compare them byte by byte: a sum of POLYLIMIT_PATHS_IGNORE_CASE and the constants
    /// after it, or 0. The table `paths` of a document wins over it.
    pub router_paths: u32,
    /// The method, such as GET, as the client sent it.
    pub method: polylimit_line,
    /// The path as the router sees it, with its escapes and every prefix that was stripped. Scheme and authority before it and a query
    /// after it are ignored.
    pub path: polylimit_line,
    /// The other end of the socket: an address, with or without a port, or any other text, in UTF-8.
    pub peer: polylimit_line,
    /// Each line of each header, in the order in which they came. Names are in any case.
    pub headers: *const polylimit_pair,
    /// The number of elements of `headers`.
    pub header_count: usize,
    /// What the program knows of the request, such as `user`, `plan` or `route`: the pattern that the router has matched, with every
    /// prefix, such as `/v1/users/{id}`. A name is a letter and then letters, digits and `_`, all in
    /// lower case. Of two values of one name the later one counts.
    pub attributes: *const polylimit_pair,
    /// The number of elements of `attributes`.
    pub attribute_count: usize,
}

// SAFETY: the first field is the size.
unsafe impl Sized32 for polylimit_attributes {
    const NAME: &'static str = "attributes";
    const MIN_SIZE: u32 = 88;
}

/// Reads attributes; they refer to the caller's texts.
///
/// # Safety
/// `given` is NULL or points at attributes, whose texts and arrays have the lengths that they say and do not change while the
/// result is used.
pub(crate) unsafe fn request_attributes<'a>(
    given: *const polylimit_attributes,
) -> Result<RequestAttributes<'a>, Failure> {
    // SAFETY: the caller guarantees all of it.
    unsafe {
        let given = sized(given)?;
        let mut request =
            RequestAttributes::new().method(line(&given.method, "method")?).path(line(&given.path, "path")?);
        request = request.router_paths(RouterPaths::from_bits(given.router_paths));
        let peer = line(&given.peer, "peer")?;
        if !peer.is_empty() {
            request = request.peer(utf8(peer, "peer")?);
        }
        for header in array(given.headers, given.header_count, "headers")? {
            request =
                request.header(line(&header.name, "a header's name")?, line(&header.value, "a header")?);
        }
        for attribute in array(given.attributes, given.attribute_count, "attributes")? {
            let name = utf8(line(&attribute.name, "an attribute's name")?, "an attribute's name")?;
            request = request.attribute(name, line(&attribute.value, "an attribute")?);
        }
        Ok(request)
    }
}

/// # Safety
/// `start` is NULL or points at `length` bytes, which stay as they are.
unsafe fn line<'a>(line: &polylimit_line, name: &str) -> Result<&'a [u8], Failure> {
    // SAFETY: the caller guarantees it.
    unsafe { bytes(line.start.cast(), line.length, name) }
}

fn utf8<'a>(text: &'a [u8], name: &str) -> Result<&'a str, Failure> {
    std::str::from_utf8(text).map_err(|_| Failure::invalid(format!("{name} is not UTF-8")))
}
