//! Calls of the module in a server, with policies, arguments and values of keys of any bytes: each is decided or refused.

use std::collections::BTreeMap;
use std::ops::Range;

use polylimit_redis::call::Call;
use polylimit_redis::keyspace::{Change, Effect, Found, Keyspace};
use polylimit_redis::policies::Policies;

const NOW_US: u64 = 1_790_000_000_000_000;
const POLICIES: [&str; 9] = [
    "10/s token_bucket",
    "1000000000000/366d token_bucket burst=1000000000000; 7/h",
    "10/minute token_bucket step=5; 5/m fixed_window aligned count_denied",
    "3 concurrent; 20/m token_bucket",
    "9/day leaky_bucket\npenalty 2 1000000 60000000 3600000000 5000000",
    "10/m token_bucket step=2; 0/s\nnow",
    "5/month; 9/h count_denied\nwindow 1788220800000000 1790812800000000",
    "5/s sliding_log",
    "300/day sliding_log count_denied; 3 concurrent; 1000000000000/h sliding_log\nlogs 1000",
];

struct Keys(BTreeMap<usize, Vec<u8>>);

impl Keys {
    fn found(&self, key: usize) -> Found<'_> {
        self.0.get(&key).map_or(Found::Nothing, |value| Found::String(value))
    }

    fn apply(&mut self, key: usize, change: Change) {
        match change {
            Change::Nothing => {}
            Change::Delete => drop(self.0.remove(&key)),
            Change::Overwrite(bytes) | Change::Set(bytes, _) => drop(self.0.insert(key, bytes.into_vec())),
            Change::Write(at, bytes, _) => {
                let value = self.0.get_mut(&key).expect("a value of which a part is written");
                assert!(at <= value.len());
                value.truncate(at);
                value.extend_from_slice(&bytes);
            }
        }
    }
}

impl Keyspace for Keys {
    fn update(&mut self, key: usize, decide: &mut dyn FnMut(Found<'_>) -> Effect) {
        let change = decide(self.found(key)).change;
        self.apply(key, change);
    }

    fn update_together(&mut self, keys: Range<usize>, decide: &mut dyn FnMut(&[Found<'_>]) -> Vec<Effect>) {
        let found: Vec<_> = keys.clone().map(|key| self.found(key)).collect();
        let effects = decide(&found);
        for (key, Effect { change, .. }) in keys.zip(effects) {
            self.apply(key, change);
        }
    }
}

/// The next piece: its length in a byte, and its bytes.
fn piece<'a>(rest: &mut &'a [u8]) -> &'a [u8] {
    let Some((length, bytes)) = rest.split_first() else { return &[] };
    let (piece, after) = bytes.split_at(usize::from(*length).min(bytes.len()));
    *rest = after;
    piece
}

/// The number of a policy, or 255 and a text; a call, its reservations, and the values of one to four keys.
pub fn run(bytes: &[u8]) {
    let Some((which, mut rest)) = bytes.split_first() else { return };
    let text = if *which == 255 {
        piece(&mut rest)
    } else {
        POLICIES[usize::from(*which) % POLICIES.len()].as_bytes()
    };
    let (call, holds) = (piece(&mut rest), piece(&mut rest));
    let mut policies = Policies::default();
    let Ok(policy) = policies.named(text) else { return };
    let mut keys = Keys(BTreeMap::new());
    let count = 1 + piece(&mut rest).first().map_or(0, |count| usize::from(count % 4));
    for key in 0..count * policy.keys_of_entry() {
        let value = piece(&mut rest);
        if !value.is_empty() {
            keys.0.insert(key, value.to_vec());
        }
    }
    if let Ok(call) = Call::read(call, holds, count) {
        // Twice: by the values that are given, and by those that it has written.
        for _ in 0..2 {
            let mut reply = Vec::new();
            call.decide(&policy, NOW_US, &mut keys, &mut reply);
            assert!((14..400_000).contains(&reply.len()), "{}", reply.len());
        }
    }
}
