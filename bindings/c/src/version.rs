//! The versions of the header and of the library.

use std::ffi::{CStr, c_char};

/// The number in the soname of the shared library that belongs to this header. It changes when programs that were built with
/// an older header cannot use the library.
pub const POLYLIMIT_ABI_VERSION: u32 = 0;

/// The major version of this header. Programs test for later additions with POLYLIMIT_VERSION; polylimit_version() is the
/// version of the running library.
pub const POLYLIMIT_VERSION_MAJOR: u32 = 0;
/// See POLYLIMIT_VERSION_MAJOR.
pub const POLYLIMIT_VERSION_MINOR: u32 = 1;
/// See POLYLIMIT_VERSION_MAJOR.
pub const POLYLIMIT_VERSION_PATCH: u32 = 0;
/// The version of this header as one increasing number: major * 1000000 + minor * 1000 + patch.
pub const POLYLIMIT_VERSION: u32 =
    POLYLIMIT_VERSION_MAJOR * 1_000_000 + POLYLIMIT_VERSION_MINOR * 1_000 + POLYLIMIT_VERSION_PATCH;

/// The version of the running library, such as "1.2.3". Never NULL; not to be freed.
#[unsafe(no_mangle)]
pub extern "C" fn polylimit_version() -> *const c_char {
    const VERSION: &CStr =
        match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
            Ok(version) => version,
            Err(_) => c"",
        };
    VERSION.as_ptr()
}

/// The POLYLIMIT_ABI_VERSION of the running library. Programs that load it with dlopen compare it with their own.
#[unsafe(no_mangle)]
pub extern "C" fn polylimit_abi_version() -> u32 {
    POLYLIMIT_ABI_VERSION
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_version_is_the_crate_version() {
        let parts = [POLYLIMIT_VERSION_MAJOR, POLYLIMIT_VERSION_MINOR, POLYLIMIT_VERSION_PATCH];
        assert_eq!(parts.map(|part| part.to_string()).join("."), env!("CARGO_PKG_VERSION"));
        assert_eq!(POLYLIMIT_VERSION, parts[0] * 1_000_000 + parts[1] * 1_000 + parts[2]);
    }

    #[test]
    fn soname_has_the_abi_version() {
        assert_eq!(env!("POLYLIMIT_SONAME_VERSION"), polylimit_abi_version().to_string());
        // SAFETY: it is a static text.
        let version = unsafe { CStr::from_ptr(polylimit_version()) };
        assert_eq!(version.to_str(), Ok(env!("CARGO_PKG_VERSION")));
    }
}
