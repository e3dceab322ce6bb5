//! The function that gives the credentials of new connections.

use std::ffi::{c_char, c_void};

use polylimit::LimiterBuilder;
use polylimit::redis::Credentials;

use crate::arguments::{foreign_text, optional_text, text};
use crate::error::{Failure, MessageBuffer, guard_or, guard_unit, polylimit_status};

/// What a function gives as credentials; it exists during the call of the function.
pub struct polylimit_credentials {
    given: Result<Credentials, String>,
}

/// A function that gives the credentials of a new connection, by polylimit_credentials_set or polylimit_credentials_fail, and
/// the context that was set with it.
pub type polylimit_give_credentials =
    Option<unsafe extern "C" fn(credentials: *mut polylimit_credentials, context: *mut c_void)>;

/// A function that releases a context.
pub type polylimit_release_context = Option<unsafe extern "C" fn(context: *mut c_void)>;

/// The caller's function, and its context until nothing uses it.
pub(crate) struct CredentialsFunction {
    give: polylimit_give_credentials,
    context: *mut c_void,
    release: polylimit_release_context,
}

// SAFETY: the caller guarantees functions that may be called with the context on any thread.
unsafe impl Send for CredentialsFunction {}
// SAFETY: the core calls the function on one thread at a time, and releases the context after the last call.
unsafe impl Sync for CredentialsFunction {}

impl CredentialsFunction {
    /// # Safety
    /// Both functions may be called with `context` on any thread, until `release` has been.
    pub(crate) unsafe fn new(
        give: polylimit_give_credentials,
        context: *mut c_void,
        release: polylimit_release_context,
    ) -> Self {
        Self { give, context, release }
    }

    pub(crate) fn give_to(self, builder: LimiterBuilder) -> Result<LimiterBuilder, Failure> {
        let Some(give) = self.give else { return Err(Failure::invalid("give_credentials is NULL")) };
        Ok(builder.credentials(move || {
            let mut credentials = polylimit_credentials { given: Err("it has given nothing".to_owned()) };
            // SAFETY: the caller guarantees it.
            unsafe { give(&raw mut credentials, self.context()) };
            credentials.given
        }))
    }

    fn context(&self) -> *mut c_void {
        self.context
    }
}

impl Drop for CredentialsFunction {
    fn drop(&mut self) {
        if let Some(release) = self.release {
            // SAFETY: the caller guarantees it, and nothing calls a function that is dropped.
            unsafe { release(self.context) };
        }
    }
}

/// Gives a password (1 to 16384 bytes), and the user that it belongs to; NULL is the default user. Both are copied: the caller may
/// overwrite them afterwards. The last call of this or of polylimit_credentials_fail counts, and one that fails is a failure of the
/// function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polylimit_credentials_set(
    credentials: *mut polylimit_credentials,
    username: *const c_char,
    password: *const c_char,
    error_buffer: *mut c_char,
    error_capacity: usize,
) -> polylimit_status {
    // SAFETY: the caller guarantees the buffer.
    guard_unit(unsafe { MessageBuffer::new(error_buffer, error_capacity) }, || {
        // SAFETY: the caller guarantees what its function has received.
        let credentials = unsafe { receiver(credentials) }?;
        // SAFETY: the caller guarantees texts, or NULL.
        let texts = unsafe {
            optional_text(username, "username")
                .and_then(|username| Ok((username, text(password, "password")?)))
        };
        match texts {
            Ok((username, password)) => credentials.given = Ok(Credentials::new(username, password)),
            Err(failure) => {
                credentials.given = Err(failure.message.to_string());
                return Err(failure);
            }
        }
        Ok(())
    })
}

/// Reports why there are no credentials: `message` is a sentence for operators, without a secret, of which 200 characters are
/// shown. It is the cause in the errors of polylimit_limiter_ready, in events and in the doctor.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polylimit_credentials_fail(
    credentials: *mut polylimit_credentials,
    message: *const c_char,
) {
    guard_or((), || {
        // SAFETY: the caller guarantees what its function has received, and a text or NULL.
        if let Ok(credentials) = unsafe { receiver(credentials) } {
            // SAFETY: the caller guarantees it.
            let message = unsafe { foreign_text(message, "message") };
            credentials.given = Err(message.map_or_else(|_| "it gives no reason".to_owned(), Into::into));
        }
    });
}

/// # Safety
/// `credentials` is NULL, or what a function has received that has not returned.
unsafe fn receiver<'a>(
    credentials: *mut polylimit_credentials,
) -> Result<&'a mut polylimit_credentials, Failure> {
    // SAFETY: the caller guarantees it.
    unsafe { credentials.as_mut() }.ok_or_else(|| Failure::invalid("credentials is NULL"))
}
