//! The location of the file: the user's name for it, and its path on this host.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::failure::Failure;
use crate::layout::{DEFAULT_SIZE, MAX_SIZE, MIN_SIZE};
use polylimit_rules::decision::Degradation;
use polylimit_rules::error::{Error, ErrorKind, excerpt};
use polylimit_store::outage::Outage;
use polylimit_store::share::Ppm;

/// The content of a URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedFileOptions {
    place: Place,
    /// In bytes, if the URL gives it.
    pub(crate) size: Option<u64>,
    pub(crate) outage: Outage,
    pub(crate) fallback_share: Ppm,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    Name(Box<str>),
    Path(PathBuf),
}

const MAX_NAME: usize = 64;
const SHARED_MEMORY: &str = "/dev/shm";
const RUN_DIRECTORY: &str = "XDG_RUNTIME_DIR";
const TEMPORARY: &str = "/tmp";

impl SharedFileOptions {
    /// Whether a URL names a local store.
    pub fn is_local(url: &str) -> bool {
        url.starts_with("local:") || url.starts_with("file:")
    }

    /// Parses `local:<name>` or `file:///path`, either with `?size=<size>`.
    #[doc(hidden)]
    pub fn parse(url: &str) -> Result<Self, Error> {
        let (place, parameters) = url.split_once('?').unwrap_or((url, ""));
        let place = match place.split_once(':') {
            Some(("local", name)) => Place::Name(read_name(name)?),
            Some(("file", path)) => Place::Path(read_path(path)?),
            _ => return Err(Error::invalid_argument("a local store is local:<name> or file:///path")),
        };
        let mut size = None;
        for parameter in parameters.split('&').filter(|parameter| !parameter.is_empty()) {
            match parameter.split_once('=') {
                Some(("size", text)) if size.is_none() => size = Some(read_size(text)?),
                Some(("size", _)) => {
                    return Err(Error::invalid_argument(
                        "the local store's size is set more than once: set it once",
                    ));
                }
                _ => {
                    return Err(Error::invalid_argument(format!(
                        "the local store has no option {}: allowed is size, such as size=64MiB",
                        excerpt(parameter)
                    )));
                }
            }
        }
        Ok(Self { place, size, outage: Outage::default(), fallback_share: Ppm::ALL })
    }

    /// Sets an option by its name, if it has an effect on a local store. The caller has checked the value.
    #[doc(hidden)]
    pub fn set(&mut self, name: &str, text: &str) -> Result<bool, Error> {
        match name {
            "outage" => self.outage = text.parse()?,
            "fallback_share" => {
                let share = Ppm::read(text).filter(|share| share.is_allowed());
                self.fallback_share = share.ok_or_else(|| {
                    Error::invalid_argument(format!(
                        "fallback_share is {}: allowed is more than 0, up to 1, with at most 6 decimals",
                        excerpt(text)
                    ))
                })?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Sets the size in bytes.
    #[doc(hidden)]
    pub fn sized(mut self, bytes: u64) -> Result<Self, Error> {
        let bytes = checked_size(bytes, &bytes.to_string())?;
        if self.size.is_some_and(|size| size != bytes) {
            return Err(Error::invalid_argument(format!(
                "the local store's size is {} in its URL and {bytes} in code: set it once",
                self.size.unwrap_or_default()
            )));
        }
        self.size = Some(bytes);
        Ok(self)
    }

    /// Sets the size from text.
    #[doc(hidden)]
    pub fn sized_by(self, text: &str) -> Result<Self, Error> {
        self.sized(read_size(text)?)
    }

    /// The size in bytes of a file to be created.
    pub(crate) fn size_to_make(&self) -> u64 {
        self.size.unwrap_or(DEFAULT_SIZE)
    }

    /// The path of the file: where it exists, or where it is to be created first.
    pub(crate) fn path(&self) -> Result<PathBuf, Failure> {
        self.paths().map(|mut paths| paths.swap_remove(0))
    }

    /// Where the file may be, at least one path. A name stands for a file in the host's shared memory, in the user's run directory or in
    /// the directory for temporary files: the first that can be written to and has space. An existing file takes precedence, so that all
    /// processes share it, however much space is left by now.
    pub(crate) fn paths(&self) -> Result<Vec<PathBuf>, Failure> {
        let name = match &self.place {
            Place::Path(path) => return Ok(vec![path.clone()]),
            Place::Name(name) => name,
        };
        // All users share the directories.
        let user = rustix::process::geteuid().as_raw();
        let file = format!("polylimit-{user}-{name}");
        let run_directory =
            std::env::var_os(RUN_DIRECTORY).map(PathBuf::from).filter(|path| path.is_absolute());
        let directories = [Some(PathBuf::from(SHARED_MEMORY)), run_directory, Some(PathBuf::from(TEMPORARY))];
        let writable = directories.into_iter().flatten().filter(|directory| may_write(directory));
        let mut paths: Vec<PathBuf> = writable.map(|directory| directory.join(&file)).collect();
        // Files of other users are ignored: with them, processes could end up with different files.
        let is_ours = |path: &PathBuf| path.symlink_metadata().is_ok_and(|found| found.uid() == user);
        paths.sort_by_key(|path| !is_ours(path));
        if paths.is_empty() {
            let error = Error::new(
                ErrorKind::StoreUnavailable,
                format!(
                    "there is no directory for local:{name}: neither {SHARED_MEMORY} nor the one that {RUN_DIRECTORY} names \
                     nor {TEMPORARY} can be written to: mount one, or name a file as file:///path"
                ),
            );
            return Err(Failure { reason: Some(Degradation::Unreachable), ..Failure::from(error) });
        }
        Ok(paths)
    }

    /// A note for operators about the place of the file, for a name that is not in shared memory.
    pub(crate) fn note(&self, path: &Path) -> Option<String> {
        let is_named = matches!(self.place, Place::Name(_));
        (is_named && !path.starts_with(SHARED_MEMORY)).then(|| {
            format!(
                "{SHARED_MEMORY} cannot be written to or has no space for {} bytes, and the file is {}: make room there or \
                 choose a smaller size with ?size= (1MiB or more), remove this file and start its processes again",
                self.size_to_make(),
                path.display()
            )
        })
    }
}

fn may_write(directory: &Path) -> bool {
    let rights = rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK;
    directory.is_dir() && rustix::fs::access(directory, rights).is_ok()
}

fn read_name(name: &str) -> Result<Box<str>, Error> {
    let good = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if (1..=MAX_NAME).contains(&name.len()) && name.bytes().all(good) {
        return Ok(name.into());
    }
    Err(Error::invalid_argument(format!(
        "local:{} names no store: allowed are 1 to {MAX_NAME} letters, digits and -_. after local:",
        excerpt(name)
    )))
}

fn read_path(path: &str) -> Result<PathBuf, Error> {
    use std::os::unix::ffi::OsStringExt;
    let refused = || {
        Error::invalid_argument(format!(
            "file:{} names no file: allowed is file:/// and an absolute path, with ?, # and % written as % and two \
             hexadecimal digits",
            excerpt(path)
        ))
    };
    let path_of_host = path.strip_prefix("//").and_then(|path| path.strip_prefix("localhost").or(Some(path)));
    let read =
        path_of_host.filter(|path| path.starts_with('/') && !path.ends_with('/') && !path.contains('#'));
    let bytes: Vec<u8> = percent_encoding::percent_decode_str(read.ok_or_else(refused)?).collect();
    if bytes.contains(&0) {
        return Err(refused());
    }
    Ok(std::ffi::OsString::from_vec(bytes).into())
}

fn read_size(text: &str) -> Result<u64, Error> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let unit = match unit {
        "" => Some(1),
        "KiB" => Some(1 << 10),
        "MiB" => Some(1 << 20),
        "GiB" => Some(1 << 30),
        _ => None,
    };
    let bytes = number.parse::<u64>().ok().zip(unit).and_then(|(number, unit)| number.checked_mul(unit));
    // A size that cannot be read counts as 0, which is out of range.
    checked_size(bytes.unwrap_or(0), text)
}

fn checked_size(bytes: u64, read: &str) -> Result<u64, Error> {
    if (MIN_SIZE..=MAX_SIZE).contains(&bytes) {
        // A multiple of every page size.
        return Ok(bytes.next_multiple_of(1 << 16));
    }
    Err(Error::invalid_argument(format!(
        "size {} of the local store: allowed are {}MiB to {}GiB, as a whole number of bytes, KiB, MiB or GiB",
        excerpt(read),
        MIN_SIZE >> 20,
        MAX_SIZE >> 30
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_read() {
        let options = SharedFileOptions::parse("local:api?size=16MiB").unwrap();
        assert_eq!((options.place, options.size), (Place::Name("api".into()), Some(16 << 20)));
        for (url, path) in [("file:///run/a%3Fb", "/run/a?b"), ("file://localhost/x", "/x")] {
            let options = SharedFileOptions::parse(url).unwrap();
            assert_eq!((options.path().unwrap(), options.size), (path.into(), None));
        }
        assert_eq!(SharedFileOptions::parse("local:a?size=1073741824").unwrap().size, Some(1 << 30));
        SharedFileOptions::parse("local:a?size=2MiB").unwrap().sized(2 << 20).unwrap();
    }

    #[test]
    fn what_is_not_allowed_is_refused_with_what_is() {
        for (url, said) in [
            ("local:", "letters, digits"),
            ("local:a/b", "letters, digits"),
            ("local:é", "letters, digits"),
            ("file:relative", "absolute path"),
            ("file://host/x", "absolute path"),
            ("file:///", "absolute path"),
            ("file:///a%00", "absolute path"),
            ("local:a?size=1", "1MiB to 64GiB"),
            ("local:a?size=1TiB", "1MiB to 64GiB"),
            ("local:a?size=99999999999999999999", "1MiB to 64GiB"),
            ("local:a?size=2MiB&size=2MiB", "more than once"),
            ("local:a?color=red", "no option \"color=red\""),
        ] {
            let error = SharedFileOptions::parse(url).unwrap_err();
            assert!(error.to_string().contains(said), "{url}: {error}");
        }
        assert!(SharedFileOptions::parse("local:a?size=2MiB").unwrap().sized(4 << 20).is_err());
    }
}
