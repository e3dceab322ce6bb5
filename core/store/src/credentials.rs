//! The user name and password for a server, and the user's function that returns them.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Text that `Debug` prints as `***`. It has no `Display`, so that it cannot get into a message by mistake.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Secret(Box<str>);

impl Secret {
    /// The text.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl From<Box<str>> for Secret {
    fn from(text: Box<str>) -> Self {
        Self(text)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// A user name and a password for Redis. Without a user name they belong to the default user. `Debug` shows neither.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Credentials {
    #[doc(hidden)]
    pub username: Option<Secret>,
    #[doc(hidden)]
    pub password: Secret,
}

impl Credentials {
    /// A password, and the user that it belongs to: `None` is the default user.
    #[must_use]
    pub fn new(username: Option<&str>, password: &str) -> Self {
        let secret = |text: &str| Secret::from(Box::from(text));
        Self { username: username.map(secret), password: secret(password) }
    }
}

/// The user's function that returns the credentials for a new connection. Only clones of one function are equal.
#[derive(Clone)]
pub struct CredentialsFunction(Arc<dyn Fn() -> Result<Credentials, String> + Send + Sync>);

impl CredentialsFunction {
    /// Calls `give` for each new connection; its error is the reason why there is none.
    pub fn new(give: impl Fn() -> Result<Credentials, String> + Send + Sync + 'static) -> Self {
        Self(Arc::new(give))
    }

    /// Calls the function, which may block.
    #[doc(hidden)]
    pub fn call(&self) -> Result<Credentials, String> {
        catch_unwind(AssertUnwindSafe(|| (self.0)())).unwrap_or_else(|_| Err("it has panicked".to_owned()))
    }
}

impl PartialEq for CredentialsFunction {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for CredentialsFunction {}

impl Hash for CredentialsFunction {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Arc::as_ptr(&self.0).cast::<()>().hash(state);
    }
}

impl fmt::Debug for CredentialsFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a function")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_shows_neither_text_nor_length() {
        for text in ["", "a", "correct horse battery staple"] {
            let secret = Secret::from(Box::from(text));
            assert_eq!(format!("{secret:?} {:#?}", Some(&secret)), "*** Some(\n    ***,\n)");
            assert_eq!(secret.reveal(), text);
        }
    }

    #[test]
    fn function_that_panics_fails() {
        let function = CredentialsFunction::new(|| panic!("hidden"));
        assert_eq!(function.call(), Err("it has panicked".to_owned()));
    }
}
