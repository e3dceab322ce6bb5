//! How long threads have stood in line for a processor, as the kernel counts it: time that nobody can be blamed for.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Duration;

pub(crate) struct RunQueue(Vec<File>);

impl RunQueue {
    /// For this thread, and the main threads of these processes.
    pub(crate) fn of(processes: &[u32]) -> Self {
        let this = File::open("/proc/thread-self/schedstat").unwrap();
        let others = processes.iter().map(|id| File::open(format!("/proc/{id}/schedstat")).unwrap());
        Self(others.chain([this]).collect())
    }

    /// So long altogether, since they were started.
    pub(crate) fn waited(&self) -> Duration {
        let nanos = self.0.iter().map(|file| {
            let mut bytes = [0; 64];
            let length = file.read_at(&mut bytes, 0).unwrap();
            // Time on a processor, time in line, turns.
            let text = std::str::from_utf8(&bytes[..length]).unwrap();
            text.split(' ').nth(1).unwrap().parse::<u64>().unwrap()
        });
        Duration::from_nanos(nanos.sum())
    }
}
