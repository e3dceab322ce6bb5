//! Kinds of options that are text: names, choices, files and secrets.

use std::path::PathBuf;

use rustls_pki_types::ServerName;

use crate::error::excerpt;
use crate::store::outage::Outage;
use crate::store::redis::config::kind::Kind;
use crate::store::redis::config::secret::Secret;

/// Implements [`Kind`] for text that is kept as it is.
macro_rules! text {
    ($(#[$doc:meta])* $name:ident, $well_formed:expr) => {
        $(#[$doc])*
        pub(crate) enum $name {}

        impl Kind for $name {
            type Argument = Box<str>;
            type Value = Box<str>;

            fn from_argument(argument: Box<str>) -> Box<str> {
                argument
            }

            fn read(text: &str) -> Option<Box<str>> {
                Some(text.into())
            }

            fn allows(_: &str, value: &Box<str>) -> bool {
                let well_formed: fn(&str) -> bool = $well_formed;
                well_formed(value)
            }

            fn show(value: &Box<str>) -> String {
                excerpt(value)
            }
        }
    };
}

text!(
    /// The prefix of all keys.
    Prefix,
    |text| (1..=64).contains(&text.len()) && text.bytes().all(is_readable)
);
text!(
    /// The name of a connection: Redis allows neither spaces nor line ends in it.
    ClientName,
    |text| (1..=64).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic())
);
text!(
    /// The name in a certificate.
    HostName,
    |text| ServerName::try_from(text).is_ok()
);

/// An outage policy.
pub(crate) enum Choice {}

impl Kind for Choice {
    type Argument = Outage;
    type Value = Outage;

    fn from_argument(argument: Outage) -> Outage {
        argument
    }

    fn read(text: &str) -> Option<Outage> {
        Outage::from_name(text)
    }

    fn allows(_: &str, _: &Outage) -> bool {
        true
    }

    fn show(value: &Outage) -> String {
        value.name().to_owned()
    }
}

/// The path of a file.
pub(crate) enum File {}

impl Kind for File {
    type Argument = PathBuf;
    type Value = PathBuf;

    fn from_argument(argument: PathBuf) -> PathBuf {
        argument
    }

    fn read(text: &str) -> Option<PathBuf> {
        Some(text.into())
    }

    fn allows(_: &str, value: &PathBuf) -> bool {
        !value.as_os_str().is_empty() && !value.as_os_str().as_encoded_bytes().contains(&0)
    }

    fn show(value: &PathBuf) -> String {
        format!("{:?}", value.to_string_lossy())
    }
}

/// Text that is never shown.
pub(crate) enum Hidden {}

impl Kind for Hidden {
    type Argument = Box<str>;
    type Value = Secret;
    const SECRET: bool = true;

    fn from_argument(argument: Box<str>) -> Secret {
        Secret::from(argument)
    }

    fn read(text: &str) -> Option<Secret> {
        Some(Secret::from(Box::from(text)))
    }

    fn allows(_: &str, value: &Secret) -> bool {
        (1..=16_384).contains(&value.reveal().len())
    }

    fn show(_: &Secret) -> String {
        "***".to_owned()
    }
}

/// Whether a byte stands for itself in a key: it is printable, and is no brace, `%` or `#`.
pub(crate) const fn is_readable(byte: u8) -> bool {
    READABLE[byte as usize]
}

const READABLE: [bool; 256] = {
    let readable = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~@:/+=,;!$&'()*|";
    let mut table = [false; 256];
    let mut at = 0;
    while at < readable.len() {
        table[readable[at] as usize] = true;
        at += 1;
    }
    table
};
