//! Sets the name by which programs find the shared library: the soname, or on macOS the install name.

/// The number in the soname. A test compares it with `src/version.rs`.
const ABI_VERSION: u32 = 0;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_VENDOR").is_ok_and(|vendor| vendor == "apple") {
        println!("cargo:rustc-cdylib-link-arg=-Wl,-install_name,@rpath/libpolylimit.{ABI_VERSION}.dylib");
    } else if std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|system| system != "windows") {
        println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libpolylimit.so.{ABI_VERSION}");
    }
    println!("cargo:rustc-env=POLYLIMIT_SONAME_VERSION={ABI_VERSION}");
}
