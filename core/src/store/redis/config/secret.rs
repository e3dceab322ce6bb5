//! Text that is never shown: passwords, user names and the secret that keys are hashed with.

use std::fmt;

/// Text that `Debug` prints as `***`. It has no `Display`, so that it cannot get into a message by mistake.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct Secret(Box<str>);

impl Secret {
    /// The text itself, for sending or hashing it.
    pub(crate) fn reveal(&self) -> &str {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_does_not_tell_even_the_length() {
        for text in ["", "a", "correct horse battery staple"] {
            let secret = Secret::from(Box::from(text));
            assert_eq!(format!("{secret:?} {:#?}", Some(&secret)), "*** Some(\n    ***,\n)");
            assert_eq!(secret.reveal(), text);
        }
    }
}
