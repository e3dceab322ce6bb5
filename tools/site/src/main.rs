//! Builds the site: `polylimit-site [FOLDER]`, by default into `target/site` of the repository.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

fn main() -> ExitCode {
    let repository = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    let folder = std::env::args_os().nth(1).map_or_else(|| repository.join("target/site"), PathBuf::from);
    match polylimit_site::build(repository, &folder) {
        Ok(pages) => {
            let start = folder.join("index.html");
            println!("{pages} pages: {}", start.canonicalize().unwrap_or(start).display());
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}
