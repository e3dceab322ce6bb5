//! The stages of a server's life, and how long a connection is awaited in the last ones.

use std::time::Duration;

use tokio::sync::watch;

/// Once the server stops, a connection ends after this much silence: a request that was sent before its client could know is answered.
pub(crate) const SILENCE: Duration = Duration::from_millis(250);
/// The same for a connection without a first request, whose client has just connected.
pub(crate) const FIRST_SILENCE: Duration = Duration::from_secs(1);

/// A stage of a server's life; each follows the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    Serving,
    /// New clients are still answered; connections end once they have their answers.
    Draining,
    /// The listeners are closed. Connections whose clients never pause end as well.
    Closing,
}

/// The stage of a server.
pub(crate) struct Life(watch::Sender<Stage>);

impl Default for Life {
    fn default() -> Self {
        Self(watch::Sender::new(Stage::Serving))
    }
}

impl Life {
    /// Goes on to a stage. Does nothing where it is reached.
    pub(crate) fn advance(&self, stage: Stage) {
        self.0.send_if_modified(|now| {
            let is_later = *now < stage;
            *now = stage.max(*now);
            is_later
        });
    }

    pub(crate) fn has_reached(&self, stage: Stage) -> bool {
        *self.0.borrow() >= stage
    }

    /// Follows the stages from here on.
    pub(crate) fn follow(&self) -> Follower {
        Follower(self.0.subscribe())
    }
}

/// Follows the stages of a server.
#[derive(Clone)]
pub(crate) struct Follower(watch::Receiver<Stage>);

impl Follower {
    pub(crate) fn has_reached(&self, stage: Stage) -> bool {
        *self.0.borrow() >= stage
    }

    /// Waits for a stage.
    pub(crate) async fn reach(&mut self, stage: Stage) {
        // A server that is gone has reached every stage.
        let _ = self.0.wait_for(|now| *now >= stage).await;
    }
}
