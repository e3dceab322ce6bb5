//! Writes the sources of each language from the library.

fn main() {
    uniffi::uniffi_bindgen_main();
}
