//! Gives the shared library the name under which programs look for it when they start.

/// The number in the name of the shared library; as in `src/version.rs`, which a test compares.
const ABI_VERSION: u32 = 0;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libpolylimit.so.{ABI_VERSION}");
    println!("cargo:rustc-env=POLYLIMIT_SONAME_VERSION={ABI_VERSION}");
}
