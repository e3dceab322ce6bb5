//! Credentials that a function of the language gives: a thread of the language waits for calls and answers them.
//!
//! No native thread calls into a language, since not every language allows that.

use std::collections::VecDeque;
use std::fs::File;
use std::io::Write;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use polylimit::redis::Credentials;

use crate::descriptor::duplicate;
use crate::error::{Result, guarded};

type Reply = Sender<std::result::Result<Credentials, String>>;

const CLOSED: &str = "the limiter is closed";

/// The calls of the function of one limiter.
#[derive(Debug, Default, uniffi::Object)]
pub struct CredentialsCalls {
    calls: Arc<Calls>,
}

#[derive(Debug, Default)]
struct Calls {
    state: Mutex<State>,
    called: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// The calls without an answer, the oldest first.
    waiting: VecDeque<Reply>,
    /// The limiter is closed or gone.
    has_ended: bool,
    /// A byte is written to it for each call, and at the end.
    descriptor: Option<File>,
}

impl Calls {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake(&self, state: &State) {
        self.called.notify_all();
        if let Some(mut descriptor) = state.descriptor.as_ref() {
            // One that is closed has no reader.
            let _ = descriptor.write(&[1]);
        }
    }

    fn end(&self) {
        let mut state = self.lock();
        state.has_ended = true;
        for reply in state.waiting.drain(..) {
            let _ = reply.send(Err(CLOSED.to_owned()));
        }
        self.wake(&state);
    }

    fn answer(&self, answer: std::result::Result<Credentials, String>) {
        let reply = self.lock().waiting.pop_front();
        if let Some(reply) = reply {
            let _ = reply.send(answer);
        }
    }
}

/// What the core holds of the calls: they end with it.
struct Caller(Arc<Calls>);

impl Caller {
    fn call(&self) -> std::result::Result<Credentials, String> {
        let (reply, answer) = channel();
        {
            let mut state = self.0.lock();
            if state.has_ended {
                return Err(CLOSED.to_owned());
            }
            state.waiting.push_back(reply);
            self.0.wake(&state);
        }
        answer.recv().unwrap_or_else(|_| Err(CLOSED.to_owned()))
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        self.0.end();
    }
}

#[uniffi::export]
impl CredentialsCalls {
    /// Calls for a limiter that is made with them.
    #[uniffi::constructor]
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Waits for the next call, which `give` or `fail` answers. Returns false when the limiter is closed or gone.
    pub fn wait_for_call(&self) -> bool {
        let state = self.calls.lock();
        let idle = |state: &mut State| state.waiting.is_empty() && !state.has_ended;
        let state = self.calls.called.wait_while(state, idle).unwrap_or_else(PoisonError::into_inner);
        !state.has_ended
    }

    /// In place of waiting: writes a byte to this descriptor, which is duplicated, for each call and when the limiter is closed or gone.
    /// Calls without an answer are dropped: they are those of the parent of a forked process.
    pub fn wake_by(&self, descriptor: i32) -> Result<()> {
        guarded(|| {
            let duplicate = duplicate(descriptor)?;
            let mut state = self.calls.lock();
            state.waiting.clear();
            state.descriptor = Some(duplicate);
            Ok(())
        })
    }

    /// Whether the limiter is closed or gone.
    pub fn has_ended(&self) -> bool {
        self.calls.lock().has_ended
    }

    /// Answers the oldest call: with a password (1 to 16384 bytes) and the user that it belongs to, by default the default user.
    #[uniffi::method(default(username = None))]
    pub fn give(&self, password: String, username: Option<String>) {
        self.calls.answer(Ok(Credentials::new(username.as_deref(), &password)));
    }

    /// Answers the oldest call: with a sentence that says why there are no credentials, and holds no secret.
    pub fn fail(&self, message: String) {
        self.calls.answer(Err(message));
    }
}

impl CredentialsCalls {
    /// Fails the calls without an answer, and all later ones: the limiter is closed.
    pub(crate) fn end(&self) {
        self.calls.end();
    }

    /// The function for the core. The calls end when it is dropped.
    pub(crate) fn function(
        &self,
    ) -> impl Fn() -> std::result::Result<Credentials, String> + Send + Sync + 'static {
        let caller = Caller(Arc::clone(&self.calls));
        move || caller.call()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::thread;

    use super::*;
    use crate::error::PolylimitError;
    use crate::limiter::Limiter;
    use crate::settings::Settings;

    #[test]
    fn calls_are_answered_in_order_until_the_end() {
        let calls = CredentialsCalls::new();
        let caller = Caller(Arc::clone(&calls.calls));
        let core = thread::spawn(move || (caller.call(), caller.call(), caller.call()));
        assert!(calls.wait_for_call());
        calls.give("word".to_owned(), Some("limits".to_owned()));
        assert!(calls.wait_for_call());
        calls.fail("the token service is away".to_owned());
        assert!(calls.wait_for_call() && !calls.has_ended());
        calls.end();
        let (given, failed, ended) = core.join().unwrap();
        assert_eq!(given, Ok(Credentials::new(Some("limits"), "word")));
        assert_eq!(failed, Err("the token service is away".to_owned()));
        assert_eq!(ended, Err(CLOSED.to_owned()));
        assert!(!calls.wait_for_call() && calls.has_ended());
        calls.give("late".to_owned(), None);
    }

    #[test]
    fn calls_end_with_the_limiter() {
        let calls = CredentialsCalls::new();
        drop(polylimit::Limiter::builder().credentials(calls.function()));
        assert!(!calls.wait_for_call());
        let calls = CredentialsCalls::new();
        let settings = Settings {
            store: Some("redis://127.0.0.1:1".to_owned()),
            policies: Vec::new(),
            options: HashMap::new(),
            clock: None,
            document: None,
        };
        let limiter = Limiter::with_credentials(settings, Arc::clone(&calls)).unwrap();
        assert!(!calls.has_ended());
        limiter.shut_down().unwrap();
        assert!(!calls.wait_for_call(), "also of a limiter that is closed and still referred to");
        assert!(matches!(calls.wake_by(-1), Err(PolylimitError::InvalidArgument(_))));
    }
}
