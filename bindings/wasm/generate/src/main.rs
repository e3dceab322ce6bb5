//! Writes the JavaScript and the types of a WebAssembly module: `generate MODULE FOLDER`.
//!
//! This is what the program `wasm-bindgen` does with `--target web`; as a library its version is pinned by a lock file.

use std::process::ExitCode;

use wasm_bindgen_cli_support::Bindgen;

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    let [module, folder] = arguments.as_slice() else {
        eprintln!("usage: generate MODULE FOLDER");
        return ExitCode::from(64);
    };
    let mut bindgen = Bindgen::new();
    let written = bindgen.input_path(module).out_name("polylimit").typescript(true).web(true);
    match written.and_then(|bindgen| bindgen.generate(folder)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}
