//! Where a configuration comes from, as the option `configuration` names it.

use std::fmt;
use std::path::{Path, PathBuf};

use polylimit_store::option::{OptionKind, StoreOption};

/// The source of the document and of the entries.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ConfigurationPlace {
    /// The document is a file, and there are no entries.
    File(PathBuf),
    /// Document and entries are in Redis.
    Store,
    /// The document is a file; the entries are in Redis.
    StoreAndFile(PathBuf),
}

pub(crate) const ALLOWED_PLACES: &str = "file:PATH, store or store+file:PATH";

/// The option that names the place. A Redis store has it in its table of options.
pub const CONFIGURATION: StoreOption = StoreOption {
    name: "configuration",
    kind: OptionKind::Text,
    about: "Where the limits come from, if they are a configuration: file:PATH is a document in TOML or JSON, store a document \
            and entries in Redis, store+file:PATH a document in a file with entries in Redis.",
    allowed: ALLOWED_PLACES,
    default: None,
    secret: false,
};

/// The option that names the copy.
pub const COPY: StoreOption = StoreOption {
    name: "copy",
    kind: OptionKind::Text,
    about: "A file to which the configuration is written after each change, and from which it is read when the limiter is made: so \
            a process starts while Redis is away. Only with `configuration`.",
    allowed: "the path of a file",
    default: None,
    secret: false,
};

impl ConfigurationPlace {
    /// `None` for any other text.
    pub fn read(text: &str) -> Option<Self> {
        if text == "store" {
            return Some(Self::Store);
        }
        let (kind, path) = text.split_once(':')?;
        let path = Some(PathBuf::from(path)).filter(|path| is_path(path))?;
        match kind {
            "file" => Some(Self::File(path)),
            "store+file" => Some(Self::StoreAndFile(path)),
            _ => None,
        }
    }

    /// The file of the document.
    pub(crate) fn file(&self) -> Option<&Path> {
        match self {
            Self::File(path) | Self::StoreAndFile(path) => Some(path),
            Self::Store => None,
        }
    }

    /// Whether entries, and perhaps the document, come from Redis.
    pub(crate) fn uses_store(&self) -> bool {
        matches!(self, Self::Store | Self::StoreAndFile(_))
    }
}

/// Whether a path can name a file.
pub fn is_path(path: &Path) -> bool {
    let bytes = path.as_os_str().as_encoded_bytes();
    !bytes.is_empty() && !bytes.contains(&0)
}

impl fmt::Display for ConfigurationPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "file:{}", path.display()),
            Self::Store => f.write_str("store"),
            Self::StoreAndFile(path) => write!(f, "store+file:{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_read_and_written() {
        let path = || PathBuf::from("/etc/limits.toml");
        for (text, place) in [
            ("file:/etc/limits.toml", ConfigurationPlace::File(path())),
            ("store", ConfigurationPlace::Store),
            ("store+file:/etc/limits.toml", ConfigurationPlace::StoreAndFile(path())),
            ("file:a:b", ConfigurationPlace::File("a:b".into())),
        ] {
            assert_eq!(ConfigurationPlace::read(text), Some(place.clone()));
            assert_eq!(place.to_string(), text);
        }
        for text in [
            "",
            "file",
            "file:",
            "store:",
            "store+file",
            "store+file:",
            "Store",
            "redis",
            "file:a\0",
            "store+x:a",
        ] {
            assert_eq!(ConfigurationPlace::read(text), None, "{text}");
        }
    }
}
