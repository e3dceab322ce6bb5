//! Faults that are triggered once, at a given byte.

use std::sync::Mutex;

/// The direction of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From the client to the server.
    Requests,
    /// From the server to the client.
    Replies,
}

impl Direction {
    pub(super) const fn index(self) -> usize {
        match self {
            Self::Requests => 0,
            Self::Replies => 1,
        }
    }
}

/// A fault after the first n bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// The n bytes are delivered, then both sides see the end (FIN). With n = 0 when the first byte comes.
    Cut,
    /// As [`Cut`](Self::Cut), but both sides are reset (RST), which may overtake the n bytes.
    Reset,
    /// The n bytes are delivered, and of this connection nothing more in this direction.
    Stall,
    /// The byte at offset n has these bits inverted.
    Flip(u8),
    /// These bytes come before the byte at offset n, together with it.
    Insert(Vec<u8>),
}

/// The armed faults, by direction.
#[derive(Debug, Default)]
pub(super) struct Armed(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    faults: [Option<ArmedFault>; 2],
    duplicate: bool,
    armed: u64,
    triggered: u64,
}

#[derive(Debug)]
struct ArmedFault {
    number: u64,
    after: u64,
    fault: Fault,
}

/// How many bytes of one direction of a connection have passed since the fault of this number was armed.
#[derive(Debug, Default)]
pub(super) struct Progress {
    number: u64,
    passed: u64,
}

impl Armed {
    pub(super) fn clear(&self) {
        let mut state = self.0.lock().expect("no panic under the lock");
        state.faults = [None, None];
        state.duplicate = false;
    }

    pub(super) fn set(&self, direction: Direction, after: u64, fault: Fault) {
        let mut state = self.0.lock().expect("no panic under the lock");
        state.armed += 1;
        let number = state.armed;
        state.faults[direction.index()] = Some(ArmedFault { number, after, fault });
    }

    pub(super) fn set_duplicate(&self) {
        self.0.lock().expect("no panic under the lock").duplicate = true;
    }

    pub(super) fn triggered(&self) -> u64 {
        self.0.lock().expect("no panic under the lock").triggered
    }

    /// Whether the reply that is now complete has to be sent twice.
    pub(super) fn take_duplicate(&self) -> bool {
        let mut state = self.0.lock().expect("no panic under the lock");
        let due = std::mem::take(&mut state.duplicate);
        state.triggered += u64::from(due);
        due
    }

    /// The fault that is triggered in the next `count` bytes of a connection, and at which of them.
    pub(super) fn take(
        &self,
        direction: Direction,
        progress: &mut Progress,
        count: usize,
    ) -> Option<(usize, Fault)> {
        let mut state = self.0.lock().expect("no panic under the lock");
        let armed = state.faults[direction.index()].as_ref()?;
        if progress.number != armed.number {
            *progress = Progress { number: armed.number, passed: 0 };
        }
        let start = progress.passed;
        progress.passed += count as u64;
        // The end of a connection needs no byte behind it.
        let at_the_end = matches!(armed.fault, Fault::Cut | Fault::Reset | Fault::Stall);
        if progress.passed < armed.after || (progress.passed == armed.after && !at_the_end) {
            return None;
        }
        let offset = usize::try_from(armed.after - start).expect("within the bytes at hand");
        let fault = state.faults[direction.index()].take()?.fault;
        state.triggered += 1;
        Some((offset, fault))
    }
}
