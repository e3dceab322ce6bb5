//! Which library this is.

use std::ffi::{CStr, c_char};

/// The number in the name of the shared library that goes with this header. It changes when programs that were built
/// with an older header cannot use the library any more.
pub const POLYLIMIT_ABI_VERSION: u32 = 0;

/// The version of this header. Programs compare with POLYLIMIT_VERSION what was added since; polylimit_version() is the
/// library that is running.
pub const POLYLIMIT_VERSION_MAJOR: u32 = 0;
/// See POLYLIMIT_VERSION_MAJOR.
pub const POLYLIMIT_VERSION_MINOR: u32 = 1;
/// See POLYLIMIT_VERSION_MAJOR.
pub const POLYLIMIT_VERSION_PATCH: u32 = 0;
/// The version of this header as one number that grows: major * 1000000 + minor * 1000 + patch.
pub const POLYLIMIT_VERSION: u32 =
    POLYLIMIT_VERSION_MAJOR * 1_000_000 + POLYLIMIT_VERSION_MINOR * 1_000 + POLYLIMIT_VERSION_PATCH;

/// The version of the library that is running, such as "0.1.0". Never NULL; not to be freed.
#[unsafe(no_mangle)]
pub extern "C" fn polylimit_version() -> *const c_char {
    const VERSION: &CStr =
        match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
            Ok(version) => version,
            Err(_) => c"",
        };
    VERSION.as_ptr()
}

/// The POLYLIMIT_ABI_VERSION of the library that is running; programs that load it by hand compare it with theirs.
#[unsafe(no_mangle)]
pub extern "C" fn polylimit_abi_version() -> u32 {
    POLYLIMIT_ABI_VERSION
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_has_the_version_of_the_crate() {
        let parts = [POLYLIMIT_VERSION_MAJOR, POLYLIMIT_VERSION_MINOR, POLYLIMIT_VERSION_PATCH];
        assert_eq!(parts.map(|part| part.to_string()).join("."), env!("CARGO_PKG_VERSION"));
        assert_eq!(POLYLIMIT_VERSION, parts[0] * 1_000_000 + parts[1] * 1_000 + parts[2]);
    }

    #[test]
    fn the_name_of_the_shared_library_has_the_abi_version() {
        assert_eq!(env!("POLYLIMIT_SONAME_VERSION"), polylimit_abi_version().to_string());
        // SAFETY: it is a static text.
        let version = unsafe { CStr::from_ptr(polylimit_version()) };
        assert_eq!(version.to_str(), Ok(env!("CARGO_PKG_VERSION")));
    }
}
