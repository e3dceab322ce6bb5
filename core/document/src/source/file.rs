//! A document in a file that is polled.
//!
//! A file that replaces another one, by a rename or by a symbolic link that is changed, has another inode and is read at once.
//! A file that is written in place may be half written: it is read when two looks in a row find the same size and times of
//! modification and of change. The time of change also detects new contents with the size and modification time of the old
//! ones, as left by copies that keep times.
//!
//! Only a regular file is opened for reading: opening a pipe would wait for a writer, and a device may have no end.

use std::fs::{File, Metadata};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use crate::source::snapshot::Snapshot;
use polylimit_rules::error::Error;

#[derive(Debug)]
pub(crate) struct WatchedFile {
    path: PathBuf,
    /// What was read last, valid or not; `None` before the first read.
    read: Option<Stamp>,
    /// What the previous look found.
    seen: Option<Stamp>,
    /// Why what was read last is not a document, as long as it is there.
    refused: Option<Error>,
}

/// Distinguishes one content of the file from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    inode: (u64, u64),
    length: u64,
    modified: Option<SystemTime>,
    /// When contents, name or permissions changed, in seconds and nanoseconds; no program can set it.
    changed: (i64, i64),
}

/// The result of a look.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Look {
    Unchanged,
    /// It has changed since the last look, and may still be being written.
    BeingWritten,
    Changed(Arc<str>),
    /// It is missing, or cannot be read.
    Unreadable(Error),
}

impl WatchedFile {
    pub(crate) fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), read: None, seen: None, refused: None }
    }

    /// Looks at the file, and reads it when it has changed and is stable.
    pub(crate) fn look(&mut self) -> Look {
        let found = std::fs::metadata(&self.path).and_then(|found| regular(&found).map(|()| found));
        let stamp = match found {
            Ok(metadata) => Stamp::of(&metadata),
            Err(error) => {
                self.seen = None;
                return Look::Unreadable(self.unreadable(&error));
            }
        };
        let before = self.seen.replace(stamp);
        match self.read {
            Some(read) if read == stamp => match &self.refused {
                Some(error) => Look::Unreadable(error.clone()),
                None => Look::Unchanged,
            },
            Some(read) if read.inode == stamp.inode && before != Some(stamp) => Look::BeingWritten,
            _ => self.read_now(),
        }
    }

    /// Reads the file, whether it is stable or not.
    pub(crate) fn read_now(&mut self) -> Look {
        let bytes = match self.contents() {
            Ok(bytes) => bytes,
            Err(error) => return Look::Unreadable(self.unreadable(&error)),
        };
        let text = text_of(bytes);
        self.refused = text.as_ref().err().cloned();
        text.map_or_else(Look::Unreadable, |text| Look::Changed(text.into()))
    }

    fn contents(&mut self) -> io::Result<Vec<u8>> {
        // The stamp is taken before the content is read, so that a write in between counts as a change.
        let (file, found) = open_regular(&self.path)?;
        let mut bytes = Vec::new();
        file.take(Snapshot::MAX_DOCUMENT as u64 + 1).read_to_end(&mut bytes)?;
        let stamp = Stamp::of(&found);
        (self.read, self.seen) = (Some(stamp), Some(stamp));
        Ok(bytes)
    }

    fn unreadable(&self, error: &io::Error) -> Error {
        Error::invalid_argument(format!(
            "the configuration's file {:?} cannot be read ({error}): allowed is a file in TOML or JSON",
            self.path.display().to_string()
        ))
        .caused_by_io(error)
    }
}

/// The text of a document, if it may be one.
fn text_of(bytes: Vec<u8>) -> Result<String, Error> {
    if bytes.len() > Snapshot::MAX_DOCUMENT {
        return Err(Error::invalid_argument(format!(
            "the configuration's file has more than {} bytes, which is what a document may have",
            Snapshot::MAX_DOCUMENT
        )));
    }
    String::from_utf8(bytes).map_err(|error| {
        Error::invalid_argument(format!(
            "the configuration's file is not UTF-8 at byte {}: allowed is TOML or JSON in UTF-8",
            error.utf8_error().valid_up_to()
        ))
    })
}

fn regular(found: &Metadata) -> io::Result<()> {
    if found.is_file() { Ok(()) } else { Err(io::Error::other("it is no regular file")) }
}

/// Opens a regular file. Anything else is refused without blocking.
pub(crate) fn open_regular(path: &Path) -> io::Result<(File, Metadata)> {
    let mut options = File::options();
    options.read(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt as _;
        options.custom_flags(libc::O_NONBLOCK);
    }
    let file = options.open(path)?;
    let found = file.metadata()?;
    regular(&found)?;
    Ok((file, found))
}

impl Stamp {
    fn of(metadata: &Metadata) -> Self {
        let (inode, changed) = identity(metadata);
        Self { inode, length: metadata.len(), modified: metadata.modified().ok(), changed }
    }
}

/// The number of a file, and when it was changed last.
#[cfg(unix)]
fn identity(metadata: &Metadata) -> ((u64, u64), (i64, i64)) {
    use std::os::unix::fs::MetadataExt as _;
    ((metadata.dev(), metadata.ino()), (metadata.ctime(), metadata.ctime_nsec()))
}

#[cfg(not(unix))]
fn identity(_metadata: &Metadata) -> ((u64, u64), (i64, i64)) {
    ((0, 0), (0, 0))
}

#[cfg(unix)]
#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;

    fn changed(text: &str) -> Look {
        Look::Changed(text.into())
    }

    /// Writes in place, at a given time of modification.
    fn write(path: &Path, text: &str, modified_s: u64) {
        let mut file = File::options().write(true).create(true).truncate(true).open(path).unwrap();
        io::Write::write_all(&mut file, text.as_bytes()).unwrap();
        file.set_modified(UNIX_EPOCH + Duration::from_secs(modified_s)).unwrap();
    }

    #[test]
    fn file_written_in_place_is_read_when_it_rests() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("limits.toml");
        write(&path, "one", 1);
        let mut file = WatchedFile::new(&path);
        assert_eq!(file.look(), changed("one"));
        assert_eq!(file.look(), Look::Unchanged);
        for (half, modified_s) in [("", 2), ("tw", 3)] {
            write(&path, half, modified_s);
            assert_eq!(file.look(), Look::BeingWritten);
        }
        write(&path, "two", 4);
        assert_eq!(file.look(), Look::BeingWritten);
        assert_eq!(file.look(), changed("two"));
        assert_eq!(file.look(), Look::Unchanged);
        // The time of modification went back, and the length is the same.
        write(&path, "six", 3);
        assert_eq!(file.look(), Look::BeingWritten);
        assert_eq!(file.look(), changed("six"));
    }

    #[test]
    fn file_that_replaces_another_is_read_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let (path, next) = (folder.path().join("limits.toml"), folder.path().join("next"));
        write(&path, "one", 1);
        let mut file = WatchedFile::new(&path);
        assert_eq!(file.look(), changed("one"));
        // Length and time are the same.
        write(&next, "two", 1);
        fs::rename(&next, &path).unwrap();
        assert_eq!(file.look(), changed("two"));
        assert_eq!(file.look(), Look::Unchanged);
    }

    /// As the kubelet updates the volume of a `ConfigMap`.
    #[test]
    fn symbolic_link_that_leads_elsewhere_is_read_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for (version, text) in [("..1", "one"), ("..2", "two")] {
            fs::create_dir(at(version)).unwrap();
            write(&at(version).join("limits.toml"), text, 1);
        }
        symlink("..1", at("..data")).unwrap();
        symlink("..data/limits.toml", at("limits.toml")).unwrap();
        let mut file = WatchedFile::new(&at("limits.toml"));
        assert_eq!(file.look(), changed("one"));
        symlink("..2", at("..data_tmp")).unwrap();
        fs::rename(at("..data_tmp"), at("..data")).unwrap();
        fs::remove_dir_all(at("..1")).unwrap();
        assert_eq!(file.look(), changed("two"));
        assert_eq!(file.look(), Look::Unchanged);
    }

    #[test]
    fn missing_file_that_comes_back_is_unchanged_or_read_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let (path, aside) = (folder.path().join("limits.toml"), folder.path().join("aside"));
        let mut file = WatchedFile::new(&path);
        let Look::Unreadable(error) = file.look() else { panic!("a missing file was read") };
        assert!(error.message().contains("limits.toml\" cannot be read (No such file"), "{error}");
        write(&path, "one", 1);
        assert_eq!(file.look(), changed("one"));
        fs::rename(&path, &aside).unwrap();
        assert!(matches!(file.look(), Look::Unreadable(_)));
        fs::rename(&aside, &path).unwrap();
        // Its time of change may differ.
        let _ = file.look();
        assert!(matches!(file.look(), Look::Unchanged | Look::Changed(_)));
        assert_eq!(file.look(), Look::Unchanged);
        fs::rename(&path, &aside).unwrap();
        write(&path, "two", 1);
        assert_eq!(file.look(), changed("two"));
    }

    /// As `cp -p`, `rsync -t` and builds with fixed times write.
    #[test]
    fn content_of_the_same_size_and_time_of_modification_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("limits.toml");
        write(&path, "110", 1);
        let mut file = WatchedFile::new(&path);
        assert_eq!(file.look(), changed("110"));
        // Some file systems take their times from the kernel's ticks.
        std::thread::sleep(Duration::from_millis(20));
        write(&path, "111", 1);
        assert_eq!(file.look(), Look::BeingWritten);
        assert_eq!(file.look(), changed("111"));
    }

    #[test]
    fn what_is_no_regular_file_is_refused_without_waiting_until_a_file_is_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("limits.toml");
        write(&path, "one", 1);
        let mut file = WatchedFile::new(&path);
        assert_eq!(file.look(), changed("one"));
        let pipe = || assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        let device = || symlink("/dev/zero", &path).unwrap();
        let directory = || fs::create_dir(&path).unwrap();
        for (number, make) in [&pipe as &dyn Fn(), &device, &directory].into_iter().enumerate() {
            let _ = fs::remove_file(&path);
            make();
            for look in [file.look(), file.look(), file.read_now(), WatchedFile::new(&path).read_now()] {
                let Look::Unreadable(error) = look else { panic!("{number} was read") };
                assert!(error.message().contains("it is no regular file"), "{error}");
            }
        }
        fs::remove_dir(&path).unwrap();
        write(&path, "two", 1);
        // It may have the previous file's inode number.
        assert!([file.look(), file.look()].contains(&changed("two")));
    }

    #[test]
    fn followed_content_that_is_no_document_is_reported_as_long_as_it_is_there() {
        let folder = tempfile::tempdir().unwrap();
        let (path, next) = (folder.path().join("limits.toml"), folder.path().join("next"));
        write(&path, "one", 1);
        let mut file = WatchedFile::new(&path);
        assert_eq!(file.look(), changed("one"));
        for (bytes, about) in [
            (vec![b' '; Snapshot::MAX_DOCUMENT + 1], "more than 1048576 bytes"),
            (b"ab\xff".to_vec(), "not UTF-8 at byte 2"),
        ] {
            fs::write(&next, bytes).unwrap();
            fs::rename(&next, &path).unwrap();
            for _ in 0..3 {
                let Look::Unreadable(error) = file.look() else { panic!("it was read or forgotten") };
                assert!(error.message().contains(about), "{error}");
            }
        }
        write(&next, "two", 1);
        fs::rename(&next, &path).unwrap();
        assert_eq!(file.look(), changed("two"));
        assert_eq!(file.look(), Look::Unchanged);
    }

    #[test]
    fn contents_that_are_no_text_or_too_long_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("limits.toml");
        for (bytes, about) in [
            (b"ab\xff".to_vec(), "not UTF-8 at byte 2"),
            (vec![b' '; Snapshot::MAX_DOCUMENT + 1], "more than 1048576 bytes"),
        ] {
            fs::write(&path, bytes).unwrap();
            let Look::Unreadable(error) = WatchedFile::new(&path).look() else { panic!("it was read") };
            assert!(error.message().contains(about), "{error}");
        }
        fs::write(&path, vec![b' '; Snapshot::MAX_DOCUMENT]).unwrap();
        assert!(matches!(WatchedFile::new(&path).look(), Look::Changed(_)));
        let Look::Unreadable(error) = WatchedFile::new(folder.path()).look() else {
            panic!("a folder was read")
        };
        assert!(error.message().contains("cannot be read"), "{error}");
    }
}
