//! How another thread calls JavaScript.

use std::sync::Arc;

use napi::bindgen_prelude::Function;
use napi::threadsafe_function::{ThreadsafeFunction, ThreadsafeFunctionCallMode};
use napi::{Env, Status, sys};

use crate::failure::{Result, internal, refused};

/// Weak: by itself it keeps no process alive.
type Weak = ThreadsafeFunction<(), (), (), Status, false, true>;

/// One function of JavaScript that any thread may call. Once the environment ends, calls do nothing.
pub(crate) struct Wake {
    env: sys::napi_env,
    function: Arc<Weak>,
}

impl Wake {
    pub(crate) fn new(env: Env, function: Function<'_, (), ()>) -> Result<Self> {
        let function = function.build_threadsafe_function().weak::<true>().build().map_err(refused)?;
        Ok(Self { env: env.raw(), function: Arc::new(function) })
    }

    /// What other threads call.
    pub(crate) fn caller(&self) -> impl Fn() + Send + Sync + use<> {
        let function = Arc::clone(&self.function);
        move || {
            // Not called when the environment is ending: then nobody waits for an answer any more.
            function.call((), ThreadsafeFunctionCallMode::NonBlocking);
        }
    }

    /// Whether the process stays until this is called again with `false`.
    pub(crate) fn keep_alive(&self, stay: bool) -> Result<()> {
        let change =
            if stay { sys::napi_ref_threadsafe_function } else { sys::napi_unref_threadsafe_function };
        // SAFETY: this thread is the environment's, and the function lives while `self.function` does.
        let status = unsafe { change(self.env, self.function.raw()) };
        if status == sys::Status::napi_ok {
            return Ok(());
        }
        Err(internal("Node-API refused to keep the process alive"))
    }
}
