//! The commands of the module that people type, with arguments and a value of any bytes: a refused one writes nothing, a decided one has a
//! possible reply and leaves a value that it can read.

use std::ops::Range;

use polylimit_redis::by_hand::{check, throttle};
use polylimit_redis::keyspace::{Change, Effect, Found, Keyspace};
use polylimit_redis::policies::Policies;
use polylimit_redis::refusal::Refusal;

const NOW_US: u64 = 1_790_000_000_000_000;
/// The most units of a quota, and of a request.
const MOST: i64 = 1_000_000_000_000;

/// The only key of a command.
struct Key {
    value: Option<Vec<u8>>,
    /// Whether it has another type.
    is_foreign: bool,
    writes: usize,
}

impl Keyspace for Key {
    fn update(&mut self, key: usize, decide: &mut dyn FnMut(Found<'_>) -> Effect) {
        assert_eq!(key, 0);
        let found = match &self.value {
            _ if self.is_foreign => Found::Foreign,
            Some(value) => Found::String(value),
            None => Found::Nothing,
        };
        let change = decide(found).change;
        self.writes += usize::from(change != Change::Nothing);
        match change {
            Change::Nothing => {}
            Change::Delete => self.value = None,
            Change::Overwrite(bytes) => {
                assert_eq!(self.value.as_ref().map(Vec::len), Some(bytes.len()));
                self.value = Some(bytes.into_vec());
            }
            Change::Set(bytes, _) => self.value = Some(bytes.into_vec()),
            Change::Write(at, bytes, _) => {
                let mut value = self.value.take().unwrap_or_default();
                assert!(at <= value.len());
                value.truncate(at);
                value.extend_from_slice(&bytes);
                self.value = Some(value);
            }
        }
    }

    fn update_together(&mut self, keys: Range<usize>, decide: &mut dyn FnMut(&[Found<'_>]) -> Vec<Effect>) {
        assert!(keys.is_empty(), "these commands have one key");
        decide(&[]);
    }
}

/// The arguments, separated by spaces, and the value of the key: a byte for the command and the key's type, then the arguments' length.
pub fn run(bytes: &[u8]) {
    let [which, length, rest @ ..] = bytes else { return };
    let (arguments, value) = rest.split_at(usize::from(*length).min(rest.len()));
    let is_throttle = which & 1 == 1;
    let mut key =
        Key { value: (!value.is_empty()).then(|| value.to_vec()), is_foreign: which & 2 == 2, writes: 0 };
    let mut policies = Policies::default();
    let mut decide = |key: &mut Key| -> Option<Result<[i64; 5], Refusal>> {
        if is_throttle {
            let mut arguments = arguments.split(|byte| *byte == b' ');
            let numbers = [arguments.next()?, arguments.next()?, arguments.next()?];
            return Some(throttle(&mut policies, numbers, arguments.next(), NOW_US, key));
        }
        // Quotas have spaces themselves.
        let mut arguments = arguments.splitn(2, |byte| *byte == b'|');
        Some(check(&mut policies, arguments.next()?, arguments.next(), NOW_US, key))
    };
    let Some(first) = decide(&mut key) else { return };
    let Ok(reply) = first else {
        assert_eq!(key.writes, 0, "a refused command writes");
        assert_eq!(key.value.as_deref().unwrap_or_default(), value);
        return;
    };
    assert!(!key.is_foreign);
    let (answers, verdicts) =
        if is_throttle { (&reply[1..3], &reply[3..]) } else { (&reply[1..2], &reply[2..]) };
    assert!(
        (0..=1).contains(&reply[0]) && answers.iter().all(|units| (0..=MOST).contains(units)),
        "{reply:?}"
    );
    assert!(verdicts.iter().all(|wait| *wait >= -1), "{reply:?}");
    assert!(decide(&mut key).is_some_and(|again| again.is_ok()), "the value that was written is refused");
}
