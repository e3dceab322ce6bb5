//! Reads what a script was called with.

use polylimit::testing::script::Operation;

use crate::ledger::Action;
use crate::policies::{KEYS, ROWS};

/// The policy and the user's key of a main key.
pub(crate) fn read_key(key: &[u8]) -> Option<(usize, usize)> {
    let text = std::str::from_utf8(key).ok()?;
    let (prefix, tag) = text.strip_suffix('}')?.split_once(":{")?;
    let name = prefix.rsplit(':').next()?;
    Some((ROWS.iter().position(|row| row.name == name)?, KEYS.iter().position(|key| *key == tag)?))
}

/// The operations of a call: key, operation, cost and the number of checks; see lua/main.lua.
pub(crate) fn items<'a>(keys: &'a [Vec<u8>], header: &[u8]) -> Vec<(&'a [u8], Operation, u64, u16)> {
    let number = |from: usize, length: usize| {
        header[from..from + length].iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
    };
    if header[13] == 0 {
        return vec![(&keys[0], Operation::Check, number(14, 5), 1)];
    }
    let operation = |code| match code {
        0 => Operation::Check,
        1 => Operation::Peek,
        2 => Operation::Take,
        3 => Operation::Charge,
        4 => Operation::Refund,
        _ => Operation::Reset,
    };
    let entry = |(place, key): (usize, &'a Vec<u8>)| {
        let at = 24 + 8 * place;
        (key.as_slice(), operation(number(at, 1)), number(at + 1, 5), number(at + 6, 2) as u16)
    };
    keys.iter().enumerate().map(entry).collect()
}

/// The action of an operation.
pub(crate) fn action(operation: Operation) -> Action {
    match operation {
        Operation::Check => Action::Check,
        Operation::Peek => Action::Peek,
        Operation::Take => Action::Take,
        Operation::Charge => Action::Charge,
        Operation::Refund => Action::Refund,
        Operation::Reset => Action::Reset,
    }
}
