//! How late a command may run because the server's clock was set back: by as much as the process has not learnt of.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

/// An answer by the server, after which a process knows the server's time.
#[derive(Clone, Copy, Debug)]
struct Learnt {
    at: Instant,
    /// When the server executed what it answered.
    executed: Instant,
    /// How much the process may be ahead of the server's time after that: as long as its command was on its way.
    ahead: Duration,
}

/// The steps of the servers' clocks, and what processes have learnt of them. A place is a server as a process sees it.
#[derive(Debug, Default)]
pub(super) struct ServerClocks {
    /// Steps back, by place.
    steps: Vec<(usize, Instant, Duration)>,
    learnt: BTreeMap<(usize, usize), Vec<Learnt>>,
}

impl ServerClocks {
    /// The clock was set back.
    pub(super) fn step_back(&mut self, place: usize, by: Duration) {
        self.steps.push((place, Instant::now(), by));
    }

    /// A process was answered what it had asked then, and what was executed then.
    pub(super) fn learn(&mut self, process: usize, place: usize, asked: Instant, executed: Instant) {
        let learnt = Learnt { at: Instant::now(), executed, ahead: executed - asked };
        self.learnt.entry((process, place)).or_default().push(learnt);
    }

    /// How late a command may run now that was issued then: by what the process may have been ahead while it could send.
    pub(super) fn may_be_late(&self, process: usize, place: usize, issued: Instant) -> Duration {
        if self.steps.is_empty() {
            return Duration::ZERO;
        }
        let learnt = self.learnt.get(&(process, place)).map_or(&[][..], Vec::as_slice);
        let before = learnt.partition_point(|one| one.at < issued);
        let ends = learnt[before..].iter().map(|one| one.at).chain([Instant::now()]);
        let ahead = |(number, until): (usize, Instant)| {
            let last = (before + number).checked_sub(1).map(|last| learnt[last]);
            let steps = self.steps.iter().filter(|(of, at, _)| {
                *of == place && *at <= until && last.is_none_or(|last| *at >= last.executed)
            });
            let missed: Duration = steps.map(|(_, _, by)| *by).sum();
            // Without a step the estimate is never ahead.
            if self.steps.iter().any(|(_, at, _)| *at <= until) {
                last.map_or(Duration::ZERO, |last| last.ahead) + missed
            } else {
                Duration::ZERO
            }
        };
        ends.enumerate().map(ahead).max().unwrap_or_default()
    }
}
