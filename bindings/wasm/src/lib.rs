//! The core as a WebAssembly module. It converts values; `ts/index.ts` gives them the names and the types of JavaScript.
//!
//! The store is the memory of the module, which answers every call at once, so nothing here is asynchronous.

// What is exported to JavaScript is public, and reachable by nothing in Rust.
#![allow(unreachable_pub, reason = "wasm-bindgen exports what is public")]
#![allow(clippy::missing_errors_doc, reason = "each error is one of the core")]
#![allow(clippy::needless_pass_by_value, reason = "wasm-bindgen passes values of JavaScript so")]

mod answers;
mod arguments;
mod limiter;
mod request;
#[cfg(feature = "simulation")]
mod simulation;
mod values;

use wasm_bindgen::prelude::wasm_bindgen;

/// A panic is a defect of polylimit. It becomes an exception with its message, and the module is not usable after it.
#[wasm_bindgen(start)]
pub fn start() {
    std::panic::set_hook(Box::new(|panic| {
        wasm_bindgen::throw_str(&format!("polylimit panicked, which is a defect in it: {panic}"));
    }));
}

/// The version of polylimit.
#[wasm_bindgen]
pub fn version() -> String {
    env!("CARGO_PKG_VERSION").to_owned()
}
