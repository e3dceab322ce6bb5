//! The program `polylimit`.

use std::process::ExitCode;

use polylimit_cli::{Terminal, run};

/// A call of `serve` takes a sixth less time with it than with the allocator of glibc: docs/internals/server.md.
#[cfg(feature = "serve")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    ExitCode::from(run(std::env::args_os(), &mut Terminal::of_process()))
}
