//! A counter that restarts every period.
//!
//! # Derivation
//!
//! A window starts with the first request that spends in it and lasts one period; with `aligned` it starts at the
//! latest multiple of the period since the epoch, and by the calendar on the [dates](crate::quota::calendar) of its unit.
//! Within it, `allowed = count + cost <= capacity`. Each window admits at
//! most the capacity; two that meet can admit twice that within one period, around the boundary.
//!
//! A window whose count is back at 0 is over. A window that started under other numbers still ends one period after its
//! start.
//!
//! # Worked example
//!
//! `5/minute fixed_window aligned`: five requests at 59 s pass and the sixth has to wait 1 s, for the window that
//! starts at 60 s. Without `aligned` the window starts at 59 s, and the sixth would wait 60 s.

use std::ops::Range;

use crate::algorithm::Rules;
use crate::quota::Quota;
use crate::quota::calendar::Calendar;
use crate::quota::tick::SATURATION;

#[derive(Clone, Debug)]
pub struct FixedWindow {
    capacity: u64,
    windows: Windows,
}

/// Where windows start and end.
#[derive(Clone, Debug)]
enum Windows {
    /// One period after the first request.
    Floating(u64),
    /// At multiples of the period.
    Aligned(u64),
    Calendar(Calendar),
    /// The window by the calendar in which all decisions are, for as long as these rules are used.
    Known(Range<u64>),
}

#[derive(Clone, Copy, Debug, Default)]
pub struct State {
    pub(crate) count: u64,
    pub(crate) start_us: u64,
}

impl FixedWindow {
    pub(crate) fn new(quota: &Quota) -> Self {
        let windows = match quota.calendar() {
            Some(calendar) => Windows::Calendar(calendar.clone()),
            None if quota.aligned() => Windows::Aligned(quota.period_us()),
            None => Windows::Floating(quota.period_us()),
        };
        Self { capacity: quota.capacity(), windows }
    }

    /// The same by the calendar, for decisions within this window.
    pub(crate) fn within(quota: &Quota, window_us: Range<u64>) -> Self {
        Self { capacity: quota.capacity(), windows: Windows::Known(window_us) }
    }

    /// Where a window that begins now starts.
    fn start_us(&self, now_us: u64) -> u64 {
        match &self.windows {
            Windows::Floating(_) => now_us,
            Windows::Aligned(period_us) => now_us - now_us % period_us,
            Windows::Calendar(calendar) => calendar.window_us(now_us).start,
            Windows::Known(window_us) => window_us.start,
        }
    }

    /// The state at `now_us`: a window that is over becomes a new one, and one that is ahead of the clock is moved back.
    fn as_of(&self, state: State, now_us: u64) -> State {
        let is_over = match &self.windows {
            Windows::Floating(period_us) | Windows::Aligned(period_us) => {
                state.start_us <= now_us && now_us - state.start_us >= *period_us
            }
            Windows::Calendar(calendar) => state.start_us < calendar.window_us(now_us).start,
            Windows::Known(window_us) => state.start_us < window_us.start,
        };
        if state.count == 0 || is_over {
            State { count: 0, start_us: self.start_us(now_us) }
        } else if state.start_us > now_us {
            State { count: state.count, start_us: self.start_us(now_us) }
        } else {
            state
        }
    }

    fn ends_after_us(&self, state: State, now_us: u64) -> u64 {
        match &self.windows {
            Windows::Floating(period_us) | Windows::Aligned(period_us) => state.start_us + period_us - now_us,
            Windows::Calendar(calendar) => calendar.window_us(now_us).end - now_us,
            Windows::Known(window_us) => window_us.end.saturating_sub(now_us),
        }
    }
}

impl Rules for FixedWindow {
    type State = State;

    fn remaining(&self, state: &State, now_us: u64) -> u64 {
        self.capacity.saturating_sub(self.as_of(*state, now_us).count)
    }

    fn room(&self, state: &State, now_us: u64) -> u64 {
        (SATURATION * self.capacity).saturating_sub(self.as_of(*state, now_us).count)
    }

    fn spend(&self, state: &mut State, now_us: u64, units: u64) {
        *state = self.as_of(*state, now_us);
        state.count += units;
    }

    fn refund(&self, state: &mut State, now_us: u64, units: u64) {
        *state = self.as_of(*state, now_us);
        state.count = state.count.saturating_sub(units);
    }

    fn rewind(&self, state: &mut State, now_us: u64) -> bool {
        let ahead = state.start_us > now_us;
        if ahead {
            *state = self.as_of(*state, now_us);
        }
        ahead
    }

    fn retry_after_us(&self, state: &State, now_us: u64, _cost: u64) -> u64 {
        self.ends_after_us(self.as_of(*state, now_us), now_us)
    }

    fn reset_after_us(&self, state: &State, now_us: u64) -> u64 {
        let state = self.as_of(*state, now_us);
        if state.count == 0 { 0 } else { self.ends_after_us(state, now_us) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithm::testing::{SECOND, quota};

    #[test]
    fn the_worked_example() {
        for (text, wait_us) in
            [("5/minute fixed_window aligned", SECOND), ("5/minute fixed_window", 60 * SECOND)]
        {
            let window = FixedWindow::new(&quota(text));
            let mut state = State::default();
            window.spend(&mut state, 59 * SECOND, 5);
            assert_eq!(window.remaining(&state, 59 * SECOND), 0);
            assert_eq!(window.retry_after_us(&state, 59 * SECOND, 1), wait_us, "{text}");
            assert_eq!(window.remaining(&state, 59 * SECOND + wait_us - 1), 0);
            assert_eq!(window.remaining(&state, 59 * SECOND + wait_us), 5);
        }
    }

    #[test]
    fn a_window_whose_count_is_back_at_nothing_is_over() {
        let window = FixedWindow::new(&quota("5/minute fixed_window"));
        let mut state = State::default();
        window.spend(&mut state, 0, 2);
        window.refund(&mut state, SECOND, 2);
        window.spend(&mut state, 2 * SECOND, 1);
        assert_eq!(window.reset_after_us(&state, 2 * SECOND), 60 * SECOND);
    }

    #[test]
    fn an_aligned_window_keeps_what_was_used_before_it_was_aligned() {
        let (before, after) = (
            FixedWindow::new(&quota("5/minute fixed_window")),
            FixedWindow::new(&quota("5/minute fixed_window aligned")),
        );
        let mut state = State::default();
        before.spend(&mut state, 50 * SECOND, 5);
        assert_eq!(after.remaining(&state, 70 * SECOND), 0);
        assert_eq!(after.retry_after_us(&state, 70 * SECOND, 1), 40 * SECOND);
    }
}
