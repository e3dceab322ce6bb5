//! An open connection: sends operations in batches and answers them from the replies.

mod outcome;

use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::{Duration, Instant};

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWrite};
use tokio::time::{Sleep, sleep_until};

use crate::pipeline::batch::{self, Command, InFlight};
use crate::pipeline::call_span::CallSpan;
use crate::pipeline::pending::{Member, PendingOperation};
use crate::pipeline::server::ServerState;
use crate::script::call::{CallHeader, CommandBuffer, ScriptClock, ScriptReference, write_requests};
use crate::transport::failure::Failure;
use crate::transport::resp;
use crate::transport::stream::Stream;
use polylimit_rules::decision::Degradation;
use polylimit_runtime::clock::Clock;
use polylimit_runtime::monotonic;

/// The maximum number of batches in flight. Operations that arrive meanwhile stay queued and share the next batch: the
/// busier the server, the larger the batches.
const MAX_BATCHES: u64 = 4;
const MAX_OPERATIONS: usize = 128;
/// Fewer operations are not split into two batches. Splitting lets the server work on one batch while the other is
/// answered.
const MIN_OPERATIONS: usize = 32;
/// After this time without a reply the socket is checked before anything is sent: the connection may have been lost while the process was
/// suspended, without the runtime noticing. Commands that are sent more often pay nothing for it.
const QUIET: Duration = Duration::from_millis(1);
/// After this many answers, queued operations are sent before further replies are read.
const MAX_ANSWERS: usize = MIN_OPERATIONS;
/// How often a server that refuses `TIME` in scripts is queried for its time, while it has calls.
const TIME_ASKED_EVERY: Duration = Duration::from_secs(1);
/// The free space for each read.
const READ_BYTES: usize = 16 << 10;

/// Why a connection is no longer used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// No caller uses the server any longer.
    Closed,
    /// Another one replaces it.
    Retired,
    /// It broke, is suspect, or leads to the wrong server.
    Broken,
}

/// How long a connection is used.
#[derive(Clone, Copy, Debug)]
enum Age {
    Unlimited,
    Until(Instant),
    /// It stays in use until another one is open.
    Reached,
}

/// The result of reading replies.
enum Read {
    Nothing,
    All,
    /// Enough operations were answered that queued ones should be sent first.
    Enough,
}

/// Script features that a server has refused although others accept them, and what it has that others do not.
#[derive(Debug, Default)]
struct Differences {
    /// The first line of scripts.
    first_line: bool,
    /// `TIME` in scripts, so that calls have an estimate of its time.
    time: bool,
    /// The server has the module, which decides what it can.
    module: bool,
}

#[derive(Debug)]
pub(crate) struct Connection {
    server: Arc<ServerState>,
    stream: Stream,
    read: BytesMut,
    /// Whether `read` may contain further whole replies.
    has_more: bool,
    write: Vec<u8>,
    command: CommandBuffer,
    /// How much of `write` was written, and how many bytes were written before it.
    written: usize,
    written_before: u64,
    /// Whether the stream has no buffered output.
    is_flushed: bool,
    flights: VecDeque<InFlight>,
    batches: u64,
    /// Operations to be retried later, and when.
    later: Vec<(Instant, Arc<PendingOperation>)>,
    /// Empty between calls; kept to reuse its allocation.
    operations: Vec<Arc<PendingOperation>>,
    timer: Pin<Box<Sleep>>,
    timer_set_for: Option<Instant>,
    /// The number of consecutive calls without a reply in time.
    timeouts: u32,
    /// Whether the server has decided anything over this connection.
    pub(crate) has_decided: bool,
    last_used: Instant,
    /// When the connection was last known to be open.
    last_open: Instant,
    differences: Differences,
    time_asked: Instant,
    age: Age,
    /// Nothing more is sent; the connection ends as soon as every operation in flight is answered.
    pub(crate) leaving: Option<End>,
    next_nonce: u64,
}

impl Connection {
    pub(crate) fn new(server: &Arc<ServerState>, stream: Stream, has_module: bool) -> Self {
        let now = monotonic::now();
        Self {
            server: Arc::clone(server),
            stream,
            read: BytesMut::with_capacity(READ_BYTES),
            has_more: false,
            write: Vec::new(),
            command: CommandBuffer::default(),
            written: 0,
            written_before: 0,
            is_flushed: true,
            flights: VecDeque::new(),
            batches: 0,
            later: Vec::new(),
            operations: Vec::new(),
            timer: Box::pin(sleep_until(now.into())),
            timer_set_for: None,
            timeouts: 0,
            has_decided: false,
            last_used: now,
            last_open: now,
            differences: Differences { module: has_module, ..Differences::default() },
            // The handshake has just asked for it.
            time_asked: now,
            age: server.context.retires_at(now).map_or(Age::Unlimited, Age::Until),
            leaving: None,
            next_nonce: polylimit_runtime::backoff::random(),
        }
    }

    pub(crate) fn end_waiting(&self, member: &Arc<Member>) {
        let flying = self.flights.iter().flat_map(|in_flight| in_flight.command.operations());
        for operation in flying.chain(self.later.iter().map(|(_, operation)| operation)) {
            operation.end_waiting(member);
        }
    }

    /// Whether a caller waits for an answer from this connection.
    pub(crate) fn is_waited_for(&self) -> bool {
        self.flights.iter().any(|in_flight| in_flight.expires.is_some()) || !self.later.is_empty()
    }

    /// Whether it has reached its maximum age, so that another connection is to replace it.
    pub(crate) fn is_old(&self) -> bool {
        matches!(self.age, Age::Reached) && self.leaving.is_none()
    }

    /// Ends the connection as soon as every operation in flight is answered.
    pub(crate) fn retire(&mut self) {
        self.leaving.get_or_insert(End::Retired);
    }

    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<End> {
        self.server.task.register(cx.waker());
        let (end, reason) = match ready!(self.poll_end(cx)) {
            Ok(end) => (end, Degradation::ConnectionLost),
            Err(reason) => {
                self.server.failed(reason);
                (End::Broken, reason)
            }
        };
        self.leave(end, reason);
        Poll::Ready(end)
    }

    fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<Result<End, Degradation>> {
        loop {
            let now = monotonic::now();
            let is_quiet = self.is_quiet(now);
            if is_quiet && self.flights.is_empty() && self.is_finished(now) {
                return Poll::Ready(Ok(End::Broken));
            }
            // Replies that have arrived may precede the end of the connection, so they are read before more is sent.
            let has_unseen = is_quiet
                && !self.flights.is_empty()
                && !self.server.queue.is_empty()
                && self.read_unseen()?;
            if !has_unseen {
                self.check_lifetime(now);
                self.fill(now);
                self.write(cx)?;
            }
            match self.read(cx)? {
                Read::Nothing => {}
                Read::All => continue,
                // The server gets queued operations to work on before the remaining replies are answered: those that
                // were waiting, or new ones of the callers that were just answered.
                Read::Enough if !self.server.queue.is_empty() => continue,
                Read::Enough => {
                    // Polled once, so that this task runs after the tasks that are ready.
                    let _ = pin!(tokio::task::yield_now()).poll(cx);
                    return Poll::Pending;
                }
            }
            let now = monotonic::now();
            let is_overdue = |in_flight: &InFlight| in_flight.expires.is_some_and(|expires| expires <= now);
            if self.flights.iter().any(is_overdue) && self.read_unseen()? {
                continue;
            }
            self.expire(now)?;
            if let Some(end) = self.end() {
                return Poll::Ready(Ok(end));
            }
            let Some(next) = self.next_moment() else { return Poll::Pending };
            if self.timer_set_for.is_none_or(|set_for| next < set_for) {
                self.timer.as_mut().reset(next.into());
                self.timer_set_for = Some(next);
            }
            // The timer may fire although its event has passed: that is cheaper than resetting it.
            ready!(self.timer.as_mut().poll(cx));
            self.timer_set_for = None;
        }
    }

    fn is_quiet(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.last_open) > QUIET
    }

    /// Whether the server has closed the connection; valid only while no reply is expected.
    fn is_finished(&mut self, now: Instant) -> bool {
        let is_finished = self.stream.is_finished();
        if !is_finished {
            self.last_open = now;
        }
        is_finished
    }

    /// Decides whether the connection has to end or to be replaced.
    fn check_lifetime(&mut self, now: Instant) {
        if self.leaving.is_none() && self.server.is_closed() {
            self.leaving = Some(End::Closed);
        }
        if matches!(self.age, Age::Until(end) if end <= now) {
            self.age = Age::Reached;
        }
    }

    /// The reason to end the connection now, if there is one: no caller waits for it any longer. An overdue reply may never arrive.
    fn end(&self) -> Option<End> {
        let is_over = |in_flight: &InFlight| in_flight.expires.is_none();
        let leaving = self.leaving.filter(|_| self.flights.iter().all(is_over))?;
        Some(if self.flights.is_empty() { leaving } else { End::Broken })
    }

    /// The next time at which there is work even if nothing arrives.
    fn next_moment(&self) -> Option<Instant> {
        let flights = self.flights.iter().filter_map(|in_flight| in_flight.expires).min();
        let later = self.later.iter().map(|(at, _)| *at).min();
        let queued = self.server.queue.next_deadline();
        let aged = match self.age {
            Age::Until(end) if self.leaving.is_none() => Some(end),
            _ => None,
        };
        [flights, later, queued, aged].into_iter().flatten().min()
    }

    /// Moves due retries to the front of the queue, so that the queue alone handles their deadlines.
    fn requeue_due(&mut self, now: Instant) {
        if self.later.iter().any(|(at, _)| *at <= now) {
            let all = std::mem::take(&mut self.later).into_iter();
            let (due, later): (Vec<_>, _) = all.partition(|(at, _)| *at <= now);
            self.later = later;
            self.server.queue.put_back(due.into_iter().map(|(_, operation)| operation));
        }
    }

    /// Sends queued operations, as long as more batches may be in flight.
    fn fill(&mut self, now: Instant) {
        self.requeue_due(now);
        self.server.queue.expire(now, Failure::not_applied(Degradation::Late));
        let most = (self.server.queue.len() / 2).clamp(MIN_OPERATIONS, MAX_OPERATIONS);
        while self.leaving.is_none() && self.batches_under_way() < MAX_BATCHES {
            let mut operations = std::mem::take(&mut self.operations);
            self.server.queue.take(most, &mut operations);
            if operations.is_empty() {
                self.operations = operations;
                return;
            }
            self.batches += 1;
            for command in batch::commands(&mut operations) {
                let by = self.best_for(&command);
                self.send(command, by);
            }
            self.operations = operations;
        }
    }

    fn batches_under_way(&self) -> u64 {
        self.flights.front().map_or(0, |oldest| self.batches - oldest.batch + 1)
    }

    /// What decides a command on this server.
    fn best_for(&self, command: &Command) -> ScriptReference {
        if self.differences.module && command.suits_module() {
            ScriptReference::Module
        } else {
            ScriptReference::Hash
        }
    }

    fn send(&mut self, command: Command, script: ScriptReference) {
        self.send_with(command, script, None);
    }

    /// Sends a command with the windows by the calendar of a time, or of that which the server's clock has.
    fn send_with(&mut self, command: Command, script: ScriptReference, windows_us: Option<u64>) {
        // The reply has to echo the nonce, which differs for every call over a connection and rarely equals that of another one.
        let [_, _, nonce @ ..] = self.next_nonce.to_be_bytes();
        self.next_nonce = self.next_nonce.wrapping_add(1);
        let mut replies_before = 0;
        let clock = self.clock_of_calls(&mut replies_before);
        let header = CallHeader {
            nonce,
            deadline_us: self.deadline_of(&command).unwrap_or(0),
            clock,
            windows_us: windows_us.unwrap_or_else(|| self.windows_at(&command, clock)),
            is_plain: self.differences.first_line,
        };
        if command.asking {
            redis::cmd("ASKING").write_packed_command(&mut self.write);
            replies_before += 1;
        }
        let requests: Vec<_> = command.entries.iter().filter_map(batch::Entry::request).collect();
        if requests.is_empty() {
            let entries: Vec<_> = command.entries.iter().map(batch::Entry::wanted).collect();
            command.call.write_call(&mut self.write, &mut self.command, script, &header, &entries);
        } else {
            write_requests(&mut self.write, &mut self.command, script, &header, &requests);
        }
        command.count(|counters| {
            counters.calls.add(1);
            if script == ScriptReference::Module {
                counters.module_calls.add(1);
            }
        });
        let ends_at = self.written_before + self.write.len() as u64;
        let span = CallSpan::start(command.callers(), &command.call.policy, script, &self.server.address);
        let in_flight = InFlight::new(command, header, script, ends_at, self.batches, span);
        self.flights.push_back(InFlight { skip: replies_before, ..in_flight });
    }

    /// The time of which a command gets the windows by the calendar; 0 for one without any.
    fn windows_at(&self, command: &Command, clock: ScriptClock) -> u64 {
        match clock {
            _ if !command.has_windows() => 0,
            ScriptClock::Manual(now_us) | ScriptClock::Estimate(now_us) => now_us,
            ScriptClock::Server => {
                let server_us = self.server.time.at(monotonic::now());
                server_us.unwrap_or_else(|| Clock::system().now_us())
            }
        }
    }

    /// The server's time after which a script refuses the command; none where scripts may not ask the server for the time.
    fn deadline_of(&self, command: &Command) -> Option<u64> {
        let deadline = command.deadline().filter(|_| !self.differences.time)?;
        self.server.time.at(deadline)
    }

    /// The clock of a call that is about to be written. Where it is an estimate, the server is queried for its time now and then, before
    /// the call.
    fn clock_of_calls(&mut self, replies_before: &mut u8) -> ScriptClock {
        if let Some(manual) = &self.server.context.manual {
            return ScriptClock::Manual(manual.now_us());
        }
        if !self.differences.time {
            return ScriptClock::Server;
        }
        let now = monotonic::now();
        if now.saturating_duration_since(self.time_asked) >= TIME_ASKED_EVERY {
            self.time_asked = now;
            redis::cmd("TIME").write_packed_command(&mut self.write);
            *replies_before += 1;
        }
        self.server.time.latest_at(now).map_or(ScriptClock::Server, ScriptClock::Estimate)
    }

    fn write(&mut self, cx: &mut Context<'_>) -> Result<(), Degradation> {
        let broken = |_| Degradation::ConnectionLost;
        if self.is_all_out() {
            return Ok(());
        }
        self.is_flushed = false;
        while self.written < self.write.len() {
            match Pin::new(&mut self.stream).poll_write(cx, &self.write[self.written..]) {
                Poll::Ready(Ok(written)) => self.written += written,
                Poll::Ready(Err(error)) => {
                    if self.stream.may_fail_in_between() {
                        self.written = self.write.len();
                    }
                    return Err(broken(error));
                }
                Poll::Pending => break,
            }
        }
        if self.written == self.write.len() {
            self.written_before += self.write.len() as u64;
            self.written = 0;
            self.write.clear();
        }
        self.is_flushed = Pin::new(&mut self.stream).poll_flush(cx).map_err(broken)?.is_ready();
        Ok(())
    }

    /// Whether all output has left this process.
    fn is_all_out(&self) -> bool {
        self.write.is_empty() && self.is_flushed
    }

    /// Sends queued operations on a caller's thread, which is faster than waking the task. Returns whether the task
    /// need not be woken, because a reply or its timer wakes it. While commands are in flight, the task is about to run
    /// anyway and sends larger batches.
    pub(crate) fn send_from_caller(&mut self) -> bool {
        let now = monotonic::now();
        let is_idle = self.flights.is_empty() && self.is_all_out();
        if !is_idle || self.leaving.is_some() || self.is_quiet(now) && self.is_finished(now) {
            return false;
        }
        self.fill(now);
        // If a part is left or the connection breaks, the woken task finds the same.
        let written = self.write(&mut Context::from_waker(Waker::noop()));
        // A timer that has fired may not have been reset.
        let wakes_by = |next| self.timer_set_for.is_some_and(|set| now < set && set <= next);
        written.is_ok() && self.is_all_out() && self.next_moment().is_none_or(wakes_by)
    }

    /// Reads the available replies and answers their operations.
    fn read(&mut self, cx: &mut Context<'_>) -> Result<Read, Degradation> {
        if !std::mem::take(&mut self.has_more) {
            self.read.reserve(READ_BYTES);
            let read = pin!(self.stream.read_buf(&mut self.read)).poll(cx);
            match read {
                Poll::Pending => return Ok(Read::Nothing),
                Poll::Ready(Ok(1..)) => {}
                Poll::Ready(Ok(0) | Err(_)) => return Err(Degradation::ConnectionLost),
            }
            self.last_used = monotonic::now();
        }
        let mut bytes = std::mem::take(&mut self.read);
        let mut answers = 0;
        while let Some((reply, taken)) = resp::read(&bytes).map_err(|_| Degradation::Protocol)? {
            answers += self.flights.front().map_or(0, |in_flight| in_flight.command.entries.len());
            self.replied(reply)?;
            bytes.advance(taken);
            self.has_more = answers >= MAX_ANSWERS && !bytes.is_empty();
            if self.has_more {
                break;
            }
        }
        self.read = bytes;
        Ok(if self.has_more { Read::Enough } else { Read::All })
    }

    /// Reads what arrived while this thread was busy with other work, which is not the server's fault. Returns whether there was anything.
    fn read_unseen(&mut self) -> Result<bool, Degradation> {
        match self.stream.read_unseen(&mut self.read) {
            Ok(1..) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.last_open = monotonic::now();
                return Ok(false);
            }
            Ok(0) | Err(_) => return Err(Degradation::ConnectionLost),
        }
        self.last_used = monotonic::now();
        self.has_more = true;
        Ok(true)
    }
}

impl Drop for Connection {
    /// A runtime that shuts down drops the connection: operations in flight are answered then, too.
    fn drop(&mut self) {
        if !self.flights.is_empty() {
            // The server notices the reset even though it does not read the input.
            self.stream.reset_when_closed();
        }
        self.leave(End::Closed, Degradation::ConnectionLost);
    }
}
