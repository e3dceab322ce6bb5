//! Limiters and runtimes of these tests, the slots of keys, time limits, and a lock for tests that measure time.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::thread;
use std::time::Duration;

use polylimit::Limiter;
use polylimit::storage::Outage;
pub(crate) use polylimit_redis_tests::current_thread_runtime as runtime;
use polylimit_redis_tests::{uncached, with};
use polylimit_test_servers::{SLOTS, Server};

static RUNNING_TESTS: RwLock<()> = RwLock::new(());

/// For a test that may run at the same time as others.
pub(crate) fn shared() -> RwLockReadGuard<'static, ()> {
    RUNNING_TESTS.read().unwrap_or_else(PoisonError::into_inner)
}

/// For a test that measures time or counts resources of the process: no other test runs at the same time.
pub(crate) fn exclusive() -> RwLockWriteGuard<'static, ()> {
    RUNNING_TESTS.write().unwrap_or_else(PoisonError::into_inner)
}

/// A limiter of one policy, `p`, that denies during an outage and does not cache denials. Unless the URL sets a deadline, it has one that
/// a busy machine does not miss.
pub(crate) fn limiter(url: &str, quotas: &str) -> Limiter {
    let url = if url.contains("deadline=") { url.to_owned() } else { with(url, "deadline=20s") };
    polylimit_redis_tests::limiter(uncached(&url), quotas, Outage::Deny)
}

pub(crate) fn keys(count: usize) -> Vec<String> {
    (0..count).map(|i| format!("user:{i}")).collect()
}

/// How many connections of limiters a server has.
pub(crate) fn connections(server: &Server) -> usize {
    let list: String = server.query(&["CLIENT", "LIST"]);
    list.lines().filter(|line| line.contains(" name=polylimit ")).count()
}

/// Runs `act` on a thread of its own and returns its result. Panics when `act` panics or does not return in time.
pub(crate) fn with_time_limit<T: Send + 'static>(act: impl FnOnce() -> T + Send + 'static) -> T {
    const TIME_LIMIT: Duration = Duration::from_secs(30);
    let (done, wait) = channel();
    let thread = thread::spawn(move || drop(done.send(act())));
    match wait.recv_timeout(TIME_LIMIT) {
        Ok(result) => result,
        Err(RecvTimeoutError::Timeout) => panic!("the operation did not end within {TIME_LIMIT:?}"),
        Err(RecvTimeoutError::Disconnected) => {
            std::panic::resume_unwind(thread.join().expect_err("the thread ended without a result"))
        }
    }
}

/// The time that threads have waited in a run queue, as the kernel counts it.
pub(crate) struct RunQueue(Vec<File>);

impl RunQueue {
    /// Of this thread and the main threads of these processes.
    pub(crate) fn of(processes: &[u32]) -> Self {
        let this = File::open("/proc/thread-self/schedstat").unwrap();
        let others = processes.iter().map(|id| File::open(format!("/proc/{id}/schedstat")).unwrap());
        Self(others.chain([this]).collect())
    }

    /// The sum since these threads started.
    pub(crate) fn waited(&self) -> Duration {
        let nanos = self.0.iter().map(|file| {
            let mut bytes = [0; 64];
            let length = file.read_at(&mut bytes, 0).unwrap();
            // The fields are: time on a processor, time in a run queue, time slices.
            let text = std::str::from_utf8(&bytes[..length]).unwrap();
            text.split(' ').nth(1).unwrap().parse::<u64>().unwrap()
        });
        Duration::from_nanos(nanos.sum())
    }
}

/// The slot of a user's key that contains only readable characters.
pub(crate) fn slot(key: &str) -> u16 {
    let crc = key.bytes().fold(0_u16, |crc, byte| {
        (0..8).fold(crc ^ u16::from(byte) << 8, |crc, _| (crc << 1) ^ if crc >> 15 == 1 { 0x1021 } else { 0 })
    });
    crc % SLOTS
}

/// Keys whose slots lie in this third of all slots, which the primary of this number serves in a cluster of three.
pub(crate) fn keys_of_third(third: u16, count: usize) -> Vec<String> {
    let in_third = |key: &String| u32::from(slot(key)) * 3 / u32::from(SLOTS) == u32::from(third);
    (0..).map(|i| format!("user:{i}")).filter(in_third).take(count).collect()
}

/// Keys of one slot.
pub(crate) fn keys_of_one_slot(count: usize) -> Vec<String> {
    let chosen = slot("user:0");
    (0..).map(|i| format!("user:{i}")).filter(|key| slot(key) == chosen).take(count).collect()
}
