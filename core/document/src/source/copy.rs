//! The copy: the last configuration in a local file, for a process that starts while Redis is unavailable.
//!
//! It is JSON: `of` names the configuration, so that the copy of another one is not used by mistake; the rest is the
//! [`Snapshot`]. A copy is replaced as a whole, so that a process which dies while writing leaves the previous one.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::path::Path;

use serde_json::{Map, Value, json};
use tempfile::NamedTempFile;

use crate::source::file::open_regular;
use crate::source::snapshot::{DocumentText, Entries, Snapshot};
use polylimit_rules::error::Error;

const WRITABLE: &str = "name a file that this process may write, in a folder that it may write";
const DAMAGED: &str =
    "is no copy of a configuration, and is not used: it is replaced once the store answers, or remove it";

/// The maximum size of a copy, in bytes.
const MAX_BYTES: u64 = 256 << 20;

/// Replaces the copy. Only the user of this process can read it.
pub(crate) fn write(path: &Path, of: &str, snapshot: &Snapshot) -> Result<(), Error> {
    write_bytes(path, &bytes(of, snapshot))
        .map_err(|error| refused(path, &format!("cannot be written ({error}): {WRITABLE}")))
}

fn write_bytes(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // Created with mode 0600.
    let mut file = NamedTempFile::new_in(folder)?;
    file.write_all(bytes)?;
    file.as_file().sync_all()?;
    file.persist(path)?;
    // The rename is durable once the folder is synced, which not every system supports.
    drop(File::open(folder).and_then(|folder| folder.sync_all()));
    Ok(())
}

fn bytes(of: &str, snapshot: &Snapshot) -> Vec<u8> {
    let Snapshot { version, last, document, entries } = snapshot;
    let entries: Map<String, Value> =
        entries.iter().map(|(entry, value)| (entry.to_string(), Value::from(&**value))).collect();
    let copy = json!({
        "of": of,
        "version": version,
        "last": last,
        "document_version": document.as_ref().map(|document| document.version),
        "document": document.as_ref().map(|document| &*document.text),
        "entries": entries,
    });
    copy.to_string().into_bytes()
}

/// Reads the copy; `None` if there is none.
pub(crate) fn read(path: &Path, of: &str) -> Result<Option<Snapshot>, Error> {
    let mut bytes = Vec::new();
    let read = open_regular(path).and_then(|(file, _)| file.take(MAX_BYTES).read_to_end(&mut bytes));
    match read {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(refused(path, &format!("cannot be read ({error}): {WRITABLE}"))),
    }
    let copy: Value = serde_json::from_slice(&bytes).map_err(|_| refused(path, DAMAGED))?;
    if copy["of"] != of {
        return Err(refused(path, &format!("is not the copy of {of}: {WRITABLE}")));
    }
    parse(&copy).map(Some).ok_or_else(|| refused(path, DAMAGED))
}

fn parse(copy: &Value) -> Option<Snapshot> {
    let entries = copy["entries"].as_object()?.iter();
    let entries = entries.map(|(entry, value)| Some((entry.as_str().into(), value.as_str()?.into())));
    let document = match &copy["document"] {
        Value::Null => None,
        text => {
            Some(DocumentText { version: copy["document_version"].as_u64()?, text: text.as_str()?.into() })
        }
    };
    Some(Snapshot {
        version: copy["version"].as_u64()?,
        last: copy["last"].as_str()?.into(),
        document,
        entries: entries.collect::<Option<Entries>>()?,
    })
}

fn refused(path: &Path, what: &str) -> Error {
    let path = path.display().to_string();
    Error::invalid_argument(format!("the configuration's copy {path:?} {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot() -> Snapshot {
        Snapshot {
            version: 7,
            last: "5-0".into(),
            document: Some(DocumentText { version: 3, text: "polylimit = 1\n# \"é\"".into() }),
            entries: [
                ("deny user \"a\"".into(), "{}".into()),
                ("allow user b".into(), r#"{"by":"x"}"#.into()),
            ]
            .into(),
        }
    }

    #[test]
    fn copy_is_read_as_it_was_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("copy");
        assert_eq!(read(&path, "store").unwrap(), None);
        for snapshot in [snapshot(), Snapshot::default(), Snapshot { document: None, ..snapshot() }] {
            write(&path, "store", &snapshot).unwrap();
            assert_eq!(read(&path, "store").unwrap(), Some(snapshot));
        }
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "a temporary file is left");
    }

    #[cfg(unix)]
    #[test]
    fn only_the_user_can_read_the_copy() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("copy");
        std::fs::write(&path, "").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        write(&path, "store", &snapshot()).unwrap();
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn other_files_are_no_copies() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("copy");
        let whole = String::from_utf8(bytes("store", &snapshot())).unwrap();
        for text in [
            "",
            "{",
            "[]",
            "{\"of\":\"store\"}",
            &whole[..whole.len() - 1],
            &whole.replace("\"version\":7", "\"version\":-7"),
        ] {
            std::fs::write(&path, text).unwrap();
            let error = read(&path, "store").unwrap_err();
            assert!(error.message().contains("\" is "), "{error}");
        }
        std::fs::write(&path, whole).unwrap();
        assert!(read(&path, "store").unwrap().is_some());
        let error = read(&path, "another").unwrap_err();
        assert!(error.message().contains("is not the copy of another"), "{error}");
        let error = write(&folder.path().join("missing/copy"), "store", &snapshot()).unwrap_err();
        assert!(error.message().contains("cannot be written"), "{error}");
    }
}
