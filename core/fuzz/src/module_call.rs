//! Calls of the module in a server, with policies, arguments and values of keys of any bytes: each is decided or refused.

use std::collections::BTreeMap;

use polylimit_redis::call::Call;
use polylimit_redis::keyspace::{Change, Effect, Found, Keyspace};
use polylimit_redis::policies::Policies;

const NOW_US: u64 = 1_790_000_000_000_000;
const POLICIES: [&str; 6] = [
    "10/s token_bucket",
    "1000000000000/366d token_bucket burst=1000000000000; 7/h",
    "10/minute token_bucket step=5; 5/m fixed_window aligned count_denied",
    "3 concurrent; 20/m token_bucket",
    "9/day leaky_bucket\npenalty 2 1000000 60000000 3600000000 5000000",
    "10/m token_bucket step=2; 0/s\nnow",
];

struct Keys(BTreeMap<usize, Vec<u8>>);

impl Keyspace for Keys {
    fn update(&mut self, key: usize, decide: &mut dyn FnMut(Found<'_>) -> Effect) {
        let found = self.0.get(&key).map_or(Found::Nothing, |value| Found::String(value));
        match decide(found).change {
            Change::Nothing => {}
            Change::Delete => drop(self.0.remove(&key)),
            Change::Overwrite(bytes) | Change::Set(bytes, _) => drop(self.0.insert(key, bytes.into_vec())),
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
    let mut keys = Keys(BTreeMap::new());
    let count = 1 + piece(&mut rest).first().map_or(0, |count| usize::from(count % 4));
    for key in 0..count {
        let value = piece(&mut rest);
        if !value.is_empty() {
            keys.0.insert(key, value.to_vec());
        }
    }
    let mut policies = Policies::default();
    if let (Ok(policy), Ok(call)) = (policies.named(text), Call::read(call, holds, count)) {
        // Twice: by the values that are given, and by those that it has written.
        for _ in 0..2 {
            let mut reply = Vec::new();
            call.decide(&policy, NOW_US, &mut keys, &mut reply);
            assert!((14..400_000).contains(&reply.len()), "{}", reply.len());
        }
    }
}
