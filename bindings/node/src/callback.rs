//! Functions for JavaScript that are made by hand: calling what napi's macros make takes longer than deciding.

use std::ffi::{CStr, c_void};
use std::ptr;

use napi::bindgen_prelude::{FromNapiValue, Unknown};
use napi::{Env, JsError, sys};

use crate::failure::{Result, guarded, internal, refused};

/// How many arguments such a function takes.
pub(crate) const ARGUMENTS: usize = 2;

/// What a function does when it is called.
pub(crate) trait Callback: Sized + 'static {
    /// The name of the function.
    const NAME: &'static CStr;

    /// What it returns; null is `undefined`.
    ///
    /// # Safety
    /// The environment and the arguments have to be valid.
    unsafe fn call(
        &self,
        env: sys::napi_env,
        arguments: [sys::napi_value; ARGUMENTS],
    ) -> Result<sys::napi_value>;
}

/// Makes the function that calls `callback`.
fn function<C: Callback>(env: Env, callback: C) -> Result<sys::napi_value> {
    let data = Box::into_raw(Box::new(callback)).cast::<c_void>();
    let mut function = ptr::null_mut();
    // SAFETY: `data` is a `Box<C>`, which the finalizer of the function drops when nobody can call it any more.
    let status = unsafe {
        let made = sys::napi_create_function(
            env.raw(),
            C::NAME.as_ptr(),
            C::NAME.count_bytes().cast_signed(),
            Some(called::<C>),
            data,
            &raw mut function,
        );
        match made {
            sys::Status::napi_ok => sys::napi_add_finalizer(
                env.raw(),
                function,
                data,
                Some(release::<C>),
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
    drop(unsafe { Box::from_raw(data.cast::<C>()) });
    Err(internal("Node-API refused to make a function"))
}

/// The same as napi's macros return it.
pub(crate) fn unknown<'env, C: Callback>(env: Env, callback: C) -> Result<Unknown<'env>> {
    let function = function(env, callback)?;
    // SAFETY: both are valid, the function having just been made.
    unsafe { Unknown::from_napi_value(env.raw(), function) }.map_err(refused)
}

unsafe extern "C" fn release<C: Callback>(_: sys::napi_env, data: *mut c_void, _: *mut c_void) {
    // SAFETY: made by `function`, and dropped only here.
    let callback = unsafe { Box::from_raw(data.cast::<C>()) };
    // A panic must not leave this function; there is nobody to tell.
    _ = guarded(|| {
        drop(callback);
        Ok(())
    });
}

unsafe extern "C" fn called<C: Callback>(
    env: sys::napi_env,
    info: sys::napi_callback_info,
) -> sys::napi_value {
    let done = guarded(|| {
        let mut arguments = [ptr::null_mut(); ARGUMENTS];
        let (mut count, mut data) = (ARGUMENTS, ptr::null_mut());
        // SAFETY: there is room for so many arguments; those that were not given become undefined.
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
            return Err(internal("Node-API refused to give the arguments"));
        }
        // SAFETY: the function is being called, so that its data is there; all is valid as long as this call lasts.
        unsafe { (*data.cast::<C>()).call(env, arguments) }
    });
    done.unwrap_or_else(|error| {
        // SAFETY: no exception is pending.
        unsafe { JsError::from(error).throw_into(env) };
        ptr::null_mut()
    })
}
