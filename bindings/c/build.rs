//! Sets the soname of the shared library.

/// The number in the soname. A test compares it with `src/version.rs`.
const ABI_VERSION: u32 = 0;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libpolylimit.so.{ABI_VERSION}");
    println!("cargo:rustc-env=POLYLIMIT_SONAME_VERSION={ABI_VERSION}");
}
