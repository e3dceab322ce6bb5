//! The program `polylimit`.

use std::process::ExitCode;

use polylimit_cli::{Terminal, run};

fn main() -> ExitCode {
    ExitCode::from(run(std::env::args_os(), &mut Terminal::of_process()))
}
