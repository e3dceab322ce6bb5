//! The core's handle of a reservation, and the calls that end it.

use parking_lot::Mutex;
use polylimit::Request;
use polylimit::raw::Call;
use polylimit::reservation::Reservation;

/// How a reservation is ended.
#[derive(Clone, Copy)]
pub(crate) enum Ending {
    /// With the units that were spent; `None` is what was reserved.
    Commit(Option<u64>),
    Cancel,
    /// As its options say: by a cancel, or by a commit of what was reserved.
    AsOptions,
}

/// A reservation that an object of Python and the call that ends it share. When the last of them is dropped before the call was
/// made, the core ends the reservation in the background.
pub(crate) struct SharedReservation(Mutex<Reservation>);

impl SharedReservation {
    pub(crate) fn new(reservation: Reservation) -> Self {
        Self(Mutex::new(reservation))
    }

    /// Whether the reservation still has to be ended.
    pub(crate) fn is_open(&self) -> bool {
        self.0.lock().is_open()
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.0.lock().is_lost()
    }

    /// Passes the call that ends the reservation to a function, without the lock, because the function may wait.
    pub(crate) fn end<R>(&self, ending: Ending, use_call: impl FnOnce(&Call<'_>) -> R) -> R {
        let mut handle = self.0.lock();
        let id = handle.id();
        let call = match ending {
            Ending::Commit(spent) => handle.commit_call(spent),
            Ending::Cancel => handle.cancel_call(),
            Ending::AsOptions => handle.end_call(),
        };
        let (request, commit) = match call {
            Call::Commit(request, _, spent) => (request, Some(spent)),
            Call::Cancel(request, _) => (request, None),
            // The core ends a reservation in no other way.
            other => return use_call(&other),
        };
        let (key, policy) = (Box::<[u8]>::from(request.key()), request.policy_name().map(Box::<str>::from));
        drop(handle);
        let request = Request::new(&key);
        let request = policy.as_deref().map_or(request, |policy| request.policy(policy));
        use_call(&match commit {
            Some(spent) => Call::Commit(request, id, spent),
            None => Call::Cancel(request, id),
        })
    }
}
