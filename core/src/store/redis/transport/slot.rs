//! The slot of a key in a Redis Cluster.
//!
//! The slot is the CRC16 (XMODEM: polynomial 0x1021, initial value 0, not reflected) of the hash tag, modulo 16384. The
//! hash tag is the text between the first `{` and the next `}`, unless it is empty; otherwise it is the whole key.

/// The number of slots of a cluster.
pub(crate) const SLOTS: u16 = 16_384;

pub(crate) fn slot(key: &[u8]) -> u16 {
    crc16(hash_tag(key)) % SLOTS
}

fn hash_tag(key: &[u8]) -> &[u8] {
    let tag = || {
        let start = key.iter().position(|&byte| byte == b'{')? + 1;
        let length = key[start..].iter().position(|&byte| byte == b'}')?;
        (length > 0).then(|| &key[start..start + length])
    };
    tag().unwrap_or(key)
}

fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| (crc << 8) ^ CRC16[usize::from((crc >> 8) as u8 ^ byte)])
}

/// The CRC of each single byte.
const CRC16: [u16; 256] = {
    let mut table = [0; 256];
    let mut byte: u16 = 0;
    while byte < 256 {
        let mut crc = byte << 8;
        let mut bit = 0;
        while bit < 8 {
            let carry = if crc & 0x8000 == 0 { 0 } else { 0x1021 };
            crc = (crc << 1) ^ carry;
            bit += 1;
        }
        table[byte as usize] = crc;
        byte += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_check_value_of_the_published_catalogue() {
        assert_eq!(crc16(b"123456789"), 0x31C3);
        assert_eq!(crc16(b""), 0);
    }

    /// Matches the reply of a server to `CLUSTER KEYSLOT`.
    #[test]
    fn slots_that_a_server_tells() {
        let told: [(&[u8], u16); 10] = [
            (b"foo", 12182),
            (b"bar", 5061),
            (b"hello", 866),
            (b"123456789", 12739),
            (b"{user1000}.following", 3443),
            (b"foo{}{bar}", 8363),
            (b"foo{{bar}}zap", 4015),
            (b"foo{bar}{zap}", 5061),
            (b"polylimit:1:api:{user:42}", 15880),
            (b"polylimit:1:api:{%}", 13511),
        ];
        for (key, there) in told {
            assert_eq!(slot(key), there, "{}", String::from_utf8_lossy(key));
        }
    }

    #[test]
    fn only_the_first_pair_of_braces_counts() {
        assert_eq!(hash_tag(b"{user1000}.following"), b"user1000");
        assert_eq!(hash_tag(b"foo{}{bar}"), b"foo{}{bar}");
        assert_eq!(hash_tag(b"foo{{bar}}zap"), b"{bar");
        assert_eq!(hash_tag(b"foo{bar}{zap}"), b"bar");
        assert_eq!(hash_tag(b"}foo{bar"), b"}foo{bar");
    }
}
