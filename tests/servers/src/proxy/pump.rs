//! One direction of a connection: reads, delays, alters and writes.

use std::collections::VecDeque;
use std::time::Duration;

use fastrand::Rng;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::time::{Instant, sleep_until};

use super::Shared;
use super::connection::End;
use super::fault::{Direction, Fault, Progress};
use super::message::Scanner;

/// The bytes that are buffered before the proxy stops reading from the sender.
const MAX_BUFFERED: usize = 4 << 20;

pub(super) struct Pump<'a> {
    shared: &'a Shared,
    connection: u64,
    direction: Direction,
    queue: VecDeque<(Instant, Item)>,
    held: usize,
    /// No item is due before the one in front of it.
    last_due: Instant,
    jitter: Rng,
    progress: Progress,
    scanner: Scanner,
    /// The bytes of an incomplete reply.
    partial: Vec<u8>,
    muted: bool,
}

#[derive(Debug)]
enum Item {
    Bytes(Vec<u8>),
    End(End),
    /// The sender is done, and ends in order.
    Finish,
}

impl<'a> Pump<'a> {
    pub(super) fn new(shared: &'a Shared, connection: u64, direction: Direction) -> Self {
        let stream = connection * 2 + direction.index() as u64;
        Self {
            shared,
            connection,
            direction,
            queue: VecDeque::new(),
            held: 0,
            last_due: Instant::now(),
            jitter: jitter(shared.seed, stream),
            progress: Progress::default(),
            scanner: Scanner::default(),
            partial: Vec::new(),
            muted: false,
        }
    }

    /// Returns when the sender is done and the receiver knows it; an error ends the other direction too.
    pub(super) async fn run(mut self, mut from: ReadHalf<'_>, mut to: WriteHalf<'_>) -> Result<(), End> {
        let mut plans = self.shared.plan.subscribe();
        let mut buffer = vec![0; 64 << 10];
        let mut finished = false;
        loop {
            let plan = plans.borrow_and_update().clone();
            let half_open = self.connection <= plan.half_open_to;
            if half_open {
                self.queue.clear();
                self.held = 0;
                if finished && self.direction == Direction::Replies {
                    // The client does not learn of the end.
                    return std::future::pending().await;
                }
                if finished {
                    // The client has ended, so the connection to the server can end, too.
                    return Err(End::Cut);
                }
            }
            let stalled = plan.stalled[self.direction.index()];
            let due = self.queue.front().map(|(due, _)| *due).filter(|_| !stalled);
            if due.is_some_and(|due| due <= Instant::now()) {
                if self.write(&mut to, plan.bandwidth).await? {
                    return Ok(());
                }
                continue;
            }
            tokio::select! {
                biased;
                changed = plans.changed() => changed.map_err(|_| End::Cut)?,
                () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {}
                read = from.read(&mut buffer), if !finished && self.held < MAX_BUFFERED => {
                    // The plan may have changed since the wait began.
                    let plan = self.shared.plan.borrow().clone();
                    let half_open = self.connection <= plan.half_open_to;
                    let Ok(count) = read else {
                        if half_open && self.direction == Direction::Replies {
                            return std::future::pending().await;
                        }
                        return Err(End::Reset);
                    };
                    let delay = plan.latency + plan.jitter.mul_f64(self.jitter.f64());
                    if count == 0 {
                        finished = true;
                        self.push(delay, Item::Finish);
                    } else {
                        self.shared.counters.add_bytes(self.direction, count);
                        if self.direction == Direction::Requests {
                            self.shared.counters.add_request_bytes(self.connection, &buffer[..count]);
                        }
                        self.take(&buffer[..count], delay);
                    }
                }
            }
        }
    }

    fn push(&mut self, delay: Duration, item: Item) {
        if let Item::Bytes(bytes) = &item {
            self.held += bytes.len();
        }
        self.last_due = self.last_due.max(Instant::now() + delay);
        self.queue.push_back((self.last_due, item));
    }

    /// Queues the bytes, as changed by a fault.
    fn take(&mut self, bytes: &[u8], delay: Duration) {
        let mut bytes = self.scan(bytes);
        if self.muted {
            return;
        }
        let triggered = self.shared.armed.take(self.direction, &mut self.progress, bytes.len());
        let mut end = None;
        match triggered {
            None => {}
            Some((at, Fault::Flip(bits))) => bytes[at] ^= bits,
            Some((at, Fault::Insert(inserted))) => drop(bytes.splice(at..at, inserted)),
            Some((at, Fault::Stall)) => {
                bytes.truncate(at);
                self.muted = true;
            }
            Some((at, Fault::Cut)) => {
                bytes.truncate(at);
                end = Some(End::Cut);
            }
            Some((at, Fault::Reset)) => {
                bytes.truncate(at);
                end = Some(End::Reset);
            }
        }
        if !bytes.is_empty() {
            self.push(delay, Item::Bytes(bytes));
        }
        if let Some(end) = end {
            self.push(delay, Item::End(end));
        }
    }

    /// Counts commands, and repeats the reply that is to be sent twice.
    fn scan(&mut self, bytes: &[u8]) -> Vec<u8> {
        let messages = self.scanner.read(bytes);
        if self.direction == Direction::Requests {
            self.shared.counters.add_commands(messages.iter().map(|message| message.name.as_slice()));
            return bytes.to_vec();
        }
        let mut passed = Vec::with_capacity(bytes.len());
        let mut start = 0;
        for message in messages {
            let piece = &bytes[start..message.end];
            passed.extend_from_slice(piece);
            if self.shared.armed.take_duplicate() {
                passed.extend_from_slice(&self.partial);
                passed.extend_from_slice(piece);
            }
            self.partial.clear();
            start = message.end;
        }
        passed.extend_from_slice(&bytes[start..]);
        if !self.scanner.is_lost() {
            self.partial.extend_from_slice(&bytes[start..]);
        }
        passed
    }

    /// Writes what is first in the queue, or as much of it as the bandwidth allows; true when it was the end.
    async fn write(&mut self, to: &mut WriteHalf<'_>, bandwidth: Option<u32>) -> Result<bool, End> {
        let Some((due, item)) = self.queue.pop_front() else { return Ok(false) };
        match item {
            Item::Finish => {
                to.shutdown().await.map_err(|_| End::Reset)?;
                Ok(true)
            }
            Item::End(end) => Err(end),
            Item::Bytes(mut bytes) => {
                if let Some(rate) = bandwidth {
                    // A hundredth of a second's worth at a time.
                    let share = usize::try_from((rate / 100).max(1)).unwrap_or(usize::MAX).min(bytes.len());
                    let rest = bytes.split_off(share);
                    let next = due.max(Instant::now()) + Duration::from_secs(share as u64) / rate.max(1);
                    if !rest.is_empty() {
                        self.queue.push_front((next, Item::Bytes(rest)));
                    }
                    if let Some((due, _)) = self.queue.front_mut() {
                        *due = next.max(*due);
                    }
                    self.last_due = self.last_due.max(next);
                }
                self.held -= bytes.len();
                to.write_all(&bytes).await.map_err(|_| End::Reset)?;
                Ok(false)
            }
        }
    }
}

/// The random numbers that delay one direction of one connection; each has its number.
fn jitter(seed: u64, stream: u64) -> Rng {
    Rng::with_seed(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(stream))
}

#[cfg(test)]
mod tests {
    use super::jitter;

    #[test]
    fn same_seed_gives_the_same_jitter() {
        let delays = |seed, stream| {
            let mut random = jitter(seed, stream);
            [0; 16].map(|_| random.u64(..))
        };
        assert_eq!(delays(7, 3), delays(7, 3));
        assert!(delays(7, 3) != delays(8, 3) && delays(7, 3) != delays(7, 4));
    }
}
