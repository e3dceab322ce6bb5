//! A test in a process of its own, whose memory can be told from that of other tests.

use std::process::Command;
use std::sync::{Mutex, PoisonError};

const MARK: &str = "POLYLIMIT_TEST_ALONE";

/// Runs the body of the test of this name in another process, one such test at a time.
pub(crate) fn alone(test: &str, body: impl FnOnce()) {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    if std::env::var_os(MARK).is_some() {
        body();
        return;
    }
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(MARK, "1")
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&output.stdout);
    println!("{told}{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && told.contains("1 passed"), "{test} failed in a process of its own");
}

/// How many bytes of memory this process has.
pub(crate) fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    let kilobytes: u64 = line.trim().strip_suffix(" kB").unwrap().parse().unwrap();
    kilobytes << 10
}
