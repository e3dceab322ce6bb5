//! A file of the local store with any damage, while it is in use or not: each operation decides within its quotas, or fails.
//!
//! The first byte says whether the limiter is open while the file is damaged, and whether the file is then shortened. Three
//! bytes each are a change of the file: which word, and its new value.

use std::fs::OpenOptions;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use polylimit::clock::ManualClock;
use polylimit::{ErrorKind, Limiter, Policy, blocking};

const NOW_US: u64 = 1_790_000_000_000_000;
/// The smallest size that the local store accepts.
const BYTES: usize = 1 << 20;
/// The first word of the only shard, its lock: behind the header and the owners, see `layout.rs` of the store.
const SHARD: usize = 512 + 4 * 1024;
/// The words of a shard's head.
const SHARD_HEAD: usize = 16;
/// The word of the size in the header.
const SIZE: usize = 2;
/// The words of the secret that keys are hashed with. They are fixed here, so that an input always does the same.
const SECRET: std::ops::Range<usize> = 6..12;
/// One of each algorithm.
const QUOTAS: &str = "5/m; 9/h sliding_log; 3/m token_bucket; 7/h fixed_window; 8/d token_bucket step=8";
/// The least limit of the quotas.
const LIMIT: u64 = 3;
/// The keys of the undamaged file, and some more.
const KEYS: std::ops::Range<u32> = 0..12;
const KNOWN_KEYS: std::ops::Range<u32> = 0..9;

/// The undamaged file, and where it is put.
struct Store {
    path: PathBuf,
    image: Vec<u8>,
    /// The words of the image that are not zero, except the size and the lock: a lock of a living process is waited for.
    used: Vec<usize>,
}

/// Removes the file when an input has run.
struct Removal<'a>(&'a Path);

impl Drop for Removal<'_> {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(self.0);
    }
}

/// Damages the file and works with it.
pub fn run(bytes: &[u8]) {
    static STORE: OnceLock<Store> = OnceLock::new();
    let Some((how, changes)) = bytes.split_first() else { return };
    let store = STORE.get_or_init(Store::new);
    let _removal = Removal(&store.path);
    let (in_use, shortened) = (how % 2 == 1, how % 4 == 2);
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&store.path);
    let file = file.expect("the input before has removed its file");
    file.write_all_at(&store.image, 0).expect("there is space");
    let open = in_use.then(|| limiter(&store.path));
    if let Some(limiter) = &open {
        let _ = limiter.peek("key:0").expect("the file is undamaged");
    }
    for change in changes.chunks_exact(3) {
        let (at, word) = store.change([change[0], change[1], change[2]]);
        file.write_all_at(&word.to_ne_bytes(), 8 * at as u64).expect("there is space");
    }
    // The open limiter would fault on missing pages, as docs/local.md says.
    if shortened {
        file.set_len(u64::from(*how) * 4_111 % BYTES as u64).expect("a file can be shortened");
    }
    operate(&open.unwrap_or_else(|| limiter(&store.path)));
}

fn limiter(path: &Path) -> blocking::Limiter {
    let policy = Policy::parse("p", QUOTAS).expect("the quotas are valid");
    let clock = ManualClock::new(NOW_US).expect("it is before 2255");
    let builder = Limiter::builder().store(&format!("file://{}", path.display())).policy(policy);
    builder.clock(clock).build().expect("the file is opened by the first operation").blocking()
}

impl Store {
    fn new() -> Self {
        let path = PathBuf::from(format!("/dev/shm/polylimit-fuzz-{}", std::process::id()));
        // A process of the same number that was killed may have left its file.
        let _ = std::fs::remove_file(&path);
        let removal = Removal(&path);
        // A limiter makes the file; the next one finds the fixed secret there.
        let policy = Policy::parse("p", QUOTAS).expect("the quotas are valid");
        let builder =
            Limiter::builder().store(&format!("file://{}", path.display())).local_size(BYTES as u64);
        let first = builder.policy(policy).build().expect("there is a policy").blocking();
        let _ = first.peek("key").expect("the file can be made");
        drop(first);
        let file = OpenOptions::new().read(true).write(true).open(&path).expect("the file is there");
        for at in SECRET {
            let word = 0x9E37_79B9_7F4A_7C15_u64.wrapping_mul(at as u64);
            file.write_all_at(&word.to_ne_bytes(), 8 * at as u64).expect("there is space");
        }
        let second = limiter(&path);
        for key in KNOWN_KEYS {
            for _ in 0..=key % 4 {
                let _ = second.check(&format!("key:{key}")).expect("the file is undamaged");
            }
        }
        drop(second);
        let mut image = vec![0; BYTES];
        file.read_exact_at(&mut image, 0).expect("the file has this length");
        let is_used = |at: &usize| *at != SHARD && *at != SIZE && image[8 * at..8 * at + 8] != [0; 8];
        let used = (0..BYTES / 8).filter(is_used).collect();
        drop(removal);
        Self { path, image, used }
    }

    /// The word that a change concerns, and its new value.
    fn change(&self, [how, place, what]: [u8; 3]) -> (usize, u64) {
        let place = usize::from(place);
        let at = match how % 4 {
            // The head of the shard without its lock, and the words of the header.
            0 if place < 128 => SHARD + 1 + place % (SHARD_HEAD - 1),
            // Not the size: a larger one is allocated.
            0 => [0, 1, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12][place % 12],
            // A word between the entries, and most often a free one.
            1 => SHARD + SHARD_HEAD + 31 * place,
            _ => self.used[(usize::from(how / 4) * 256 + place) % self.used.len()],
        };
        let bytes = self.image[8 * at..8 * at + 8].try_into().expect("8 bytes");
        let (word, what) = (u64::from_ne_bytes(bytes), u64::from(what));
        let word = match how / 64 {
            // Small numbers look like numbers of blocks and lengths.
            0 => what,
            1 => word ^ (1 << (what % 64)),
            2 => word.wrapping_add(what) << (8 * (what % 8)),
            _ => u64::MAX - what,
        };
        (at, word)
    }
}

/// Asks for all keys.
fn operate(limiter: &blocking::Limiter) {
    for key in KEYS {
        let key = format!("key:{key}");
        // Damage that shows at a write may cost a key its entry, so that a check need not agree with the peek before it.
        for decision in [limiter.peek(&key), limiter.check(&key)].into_iter().filter_map(decided) {
            assert!(decision.remaining() <= LIMIT, "{decision:?}");
            assert!(
                decision.allowed() || decision.remaining() == 0 && decision.retry_after_us() != Some(0),
                "{decision:?}"
            );
        }
        let refunded = decided(limiter.refund(&key));
        assert!(refunded.is_none_or(|usage| usage.remaining() <= LIMIT), "one quota has no more");
        if key == "key:3" {
            let usage = decided(limiter.reset(&key));
            assert!(usage.is_none_or(|usage| usage.remaining() == LIMIT), "a reset key has all units");
        }
    }
}

fn decided<T>(result: Result<T, polylimit::Error>) -> Option<T> {
    result.inspect_err(|error| assert_eq!(error.kind(), ErrorKind::StoreFailed, "{error}")).ok()
}
