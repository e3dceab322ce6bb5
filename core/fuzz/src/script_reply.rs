//! Any bytes are a reply of a script to its call or refused: nothing panics, and what is decided is possible.
//!
//! The bytes are a policy, as a line of quotas, the number of entries, four bytes for each entry, and the reply. The call's
//! nonce is that of the reply.

use polylimit::Policy;
use polylimit::clock::ManualClock;
use polylimit::testing::script::{Item, Operation, Outcome, Read, Script};

/// The most entries of a call and checks of an entry, so that an input runs quickly.
const MOST: u8 = 8;

const OPERATIONS: [Operation; 6] = [
    Operation::Check,
    Operation::Peek,
    Operation::Take,
    Operation::Charge,
    Operation::Refund,
    Operation::Reset,
];

/// Reads the policy and the entries, and has the call read its reply.
pub fn run(bytes: &[u8]) {
    let mut lines = bytes.splitn(2, |byte| *byte == b'\n');
    let (Some(quotas), Some(rest)) = (lines.next(), lines.next()) else { return };
    let Some(policy) = str::from_utf8(quotas).ok().and_then(|quotas| Policy::parse("p", quotas).ok()) else {
        return;
    };
    let Some((&entries, rest)) = rest.split_first() else { return };
    let Some((entries, reply)) = rest.split_at_checked(4 * usize::from(1 + entries % MOST)) else { return };
    let script = Script::new(&policy);
    let items: Vec<Item<'_>> = entries.chunks(4).map(|entry| item(entry, &script)).collect();
    let nonce = reply.first_chunk().copied().unwrap_or_default();

    match script.read(reply, nonce, &items) {
        Read::Malformed | Read::Contradictory => {}
        Read::Late(server_now_us) => assert!(server_now_us <= ManualClock::MAX_US),
        Read::Decided { now_us, outcomes, healed } => {
            assert!(now_us <= ManualClock::MAX_US && healed <= items.len());
            let counts = items.iter().map(|&(_, _, _, count)| usize::from(count));
            assert_eq!(outcomes.len(), counts.sum::<usize>());
            for outcome in &outcomes {
                check_outcome(outcome, &policy);
            }
            // A reply has one end.
            let longer = [reply, b"\0"].concat();
            for other in [&reply[..reply.len() - 1], &longer] {
                assert_eq!(script.read(other, nonce, &items), Read::Malformed);
            }
        }
    }
    let other_nonce = nonce.map(|byte| !byte);
    assert_eq!(script.read(reply, other_nonce, &items), Read::Malformed);
}

/// The operation, two bytes of the cost and the number of checks.
fn item(entry: &[u8], script: &Script) -> Item<'static> {
    let operation = OPERATIONS[usize::from(entry[0]) % OPERATIONS.len()];
    let coalesces = operation == Operation::Check && script.can_coalesce();
    let count = if coalesces { 1 + entry[3] % MOST } else { 1 };
    (b"key", operation, u64::from(u16::from_be_bytes([entry[1], entry[2]])), u16::from(count))
}

fn check_outcome(outcome: &Outcome, policy: &Policy) {
    assert_eq!(outcome.quotas().len(), policy.quotas().len());
    for (usage, quota) in outcome.quotas().iter().zip(policy.quotas()) {
        assert!(usage.remaining <= quota.capacity(), "{outcome:?}");
    }
    if let Outcome::Decision(decision) = outcome {
        let least = decision.quotas().iter().map(|usage| usage.remaining).min();
        assert_eq!(Some(decision.remaining()), least, "{outcome:?}");
        assert!(
            !decision.allowed() || decision.retry_after_us().is_none_or(|after_us| after_us == 0),
            "{outcome:?}"
        );
    }
}
