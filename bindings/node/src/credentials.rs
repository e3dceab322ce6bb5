//! The JavaScript function that gives the credentials of new connections.

use std::collections::VecDeque;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use napi::Env;
use napi::bindgen_prelude::Function;
use napi_derive::napi;
use polylimit::LimiterBuilder;
use polylimit::redis::Credentials;

use crate::error::{Result, catch_panic};
use crate::function::ThreadsafeCallback;

/// How long JavaScript has for an answer: its environment may have ended.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// The calls that JavaScript has not answered, the oldest first.
type Waiting = VecDeque<Sender<std::result::Result<Credentials, String>>>;

type Calls = Arc<Mutex<Waiting>>;

fn lock(calls: &Mutex<Waiting>) -> MutexGuard<'_, Waiting> {
    calls.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The calls of one limiter.
#[napi]
pub struct NativeCredentials {
    calls: Calls,
    on_call: ThreadsafeCallback,
}

#[napi]
impl NativeCredentials {
    /// `on_call` is called without arguments for each call, and answers it by `answer`.
    #[napi(constructor)]
    pub fn new(env: Env, on_call: Function<'_, (), ()>) -> Result<Self> {
        catch_panic(|| {
            let on_call = ThreadsafeCallback::new(env, &on_call)?;
            on_call.open(env)?;
            Ok(Self { calls: Calls::default(), on_call })
        })
    }

    /// Answers the oldest call: with a password and its user, or with what has failed.
    #[napi]
    pub fn answer(&self, username: Option<String>, password: Option<String>, failed: Option<String>) {
        let mut answer = match password {
            Some(password) => Ok(Credentials::new(username.as_deref(), &password)),
            None => Err(failed.unwrap_or_default()),
        };
        // A call that has ended meanwhile leaves the answer to the next one.
        loop {
            let Some(call) = lock(&self.calls).pop_front() else { return };
            match call.send(answer) {
                Ok(()) => return,
                Err(unsent) => answer = unsent.0,
            }
        }
    }
}

impl NativeCredentials {
    /// Makes the limiter take its credentials from JavaScript.
    pub(crate) fn give_to(&self, builder: LimiterBuilder) -> LimiterBuilder {
        let (calls, call) = (Arc::clone(&self.calls), self.on_call.caller());
        builder.credentials(move || {
            let (reply, answer) = channel();
            lock(&calls).push_back(reply);
            call();
            answer
                .recv_timeout(ANSWER_TIMEOUT)
                .unwrap_or_else(|_| Err(format!("it has not answered within {} s", ANSWER_TIMEOUT.as_secs())))
        })
    }
}
