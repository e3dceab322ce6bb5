//! A system clock of one process that a test moves while the process runs.
//!
//! libfaketime reads the offset from a file at every look at the clock. The monotonic clock stays as it is. It does not
//! go together with jemalloc, which looks at the clock before libfaketime is ready and then hangs; so the server gets the
//! C library's allocator. Redis takes that; Valkey calls jemalloc by names that only jemalloc has, and cannot have it.

use std::fs;
use std::path::{Path, PathBuf};

/// The system clock of a process that runs with its [`environment`](Self::environment).
#[derive(Debug)]
pub struct FakeClock {
    file: PathBuf,
}

impl FakeClock {
    /// A clock whose offset stands in a file of the folder `dir`.
    pub fn new(dir: &Path) -> Self {
        let clock = Self { file: dir.join("clock") };
        clock.set_offset_us(0);
        clock
    }

    /// The variables that the process has to be started with.
    pub fn environment(&self) -> Vec<(&'static str, String)> {
        vec![
            ("LD_PRELOAD", format!("{}:libc.so.6", library().display())),
            ("FAKETIME_TIMESTAMP_FILE", self.file.display().to_string()),
            ("FAKETIME_NO_CACHE", "1".into()),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1".into()),
        ]
    }

    /// Moves the clock to this much from the true time.
    pub fn set_offset_us(&self, offset_us: i64) {
        let sign = if offset_us < 0 { '-' } else { '+' };
        let us = offset_us.unsigned_abs();
        // The server never sees half a file.
        let draft = self.file.with_extension("draft");
        fs::write(&draft, format!("{sign}{}.{:06}\n", us / 1_000_000, us % 1_000_000))
            .expect("the clock's file");
        fs::rename(&draft, &self.file).expect("the clock's file");
    }
}

/// The library, in the folder of whatever architecture this is.
fn library() -> PathBuf {
    let folders = fs::read_dir("/usr/lib").expect("/usr/lib").flatten();
    let mut candidates = folders.map(|folder| folder.path().join("faketime/libfaketimeMT.so.1"));
    candidates.find(|path| path.exists()).expect("libfaketime is not installed: run tests/setup")
}
