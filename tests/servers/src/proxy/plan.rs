//! How the proxy treats all bytes at the moment. Connections are numbered from 1; `..._to` names the last one affected.

use std::net::SocketAddr;
use std::time::Duration;

#[derive(Debug, Clone)]
pub(super) struct Plan {
    pub(super) upstream: SocketAddr,
    pub(super) latency: Duration,
    pub(super) jitter: Duration,
    pub(super) bandwidth: Option<u32>,
    /// By direction.
    pub(super) stalled: [bool; 2],
    pub(super) refusing: bool,
    pub(super) half_open_to: u64,
    pub(super) cut_to: u64,
    pub(super) reset_to: u64,
    pub(super) run: Run,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Run {
    Running,
    Ending,
}

impl Plan {
    pub(super) const fn passing(upstream: SocketAddr) -> Self {
        Self {
            upstream,
            latency: Duration::ZERO,
            jitter: Duration::ZERO,
            bandwidth: None,
            stalled: [false; 2],
            refusing: false,
            half_open_to: 0,
            cut_to: 0,
            reset_to: 0,
            run: Run::Running,
        }
    }

    /// What was done to connections stays done.
    pub(super) const fn pass(&mut self) {
        let Self { half_open_to, cut_to, reset_to, run, .. } = *self;
        *self = Self { half_open_to, cut_to, reset_to, run, ..Self::passing(self.upstream) };
    }
}
