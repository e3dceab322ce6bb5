//! Which key belongs to which shard, computed here, so that keys can be looked for.

use polylimit_test_servers::SLOTS;

/// The slot of a user's key, of readable characters.
pub(crate) fn slot(key: &str) -> u16 {
    let crc = key.bytes().fold(0_u16, |crc, byte| {
        (0..8).fold(crc ^ u16::from(byte) << 8, |crc, _| (crc << 1) ^ if crc >> 15 == 1 { 0x1021 } else { 0 })
    });
    crc % SLOTS
}

/// Keys whose slots lie in that third of all, which is the primary of that number in a cluster of three.
pub(crate) fn keys_of_third(third: u16, count: usize) -> Vec<String> {
    let of_third = |key: &String| u32::from(slot(key)) * 3 / u32::from(SLOTS) == u32::from(third);
    (0..).map(|i| format!("user:{i}")).filter(of_third).take(count).collect()
}

/// Keys of one slot.
pub(crate) fn keys_of_one_slot(count: usize) -> Vec<String> {
    let chosen = slot("user:0");
    (0..).map(|i| format!("user:{i}")).filter(|key| slot(key) == chosen).take(count).collect()
}
