//! Why a command is refused.

use std::fmt;

/// The reply to a command that has done nothing, with its code in front. Clients know it by the words "polylimit: ".
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal(String);

impl Refusal {
    /// A command that is not as it has to be.
    pub fn of(cause: impl fmt::Display) -> Self {
        Self(format!("ERR polylimit: {cause}"))
    }

    /// A command that has panicked. It may have decided some of its keys, so that clients must not take it for one that has done nothing.
    pub fn of_defect() -> Self {
        Self(
            "ERR a defect of the module polylimit has ended the command: the server's log has more"
                .to_owned(),
        )
    }

    /// A key of another type than a string.
    pub fn wrong_type() -> Self {
        Self("WRONGTYPE Operation against a key holding the wrong kind of value".to_owned())
    }

    /// The reply, without line breaks, which the protocol does not allow in it.
    pub fn text(&self) -> String {
        self.0.replace(['\r', '\n', '\0'], " ")
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
