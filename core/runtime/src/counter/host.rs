//! A clock of the host of a WebAssembly module, which has no counter to read in between: each call asks the host.

use polylimit_rules::units::MAX_US;

#[derive(Debug)]
pub(crate) struct CounterClock {
    /// The host's clock, in nanoseconds.
    system_ns: fn() -> u64,
}

impl CounterClock {
    pub(crate) fn new(system_ns: fn() -> u64) -> Self {
        Self { system_ns }
    }

    /// Microseconds of the host's clock.
    pub(crate) fn now_us(&self) -> u64 {
        ((self.system_ns)() / 1_000).min(MAX_US)
    }
}
