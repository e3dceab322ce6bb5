//! Functions across the language boundary: native functions that JavaScript calls, and a JavaScript function that other
//! threads call.
//!
//! The native ones are created with Node-API itself, because calling a function that napi's macros generate takes longer than
//! a decision.

use std::ffi::{CStr, c_void};
use std::ptr;
use std::sync::{Arc, OnceLock};

use napi::bindgen_prelude::{FromNapiValue, Function, FunctionRef, Unknown};
use napi::threadsafe_function::{ThreadsafeFunction, ThreadsafeFunctionCallMode};
use napi::{Env, JsError, Status, sys};

use crate::error::{Result, catch_panic, internal, node_api_error};

/// The number of arguments that a native function receives.
pub(crate) const ARGUMENT_COUNT: usize = 3;

/// A native function that JavaScript can call.
pub(crate) trait NativeFunction: Sized + 'static {
    /// The name that JavaScript shows for the function.
    const NAME: &'static CStr;

    /// Runs the function. A null pointer as the result is `undefined` in JavaScript.
    ///
    /// # Safety
    /// The environment and the arguments must be valid.
    unsafe fn call(
        &self,
        env: sys::napi_env,
        arguments: [sys::napi_value; ARGUMENT_COUNT],
    ) -> Result<sys::napi_value>;
}

/// Creates the JavaScript function that runs `native`.
fn create_value<F: NativeFunction>(env: Env, native: F) -> Result<sys::napi_value> {
    let data = Box::into_raw(Box::new(native)).cast::<c_void>();
    let mut function = ptr::null_mut();
    // SAFETY: `data` is a `Box<F>`, which the finalizer drops after the garbage collector has taken the function.
    let status = unsafe {
        let created = sys::napi_create_function(
            env.raw(),
            F::NAME.as_ptr(),
            F::NAME.count_bytes().cast_signed(),
            Some(trampoline::<F>),
            data,
            &raw mut function,
        );
        match created {
            sys::Status::napi_ok => sys::napi_add_finalizer(
                env.raw(),
                function,
                data,
                Some(finalize::<F>),
                ptr::null_mut(),
                ptr::null_mut(),
            ),
            status => status,
        }
    };
    if status == sys::Status::napi_ok {
        return Ok(function);
    }
    // SAFETY: the finalizer was not added.
    drop(unsafe { Box::from_raw(data.cast::<F>()) });
    Err(internal("Node-API refused to create a function"))
}

/// Creates the JavaScript function that runs `native`, in the type that napi's macros return.
pub(crate) fn create<'env, F: NativeFunction>(env: Env, native: F) -> Result<Unknown<'env>> {
    let function = create_value(env, native)?;
    // SAFETY: both are valid; the function was just created.
    unsafe { Unknown::from_napi_value(env.raw(), function) }.map_err(node_api_error)
}

unsafe extern "C" fn finalize<F: NativeFunction>(_: sys::napi_env, data: *mut c_void, _: *mut c_void) {
    // SAFETY: `create_value` made the box, and only this finalizer drops it.
    let native = unsafe { Box::from_raw(data.cast::<F>()) };
    // A panic must not leave this function, and a finalizer cannot report one.
    _ = catch_panic(|| {
        drop(native);
        Ok(())
    });
}

unsafe extern "C" fn trampoline<F: NativeFunction>(
    env: sys::napi_env,
    info: sys::napi_callback_info,
) -> sys::napi_value {
    let result = catch_panic(|| {
        let mut arguments = [ptr::null_mut(); ARGUMENT_COUNT];
        let (mut count, mut data) = (ARGUMENT_COUNT, ptr::null_mut());
        // SAFETY: the array has room for `count` arguments; Node-API fills missing ones with `undefined`.
        let status = unsafe {
            sys::napi_get_cb_info(
                env,
                info,
                &raw mut count,
                arguments.as_mut_ptr(),
                ptr::null_mut(),
                &raw mut data,
            )
        };
        if status != sys::Status::napi_ok {
            return Err(internal("Node-API refused to pass the arguments"));
        }
        // SAFETY: the function is being called, so that its finalizer has not run; all is valid until this call ends.
        unsafe { (*data.cast::<F>()).call(env, arguments) }
    });
    result.unwrap_or_else(|error| {
        // SAFETY: no exception is pending.
        unsafe { JsError::from(error).throw_into(env) };
        ptr::null_mut()
    })
}

/// A weak reference: by itself it does not keep the process alive.
type WeakFunction = ThreadsafeFunction<(), (), (), Status, false, true>;

/// A JavaScript function that any thread may call once it is [open](Self::open). Once the environment has ended, calls do nothing.
///
/// Node's diagnostics name each function of this kind as an open handle, so that a program which only loads the addon has none.
pub(crate) struct ThreadsafeCallback {
    env: sys::napi_env,
    source: FunctionRef<(), ()>,
    function: Arc<OnceLock<WeakFunction>>,
}

impl ThreadsafeCallback {
    pub(crate) fn new(env: Env, function: &Function<'_, (), ()>) -> Result<Self> {
        let source = function.create_ref().map_err(node_api_error)?;
        Ok(Self { env: env.raw(), source, function: Arc::default() })
    }

    /// Lets other threads call the function.
    pub(crate) fn open(&self, env: Env) -> Result<()> {
        if self.function.get().is_some() {
            return Ok(());
        }
        let source = self.source.borrow_back(&env).map_err(node_api_error)?;
        let function = source.build_threadsafe_function().weak::<true>().build().map_err(node_api_error)?;
        // Only this thread sets it, and has not set it before.
        let _ = self.function.set(function);
        Ok(())
    }

    /// The closure with which other threads call the function.
    pub(crate) fn caller(&self) -> impl Fn() + Send + Sync + use<> {
        let function = Arc::clone(&self.function);
        move || {
            // The status is ignored: the call fails only while the environment ends, when no promise can be settled any more.
            if let Some(function) = function.get() {
                function.call((), ThreadsafeFunctionCallMode::NonBlocking);
            }
        }
    }

    /// Whether this function keeps the process alive; at first it does not.
    pub(crate) fn keep_alive(&self, is_kept: bool) -> Result<()> {
        let Some(function) = self.function.get() else { return Ok(()) };
        let change =
            if is_kept { sys::napi_ref_threadsafe_function } else { sys::napi_unref_threadsafe_function };
        // SAFETY: this is the environment's thread, and `self.function` keeps the function.
        let status = unsafe { change(self.env, function.raw()) };
        if status == sys::Status::napi_ok {
            return Ok(());
        }
        Err(internal("Node-API refused to keep the process alive"))
    }
}
