//! Servers in versions that this machine's release of Debian lacks.

use std::path::PathBuf;
use std::process::Command;

/// The program of a server that `tests/other_server` names, such as `valkey-9`, for [`ServerOptions::program`].
///
/// # Errors
///
/// Why it cannot be had here.
///
/// [`ServerOptions::program`]: crate::ServerOptions::program
pub fn other_server(name: &str) -> Result<PathBuf, String> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../other_server");
    let output = Command::new(script).arg(name).output().map_err(|error| format!("{script}: {error}"))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if output.status.success() {
        return Ok(text(&output.stdout).into());
    }
    Err(text(&output.stderr).lines().last().unwrap_or("no reason is given").to_owned())
}
