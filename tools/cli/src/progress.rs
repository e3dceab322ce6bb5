//! The progress of a command, shown on standard error of a terminal.

use std::thread::{self, JoinHandle};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::terminal::Terminal;

/// How often a bar that follows something is drawn.
const REFRESHED: Duration = Duration::from_millis(200);

/// A bar that goes away when this is dropped. Where no terminal is to see it, there is none.
pub(crate) struct Progress {
    bar: ProgressBar,
    ticker: Option<JoinHandle<()>>,
}

impl Progress {
    /// A bar of this form, as indicatif's templates are, towards a length, or without one a number that grows.
    pub(crate) fn new(terminal: &Terminal, template: &str, length: Option<u64>) -> Self {
        let target = if terminal.shows_progress() {
            ProgressDrawTarget::stderr()
        } else {
            ProgressDrawTarget::hidden()
        };
        let bar = ProgressBar::with_draw_target(length, target);
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        bar.tick();
        Self { bar, ticker: None }
    }

    /// Follows what a function returns until this is dropped.
    pub(crate) fn following(mut self, position: impl Fn() -> u64 + Send + 'static) -> Self {
        if self.bar.is_hidden() {
            return self;
        }
        let bar = self.bar.clone();
        self.ticker = Some(thread::spawn(move || {
            while !bar.is_finished() {
                bar.set_position(position());
                bar.tick();
                thread::park_timeout(REFRESHED);
            }
        }));
        self
    }

    pub(crate) fn set(&self, position: u64) {
        self.bar.set_position(position);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
        if let Some(ticker) = self.ticker.take() {
            ticker.thread().unpark();
            // A thread that only draws has no failure to report.
            let _ = ticker.join();
        }
    }
}
