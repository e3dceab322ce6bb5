//! A short pause that any executor can await, for a future that waits for something by which no task is woken.
//!
//! One thread of the process wakes the tasks. It knows nothing of what they wait for, uses no descriptor, starts with the first pause and
//! ends when there was none for a while. A forked child starts its own.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SendError, Sender, channel};
use std::task::{Poll, Waker};
use std::thread;
use std::time::Duration;

use arc_swap::ArcSwapOption;

use crate::fork::{self, ProcessGeneration};

/// How long a pause is, apart from the first one after none: that may be up to twice as long.
const PAUSE: Duration = Duration::from_millis(1);
/// The thread ends after this time without a pause.
const IDLE: Duration = Duration::from_secs(1);

static TIMER: ArcSwapOption<Timer> = ArcSwapOption::const_empty();

#[derive(Debug)]
struct Timer {
    generation: ProcessGeneration,
    pauses: Sender<Due>,
}

/// A task, which is woken when this is dropped, wherever that happens.
#[derive(Debug)]
struct Due(Waker);

impl Drop for Due {
    fn drop(&mut self) {
        self.0.wake_by_ref();
    }
}

/// Waits about a millisecond; less if the task is woken meanwhile.
pub async fn pause() {
    let mut is_begun = false;
    poll_fn(|context| {
        if std::mem::replace(&mut is_begun, true) {
            return Poll::Ready(());
        }
        wake_later(Due(context.waker().clone()));
        Poll::Pending
    })
    .await;
}

fn wake_later(mut due: Due) {
    loop {
        let timer = TIMER.load();
        if let Some(running) = timer.as_ref().filter(|timer| timer.generation.is_here()) {
            match running.pauses.send(due) {
                Ok(()) => return,
                // Its thread has ended.
                Err(SendError(back)) => due = back,
            }
        }
        // Without a thread the task is woken at once.
        let Some(started) = Timer::start() else { return };
        if let Some(of_parent) = timer.as_ref().filter(|timer| !timer.generation.is_here()) {
            fork::leave(Arc::clone(of_parent));
        }
        TIMER.compare_and_swap(&timer, Some(Arc::new(started)));
    }
}

impl Timer {
    fn start() -> Option<Self> {
        let (pauses, due) = channel();
        let thread = thread::Builder::new().name("polylimit-pause".to_owned());
        thread.spawn(move || wake_all(&due)).ok()?;
        Some(Self { generation: ProcessGeneration::here(), pauses })
    }
}

fn wake_all(pauses: &Receiver<Due>) {
    while let Ok(first) = pauses.recv_timeout(IDLE) {
        thread::sleep(PAUSE);
        // Tasks that are woken may pause again at once, for the next round.
        let others: Vec<Due> = pauses.try_iter().collect();
        drop((first, others));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::task::{Context, Wake};

    use super::*;
    use crate::park;

    struct Sends(Sender<()>);

    impl Wake for Sends {
        fn wake(self: Arc<Self>) {
            let _ = self.0.send(());
        }
    }

    #[test]
    fn task_is_woken_after_a_pause_without_any_runtime() {
        for _ in 0..3 {
            park::block_on(pause());
        }
    }

    #[test]
    fn tasks_that_pause_together_are_all_woken() {
        let (done, wakes) = mpsc::channel();
        let task = Arc::new(Sends(done)).into();
        let mut context = Context::from_waker(&task);
        let mut pauses: Vec<_> = (0..100).map(|_| Box::pin(pause())).collect();
        for pausing in &mut pauses {
            assert!(pausing.as_mut().poll(&mut context).is_pending());
        }
        for _ in 0..100 {
            wakes.recv_timeout(Duration::from_secs(60)).unwrap();
        }
        assert!(pauses.iter_mut().all(|pausing| pausing.as_mut().poll(&mut context).is_ready()));
    }

    /// What is sent to a thread that has just ended wakes its task all the same.
    #[test]
    fn task_is_woken_when_the_thread_has_ended() {
        let (done, wakes) = mpsc::channel();
        let (pauses, due) = channel();
        pauses.send(Due(Arc::new(Sends(done)).into())).unwrap();
        drop(due);
        wakes.recv_timeout(Duration::from_secs(60)).unwrap();
    }
}
