//! Creates, checks and opens the file.
//!
//! All of its space is allocated at creation and requested again at every opening: a page that cannot be allocated at
//! its first access would kill the process. A process that opens the file while no other process has it open repairs
//! it. Content from an earlier boot of the system is discarded, since it may have been written to disk in part.

use std::fs::{File, OpenOptions};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, ErrorKind as Io};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::Ordering;

use rustix::fs::FallocateFlags;
use rustix::io::Errno;

use crate::failure::{Failure, failed, unavailable, unusable, without_space};
use crate::layout::{Layout, MAGIC, MAX_SIZE, MIN_SIZE, OWNERS, VERSION, header, owner_at};
use crate::location::SharedFileOptions;
use crate::owner::{Opening, Token};
use crate::patience::Patience;
use crate::policies::Secret;
use crate::recovery::{is_in_order, recover};
use crate::shard::{Shard, head};
use polylimit_rules::decision::Degradation;
use polylimit_rules::error::Error;
use polylimit_runtime::mmap::Mapping;

/// An open file, with this process as one of its owners.
#[derive(Debug)]
pub(crate) struct OpenFile {
    pub(crate) file: File,
    pub(crate) mapping: Mapping,
    pub(crate) layout: Layout,
    pub(crate) secret: Secret,
    pub(crate) token: Token,
    pub(crate) path: Box<Path>,
}

/// How often opening restarts because another file has replaced this one at the path.
const ATTEMPTS: usize = 10;

impl OpenFile {
    pub(crate) fn open(
        options: &SharedFileOptions,
        path: &Path,
        patience: Patience,
    ) -> Result<Self, Failure> {
        for _ in 0..ATTEMPTS {
            let (file, is_made) = open_or_make(path)?;
            check_owner(&file, path).inspect_err(|_| remove_empty(&file, path, is_made))?;
            if let Some((mapping, layout, secret, token)) =
                open_in_turn(&file, path, options, (is_made, patience))?
            {
                return Ok(Self { file, mapping, layout, secret, token, path: path.into() });
            }
        }
        Err(unavailable(path, Degradation::Unreachable, "it is removed again and again while it is opened"))
    }

    /// Whether another limiter of this process may use this opening; false if the path now leads to another file.
    pub(crate) fn is_good_for(&self, options: &SharedFileOptions) -> Result<bool, Failure> {
        if !self.is_there() {
            return Ok(false);
        }
        check_owner(&self.file, &self.path)?;
        let found = examine(&self.file, &self.path, options, false)?;
        Ok(Layout::of_size(found.size) == self.layout)
    }

    /// Whether the path still leads to this file.
    pub(crate) fn is_there(&self) -> bool {
        is_there(&self.file, &self.path)
    }
}

/// Opens or creates the file; also returns whether it was created.
fn open_or_make(path: &Path) -> Result<(File, bool), Failure> {
    let mut options = OpenOptions::new();
    let flags = i32::try_from(rustix::fs::OFlags::NOFOLLOW.bits()).unwrap_or(0);
    options.read(true).write(true).mode(0o600).custom_flags(flags);
    for _ in 0..ATTEMPTS {
        match options.open(path) {
            Err(error) if error.kind() == Io::NotFound => {}
            opened => return opened.map(|file| (file, false)).map_err(|error| not_opened(path, &error)),
        }
        match options.clone().create_new(true).open(path) {
            Err(error) if error.kind() == Io::AlreadyExists => {}
            made => return made.map(|file| (file, true)).map_err(|error| not_opened(path, &error)),
        }
    }
    Err(unavailable(path, Degradation::Unreachable, "it is removed again and again while it is opened"))
}

/// Removes a file that this process created and could not complete. A process that waits to open it finds that it is
/// gone and creates another one; a file that was completed meanwhile stays.
fn remove_empty(file: &File, path: &Path, is_ours: bool) {
    if is_ours && is_there(file, path) && file.metadata().is_ok_and(|found| found.len() == 0) {
        // If removal fails, the file stays: the reported error already names what is wrong with its directory.
        let _ = std::fs::remove_file(path);
    }
}

fn not_opened(path: &Path, error: &io::Error) -> Failure {
    let failure = match Errno::from_io_error(error) {
        Some(Errno::NOENT) => unavailable(
            path,
            Degradation::Unreachable,
            "its directory does not exist: make it, or name another file",
        ),
        Some(Errno::LOOP) => failed(path, "it is a symbolic link: name the file itself"),
        Some(Errno::ISDIR) => failed(path, "it is a directory: name a file"),
        Some(Errno::ACCESS | Errno::PERM) => {
            failed(path, "this user may not open it: it belongs to another user, or its directory does")
        }
        Some(Errno::NOSPC | Errno::DQUOT) => without_space(path, "there is no space for it"),
        _ => return unusable(path, "opened", error),
    };
    failure.caused_by(error)
}

/// Checks that only this user may read or write the file.
fn check_owner(file: &File, path: &Path) -> Result<(), Failure> {
    let found = file.metadata().map_err(|error| unusable(path, "looked at", &error))?;
    let user = rustix::process::geteuid().as_raw();
    if !found.is_file() {
        return Err(failed(path, "it is no regular file: name another"));
    }
    if found.uid() != user {
        return Err(failed(
            path,
            &format!("it belongs to user {} and this is user {user}: name another file", found.uid()),
        ));
    }
    if found.mode() & 0o077 != 0 {
        return Err(failed(
            path,
            &format!(
                "its mode is {:04o}: allowed is 0600, so that only its owner has it",
                found.mode() & 0o7777
            ),
        ));
    }
    Ok(())
}

fn is_there(file: &File, path: &Path) -> bool {
    let id = |found: &std::fs::Metadata| (found.dev(), found.ino());
    match (file.metadata(), std::fs::symlink_metadata(path)) {
        (Ok(ours), Ok(theirs)) => id(&ours) == id(&theirs),
        _ => false,
    }
}

/// The content of the header.
enum Header {
    /// The file is not complete yet.
    None,
    Ours {
        size: u64,
        boot: [u64; 2],
    },
}

fn read_header(file: &File, path: &Path, length: u64) -> Result<Header, Failure> {
    let mut bytes = [0_u8; header::USED * 8];
    let there = usize::try_from(length).unwrap_or(usize::MAX).min(bytes.len());
    file.read_exact_at(&mut bytes[..there], 0).map_err(|error| unusable(path, "read", &error))?;
    let word = |at: usize| bytes[at * 8..].first_chunk().map_or(0, |word| u64::from_ne_bytes(*word));
    // The process that created it may have been killed: see `prepare`.
    let of_ours = word(header::SIZE) == length && matches!(word(header::VERSION), 0 | VERSION);
    if word(header::MAGIC) == 0 && (of_ours || bytes.iter().all(|byte| *byte == 0)) {
        return Ok(Header::None);
    }
    if word(header::MAGIC) != MAGIC {
        return Err(failed(path, "it is not a store of polylimit: name another file, or remove it"));
    }
    if word(header::VERSION) != VERSION {
        return Err(failed(
            path,
            &format!(
                "it has version {} and this is a polylimit of version {VERSION}: name another file, or remove it when \
                 no process uses it",
                word(header::VERSION)
            ),
        ));
    }
    let size = word(header::SIZE);
    if !(MIN_SIZE..=MAX_SIZE).contains(&size) || size % 8 != 0 {
        return Err(failed(path, "its header is damaged: remove it, and what was used is forgotten"));
    }
    Ok(Header::Ours { size, boot: [word(header::BOOT), word(header::BOOT + 1)] })
}

/// Another process or thread is opening the file.
#[cold]
pub(crate) fn being_opened(path: &Path, patience: Patience) -> Failure {
    let why = "another process has been opening it for too long: is it stopped?";
    Failure { is_busy: patience == Patience::Spin, ..unavailable(path, Degradation::Busy, why) }
}

type Parts = (Mapping, Layout, Secret, Token);

/// Opens the file while no other process does; `None` when it was removed meanwhile. A file that is then unexpectedly
/// empty is removed.
fn open_in_turn(
    file: &File,
    path: &Path,
    options: &SharedFileOptions,
    (is_made, patience): (bool, Patience),
) -> Result<Option<Parts>, Failure> {
    let opening = Opening::wait(file, patience)
        .inspect_err(|_| remove_empty(file, path, is_made))
        .map_err(|error| unusable(path, "locked", &error))?;
    let Some(opening) = opening else { return Err(being_opened(path, patience)) };
    if !is_there(file, path) {
        return Ok(None);
    }
    let was_empty = file.metadata().is_ok_and(|found| found.len() == 0);
    let opened = open_locked(file, path, options, &opening);
    opened.map(Some).inspect_err(|_| remove_empty(file, path, is_made || !was_empty))
}

/// The result of examining a file.
struct Examination {
    /// In bytes, as the header says, or as a new file will be.
    size: u64,
    /// The actual length in bytes.
    length: u64,
    /// Whether the content is to be discarded.
    is_new: bool,
}

/// Checks whether the file may be opened, by its first or by a further user.
fn examine(
    file: &File,
    path: &Path,
    options: &SharedFileOptions,
    first: bool,
) -> Result<Examination, Failure> {
    let length = file.metadata().map_err(|error| unusable(path, "looked at", &error))?.len();
    let (size, is_new) = match read_header(file, path, length)? {
        Header::None if !first => {
            return Err(failed(path, "its header was erased while it is in use: remove it"));
        }
        Header::Ours { size, .. } if options.size.is_some_and(|wanted| wanted != size) => {
            return Err(Failure::from(Error::invalid_argument(format!(
                "the local store {} was created with {size} bytes, not {}: leave the size out, or remove it \
                 when no process uses it",
                path.display(),
                options.size.unwrap_or_default()
            ))));
        }
        Header::Ours { size, .. } if !first && length < size => {
            return Err(failed(
                path,
                "it was truncated while it is in use: stop the processes that use it and remove it",
            ));
        }
        // The processes that have it open use another layout than this header describes.
        Header::Ours { size, .. } if !first && length != size => {
            return Err(failed(
                path,
                "its header was damaged while it is in use: stop the processes that use it and remove it",
            ));
        }
        Header::Ours { size, boot } if !first || boot == this_boot() => (size, false),
        Header::Ours { size, .. } => (size, true),
        Header::None => (options.size_to_make(), true),
    };
    Ok(Examination { size, length, is_new })
}

fn open_locked(
    file: &File,
    path: &Path,
    options: &SharedFileOptions,
    opening: &Opening<'_>,
) -> Result<Parts, Failure> {
    let failure = |done: &'static str| move |error: io::Error| unusable(path, done, &error);
    let first = opening.is_first().map_err(failure("locked"))?;
    let found = examine(file, path, options, first)?;
    let Examination { size, length, is_new } = found;
    if is_new {
        file.set_len(0).map_err(failure("emptied"))?;
    }
    allocate(file, path, size, if is_new { 0 } else { length })?;
    let bytes = usize::try_from(size).map_err(|_| failed(path, "it is larger than this machine's memory"))?;
    let mapping = Mapping::new(file, bytes).map_err(failure("mapped"))?;
    let layout = Layout::of_size(size);
    let secret = prepare(&mapping, layout, &found, first);
    let token = opening.claim(mapping.words()).map_err(failure("locked"))?;
    let token =
        token.ok_or_else(|| unavailable(path, Degradation::MaxClients, "as many processes use it as may"))?;
    Ok((mapping, layout, secret, token))
}

/// Writes the header of a new file, or repairs a file that no other process has open.
fn prepare(mapping: &Mapping, layout: Layout, found: &Examination, first: bool) -> Secret {
    let words = mapping.words();
    let Examination { size, length, is_new } = *found;
    if is_new {
        let [one, two] = this_boot();
        let mut values = vec![VERSION, size, 0, one, two];
        values.extend((0..6).map(|number| RandomState::new().hash_one(number)));
        // Written first, so that an unfinished header can be distinguished from a file that is no store.
        words[header::SIZE].store(size, Ordering::Release);
        for (word, value) in words[header::VERSION..].iter().zip(values) {
            word.store(value, Ordering::Release);
        }
        words[header::MAGIC].store(MAGIC, Ordering::Release);
    }
    let secret = Secret(std::array::from_fn(|at| words[header::SECRET + at].load(Ordering::Relaxed)));
    if first && !is_new {
        for owner in 0..OWNERS {
            words[owner_at(owner)].store(0, Ordering::Relaxed);
        }
        if length < size || !is_in_order(words, layout) {
            for number in 0..=layout.shards {
                let shard = Shard::new(&words[layout.shard(number)]);
                recover(&shard, |key| secret.hash(key));
                shard.set(head::LOCK, 0);
            }
        }
    }
    secret
}

/// Allocates every byte of the file.
fn allocate(file: &File, path: &Path, size: u64, length: u64) -> Result<(), Failure> {
    // Beyond this limit the system would send a signal.
    let most = rustix::process::getrlimit(rustix::process::Resource::Fsize).current;
    if most.is_some_and(|most| most < size) {
        return Err(unavailable(
            path,
            Degradation::NoResources,
            &format!(
                "it needs {size} bytes and this process may write files of {} at most",
                most.unwrap_or(0)
            ),
        ));
    }
    let allocated = match reserve(file, size) {
        // Some file systems cannot allocate: then zeros are written to the missing part.
        Err(Errno::OPNOTSUPP) => write_zeros(file, length, size),
        done => done.map_err(io::Error::from),
    };
    allocated.map_err(|error| {
        // Releases the space of the incomplete file.
        let _ = file.set_len(length);
        match Errno::from_io_error(&error) {
            Some(Errno::NOSPC | Errno::DQUOT | Errno::FBIG) => without_space(
                path,
                &format!(
                    "there is no space for its {size} bytes: free some on its file system, or make it smaller with \
                     ?size= in its URL (1MiB or more)"
                ),
            ),
            _ => unusable(path, "allocated", &error),
        }
    })
}

/// The size of one allocation request: a signal may interrupt it, and some systems then release what it had allocated.
const PIECE: u64 = 4 << 20;
/// The maximum number of interruptions by signals.
const MAX_INTERRUPTIONS: u32 = 10_000;

fn reserve(file: &File, size: u64) -> rustix::io::Result<()> {
    let (mut at, mut interruptions) = (0, 0);
    while at < size {
        let part = PIECE.min(size - at);
        match rustix::fs::fallocate(file, FallocateFlags::empty(), at, part) {
            Err(Errno::INTR) if interruptions < MAX_INTERRUPTIONS => interruptions += 1,
            Err(error) => return Err(error),
            Ok(()) => at += part,
        }
    }
    Ok(())
}

fn write_zeros(file: &File, length: u64, size: u64) -> io::Result<()> {
    let zeros = vec![0; 1 << 16];
    let mut at = length;
    while at < size {
        let part = usize::try_from(size - at).unwrap_or(zeros.len()).min(zeros.len());
        file.write_all_at(&zeros[..part], at)?;
        at += part as u64;
    }
    Ok(())
}

/// Identifies the boot of the system; zeros when the system does not report it.
fn this_boot() -> [u64; 2] {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    let half = |part: Option<&str>| part.and_then(|part| u64::from_str_radix(part, 16).ok()).unwrap_or(0);
    [half(digits.get(..16)), half(digits.get(16..32))]
}
